"""Paused servers, like machines that hang."""

from __future__ import annotations

import signal
from typing import ClassVar

from vstream.chaos.faults import base
from vstream.lab.server import SpawnedServers
from vstream.scenario import fault_types
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class


@value_class
class Pause(base.ServerFault):
    """The processes are stopped, like a machine that hangs: connections stay open, and nothing answers."""

    kind: ClassVar[str] = "pause"
    keeps_down: ClassVar[bool] = False
    loses_servers: ClassVar[bool] = True

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Send SIGSTOP to each running server. Confirmed when all are stopped and no monitoring port answers."""
        self.signal(target, signal.SIGSTOP)
        await base.wait_until(self.servers, target.is_paused, "is not stopped by SIGSTOP")
        await base.wait_until_silent(target, self.servers)
        return f"{base.name_with_verb(self.servers)} stopped, and silent on the monitoring port"

    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """Send SIGCONT to each running server."""
        self.signal(target, signal.SIGCONT)
        return SpawnedServers()

    def is_over(self, target: TargetServers, fault_id: str) -> bool:
        """Whether none of them is stopped any more."""
        return not any(target.is_paused(server) for server in self.servers)


async def _resolve_pause(request: base.FaultRequest) -> base.LastingInjection:
    return request.make_lasting(Pause(servers=request.servers_of_targets()))


RESOLVERS = {fault_types.PAUSE: _resolve_pause}
