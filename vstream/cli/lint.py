"""`vstream lint`."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from vstream.cli import input_files, lint_settings
from vstream.cli.exit_codes import NO, OK, UNKNOWN
from vstream.cli.finding_output import Format, default_format, print_cleaned_lines
from vstream.cli.lazy_group import chosen_overlays, load_late, refuse_named
from vstream.cli.views import console
from vstream.cli.views import lint as view
from vstream.cli.views.cleaning import clean
from vstream.cli.views.json_output import format_json
from vstream.cli.views.lint import LintFormat
from vstream.diagnostics import Severity
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.formatting import format_count
from vstream.lint.config import LintConfig
from vstream.lint.gather import Source
from vstream.lint.linter import CheckResult, Linter, diff_texts
from vstream.lint.selection import FilePatterns, known_codes, parse_selectors
from vstream.value_class import value_class

_CLEAR = "\x1b[2J\x1b[H"


@value_class
class LintOptions:
    """What was asked for on the command line."""

    files: Sequence[str]
    topology: Path | None
    server_version: str | None
    against: Path | None
    output: LintFormat | None
    select: Sequence[str]
    ignore: Sequence[str]
    extend_select: Sequence[str]
    exclude: Sequence[str]
    force_exclude: bool
    fail_on: Severity | None
    env: Sequence[str]
    env_file: Sequence[Path]
    allow_outside: bool
    baseline: Path | None
    write_baseline: bool
    output_file: Path | None
    statistics: bool
    fix: bool
    diff: bool


def command(
    context: typer.Context,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="Files, directories or patterns; `-` reads standard input. Without any: this directory."),
    ] = None,
    topology: Annotated[
        Path | None,
        typer.Option(
            "--topology",
            help="Check the files against this topology: its regions and streams.",
            envvar="VSTREAM_TOPOLOGY",
        ),
    ] = None,
    server_version: Annotated[
        str | None,
        typer.Option("--server-version", help="The oldest server that reads the files, such as 2.12.", metavar="X.Y"),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="What the servers run with now, a file or directory: finds what a reload would refuse."),
    ] = None,
    output: Format = None,
    output_file: Annotated[
        Path | None,
        typer.Option(help="Write the findings to this file instead of the standard output.", metavar="FILE"),
    ] = None,
    select: Annotated[
        list[str] | None,
        typer.Option(
            help="Report only these: groups (files, topology, streams, mapping, routing, servers, scenarios, policy), "
            "codes, or the beginning of codes. `default` is everything but `policy`. What keeps a file from being read, "
            "such as VS010, is always reported."
        ),
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Do not report these groups or codes.")] = None,
    extend_select: Annotated[
        list[str] | None, typer.Option(help="Also report these groups or codes, such as `policy`.")
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(help="Skip files in matching directories.", metavar="PATTERN")
    ] = None,
    force_exclude: Annotated[
        bool, typer.Option("--force-exclude", help="Skip excluded files even if they are named.")
    ] = False,
    fail_on: Annotated[
        Severity | None, typer.Option(help="Exit with 1 from this severity on. [default: warning]")
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Do not report the findings that this file lists.", metavar="FILE")
    ] = None,
    write_baseline: Annotated[
        bool, typer.Option("--write-baseline", help="Write the current findings to the baseline.")
    ] = False,
    env: Annotated[
        list[str] | None, typer.Option(help="Check with the value of this environment variable.", metavar="NAME")
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
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what `--fix` would change, and nothing else. Exits with 1 for changes.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Show how often each rule was broken, instead of the findings.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Check again whenever a file changes, until Ctrl-C.")] = False,
    explained: Annotated[
        str | None,
        typer.Option("--explain", help="Only print the manual page of a finding, by code or name; `list` lists all."),
    ] = None,
) -> None:
    """
    Check NATS configurations, mappings, account claims, streams, topologies and scenarios for what servers accept but should not.

    Exits with 0 if there is nothing to report, 1 for errors and warnings, 3 if something could not be read.
    `--explain CODE` says more about a finding, also of doctor and audit, `# vstream: ignore[CODE] reason` on its line silences it.
    Settings are in `.vstream.toml` (`[lint]`) or `pyproject.toml` (`[tool.vstream.lint]`).

    Examples: `vstream lint mappings.cfg`, `vstream lint . --topology acme.yaml`, `vstream lint --format sarif streams/`,
    `vstream lint --explain VS303`
    """
    if explained is not None:
        is_json = output is LintFormat.JSON
        effective = {"explained", "output"} if is_json or output is LintFormat.FULL else {"explained"}
        refuse_named(context, "has no effect with --explain", *(context.params.keys() - effective))
        load_late("vstream.cli.lint_explain").explain(explained, is_json=is_json)
        return
    options = LintOptions(
        files=tuple(files or ()),
        topology=topology,
        server_version=server_version,
        against=against,
        output=output,
        output_file=output_file,
        select=select or (),
        ignore=ignore or (),
        extend_select=extend_select or (),
        exclude=exclude or (),
        force_exclude=force_exclude,
        fail_on=fail_on,
        baseline=baseline,
        write_baseline=write_baseline,
        env=env or (),
        env_file=env_file or (),
        allow_outside=allow_outside,
        fix=fix,
        diff=diff,
        statistics=statistics,
    )
    _refuse_combinations(options, is_watching=watch)
    if watch:
        _watch(options)
    # Trees of a hundred thousand nodes, without a cycle among them: looking for cycles takes as long as the work.
    gc.disable()
    code = _LintRun(options).run()
    # Nor at the end of the process, which would look through all of it once more.
    gc.freeze()
    raise typer.Exit(code)


def _refuse_combinations(options: LintOptions, *, is_watching: bool) -> None:
    if options.diff and (options.fix or options.write_baseline or options.statistics):
        raise typer.BadParameter(
            "it cannot be combined with `--fix`, `--write-baseline` or `--statistics`", param_hint="--diff"
        )
    if options.statistics and options.output not in {None, LintFormat.FULL, LintFormat.CONCISE, LintFormat.JSON}:
        raise typer.BadParameter("`--statistics` needs the format full, concise or json", param_hint="--format")
    if chosen_overlays() and (options.fix or options.diff):
        raise typer.BadParameter("it cannot be combined with `--overlay`", param_hint="--fix")
    if is_watching and "-" in options.files:
        raise typer.BadParameter("standard input cannot be watched: name files", param_hint="--watch")


def _watch(options: LintOptions) -> None:
    """Check again and again. Ends with Ctrl-C alone: a mistake in the settings or a missing file is said, and waited for."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells start jobs in the background without it
    while True:
        if console.stdout().is_terminal:
            typer.echo(_CLEAR, nl=False)
        run = _LintRun(options)
        # Taken before the run, so that no change is missed that comes while it reads.
        before = lint_settings.read_stamps(run.names, run.other_files)
        try:
            run.run()
        except VstreamError as error:
            console.print_error(error)
        # Which other files there are, the run alone knows. One that was not there before counts as changed if it is there now.
        before = {**lint_settings.read_stamps((), run.other_files), **before}
        console.print_note("watching for changes; Ctrl-C ends it")
        lint_settings.wait_for_change(run.names, before, run.other_files)


class _LintRun:
    """One run: settings and options to findings."""

    def __init__(self, options: LintOptions) -> None:
        self._options = options
        self.names: Sequence[str] = options.files or (["."] if options.topology is None else [str(options.topology)])
        self.other_files: list[str] = [*lint_settings.CONFIG_FILES, *map(str, options.env_file)]

    def run(self) -> int:
        """Print what was found; returns the exit code. Raises VstreamError."""
        options = self._options
        settings = lint_settings.find_settings(lint_settings.common_directory(self.names))
        config = merge(settings, options)
        baseline = config.baseline and settings.path(config.baseline) if options.baseline is None else options.baseline
        if options.write_baseline and not baseline:
            raise VstreamError("`--write-baseline` needs to know the file", hint="add `--baseline FILE`")
        self.other_files += [name for name in (config.topology, baseline and str(baseline)) if name]
        linter, roots = self._linter(config, settings, Path(baseline) if baseline else None)
        inputs = list(
            input_files.read_sources(
                self.names, roots=roots, exclude=config.exclude, excludes_named=options.force_exclude
            )
        )
        checked = linter.check(inputs)
        self.other_files += checked.before_baseline.texts
        if options.diff:
            return self._show_diff(linter, inputs, checked)
        changes: list[str] = []
        if options.fix:
            before = checked.report.texts
            checked, after = linter.fix(inputs, checked)
            lint_settings.save_texts(after)
            changes = [*diff_texts(before, after)]
        if options.write_baseline and baseline:
            checked = self._write_baseline(linter, Path(baseline), checked)
        self._print(checked, settings, changes, config.docs_url)
        if not inputs or not (
            checked.report.files or checked.report.diagnostics or any(source.is_named for source in inputs)
        ):
            raise VstreamError(
                f"there is nothing to check in {', '.join(self.names)}",
                hint="vstream lint looks for *.conf, *.cfg, *.json, *.jwt, *.yaml and *.yml",
            )
        self._print_summary(checked)
        return lint_settings.exit_code(checked.report, linter.config)

    def _linter(
        self, config: LintConfig, settings: lint_settings.Settings, baseline: Path | None
    ) -> tuple[Linter, input_files.Roots | None]:
        options = self._options
        topology = options.topology or (settings.path(config.topology) if config.topology else None)
        declared_names = [str(topology)] if topology else []
        running_names = [str(options.against)] if options.against else []
        self.other_files += input_files.list_files(running_names)
        known_names = [*self.names, *declared_names, *running_names]
        roots = None if options.allow_outside else input_files.Roots(known_names)
        env_files = [*map(settings.path, config.env_files), *options.env_file]
        variables = lint_settings.read_environment([*config.env, *options.env], env_files)
        overlays = declared = None
        if topology or chosen_overlays():
            # Most runs need neither, and what reads them takes long to import.
            reader = load_late("vstream.cli.options")
            overlays = reader.read_overlays()
            declared = reader.check_topology_file(topology).require() if topology else None
        linter = Linter(
            config=config,
            surroundings=lint_settings.make_surroundings(roots, variables, overlays=overlays),
            topology=declared,
            server_version=lint_settings.parse_version(config.server_version),
            baseline=lint_settings.load_baseline(baseline, may_be_missing=options.write_baseline) if baseline else None,
            running=list(input_files.read_sources(running_names, roots=roots)),
        )
        return linter, roots

    def _write_baseline(self, linter: Linter, path: Path, checked: CheckResult) -> CheckResult:
        baseline = linter.update_baseline(checked.before_baseline, lint_settings.anchor_at(path.parent))
        save_output(path, format_json("lint-baseline", baseline.as_json()) + "\n")
        new, _ = baseline.split(checked.before_baseline.diagnostics)
        entries = sum(baseline.counts.values())
        console.print_note(f"{path} has {format_count(entries, 'finding')} now")
        return replace(checked, report=replace(checked.before_baseline, diagnostics=new), stale={})

    def _show_diff(self, linter: Linter, inputs: Sequence[Source], checked: CheckResult) -> int:
        fixed, after = linter.fix(inputs, checked)
        self._write([clean(line) for line in diff_texts(checked.report.texts, after)])
        console.print_note(f"{format_count(len(after), 'file')} would change" if after else "nothing would change")
        if not fixed.report.is_complete:
            return UNKNOWN
        return NO if after else OK

    def _print(
        self, checked: CheckResult, settings: lint_settings.Settings, changes: Sequence[str], docs_url: str | None
    ) -> None:
        output = self._options.output or default_format()
        for change in changes:
            typer.echo(clean(change), err=not output.is_for_people)
        if self._options.statistics:
            self._write(view.statistics_lines(checked.report, output))
        else:
            self._write(view.report_lines(checked.report, output, anchor=settings.top, docs_url=docs_url))

    def _write(self, lines: Iterable[Text | str]) -> None:
        if self._options.output_file is None:
            print_cleaned_lines(lines)
        else:
            save_output(self._options.output_file, "".join(f"{line}\n" for line in lines))

    def _print_summary(self, checked: CheckResult) -> None:
        for line in (
            *view.stale_baseline_lines(checked.stale),
            *view.summary_lines(checked.report, is_fixing=self._options.fix),
        ):
            console.print_note(line)
        hidden = len(checked.before_baseline.diagnostics) - len(checked.report.diagnostics)
        if hidden:
            console.print_note(f"{hidden:,} more {'is' if hidden == 1 else 'are'} in the baseline")


def merge(settings: lint_settings.Settings, options: LintOptions) -> LintConfig:
    """The settings with what the options say. Raises VstreamError."""
    config, codes = settings.config, known_codes()
    selected, ignored, added = (
        parse_selectors(words, codes) for words in (options.select, options.ignore, options.extend_select)
    )
    selection = config.selection
    # What is asked for on the command line counts more than what the settings ignore.
    asked_for = {*selected, *added}
    selection = replace(
        selection,
        select=selected or selection.select,
        ignore=(*(word for word in selection.ignore if not (selected or word in asked_for)), *ignored),
        extend_select=(*(() if selected else selection.extend_select), *added),
    )
    exclude = config.exclude
    if options.exclude:
        anchor = exclude.anchor if exclude.patterns else lint_settings.anchor_at(Path.cwd())
        exclude = FilePatterns(patterns=(*exclude.patterns, *options.exclude), anchor=anchor)
    lint_settings.parse_version(options.server_version)
    return replace(
        config,
        selection=selection,
        exclude=exclude,
        fail_on=options.fail_on or config.fail_on,
        server_version=options.server_version or config.server_version,
    )
