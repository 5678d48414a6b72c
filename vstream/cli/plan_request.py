"""A plan of the servers that a command works on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vstream.cli.servers import Servers, build_bundle, find_servers
from vstream.cli.views.progress import progress_bar
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.plan.plan import Plan
from vstream.topology.model import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, what it was made from, and the servers that are meant."""

    where: Servers
    request: PlanRequest
    plan: Plan


def build_request(
    topology: Topology,
    where: Servers,
    templates: Path | None,
    *,
    adopt: frozenset[str] = frozenset(),
    lost: tuple[str, ...] = (),
) -> PlanRequest:
    """What a plan of *topology* on the servers *where* is made from."""
    return PlanRequest(
        topology=topology,
        bundle=build_bundle(topology, where, templates),
        endpoints=where.endpoints,
        leaving=where.leaving,
        adopt=adopt,
        lost=tuple(sorted({*lost, *(region.name for region in topology.lost)})),
    )


async def plan_servers(
    topology: Topology,
    lab_name: str | None,
    templates: Path | None,
    *,
    adopt: frozenset[str] = frozenset(),
    lost: tuple[str, ...] = (),
) -> Planned:
    """Find the servers that are meant, read them and compare. Raises VstreamError if that is not possible."""
    where = find_servers(topology, lab_name)
    request = build_request(topology, where, templates, adopt=adopt, lost=lost)
    with progress_bar() as progress:
        task = progress.add_task("connecting", total=None)
        plan = await make_plan(request, on_progress=lambda text: progress.update(task, description=text))
    return Planned(where=where, request=request, plan=plan)
