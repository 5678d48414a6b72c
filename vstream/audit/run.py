"""
An audit from end to end: read or load the tables, run the stages, and return the report. Imports Spark.

`run_audit` does it once, `open_rounds` again and again.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from vstream.audit import frames, session
from vstream.audit.client_journal import make_journal_table
from vstream.audit.closed import ClosedPart
from vstream.audit.closing import judge_and_close
from vstream.audit.context import AuditContext, read_context, read_journal, save_context, save_journal
from vstream.audit.daemon_executor import DaemonExecutor
from vstream.audit.extract import (
    READ_BEFORE_SPARK,
    ExtractedTables,
    ExtractPlan,
    extract,
    plan_extraction,
    read_since_cuts,
)
from vstream.audit.follow import WINDOW_NS, Follower
from vstream.audit.from_capture import extract_capture
from vstream.audit.local_frames import from_arrow, make_table
from vstream.audit.progress import watch_progress
from vstream.audit.report import Report
from vstream.audit.request import (
    HERE,
    SMALL,
    AuditedServers,
    AuditProgress,
    AuditRequest,
    SparkAddress,
    check_streams,
    uri_of,
)
from vstream.audit.schema import MESSAGES, STREAMS
from vstream.audit.scratch import scratch_directory
from vstream.audit.source import register
from vstream.audit.spark_errors import convert_spark_errors, is_read_error
from vstream.audit.stages import AuditPipeline
from vstream.audit.state import AuditState, UnusableStateError
from vstream.audit.table_store import TableStore, publish_results, try_publishing
from vstream.capture.records import FaultOutcome
from vstream.capture.store import Capture
from vstream.errors import NotReachableError, VstreamError
from vstream.topology.units import spell_nanoseconds
from vstream.value_class import value_class

_SOON = 1.0
"""Seconds."""
_LONG_NS = 3600 * 10**9
"""An age in nanoseconds: what is removed at this age was there, for the most part, when Spark began to start."""


@value_class
class KeptTables(frames.AuditTables):
    """All messages that an audit's *state* keeps, and what came since. *closed* need not be judged again."""

    state: AuditState
    closed: ClosedPart
    arrivals: DataFrame
    """Messages that came while others were read (`read_since_cuts`), which the state does not keep."""
    stored_messages: int


@value_class
class AuditInput:
    """What is judged: *tables*, and the *journal* of a scenario's clients."""

    tables: frames.AuditTables
    context: AuditContext
    journal: DataFrame | None = None
    reads: str | None = None
    """The URI with the tables of earlier stages."""


@value_class
class Reading:
    """How the messages of one audit are read, chosen before Spark has started."""

    messages: int
    """Their number, which decides the size of Spark."""
    read: Callable[[Any, Callable[[str], None]], frames.AuditTables]
    """Returns them as tables of a Spark session, and tells its second argument what the user should know."""
    close: Callable[[], None] = lambda: None
    """Stops what has begun. Returns when it has ended, or after a second if a server does not answer."""


def begin_in_background(messages: int, work: Callable[[Event], ExtractedTables]) -> Reading:
    """Begin *work* in a thread of this process, while Spark starts."""
    given_up, thread = Event(), DaemonExecutor(1)
    extracted = thread.submit(work, given_up)
    thread.shutdown(wait=False)

    def close() -> None:
        given_up.set()
        wait([extracted], timeout=_SOON)

    return Reading(messages=messages, read=lambda spark, _: frames.to_spark(spark, extracted.result()), close=close)


class AuditTarget(ABC):
    """The input of an audit: servers, a capture or tables."""

    def __init__(self, request: AuditRequest) -> None:
        self._request = request

    @abstractmethod
    def begin_reading(self, scratch: Path) -> Reading:
        """Begin to read what can be read without Spark. Raises NotReachableError if no stream can be read."""

    def plan_later(self, scratch: Path) -> Reading:
        """As `begin_reading`, but servers are asked and read once Spark has started, wherever that is."""
        return self.begin_reading(scratch)

    @abstractmethod
    def read(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> AuditInput:
        """What to judge, from *reading*."""

    def audit(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> Report:
        """Read, judge, and store what was requested. Raises UnknownNameError for a stream that does not exist."""
        if self._request.publish is not None:
            try_publishing(spark, self._request.publish, self._request.publish_as)
        with watch_progress(spark, progress.tasks):
            return self._judge(spark, self.read(spark, scratch, progress, reading), scratch, progress)

    def _write_tables(self, spark: Any, tables: frames.AuditTables) -> frames.AuditTables:
        """*tables*, which are read from where the request wants them, if it names a place."""
        if self._request.tables is None:
            return tables
        frames.write_tables(tables, self._request.tables)
        return frames.read_tables(spark, self._request.tables)

    def _judge(self, spark: Any, audit_input: AuditInput, scratch: Path, progress: AuditProgress) -> Report:
        """Judge *audit_input*, and store all results if requested."""
        place, names = self._request.tables, self._request.streams
        tables, context, journal = audit_input.tables, audit_input.context, audit_input.journal
        store = TableStore(
            spark, place or _choose_scratch_uri(spark, tables, scratch), reads=audit_input.reads, virtuals=names
        )
        if place is not None and place != audit_input.reads:
            save_context(store, context)
            journal = save_journal(store, journal) if journal is not None else None
            store.seal()
        if names:
            check_streams(names, frames.virtual_names(tables))
            tables = frames.select_virtuals(tables, names)
            journal = journal.where(journal["virtual"].isin(list(names))) if journal is not None else None
            context = replace(context, models={name: context.models.get(name, "virtual") for name in names})
        pipeline = AuditPipeline(
            store=store,
            context=context,
            first_stage=self._request.first_stage,
            figures=self._request.figures,
            is_kept=place is not None or self._request.publish is not None,
            on_stage=lambda stage: progress.begin(stage.value),
        )
        report = pipeline.run(tables.messages, tables.streams, journal)
        if self._request.publish is not None:
            progress.begin("publish")
            publish_results(store, self._request.publish, self._request.publish_as)
        return report


class TopologyTarget(AuditTarget):
    """The servers of a topology."""

    def __init__(self, request: AuditRequest, servers: AuditedServers) -> None:
        super().__init__(request)
        self._topology = servers.topology
        self._description = servers.description
        self.endpoints = servers.endpoints
        self.streams = servers.streams

    def begin_reading(self, scratch: Path) -> Reading:
        """Ask the servers what they have; few messages are read in this process from now on."""
        plan = self.make_plan(scratch)
        if plan.messages <= READ_BEFORE_SPARK:
            return begin_in_background(plan.messages, partial(extract, plan))
        return Reading(messages=plan.messages, read=partial(self._read_plan, scratch, plan))

    def plan_later(self, scratch: Path) -> Reading:
        """Ask the servers once Spark has started, and read with it."""
        return Reading(messages=0, read=partial(self._read_plan, scratch, None))

    def read(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> AuditInput:
        """The messages of the servers; they are planned and read again if a server ends in the midst."""
        progress.begin("extract")
        try:
            tables = self._read_once(spark, scratch, progress, reading)
        except VstreamError as error:
            if isinstance(error, NotReachableError | UnusableStateError) or not is_read_error(error):
                raise
            # A region that went down meanwhile is one that cannot be read: the next cut says so.
            progress.note(f"reading was interrupted and starts again: {error.message}")
            tables = self._read_once(spark, scratch, progress, self.plan_later(scratch))
        return AuditInput(tables=tables, context=self._context(self._request.since_ns))

    def _read_once(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> frames.AuditTables:
        """The messages of *reading* where the request wants them, or where what is judged twice is read once."""
        with convert_spark_errors():
            tables = self._write_tables(spark, reading.read(spark, progress.note))
            if tables.plan is None:
                return tables
            if str(spark.conf.get("spark.master", "")).startswith("local"):
                return frames.materialize(tables, uri_of(f"{scratch}/messages"))
            return frames.cache_messages(tables)

    def _read_plan(
        self, scratch: Path, plan: ExtractPlan | None, spark: Any, _note: Callable[[str], None]
    ) -> frames.AuditTables:
        """Tables whose messages Spark's tasks read from servers when they are used."""
        return frames.read_live_tables(spark, self._renew_plan(plan, scratch), scratch)

    def begin_rounds(self, spark: Any, scratch: Path) -> Callable[[], Report]:
        """What audits the messages of a window with each call."""
        window_ns = self._request.since_ns or WINDOW_NS
        return Follower(
            spark=spark,
            streams=self.streams,
            endpoints=self.endpoints,
            scratch=scratch,
            context=self._context(window_ns),
            window_ns=window_ns,
            figures=self._request.figures,
        ).run_round

    def _context(self, since_ns: int | None) -> AuditContext:
        """The context of an audit of the last *since_ns* nanoseconds, or of everything."""
        sample, names = self._request.sample, {stream.virtual for stream in self.streams}
        # A part that passes is not the whole: whoever reads the verdict sees what it is about.
        part = f", the last {spell_nanoseconds(since_ns)}" if since_ns is not None else ""
        part += f", {sample} of the subjects" if sample is not None else ""
        return AuditContext(
            subject=f"{self._topology.name} on {self._description}{part}",
            models={stream.name: stream.consistency.value for stream in self._topology.streams if stream.name in names},
            is_narrow=since_ns is not None,
            is_sampled=sample is not None,
            stretch=self._topology.stretch.cluster if self._topology.stretch is not None else None,
        )

    def make_plan(self, scratch: Path) -> ExtractPlan:
        """What is to be read of what the servers have now. Raises NotReachableError if no stream can be read."""
        since_ns = time.time_ns() - self._request.since_ns if self._request.since_ns else None
        return plan_extraction(self.streams, self.endpoints, scratch, since_ns=since_ns, subjects=self._request.sample)

    def _renew_plan(self, plan: ExtractPlan | None, scratch: Path) -> ExtractPlan:
        """*plan*, or a new one if there is none, or if what the streams had then may be gone by now."""
        # Thousands of streams need not be asked again after Spark has started.
        if plan and not any((item.limits or {}).get("max_age", _LONG_NS) < _LONG_NS for item in plan.cuts):
            return plan
        return self.make_plan(scratch)


class StateTarget(TopologyTarget):
    """The servers of a topology, of which only what is new is read, and what a state at *place* does not prove is judged."""

    def __init__(self, request: AuditRequest, servers: AuditedServers, place: Path) -> None:
        super().__init__(request, servers)
        self._place = place

    def begin_reading(self, scratch: Path) -> Reading:
        """Ask the servers what they have."""
        plan = self.make_plan(scratch)
        return Reading(messages=plan.messages, read=partial(self._read_plan, scratch, plan))

    def _read_plan(
        self, scratch: Path, plan: ExtractPlan | None, spark: Any, note: Callable[[str], None]
    ) -> KeptTables:
        """All messages of the streams; only what is new since the last audit with the state is read from servers."""
        plan = self._renew_plan(plan, scratch)
        register(spark)
        state = AuditState(spark, self._place, self._topology.name)
        result = state.advance(plan.cuts, lambda cuts: frames.read_live_messages(spark, cuts, plan.access))
        again = f"; read again from the first message: {', '.join(result.reread)}" if result.reread else ""
        right = f"{result.closed.messages:,} were right before"
        closed = f"; {right}, and are not judged again" if result.closed.virtuals else ""
        note(f"{result.new:,} of {plan.messages:,} messages were read from servers{again}{closed}")
        schema = to_arrow_schema(MESSAGES)
        arrived = read_since_cuts(plan, schema)
        arrivals = from_arrow(spark, pa.Table.from_batches(arrived.batches, schema), MESSAGES)
        return KeptTables(
            messages=result.messages.unionByName(arrivals),
            streams=make_table(spark, plan.stream_rows(arrived), STREAMS),
            state=state,
            closed=result.closed,
            arrivals=arrivals,
            stored_messages=plan.messages,
        )

    def begin_rounds(self, spark: Any, scratch: Path) -> Callable[[], Report]:
        """What reads what is new with each call, and judges what is not closed."""

        def run_round() -> Report:
            with convert_spark_errors():
                tables = self._read_plan(scratch, None, spark, lambda _: None)
            return self._judge_open(spark, tables, scratch, lambda _: None)

        return run_round

    def _judge(self, spark: Any, audit_input: AuditInput, scratch: Path, progress: AuditProgress) -> Report:
        """Judge what is not closed, or everything if all results are wanted."""
        tables = audit_input.tables
        if isinstance(tables, KeptTables) and self._request.publish is None:
            return self._judge_open(spark, tables, scratch, progress.begin)
        return super()._judge(spark, audit_input, scratch, progress)

    def _judge_open(self, spark: Any, tables: KeptTables, scratch: Path, begin: Callable[[str], None]) -> Report:
        """Judge what is not closed in *tables*."""

        def make_pipeline(closed: ClosedPart) -> AuditPipeline:
            is_small = tables.stored_messages - closed.messages < SMALL
            return AuditPipeline(
                store=TableStore(spark, None if is_small else uri_of(f"{scratch}/audit")),
                context=self._context(None),
                figures=self._request.figures,
                closed=closed,
                on_stage=lambda stage: begin(stage.value),
            )

        with convert_spark_errors():
            try:
                return judge_and_close(tables.state, tables.closed, tables.streams, tables.arrivals, make_pipeline)
            finally:
                spark.catalog.clearCache()


class CaptureTarget(AuditTarget):
    """The capture of a scenario."""

    def __init__(self, request: AuditRequest, path: Path) -> None:
        super().__init__(request)
        self._capture: Capture = Capture(path)
        self._manifest = self._capture.manifest()

    def begin_reading(self, _scratch: Path) -> Reading:
        """Begin to read the capture."""
        messages = sum(stream.messages or 0 for stream in self._manifest.streams)
        return begin_in_background(messages, partial(extract_capture, self._capture))

    def read(self, spark: Any, _scratch: Path, progress: AuditProgress, reading: Reading) -> AuditInput:
        """The messages of the capture and the answers that clients got."""
        progress.begin("extract")
        manifest, wall = self._manifest, self._manifest.wall
        # What was not seen to bite is no outage to recover from, and what was not healed has no end.
        windows = []
        for fault in self._capture.faults():
            if fault.healed is not None and fault.outcome is FaultOutcome.CONFIRMED:
                windows.append((fault.asked, wall + fault.injected, wall + fault.healed))
        context = AuditContext(
            subject=f"{manifest.scenario} in {self._capture.path}",
            models=manifest.models,
            windows=tuple(windows),
            unfinished=None if manifest.is_complete else manifest.stopped_by or "the run was killed, or has not ended",
            has_journal=True,
            stretch=next((stream.region for stream in manifest.streams if stream.region not in manifest.regions), None),
        )
        tables = self._write_tables(spark, reading.read(spark, progress.note))
        return AuditInput(tables=tables, context=context, journal=make_journal_table(spark, self._capture))


class TablesTarget(AuditTarget):
    """The tables of an earlier audit."""

    def __init__(self, request: AuditRequest, uri: str) -> None:
        super().__init__(request)
        # Of what is here it is plain without Spark, which takes seconds to start.
        if "://" not in uri and not (Path(uri) / "state").is_dir():
            raise VstreamError(
                f"`{uri}` contains neither a capture nor tables of an audit",
                hint="`vstream scenario run` writes captures, `vstream audit --tables` writes tables",
            )
        self._uri = uri_of(uri)

    def begin_reading(self, _scratch: Path) -> Reading:
        """Nothing can be read without Spark but their number; if that is unknown, it is taken to be large."""
        is_here = self._uri.startswith(HERE)
        count = frames.count_extracted(Path(self._uri.removeprefix(HERE))) if is_here else None
        messages = SMALL if count is None else count
        return Reading(messages=messages, read=lambda spark, _: frames.read_tables(spark, self._uri))

    def read(self, spark: Any, _scratch: Path, progress: AuditProgress, reading: Reading) -> AuditInput:
        """The tables of an earlier audit, which the stages after those that made them read."""
        store = TableStore(spark, reads=self._uri)
        tables, context = reading.read(spark, progress.note), read_context(store, self._uri)
        # Files that another audit left beside them are not theirs.
        journal = read_journal(store) if context.has_journal else None
        if self._request.tables != self._uri:
            tables = self._write_tables(spark, tables)
        return AuditInput(tables=tables, context=context, journal=journal, reads=self._uri)


def open_target(request: AuditRequest, source: AuditedServers | Path | str) -> AuditTarget:
    """How *source* is audited: servers, a capture, or the URI of tables. Raises VstreamError if it cannot be."""
    if isinstance(source, str):
        return TablesTarget(request, source)
    if isinstance(source, Path):
        return CaptureTarget(request, source)
    return TopologyTarget(request, source) if request.state is None else StateTarget(request, source, request.state)


def run_audit(audit_target: AuditTarget, address: SparkAddress, progress: AuditProgress) -> Report:
    """Begin to read while Spark starts, and judge it all. Raises UnknownNameError for a stream that does not exist."""
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        # On this machine, what is to be read decides the size of Spark.
        begin = audit_target.begin_reading if address.is_here else audit_target.plan_later
        with closing(begin(scratch)) as reading, _open_spark(address, reading.messages, progress) as spark:
            return audit_target.audit(spark, scratch, progress, reading)


@contextmanager
def open_rounds(audit_target: TopologyTarget, progress: AuditProgress) -> Iterator[Callable[[], Report]]:
    """What audits a round with each call, on this machine, as `Follower.run_round`."""
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        messages = audit_target.make_plan(scratch).messages
        with _open_spark(SparkAddress(), messages, progress) as spark:
            yield audit_target.begin_rounds(spark, scratch)


@contextmanager
def _open_spark(address: SparkAddress, messages: int, progress: AuditProgress) -> Iterator[SparkSession]:
    """A session of the size that *messages* need."""
    with session.open_session(
        master=address.master,
        remote=address.remote,
        conf=session.size_settings(messages) if address.is_here else {},
        on_keeping=progress.keeping if address.is_here else None,
    ) as spark:
        exposure = session.cluster_exposure(address.master or "local", spark.conf.get("spark.authenticate", None))
        if exposure is not None:
            progress.note(exposure)
        yield spark


def _choose_scratch_uri(spark: Any, tables: frames.AuditTables, scratch: Path) -> str | None:
    """The URI for tables during the audit, None for memory: many rows are better in files."""
    if not str(spark.conf.get("spark.master", "")).startswith("local"):
        return None
    messages = sum(item.messages or 0 for item in tables.streams.select("messages").collect())
    return uri_of(f"{scratch}/audit") if messages >= SMALL else None
