"""`vstream audit`."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import exit_on_signals
from vstream.cli.audit import sources
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.errors import VstreamError
from vstream.files import save_output

if TYPE_CHECKING:
    from vstream.audit.follow import Follower
    from vstream.audit.report import Report

_FORMATS = ("text", "json", "junit")
_ROUND_SECONDS = 10.0
"""From the beginning of one round of --follow to that of the next, at least."""


def command(
    target: Annotated[
        str, typer.Argument(help="A topology file, a scenario's capture, or tables that an audit kept (any Spark URI).")
    ] = str(options.DEFAULT_FILE),
    stream: Annotated[
        list[str] | None,
        typer.Option("--stream", "--streams", "-s", help="Only this virtual stream; several with commas."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only messages of so long, such as 2h; of a topology only.", metavar="DURATION")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            help="Only so many subjects of each stream, chosen by chance; of a topology only.", min=1, max=500
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Go on auditing the last 10 minutes, or those of --since; of a topology only."
        ),
    ] = False,
    output: Annotated[str, typer.Option("--format", help="text, json or junit.")] = "text",
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", help="Write one self-contained HTML page to this file, too.", metavar="FILE", dir_okay=False
        ),
    ] = None,
    tables: Annotated[
        str | None, typer.Option("--tables", help="Keep the tables of all stages here, as Parquet.", metavar="DIR")
    ] = None,
    publish: Annotated[
        str | None,
        typer.Option(help="Write what was found into this schema of Spark's catalog, too.", metavar="SCHEMA"),
    ] = None,
    publish_as: Annotated[
        str | None,
        typer.Option(help="What those tables are: delta, iceberg, parquet (default), or whatever the cluster has."),
    ] = None,
    begin: Annotated[
        str,
        typer.Option("--from", help="With tables: the first stage to do again, normalise, reconcile or judge."),
    ] = "normalise",
    master: Annotated[
        str | None, typer.Option(help="A Spark master, such as spark://host:7077. Default: this machine.")
    ] = None,
    remote: Annotated[str | None, typer.Option(help="A Spark Connect server, such as sc://host:15002.")] = None,
    templates: options.TemplatesDirectory = None,
    lab: options.LabName = None,
) -> None:
    """
    Whether every region holds every message, once, in order, and how late it was.

    Reads every stream of a topology from its servers, or what a scenario or an earlier
    audit left, and compares all regions with each other on Spark (`pip install
    'vstream[audit]'`). Exits with 0 for PASS, 1 for FAIL and 3 for UNKNOWN.
    `vstream explain VA102` says what a finding means.

    Examples: `vstream audit`, `vstream audit acme.yaml --since 2h -s foo`, `vstream audit walkthrough-1/ --html audit.html`,
    `vstream audit acme.yaml --tables s3a://audits/2026-11-20 --master spark://host:7077`
    """
    from vstream.audit import scratch as temporary  # noqa: PLC0415 - the whole command
    from vstream.audit import session  # noqa: PLC0415
    from vstream.cli.views import audit as view  # noqa: PLC0415

    for value, known, option in ((output, _FORMATS, "--format"), (begin, sources.STAGES, "--from")):
        if value not in known:
            raise typer.BadParameter(f"`{value}` is none of {', '.join(known)}", param_hint=option)
    if master and remote:
        raise typer.BadParameter("a session has a master or a remote, not both", param_hint="--remote")
    if publish_as and publish is None:
        raise typer.BadParameter(
            "it says what the tables of --publish are, which is missing", param_hint="--publish-as"
        )
    wanted = sources.AuditRequest(
        streams=tuple(dict.fromkeys(name.strip() for some in stream or () for name in some.split(","))),
        since_ns=_since(since),
        sample=sample,
        tables=sources.uri_of(tables) if tables else None,
        begin=begin,
        publish=publish,
        publish_as=publish_as or "parquet",
        templates=templates,
        lab=lab,
    )
    if follow:
        _check_follow(target, wanted, output, is_elsewhere=bool(master or remote))
    session.require_spark()
    source = sources.open_source(target, wanted)
    with (
        exit_on_signals(),
        sources.reserve_outputs(wanted.tables, html),
        temporary.scratch_directory() as scratch,
        view.progress() as progress,
        closing(source),
    ):
        progress.begin("start Spark")
        is_small = master is None and remote is None and source.size(scratch) < sources.SMALL
        conf = session.SMALL if is_small else {}
        on_keeping = progress.keeping if is_small else None
        if not follow:
            source.begin()
        with session.open_session(master=master, remote=remote, conf=conf, on_keeping=on_keeping) as spark:
            if publish is not None:
                from vstream.audit.publish import check_catalog  # noqa: PLC0415 - imports Spark

                check_catalog(spark, publish, wanted.publish_as)
            if follow:
                assert isinstance(source, sources.TopologySource)
                progress.end()
                _follow(source.follower(spark, scratch), output, html)
            report = source.audit(spark, scratch, progress)
    _show(report, output, html)


def _check_follow(target: str, wanted: sources.AuditRequest, output: str, *, is_elsewhere: bool) -> None:
    problems = {
        "only servers can be followed": "://" in target or Path(target).is_dir(),
        "it is done on this machine: without --master and --remote": is_elsewhere,
        "what it has read is not kept: without --tables": wanted.tables is not None,
        "every message of the last minutes is looked at: without --sample": wanted.sample is not None,
        "what it finds changes every few seconds: without --publish": wanted.publish is not None,
        "it has no end that junit could tell of": output == "junit",
    }
    for problem, is_there in problems.items():
        if is_there:
            raise typer.BadParameter(problem, param_hint="--follow")


def _follow(follower: Follower, output: str, html: Path | None) -> NoReturn:
    """A round every few seconds, until somebody stops it."""
    from vstream.audit.spark_errors import SparkEndedError  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views.audit_follow import RoundPrinter  # noqa: PLC0415

    rounds = RoundPrinter()
    while True:
        begun = time.monotonic()
        try:
            report = follower.round()
        except SparkEndedError:
            raise
        except VstreamError as error:
            console.print_note(f"? {time.strftime('%H:%M:%S')} {error.message}", style="bold yellow")
        else:
            if output == "json":
                print_json("audit", report.as_dict(), layout=JsonLayout.LINE)
            else:
                for line in rounds.lines(report):
                    console.stdout().print(line)
            if html is not None:
                _write(html, report)
        time.sleep(max(0.0, begun + _ROUND_SECONDS - time.monotonic()))


def _since(text: str | None) -> int | None:
    from vstream.topology.units import parse_duration  # noqa: PLC0415

    if text is None:
        return None
    try:
        length = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
    if not length:
        raise typer.BadParameter("that is no length of time; without it, everything is read", param_hint="--since")
    return length


def _show(report: Report, output: str, html: Path | None) -> None:
    from vstream.audit.report import AuditVerdict  # noqa: PLC0415
    from vstream.cli.views import audit as view  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415

    if output == "json":
        print_json("audit", report.as_dict())
    elif output == "junit":
        from vstream.audit.junit import to_junit  # noqa: PLC0415

        typer.echo(to_junit(report))
    else:
        for part in view.report(report):
            console.stdout().print(part)
    if html is not None:
        _write(html, report)
        console.print_note(f"the page is {html}")
    if code := {AuditVerdict.PASS: 0, AuditVerdict.FAIL: NO, AuditVerdict.UNKNOWN: FAILED}[report.verdict()]:
        raise typer.Exit(code)


def _write(html: Path, report: Report) -> None:
    from vstream.cli.views.audit_page import render_page  # noqa: PLC0415

    save_output(html, render_page(report))
