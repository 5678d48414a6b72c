"""
Have servers record which streams they hold, before anything depends on it.

A server records that in its snapshots of the meta group's log: once a minute, and when it becomes the group's leader. One
that is killed before replays the log. If a stream was on other servers at its last snapshot, it deletes what it has of that
stream, and then makes it again, empty (server/jetstream_cluster.go: what a snapshot assigns goes before updates).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property

from vstream.errors import VstreamError
from vstream.formatting import format_count
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.monitoring import MetaLog
from vstream.servers.find_servers import Servers
from vstream.servers.target_servers import TargetServers, make_changing_target
from vstream.timing import RECORDING_SECONDS
from vstream.topology.model import Topology

_PAUSE_SECONDS = 1.0
_MAX_ATTEMPTS = 3
"""How often, and after how many seconds again, a server is made leader of the meta group."""


class PlacementRecorder:
    """Makes the servers of streams that have moved record that they hold them."""

    def __init__(self, topology: Topology, servers: Servers) -> None:
        self._topology = topology
        self._servers = servers
        self._names: dict[str, str] = {}
        self._ends: dict[tuple[str, str], int] = {}
        self._since: dict[str, float] = {}
        self._attempts: dict[str, int] = {}
        self._next = 0.0

    @cached_property
    def _target(self) -> TargetServers:
        return make_changing_target(self._topology, self._servers)

    async def find_unrecorded(self, stream: str, servers: Sequence[str]) -> str | None:
        """See MoveRecorder."""
        logs = await self._read_logs(servers)
        if late := self._list_late(stream, logs):
            return f"{', '.join(late)} {'has' if len(late) == 1 else 'have'} not recorded that `{stream}` is there"
        left = self._since.setdefault(stream, time.monotonic()) + RECORDING_SECONDS - time.monotonic()
        silent = [server for server in servers if server not in logs]
        if silent and left > 0:
            wait = f"servers record it once a minute: {format_count(int(left) + 1, 'second')} to go"
            return f"whether {', '.join(silent)} has recorded that `{stream}` is there is not known; {wait}"
        return None

    async def push(self, stream: str, servers: Sequence[str]) -> None:
        """See MoveRecorder. A server records what it holds when it becomes leader of the meta group."""
        logs = await self._read_logs(servers)
        if late := self._list_late(stream, logs):
            await self._lead_from(late[0], is_leader=logs[late[0]].is_leader)

    def _list_late(self, stream: str, logs: Mapping[str, MetaLog]) -> Sequence[str]:
        """The servers whose log still begins before what was its end when they were first asked about *stream*."""
        end = max((log.last for log in logs.values()), default=0)
        return [server for server, log in logs.items() if log.first <= self._ends.setdefault((stream, server), end)]

    async def _read_logs(self, servers: Sequence[str]) -> Mapping[str, MetaLog]:
        """The log of each of *servers* whose monitoring address is known, and answers."""
        logs: dict[str, MetaLog] = {}

        async def read(url: str) -> None:
            with suppress(VstreamError):
                if url not in self._names:
                    self._names[url] = (await monitoring.read_varz(url)).server_name
                if self._names[url] in servers and (log := await monitoring.read_meta_log(url)) is not None:
                    logs[self._names[url]] = log

        await asyncio.gather(*map(read, self._target.monitors()))
        return logs

    async def _lead_from(self, server: str, *, is_leader: bool) -> None:
        """Let *server* lead the meta group. Where that cannot be asked, it records the stream within a minute all the same."""
        target, tried, now = self._target, self._attempts.get(server, 0), time.monotonic()
        if target.system is None or target.hubs or tried == _MAX_ATTEMPTS or now < self._next:
            return
        self._next = now + _PAUSE_SECONDS
        with suppress(VstreamError):
            async with target.connect_to_system() as system:
                if is_leader:  # whoever leads already must let another lead first
                    await JetStreamAdmin(system).step_down_meta()
                else:
                    self._attempts[server] = tried + 1
                    await JetStreamAdmin(system).step_down_meta(server)
