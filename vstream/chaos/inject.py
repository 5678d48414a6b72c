"""
Inject and heal faults: announced and journalled before, confirmed after, and undone whatever happens.

The lab's lock is held while processes are signalled and the journal changes. It is free while a fault lasts or a lab
recovers, so another command can heal the fault or add one.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from vstream.chaos.blast_radius import Impact, assess_impact
from vstream.chaos.faults.base import Injection, LabFault, LastingInjection, LeaderChange, RollingRestart
from vstream.chaos.faults.restart import Restart
from vstream.chaos.journal import Journal, OpenFault, read_journal, write_journal
from vstream.chaos.recovery import wait_until_healthy, wait_until_replicas_current
from vstream.errors import LabError, RefusedError, UnknownNameError
from vstream.jetstream import monitoring
from vstream.lab import conf
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.server import SpawnedServers
from vstream.lab.start import finish_despite_cancellation
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology
from vstream.value_class import value_class

HEAL_TIMEOUT: Final = 120.0
"""Seconds within which servers are healthy again once faults are undone: after a long cut, TCP sends again that late."""


@value_class
class RestartResult:
    """One server: seconds until it exited, and from then until everything was healthy."""

    server: str
    version: str
    """The version it runs now."""
    stopping: float
    recovering: float


@value_class
class InjectionRequest:
    """Where to inject a fault, and who is told. *command* is what the user typed."""

    target: TargetServers
    topology: Topology
    command: str
    is_forced: bool
    timeout: float
    """Seconds until servers that come back are healthy."""
    on_impact: Callable[[Impact], None] = lambda _impact: None
    """Told what will be left, before anything happens."""
    now: Callable[[], int] = time.monotonic_ns
    """The clock of `InjectionResult.began`."""
    on_restarted: Callable[[RestartResult], None] = lambda _restarted: None
    on_progress: Callable[[ReadinessProgress], None] = lambda _step: None


@value_class
class InjectionResult:
    """What was done; *evidence* proves it. *entry* is the active fault, None if there is nothing to undo."""

    entry: OpenFault | None
    evidence: str
    began: int
    """The moment right before servers or links were taken away, or a leader was told to step down."""
    restarted: tuple[RestartResult, ...] = ()


@value_class
class HealResult:
    """What was undone, and how many seconds it took until everything was healthy."""

    faults: tuple[OpenFault, ...]
    seconds: float | None
    """None if no server of the lab runs or is meant to: then nothing can be healthy."""


async def inject(request: InjectionRequest, injection: Injection) -> InjectionResult:
    """
    Do *injection*. What is taken away stays so until `heal`; leaders and restarted servers are there again.

    Raises RefusedError, with nothing done, if that takes away more than was asked for, and LabError if it has no effect.
    """
    match injection:
        case LastingInjection():
            return await _inject_and_journal(request, injection)
        case LeaderChange():
            began = request.now()
            evidence = await injection.step_down(request.target)
            return InjectionResult(entry=None, evidence=evidence, began=began)
        case RollingRestart():
            return await _restart_in_turn(request, injection)


async def _inject_and_journal(request: InjectionRequest, injection: LastingInjection) -> InjectionResult:
    """Take servers or links away. Without an effect, everything is undone; cancelling undoes it too."""
    target, fault = request.target, injection.fault
    async with target.directory.lock():
        journal = close_finished_faults(target)
        _require_allowed(request, journal, fault)
        began = request.now()
        journal, entry = journal.add(request.command, fault)
        write_journal(target.directory, journal)  # before the first signal: from here on a crash can be healed
        try:
            evidence = await fault.inject(target, entry.id)
            if injection.also_confirm is not None:
                evidence = f"{evidence}; {await injection.also_confirm()}"
        except BaseException:
            await finish_despite_cancellation(_undo(target, journal, entry))
            raise
        journal = journal.confirm(entry.id)
        write_journal(target.directory, journal)
    return InjectionResult(entry=journal.get(entry.id), evidence=evidence, began=began)


async def _undo(target: TargetServers, journal: Journal, entry: OpenFault) -> None:
    (await entry.fault.heal(target, entry.id)).require_running()
    write_journal(target.directory, _remove_fault(target, journal, entry))


async def inject_for(
    request: InjectionRequest,
    injection: Injection,
    *,
    seconds: float,
    on_injected: Callable[[InjectionResult], None],
    on_healed: Callable[[HealResult], None],
) -> None:
    """
    Do *injection*; heal it after *seconds* if there is something to heal, and return when everything is healthy.

    Cancelling heals it too. Another command may have healed it by then.
    """
    injected = await inject(request, injection)
    if injected.entry is None:
        on_injected(injected)
        return
    try:
        on_injected(injected)
        await asyncio.sleep(seconds)
    finally:
        ids, timeout, on_progress = (injected.entry.id,), request.timeout, request.on_progress
        healed = await finish_despite_cancellation(
            heal(request.target, ids, timeout=timeout, on_progress=on_progress, skips_healed=True)
        )
        on_healed(healed)


async def heal(
    target: TargetServers,
    ids: Sequence[str] | None,
    *,
    timeout: float,
    on_progress: Callable[[ReadinessProgress], None] = lambda _step: None,
    skips_healed: bool = False,
) -> HealResult:
    """
    Undo the open faults *ids*, or all, and return when all servers that should run are healthy.

    Can be repeated after a crash at any point, and waits for a command that holds the lab. Raises LabError, with what
    is missing, if *timeout* seconds were not enough; the faults then stay in the journal. Raises UnknownNameError for
    an id that is not open, unless it *skips_healed* faults.
    """
    began = time.monotonic()
    async with target.directory.lock(patience=timeout):
        journal = read_journal(target.directory)
        if not skips_healed:
            _require_known(ids, journal)
        chosen = tuple(fault for fault in journal.faults if ids is None or fault.id in ids)
        staying = [fault for fault in journal.faults if fault not in chosen]
        held = replace(target, held=_list_kept_down(target, staying))
        # The last comes first: a server can only be told to restart once what stopped it since is undone.
        spawned = SpawnedServers()
        for entry in reversed(chosen):
            spawned = spawned.join(await entry.fault.heal(held, entry.id))
    if not chosen:
        return HealResult(faults=(), seconds=None)
    unhealthy = {server for entry in staying if entry.fault.is_unhealthy for server in entry.fault.affected_servers}
    is_up = any(target.may_answer(server) for server in target.servers)
    await wait_until_healthy(target, timeout=timeout, spawned=spawned, on_progress=on_progress, without=unhealthy)
    async with target.directory.lock(patience=timeout):
        journal = read_journal(target.directory)
        for entry in chosen:
            journal = _remove_fault(target, journal, entry)
        write_journal(target.directory, journal)
    return HealResult(faults=chosen, seconds=time.monotonic() - began if is_up else None)


async def _restart_in_turn(request: InjectionRequest, injection: RollingRestart) -> InjectionResult:
    """
    Stop and start servers in turn. The next one waits until all servers are healthy and all streams current.

    Refused before the first signal if any step takes away more than its own region. Raises LabError if a server does not
    come back, with the rest untouched, or before the first signal if a new program would refuse a configuration. When
    cancelled, the server that is down is started first.
    """
    target, servers, program = request.target, injection.servers, injection.program
    if program is not None:
        await conf.check_with_server(dict.fromkeys(servers, program.binary), target.directory.conf)
    async with target.directory.lock():
        journal = close_finished_faults(target)
    for server in servers:
        step = replace(request, command=f"{request.command}: {server}")
        _require_allowed(step, journal, Restart(servers=(server,)))
    began = request.now()
    done = []
    for server in servers:
        stopping = time.monotonic()
        restarting = asyncio.ensure_future(_restart_server(request, server, injection))
        try:
            spawned = await asyncio.shield(restarting)
        except asyncio.CancelledError:
            await finish_despite_cancellation(restarting)
            raise
        stopped = time.monotonic()
        await wait_until_healthy(target, timeout=request.timeout, spawned=spawned, on_progress=request.on_progress)
        await wait_until_replicas_current(target, timeout=request.timeout)
        version = (await monitoring.read_varz(target.address(server).monitor_url)).version
        if program is not None and version != program.version:
            raise LabError(f"server `{server}` runs nats-server {version}, not {program.version}")
        result = RestartResult(
            server=server, version=version, stopping=stopped - stopping, recovering=time.monotonic() - stopped
        )
        request.on_restarted(result)
        done.append(result)
    slowest = max(done, key=lambda restart: restart.recovering)
    evidence = (
        f"{len(done)} restarted, and running {', '.join(sorted({restarted.version for restarted in done}))}; "
        f"the slowest was {slowest.server}, after which all were healthy within {slowest.recovering:.1f} s"
    )
    return InjectionResult(entry=None, evidence=evidence, began=began, restarted=tuple(done))


async def _restart_server(request: InjectionRequest, server: str, injection: RollingRestart) -> SpawnedServers:
    """End *server* and spawn it, with a new program if there is one."""
    target, program = request.target, injection.program
    fault = Restart(servers=(server,), is_lame_duck=injection.is_lame_duck)
    async with target.directory.lock():
        if not target.may_answer(server):
            raise LabError(f"server `{server}` does not run", hint="`vstream chaos heal` or `vstream lab up` starts it")
        journal, entry = close_finished_faults(target).add(f"{request.command}: {server}", fault)
        write_journal(target.directory, journal)
        await fault.inject(target, entry.id)
        if program is not None:
            record = target.latest_record()
            # From here on a heal after a crash starts it with the new one, too.
            target.directory.write(replace(record, programs={**record.programs, server: program}))
        spawned = await fault.heal(target, entry.id)
        write_journal(target.directory, journal.remove(entry.id))
    return spawned


def close_finished_faults(target: TargetServers) -> Journal:
    """Delete what faults that are over have kept; returns the journal without them, to be written. Needs the lab's lock held."""
    journal = read_journal(target.directory)
    for entry in journal.faults:
        if entry.fault.is_over(target, entry.id):
            journal = _remove_fault(target, journal, entry)
    return journal


def _remove_fault(target: TargetServers, journal: Journal, entry: OpenFault) -> Journal:
    """Delete what *entry* has kept; returns *journal* without it, to be written."""
    shutil.rmtree(target.directory.faults / entry.id, ignore_errors=True)
    return journal.remove(entry.id)


def _require_allowed(request: InjectionRequest, journal: Journal, fault: LabFault) -> None:
    """Tell what *fault* will leave. Raises RefusedError if it takes more than was asked for, unless it is forced."""
    lost = request.target.unavailable() | {server for entry in journal.faults for server in entry.fault.counted_as_lost}
    impact = assess_impact(
        request.topology,
        missing_servers=lost,
        taken_servers=fault.counted_as_lost,
        missing_links=request.target.find_cut_links(),
        taken_links=fault.cuts,
        permanent_losses=fault.permanent_losses,
    )
    request.on_impact(impact)
    if impact.refusals and not request.is_forced:
        raise RefusedError(
            f"refused `{request.command}`: {'; '.join(impact.refusals)}",
            hint="heal what is open (`vstream chaos status`), or force it with `--yes-really`"
            if impact.missing
            else "`--yes-really` forces it",
        )


def _list_kept_down(target: TargetServers, faults: Sequence[OpenFault]) -> frozenset[str]:
    """The servers that *faults*, which stay open, have taken down."""
    servers: set[str] = set()
    for entry in faults:
        if entry.fault.keeps_down and not entry.fault.is_over(target, entry.id):
            servers.update(entry.fault.counted_as_lost)
    return frozenset(servers)


def _require_known(ids: Sequence[str] | None, journal: Journal) -> None:
    for fault_id in ids or ():
        if journal.get(fault_id) is None:
            open_faults = ", ".join(f"`{entry.id}` ({entry.command})" for entry in journal.faults)
            raise UnknownNameError(
                f"there is no open fault `{fault_id}`",
                hint=f"open: {open_faults}" if open_faults else "nothing is open",
            )
