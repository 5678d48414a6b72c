"""`vstream lint`."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.views.cleaning import clean
from vstream.cli.views.json_output import print_json

if TYPE_CHECKING:
    from vstream.lint.engine import LintReport, Surroundings
    from vstream.lint.load_scenario import LoadedScenario
    from vstream.lint.load_topology import LoadedTopology
    from vstream.lint.read import Source
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion, Topology

_MOST_ROUNDS = 10
_COUNTED = ("error", "warning", "note")


class LintFormat(StrEnum):
    """How findings are written."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"


def command(
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files, directories or patterns; `-` reads standard input. Without any: this directory."),
    ] = None,
    topology: Annotated[
        Path | None, typer.Option("--topology", help="Check the files against this topology: its regions and streams.")
    ] = None,
    server_version: Annotated[
        str | None,
        typer.Option("--server-version", help="The oldest server that reads the files, such as 2.12.", metavar="X.Y"),
    ] = None,
    output: Annotated[
        LintFormat | None,
        typer.Option("--format", help="How findings are written: `github` under GitHub Actions, otherwise `full`."),
    ] = None,
    fix: Annotated[bool, typer.Option("--fix", help="Write what is safe to correct, and show the changes.")] = False,
) -> None:
    """
    Check NATS configurations, mappings, account claims, streams, topologies and scenarios for what servers accept but should not.

    Exits with 0 if there is nothing to report, 1 for errors and warnings, 3 if something could not be read.
    `vstream explain CODE` says more about a finding, `# vstream: ignore[CODE] reason` on its line silences it.

    Examples: `vstream lint mappings.cfg`, `vstream lint . --topology acme.yaml`, `vstream lint --format sarif streams/`
    """
    # Trees of a hundred thousand nodes, without a cycle among them: looking for cycles takes as long as the work.
    gc.disable()
    from vstream.lint.engine import lint  # noqa: PLC0415 - the whole core

    version = _version(server_version)
    declared = _topology(topology)
    names = files or (["."] if topology is None else [str(topology)])
    around = surroundings()
    given = _given(names)
    report = lint(given, around, topology=declared, server_version=version)
    # Nor at the end of the process, which would look through all of it once more.
    gc.freeze()
    changes: list[str] = []
    if fix:
        report, changes = _fix(
            given, report, lambda sources: lint(sources, around, topology=declared, server_version=version)
        )
    _write(report, output or _default_format(), changes)
    _conclude(report, is_fixing=fix)


def surroundings() -> Surroundings:
    """The files around the given ones, the environment, and how topologies are read."""
    from vstream.cli import files  # noqa: PLC0415
    from vstream.lint.engine import Surroundings  # noqa: PLC0415

    def load(content: bytes, name: str) -> LoadedTopology:
        from vstream.lint import load_topology  # noqa: PLC0415 - templates, which only topologies need

        return load_topology.load(content, name)

    def load_scenario(content: bytes, name: str) -> LoadedScenario:
        from vstream.lint import load_scenario  # noqa: PLC0415

        return load_scenario.load(content, name, files.read_included, os.path.isdir)

    def render(topology: Topology) -> Bundle:
        from vstream.lint import load_topology  # noqa: PLC0415

        return load_topology.render_bundle(topology)

    return Surroundings(read=files.read_included, env=os.environ, load=load, load_scenario=load_scenario, render=render)


def _version(text: str | None) -> ServerVersion | None:
    if text is None:
        return None
    major, _, minor = text.removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isascii() and major.isdecimal() and minor.isascii() and minor.isdecimal()) or len(text) > len(
        "9" * 12
    ):
        raise typer.BadParameter(f"`{text}` is not a server version such as 2.12", param_hint="--server-version")
    return int(major), int(minor)


def _topology(path: Path | None) -> Topology | None:
    from vstream.cli import options  # noqa: PLC0415

    return options.load_topology(path).require() if path is not None else None


def _given(names: Sequence[str]) -> list[Source]:
    from vstream.cli import files  # noqa: PLC0415
    from vstream.errors import VstreamError  # noqa: PLC0415

    given = list(files.read_sources(names))
    if not given:
        raise VstreamError(
            f"there is nothing to check in {', '.join(names)}",
            hint="vstream lint looks for *.conf, *.cfg, *.json, *.jwt, *.yaml and *.yml",
        )
    return given


def _default_format() -> LintFormat:
    return LintFormat.GITHUB if os.environ.get("GITHUB_ACTIONS") == "true" else LintFormat.FULL


def _write(report: LintReport, output: LintFormat, diff: Sequence[str]) -> None:
    from vstream.cli.views import (  # noqa: PLC0415
        console,
        diagnostics,
        findings,
    )

    found = report.diagnostics
    is_for_people = output in {LintFormat.FULL, LintFormat.CONCISE}
    for change in diff:
        typer.echo(clean(change), err=not is_for_people)
    match output:
        case LintFormat.JSON:
            print_json("findings", {"findings": diagnostics.as_json(found)})
        case LintFormat.SARIF:
            from vstream.lint.manual import PAGES  # noqa: PLC0415 - all rules

            typer.echo(findings.sarif(found, PAGES))
        case LintFormat.JUNIT:
            typer.echo(findings.junit(found, report.files))
        case LintFormat.GITHUB:
            for annotation in findings.github(found):
                typer.echo(annotation)
        case _:
            screen = console.stdout()
            lines = diagnostics.full(found, report.texts) if output is LintFormat.FULL else diagnostics.concise(found)
            for line in lines:
                # Colours cost more than all rules together, where there are many findings and nobody to see them.
                if screen.is_terminal:
                    screen.print(line)
                else:
                    typer.echo(line.plain)


def _conclude(report: LintReport, *, is_fixing: bool) -> None:
    from vstream.cli.views import console  # noqa: PLC0415

    counts = Counter(one.severity.value for one in report.diagnostics)
    found = [f"{counts[name]:,} {name}{'' if counts[name] == 1 else 's'}" for name in _COUNTED if counts[name]]
    files = f"{len(report.files):,} file{'' if len(report.files) == 1 else 's'}"
    console.print_note(f"{', '.join(found) or 'nothing found'} in {files}")
    fixable = sum(bool(one.fix) for one in report.diagnostics)
    if fixable and is_fixing:
        console.print_note(
            f"{fixable:,} of them not corrected: `--fix` writes neither to standard input nor to included files"
        )
    elif fixable:
        console.print_note(f"{fixable:,} of them can be corrected with `--fix`")
    if not report.is_complete:
        raise typer.Exit(FAILED)
    if not report.is_clean:
        raise typer.Exit(NO)


def _fix(
    given: list[Source], report: LintReport, again: Callable[[list[Source]], LintReport]
) -> tuple[LintReport, list[str]]:
    """Correct what can be, until nothing more can; returns what is left, and the changes."""
    from vstream.cli.files import STDIN  # noqa: PLC0415
    from vstream.lint.fixes import apply_fixes, diff  # noqa: PLC0415

    before = report.texts
    writable = {
        one.name for one in given if one.name != STDIN and not before.get(one.name, "\ufeff").startswith("\ufeff")
    }
    after: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        changed = apply_fixes(report.diagnostics, report.texts, writable)
        if not changed:
            break
        after |= changed
        given = [
            replace(one, content=after[one.name].encode(), problem=None) if one.name in after else one for one in given
        ]
        report = again(given)
    for name, text in sorted(after.items()):
        _save(name, text)
    return report, list(diff(before, after))


def _save(name: str, text: str) -> None:
    from vstream.errors import VstreamError  # noqa: PLC0415

    try:
        Path(name).write_bytes(text.encode())
    except OSError as error:
        raise VstreamError(f"{name} cannot be written: {error.strerror}", hint="check its permissions") from None
