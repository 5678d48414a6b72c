"""Whether a region is really dead, and how far the others have read what was written there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from vstream.errors import RefusedError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.connection import Connection
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.transitions.remove_region import RegionLoss
from vstream.topology import physical
from vstream.topology.model import Role
from vstream.topology.profiles import profile_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.plan.context import Observed
    from vstream.topology.model import Endpoint, Topology

_HINT = "without `--lost`, `apply` waits until the others have everything of it"


async def require_dead(
    topology: Topology,
    regions: Sequence[str],
    endpoints: Mapping[str, Endpoint],
    connections: Mapping[str, object],
    observed: Observed,
) -> None:
    """Raises RefusedError if anything in *regions* still answers, or if the topology wants streams there."""
    if regions and not profile_of(topology).has_physical_names:
        raise RefusedError(f"a region cannot be given up with `routing: {topology.routing.value}` yet")
    for region in regions:
        used = [stream.name for stream in topology.streams if region in stream.regions]
        if used:
            raise RefusedError(
                f"the topology still has `{used[0]}` in region `{region}`",
                hint="take the region out of the streams' `regions`, or out of the topology, first",
            )
        if isinstance(connections.get(region), Connection):
            raise RefusedError(f"region `{region}` is not dead: it can be connected to", hint=_HINT)
        endpoint = endpoints.get(region)
        answers = await asyncio.gather(*(_answers(url) for url in (endpoint.monitor if endpoint else ())))
        if alive := next((name for name in answers if name), None):
            raise RefusedError(f"region `{region}` is not dead: server `{alive}` answers", hint=_HINT)
        for stream in topology.streams:
            for role in (Role.WRITE, Role.READ):
                if (name := physical.physical_name(stream, role, region)) in observed.streams:
                    raise RefusedError(f"region `{region}` is not dead: stream `{name}` answers", hint=_HINT)


async def measure_losses(
    topology: Topology, regions: Sequence[str], observed: Observed, connection: Connection
) -> tuple[RegionLoss, ...]:
    """What is lost of each write stream in *regions* that another stream sources, or that nobody answers for."""
    gauges = LiveGateChecker(connection)
    losses = []
    for stream in topology.streams:
        for region in regions:
            name = physical.physical_name(stream, Role.WRITE, region)
            parts = [part for part in stream.physical if part.role in {Role.READ, Role.ORDER}]
            readers = sorted(physical.physical_name(stream, part.role, part.place) for part in parts)
            seen = {reader: observed.streams[reader] for reader in readers if reader in observed.streams}
            readers = [reader for reader, held in seen.items() if held.config.mirror_name is None]
            if name in observed.missing or any(name in seen[reader].config.source_names for reader in readers):
                cursors, waiting = await gauges.cursors(name, readers)
                losses.append(RegionLoss(stream=name, region=region, readers=cursors, waiting=waiting))
    return tuple(losses)


async def _answers(url: str) -> str | None:
    """The name of the server that answers there."""
    try:
        return (await monitoring.varz(url)).server_name
    except VstreamError:
        return None
