"""Servers that are restarted one after another, with the same nats-server or another one."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import replace
from typing import ClassVar

from vstream.chaos.faults import base
from vstream.lab import binaries, server_records
from vstream.lab.server import SpawnedServers
from vstream.scenario import fault_types
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class

_LAME_DUCK_SECONDS = 180.0
"""Seconds: the server's default is to disconnect its clients over two minutes."""


@value_class
class Restart(base.StoppedServersFault):
    """The processes are asked to exit, and are started again."""

    kind: ClassVar[str] = "restart"
    keeps_down: ClassVar[bool] = False
    is_lame_duck: bool = False
    """Whether clients are disconnected first. Only the start depends on it; the journal does not store it."""

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Send SIGTERM or SIGUSR2 to each running server. Confirmed when no process is left."""
        self.signal(target, signal.SIGUSR2 if self.is_lame_duck else signal.SIGTERM)
        within = _LAME_DUCK_SECONDS if self.is_lame_duck else base.EXIT_SECONDS
        await base.wait_until_gone(target, self.servers, within=within)
        return f"{base.name_with_verb(self.servers)} gone"

    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """
        Start them, as `Kill` does.

        Servers that still run are stopped first: before a crash of vstream they may have been told to exit. SIGINT
        stops them at once, while SIGTERM has no effect on a server that is disconnecting its clients.
        """
        base.require_awake(target, self.servers)
        self.signal(target, signal.SIGINT)
        await base.wait_until_gone(target, self.servers, within=base.EXIT_SECONDS)
        return base.start_absent_servers(target, self.servers)

    def is_over(self, target: TargetServers, fault_id: str) -> bool:
        """Whether they are no longer meant to run."""
        return all(server_records.read(target.directory, server) is None for server in self.servers)


async def _resolve_rolling_restart(request: base.FaultRequest) -> base.RollingRestart:
    request.target.require_lab()
    servers, is_lame_duck = request.servers_of_targets(), bool(request.spec.options.get("lame_duck"))
    return base.RollingRestart(servers=servers, regions=request.regions_of(servers), is_lame_duck=is_lame_duck)


async def _resolve_upgrade(request: base.FaultRequest) -> base.RollingRestart:
    restart = await _resolve_rolling_restart(request)
    version = str(request.spec.options["to"])
    # It may have to be fetched first.
    program = await asyncio.to_thread(lambda: binaries.read_program(binaries.find_or_fetch(version)))
    return replace(restart, program=program)


RESOLVERS = {fault_types.ROLLING_RESTART: _resolve_rolling_restart, fault_types.UPGRADE: _resolve_upgrade}
