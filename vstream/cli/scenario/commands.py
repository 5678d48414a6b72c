"""`vstream scenario`: rehearsals as files."""

from __future__ import annotations

import re
import secrets
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run as run_to_end
from vstream.cli.exit_codes import NO
from vstream.cli.scenario import explore
from vstream.cli.scenario import find as scripts
from vstream.cli.scenario import verdict as verdicts
from vstream.cli.validate import Format, show
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from vstream.scenario.model import Scenario

app = typer.Typer(
    help="Rehearsals as files: servers, what clients do, what is broken when, and what is expected of it.",
    no_args_is_help=True,
)


@app.command("run")
def run_scenario(
    scenario: scripts.ScenarioFile,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where the capture goes; by default below `captures/`.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="Instead of the scenario's own.")] = None,
    server_version: Annotated[
        str | None, typer.Option("--server-version", help="The nats-server of all servers, such as 2.12.8.")
    ] = None,
    keep_lab: Annotated[bool, typer.Option("--keep-lab", help="Leave the lab running.")] = False,
    output: verdicts.FormatOption = "text",
    html: verdicts.HtmlOption = None,
) -> None:
    """
    Rehearse: start a lab, let clients work, break what the scenario breaks, and capture everything that came of it.

    The lab is one of its own, and is taken down in the end, at Ctrl-C too. Exits with 1
    if something did not hold, with 3 if that is not known: a run that did not come to
    its end, or a fault that this machine cannot do, proves nothing.

    Examples: `vstream scenario run walkthrough`, `vstream scenario run split.yaml --server-version 2.12.8 --seed 7`
    """
    from vstream.capture.verdict.check import check  # noqa: PLC0415
    from vstream.cli.views import (  # noqa: PLC0415
        console,
        rehearsal,
    )
    from vstream.runner.runner import run  # noqa: PLC0415

    verdicts.check_format(output)
    loaded = scripts.load(scenario)
    wanted, regions = loaded.require(), [region.name for region in loaded.require_topology().regions]
    if seed is not None:
        wanted = replace(wanted, seed=seed)
    if server_version is not None:
        wanted = replace(wanted, lab=replace(wanted.lab, versions={"*": server_version}))
    run_id = secrets.token_hex(2)
    lab = f"{re.sub('[^A-Za-z0-9-]', '-', wanted.name)[:40]}-{run_id}"
    directory = out or Path("captures") / lab
    console.print_note(f"{wanted.name}, seed {wanted.seed}, in lab {lab}: the capture is {directory}")
    with rehearsal.watched(regions) as on_event:
        capture = run_to_end(run(wanted, capture_dir=directory, lab_name=lab, keep_lab=keep_lab, on_event=on_event))
    if not capture.manifest().is_complete:
        console.print_note(f"The run did not come to its end: {capture.manifest().stopped_by}", style="bold red")
    verdict = check(capture, wanted.expectations)
    verdicts.show(verdict, output, html)
    if code := verdicts.exit_code(verdict):
        raise typer.Exit(code)


app.command("explore")(explore.command)


@app.command("validate")
def validate(
    scenarios: Annotated[
        list[str], typer.Argument(help="Scenario files, or names of shipped ones.", metavar="FILE|NAME...")
    ],
    output: Format = "full",
) -> None:
    """
    Check scenario files, and the topologies that they name. Exits with 1 if there are errors.

    Examples: `vstream scenario validate split.yaml`, `vstream scenario validate scenarios/*.yaml --format concise`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import scenario as view  # noqa: PLC0415

    loaded = [scripts.load(name) for name in scenarios]
    found = list(dict.fromkeys(diagnostic for one in loaded for diagnostic in one.diagnostics))
    texts = {file: text for one in loaded for file, text in one.texts.items()}
    errors = show(found, texts, output)
    for name, one in zip(scenarios, loaded, strict=True):
        if one.scenario is not None and not any(diagnostic.is_error for diagnostic in one.diagnostics):
            console.print_note(f"{name} is valid: {view.outline(one.scenario)}")
    if errors:
        raise typer.Exit(NO)


@app.command("list")
def list_shipped(
    output: options.TextOrJson = "text",
) -> None:
    """
    List the scenarios that ship with vstream.

    Example: `vstream scenario list`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import scenario as view  # noqa: PLC0415

    scenarios: dict[str, Scenario] = {name: scripts.load(name).require() for name in scripts.shipped()}
    if output == "json":
        print_json("scenario-list", {"scenarios": view.as_list(scenarios)})
    else:
        console.stdout().print(view.table(scenarios))
        console.print_note("`vstream scenario show NAME` prints one")


@app.command("show")
def show_file(
    scenario: Annotated[str, typer.Argument(help="The name of a shipped scenario.", metavar="NAME")],
) -> None:
    """
    Print a shipped scenario, to read or to begin with.

    Example: `vstream scenario show walkthrough > mine.yaml`
    """
    from vstream.cli import options  # noqa: PLC0415

    typer.echo(options.read_bytes(scripts.find(scenario), limit=-1).decode("utf-8", errors="replace"), nl=False)


app.command("verdict")(verdicts.command)
