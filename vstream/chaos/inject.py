"""
Inject and heal faults: announced and journalled before, confirmed after, and undone whatever happens.

The lab's lock is held while processes are signalled and the journal changes. It is free while a fault lasts or a lab
recovers, so another command can heal the fault or add one.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from vstream.chaos.blast_radius import Impact, assess_impact
from vstream.chaos.faults.base import Fault, LabFault
from vstream.chaos.journal import Journal, OpenFault, read_journal, write_journal
from vstream.chaos.recovery import wait_until_healthy
from vstream.errors import RefusedError, UnknownNameError
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.start import shield_from_cancellation
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class InjectionRequest:
    """Where to inject a fault, and who is told. *command* is what the user typed."""

    target: TargetServers
    topology: Topology
    command: str
    is_forced: bool
    on_impact: Callable[[Impact], None] = lambda _impact: None
    """Told what will be left, before anything happens."""
    on_begin: Callable[[], None] = lambda: None
    """Called right before servers or links are taken away."""
    also_confirm: Callable[[], Awaitable[str]] | None = None
    """What else must be observed before the fault counts as confirmed, such as a new leader."""


@value_class
class InjectionResult:
    """An active fault; *evidence* proves it. *entry* is None if there is nothing to undo."""

    entry: OpenFault | None
    evidence: str


@value_class
class HealResult:
    """What was undone, and how many seconds it took until everything was healthy."""

    faults: tuple[OpenFault, ...]
    seconds: float | None
    """None if no server of the lab runs or is meant to: then nothing can be healthy."""


async def inject_and_journal(request: InjectionRequest, fault: LabFault) -> InjectionResult:
    """
    Take servers or links away until `heal`.

    Raises RefusedError, with nothing done, if that takes away more than was asked for. Raises LabError, with everything
    undone, if the fault has no effect. Cancelling undoes it too.
    """
    target = request.target
    async with target.directory.lock():
        journal = prune_journal(target)
        require_allowed(request, announce_impact(request, journal, fault))
        request.on_begin()
        journal, entry = journal.add(request.command, fault)
        write_journal(target.directory, journal)  # before the first signal: from here on a crash can be healed
        try:
            evidence = await fault.inject(target, entry.id)
            if request.also_confirm is not None:
                evidence = f"{evidence}; {await request.also_confirm()}"
        except BaseException:
            await shield_from_cancellation(_undo(target, journal, entry))
            raise
        journal = journal.confirm(entry.id)
        write_journal(target.directory, journal)
    return InjectionResult(entry=journal.get(entry.id), evidence=evidence)


async def _undo(target: TargetServers, journal: Journal, entry: OpenFault) -> None:
    watch = await entry.fault.heal(target, entry.id)
    watch()
    write_journal(target.directory, _close_fault(target, journal, entry))


async def inject_for(
    request: InjectionRequest,
    fault: LabFault,
    *,
    seconds: float,
    timeout: float,
    on_injected: Callable[[InjectionResult], None],
    on_healed: Callable[[HealResult], None],
    on_progress: Callable[[ReadinessProgress], None],
) -> None:
    """
    Inject *fault*, wait *seconds*, heal it, and return when everything is healthy.

    Cancelling heals it too. Another command may have healed it by then.
    """
    injected = await inject_and_journal(request, fault)
    assert injected.entry is not None
    try:
        on_injected(injected)
        await asyncio.sleep(seconds)
    finally:
        healed = await shield_from_cancellation(
            heal(request.target, (injected.entry.id,), timeout=timeout, on_progress=on_progress, skips_healed=True)
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
        journal = read_journal(target.directory) or Journal()
        if not skips_healed:
            _require_known(ids, journal)
        chosen = tuple(fault for fault in journal.faults if ids is None or fault.id in ids)
        staying = [fault for fault in journal.faults if fault not in chosen]
        held = replace(target, held=_list_kept_down(target, staying))
        # The last comes first: a server can only be told to restart once what stopped it since is undone.
        watches = [await entry.fault.heal(held, entry.id) for entry in reversed(chosen)]

    def watch() -> None:
        for check in watches:
            check()

    if not chosen:
        return HealResult(faults=(), seconds=None)
    unhealthy = {server for entry in staying if entry.fault.is_unhealthy for server in entry.fault.counted_as_lost}
    is_up = any(target.may_answer(server) for server in target.servers)
    await wait_until_healthy(target, timeout=timeout, watch=watch, on_progress=on_progress, without=unhealthy)
    async with target.directory.lock(patience=timeout):
        journal = read_journal(target.directory) or journal
        for entry in chosen:
            journal = _close_fault(target, journal, entry)
        write_journal(target.directory, journal)
    return HealResult(faults=chosen, seconds=time.monotonic() - began if is_up else None)


async def change_leader(request: InjectionRequest, fault: Fault) -> InjectionResult:
    """Make a leader step down, and confirm that another server leads."""
    return InjectionResult(entry=None, evidence=await fault.inject(request.target, ""))


def prune_journal(target: TargetServers) -> Journal:
    """The journal without faults that left no trace. Call it with the lab's lock held."""
    journal = read_journal(target.directory) or Journal()
    for entry in journal.faults:
        if entry.fault.is_over(target, entry.id):
            journal = _close_fault(target, journal, entry)
    return journal


def _close_fault(target: TargetServers, journal: Journal, entry: OpenFault) -> Journal:
    """*journal* without *entry*, and without what that has kept."""
    shutil.rmtree(target.directory.faults / entry.id, ignore_errors=True)
    return journal.remove(entry.id)


def announce_impact(request: InjectionRequest, journal: Journal, fault: LabFault) -> Impact:
    """Tell what *fault* will leave."""
    lost = request.target.unavailable() | {server for entry in journal.faults for server in entry.fault.counted_as_lost}
    impact = assess_impact(
        request.topology,
        lost=lost,
        servers=fault.counted_as_lost,
        silent=request.target.find_cut_links(),
        cut=fault.cuts,
        permanent_losses=fault.permanent_losses,
    )
    request.on_impact(impact)
    return impact


def require_allowed(request: InjectionRequest, impact: Impact) -> None:
    """Raises RefusedError if *impact* is more than was asked for, unless it was forced."""
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
