"""
A lab: the servers of a topology on this machine, as one thing that is up or down.

What this module promises: a lab that is up survives the command that started it;
nothing of a lab that failed to come up, or that was interrupted, keeps running;
and `down` finds every server of a lab, whatever happened before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vstream.errors import VstreamError
from vstream.lab import conf, passwords, server_records
from vstream.lab import start as starting
from vstream.lab.binaries import Program, find_or_fetch, read_program
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.readiness import READY_TIMEOUT, ReadinessProgress, trust_monitors
from vstream.lab.server import NatsServer, stop_servers
from vstream.lab.start import AS_BEFORE, LabSetup
from vstream.lab.state import LabDirectory, lab_directory
from vstream.lab.status import LabStatus, is_running, read_lab_status, require_recorded_lab
from vstream.plan.live.loaded_rules import find_unserved_accounts
from vstream.topology.accounts import Account
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class

_RELOAD_TIMEOUT = 10.0
"""Seconds for one server. It needs 5 ms."""


@value_class
class ReloadResult:
    """Which servers run with the new configuration, and why the others do not."""

    loaded: tuple[str, ...]
    refused: Mapping[str, str]


async def up(
    name: str,
    topology: Topology,
    render: Callable[[Sequence[ServerAddress]], Bundle],
    setup: LabSetup = AS_BEFORE,
    *,
    on_progress: Callable[[ReadinessProgress], None],
    timeout: float = READY_TIMEOUT,
) -> LabStatus:
    """
    Make all servers of *topology* run and be ready, as lab *name*.

    *render* is called with the addresses that were chosen. What runs already with the same configuration is kept, and regions
    that are new join it: nothing that runs is told, reloaded or restarted. A lab that runs keeps the mappings that it has
    loaded. Raises LabError if the lab is not ready after *timeout* seconds, if a server dies, or if other servers than these
    run under this name; whatever this call has started is stopped again, as it is if the call is cancelled.
    """
    start = starting.Start(
        directory=lab_directory(name),
        topology=topology,
        render=render,
        programs=await asyncio.to_thread(_choose_programs, name, topology, setup),
        on_progress=on_progress,
        deadline=time.monotonic() + timeout,
        setup=setup,
    )
    async with start.directory.lock():
        running = frozenset(server_records.scan_processes(start.directory))
        await (starting.start_missing(start, running) if running else starting.start_all(start))
        return read_lab_status(name)


def _choose_programs(name: str, topology: Topology, setup: LabSetup) -> Mapping[str, Program]:
    """What each server of *topology* is started with. Asks each binary once what it is."""
    record = lab_directory(name).read() if setup.binary is None and is_running(name) else None
    recorded = {} if record is None else {server: started.binary for server, started in record.programs.items()}
    stated = {**recorded, **setup.binaries}
    chosen = {seat.server.name: stated.get(seat.server.name, setup.binary) for seat in topology.all_seats}
    programs = {path: read_program(path or find_or_fetch()) for path in set(chosen.values())}
    return {server: programs[path] for server, path in chosen.items()}


async def down(name: str, *, purge: bool = False) -> None:
    """
    Stop all servers of lab *name*; with *purge*, remove its data, logs and ports too.

    Uses the process table and the records, so it works after a crash. It is fine if nothing runs. Raises LabError if
    another command is changing the lab.
    """
    directory = lab_directory(name)
    if not directory.path.exists():
        return
    async with directory.lock():
        await stop_servers(directory)
        await ProxyProcess(directory).stop()
        if purge:
            directory.purge()


async def reload(name: str, bundle: Bundle) -> ReloadResult:
    """
    Give *bundle*, rendered with `list_addresses(name)`, to the running lab *name*.

    Every server loads its files again, changed or not: an earlier call may have been cut off half way.
    Raises LabError, with the old files still in place, if a server would refuse its configuration.
    """
    directory, _ = require_recorded_lab(name)
    async with directory.lock():
        _, record = require_recorded_lab(name)  # it may have changed while we waited
        binaries = {name: program.binary for name, program in record.programs.items()}
        await conf.replace_if_valid(directory, passwords.with_passwords(directory.conf, bundle), binaries=binaries)
        trust_monitors(record.servers)
        reloads = []
        for address in record.servers:
            reloads.append(_reload_server(directory, address, binaries[address.server.name], bundle.accounts))
        outcomes = await asyncio.gather(*reloads)
    by_name = {address.server.name: outcome for address, outcome in zip(record.servers, outcomes, strict=True)}
    return ReloadResult(
        loaded=tuple(server for server, refusal in by_name.items() if refusal is None),
        refused={server: refusal for server, refusal in by_name.items() if refusal is not None},
    )


async def reload_mappings(name: str, bundle: Bundle) -> ReloadResult:
    """Like `reload`, but each server's own configuration stays as it was at the start, whatever *bundle* says."""
    directory, _ = require_recorded_lab(name)
    return await reload(name, replace(bundle, artifacts=conf.keep_server_configs(directory.conf, bundle.artifacts)))


async def _reload_server(
    directory: LabDirectory, address: ServerAddress, binary: Path, accounts: Sequence[Account]
) -> str | None:
    """None once the server at *address* has reloaded, else why it has not."""
    server = NatsServer(directory, address.server.name)
    if not server.is_running():
        return f"server `{server.name}` does not run"
    try:
        await server.reload(address.monitor_url, binary=binary, timeout=_RELOAD_TIMEOUT)
        if await find_unserved_accounts(address.monitor_url, accounts, _RELOAD_TIMEOUT):
            await server.reload(address.monitor_url, binary=binary, timeout=_RELOAD_TIMEOUT)
    except VstreamError as error:
        return error.message
    return None
