"""`vstream scenario`: rehearsals as files."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vstream.capture.store import Capture
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import CaseStatus, Verdict, as_dict, to_junit
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.finding_output import Format, default_format, print_cleaned_lines
from vstream.cli.scenario import explore, find
from vstream.cli.views import console
from vstream.cli.views import scenario as view
from vstream.cli.views import verdict as verdict_view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.lint import report_lines, summary_lines
from vstream.cli.views.verdict_page import render_page
from vstream.errors import InvalidInputError, VstreamError
from vstream.files import save_output
from vstream.findings import Severity
from vstream.lint.check_scenario import check_scenario
from vstream.lint.engine import LintReport
from vstream.runner.runner import capture_scenario
from vstream.scenario.model import Expectation, Scenario

app = typer.Typer(help="Rehearsals as files: servers, a workload, faults, and what is expected.", no_args_is_help=True)


@app.command("run")
def run_scenario(
    scenario: find.ScenarioFile,
    output_path: Annotated[
        Path | None, typer.Option("--output", "-o", help="Where the capture goes; by default below `captures/`.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="The seed, instead of the scenario's own.")] = None,
    server_version: options.ServerVersion = None,
    keep_lab: Annotated[bool, typer.Option("--keep-lab", help="Leave the lab running.")] = False,
    output_format: options.TextJsonOrJunit = "text",
    html: options.HtmlFile = None,
) -> None:
    """
    Rehearse: start a lab, run the workload, inject the faults, and capture everything that happens.

    The lab is a new one, and is taken down in the end, at Ctrl-C too. Exits with 1
    if an expectation failed, with 3 if that is not known: a run that did not reach
    its end, or a fault that this machine cannot do, proves nothing.

    Examples: `vstream scenario run walkthrough`, `vstream scenario run split.yaml --server-version 2.12.8 --seed 7`
    """
    chosen = find.read_scenario(scenario).require()
    regions = [region.name for region in chosen.topology.regions]
    if seed is not None:
        chosen = replace(chosen, seed=seed)
    if server_version is not None:
        chosen = replace(chosen, lab=replace(chosen.lab, versions={"*": server_version}))
    lab = f"{re.sub('[^A-Za-z0-9-]', '-', chosen.name)[:40]}-{secrets.token_hex(2)}"
    directory = output_path or Path("captures") / lab
    console.print_note(f"{chosen.name}, seed {chosen.seed}: {view.describe_scenario(chosen)}")
    console.print_note(f"lab {lab}; the capture is {directory}")
    state = f"still runs (`vstream lab down {lab}`)" if keep_lab else "was taken down"
    interrupted = f"interrupted: lab {lab} {state}; the capture {directory} is incomplete, its verdict UNKNOWN"
    capture = run(_capture(chosen, regions, directory, lab, keep_lab=keep_lab), interrupted=interrupted)
    if not capture.manifest().is_complete:
        console.print_problem(f"The run did not reach its end: {capture.manifest().stopped_by}")
    verdict = judge_capture(capture, chosen.expectations)
    _show(verdict, output_format, html)
    _exit_unless_pass(verdict)


async def _capture(chosen: Scenario, regions: Sequence[str], directory: Path, lab: str, *, keep_lab: bool) -> Capture:
    """Run the scenario, and show what happens."""
    with view.show_run(regions) as on_event:
        return await capture_scenario(chosen, capture_dir=directory, lab_name=lab, keep_lab=keep_lab, on_event=on_event)


app.command("explore")(explore.command)


@app.command("validate")
def validate(
    scenarios: Annotated[
        list[str], typer.Argument(help="Scenario files, or names of shipped ones.", metavar="FILE|NAME...")
    ],
    output_format: Format = None,
) -> None:
    """
    Check scenario files, and the topologies that they name. Exits with 1 if there are errors.

    Examples: `vstream scenario validate split.yaml`, `vstream scenario validate scenarios/*.yaml --format concise`
    """
    loaded = [find.read_scenario(name) for name in scenarios]
    findings = list(dict.fromkeys(finding for scenario in loaded for finding in scenario.findings))
    texts = {file: text for scenario in loaded for file, text in scenario.texts.items()}
    report = LintReport(findings=tuple(findings), texts=texts, files=tuple(texts))
    print_cleaned_lines(report_lines(report, output_format or default_format()))
    if findings:
        for line in summary_lines(report, is_fixing=False):
            console.print_note(line)
    for name, result in zip(scenarios, loaded, strict=True):
        if result.scenario is not None and not any(finding.is_error for finding in result.findings):
            console.print_note(f"{name} is valid: {view.describe_scenario(result.scenario)}")
    exit_unless_yes(is_no=report.has_any(Severity.ERROR))


@app.command("list")
def list_shipped(output_format: options.TextOrJson = "text") -> None:
    """
    List the scenarios that ship with vstream.

    Example: `vstream scenario list`
    """
    scenarios: dict[str, Scenario] = {name: find.read_scenario(name).require() for name in find.list_shipped()}
    if output_format == "json":
        listed = [view.scenario_as_dict(name, scenario) for name, scenario in scenarios.items()]
        print_json("scenario-list", {"scenarios": listed})
    else:
        console.stdout().print(view.render_table(scenarios))
        console.print_note("`vstream scenario show NAME` prints one")


@app.command("show")
def show_file(scenario: Annotated[str, typer.Argument(help="The name of a shipped scenario.", metavar="NAME")]) -> None:
    """
    Print a shipped scenario, to read or to begin with.

    Example: `vstream scenario show walkthrough > mine.yaml`
    """
    typer.echo(
        options.read_bytes(find.require_scenario(scenario), limit=-1).decode("utf-8", errors="replace"), nl=False
    )


@app.command("verdict")
def judge(
    capture: Annotated[
        Path, typer.Argument(help="The directory that `vstream scenario run` wrote.", metavar="CAPTURE")
    ],
    output_format: options.TextJsonOrJunit = "text",
    html: options.HtmlFile = None,
) -> None:
    """
    Judge a capture again, from its files alone: no servers, and the same verdict each time.

    Exits with 0 for PASS, 1 for FAIL and 3 for UNKNOWN: something is not known, and nothing is proven to be wrong.

    Examples: `vstream scenario verdict walkthrough-1/`, `vstream scenario verdict run/ --format junit > verdict.xml`,
    `vstream scenario verdict run/ --html verdict.html`
    """
    store = Capture(capture)
    verdict = judge_capture(store, _list_expectations(store))
    _show(verdict, output_format, html)
    _exit_unless_pass(verdict)


def _list_expectations(capture: Capture) -> Sequence[Expectation]:
    """
    What the scenario in *capture* expects; nothing if there is no scenario in it.

    Raises VstreamError if it cannot be understood: a verdict without it would be one on something else.
    """
    file = capture.path / "scenario.yaml"
    capture.manifest()
    try:
        content = capture.read_document(file.name)
    except OSError:
        console.print_warning(f"{file} cannot be read: only what must always hold is checked")
        return ()
    # The scenario names its topology by where it lay when it ran; the capture has its own copy.
    loaded = check_scenario(content, str(file), lambda _: capture.read_document("topology.yaml"))
    try:
        return loaded.require().expectations
    except InvalidInputError as error:
        first = error.findings[0]
        place = f"{first.span.file}:{first.span.line}: " if first.span is not None else ""
        raise VstreamError(
            f"the capture's scenario cannot be understood: {place}{first.message}",
            hint=f"it was changed since, or written by another vstream; `vstream scenario validate {file}` shows all",
        ) from error


def _show(verdict: Verdict, output_format: str, html: Path | None = None) -> None:
    """Print *verdict* in the format *output_format*, and write it to the file *html*. Raises VstreamError if that cannot be written."""
    if output_format == "json":
        print_json("scenario-verdict", as_dict(verdict))
    elif output_format == "junit":
        typer.echo(to_junit(verdict))
    else:
        console.print_lines(verdict_view.render_report(verdict, console.stdout().width))
    if html is not None:
        save_output(html, render_page(verdict))
        console.print_note(f"the page was written to {html}")


def _exit_unless_pass(verdict: Verdict) -> None:
    exit_unless_yes(is_no=verdict.status is CaseStatus.FAIL, is_unknown=verdict.status is CaseStatus.UNKNOWN)
