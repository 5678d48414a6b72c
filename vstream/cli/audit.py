"""`vstream audit`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from vstream.audit import open_rounds, require_spark, run_audit
from vstream.audit.report import AuditVerdict, Report
from vstream.audit.request import (
    MAX_STREAMS_WITH_FIGURES,
    AuditedServers,
    AuditedTables,
    AuditRequest,
    AuditStage,
    AuditTarget,
    NamedTarget,
    SparkAddress,
    SparkEndedError,
    TargetKind,
    require_no_move,
    require_tables,
    require_tables_directory,
    reserve_outputs,
    uri_of,
)
from vstream.capture.store import Capture
from vstream.cli import options
from vstream.cli.asyncio_runner import exit_on_signals
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import audit as view
from vstream.cli.views import console
from vstream.cli.views.audit import RoundPrinter, StageProgress
from vstream.cli.views.audit_page import render_page
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.jetstream.endpoints import require_endpoints
from vstream.render.pipeline import render_streams
from vstream.servers.find_servers import endpoints_as_user, find_and_trust_servers
from vstream.topology.accounts import AUDIT_USER
from vstream.topology.units import parse_duration

_ROUND_SECONDS = 10.0
"""Minimum time from the start of one round of --follow to that of the next."""

Target = Annotated[
    str,
    typer.Argument(
        help="A topology file, a scenario's capture, or tables that an audit kept (any Spark URI).",
        envvar="VSTREAM_TOPOLOGY",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(help="Only messages of this last period, such as 2h; for a topology only.", metavar="DURATION"),
]
SampleSize = Annotated[
    int | None,
    typer.Option(help="A random sample of N subjects of each stream; for a topology only.", min=1, max=500),
]
Follow = Annotated[
    bool,
    typer.Option("--follow", "-f", help="Keep auditing the last 10 minutes, or those of --since; for a topology only."),
]
OnlyFindings = Annotated[bool, typer.Option("--only-findings", help="Print only the findings.")]
AllFigures = Annotated[
    bool,
    typer.Option(
        "--all-figures",
        help=f"Figures of all virtual streams, also of more than {MAX_STREAMS_WITH_FIGURES}; else of those that do not pass.",
    ),
]
TablesDirectory = Annotated[
    str | None, typer.Option("--tables", help="Keep the tables of all stages here, as Parquet.", metavar="DIR")
]
StateDirectory = Annotated[
    Path | None,
    typer.Option(
        help="Keep what was read here, and next time read only what is new; for a topology only.", metavar="DIR"
    ),
]
PublishSchema = Annotated[
    str | None,
    typer.Option(help="Also write the findings into this schema of Spark's catalog.", metavar="SCHEMA"),
]
PublishFormat = Annotated[
    str | None,
    typer.Option(help="The format of those tables: delta, iceberg, parquet (default), or whatever the cluster has."),
]
FirstStage = Annotated[
    str,
    typer.Option(
        "--from", metavar="STAGE", help="With tables: the first stage to run again: normalise, reconcile or judge."
    ),
]
Master = Annotated[str | None, typer.Option(help="A Spark master, such as spark://host:7077. Default: this machine.")]
Remote = Annotated[str | None, typer.Option(help="A Spark Connect server, such as sc://host:15002.")]


def command(
    target: Target = str(options.DEFAULT_FILE),
    stream: options.StreamNames = None,
    since: Since = None,
    sample: SampleSize = None,
    follow: Follow = False,
    output_format: options.TextJsonOrJunit = "text",
    only_findings: OnlyFindings = False,
    all_figures: AllFigures = False,
    html: options.HtmlFile = None,
    tables: TablesDirectory = None,
    state: StateDirectory = None,
    publish: PublishSchema = None,
    publish_as: PublishFormat = None,
    first_stage: FirstStage = AuditStage.NORMALISE.value,
    master: Master = None,
    remote: Remote = None,
    templates: options.TemplatesDirectory = None,
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
) -> None:
    """
    Check whether every region holds every message, once and in order, and how late it was.

    Reads every stream of a topology from its servers, or what a scenario or an earlier
    audit left, and compares all regions with each other on Spark (`pip install
    'vstream[audit]'`). Exits with 0 for PASS, 1 for FAIL and 3 for UNKNOWN.
    `vstream lint --explain VA102` says what a finding means.

    Examples: `vstream audit`, `vstream audit acme.yaml --since 2h -s foo`, `vstream audit walkthrough-1/ --html audit.html`,
    `vstream audit acme.yaml --tables s3a://audits/2026-11-20 --master spark://host:7077`
    """
    options.choose_names("stage", tuple(stage.value for stage in AuditStage), [first_stage])
    console.set_log(log_format, is_quiet=is_quiet)
    spark_at = SparkAddress(master=master, remote=remote)
    printer = _Printer(output_format, html, only_findings)
    request = AuditRequest(
        streams=tuple(dict.fromkeys(stream or ())),
        since_ns=_parse_since(since),
        sample=sample,
        tables_uri=uri_of(tables) if tables else None,
        state=state.resolve() if state else None,
        first_stage=AuditStage(first_stage),
        publish=publish,
        max_shown=sys.maxsize if all_figures else MAX_STREAMS_WITH_FIGURES,
        publish_as=publish_as or "parquet",
    )
    named = NamedTarget.at(target)
    options.refuse_options("needs --publish", {"--publish-as": publish_as and publish is None})
    _refuse_combinations(named, request, spark_at, followed_as=output_format if follow else None)
    require_spark()
    if follow:
        _follow(_find_servers(Path(target), request, templates, lab), request, printer)
    else:
        audited = find_target(named, request, templates=templates, lab=lab)
        with _open_outputs(request, html) as (progress, _):
            report = run_audit(request, audited, spark_at, progress)
        printer.show_and_exit(report)


@dataclass(frozen=True, slots=True)
class _Printer:
    """Prints reports in the requested format."""

    output_format: str
    html: Path | None
    only_findings: bool

    def show_and_exit(self, report: Report) -> None:
        """Show the report of one audit, and exit with its verdict."""
        if self.output_format == "json":
            print_json("audit", report.as_dict(only_findings=self.only_findings))
        elif self.output_format == "junit":
            typer.echo(view.to_junit(report, only_findings=self.only_findings))
        else:
            console.print_lines(view.render_report(report, only_findings=self.only_findings))
        self.write_page(report)
        if self.html is not None:
            console.print_note(f"the page is {self.html}")
        verdict = report.verdict()
        exit_unless_yes(is_no=verdict is AuditVerdict.FAIL, is_unknown=verdict is AuditVerdict.UNKNOWN)

    def show_round(self, report: Report, rounds: RoundPrinter) -> None:
        """Show the result of one round."""
        if self.output_format == "json":
            print_json("audit", report.as_dict(only_findings=self.only_findings), layout=JsonLayout.LINE)
        else:
            console.print_lines(rounds.lines(report))
        self.write_page(report)

    def write_page(self, report: Report) -> None:
        """Write the HTML page, if requested."""
        if self.html is not None:
            save_output(self.html, render_page(report))


def _refuse_combinations(
    target: NamedTarget, request: AuditRequest, address: SparkAddress, *, followed_as: str | None
) -> None:
    """Raise BadParameter for an option that excludes another, or *target*; *followed_as* is the format of --follow."""
    is_topology, is_tables = target.kind is TargetKind.TOPOLOGY, target.kind is TargetKind.TABLES
    is_part = request.streams or request.since_ns or request.sample
    only_topology = "it works only for a topology, not for captures and tables"
    of_follow = {
        "only a topology can be followed": not is_topology,
        "it runs on this machine and cannot be combined with --master or --remote": not address.is_local,
        "--follow cannot be combined with `--tables`": request.tables_uri,
        "--follow cannot be combined with `--sample`": request.sample,
        "--follow cannot be combined with `--publish`": request.publish,
        "--follow cannot be combined with `--format junit`": followed_as == "junit",
    }
    of_state = {
        "it works only for a topology": not is_topology,
        "it is on this machine and cannot be combined with --master or --remote": not address.is_local,
        "it holds everything and cannot be combined with `--stream`, `--since` and `--sample`": is_part,
    }
    is_replaced = is_tables and request.streams and request.tables_uri == uri_of(target.place)
    is_later = request.first_stage is not AuditStage.NORMALISE
    problems_of_options: dict[str, dict[str, Any]] = {
        "--remote": {"use either `--master` or `--remote`, not both": address.master and address.remote},
        "--follow": of_follow if followed_as else {},
        "--state": of_state if request.state else {},
        "--since": {only_topology: request.since_ns and not is_topology},
        "--sample": {only_topology: request.sample and not is_topology},
        "--from": {"it works only for the tables of an earlier audit": is_later and not is_tables},
        "--tables": {"it would replace the audit with a subset of its streams: choose another directory": is_replaced},
    }
    for option, problems in problems_of_options.items():
        for problem, is_there in problems.items():
            options.refuse_options(problem, {option: is_there})


@contextmanager
def _open_outputs(request: AuditRequest, html: Path | None) -> Iterator[tuple[StageProgress, Callable[[], bool]]]:
    """Show progress, and write what was requested, until a signal comes. The block is given what says whether one did."""
    with (
        exit_on_signals() as is_interrupted,
        reserve_outputs(request.tables_uri, html),
        reserve_outputs(uri_of(str(request.state)) if request.state else None, None),
        view.show_stages() as progress,
    ):
        yield progress, is_interrupted


def _follow(servers: AuditedServers, request: AuditRequest, printer: _Printer) -> None:
    """Audit a round every few seconds until interrupted."""
    rounds = RoundPrinter()
    with (
        _open_outputs(request, printer.html) as (progress, is_interrupted),
        open_rounds(request, servers, progress) as run_round,
    ):
        progress.end()
        while True:
            started = time.monotonic()
            console.print_detail("a round begins")
            try:
                printer.show_round(run_round(), rounds)
            except SparkEndedError:
                raise
            except VstreamError as error:
                if is_interrupted():
                    # It came in the midst of a call of Spark's, which then fails in a way of its own.
                    raise KeyboardInterrupt from error
                console.print_warning(f"? {time.strftime('%H:%M:%S')} {error.message}", style="bold yellow")
            time.sleep(max(0.0, started + _ROUND_SECONDS - time.monotonic()))


def _parse_since(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        length = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
    if not length:
        raise typer.BadParameter("`--since` must be positive; omit it to read everything", param_hint="--since")
    return length


def find_target(
    named: NamedTarget, request: AuditRequest, *, templates: Path | None = None, lab: str | None = None
) -> AuditTarget:
    """What is *named*. Raises VstreamError if it cannot be audited."""
    if request.tables_uri is not None:
        require_tables_directory(request.tables_uri)
    if named.kind is TargetKind.TOPOLOGY:
        return _find_servers(Path(named.place), request, templates, lab)
    if named.kind is TargetKind.CAPTURE:
        capture = Capture(Path(named.place))
        capture.manifest()  # which raises an error before anything is begun
        return capture
    require_tables(named.place)
    return AuditedTables(uri=uri_of(named.place))


def _find_servers(path: Path, request: AuditRequest, templates: Path | None, lab: str | None) -> AuditedServers:
    topology = options.check_topology_file(path).require()
    require_no_move(topology)
    names = options.choose_streams(topology, request.streams)
    servers = find_and_trust_servers(topology, lab)
    endpoints = endpoints_as_user(topology, servers, AUDIT_USER)
    require_endpoints(topology, endpoints)
    streams = render_streams(topology, templates)
    return AuditedServers(
        topology=topology,
        description=servers.description,
        endpoints=endpoints,
        streams=[stream for stream in streams if stream.virtual in names],
    )
