"""`vstream plan`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, build_bundle, find_servers
from vstream.cli.views.json_output import print_json
from vstream.errors import VstreamError
from vstream.files import save_output

if TYPE_CHECKING:
    from vstream.plan.plan import Plan
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Topology

Adopt = Annotated[
    list[str] | None,
    typer.Option("--adopt", help="Take over this stream, which vstream did not create (`all` for every one needed)."),
]
Lost = Annotated[
    list[str] | None,
    typer.Option(
        "--lost",
        metavar="REGION",
        help="Give up this region, which is dead for good, and what is only there. "
        "The topology's streams must not be there any more.",
    ),
]
CHANGES_PRESENT = 2
"""With --detailed-exitcode, as Terraform has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan and all that it was made from."""

    topology: Topology
    where: Servers
    bundle: Bundle
    plan: Plan
    lost: tuple[str, ...] = ()
    """Regions that are given up."""


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `vstream apply PLAN.json`.")] = None,
    output: Annotated[str, typer.Option("--format", help="text, json or markdown.")] = "text",
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 if there are changes.")
    ] = False,
    adopt: Adopt = None,
    lost: Lost = None,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Show what `apply` would change on the servers, field by field, with the risk of each change. Changes nothing.

    Exits with 0, also if there are changes; with 1 if something is blocked; with
    `--detailed-exitcode` with 0 for no changes and 2 for changes.

    Examples: `vstream plan`, `vstream plan acme.yaml --out plan.json`, `vstream plan --format markdown`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import plan as view  # noqa: PLC0415
    from vstream.plan import saved  # noqa: PLC0415

    if output not in set(view.PlanFormat):
        raise typer.BadParameter(f"`{output}` is none of text, json, markdown", param_hint="--format")
    loaded = options.load_topology(topology)
    planned = run(make(loaded.require(), lab, frozenset(adopt or ()), templates, tuple(sorted(lost or ()))))
    if out is not None:
        save_output(
            out,
            saved.dump(
                saved.SavedPlan(
                    plan=planned.plan,
                    topology_file=str(topology),
                    topology_text=loaded.text,
                    lab=planned.where.lab,
                    adopt=tuple(sorted(adopt or ())),
                    lost=planned.lost,
                )
            ),
        )
    if output == "json":
        shown = {**saved.to_dict(planned.plan), "routing": view.routing_as_dict(planned.topology, planned.bundle)}
        print_json("plan", shown)
    elif output == "markdown":
        typer.echo(view.markdown(planned.plan, view.routing(planned.topology, planned.bundle)), nl=False)
    else:
        console.print_note(f"{planned.topology.name} on {planned.where.description}")
        console.print_note(view.routing(planned.topology, planned.bundle))
        for line in view.text(planned.plan):
            console.stdout().print(line)
    if planned.plan.blocked:
        raise typer.Exit(NO)
    if detailed_exitcode and not planned.plan.is_empty:
        raise typer.Exit(CHANGES_PRESENT)


async def make(
    topology: Topology,
    lab_name: str | None,
    adopt: frozenset[str],
    templates: Path | None,
    lost: tuple[str, ...] = (),
) -> Planned:
    """Render, read the servers and compare. Raises VstreamError if that is not possible."""
    where = find_servers(topology, lab_name)
    bundle = build_bundle(topology, where, templates)
    known = {stream.config.name for stream in bundle.streams} | {one.config.name for one in bundle.consumers}
    for name in sorted(adopt - known - {"all"}):
        raise VstreamError(
            f"there is no stream `{name}` to adopt in topology `{topology.name}`",
            hint="name physical streams, such as " + ", ".join(sorted(known)[:2]) if known else None,
        )
    plan = await compare(topology, where, bundle, adopt, lost)
    return Planned(topology=topology, where=where, bundle=bundle, plan=plan, lost=lost)


async def compare(
    topology: Topology, where: Servers, bundle: Bundle, adopt: frozenset[str], lost: tuple[str, ...] = ()
) -> Plan:
    """Read the servers and compare them with *bundle*. Raises VstreamError if they cannot be read."""
    from vstream.plan.diff import diff  # noqa: PLC0415
    from vstream.plan.live.lost_region import measure_losses, require_dead  # noqa: PLC0415
    from vstream.plan.live.observe import any_connection, connect_all, observe  # noqa: PLC0415
    from vstream.plan.transitions.lost_region import dead_streams, give_up  # noqa: PLC0415
    from vstream.topology.profiles import profile_of  # noqa: PLC0415

    async with connect_all(topology, where.endpoints) as connections:
        observed = await observe(topology, connections, where.endpoints)
        await require_dead(topology, lost, where.endpoints, connections, observed)
        found = await measure_losses(topology, lost, observed, any_connection(connections)) if lost else ()
    plan = diff(
        topology.name,
        bundle.streams,
        bundle.mappings,
        replace(observed, leaving=where.leaving),
        accounts=bundle.accounts,
        adopt=adopt,
        server_version=topology.server_version,
        durables=bundle.consumers,
        domains=frozenset(region.name for region in topology.regions if profile_of(topology).has_domains),
    )
    if not lost:
        return plan
    urls = {url for region in lost if region in where.endpoints for url in where.endpoints[region].monitor}
    servers = urls | {seat.server.name for seat in topology.seats if seat.region in lost}
    return give_up(plan, dead_streams(topology, lost, observed.missing), found, servers)
