"""
From desired state to a plan: connect, observe, compare. `apply/pipeline.py` is the way from there to changed servers.

The commands and a scenario's lab all use this, so that none of them leaves a part out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from vstream.errors import NotReachableError, RefusedError, VstreamError
from vstream.formatting import summarize_names
from vstream.jetstream.region_connections import connect_all, join_connections
from vstream.plan.context import Observed
from vstream.plan.diff import diff
from vstream.plan.live.dead_regions import require_silent_and_unused
from vstream.plan.live.lost_region import measure_losses
from vstream.plan.live.observe import observe
from vstream.plan.model import Change, Delete, Plan, RegionLoss, UnreachableRegion, Update, risk_of
from vstream.plan.risk import Risk
from vstream.topology import physical
from vstream.topology.bundle import Bundle
from vstream.topology.model import Consistency, Endpoint, Topology
from vstream.value_class import value_class


@value_class
class PlanRequest:
    """The inputs of a plan: the desired state, how the servers are reached, and what is allowed."""

    topology: Topology
    bundle: Bundle
    endpoints: Mapping[str, Endpoint]
    leaving_servers: tuple[str, ...] = ()
    """Servers of a lab that the topology does not list."""
    adopt: frozenset[str] = frozenset()
    """Streams and consumers that vstream did not create and may take over; `all` means every one that is needed."""
    lost: tuple[str, ...] = ()
    """Regions that are given up; those that the topology says are lost, too."""


async def make_plan(request: PlanRequest, *, on_progress: Callable[[str], None] = lambda _text: None) -> Plan:
    """
    Read the servers and compare them with the desired state. *on_progress* is told what is waited for.

    Raises VstreamError if the servers cannot be read, or if `adopt` names something that the topology does not have.
    """
    topology, bundle, lost = request.topology, request.bundle, request.lost
    _check_adopted(request)
    waiting = [region.name for region in topology.regions]
    on_progress(f"connecting to {', '.join(waiting)}")

    def report(region: str) -> None:
        waiting.remove(region)
        if waiting:
            on_progress(f"waiting for {', '.join(waiting)}")

    async with connect_all(topology, request.endpoints, on_open=report) as connections:
        connection = join_connections(connections)
        on_progress("reading streams, consumers and loaded rules")
        observed = await observe(topology, connections, request.endpoints)
        await require_silent_and_unused(topology, lost, request.endpoints, observed)
        losses = await measure_losses(topology, lost, observed, connection)
    observed = give_up_regions(replace(observed, leaving_servers=request.leaving_servers), request, losses)
    return replace(
        diff(topology, bundle, observed, adopt=request.adopt),
        unreachable=tuple(_list_unreachable(connections, lost)),
        answering_region=connection.region,
    )


def give_up_regions(observed: Observed, request: PlanRequest, losses: Sequence[RegionLoss]) -> Observed:
    """*observed*, and that it lacks regions that are given up for good: nothing waits for their servers."""
    lost_servers = _name_lost_servers(request)
    unread = tuple(server for server in observed.unread_servers if server not in lost_servers)
    return replace(observed, unread_servers=unread, lost=request.lost, losses=tuple(losses))


def _list_unreachable(connections: Mapping[str, object], lost: Collection[str]) -> Iterator[UnreachableRegion]:
    """The regions outside *lost* that could not be connected to."""
    for region, failure in connections.items():
        if isinstance(failure, NotReachableError) and region not in lost:
            yield UnreachableRegion(region=region, reason=failure.message)


def _name_lost_servers(request: PlanRequest) -> frozenset[str]:
    """The servers of lost regions, as `Plan.unread_servers` calls them: by name, or by monitoring address."""
    topology, lost = request.topology, request.lost
    monitors = (url for region in lost if region in request.endpoints for url in request.endpoints[region].monitor)
    seats = (seat.server.name for seat in topology.seats if seat.region in lost)
    return frozenset((*monitors, *seats, *(server for region in topology.lost for server in region.servers)))


def _check_adopted(request: PlanRequest) -> None:
    names = {stream.config.name for stream in request.bundle.streams}
    names |= {consumer.config.name for consumer in request.bundle.consumers}
    for name in sorted(request.adopt - names - {"all"}):
        raise VstreamError(
            f"there is no stream `{name}` to adopt in topology `{request.topology.name}`",
            hint="name physical streams, such as " + ", ".join(sorted(names)[:2]) if names else None,
        )


def require_nothing_else(plan: Plan) -> None:
    """Raises RefusedError if *plan* has other changes, whose risks nobody has seen; VstreamError if that is not known."""
    if plan.unanswered_items and not plan.differs:
        names = summarize_names([blocked.name for blocked in plan.unanswered_items])
        raise VstreamError(
            f"nobody answered for {names}, and nothing was changed",
            hint="is a server down? run this again when it is back",
        )
    if not plan.is_empty:
        raise RefusedError(
            "the servers differ from the topology already, and nothing was changed",
            hint="`vstream plan` shows how: apply that first, then run this again",
        )


def require_no_other_losses(plan: Plan, topology: Topology) -> None:
    """Raises RefusedError where *plan* loses more than what died with a region, and copies that a new home has."""
    homed = {stream.name for stream in topology.streams if stream.consistency is Consistency.HOMED}
    dead_sources = {f"sources.{name}" for name in physical.lost_write_streams(topology)}
    losing = [change for change in plan.changes if risk_of(change) is Risk.DATA_LOSS]
    if besides := [change.config.name for change in losing if not _is_expected(change, homed, dead_sources)]:
        raise RefusedError(
            f"{summarize_names(besides)} would lose messages or positions, which was not asked for; nothing was changed",
            hint="did the topology file change? `vstream apply` that first, or take it back, then run this again",
        )


def _is_expected(change: Change, homed: Collection[str], dead_sources: Collection[str]) -> bool:
    match change:
        case Delete():
            return change.is_dead or change.config.virtual in homed
        case Update():
            return all(field.path in dead_sources for field in change.fields if field.risk is Risk.DATA_LOSS)
    return False
