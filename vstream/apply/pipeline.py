"""Apply a plan, and plan again; read streams resume at once. Commands and scenarios change servers by this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vstream.apply.execute import WITHOUT_WATCH, ApplyResult, ApplyWatch, execute_plan
from vstream.apply.port import MappingAdmin
from vstream.health.live.refresh_readers import refresh_readers
from vstream.jetstream.admin import JetStreamAdmin
from vstream.lab.remove_servers import LabServerAdmin
from vstream.lab.status import list_endpoints
from vstream.plan.live.connections import choose_connection, connect_all
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.plan.plan import Plan
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology

_REFRESH_TIMEOUT = 30.0
"""Seconds that readers get to take again from what has moved."""
_REGION_TIMEOUT = 120.0
"""The same, after a change of a whole region."""


async def apply_and_replan(
    request: PlanRequest,
    plan: Plan,
    mappings: MappingAdmin | None,
    find_target: Callable[[], TargetServers],
    *,
    lab_name: str | None,
    watch: ApplyWatch = WITHOUT_WATCH,
) -> tuple[ApplyResult, Plan | None]:
    """
    Apply *plan*, made from *request*, then plan again: what is left is what counts; None where apply was stopped.

    *find_target* finds the servers whose streams source again; the rest as in `execute_plan`.
    """
    async with connect_all(request.topology, request.endpoints) as connections:
        connection = choose_connection(connections)
        applied = await execute_plan(
            plan,
            JetStreamAdmin(connection),
            mappings,
            LiveGateChecker(connection),
            servers=LabServerAdmin(lab_name) if lab_name is not None else None,
            readers=_LiveReaderAdmin(request.topology, find_target),
            watch=watch,
        )
    if applied.gate_timeouts or applied.failure is not None:
        return applied, None
    if applied.retired and lab_name is not None:  # there are fewer servers now
        request = replace(request, endpoints=list_endpoints(lab_name), leaving=())
    # What was adopted is vstream's own by now.
    return applied, await make_plan(replace(request, adopt=frozenset()))


async def resume_reading(topology: Topology, target: TargetServers) -> tuple[str, ...]:
    """Make read streams that stand still source again at once. Returns those that will do so later."""
    result = await refresh_readers(topology, target, timeout=_REGION_TIMEOUT, spares=True)
    return tuple(stream.stream for stream in result.streams if stream.active is None)


@dataclass(frozen=True, slots=True)
class _LiveReaderAdmin:
    """ReaderAdmin: what `vstream repair sources` does, for some streams."""

    topology: Topology
    find_target: Callable[[], TargetServers]

    async def refresh(self, readers: Sequence[str]) -> tuple[str, ...]:
        """See ReaderAdmin."""
        result = await refresh_readers(self.topology, self.find_target(), timeout=_REFRESH_TIMEOUT, only=readers)
        silent = [stream for stream in result.streams if stream.active is None or not stream.is_stepped_down]
        return tuple(f"`{stream.stream}`: {stream.note}" for stream in silent)
