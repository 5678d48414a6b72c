"""
A change of a whole region, from the topology file to readers that source again.

`vstream region drain`, `failover` and `failback` go this way, and so do the steps of scenarios that do the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import field, replace
from pathlib import Path

from vstream.apply.execute import GATE_TIMEOUT, WITHOUT_WATCH, ApplyResult, ApplyWatch
from vstream.apply.pipeline import apply_and_replan, prove_dead, refresh_silent_readers, start_missing_servers
from vstream.apply.shipping import ShippingOptions
from vstream.errors import RefusedError
from vstream.health.live.drain import Emptiness, wait_until_region_empty
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.status import read_lab_status
from vstream.plan.live.lost_region import give_up
from vstream.plan.live.witnesses import (
    DeathProof,
    DeathVerdict,
    remove_peers,
    require_empty,
    wait_for_members,
)
from vstream.plan.pipeline import require_nothing_else, require_nothing_lost
from vstream.plan.plan import Plan
from vstream.plan.topology_edit import TopologyEdit
from vstream.scenario.model import ChangeRegion, RegionCommand
from vstream.servers.find_servers import Servers, find_system_endpoints, use_servers
from vstream.servers.server_plan import ServerPlan, make_server_plan
from vstream.servers.target_servers import make_target
from vstream.topology.model import Topology
from vstream.value_class import value_class

LOOK = 5.0
"""Seconds in which what is drained shows that nothing more comes."""


def _show_nothing() -> AbstractContextManager[Callable[[object], None]]:
    return nullcontext(lambda _step: None)


@value_class
class RegionRequest:
    """What is to become of a region, and what is allowed."""

    action: ChangeRegion
    before: TopologyEdit
    """The topology as it is written."""
    lab: str | None
    templates: Path | None
    is_approved: bool
    """Whether to change anything."""
    is_declared_dead: bool = False
    """Whether somebody knows that the region is dead where not everybody could be asked."""
    taker: str | None = None
    """Who takes the publishes of a region that is drained; by default the next region."""
    writes_file: bool = True
    """Whether the topology file says so from then on."""
    shipping: ShippingOptions = field(default_factory=ShippingOptions)
    gate_timeout: float = GATE_TIMEOUT


@value_class
class RegionResult:
    """How far a change of a region has come."""

    proof: DeathProof | None = None
    """What was heard of a region that is to be given up."""
    edit: TopologyEdit | None = None
    """What the file is to say; None where the region may be alive, or its servers do not run yet."""
    homes: Mapping[str, str] = field(default_factory=dict)
    """The new homes of streams that were at home in it."""
    planned: ServerPlan | None = None
    """What is to be changed; None as above."""
    applied: ApplyResult | None = None
    """What was changed; None where nothing was."""
    left: Plan | None = None
    """What is left to change after that; None where nothing was changed, or apply was stopped."""
    members: tuple[str, ...] = ()
    """Dead servers that the meta group still counts, since nobody knows its system account."""
    emptiness: Emptiness | None = None
    """Whether a region that is drained can be stopped; None where it is not drained."""

    @property
    def is_done(self) -> bool:
        """Whether all that was planned was done."""
        return self.left is not None and self.left.is_empty


@value_class
class RegionWatch:
    """Who is told what happens."""

    on_proof: Callable[[Servers, DeathProof], None] = lambda _servers, _proof: None
    on_plan: Callable[[ServerPlan, RegionResult], Awaitable[None]] | None = None
    """Awaited with the plan and what led to it, before anything is changed."""
    on_applied: Callable[[ServerPlan, ApplyResult, Plan | None], None] = lambda _planned, _applied, _left: None
    """Told what was done and what is left, before readers resume."""
    on_behind: Callable[[tuple[str, ...]], None] = lambda _streams: None
    """Told which read streams will source again later."""
    show_planning: Callable[[], AbstractContextManager[Callable[[str], None]]] = _show_nothing
    show_starting: Callable[[], AbstractContextManager[Callable[[ReadinessProgress], None]]] = _show_nothing
    show_applying: Callable[[Plan], AbstractContextManager[ApplyWatch]] = lambda _plan: nullcontext(WITHOUT_WATCH)


async def change_region(request: RegionRequest, watch: RegionWatch) -> RegionResult:
    """
    Do what *request* says: plan it, write the topology file, apply, and make readers source again.

    Nothing is changed without approval, or where the region may be alive or something is blocked. Stopped anywhere, it can
    be asked for again. Raises VstreamError, for example RefusedError where the plan loses what nobody has given up.
    """
    action = request.action
    match action.command:
        case RegionCommand.DRAIN | RegionCommand.UNDO_DRAIN:
            result = await _prepare_drain(request, watch)
        case RegionCommand.FAILOVER:
            result = await _prepare_failover(request, watch)
        case RegionCommand.FAILBACK:
            result = await _prepare_failback(request, watch)
    edit = result.edit
    if edit is None:
        return result
    topology = edit.topology
    planned = await _plan(topology, request, watch)
    result = replace(result, planned=planned)
    if watch.on_plan is not None:
        await watch.on_plan(planned, result)
    require_nothing_lost(planned.plan, topology)
    if request.is_approved and not planned.plan.blocked:
        if request.writes_file:
            edit.save()
        result = await _apply(result, planned, request, watch)
    if result.is_done and action.command is RegionCommand.FAILOVER:
        members = await _remove_from_meta_group(planned, (action.region, *action.also))
        result = replace(result, members=members)
    if action.command is RegionCommand.DRAIN and (result.is_done or (result.applied is None and planned.plan.is_empty)):
        result = replace(result, emptiness=await _look_whether_empty(result, planned, request))
    return result


async def _plan(topology: Topology, request: RegionRequest, watch: RegionWatch) -> ServerPlan:
    with watch.show_planning() as show:
        servers = use_servers(topology, request.lab)
        return await make_server_plan(topology, servers, request.templates, on_progress=show)


async def _prepare_drain(request: RegionRequest, watch: RegionWatch) -> RegionResult:
    before, region = request.before, request.action.region
    is_undone = request.action.command is RegionCommand.UNDO_DRAIN
    edit = before.undo_drain(region) if is_undone else before.drain(region, request.taker)
    if edit.topology is not before.topology:  # else an earlier run has begun it
        require_nothing_else((await _plan(before.topology, request, watch)).plan)
    return RegionResult(edit=edit)


async def _prepare_failover(request: RegionRequest, watch: RegionWatch) -> RegionResult:
    servers = use_servers(request.before.topology, request.lab)
    regions = (request.action.region, *request.action.also)
    proof = await prove_dead(request.before.topology, regions, servers)
    watch.on_proof(servers, proof)
    accepted = {DeathVerdict.DEAD, DeathVerdict.UNKNOWN} if request.is_declared_dead else {DeathVerdict.DEAD}
    if proof.verdict not in accepted:
        return RegionResult(proof=proof)
    edit, homes = await give_up(request.before, regions, servers.endpoints)
    return RegionResult(proof=proof, edit=edit, homes=homes)


async def _prepare_failback(request: RegionRequest, watch: RegionWatch) -> RegionResult:
    before, region = request.before, request.action.region
    edit, servers = before.take_in(region), use_servers(before.topology, request.lab)
    seats = {seat.server.name for seat in edit.topology.all_seats if seat.region == region}
    if servers.lab is None:
        await _require_servers(request, edit, servers)
    elif request.is_approved:
        if not _list_running(servers.lab, seats):
            require_nothing_lost((await _plan(before.topology, request, watch)).plan, before.topology)
        # The file comes second: a lab without servers that its file has is refused. Those that an earlier run has started may
        # not be let in yet.
        with watch.show_starting() as show:
            await start_missing_servers(servers.lab, edit.topology, request.templates, show)
    elif _list_running(servers.lab, seats) != seats:
        return RegionResult()
    return RegionResult(edit=edit)


def _list_running(lab_name: str, seats: set[str]) -> set[str]:
    """Those of *seats* that run in the lab."""
    return seats & {server.name for server in read_lab_status(lab_name).servers if server.pid}


async def _require_servers(request: RegionRequest, edit: TopologyEdit, servers: Servers) -> None:
    """The region's servers must run, with empty disks if they come now, and be let in by the others."""
    region = request.action.region
    endpoints = {**servers.endpoints, **servers.given_up}
    endpoint = endpoints.get(region)
    if endpoint is None:
        raise RefusedError(f"no address is known for region `{region}`", hint=f"add `{region}` to `connect`")
    if edit is not request.before:
        await require_empty(region, endpoint)
    if request.is_approved:
        monitors = [url for endpoint in endpoints.values() for url in endpoint.monitor]
        await wait_for_members(edit.topology.server_names_in(region), monitors)


async def _apply(result: RegionResult, planned: ServerPlan, request: RegionRequest, watch: RegionWatch) -> RegionResult:
    with watch.show_applying(planned.plan) as shown:
        apply_watch = replace(shown, gate_timeout=request.gate_timeout)
        applied, left = await apply_and_replan(planned, request.shipping, watch=apply_watch)
    watch.on_applied(planned, applied, left)
    result = replace(result, applied=applied, left=left)
    if result.is_done and (behind := await refresh_silent_readers(planned.request.topology, planned.servers)):
        watch.on_behind(behind)
    return result


async def _remove_from_meta_group(planned: ServerPlan, regions: Sequence[str]) -> tuple[str, ...]:
    """Their servers have no vote any more. Returns those that nobody could take it from. A lab's are gone by now."""
    if planned.servers.lab is not None:
        return ()
    topology = planned.request.topology
    names = tuple(server for region in regions for server in topology.server_names_in(region))
    if system := find_system_endpoints(planned.servers, [living.name for living in topology.regions]):
        await remove_peers(system, names)
        return ()
    return names


async def _look_whether_empty(result: RegionResult, planned: ServerPlan, request: RegionRequest) -> Emptiness:
    """Whether the region that is drained can be stopped: what others lack, and what nobody knows."""
    topology, region, is_moving = planned.request.topology, request.action.region, request.is_approved
    target, within = make_target(topology, planned.servers), request.gate_timeout if is_moving else LOOK
    seen = await wait_until_region_empty(topology, target, region, within=within, moves_leaders=is_moving)
    if unread := (result.left or planned.plan).unknown_servers:
        rules = f"whether the rules that lead publishes away from {region} are loaded on {', '.join(unread)}"
        seen = replace(seen, unknown=(*seen.unknown, rules))
    return seen
