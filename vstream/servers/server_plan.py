"""A plan of what to change on the servers that a topology means."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from vstream.plan.model import Plan
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.servers.bundles import provide_bundle
from vstream.servers.find_servers import Servers
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class ServerPlan:
    """A plan, what it was made from, and the servers that are meant."""

    servers: Servers
    request: PlanRequest
    plan: Plan


async def make_server_plan(
    topology: Topology,
    servers: Servers,
    templates: Path | None,
    *,
    adopt: frozenset[str] = frozenset(),
    lost: tuple[str, ...] = (),
    with_files: bool = True,
    on_progress: Callable[[str], None] = lambda _text: None,
) -> ServerPlan:
    """
    Read *servers* and compare them with *topology*; unless *with_files*, without the files of servers.

    Raises as `make_plan`.
    """
    request = PlanRequest(
        topology=topology,
        bundle=provide_bundle(topology, servers, templates, with_files=with_files),
        endpoints={**servers.endpoints, **servers.lost},
        leaving_servers=servers.leaving_servers,
        adopt=adopt,
        lost=tuple(sorted({*lost, *(region.name for region in topology.lost)})),
    )
    return ServerPlan(servers=servers, request=request, plan=await make_plan(request, on_progress=on_progress))
