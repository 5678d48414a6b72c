"""`vstream plan`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.servers import Servers, build_bundle, find_servers
from vstream.cli.views import console
from vstream.cli.views import plan as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import progress_bar
from vstream.files import save_output
from vstream.plan import saved
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.plan.plan import Plan
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
        help="Give up this region, which is lost for good, with everything stored only there. "
        "The topology's streams must not be there any more.",
    ),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show every mapping rule and account entry.")]
CHANGES_PRESENT = 2
"""With --detailed-exitcode, as Terraform has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A plan, what it was made from, and the servers that are meant."""

    where: Servers
    request: PlanRequest
    plan: Plan


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    out: Annotated[Path | None, typer.Option("--out", help="Save the plan for `vstream apply PLAN.json`.")] = None,
    output: Annotated[
        Literal["text", "json", "markdown"], typer.Option("--format", help="How the plan is written.")
    ] = "text",
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 if there are changes, with 3 if that is not known.")
    ] = False,
    adopt: Adopt = None,
    lost: Lost = None,
    verbose: Verbose = False,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Show what `apply` would change on the servers, field by field, with the risk of each change. Changes nothing.

    Exits with 0, also if there are changes, and with 1 if something is blocked. With `--detailed-exitcode`, exits with
    0 for no changes, 2 for changes, and 3 if nothing differs but the rules of some servers could not be read.

    Examples: `vstream plan`, `vstream plan acme.yaml --out plan.json`, `vstream plan --format markdown`
    """
    loaded = options.load_topology(topology)
    adopted, regions = frozenset(adopt or ()), tuple(sorted(lost or ()))
    planned = run(plan_servers(loaded.require(), lab, templates, adopt=adopted, lost=regions))
    plan, request = planned.plan, planned.request
    if out is not None:
        file = saved.SavedPlan(
            plan=plan,
            topology_file=str(topology),
            topology_text=loaded.text,
            lab=planned.where.lab,
            adopt=tuple(sorted(adopted)),
            lost=regions,
        )
        save_output(out, saved.dump(file), is_private=True)
    if output == "json":
        print_json("plan", {**saved.to_dict(plan), "routing": view.routing_as_dict(request.topology, request.bundle)})
    elif output == "markdown":
        typer.echo(view.render_markdown(plan, view.routing(request.topology, request.bundle)), nl=False)
    else:
        console.print_note(f"{request.topology.name} on {planned.where.description}")
        console.print_note(view.routing(request.topology, request.bundle))
        for line in view.text(plan, is_verbose=verbose):
            console.stdout().print(line)
    if plan.blocked:
        raise typer.Exit(NO)
    if detailed_exitcode and not plan.is_empty:
        raise typer.Exit(CHANGES_PRESENT)
    if detailed_exitcode and plan.unknown_servers:
        raise typer.Exit(FAILED)


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
        lost=lost,
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
