"""Servers of a region that leave the meta group for good, and those that come back into it with empty disks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping

from vstream.errors import NotReachableError, RefusedError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, connect_to_system, open_connection
from vstream.topology.model import Endpoint

PEER_TIMEOUT = 660.0
"""Seconds until servers have joined: one that was removed is let in again after five minutes (server/raft.go, peerRemoveTimeout)."""
_POLL_SECONDS = 0.5


async def remove_peers(system: Mapping[str, Endpoint], servers: Iterable[str]) -> None:
    """Remove *servers* from the meta group, as far as they are in it. Raises VstreamError."""
    connection: Connection = await connect_to_system(system)
    try:
        for server in servers:
            await JetStreamAdmin(connection).remove_peer(server)
    finally:
        await connection.close()


async def require_empty(region: str, endpoint: Endpoint) -> None:
    """Raises VstreamError unless servers of *region* answer, and none that can be monitored has streams."""
    connection = await open_connection(endpoint, region)
    await connection.close()
    for url in endpoint.monitor:
        number = int((await monitoring.get(url, "/jsz")).get("streams", 0))
        if number:
            name = (await monitoring.read_varz(url)).server_name
            raise RefusedError(
                f"server `{name}` in region `{region}` comes back with {number:,} streams on its disk",
                hint="stop it, move its JetStream directory away, and start it again: what is in it is old",
            )


async def wait_for_members(servers: Collection[str], monitors: Collection[str]) -> None:
    """Return once the leader of the meta group counts *servers* as its members. Raises NotReachableError."""
    until = time.monotonic() + PEER_TIMEOUT
    while True:
        members: set[str] = set()
        for meta in await asyncio.gather(*(_read_meta(url) for url in monitors)):
            if meta is not None and meta.followers and meta.leader is not None:
                members |= {meta.leader, *meta.followers}
        if not members or members.issuperset(servers):
            return  # where no leader can be monitored, creating the streams will tell
        if time.monotonic() > until:
            missing = ", ".join(sorted({*servers} - members))
            raise NotReachableError(
                f"{missing} has not joined the meta group in {PEER_TIMEOUT:g} s",
                hint="do its servers have the gateways of the others, and unique names? Then run this again",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _read_meta(url: str) -> monitoring.Meta | None:
    try:
        return await monitoring.read_meta(url)
    except VstreamError:
        return None
