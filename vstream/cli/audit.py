"""`vstream audit`."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstream.cli import inputs
from vstream.cli.outcome import FAILED, NO
from vstream.cli.running import stoppable
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from vstream.audit.frames import Tables
    from vstream.audit.report import Report
    from vstream.audit.stages import Context, Run
    from vstream.capture.store import Capture
    from vstream.model.topology import Topology

_FORMATS = ("text", "json", "junit")
_STAGES = ("normalise", "reconcile", "judge")
_SMALL = 1_000_000
"""Messages below which it takes Spark longer to get fast than to get done."""


def command(
    target: Annotated[
        str, typer.Argument(help="A topology file, a scenario's capture, or tables that an audit kept (any Spark URI).")
    ] = str(inputs.DEFAULT_FILE),
    stream: Annotated[
        list[str] | None, typer.Option("--stream", "--streams", "-s", help="Only this virtual stream.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only messages of so long, such as 2h; of a topology only.", metavar="DURATION")
    ] = None,
    output: Annotated[str, typer.Option("--format", help="text, json or junit.")] = "text",
    html: Annotated[
        Path | None,
        typer.Option("--html", help="Write one self-contained HTML page to this file, too.", metavar="FILE"),
    ] = None,
    tables: Annotated[
        str | None, typer.Option("--tables", help="Keep the tables of all stages here, as Parquet.", metavar="DIR")
    ] = None,
    begin: Annotated[
        str,
        typer.Option("--from", help="With tables: the first stage to do again, normalise, reconcile or judge."),
    ] = "normalise",
    master: Annotated[
        str | None, typer.Option(help="A Spark master, such as spark://host:7077. Default: this machine.")
    ] = None,
    remote: Annotated[str | None, typer.Option(help="A Spark Connect server, such as sc://host:15002.")] = None,
    templates: inputs.TemplatesDirectory = None,
    lab: inputs.LabName = None,
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
    from vstream.audit import session  # noqa: PLC0415 - the whole command
    from vstream.ui import audit as view  # noqa: PLC0415

    for value, known, option in ((output, _FORMATS, "--format"), (begin, _STAGES, "--from")):
        if value not in known:
            raise typer.BadParameter(f"`{value}` is none of {', '.join(known)}", param_hint=option)
    if master and remote:
        raise typer.BadParameter("a session has a master or a remote, not both", param_hint="--remote")
    wanted = _Wanted(
        streams=tuple(stream or ()),
        since_ns=_since(since),
        tables=_uri(tables) if tables else None,
        begin=begin,
        templates=templates,
        lab=lab,
    )
    session.require()
    source = _source(target, wanted)
    with stoppable(), tempfile.TemporaryDirectory(prefix="vstream-audit-") as scratch, view.progress() as progress:
        progress.begin("start Spark")
        conf = session.SMALL if master is None and remote is None and source.size() < _SMALL else {}
        with session.session(master=master, remote=remote, conf=conf) as spark:
            report = source.audit(spark, Path(scratch), progress)
    _show(report, output, html)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    streams: tuple[str, ...]
    since_ns: int | None
    tables: str | None
    begin: str
    templates: Path | None
    lab: str | None


def _uri(place: str) -> str:
    """*place* as Spark has to be told it: without a scheme it is here, whatever Spark's own file system is."""
    return place if "://" in place else Path(place).resolve().as_uri()


def _since(text: str | None) -> int | None:
    from vstream.topology.units import parse_duration  # noqa: PLC0415

    if text is None:
        return None
    try:
        length = parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
    return time.time_ns() - length if length else None


def _source(target: str, wanted: _Wanted) -> _Live | _Captured | _Kept:
    """What *target* is. Raises VstreamError for one that is nothing of what can be audited, BadParameter for options that it has not."""
    path = Path(target)
    is_directory = "://" in target or path.is_dir()
    is_capture = is_directory and (path / "manifest.json").is_file()
    if is_directory and wanted.since_ns is not None:
        raise typer.BadParameter("only servers can be asked for a part of their messages", param_hint="--since")
    if wanted.begin != _STAGES[0] and (not is_directory or is_capture):
        raise typer.BadParameter("only tables have stages that are done", param_hint="--from")
    if is_capture:
        return _Captured(wanted, path)
    if is_directory:
        return _Kept(wanted, target)
    return _Live(wanted, path)


class _Source:
    """What is audited."""

    def __init__(self, wanted: _Wanted) -> None:
        self._wanted = wanted

    def _run(
        self,
        spark: Any,
        found: Tables,
        context: Context,
        progress: Any,
        journal: Any = None,
        reads: str | None = None,
    ) -> Report:
        """Judge the tables *found*, and keep everything if that is wanted; *reads* is where earlier stages were kept."""
        from vstream.audit.frames import read_tables, write_tables  # noqa: PLC0415
        from vstream.audit.stages import Run, Shelf, Stage, save_context, save_journal  # noqa: PLC0415

        place = self._wanted.tables
        shelf = Shelf(spark, place, reads=reads)
        if place is not None and place != reads:
            write_tables(found, place)
            save_context(shelf, context)
            journal = save_journal(shelf, journal) if journal is not None else None
            found = read_tables(spark, place)
        run = Run(
            shelf=shelf,
            context=context,
            begin=Stage(self._wanted.begin),
            on_stage=lambda stage: progress.begin(stage.value),
        )
        return self._judged(spark, run, found, progress, journal)

    def _judged(self, spark: Any, run: Run, found: Tables, progress: Any, journal: Any) -> Report:
        from vstream.audit.frames import only, virtuals  # noqa: PLC0415
        from vstream.audit.progress import watched  # noqa: PLC0415

        with watched(spark, progress.tasks):
            if self._wanted.streams:
                _check_streams(self._wanted.streams, virtuals(found))
                found = only(found, self._wanted.streams)
            return run(found.messages, found.streams, journal)


class _Live(_Source):
    """The servers of a topology."""

    def __init__(self, wanted: _Wanted, path: Path) -> None:
        super().__init__(wanted)
        self._topology: Topology = inputs.load(path).require()
        _check_streams(wanted.streams, {one.name for one in self._topology.streams})
        self._target = inputs.target(self._topology, wanted.lab)
        bundle = inputs.bundle_for(self._topology, self._target, wanted.templates)
        self._streams = [one for one in bundle.streams if one.virtual in (wanted.streams or [one.virtual])]

    def size(self) -> int:
        from vstream.audit.frames import stored  # noqa: PLC0415

        with tempfile.TemporaryDirectory(prefix="vstream-audit-") as scratch:
            return stored(self._streams, self._target.endpoints, Path(scratch))

    def audit(self, spark: Any, scratch: Path, progress: Any) -> Report:
        from vstream.audit.frames import live, read_tables, write_tables  # noqa: PLC0415
        from vstream.audit.progress import watched  # noqa: PLC0415
        from vstream.audit.stages import Context  # noqa: PLC0415

        progress.begin("extract")
        found = live(spark, self._streams, self._target.endpoints, scratch, since_ns=self._wanted.since_ns)
        context = Context(
            subject=f"{self._topology.name} on {self._target.description}",
            models={one.name: one.consistency.value for one in self._topology.streams},
            is_narrow=self._wanted.since_ns is not None,
        )
        with watched(spark, progress.tasks):
            if self._wanted.tables is None:
                # Servers are read once: what is judged twice has to be the same.
                place = f"{scratch.as_uri()}/tables"
                if str(spark.conf.get("spark.master", "")).startswith("local"):
                    write_tables(found, place)
                    found = read_tables(spark, place)
                else:
                    found = type(found)(messages=found.messages.persist(), streams=found.streams)
            return self._run(spark, found, context, progress)


class _Captured(_Source):
    """What a scenario left."""

    def __init__(self, wanted: _Wanted, path: Path) -> None:
        from vstream.capture.store import Capture  # noqa: PLC0415

        super().__init__(wanted)
        self._capture: Capture = Capture(path)
        self._manifest = self._capture.manifest()

    def size(self) -> int:
        return sum(one.messages or 0 for one in self._manifest.streams)

    def audit(self, spark: Any, _: Path, progress: Any) -> Report:
        from vstream.audit.captured import captured  # noqa: PLC0415
        from vstream.audit.journal import journal  # noqa: PLC0415
        from vstream.audit.stages import Context  # noqa: PLC0415

        progress.begin("extract")
        wall = self._manifest.wall
        windows = [
            (one.asked, wall + one.injected, wall + one.healed)
            for one in self._capture.faults()
            if one.healed is not None
        ]
        context = Context(
            subject=f"{self._manifest.scenario} in {self._capture.path}",
            models=self._manifest.models,
            windows=tuple(windows),
        )
        return self._run(spark, captured(spark, self._capture), context, progress, journal(spark, self._capture))


class _Kept(_Source):
    """Tables of an audit."""

    def __init__(self, wanted: _Wanted, uri: str) -> None:
        super().__init__(wanted)
        self._uri = _uri(uri)

    def size(self) -> int:
        """In doubt, it is large."""
        return _SMALL

    def audit(self, spark: Any, _: Path, progress: Any) -> Report:
        from vstream.audit.frames import read_tables  # noqa: PLC0415
        from vstream.audit.stages import Shelf, read_context, read_journal  # noqa: PLC0415

        shelf = Shelf(spark, reads=self._uri)
        return self._run(
            spark,
            read_tables(spark, self._uri),
            read_context(shelf, self._uri),
            progress,
            read_journal(shelf),
            reads=self._uri,
        )


def _check_streams(given: tuple[str, ...], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise typer.BadParameter(f"`{name}` is none of {', '.join(sorted(known))}", param_hint="--stream")


def _show(report: Report, output: str, html: Path | None) -> None:
    from vstream.audit.report import Verdict  # noqa: PLC0415
    from vstream.ui import audit as view  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415

    if output == "json":
        typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    elif output == "junit":
        from vstream.audit.junit import to_junit  # noqa: PLC0415

        typer.echo(to_junit(report))
    else:
        for part in view.report(report):
            console.out().print(part)
    if html is not None:
        from vstream.ui.audit_page import page  # noqa: PLC0415

        try:
            html.parent.mkdir(parents=True, exist_ok=True)
            html.write_text(page(report), encoding="utf-8")
        except OSError as error:
            raise VstreamError(f"{html} cannot be written: {error.strerror}") from error
        console.say(f"the page is {html}")
    if code := {Verdict.PASS: 0, Verdict.FAIL: NO, Verdict.UNKNOWN: FAILED}[report.verdict()]:
        raise typer.Exit(code)
