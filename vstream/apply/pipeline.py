"""Apply a plan, and plan again; moved streams' readers are resynced. Commands and scenarios change servers by this."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from vstream.apply.execute import execute_plan
from vstream.apply.interfaces import LEFT_TO_OTHERS, Administration
from vstream.apply.mappings import choose_mapping_admin
from vstream.apply.result import NO_OBSERVER, ApplyObserver, ApplyResult
from vstream.apply.shipping import ShippingOptions
from vstream.apply.wait_for_gates import GATE_TIMEOUT
from vstream.errors import RefusedError, VstreamError
from vstream.health.live.resync_readers import ResyncMode, resync_readers
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.region_connections import connect_all, join_connections
from vstream.lab.endpoints import list_endpoints
from vstream.lab.remove_servers import LabServerAdmin
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.live.reader_positions import LivePositionReader
from vstream.plan.model import AllowOption, Plan
from vstream.plan.pipeline import make_plan
from vstream.servers.find_servers import Servers
from vstream.servers.placement_recorder import PlacementRecorder
from vstream.servers.replica_reader import ReplicaReader
from vstream.servers.server_plan import ServerPlan
from vstream.servers.target_servers import make_target
from vstream.topology.model import Topology
from vstream.value_class import value_class

_RESYNC_TIMEOUT = 30.0
"""Seconds that readers get to take again from what has moved."""


class ApplyEnd(Enum):
    """How a run of apply ended."""

    DONE = "done"
    """The servers are as the topology says."""
    RULES_UNKNOWN = "rules unknown"
    """The same, but whether each has loaded its rules is not known: it may be that nothing works."""
    OPEN = "open"
    """Something differs still, or a gate did not hold in time."""
    UNANSWERED = "unanswered"
    """Nothing is known to differ, but nobody answered for a stream."""
    FAILED = "failed"
    """A request failed, perhaps one of planning again: what is left is not known."""


@value_class
class AppliedPlan:
    """What became of a plan, and what it left to do."""

    planned: ServerPlan
    result: ApplyResult
    remaining: Plan | None
    """What is left to change; None where apply was stopped, or planning again failed."""

    @property
    def outcome(self) -> ApplyEnd:
        """How it ended."""
        if self.result.gate_timeouts:
            return ApplyEnd.OPEN
        if self.remaining is None:
            return ApplyEnd.FAILED
        if not self.remaining.is_empty:
            return ApplyEnd.OPEN if self.remaining.differs else ApplyEnd.UNANSWERED
        return ApplyEnd.RULES_UNKNOWN if self.remaining.are_rules_unknown else ApplyEnd.DONE

    @property
    def is_done(self) -> bool:
        """Whether the servers are as the topology says now, as far as they could be read."""
        return self.outcome in {ApplyEnd.DONE, ApplyEnd.RULES_UNKNOWN}


async def apply_and_replan(
    planned: ServerPlan,
    shipping: ShippingOptions,
    *,
    allowed: Collection[AllowOption],
    gate_timeout: float = GATE_TIMEOUT,
    observer: ApplyObserver = NO_OBSERVER,
) -> AppliedPlan:
    """
    Carry out *planned*, then plan again: what is left is what counts. Where that fails, the result says so.

    Raises RefusedError, with nothing changed, if the plan needs an option that is not *allowed*.
    """
    if unmet := planned.plan.unmet_demands(allowed):
        raise RefusedError(f"this plan needs {' and '.join(map(str, unmet))}, and nothing was changed")
    request, lab_name = planned.request, planned.servers.lab
    result = await apply_plan(planned, shipping, gate_timeout=gate_timeout, observer=observer)
    if result.gate_timeouts or result.failure is not None:
        return AppliedPlan(planned=planned, result=result, remaining=None)
    try:
        if result.retired and lab_name is not None:  # there are fewer servers now
            request = replace(request, endpoints=list_endpoints(lab_name), leaving_servers=())
        # What was adopted is vstream's own by now.
        remaining = await make_plan(replace(request, adopt=frozenset()))
    except VstreamError as failure:
        # What was done is known all the same.
        return AppliedPlan(planned=planned, result=replace(result, failure=failure), remaining=None)
    return AppliedPlan(planned=planned, result=result, remaining=remaining)


async def apply_plan(
    planned: ServerPlan, shipping: ShippingOptions, *, gate_timeout: float, observer: ApplyObserver
) -> ApplyResult:
    """Carry out *planned*. What it demands has been allowed."""
    request, lab_name = planned.request, planned.servers.lab
    recorder = PlacementRecorder(request.topology, planned.servers)
    replicas = ReplicaReader(request.topology, planned.servers)
    mappings = choose_mapping_admin(request, planned.plan, planned.servers, shipping)
    async with connect_all(request.topology, request.endpoints) as connections:
        connection = join_connections(connections)
        administration = Administration(
            streams=JetStreamAdmin(connection),
            checker=LiveGateChecker(connection, recorder, replicas.read_first_sequences),
            positions=LivePositionReader(connection),
            mappings=mappings,
            servers=LabServerAdmin(lab_name) if lab_name is not None else LEFT_TO_OTHERS,
            readers=_LiveReaderAdmin(request.topology, planned.servers),
        )
        return await execute_plan(planned.plan, administration, gate_timeout=gate_timeout, observer=observer)


@dataclass(frozen=True, slots=True)
class _LiveReaderAdmin:
    """ReaderAdmin: what `vstream repair sources` does, for some streams."""

    topology: Topology
    servers: Servers

    async def resync(self, readers: Sequence[str]) -> tuple[str, ...]:
        """See ReaderAdmin."""
        target = make_target(self.topology, self.servers)
        result = await resync_readers(self.topology, target, timeout=_RESYNC_TIMEOUT, mode=ResyncMode.ALL, only=readers)
        silent = [stream for stream in result.streams if stream.active is None or not stream.is_stepped_down]
        return tuple(f"`{stream.stream}`: {stream.note}" for stream in silent)
