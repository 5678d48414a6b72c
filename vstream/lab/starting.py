"""
How a lab comes up: choose ports, write the bundle, spawn, wait; and undo all of it on any failure.

Called with the lab's lock held.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from platformdirs import user_cache_path

from vstream.errors import LabError
from vstream.lab import conf, ports, readiness, records
from vstream.lab.readiness import Progress, Stage
from vstream.lab.server import NatsServer, stop_all
from vstream.lab.state import LabRecord, held, lab_directories, labs_directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from vstream.lab.state import LabDirectory
    from vstream.model.artifacts import Bundle, ServerAddress
    from vstream.model.topology import Topology

_ATTEMPTS = 4
_PORTS_PATIENCE = 10.0
_QUOTED_LINES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One `up`, and what it was asked for. *deadline* is on the monotonic clock."""

    directory: LabDirectory
    topology: Topology
    render: Callable[[Sequence[ServerAddress]], Bundle]
    binary: Path
    version: str
    on_progress: Callable[[Progress], None]
    deadline: float


class _AddressInUseError(LabError):
    """A server died because something else listens on one of its ports."""


async def begin(start: Start) -> None:
    """Start all servers of a lab of which none runs."""
    _refuse_abandoned_data(start)
    for attempt in range(_ATTEMPTS):
        try:
            await _begin_at_free_ports(start, attempt)
        except _AddressInUseError:
            if attempt + 1 == _ATTEMPTS:
                raise
        else:
            return


async def _begin_at_free_ports(start: Start, attempt: int) -> None:
    names = [seat.server.name for seat in ports.seats(start.topology)]
    async with _stopped_on_failure(start.directory, names):
        async with _ports_claimed():
            chosen = _choose(start, attempt)
            # First of all: from here on, `down` and other labs must know what is about to exist.
            start.directory.write(_record(start, chosen))
            conf.install(start.directory.conf, start.render(chosen).artifacts)
            await _check(start, names)
            for server in records.recorded(start.directory):
                records.forget(start.directory, server)
            watch = _spawn(start, names)
            await _accepting(start, chosen, watch)
        await _ready(start, chosen, watch)


async def complete(start: Start, running: frozenset[str]) -> None:
    """Start the missing servers of a lab of which *running* run."""
    directory, name = start.directory, start.directory.name
    record = directory.read()
    hint = f"`vstream lab down {name}` first"
    if record is None:
        raise LabError(f"servers of lab `{name}` run, but there is no record of what it is made of", hint=hint)
    wanted = {(seat.region.name, seat.server.name) for seat in ports.seats(start.topology)}
    if wanted != {(address.region, address.server.name) for address in record.servers}:
        raise LabError(f"lab `{name}` runs with other servers than topology `{start.topology.name}` has", hint=hint)
    if start.version != record.version:
        raise LabError(f"lab `{name}` runs nats-server {record.version}, not {start.version}", hint=hint)
    bundle = start.render(record.servers)
    if changed := conf.differing(directory.conf, bundle.artifacts):
        raise LabError(
            f"lab `{name}` runs with another configuration: {', '.join(changed)}",
            hint=f"{hint}; a change of mappings alone can be loaded while it runs, by `vstream apply`",
        )
    missing = [address for address in record.servers if address.server.name not in running]
    if occupied := ports.taken(missing):
        raise LabError(
            f"lab `{name}` runs, and something else listens on its port {occupied[0]}",
            hint=f"end that, or use `vstream lab down {name}`: the next start chooses other ports",
        )
    names = [address.server.name for address in missing]
    async with _stopped_on_failure(directory, names):
        conf.install(directory.conf, bundle.artifacts)
        await _check(start, names)
        watch = _spawn(start, names)
        await _accepting(start, record.servers, watch)
        await _ready(start, record.servers, watch)


def _choose(start: Start, attempt: int) -> tuple[ServerAddress, ...]:
    """Where the servers shall listen: where they did last time, if they can."""
    seats = ports.seats(start.topology)
    record = start.directory.read()
    if record is not None and attempt == 0:
        before = ports.allocate(seats, record.servers[0].client, start.directory)
        if before == record.servers and not ports.taken(before):
            return before
    reserved = {port for other in _other_labs(start) for address in other.servers for port in ports.of(address)}
    # Two strangers who collided shall not meet again in the next block.
    skip = attempt and attempt + os.getpid() % 8
    return ports.allocate(seats, ports.choose(len(seats), reserved=reserved, skip=skip), start.directory)


def _other_labs(start: Start) -> Iterator[LabRecord]:
    """What other labs are made of, as far as their records can be read."""
    for directory in lab_directories():
        with suppress(LabError):
            if directory.name != start.directory.name and (record := directory.read()) is not None:
                yield record


def _record(start: Start, chosen: tuple[ServerAddress, ...]) -> LabRecord:
    return LabRecord(
        topology=start.topology.name, binary=start.binary.absolute(), version=start.version, servers=chosen
    )


def _refuse_abandoned_data(start: Start) -> None:
    """JetStream waits for ever for the votes of servers that have gone: say so now."""
    wanted = {seat.server.name for seat in ports.seats(start.topology)}
    stored = {path.name for path in start.directory.data.iterdir()} if start.directory.data.exists() else set()
    if abandoned := sorted(stored - wanted):
        raise LabError(
            f"lab `{start.directory.name}` holds data of servers that topology `{start.topology.name}` does not have: "
            f"{', '.join(abandoned)}",
            hint=f"`vstream lab down {start.directory.name} --purge` removes it, another `--name` keeps it",
        )


async def _check(start: Start, names: Sequence[str]) -> None:
    def on_checked(count: int) -> None:
        start.on_progress(Progress(Stage.CONFIGS, count, len(names)))

    await conf.check(start.binary, start.directory.conf, names, on_checked)


def _spawn(start: Start, names: Sequence[str]) -> Callable[[], None]:
    """Start the servers *names*. The result raises LabError if one of them has died since."""
    servers = [NatsServer(start.directory, name) for name in names]
    marks = {server.name: server.log_mark() for server in servers}
    for server in servers:
        server.start(start.binary, start.version)

    def watch() -> None:
        for server in servers:
            if not server.is_running():
                raise _death(server, server.said_since(marks[server.name]))

    return watch


def _death(server: NatsServer, said: Sequence[str]) -> LabError:
    kind = _AddressInUseError if any("address already in use" in line for line in said) else LabError
    quoted = "\n".join(f"  {line}" for line in said[-_QUOTED_LINES:]) or "  (it wrote nothing)"
    return kind(
        f"server `{server.name}` died while it was starting; its last words:\n{quoted}",
        hint=f"its whole log is `{server.log_file}`",
    )


async def _accepting(start: Start, at: Sequence[ServerAddress], watch: Callable[[], None]) -> None:
    await readiness.reach(
        Stage.ACCEPTING,
        readiness.members(start.topology, at),
        readiness.accepting,
        watch=watch,
        on_progress=start.on_progress,
        deadline=start.deadline,
    )


async def _ready(start: Start, at: Sequence[ServerAddress], watch: Callable[[], None]) -> None:
    everyone = readiness.members(start.topology, at)
    for stage, check in ((Stage.LINKED, readiness.linked), (Stage.LED, readiness.led(len(everyone)))):
        await readiness.reach(
            stage, everyone, check, watch=watch, on_progress=start.on_progress, deadline=start.deadline
        )


@asynccontextmanager
async def _ports_claimed() -> AsyncIterator[None]:
    """
    From the choice of ports until servers listen on them, no other lab of this user chooses.

    Labs of another state directory included. Whoever waits too long goes on: at
    worst a server dies of "address already in use", and other ports are chosen.
    """
    try:
        place = user_cache_path("vstream", ensure_exists=True)
    except OSError:
        place = labs_directory()
    async with held(place / "ports.lock", patience=_PORTS_PATIENCE):
        yield


@asynccontextmanager
async def _stopped_on_failure(directory: LabDirectory, servers: Sequence[str]) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        await _uninterrupted(stop_all(directory, servers))
        raise


async def _uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Finish *work* although this task is being cancelled, even repeatedly: it leaves nothing running."""
    task = asyncio.ensure_future(work)
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            continue
    task.result()
