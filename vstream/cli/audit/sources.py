"""What `vstream audit` can audit: servers, a scenario's capture, tables that were kept."""

from __future__ import annotations

import fcntl
import os
import time
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from vstream.cli import options
from vstream.cli.servers import build_bundle, endpoints_as_user, find_servers
from vstream.errors import NotReachableError, VstreamError
from vstream.files import check_writable
from vstream.topology.accounts import AUDIT_USER
from vstream.topology.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vstream.audit.context import AuditContext
    from vstream.audit.extract import ExtractedTables, ExtractPlan
    from vstream.audit.follow import Follower
    from vstream.audit.frames import AuditTables
    from vstream.audit.report import Report
    from vstream.audit.stages import AuditPipeline
    from vstream.capture.store import Capture
    from vstream.topology.model import Topology

STAGES = ("normalise", "reconcile", "judge")
"""Those after the extraction, in their order."""
SMALL = 1_000_000
"""Messages below which it takes Spark longer to get fast than to get done."""
_HERE = "file://"
_SOON = 1.0
"""Seconds."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRequest:
    """What was asked for."""

    streams: tuple[str, ...]
    since_ns: int | None
    """How far back, in nanoseconds."""
    sample: int | None
    tables: str | None
    begin: str
    publish: str | None
    """A schema of Spark's catalog for the results."""
    publish_as: str
    templates: Path | None
    lab: str | None


def uri_of(place: str) -> str:
    """*place* as Spark has to be told it: without a scheme it is here, whatever Spark's own file system is."""
    # Spark takes the name as it is: escaped, a space would be written as %20.
    return place.rstrip("/") if "://" in place else f"{_HERE}{Path(place).resolve()}"


def open_source(target: str, wanted: AuditRequest) -> TopologySource | CaptureSource | TablesSource:
    """What *target* is. Raises VstreamError for one that is nothing of what can be audited, BadParameter for options that it has not."""
    path = Path(target)
    is_directory = "://" in target or path.is_dir()
    is_capture = is_directory and (path / "manifest.json").is_file()
    if is_directory and wanted.since_ns is not None:
        raise typer.BadParameter("only servers can be asked for a part of their messages", param_hint="--since")
    if is_directory and wanted.sample is not None:
        raise typer.BadParameter("only servers can be asked for a part of their subjects", param_hint="--sample")
    if wanted.begin != STAGES[0] and (not is_directory or is_capture):
        raise typer.BadParameter("only tables have stages that are done", param_hint="--from")
    if wanted.tables is not None:
        _check_tables_directory(wanted.tables)
    if is_capture:
        return CaptureSource(wanted, path)
    if is_directory:
        if wanted.streams and wanted.tables == uri_of(target):
            raise typer.BadParameter("this would leave the tables of some streams only", param_hint="--tables")
        return TablesSource(wanted, target)
    return TopologySource(wanted, path)


def _check_tables_directory(uri: str) -> None:
    """Raise VstreamError if *uri* is a place here for something else: what is called as tables are would be overwritten."""
    place = Path(uri.removeprefix(_HERE))
    if not uri.startswith(_HERE) or not place.exists() or (place.is_dir() and not any(place.iterdir())):
        return
    if not any((place / "state").glob("part-*.json")):
        kind = "there is something else in" if place.is_dir() else "no directory is"
        raise VstreamError(f"{kind} `{place}`: tables of an audit have a directory of their own", hint="name a new one")


@contextmanager
def reserve_outputs(tables: str | None, html: Path | None) -> Iterator[None]:
    """
    Inside of the block, no other audit writes *tables* (a URI) where this one does, if that is on this machine.

    Raises VstreamError if another one does, or if *tables* or *html* cannot be written here: it may take
    an hour to have something to write.
    """
    if html is not None and (html.is_file() or not html.exists()):
        check_writable(html.resolve().parent)
    if tables is None or not tables.startswith(_HERE):
        yield
        return
    place = Path(tables.removeprefix(_HERE))
    check_writable(place)
    held = os.open(place, os.O_RDONLY)
    try:
        with suppress(OSError):  # file systems that cannot lock
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise VstreamError(
                    f"another audit is writing its tables into `{place}`", hint="wait for it, or name a new directory"
                ) from None
        yield
    finally:
        os.close(held)


class BackgroundExtraction:
    """Extraction in a thread of its own."""

    def __init__(self, work: Callable[[T, Event], ExtractedTables], what: T) -> None:
        from vstream.audit.daemon_executor import DaemonExecutor  # noqa: PLC0415 - what audits alone need

        self._given_up = Event()
        thread = DaemonExecutor(1)
        self._future = thread.submit(work, what, self._given_up)
        thread.shutdown(wait=False)

    def result(self) -> ExtractedTables:
        """What was extracted. Raises what that raised."""
        return self._future.result()

    def give_up(self) -> None:
        """Nobody wants it any more. Returns when it has ended, and soon if it waits for a server that says nothing."""
        self._given_up.set()
        wait([self._future], timeout=_SOON)


class AuditSource:
    """What is audited."""

    def __init__(self, wanted: AuditRequest) -> None:
        self._wanted = wanted
        self._beside: BackgroundExtraction | None = None

    def close(self) -> None:
        """Read no more of what `begin` has begun to read. Does nothing where all is read."""
        if self._beside is not None:
            self._beside.give_up()

    def _run(
        self,
        spark: Any,
        found: AuditTables,
        context: AuditContext,
        progress: Any,
        scratch: Path,
        journal: Any = None,
        reads: str | None = None,
    ) -> Report:
        """Judge the tables *found*, and keep everything if that is wanted; *reads* is where earlier stages were kept."""
        from vstream.audit.context import save_context, save_journal  # noqa: PLC0415
        from vstream.audit.frames import read_tables, write_tables  # noqa: PLC0415
        from vstream.audit.stages import AuditPipeline, AuditStage  # noqa: PLC0415
        from vstream.audit.table_store import TableStore  # noqa: PLC0415

        place = self._wanted.tables
        shelf = TableStore(
            spark, place or _scratch_tables(spark, found, scratch), reads=reads, virtuals=self._wanted.streams
        )
        if place is not None and place != reads:
            if not isinstance(self, TopologySource):
                write_tables(found, place)
                found = read_tables(spark, place)
            save_context(shelf, context)
            journal = save_journal(shelf, journal) if journal is not None else None
            shelf.seal()
        run = AuditPipeline(
            store=shelf,
            context=context,
            begin=AuditStage(self._wanted.begin),
            on_stage=lambda stage: progress.begin(stage.value),
        )
        report = self._judged(spark, run, found, progress, journal)
        if self._wanted.publish is not None:
            from vstream.audit.publish import publish  # noqa: PLC0415

            progress.begin("publish")
            publish(shelf, self._wanted.publish, self._wanted.publish_as)
        return report

    def _judged(self, spark: Any, run: AuditPipeline, found: AuditTables, progress: Any, journal: Any) -> Report:
        from vstream.audit.frames import select_virtuals, virtual_names  # noqa: PLC0415
        from vstream.audit.progress import watch_progress  # noqa: PLC0415

        with watch_progress(spark, progress.tasks):
            if self._wanted.streams:
                _check_streams(self._wanted.streams, virtual_names(found))
                found = select_virtuals(found, self._wanted.streams)
                journal = (
                    journal.where(journal["virtual"].isin(list(self._wanted.streams))) if journal is not None else None
                )
                models = {name: run.context.models.get(name, "virtual") for name in self._wanted.streams}
                run.context = replace(run.context, models=models)
            return run(found.messages, found.streams, journal)


class TopologySource(AuditSource):
    """The servers of a topology."""

    def __init__(self, wanted: AuditRequest, path: Path) -> None:
        super().__init__(wanted)
        self._topology: Topology = options.load_topology(path).require()
        _check_no_move(self._topology)
        _check_streams(wanted.streams, {one.name for one in self._topology.streams})
        self._target = find_servers(self._topology, wanted.lab)
        self._endpoints = endpoints_as_user(self._topology, self._target, AUDIT_USER)
        bundle = build_bundle(self._topology, self._target, wanted.templates)
        self._streams = [one for one in bundle.streams if one.virtual in (wanted.streams or [one.virtual])]
        self._found: ExtractPlan | None = None

    def size(self, scratch: Path) -> int:
        """How many messages there are to read. Raises NotReachableError if no stream can be asked."""
        self._found = self._extent(scratch)
        return self._found.messages

    def begin(self) -> None:
        """Read here, while Spark starts, what is not much."""
        from vstream.audit.extract import FEW, extract  # noqa: PLC0415

        if self._found is not None and self._found.messages <= FEW:
            self._beside = BackgroundExtraction(extract, self._found)

    def audit(self, spark: Any, scratch: Path, progress: Any) -> Report:
        """Read the streams, and judge what they hold."""
        from vstream.audit.progress import watch_progress  # noqa: PLC0415
        from vstream.audit.spark_errors import explain_spark_errors, is_reading  # noqa: PLC0415

        progress.begin("extract")
        with watch_progress(spark, progress.tasks):
            try:
                with explain_spark_errors():
                    found = self._extracted(spark, scratch)
            except VstreamError as error:
                if isinstance(error, NotReachableError) or not is_reading(error):
                    raise
                from vstream.cli.views import console  # noqa: PLC0415

                # A region that went down meanwhile is one that cannot be read: the next cut says so.
                console.print_note(f"· reading broke off, and begins again: {error.message}", style="dim")
                self._beside = None
                with explain_spark_errors():
                    found = self._extracted(spark, scratch)
            return self._run(spark, found, self._context(self._wanted.since_ns), progress, scratch)

    def follower(self, spark: Any, scratch: Path) -> Follower:
        """What audits again and again."""
        from vstream.audit.follow import WINDOW_NS, Follower  # noqa: PLC0415

        window_ns = self._wanted.since_ns or WINDOW_NS
        return Follower(
            spark=spark,
            streams=self._streams,
            endpoints=self._endpoints,
            scratch=scratch,
            context=self._context(window_ns),
            window_ns=window_ns,
        )

    def _context(self, since_ns: int | None) -> AuditContext:
        """What is known of the streams, looked at for so long (nanoseconds) or as a whole."""
        from vstream.audit.context import AuditContext  # noqa: PLC0415

        sample, names = self._wanted.sample, {one.virtual for one in self._streams}
        # A part that passes is not the whole: whoever reads the verdict sees what it is about.
        part = f", the last {format_duration(since_ns)}" if since_ns is not None else ""
        part += f", {sample} of the subjects" if sample is not None else ""
        return AuditContext(
            subject=f"{self._topology.name} on {self._target.description}{part}",
            models={one.name: one.consistency.value for one in self._topology.streams if one.name in names},
            is_narrow=since_ns is not None,
            is_sampled=sample is not None,
            stretch=self._topology.stretch.cluster if self._topology.stretch is not None else None,
        )

    def _extent(self, scratch: Path) -> ExtractPlan:
        from vstream.audit.extract import plan_extraction  # noqa: PLC0415

        since_ns = time.time_ns() - self._wanted.since_ns if self._wanted.since_ns else None
        return plan_extraction(self._streams, self._endpoints, scratch, since_ns=since_ns, subjects=self._wanted.sample)

    def _extracted(self, spark: Any, scratch: Path) -> AuditTables:
        from vstream.audit.frames import materialize, read_live, read_tables, to_spark, write_tables  # noqa: PLC0415

        place = self._wanted.tables
        if self._beside is not None:
            found = to_spark(spark, self._beside.result())
            self._beside = None
            if place is None:
                return found
        else:
            found = read_live(spark, self._extent(scratch), scratch)
        # Servers are read once: what is judged twice has to be the same.
        if place is None and str(spark.conf.get("spark.master", "")).startswith("local"):
            return materialize(found, uri_of(f"{scratch}/messages"))
        if place is None:
            return type(found)(messages=found.messages.persist(), streams=found.streams)
        write_tables(found, place)
        return read_tables(spark, place)


class CaptureSource(AuditSource):
    """What a scenario left."""

    def __init__(self, wanted: AuditRequest, path: Path) -> None:
        from vstream.capture.store import Capture  # noqa: PLC0415

        super().__init__(wanted)
        self._capture: Capture = Capture(path)
        self._manifest = self._capture.manifest()

    def size(self, _scratch: Path) -> int:
        """How many messages there are to read."""
        return sum(one.messages or 0 for one in self._manifest.streams)

    def begin(self) -> None:
        """Read it while Spark starts."""
        from vstream.audit.from_capture import extract_capture  # noqa: PLC0415

        self._beside = BackgroundExtraction(extract_capture, self._capture)

    def audit(self, spark: Any, scratch: Path, progress: Any) -> Report:
        """Judge what the capture holds, and what clients were told."""
        from vstream.audit.client_journal import journal_table  # noqa: PLC0415
        from vstream.audit.context import AuditContext  # noqa: PLC0415
        from vstream.audit.frames import to_spark  # noqa: PLC0415

        progress.begin("extract")
        from vstream.capture.records import FaultOutcome  # noqa: PLC0415

        manifest, wall = self._manifest, self._manifest.wall
        # What was not seen to bite is no outage to recover from, and what was not healed has no end.
        windows = [
            (one.asked, wall + one.injected, wall + one.healed)
            for one in self._capture.faults()
            if one.healed is not None and one.outcome is FaultOutcome.CONFIRMED
        ]
        context = AuditContext(
            subject=f"{manifest.scenario} in {self._capture.path}",
            models=manifest.models,
            windows=tuple(windows),
            unfinished=None if manifest.is_complete else manifest.stopped_by or "the run was killed, or goes on",
            has_journal=True,
            stretch=next((one.region for one in manifest.streams if one.region not in manifest.regions), None),
        )
        assert self._beside is not None
        found = to_spark(spark, self._beside.result())
        return self._run(spark, found, context, progress, scratch, journal_table(spark, self._capture))


class TablesSource(AuditSource):
    """Tables of an audit."""

    def __init__(self, wanted: AuditRequest, uri: str) -> None:
        super().__init__(wanted)
        # Of what is here it is plain without Spark, which takes seconds to start.
        if "://" not in uri and not (Path(uri) / "state").is_dir():
            raise VstreamError(
                f"`{uri}` holds no capture, and no tables of an audit",
                hint="`vstream scenario run` writes captures, `vstream audit --tables` writes tables",
            )
        self._uri = uri_of(uri)

    def size(self, _scratch: Path) -> int:
        """How many messages were extracted, where that is written here; in doubt, it is large."""
        from vstream.audit.frames import count_extracted  # noqa: PLC0415

        if not self._uri.startswith(_HERE):
            return SMALL
        count = count_extracted(Path(self._uri.removeprefix(_HERE)))
        return SMALL if count is None else count

    def begin(self) -> None:
        """Spark reads it."""

    def audit(self, spark: Any, scratch: Path, progress: Any) -> Report:
        """Do again what comes after what was kept."""
        from vstream.audit.context import read_context, read_journal  # noqa: PLC0415
        from vstream.audit.frames import read_tables  # noqa: PLC0415
        from vstream.audit.table_store import TableStore  # noqa: PLC0415

        shelf = TableStore(spark, reads=self._uri)
        found, context = read_tables(spark, self._uri), read_context(shelf, self._uri)
        # What another audit has left beside them is none of theirs.
        journal = read_journal(shelf) if context.has_journal else None
        return self._run(spark, found, context, progress, scratch, journal, reads=self._uri)


def _scratch_tables(spark: Any, found: AuditTables, scratch: Path) -> str | None:
    """Where tables are kept for as long as the audit takes: many rows are better in files than in memory."""
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        return None
    messages = sum(one.messages or 0 for one in found.streams.select("messages").collect())
    return uri_of(f"{scratch}/audit") if messages >= SMALL else None


def _check_no_move(topology: Topology) -> None:
    """In the midst of a move, read streams of the new layout source those of the old one: no origin is a message's own."""
    if topology.moves_to is not None:
        raise VstreamError(
            f"this topology moves to `{topology.moves_to.value}`: its new streams take what the old ones hold",
            hint="without `moves_to`, what clients use now is audited",
        )
    if topology.moves_from is not None:
        raise VstreamError(
            f"this topology moves from `{topology.moves_from.value}`: its new streams take what the old ones hold",
            hint="finish the move, and audit what was written since with `--since` (docs/changes.md)",
        )


def _check_streams(given: tuple[str, ...], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise typer.BadParameter(f"`{name}` is none of {', '.join(sorted(known))}", param_hint="--stream")
