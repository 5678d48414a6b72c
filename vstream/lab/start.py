"""
How a lab comes up: choose ports, write the bundle, spawn, wait; and undo all of it on any failure.

The links between regions come first: servers dial each other through them. Called with the lab's lock held.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import TypeVar

from platformdirs import user_cache_path

from vstream.errors import LabError
from vstream.files import write_private
from vstream.jetstream.error_codes import ELECTION_TIMEOUT
from vstream.lab import add_regions, certificates, conf, passwords, ports, readiness, server_records
from vstream.lab.binaries import Program
from vstream.lab.links import choose
from vstream.lab.links.proxy_process import PortTakenError, ProxyProcess
from vstream.lab.links.state import Backend, Direction, LinkState
from vstream.lab.readiness import Member, ReadinessProgress, ReadinessStage
from vstream.lab.server import SpawnedServers, start_servers, stop_servers
from vstream.lab.state import LabDirectory, LabRecord, hold_lock, labs_directory, list_lab_directories
from vstream.topology.bundle import Artifact, Bundle
from vstream.topology.model import Topology, Transport
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class

_Result = TypeVar("_Result")

TLS_BY_DEFAULT = False
"""A lab of nine servers takes 20 to 33 % longer to start with it (7.1, 8.7, 11.6 s beside 5.9, 6.9, 8.7)."""
_MAX_ATTEMPTS = 4
_PORTS_TIMEOUT = 10.0
_UNHEARD_IN = "2.10."
"""
Where gateways connect at the same moment, these servers can lose the interest in answers for good: the leader of the
meta group then never hears one of its followers (7 of 60 starts of three servers; 2.11.11 and 2.12.8: none of 50),
or two servers never elect one (13 of 810 starts on a busy machine). Connecting anew heals it.
"""


@value_class
class LabSetup:
    """What a lab runs, and how its servers reach each other. What is not said stays as it was at the last start."""

    binary: Path | None = None
    """The program of all servers but those in *binaries*; by default whichever is at hand."""
    binaries: Mapping[str, Path] = field(default_factory=dict)
    """The programs of single servers, by name."""
    links: Backend | None = None
    """What makes the links between regions; by default a proxy where there are two or more."""
    shape: Mapping[Direction, LinkState] | None = None
    """How these links are; by default as the topology says."""
    tls: bool | None = None
    """Whether all ports use TLS."""


AS_BEFORE = LabSetup()


@value_class
class Start:
    """One `up` and its request. *deadline* is on the monotonic clock."""

    directory: LabDirectory
    topology: Topology
    render: Callable[[Sequence[ServerAddress]], Bundle]
    programs: Mapping[str, Program]
    """The program of each server, by name."""
    on_progress: Callable[[ReadinessProgress], None]
    deadline: float
    setup: LabSetup

    @property
    def shape(self) -> Mapping[Direction, LinkState]:
        """The requested shape of the links between regions."""
        return choose.link_states(self.topology.links) if self.setup.shape is None else self.setup.shape


async def start_all(start: Start) -> None:
    """Start all servers of a lab that is down."""
    _refuse_abandoned_data(start)
    await ProxyProcess(start.directory).stop()
    for attempt in range(_MAX_ATTEMPTS):
        try:
            await _start_at_free_ports(start, attempt)
        except PortTakenError:
            if attempt + 1 == _MAX_ATTEMPTS:
                raise
        else:
            return


async def _start_at_free_ports(start: Start, attempt: int) -> None:
    names = [seat.server.name for seat in start.topology.all_seats]
    proxy = ProxyProcess(start.directory)
    backend = choose.choose_backend(start.topology, start.setup.links)
    async with _stop_on_failure(start.directory, names, proxy):
        async with _claim_ports() as place:
            transport = await _provide_transport(start)
            addresses = _choose_addresses(start, attempt, backend, place)
            chosen = tuple(replace(address, transport=transport) for address in addresses)
            # First of all: from here on, `down` and other labs must know what is about to exist.
            start.directory.write(LabRecord(topology=start.topology.name, servers=chosen, programs=start.programs))
            proxy.write_orders(choose.make_links(chosen, backend, start.shape))
            conf.replace_files(start.directory.conf, _fill_in_passwords(start, start.render(chosen)))
            if backend is not Backend.NONE:
                proxy.start()
            await _check_configs(start, names)
            if backend is not Backend.NONE:
                await proxy.wait_until_ready()
            for server in server_records.list_recorded_servers(start.directory):
                server_records.forget(start.directory, server)
            needed = None if backend is Backend.NONE else proxy
            spawned = start_servers(start.directory, names, start.programs, needed)
            await _wait_for_ports(start, chosen, spawned)
        await _wait_until_ready(start, chosen, spawned)


async def start_missing(start: Start, running: frozenset[str]) -> None:
    """Start the missing servers of a lab of which *running* run: servers that have exited, and those of new regions."""
    directory, name = start.directory, start.directory.name
    record = directory.read()
    hint = f"`vstream lab down {name}` first"
    if record is None:
        raise LabError(f"servers of lab `{name}` are running, but its record is missing", hint=hint)
    _require_same_servers(start, record, hint)
    if not add_regions.find_new_regions(start.topology, record):
        await _start_recorded(start, running, record, hint)
        return
    links = choose.links_of_running_lab(directory, record.servers, start.setup.links, start.shape)
    async with _claim_ports() as place:
        reserved = _list_ports(_list_labs_elsewhere(place / "states")) | _list_ports(_list_other_labs(start))
        grown = add_regions.extend_record(
            directory, record, start.topology, start.programs, backend=links.backend, reserved=reserved
        )
        await _start_recorded(start, running, grown, hint)


async def _start_recorded(start: Start, running: frozenset[str], record: LabRecord, hint: str) -> None:
    """Start what of *record* is not *running*."""
    directory, name = start.directory, start.directory.name
    links = choose.links_of_running_lab(directory, record.servers, start.setup.links, start.shape)
    links = add_regions.extend_links(links, record, choose.make_links(record.servers, links.backend, start.shape))
    # What runs, and how it maps, stays: new servers load the mappings that the others have, until `apply` changes them.
    bundle = start.render(record.servers)
    if changed := conf.list_differing_configs(directory.conf, _fill_in_passwords(start, bundle)):
        raise LabError(
            f"lab `{name}` runs with another configuration: {', '.join(changed)}",
            hint=f"{hint}; a change of mappings alone can be loaded while it runs, by `vstream apply`",
        )
    missing = [address for address in record.servers if address.server.name not in running]
    if occupied := ports.find_occupied_ports(missing):
        raise LabError(
            f"lab `{name}` runs, and something else listens on its port {occupied[0]}",
            hint=f"end that, or use `vstream lab down {name}`: the next start chooses other ports",
        )
    names = [address.server.name for address in missing]
    proxy = ProxyProcess(directory)
    is_proxy_missing = links.backend is not Backend.NONE and proxy.process() is None
    async with _stop_on_failure(directory, names, proxy if is_proxy_missing else None):
        directory.write(record)
        proxy.write_orders(links)
        if is_proxy_missing:
            proxy.start()
        conf.replace_files(directory.conf, conf.keep_loaded_files(directory.conf, _fill_in_passwords(start, bundle)))
        await _check_configs(start, names)
        if is_proxy_missing:
            await proxy.wait_until_ready()
        answer = await proxy.make_reread(generation=links.generation)
        if answer is not None and answer.failure is not None:
            raise LabError(f"the links of lab `{name}` cannot be applied: {answer.failure}")
        needed = None if links.backend is Backend.NONE else proxy
        spawned = start_servers(start.directory, names, start.programs, needed)
        await _wait_for_ports(start, record.servers, spawned)
        # While links are cut, servers that are ready cannot be told from those that are not.
        if not any(links.state(pair).cut for pair in links.pairs):
            await _wait_until_ready(start, record.servers, spawned)


def _fill_in_passwords(start: Start, bundle: Bundle) -> tuple[Artifact, ...]:
    return passwords.with_passwords(start.directory.conf, bundle)


def _require_same_servers(start: Start, record: LabRecord, hint: str) -> None:
    """But for those of regions that are new. Raises LabError."""
    name = start.directory.name
    new = add_regions.find_new_regions(start.topology, record)
    expected = {(seat.region, seat.server.name) for seat in start.topology.all_seats if seat.region not in new}
    if expected != {(address.region, address.server.name) for address in record.servers}:
        raise LabError(f"lab `{name}` runs with other servers than topology `{start.topology.name}` has", hint=hint)
    if start.setup.tls not in {None, record.transport is not None}:
        speaks = "does not speak TLS" if start.setup.tls else "speaks TLS"
        raise LabError(f"lab `{name}` runs, and {speaks}", hint=hint)
    for server, program in start.programs.items():
        if server in record.programs and (runs := record.programs[server].version) != program.version:
            raise LabError(f"lab `{name}` runs `{server}` as nats-server {runs}, not {program.version}", hint=hint)


def _choose_addresses(start: Start, attempt: int, backend: Backend, place: Path) -> tuple[ServerAddress, ...]:
    """Where the servers listen: where they did last time, if they can. *place* is what all labs share."""
    seats = start.topology.all_seats
    record = start.directory.read()
    elsewhere = _list_ports(_list_labs_elsewhere(place / "states"))
    if record is not None and attempt == 0:
        before = ports.allocate(seats, record.servers[0].client, start.directory, backend=backend)
        recorded = tuple(replace(address, transport=None) for address in record.servers)
        is_ours = elsewhere.isdisjoint(ports.list_ports(record.servers))
        fronts = [front for address in before for front in ports.front_ports(address)]
        if before == recorded and is_ours and not ports.find_occupied_ports(before) and all(map(ports.is_free, fronts)):
            return before
    reserved = elsewhere | _list_ports(_list_other_labs(start))
    # Two labs that collided must not meet again in the next block.
    skip = attempt and attempt + os.getpid() % 8
    first = ports.choose_block(len(seats), fronts=ports.count_fronts(seats, backend), reserved=reserved, skip=skip)
    return ports.allocate(seats, first, start.directory, backend=backend)


async def _provide_transport(start: Start) -> Transport | None:
    """What all ports of a lab that starts speak TLS with, if they do."""
    record = start.directory.read()
    had_tls = TLS_BY_DEFAULT if record is None else record.transport is not None
    has_tls = had_tls if start.setup.tls is None else start.setup.tls
    return await certificates.provide_transport(start.directory, start.topology) if has_tls else None


def _list_ports(labs: Iterable[LabRecord]) -> frozenset[int]:
    return ports.list_ports(address for lab in labs for address in lab.servers)


def _list_labs_elsewhere(shared: Path) -> Iterator[LabRecord]:
    """
    Records of this user's labs in other state directories with servers that should run: their ports stay reserved.

    A port that nobody listens on may belong to a server that was killed on purpose and will come back there. *shared* is the
    directory in which `_claim_ports` names each of them.
    """
    own_directory = labs_directory()
    for entry in sorted(shared.glob("[!.]*")):
        labs = _read_labs_path(entry)
        if labs is None or labs == own_directory:
            continue
        directories = [LabDirectory(path.parent.name, path.parent) for path in labs.glob("*/lab.json")]
        if not directories:
            entry.unlink(missing_ok=True)
        for directory in directories:
            with suppress(LabError):
                if server_records.list_recorded_servers(directory) and (record := directory.read()) is not None:
                    yield record


def _remember_own(shared: Path, labs: Path) -> None:
    shared.mkdir(parents=True, exist_ok=True)
    entry = shared / hashlib.sha256(str(labs).encode()).hexdigest()[:16]
    if _read_labs_path(entry) != labs:
        write_private(entry, str(labs))


def _read_labs_path(entry: Path) -> Path | None:
    try:
        return Path(entry.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _list_other_labs(start: Start) -> Iterator[LabRecord]:
    """What other labs are made of, as far as their records can be read."""
    for directory in list_lab_directories():
        with suppress(LabError):
            if directory.name != start.directory.name and (record := directory.read()) is not None:
                yield record


def _refuse_abandoned_data(start: Start) -> None:
    """JetStream waits for ever for the votes of servers that have gone: say so now."""
    expected = {seat.server.name for seat in start.topology.all_seats}
    stored = {path.name.removeprefix(".").removesuffix(".next") for path in start.directory.data.glob("*")}
    if abandoned := sorted(stored - expected):
        raise LabError(
            f"lab `{start.directory.name}` holds data of servers that topology `{start.topology.name}` does not have: "
            f"{', '.join(abandoned)}",
            hint=f"`vstream lab down {start.directory.name} --purge` removes it, another `--lab` keeps it",
        )


async def _check_configs(start: Start, names: Sequence[str]) -> None:
    def on_checked(count: int) -> None:
        start.on_progress(ReadinessProgress(ReadinessStage.CONFIGS, count, len(names)))

    binaries = {name: start.programs[name].binary for name in names}
    await conf.check_with_server(binaries, start.directory.conf, on_checked)


async def _wait_for_ports(start: Start, at: Sequence[ServerAddress], spawned: SpawnedServers) -> None:
    readiness.trust_monitors(at)
    await readiness.wait_for_stage(
        ReadinessStage.ACCEPTING,
        readiness.list_members(at),
        readiness.check_clients,
        spawned=spawned,
        on_progress=start.on_progress,
        deadline=start.deadline,
    )


async def _wait_until_ready(start: Start, at: Sequence[ServerAddress], spawned: SpawnedServers) -> None:
    """Return once the servers *at* are linked and led."""
    everyone = readiness.list_members(at)

    async def wait(stage: ReadinessStage, check: Callable[[Member], Awaitable[str | None]], deadline: float) -> None:
        await readiness.wait_for_stage(
            stage, everyone, check, spawned=spawned, on_progress=start.on_progress, deadline=deadline
        )

    await wait(ReadinessStage.LINKED, readiness.check_links, start.deadline)
    started = [server.name for server in spawned.marks]
    may_be_unheard = [name for name in started if start.programs[name].version.startswith(_UNHEARD_IN)]
    while True:
        deadline = min(start.deadline, time.monotonic() + ELECTION_TIMEOUT) if may_be_unheard else start.deadline
        try:
            await wait(ReadinessStage.LED, readiness.check_meta_leader, deadline)
        except LabError:
            if deadline == start.deadline:
                raise
        else:
            return
        unheard = sorted((await readiness.find_unheard_members(everyone)).intersection(may_be_unheard))
        await stop_servers(start.directory, unheard)
        start_servers(start.directory, unheard, start.programs)


@asynccontextmanager
async def _claim_ports() -> AsyncIterator[Path]:
    """
    From the choice of ports until servers listen on them, no other lab of this user chooses. Gives the directory that they share.

    Labs of another state directory included. Whoever waits too long goes on: at
    worst a server dies of "address already in use", and other ports are chosen.
    """
    try:
        place = user_cache_path("vstream", ensure_exists=True)
    except OSError:
        place = labs_directory()
    async with hold_lock(place / "ports.lock", patience=_PORTS_TIMEOUT):
        with suppress(OSError):  # then labs of other state directories do not hear of us
            _remember_own(place / "states", labs_directory())
        yield place


@asynccontextmanager
async def _stop_on_failure(
    directory: LabDirectory, servers: Sequence[str], proxy: ProxyProcess | None
) -> AsyncIterator[None]:
    async def stop() -> None:
        await stop_servers(directory, servers)
        if proxy is not None:
            await proxy.stop()

    try:
        yield
    except BaseException:
        await finish_despite_cancellation(stop())
        raise


async def finish_despite_cancellation(work: Awaitable[_Result]) -> _Result:
    """The result of *work*, even if this task is cancelled, perhaps repeatedly: nothing is left half done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
    return task.result()
