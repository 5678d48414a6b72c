"""Apply a plan, and plan again; read streams resume at once. Commands and scenarios change servers by this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from vstream.apply.execute import WITHOUT_WATCH, ApplyResult, ApplyWatch, execute_plan
from vstream.apply.mappings import choose_mapping_admin
from vstream.apply.port import Administration
from vstream.apply.shipping import ShippingOptions
from vstream.errors import RefusedError
from vstream.health.live.refresh_readers import RefreshMode, refresh_readers
from vstream.jetstream.admin import JetStreamAdmin
from vstream.lab import lab
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.remove_servers import LabServerAdmin
from vstream.lab.status import list_endpoints
from vstream.plan.live.connections import choose_connection, connect_all
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.live.reader_positions import LivePositionReader
from vstream.plan.live.witnesses import PEER_TIMEOUT, DeathProof, collect_death_proof
from vstream.plan.pipeline import make_plan
from vstream.plan.plan import Plan
from vstream.servers.bundles import render_lab
from vstream.servers.find_servers import Servers, find_system_endpoints
from vstream.servers.placement_recorder import PlacementRecorder
from vstream.servers.server_plan import ServerPlan
from vstream.servers.target_servers import make_changing_target, make_target
from vstream.topology.model import Topology

_REFRESH_TIMEOUT = 30.0
"""Seconds that readers get to take again from what has moved."""
_REGION_TIMEOUT = 120.0
"""The same, after a change of a whole region."""


async def apply_and_replan(
    planned: ServerPlan, shipping: ShippingOptions, *, watch: ApplyWatch = WITHOUT_WATCH
) -> tuple[ApplyResult, Plan | None]:
    """Carry out *planned*, then plan again: what is left is what counts; None where apply was stopped."""
    request, lab_name = planned.request, planned.servers.lab
    recorder = PlacementRecorder(partial(make_changing_target, request.topology, planned.servers))
    mappings = choose_mapping_admin(request, planned.plan, planned.servers, shipping)
    async with connect_all(request.topology, request.endpoints) as connections:
        connection = choose_connection(connections)
        administration = Administration(
            streams=JetStreamAdmin(connection),
            checker=LiveGateChecker(connection, recorder.ensure_recorded),
            positions=LivePositionReader(connection),
            mappings=mappings,
            servers=LabServerAdmin(lab_name) if lab_name is not None else None,
            readers=_LiveReaderAdmin(request.topology, planned.servers),
        )
        applied = await execute_plan(planned.plan, administration, watch=watch)
    if applied.gate_timeouts or applied.failure is not None:
        return applied, None
    if applied.retired and lab_name is not None:  # there are fewer servers now
        request = replace(request, endpoints=list_endpoints(lab_name), leaving=())
    # What was adopted is vstream's own by now.
    return applied, await make_plan(replace(request, adopt=frozenset()))


async def prove_dead(topology: Topology, regions: Sequence[str], servers: Servers) -> DeathProof:
    """What everybody outside of *regions* knows of them. Raises RefusedError if there is nobody."""
    witnesses = [candidate.name for candidate in topology.regions if candidate.name not in regions]
    if not witnesses:
        raise RefusedError(f"there is no region besides `{'`, `'.join(regions)}`", hint="nothing could take its place")
    system = find_system_endpoints(servers, witnesses)
    endpoints = {**servers.endpoints, **servers.given_up}
    return await collect_death_proof(topology, regions, endpoints, witnesses, system)


async def start_missing_servers(
    name: str, topology: Topology, templates: Path | None, on_progress: Callable[[ReadinessProgress], None]
) -> None:
    """Start what lab *name* lacks of *topology*, as a region that comes back: others may let it in only minutes later."""
    render = partial(render_lab, name, topology, templates)
    await lab.up(name, topology, render, on_progress=on_progress, timeout=PEER_TIMEOUT)


async def refresh_silent_readers(topology: Topology, servers: Servers) -> tuple[str, ...]:
    """Make read streams that stand still source again at once. Returns those that will do so later."""
    target = make_target(topology, servers)
    result = await refresh_readers(topology, target, timeout=_REGION_TIMEOUT, mode=RefreshMode.SILENT)
    return tuple(stream.stream for stream in result.silent)


@dataclass(frozen=True, slots=True)
class _LiveReaderAdmin:
    """ReaderAdmin: what `vstream repair sources` does, for some streams."""

    topology: Topology
    servers: Servers

    async def refresh(self, readers: Sequence[str]) -> tuple[str, ...]:
        """See ReaderAdmin."""
        target = make_target(self.topology, self.servers)
        result = await refresh_readers(
            self.topology, target, timeout=_REFRESH_TIMEOUT, mode=RefreshMode.ALL, only=readers
        )
        silent = [stream for stream in result.streams if stream.active is None or not stream.is_stepped_down]
        return tuple(f"`{stream.stream}`: {stream.note}" for stream in silent)
