"""Killed servers: those of a region, by name, or the current leader."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from vstream.chaos import select
from vstream.chaos.faults import base
from vstream.scenario import fault_types
from vstream.servers import leaders
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class


@value_class
class Kill(base.StoppedServersFault):
    """The processes are killed, as by `kill -9`; their files stay."""

    kind: ClassVar[str] = "kill"
    keeps_down: ClassVar[bool] = True

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Send SIGKILL to each running server. Confirmed when no process is left and no monitoring port answers."""
        return await self.kill(target)


async def _resolve_kill_region(request: base.FaultRequest) -> base.LastingInjection:
    return request.make_lasting(Kill(servers=request.servers_of_regions()))


async def _resolve_kill_server(request: base.FaultRequest) -> base.LastingInjection:
    names = request.spec.targets
    return request.make_lasting(
        Kill(servers=tuple(select.require_running_server(request.target, name) for name in names))
    )


async def _resolve_kill_leader(request: base.FaultRequest) -> base.LastingInjection:
    leadership, leader = await select.require_stream_leader(request.target, request.find_physical_stream())
    killed = request.make_lasting(Kill(servers=(select.require_running_server(request.target, leader),)))
    return replace(killed, also_confirm=select.make_stream_leader_check(request.target, leadership, leader))


async def _resolve_kill_meta_leader(request: base.FaultRequest) -> base.LastingInjection:
    leader = await leaders.require_meta_leader(request.target)
    killed = request.make_lasting(Kill(servers=(select.require_running_server(request.target, leader),)))
    return replace(killed, also_confirm=select.make_meta_leader_check(request.target, leader))


RESOLVERS = {
    fault_types.KILL_REGION: _resolve_kill_region,
    fault_types.RESTART_REGION: _resolve_kill_region,  # healing it, which follows at once, starts them
    fault_types.KILL_SERVER: _resolve_kill_server,
    fault_types.KILL_LEADER: _resolve_kill_leader,
    fault_types.KILL_META_LEADER: _resolve_kill_meta_leader,
}
