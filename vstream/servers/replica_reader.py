"""What each server itself holds of a stream: everything else asks the stream's leader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress

from vstream.errors import VstreamError
from vstream.jetstream import monitoring
from vstream.servers.find_servers import Servers
from vstream.servers.target_servers import make_changing_target
from vstream.topology.model import Topology

_TIMEOUT = 10.0
_PERIOD_SECONDS = 1.0
"""Seconds for which an answer counts: it lists all streams of a server, and many streams may be scaled at once."""


class ReplicaReader:
    """Asks the servers of a topology whose monitoring addresses are known."""

    def __init__(self, topology: Topology, servers: Servers) -> None:
        self._topology = topology
        self._servers = servers
        self._lock = asyncio.Lock()
        self._read_at = -_PERIOD_SECONDS
        self._listed: dict[str, Mapping[tuple[str, str], int]] = {}

    async def read_first_sequences(self, stream: str, created: str) -> Mapping[str, int]:
        """The first sequence of *stream* on each server that can be asked: 0 where that holds none of its messages."""
        async with self._lock:
            if time.monotonic() >= self._read_at + _PERIOD_SECONDS:
                self._listed = {}
                monitors = make_changing_target(self._topology, self._servers).monitors()
                await asyncio.gather(*map(self._read, monitors))
                self._read_at = time.monotonic()
        return {server: listed.get((stream, created), 0) for server, listed in self._listed.items()}

    async def _read(self, url: str) -> None:
        with suppress(VstreamError):
            name = (await monitoring.read_varz(url)).server_name
            self._listed[name] = await monitoring.list_first_sequences(url, _TIMEOUT)
