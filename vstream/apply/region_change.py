"""
A change of a whole region, from the topology file to the resync of its readers.

`vstream region drain`, `failover` and `failback` go this way, and so do the steps of scenarios that do the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from vstream.apply.meta_group import PEER_TIMEOUT, remove_peers, require_empty, wait_for_members
from vstream.apply.pipeline import AppliedPlan, apply_and_replan
from vstream.apply.result import NO_OBSERVER, ApplyObserver
from vstream.apply.shipping import ShippingOptions
from vstream.apply.wait_for_gates import GATE_TIMEOUT
from vstream.errors import RefusedError, VstreamError
from vstream.health.live.drain import DrainState, wait_until_region_empty
from vstream.health.live.resync_readers import ResyncMode, resync_readers
from vstream.lab import lifecycle
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.status import read_lab_status
from vstream.plan.live.dead_regions import DeathReport, ask_witnesses
from vstream.plan.live.lost_region import give_up
from vstream.plan.model import AllowOption, Plan
from vstream.plan.pipeline import require_no_other_losses, require_nothing_else
from vstream.plan.topology_edit import TopologyEdit
from vstream.servers.bundles import render_lab
from vstream.servers.find_servers import Servers, find_and_trust_servers, find_system_endpoints
from vstream.servers.server_plan import ServerPlan, make_server_plan
from vstream.servers.target_servers import make_target
from vstream.topology.model import Topology
from vstream.value_class import value_class

LOOK_TIMEOUT = 5.0
"""Seconds in which what is drained shows that nothing more comes."""
_RESYNC_TIMEOUT = 120.0
"""Seconds that readers get to be resynced."""


def _show_nothing() -> AbstractContextManager[Callable[[object], None]]:
    return nullcontext(lambda _step: None)


@value_class
class RegionRequest:
    """Which region is to change, and what is allowed. What only one command asks is a parameter of its function."""

    region: str
    before: TopologyEdit
    """The topology as it is written."""
    lab: str | None
    templates: Path | None
    is_approved: bool
    """Whether to change anything."""
    writes_file: bool = True
    """Whether the topology file says so from then on."""
    shipping: ShippingOptions = field(default_factory=ShippingOptions)
    gate_timeout: float = GATE_TIMEOUT


@value_class
class MaybeAlive:
    """A region that is to be given up, and may be alive: nothing is planned, and nothing was changed."""

    report: DeathReport


@value_class
class ServersNotStarted:
    """A region that is to come back, and whose servers a lab starts with approval only: nothing is planned before."""


@value_class
class PlannedChange:
    """A change of a region that is planned, and how far it has come."""

    edit: TopologyEdit
    """What the file is to say."""
    planned: ServerPlan
    report: DeathReport | None
    """What was heard of the regions that it gives up; None where it gives up none."""
    applied: AppliedPlan | None = None
    """What was done; None where nothing was: for want of approval, or because something is blocked."""
    still_members: tuple[str, ...] = ()
    """Dead servers that the meta group still counts, since nobody knows its system account."""
    drain_state: DrainState | None = None
    """Whether a region that is drained can be stopped; None where it is not drained."""
    failure: VstreamError | None = None
    """What failed after the plan was carried out: asked for again, it goes on from there."""

    @property
    def homes(self) -> Mapping[str, str]:
        """The new homes of streams that were at home in what is given up."""
        regions = () if self.report is None else self.report.regions
        lost_regions = [lost for lost in self.edit.topology.lost if lost.name in regions]
        return {stream: home for lost in lost_regions for stream, home in lost.homes.items()}

    @property
    def is_done(self) -> bool:
        """Whether all that was planned was done, and what follows it."""
        return self.applied is not None and self.applied.is_done and self.failure is None


RegionResult: TypeAlias = MaybeAlive | ServersNotStarted | PlannedChange
"""How far a change of a region has come."""


@value_class
class RegionObserver:
    """Who is told what happens."""

    on_report: Callable[[Servers, DeathReport], None] = lambda _servers, _report: None
    on_plan: Callable[[PlannedChange], None] = lambda _change: None
    """Told what is planned, before anything is changed."""
    on_applied: Callable[[AppliedPlan], None] = lambda _applied: None
    """Told what was done and what is left, before readers are resynced."""
    on_behind: Callable[[tuple[str, ...]], None] = lambda _streams: None
    """Told which read streams are not resynced yet."""
    show_planning: Callable[[], AbstractContextManager[Callable[[str], None]]] = _show_nothing
    show_starting: Callable[[], AbstractContextManager[Callable[[ReadinessProgress], None]]] = _show_nothing
    show_applying: Callable[[Plan], AbstractContextManager[ApplyObserver]] = lambda _plan: nullcontext(NO_OBSERVER)


async def drain(request: RegionRequest, observer: RegionObserver, *, taker: str | None = None) -> PlannedChange:
    """
    Have *taker*, by default the next region, take the region's publishes, and see whether it can be stopped.

    For the rest see `_plan_and_apply`.
    """
    edit = request.before.drain(request.region, taker)
    await _require_nothing_else(edit, request, observer)
    change = await _plan_and_apply(edit, request, observer)
    if change.is_done or (change.applied is None and change.planned.plan.is_empty):
        return await _follow(change, _look_whether_empty(change, request))
    return change


async def undo_drain(request: RegionRequest, observer: RegionObserver) -> PlannedChange:
    """Let the region take publishes again. For the rest see `_plan_and_apply`."""
    edit = request.before.undo_drain(request.region)
    await _require_nothing_else(edit, request, observer)
    return await _plan_and_apply(edit, request, observer)


async def fail_over(
    request: RegionRequest, observer: RegionObserver, *, also: tuple[str, ...] = (), is_declared_dead: bool = False
) -> MaybeAlive | PlannedChange:
    """
    Give the region up, and *also* others, if everybody else says that they are dead. For the rest see `_plan_and_apply`.

    With *is_declared_dead*, somebody knows that they are where not everybody could be asked.
    """
    servers = find_and_trust_servers(request.before.topology, request.lab)
    report = await _ask_whether_dead(request, (request.region, *also), servers)
    observer.on_report(servers, report)
    if not report.permits_giving_up(is_declared_dead=is_declared_dead):
        return MaybeAlive(report=report)
    edit = await give_up(request.before, report.regions, servers.endpoints)
    change = await _plan_and_apply(edit, request, observer, report=report)
    if change.is_done:
        return await _follow(change, _remove_from_meta_group(change))
    return change


async def fail_back(request: RegionRequest, observer: RegionObserver) -> ServersNotStarted | PlannedChange:
    """Take a region that was given up in again, once its servers run. For the rest see `_plan_and_apply`."""
    edit = request.before.take_in(request.region)
    if not await _bring_servers_back(edit, request, observer):
        return ServersNotStarted()
    return await _plan_and_apply(edit, request, observer)


async def _plan_and_apply(
    edit: TopologyEdit, request: RegionRequest, observer: RegionObserver, *, report: DeathReport | None = None
) -> PlannedChange:
    """
    Plan what *edit* makes of the topology, write the file, apply, and resync readers.

    *report* says what was heard of the regions that *edit* gives up; it is None where *edit* gives up none.

    Nothing is changed without approval, or where something is blocked. Stopped anywhere, it can be asked for again. Raises
    VstreamError, for example RefusedError where the plan loses what nobody has given up.
    """
    change = PlannedChange(edit=edit, planned=await _plan(edit.topology, request, observer), report=report)
    observer.on_plan(change)
    require_no_other_losses(change.planned.plan, edit.topology)
    if not request.is_approved or change.planned.plan.blocked:
        return change
    if request.writes_file:
        edit.save()
    change = replace(change, applied=await _apply(change.planned, request, observer))
    return await _follow(change, _resync_readers(change, observer)) if change.is_done else change


async def _follow(change: PlannedChange, following: Awaitable[PlannedChange]) -> PlannedChange:
    """*change* after *following*, which it may fail with: servers have been changed, whatever becomes of that."""
    try:
        return await following
    except VstreamError as failure:
        return replace(change, failure=failure)


async def _plan(topology: Topology, request: RegionRequest, observer: RegionObserver) -> ServerPlan:
    with observer.show_planning() as show:
        servers = find_and_trust_servers(topology, request.lab)
        return await make_server_plan(topology, servers, request.templates, on_progress=show)


async def _require_nothing_else(edit: TopologyEdit, request: RegionRequest, observer: RegionObserver) -> None:
    """Raises VstreamError if anything else would change with *edit*, unless an earlier run has begun it."""
    if edit.is_changed:
        require_nothing_else((await _plan(request.before.topology, request, observer)).plan)


async def _ask_whether_dead(request: RegionRequest, regions: tuple[str, ...], servers: Servers) -> DeathReport:
    """What everybody else knows of *regions*, which are to be given up. Raises RefusedError if there is nobody."""
    topology = request.before.topology
    witnesses = [candidate.name for candidate in topology.regions if candidate.name not in regions]
    if not witnesses:
        raise RefusedError(f"there is no region besides `{'`, `'.join(regions)}`", hint="nothing could take its place")
    system = find_system_endpoints(servers, witnesses)
    return await ask_witnesses(topology, regions, {**servers.endpoints, **servers.lost}, witnesses, system)


async def _bring_servers_back(edit: TopologyEdit, request: RegionRequest, observer: RegionObserver) -> bool:
    """
    Have the servers of the region that comes back run: a lab starts them. False where that takes an approval.

    Raises VstreamError where the region's servers do not run, come with streams on their disks, or are not let in.
    """
    before, servers = request.before, find_and_trust_servers(request.before.topology, request.lab)
    if servers.lab is None:
        await _require_servers(request, edit, servers)
        return True
    seats = {seat.server.name for seat in edit.topology.all_seats if seat.region == request.region}
    running = seats & {server.name for server in read_lab_status(servers.lab).servers if server.pid}
    if not request.is_approved:
        return running == seats
    if not running:
        require_no_other_losses((await _plan(before.topology, request, observer)).plan, before.topology)
    # The file comes second: a lab without servers that its file has is refused. Those that an earlier run has started may
    # not be let in yet.
    render = partial(render_lab, servers.lab, edit.topology, request.templates)
    with observer.show_starting() as show:
        await lifecycle.up(servers.lab, edit.topology, render, on_progress=show, timeout=PEER_TIMEOUT)
    return True


async def _require_servers(request: RegionRequest, edit: TopologyEdit, servers: Servers) -> None:
    """The region's servers must run, with empty disks if they come now, and be let in by the others."""
    region = request.region
    endpoints = {**servers.endpoints, **servers.lost}
    endpoint = endpoints.get(region)
    if endpoint is None:
        raise RefusedError(f"no address is known for region `{region}`", hint=f"add `{region}` to `connect`")
    if edit.is_changed:
        await require_empty(region, endpoint)
    if request.is_approved:
        monitors = [url for endpoint in endpoints.values() for url in endpoint.monitor]
        await wait_for_members(edit.topology.server_names_in(region), monitors)


async def _apply(planned: ServerPlan, request: RegionRequest, observer: RegionObserver) -> AppliedPlan:
    # What it may lose was asked for: `require_no_other_losses` has refused everything else.
    with observer.show_applying(planned.plan) as shown:
        applied = await apply_and_replan(
            planned, request.shipping, allowed=tuple(AllowOption), gate_timeout=request.gate_timeout, observer=shown
        )
    observer.on_applied(applied)
    return applied


async def _resync_readers(change: PlannedChange, observer: RegionObserver) -> PlannedChange:
    """Resync read streams that stand still; *observer* is told which are not resynced yet."""
    topology = change.planned.request.topology
    target = make_target(topology, change.planned.servers)
    result = await resync_readers(topology, target, timeout=_RESYNC_TIMEOUT, mode=ResyncMode.SILENT)
    if result.silent:
        observer.on_behind(tuple(stream.stream for stream in result.silent))
    return change


async def _remove_from_meta_group(change: PlannedChange) -> PlannedChange:
    """What was given up has no vote any more, except what nobody could take it from. A lab's servers have none by now."""
    servers, topology = change.planned.servers, change.edit.topology
    if servers.lab is not None or change.report is None:
        return change
    names = tuple(server for region in change.report.regions for server in topology.server_names_in(region))
    if system := find_system_endpoints(servers, [living.name for living in topology.regions]):
        await remove_peers(system, names)
        return change
    return replace(change, still_members=names)


async def _look_whether_empty(change: PlannedChange, request: RegionRequest) -> PlannedChange:
    """See whether the region that is drained can be stopped: what others lack, and what nobody knows."""
    planned, topology, region = change.planned, change.edit.topology, request.region
    target = make_target(topology, planned.servers)
    within = request.gate_timeout if request.is_approved else LOOK_TIMEOUT
    seen = await wait_until_region_empty(topology, target, region, within=within, moves_leaders=request.is_approved)
    plan = planned.plan if change.applied is None else change.applied.remaining
    if plan is not None and plan.are_rules_unknown:
        servers = ", ".join(plan.unread_servers)
        rules = f"whether the rules that lead publishes away from {region} are loaded on {servers}"
        seen = replace(seen, unknown=(*seen.unknown, rules))
    return replace(change, drain_state=seen)
