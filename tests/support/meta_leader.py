"""Choose the leader of a lab's meta group: which regions have the JetStream API while links are cut depends on where it is."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from vstream.errors import VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import find_system_endpoint, list_endpoints
from vstream.servers.leaders import find_meta_leader, wait_for_successor


async def lead_meta_group_from(lab: str, server: str) -> None:
    """Return once *server* leads the meta group of *lab*."""
    monitors = [url for endpoint in list_endpoints(lab).values() for url in endpoint.monitor]
    async with asyncio.timeout(120):
        while (leader := await find_meta_leader(monitors)) != server:
            if leader is None:
                await asyncio.sleep(0.1)
                continue
            with suppress(VstreamError):
                async with connect(find_system_endpoint(lab), lab) as system:
                    await JetStreamAdmin(system).step_down_meta(server)
                await wait_for_successor(lambda: find_meta_leader(monitors), leader)
