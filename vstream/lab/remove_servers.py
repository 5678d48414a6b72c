"""
Remove servers from a running lab: stop them, remove them from the meta group, and forget them.

A server that is only stopped keeps its vote, and the meta group counts it for ever. So it is removed there first, which
needs the system account.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vstream.errors import LabError, VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab import server_records
from vstream.lab.endpoints import find_system_endpoint
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.server import stop_servers
from vstream.lab.state import LabDirectory, LabRecord
from vstream.lab.status import require_recorded_lab


@dataclass(frozen=True, slots=True)
class LabServerAdmin:
    """ServerAdmin for the lab *name*."""

    name: str

    async def retire(self, servers: Sequence[str]) -> None:
        """See ServerAdmin."""
        directory, _ = require_recorded_lab(self.name)
        async with directory.lock():
            _, record = require_recorded_lab(self.name)  # it may have changed while we waited
            leaving = {address.server.name for address in record.servers} & {*servers}
            remaining = replace(
                record,
                servers=tuple(address for address in record.servers if address.server.name not in leaving),
                removed=(
                    *(address for address in record.removed if address.server.name not in leaving),
                    *(address for address in record.servers if address.server.name in leaving),
                ),
            )
            await stop_servers(directory, sorted(leaving))
            # In domains, each region's servers are a meta group of their own, which goes with them.
            if not any(address.is_hub for address in record.servers):
                await self._remove_peers(servers, tuple(address.region for address in remaining.servers))
            await _forget_servers(directory, remaining, leaving)

    async def _remove_peers(self, servers: Sequence[str], regions: tuple[str, ...]) -> None:
        """Return once the meta group has none of *servers*. Raises VstreamError if that takes too long."""
        endpoint = find_system_endpoint(self.name)
        async with connect(endpoint, regions[0]) as connection:
            for server in servers:
                try:
                    await JetStreamAdmin(connection).remove_peer(server)
                except VstreamError as error:
                    raise LabError(
                        f"server `{server}` could not be removed from the meta group: {error.message}",
                        hint="`vstream apply` tries again",
                    ) from error


async def _forget_servers(directory: LabDirectory, remaining: LabRecord, servers: Collection[str]) -> None:
    """Nothing of *servers* is left but their logs: with their data, the lab would not start again."""
    directory.write(remaining)
    proxy = ProxyProcess(directory)
    links = proxy.read_orders()
    if links is not None:
        staying = {server: region for server, region in links.servers.items() if server not in servers}
        regions = {*staying.values()}
        proxy.write_orders(
            replace(
                links,
                servers=staying,
                fronts=tuple(front for front in links.fronts if front.region in regions),
                started={pair: state for pair, state in links.started.items() if regions.issuperset(pair)},
                base={pair: state for pair, state in links.base.items() if regions.issuperset(pair)},
                generation=links.generation + 1,
            )
        )
        await proxy.make_reread(generation=links.generation + 1)
    for server in servers:
        server_records.forget(directory, server)
        directory.config(server).unlink(missing_ok=True)
        shutil.rmtree(directory.data / server, ignore_errors=True)
