"""`vstream plan`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.lazy_group import load_late
from vstream.cli.shared_steps import plan_with_progress
from vstream.cli.views import console
from vstream.cli.views import plan as view
from vstream.cli.views.json_output import print_json
from vstream.files import save_output
from vstream.plan import saved
from vstream.servers.server_plan import ServerPlan

CHANGES_PRESENT = 2
"""With --detailed-exitcode, as Terraform has it."""


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    output_path: Annotated[
        Path | None, typer.Option("--output", "-o", help="Save the plan for `vstream apply PLAN.json`.")
    ] = None,
    output_format: Annotated[
        Literal["text", "json", "markdown"], typer.Option("--format", help="How the plan is written.")
    ] = "text",
    detailed_exitcode: Annotated[
        bool, typer.Option("--detailed-exitcode", help="Exit with 2 if there are changes.")
    ] = False,
    adopt: options.Adopt = None,
    lost: options.Lost = None,
    verbose: options.Verbose = False,
    is_drift: Annotated[
        bool, typer.Option("--drift", help="Only say whether servers still match the topology. Looks at more of them.")
    ] = False,
    files: options.ConfigsDirectory = None,
    timeout: Annotated[
        float, typer.Option("--timeout", help="With --drift: seconds for each server.", min=0.5, max=300)
    ] = 10,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Show what `apply` would change on the servers, field by field, with the risk of each change. Changes nothing.

    Exits with 0, also if there are changes, with 1 if something is refused, and with 3 if no server answered for a stream
    or some rules could not be read. With `--detailed-exitcode`, exits with 2 if there are changes.

    `--drift` is for cron: it also compares where streams live, the members of the meta group, versions, feature flags,
    and configuration files with what servers have loaded. It exits with 0 if nothing differs, with 1 if something does,
    and with 3 if no difference was found but not everything could be compared.

    Examples: `vstream plan`, `vstream plan acme.yaml --output plan.json`, `vstream plan --format markdown`,
    `vstream plan --drift --configs /srv/nats`
    """
    checked = options.check_topology_file(file)
    if is_drift:
        chosen = {
            "--output": output_path,
            "--format markdown": output_format == "markdown",
            "--adopt": adopt,
            "--lost": lost,
        }
        options.refuse_options("has no effect with --drift", {**chosen, "--detailed-exitcode": detailed_exitcode})
        check_drift = load_late("vstream.cli.plan_drift").check_drift
        check_drift(checked.require(), lab, templates, timeout=timeout, files=files, is_json=output_format == "json")
        return
    options.refuse_options("needs --drift", {"--configs": files})
    adopted, regions = frozenset(adopt or ()), tuple(sorted(lost or ()))
    planned = run(plan_with_progress(checked.require(), lab, templates, adopt=adopted, lost=regions, with_files=False))
    if output_path is not None:
        _save_plan(output_path, file, checked.text, planned)
    _print_plan(planned, output_format, is_verbose=verbose)
    exit_unless_yes(is_no=bool(planned.plan.refusals), is_unknown=bool(planned.plan.blocked))
    if detailed_exitcode and not planned.plan.is_empty:
        raise typer.Exit(CHANGES_PRESENT)
    exit_unless_yes(is_unknown=planned.plan.are_rules_unknown)


def _save_plan(path: Path, topology: Path, text: str, planned: ServerPlan) -> None:
    file = saved.SavedPlan(
        plan=saved.to_dict(planned.plan),
        topology_file=str(topology),
        topology_text=text,
        lab=planned.servers.lab,
        adopt=tuple(sorted(planned.request.adopt)),
        lost=planned.request.lost,
    )
    save_output(path, saved.dump(file), is_private=True)


def _print_plan(planned: ServerPlan, output_format: str, *, is_verbose: bool) -> None:
    plan, request = planned.plan, planned.request
    if output_format == "json":
        print_json("plan", {**saved.to_dict(plan), "routing": view.routing_as_dict(request.topology, request.bundle)})
    elif output_format == "markdown":
        typer.echo(view.render_markdown(plan, view.describe_routing(request.topology, request.bundle)), nl=False)
    else:
        console.print_note(planned.servers.describe_with(request.topology))
        console.print_note(view.describe_routing(request.topology, request.bundle))
        console.print_lines(view.render_plan(plan, is_verbose=is_verbose))
