"""`vstream scenario verdict`: a capture judged again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vstream.capture.store import Capture
from vstream.capture.verdict.check import check
from vstream.capture.verdict.export import as_dict, to_junit
from vstream.capture.verdict.verdict import CaseStatus, Verdict
from vstream.cli import options
from vstream.cli.exit_codes import FAILED, NO, OK
from vstream.cli.views import console
from vstream.cli.views import verdict as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.verdict_page import page
from vstream.errors import InvalidInputError, VstreamError
from vstream.files import save_output
from vstream.lint.load_scenario import load as load_scenario
from vstream.scenario.model import Expectation


def command(
    capture: Annotated[
        Path, typer.Argument(help="The directory that `vstream scenario run` wrote.", metavar="CAPTURE")
    ],
    output: options.TextJsonOrJunit = "text",
    html: options.HtmlFile = None,
) -> None:
    """
    Judge a capture again, from its files alone: no servers, and the same verdict each time.

    Exits with 0 for PASS, 1 for FAIL and 3 for UNKNOWN: something is not known, and nothing is proven to be wrong.

    Examples: `vstream scenario verdict walkthrough-1/`, `vstream scenario verdict run/ --format junit > verdict.xml`,
    `vstream scenario verdict run/ --html verdict.html`
    """
    store = Capture(capture)
    verdict = check(store, expectations(store))
    show(verdict, output, html)
    if code := exit_code(verdict):
        raise typer.Exit(code)


def expectations(capture: Capture) -> Sequence[Expectation]:
    """
    What the scenario in *capture* expects.

    None if there is no scenario in it. Raises VstreamError if it is there and cannot be
    understood: a verdict without it would be one on something else.
    """
    file = capture.path / "scenario.yaml"
    capture.manifest()
    try:
        content = capture.read_document(file.name)
    except OSError:
        console.print_note(f"{file} cannot be read: only what must always hold is checked", style="yellow")
        return ()
    # The scenario names its topology by where it lay when it ran; the capture has its own copy.
    loaded = load_scenario(content, str(file), lambda _: capture.read_document("topology.yaml"))
    try:
        return loaded.require().expectations
    except InvalidInputError as error:
        first = error.diagnostics[0]
        place = f"{first.span.file}:{first.span.line}: " if first.span is not None else ""
        raise VstreamError(
            f"the capture's scenario cannot be understood: {place}{first.message}",
            hint=f"it was changed since, or written by another vstream; `vstream scenario validate {file}` shows all",
        ) from error


def show(verdict: Verdict, output: str, html: Path | None = None) -> None:
    """Print *verdict* in the format *output*, and write it to the file *html*. Raises VstreamError if that cannot be written."""
    if output == "json":
        print_json("scenario-verdict", as_dict(verdict))
    elif output == "junit":
        typer.echo(to_junit(verdict))
    else:
        console.print_lines(view.report(verdict, console.stdout().width))
    if html is not None:
        save_output(html, page(verdict))
        console.print_note(f"the page was written to {html}")


def exit_code(verdict: Verdict) -> int:
    """What a command that ends with *verdict* exits with."""
    return {CaseStatus.PASS: OK, CaseStatus.FAIL: NO, CaseStatus.UNKNOWN: FAILED}[verdict.status]
