"""`vstream validate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import files, options
from vstream.cli.exit_codes import NO
from vstream.cli.lint import LintFormat, find_config, print_report, surroundings
from vstream.cli.views import console
from vstream.cli.views import scenario as view
from vstream.diagnostics import Severity
from vstream.lint import detect
from vstream.lint.engine import LintReport, lint
from vstream.lint.load_scenario import load as load_scenario
from vstream.lint.read import Source
from vstream.lint.rules.wording import count
from vstream.syntax.yaml import MAX_BYTES

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle

Format = Annotated[LintFormat, typer.Option("--format", help="How findings are written.")]


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    templates: options.TemplatesDirectory = None,
    output: Format = LintFormat.FULL,
) -> None:
    """
    Check a topology file, and everything that it renders to; or a scenario file. Exits with 1 if there are errors.

    It is `vstream lint` of one file: the same rules and settings.

    Examples: `vstream validate`, `vstream validate acme.yaml --format json`
    """
    content = options.read_bytes(topology, limit=MAX_BYTES + 1)
    name = files.STDIN if str(topology) == "-" else str(topology)
    bundles: list[Bundle] = []
    report = check_file(content, name, templates=templates, bundles=bundles)
    print_report(report, output)
    print_error_count(report)
    if report.has_any(Severity.ERROR):
        raise typer.Exit(NO)
    if bundles:
        bundle = bundles[0]
        console.print_note(
            f"{topology} is valid: {count(len(bundle.servers), 'server')}, "
            f"{count(len(bundle.streams), 'physical stream')}, {count(len(bundle.mappings), 'mapping rule')}"
        )
    else:
        loaded = load_scenario(content, name, files.read_included)
        console.print_note(f"{name} is valid: {view.outline(loaded.require())}")


def check_file(
    content: bytes, name: str, *, templates: Path | None = None, bundles: list[Bundle] | None = None
) -> LintReport:
    """What lint says of one topology or scenario. What it renders to is added to *bundles*."""
    kind = detect.detect(content.decode("utf-8", errors="replace"), f"{name}.yaml")
    source = Source(
        name=name, content=content, kind=detect.Kind.SCENARIO if kind is detect.Kind.SCENARIO else detect.Kind.TOPOLOGY
    )
    around = surroundings(None, None, templates=templates, rendered=bundles)
    return lint([source], around, selection=find_config(Path.cwd()).selection)


def print_error_count(report: LintReport) -> None:
    """Say how many errors there are, if there are any."""
    errors = sum(finding.is_error for finding in report.diagnostics)
    if errors:
        console.print_note(f"{errors} error{'' if errors == 1 else 's'} found")
