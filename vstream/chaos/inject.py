"""
Injecting and healing: what is said before, written down before, confirmed after, and undone whatever happens.

The lab's lock is held while processes are signalled and the journal changes, and not
while a fault lasts or a lab recovers: another command can heal it, or add to it.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vstream.chaos import journal
from vstream.chaos.blast_radius import assess_impact
from vstream.chaos.disk_full import DiskFull
from vstream.chaos.faults import Fault, Kill, LabFault, is_over
from vstream.chaos.journal import Journal, OpenFault
from vstream.chaos.power_loss import PowerLoss
from vstream.chaos.recovery import wait_until_healthy
from vstream.errors import RefusedError, UnknownNameError
from vstream.lab.start import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from vstream.chaos.blast_radius import Impact
    from vstream.chaos.target_servers import TargetServers
    from vstream.lab.lab import ReadinessProgress
    from vstream.lab.links.state import Pair
    from vstream.topology.model import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionRequest:
    """What is to be done. *asked* is the command, as people know it."""

    site: TargetServers
    topology: Topology
    asked: str
    is_forced: bool
    on_blast: Callable[[Impact], None]
    """Called before anything happens."""
    also_confirm: Callable[[], Awaitable[str]] | None = None
    """What else must be seen before the fault counts as confirmed, such as that another server leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionResult:
    """A fault that bites: *evidence* shows it. *entry* is None for one that leaves nothing to undo."""

    entry: OpenFault | None
    evidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HealResult:
    """What was undone, and how many seconds it took until all was healthy."""

    faults: tuple[OpenFault, ...]
    seconds: float | None
    """None where no server of the lab runs, nor is meant to: nothing is healthy there."""


async def inject(order: InjectionRequest, fault: LabFault) -> InjectionResult:
    """
    Take servers or links away until `heal`.

    Raises RefusedError, with nothing done, where that takes more than was asked
    for; LabError, with all of it undone, where it does not bite. Undone as well if cancelled.
    """
    site = order.site
    async with site.directory.lock():
        book = prune_journal(site)
        require_allowed(order, book, servers=fault.servers, cuts=fault.cuts, losses=fault.losses)
        book, entry = book.opened(order.asked, fault)
        journal.write(site.directory, book)  # before the first signal: from here on a crash can be healed
        try:
            evidence = await fault.inject(site, entry.id)
            if order.also_confirm is not None:
                evidence = f"{evidence}; {await order.also_confirm()}"
        except BaseException:
            await run_to_completion(_undone(site, book, entry))
            raise
        book = book.confirmed(entry.id)
        journal.write(site.directory, book)
    return InjectionResult(entry=book.get(entry.id), evidence=evidence)


async def _undone(site: TargetServers, book: Journal, entry: OpenFault) -> None:
    watch = await entry.fault.heal(site, entry.id)
    watch()
    journal.write(site.directory, _closed(site, book, entry))


async def inject_for(
    order: InjectionRequest,
    fault: LabFault,
    *,
    seconds: float,
    timeout: float,
    on_injected: Callable[[InjectionResult], None],
    on_healed: Callable[[HealResult], None],
    on_progress: Callable[[ReadinessProgress], None],
) -> None:
    """
    Inject *fault*, wait *seconds*, heal it, and return once all is healthy.

    Heals as well if it is cancelled meanwhile. Somebody else may have healed it by then.
    """
    injected = await inject(order, fault)
    assert injected.entry is not None
    try:
        on_injected(injected)
        await asyncio.sleep(seconds)
    finally:
        healed = await run_to_completion(
            heal(order.site, (injected.entry.id,), timeout=timeout, on_progress=on_progress, is_known=False)
        )
        on_healed(healed)


async def heal(
    site: TargetServers,
    ids: Sequence[str] | None,
    *,
    timeout: float,
    on_progress: Callable[[ReadinessProgress], None],
    is_known: bool = True,
) -> HealResult:
    """
    Undo the open faults *ids*, or all, and return once all servers that shall run are healthy.

    Safe to call again after a crash at any point, and waits for a command that holds
    the lab. Raises LabError that says what is missing where *timeout* seconds were not
    enough: the faults stay in the journal then. Raises UnknownNameError for an unknown id, unless
    *is_known* is False: then it was healed before.
    """
    began = time.monotonic()
    async with site.directory.lock(patience=timeout):
        book = journal.read(site.directory) or Journal()
        if is_known:
            _require_known(ids, book)
        chosen = tuple(one for one in book.faults if ids is None or one.id in ids)
        held = replace(site, held=_held(site, [one for one in book.faults if one not in chosen]))
        # The last comes first: a server can only be told to restart once what stopped it since is undone.
        watches = [await one.fault.heal(held, one.id) for one in reversed(chosen)]

    def watch() -> None:
        for one in watches:
            one()

    if not chosen:
        return HealResult(faults=(), seconds=None)
    # They run, and are never well: their disks are full.
    ill = {
        server
        for one in book.faults
        if one not in chosen and isinstance(one.fault, DiskFull)
        for server in one.fault.servers
    }
    is_up = any(site.serves(server) for server in site.servers)
    await wait_until_healthy(site, timeout=timeout, watch=watch, on_progress=on_progress, without=ill)
    async with site.directory.lock(patience=timeout):
        book = journal.read(site.directory) or book
        for one in chosen:
            book = _closed(site, book, one)
        journal.write(site.directory, book)
    return HealResult(faults=chosen, seconds=time.monotonic() - began if is_up else None)


async def hand_over(order: InjectionRequest, fault: Fault) -> InjectionResult:
    """Make a leader step down, and see that another leads."""
    return InjectionResult(entry=None, evidence=await fault.inject(order.site, ""))


def prune_journal(site: TargetServers) -> Journal:
    """The journal without faults of which nothing is left. Call it with the lab's lock held."""
    book = journal.read(site.directory) or Journal()
    for one in book.faults:
        if is_over(one.fault, one.id, site):
            book = _closed(site, book, one)
    return book


def _closed(site: TargetServers, book: Journal, entry: OpenFault) -> Journal:
    """*book* without *entry*, and without what that has kept."""
    shutil.rmtree(site.directory.faults / entry.id, ignore_errors=True)
    return book.closed(entry.id)


def require_allowed(
    order: InjectionRequest,
    book: Journal,
    *,
    servers: Collection[str] = (),
    cuts: Collection[Pair] = (),
    losses: Sequence[str] = (),
) -> None:
    """Say what taking *servers* and *cuts* will do. Raises RefusedError if that is too much, unless it was forced."""
    lost = order.site.lost() | {server for one in book.faults for server in one.fault.servers}
    effects = assess_impact(order.topology, lost=lost, taken=servers, silent=order.site.cuts(), cut=cuts, losses=losses)
    order.on_blast(effects)
    if effects.refusals and not order.is_forced:
        raise RefusedError(
            f"refused `{order.asked}`: {'; '.join(effects.refusals)}",
            hint="heal what is open (`vstream chaos status`), or say `--yes-really`"
            if lost
            else "`--yes-really` does it all the same",
        )


def _held(site: TargetServers, others: Sequence[OpenFault]) -> frozenset[str]:
    """The servers that *others*, which stay open, have taken down."""
    return frozenset(
        server
        for one in others
        if isinstance(one.fault, Kill | PowerLoss) and not is_over(one.fault, one.id, site)
        for server in one.fault.servers
    )


def _require_known(ids: Sequence[str] | None, book: Journal) -> None:
    for wanted in ids or ():
        if book.get(wanted) is None:
            known = ", ".join(f"`{one.id}` ({one.asked})" for one in book.faults)
            raise UnknownNameError(
                f"there is no open fault `{wanted}`", hint=f"open: {known}" if known else "nothing is open"
            )
