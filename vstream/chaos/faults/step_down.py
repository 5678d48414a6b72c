"""Leaders that step down. The servers elect new ones by themselves: nothing to undo."""

from __future__ import annotations

from vstream.chaos import select
from vstream.chaos.faults.base import FaultRequest, LeaderChange
from vstream.jetstream.admin import JetStreamAdmin
from vstream.scenario import fault_types
from vstream.servers import leaders
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class


@value_class
class StreamStepDown(LeaderChange):
    """The leader of a stream steps down."""

    stream: str

    async def step_down(self, target: TargetServers) -> str:
        """Ask the leader to step down. Confirmed when another server leads."""
        async with target.connect() as connection:
            await JetStreamAdmin(connection).step_down(self.stream)
            return await leaders.confirm_successor(
                self.stream, lambda: leaders.find_stream_leader(connection, self.stream), self.leader
            )


@value_class
class MetaStepDown(LeaderChange):
    """The leader of the meta group steps down."""

    async def step_down(self, target: TargetServers) -> str:
        """Ask the leader, in the system account. Confirmed when another server leads."""
        async with target.connect_to_system() as connection:
            await JetStreamAdmin(connection).step_down_meta()
        return await leaders.confirm_successor(
            "the meta group", lambda: leaders.find_meta_leader(target.monitors()), self.leader
        )


async def _resolve_step_down(request: FaultRequest) -> LeaderChange:
    leadership, leader = await select.require_stream_leader(request.target, request.find_physical_stream())
    if request.needs_successor:
        select.require_electable_successor(leadership)
    return StreamStepDown(stream=leadership.stream, leader=leader, regions=request.regions_of([leader]))


async def _resolve_step_down_meta(request: FaultRequest) -> LeaderChange:
    leader = await leaders.require_meta_leader(request.target)
    return MetaStepDown(leader=leader, regions=request.regions_of([leader]))


RESOLVERS = {fault_types.STEP_DOWN: _resolve_step_down, fault_types.STEP_DOWN_META: _resolve_step_down_meta}
