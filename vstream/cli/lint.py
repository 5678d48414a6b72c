"""`vstream lint`."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from vstream.cli import lint_options
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.finding_output import Format, default_format, print_cleaned_lines
from vstream.cli.lazy_group import chosen_overlays, load_late, refuse_named
from vstream.cli.lint_watch import watch_and_repeat
from vstream.cli.views import console
from vstream.cli.views import lint as view
from vstream.cli.views.cleaning import clean
from vstream.cli.views.json_output import format_json
from vstream.cli.views.lint import LintFormat
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.findings import Severity
from vstream.formatting import format_count
from vstream.lint.pipeline import LintJob, LintOutcome, LintRequest, check_files, make_job
from vstream.value_class import value_class

_STATISTICS_FORMATS = {None, LintFormat.FULL, LintFormat.CONCISE, LintFormat.JSON}


@value_class
class _Presentation:
    """How to show what was found."""

    output_format: LintFormat | None
    file: Path | None
    """Where to write it, instead of the standard output."""
    is_statistics: bool

    def write(self, lines: Iterable[Text | str]) -> None:
        if self.file is None:
            print_cleaned_lines(lines)
        else:
            save_output(self.file, "".join(f"{line}\n" for line in lines))


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
    output_format: Format = None,
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
        is_json = output_format is LintFormat.JSON
        effective = {"explained", "output_format"} if is_json or output_format is LintFormat.FULL else {"explained"}
        refuse_named(context, "has no effect with --explain", *(context.params.keys() - effective))
        load_late("vstream.cli.lint_explain").explain(explained, is_json=is_json)
        return
    request = LintRequest(
        files=tuple(files or ()),
        topology=topology,
        server_version=server_version,
        against=against,
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
    )
    presentation = _Presentation(output_format=output_format, file=output_file, is_statistics=statistics)
    _refuse_combinations(request, presentation, is_watching=watch)

    def run(job: LintJob) -> LintOutcome:
        outcome = check_files(job, lint_options.read_topology_inputs(job))
        _save(job, outcome)
        _show(job, outcome, presentation)
        return outcome

    if watch:
        watch_and_repeat(request, run)
    # Trees of a hundred thousand nodes, without a cycle among them: looking for cycles takes as long as the work.
    gc.disable()
    outcome = run(make_job(request))
    # Nor at the end of the process, which would look through all of it once more.
    gc.freeze()
    exit_unless_yes(is_no=outcome.is_failed, is_unknown=not outcome.result.is_complete)


def _refuse_combinations(request: LintRequest, presentation: _Presentation, *, is_watching: bool) -> None:
    if request.diff and (request.fix or request.write_baseline or presentation.is_statistics):
        raise typer.BadParameter(
            "it cannot be combined with `--fix`, `--write-baseline` or `--statistics`", param_hint="--diff"
        )
    if presentation.is_statistics and presentation.output_format not in _STATISTICS_FORMATS:
        raise typer.BadParameter("`--statistics` needs the format full, concise or json", param_hint="--format")
    if chosen_overlays() and (request.fix or request.diff):
        raise typer.BadParameter("it cannot be combined with `--overlay`", param_hint="--fix")
    if is_watching and "-" in request.files:
        raise typer.BadParameter("standard input cannot be watched: name files", param_hint="--watch")


def _save(job: LintJob, outcome: LintOutcome) -> None:
    """Write the corrected files and the baseline that were asked for. Raises VstreamError."""
    if job.request.fix:
        _save_texts(outcome.corrected)
    if outcome.baseline is not None and job.baseline is not None:
        save_output(job.baseline, format_json("lint-baseline", outcome.baseline.as_json()) + "\n")
        console.print_note(f"{job.baseline} has {format_count(outcome.baseline.size, 'finding')} now")


def _save_texts(texts: Mapping[str, str]) -> None:
    for name, text in sorted(texts.items()):
        try:
            Path(name).write_bytes(text.encode())
        except OSError as error:
            raise VstreamError(f"{name} cannot be written: {error.strerror}", hint="check its permissions") from None


def _show(job: LintJob, outcome: LintOutcome, presentation: _Presentation) -> None:
    """Print what was found. Raises VstreamError if there was nothing to look at."""
    if job.request.diff:
        presentation.write([clean(line) for line in outcome.changes])
        files = format_count(len(outcome.corrected), "file")
        console.print_note(f"{files} would change" if outcome.corrected else "nothing would change")
        return
    report, output_format = outcome.result.report, presentation.output_format or default_format()
    for change in outcome.changes:
        typer.echo(clean(change), err=not output_format.is_for_people)
    if presentation.is_statistics:
        presentation.write(view.statistics_lines(report, output_format))
    else:
        top, docs_url = job.directory.top, job.settings.docs_url
        presentation.write(view.report_lines(report, output_format, anchor=top, docs_url=docs_url))
    if outcome.has_nothing_to_check:
        raise VstreamError(
            f"there is nothing to check in {', '.join(job.request.names)}",
            hint="vstream lint looks for *.conf, *.cfg, *.json, *.jwt, *.yaml and *.yml",
        )
    for line in view.closing_lines(outcome.result, is_fixing=job.request.fix):
        console.print_note(line)
