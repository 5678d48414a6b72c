"""`vstream lint`."""

from __future__ import annotations

import gc
import os
import tomllib
from collections import Counter
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstream.cli import files as input_files
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.views import console, diagnostics, findings
from vstream.cli.views.cleaning import clean
from vstream.cli.views.json_output import print_json
from vstream.diagnostics import Severity
from vstream.errors import VstreamError
from vstream.lint.engine import Surroundings, lint
from vstream.lint.fixes import apply_fixes, diff
from vstream.lint.selection import LintConfig, check_selectors, known_codes, read_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from vstream.lint.engine import LintReport
    from vstream.lint.load_scenario import LoadedScenario
    from vstream.lint.load_topology import LoadedTopology
    from vstream.lint.read import Source
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import ServerVersion, Topology

_MOST_ROUNDS = 10
_COUNTED = ("error", "warning", "note")
_CONFIG_FILES = (".vstream.toml", "pyproject.toml")
_LONGEST_VERSION = 12


class LintFormat(StrEnum):
    """How findings are written."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"


class FailOn(StrEnum):
    """The least weight that counts as a failure."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


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
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="Report only these: groups (files, topology, streams, mapping, routing, servers, scenarios, policy), "
            "codes, or the beginning of codes. `default` is everything but `policy`."
        ),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Do not report these groups or codes.")] = None,
    extend_select: Annotated[
        list[str] | None, typer.Option(help="Report these groups or codes besides, such as `policy`.")
    ] = None,
    fail_on: Annotated[FailOn | None, typer.Option(help="Exit with 1 from this weight on. [default: warning]")] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="Check with the value that this variable has here.", metavar="NAME")
    ] = None,
    env_file: Annotated[
        list[Path] | None, typer.Option(help="Check with the variables of this file: lines of NAME=VALUE.")
    ] = None,
    allow_outside: Annotated[
        bool,
        typer.Option(
            "--allow-outside", help="Read included files that are outside of the repository or directory too."
        ),
    ] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Write what is safe to correct, and show the changes.")] = False,
) -> None:
    """
    Check NATS configurations, mappings, account claims, streams, topologies and scenarios for what servers accept but should not.

    Exits with 0 if there is nothing to report, 1 for errors and warnings, 3 if something could not be read.
    `vstream explain CODE` says more about a finding, `# vstream: ignore[CODE] reason` on its line silences it.
    Settings are in `.vstream.toml` (`[lint]`) or `pyproject.toml` (`[tool.vstream.lint]`).

    Examples: `vstream lint mappings.cfg`, `vstream lint . --topology acme.yaml`, `vstream lint --format sarif streams/`
    """
    # Trees of a hundred thousand nodes, without a cycle among them: looking for cycles takes as long as the work.
    gc.disable()
    config = find_config(Path.cwd())
    codes = known_codes()
    selection = replace(
        config.selection,
        select=check_selectors(select or (), codes) or config.selection.select,
        ignore=(*config.selection.ignore, *check_selectors(ignore or (), codes)),
        extend_select=(*config.selection.extend_select, *check_selectors(extend_select or (), codes)),
    )
    version = _parse_version(server_version)
    declared = _load_topology(topology)
    names = files or (["."] if topology is None else [str(topology)])
    roots = None if allow_outside else input_files.Roots([*names, *([str(topology)] if topology else [])])
    variables = read_environment([*config.env, *(env or ())], [*map(Path, config.env_files), *(env_file or ())])
    around = surroundings(roots, variables)
    chosen = output or _default_format()

    def check(chosen_sources: Iterable[Source]) -> LintReport:
        return lint(chosen_sources, around, topology=declared, server_version=version, selection=selection)

    inputs = list(input_files.read_sources(names, roots=roots, exclude=config.exclude))
    report = check(inputs)
    # Nor at the end of the process, which would look through all of it once more.
    gc.freeze()
    changes: list[str] = []
    if fix:
        report, changes = _fix(inputs, report, check)
    print_report(report, chosen, changes)
    if not inputs:
        raise VstreamError(
            f"there is nothing to check in {', '.join(names)}",
            hint="vstream lint looks for *.conf, *.cfg, *.json, *.jwt, *.yaml and *.yml",
        )
    _print_summary(report, is_fixing=fix)
    if not report.is_complete:
        raise typer.Exit(FAILED)
    if report.has_any(Severity(fail_on.value) if fail_on else config.fail_on or Severity.WARNING):
        raise typer.Exit(NO)


def surroundings(
    roots: input_files.Roots | None,
    env: Mapping[str, str] | None,
    *,
    templates: Path | None = None,
    rendered: list[Bundle] | None = None,
) -> Surroundings:
    """
    The files around the given ones, and how topologies are read: with templates, which most runs do not need.

    Bundles are added to *rendered*.
    """
    read = input_files.read_included if roots is None else roots.read

    def load(content: bytes, name: str) -> LoadedTopology:
        loaded: LoadedTopology = import_module("vstream.lint.load_topology").load(content, name)
        return loaded

    def load_scenario(content: bytes, name: str) -> LoadedScenario:
        module = import_module("vstream.lint.load_scenario")
        loaded: LoadedScenario = module.load(content, name, read, os.path.isdir)
        return loaded

    def render(topology: Topology) -> Bundle:
        bundle: Bundle = import_module("vstream.lint.load_topology").render_bundle(topology, templates=templates)
        if rendered is not None:
            rendered.append(bundle)
        return bundle

    return Surroundings(read=read, env=env, load=load, load_scenario=load_scenario, render=render)


def find_config(directory: Path) -> LintConfig:
    """The settings of the nearest directory that has some, up to the top of the repository. Raises VstreamError."""
    for place in (directory, *directory.parents):
        for name in _CONFIG_FILES:
            table = _read_table(place / name)
            if table is not None:
                return read_config(table, name, known_codes())
        if (place / ".git").exists():
            break
    return LintConfig()


def _read_table(file: Path) -> Mapping[str, Any] | None:
    """The settings of lint in *file*, None if there are none."""
    if not file.is_file():
        return None
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise VstreamError(f"{file.name} cannot be read: {error}", hint="it must be TOML") from None
    tool = document if file.name == _CONFIG_FILES[0] else document.get("tool", {}).get("vstream", {})
    table = tool.get("lint") if isinstance(tool, dict) else None
    return table if isinstance(table, dict) else None


def read_environment(names: Sequence[str], env_files: Sequence[Path]) -> Mapping[str, str] | None:
    """The variables that were asked for; None if nobody asked for any. Raises VstreamError."""
    if not names and not env_files:
        return None
    variables: dict[str, str] = {}
    for file in env_files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise VstreamError(f"{file} cannot be read: {error}") from None
        for line in lines:
            name, separator, value = line.strip().removeprefix("export ").partition("=")
            if separator and not name.startswith("#"):
                variables[name.strip()] = value.strip().strip("\"'")
    for name in names:
        if name not in os.environ:
            raise VstreamError(f"the environment has no `{name}`", hint="set it, or leave `--env` out")
        variables[name] = os.environ[name]
    return variables


def _parse_version(text: str | None) -> ServerVersion | None:
    if text is None:
        return None
    major, _, rest = text.removeprefix("v").partition(".")
    minor = rest.partition(".")[0]
    is_number = all(part.isascii() and part.isdecimal() for part in (major, minor))
    if not is_number or len(text) > _LONGEST_VERSION:
        raise typer.BadParameter(f"`{text}` is not a server version such as 2.12", param_hint="--server-version")
    return int(major), int(minor)


def _load_topology(path: Path | None) -> Topology | None:
    if path is None:
        return None
    topology: Topology = import_module("vstream.cli.options").load_topology(path).require()
    return topology


def _default_format() -> LintFormat:
    return LintFormat.GITHUB if os.environ.get("GITHUB_ACTIONS") == "true" else LintFormat.FULL


def print_report(report: LintReport, output: LintFormat, changes: Sequence[str] = ()) -> None:
    """Print what was found as *output* has it; *changes* are the lines of a diff."""
    is_for_people = output in {LintFormat.FULL, LintFormat.CONCISE}
    for change in changes:
        typer.echo(clean(change), err=not is_for_people)
    match output:
        case LintFormat.JSON:
            print_json("findings", {"findings": diagnostics.as_json(report.diagnostics)})
        case LintFormat.SARIF:
            typer.echo(findings.sarif(report.diagnostics, import_module("vstream.lint.manual").PAGES))
        case LintFormat.JUNIT:
            typer.echo(findings.junit(report.diagnostics, report.files))
        case LintFormat.GITHUB:
            for annotation in findings.github(report.diagnostics):
                typer.echo(annotation)
        case LintFormat.FULL:
            _print_lines(diagnostics.full(report.diagnostics, report.texts))
        case LintFormat.CONCISE:
            _print_lines(diagnostics.concise(report.diagnostics))


def _print_lines(lines: Iterable[Any]) -> None:
    screen = console.stdout()
    for line in lines:
        # Colours cost more than all rules together, where there are many findings and nobody to see them.
        if screen.is_terminal:
            screen.print(line)
        else:
            typer.echo(line.plain)


def _print_summary(report: LintReport, *, is_fixing: bool) -> None:
    counts = Counter(finding.severity.value for finding in report.diagnostics)
    numbers = [f"{counts[name]:,} {name}{'' if counts[name] == 1 else 's'}" for name in _COUNTED if counts[name]]
    files = f"{len(report.files):,} file{'' if len(report.files) == 1 else 's'}"
    console.print_note(f"{', '.join(numbers) or 'nothing found'} in {files}")
    fixable = sum(bool(finding.fix) for finding in report.diagnostics)
    if fixable and is_fixing:
        console.print_note(
            f"{fixable:,} of them not corrected: `--fix` writes neither to standard input nor to included files"
        )
    elif fixable:
        console.print_note(f"{fixable:,} of them can be corrected with `--fix`")


def _fix(
    sources: list[Source], report: LintReport, check: Callable[[list[Source]], LintReport]
) -> tuple[LintReport, list[str]]:
    """Correct what can be, until nothing more can; returns what is left, and the changes."""
    before = report.texts
    writable = {
        source.name
        for source in sources
        if source.name != input_files.STDIN and not before.get(source.name, "\ufeff").startswith("\ufeff")
    }
    after: dict[str, str] = {}
    for _ in range(_MOST_ROUNDS):
        changed = apply_fixes(report.diagnostics, report.texts, writable)
        if not changed:
            break
        after |= changed
        sources = [
            replace(source, content=after[source.name].encode(), problem=None) if source.name in after else source
            for source in sources
        ]
        report = check(sources)
    for name, text in sorted(after.items()):
        _save(name, text)
    return report, list(diff(before, after))


def _save(name: str, text: str) -> None:
    try:
        Path(name).write_bytes(text.encode())
    except OSError as error:
        raise VstreamError(f"{name} cannot be written: {error.strerror}", hint="check its permissions") from None
