"""
An audit from end to end: read or load the tables, run the stages, and return the report. Imports Spark.

`run_audit` does it once, `open_rounds` again and again.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

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
from vstream.audit.state import AuditState, StateAdvance, UnusableStateError
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
T = TypeVar("T")


@value_class
class KeptMessages:
    """What an audit with a state judges: *messages* stored messages in *streams*."""

    state: AuditState
    advance: StateAdvance
    streams: DataFrame
    arrivals: DataFrame
    """Messages that came while others were read (`read_since_cuts`), which the state does not keep."""
    messages: int


@dataclass(frozen=True, slots=True)
class AuditInput:
    """What is judged: *tables*, and the *journal* of a scenario's clients."""

    tables: frames.AuditTables
    context: AuditContext
    journal: DataFrame | None = None
    reads: str | None = None
    """The URI with the tables of earlier stages."""
    is_stored: bool = False
    """Whether *tables* are already where the request keeps them."""


@value_class
class Reading:
    """What an audit reads, as far as it is planned and begun before Spark has started. It serves one audit."""

    messages: int = 0
    plan: ExtractPlan | None = None
    """Of servers."""
    background: Future[ExtractedTables] | None = None
    given_up: Event = field(default_factory=Event)

    def begin(self, work: Callable[[Event], ExtractedTables]) -> Reading:
        """Start *work* in a thread of its own, and return the reading with it."""
        thread = DaemonExecutor(1)
        background = thread.submit(work, self.given_up)
        thread.shutdown(wait=False)
        return replace(self, background=background)

    def close(self) -> None:
        """Stop what has begun. Returns when it has ended, or after a second if a server does not answer."""
        self.given_up.set()
        if self.background is not None:
            wait([self.background], timeout=_SOON)


class AuditTarget(ABC):
    """The input of an audit: servers, a capture or tables."""

    def __init__(self, request: AuditRequest) -> None:
        self._request = request

    @abstractmethod
    def plan_reading(self, scratch: Path) -> Reading:
        """What is to be read. Raises NotReachableError if no stream can be read."""

    def start_reading(self, reading: Reading) -> Reading:
        """Start to read what can be read without Spark, while Spark starts."""
        return reading

    @abstractmethod
    def read(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> AuditInput:
        """The tables to judge. What *spark* has not read yet, it reads when they are judged."""

    def audit(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> Report:
        """Read, judge, and store what was requested. Raises UnknownNameError for a stream that does not exist."""
        if self._request.publish is not None:
            try_publishing(spark, self._request.publish, self._request.publish_as)
        with watch_progress(spark, progress.tasks):
            return self._read_and_judge(spark, scratch, progress, reading)

    def _read_and_judge(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> Report:
        """Judge everything."""
        return self._judge_input(spark, self.read(spark, scratch, progress, reading), scratch, progress)

    def prepare_rounds(self, spark: Any, scratch: Path) -> Callable[[], Report]:  # noqa: ARG002 - of servers alone
        """What audits a round with each call, as `Follower.run_round`. Raises VstreamError unless the input is a topology."""
        raise VstreamError("only a topology can be followed")

    def _judge_input(self, spark: Any, audit_input: AuditInput, scratch: Path, progress: AuditProgress) -> Report:
        """Judge *audit_input*, and store all results if requested."""
        place, names = self._request.tables, self._request.streams
        tables, context, journal = audit_input.tables, audit_input.context, audit_input.journal
        store = TableStore(
            spark, place or _choose_scratch_uri(spark, tables, scratch), reads=audit_input.reads, virtuals=names
        )
        if place is not None and place != audit_input.reads:
            if not audit_input.is_stored:
                frames.write_tables(tables, place)
                tables = frames.read_tables(spark, place)
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

    def plan_reading(self, scratch: Path) -> Reading:
        """What the servers have now. Raises NotReachableError if no stream can be read."""
        plan = self._plan_extraction(scratch)
        return Reading(messages=plan.messages, plan=plan)

    def start_reading(self, reading: Reading) -> Reading:
        """Start to read in this process if there are few messages."""
        if reading.plan is None or reading.messages > READ_BEFORE_SPARK or self._request.state is not None:
            return reading
        return reading.begin(partial(extract, reading.plan))

    def read(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> AuditInput:
        """The messages of the servers, in files or in memory: what is judged twice is read from servers once."""
        tables = self._read_with_retry(partial(self._read_tables, spark, scratch, progress), reading, progress)
        return AuditInput(tables, self._context(self._request.since_ns), is_stored=self._request.tables is not None)

    def _read_and_judge(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> Report:
        """With a state, judge only what is new and what it does not prove."""
        state, is_stored = self._request.state, self._request.tables is not None or self._request.publish is not None
        if state is None or is_stored:
            return super()._read_and_judge(spark, scratch, progress, reading)
        advance = partial(self.advance, spark, scratch, state, progress.note)
        stored = self._read_with_retry(advance, reading, progress)
        return self._judge_with_state(spark, stored, scratch, progress.begin)

    def _read_with_retry(self, read: Callable[[Reading], T], reading: Reading, progress: AuditProgress) -> T:
        """What *read* returns; it is called again, and plans again, if a server ends in the midst."""
        progress.begin("extract")
        try:
            with convert_spark_errors():
                return read(reading)
        except VstreamError as error:
            if isinstance(error, NotReachableError | UnusableStateError) or not is_read_error(error):
                raise
            # A region that went down meanwhile is one that cannot be read: the next cut says so.
            progress.note(f"reading was interrupted and starts again: {error.message}")
            with convert_spark_errors():
                return read(Reading())

    def prepare_rounds(self, spark: Any, scratch: Path) -> Callable[[], Report]:
        """What audits a round with each call: with a state all messages, else those of a window."""
        if self._request.state is not None:
            return partial(self._follow_state, spark, scratch, self._request.state)
        window_ns = self._request.since_ns or WINDOW_NS
        follower = Follower(
            spark=spark,
            streams=self.streams,
            endpoints=self.endpoints,
            scratch=scratch,
            context=self._context(window_ns),
            window_ns=window_ns,
            figures=self._request.figures,
        )
        return follower.run_round

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

    def _plan_extraction(self, scratch: Path, earlier: ExtractPlan | None = None) -> ExtractPlan:
        """The plan *earlier*, or a new one if what the streams had then may be gone by now."""
        # Thousands of streams need not be asked again after Spark has started.
        if earlier and not any((item.limits or {}).get("max_age", _LONG_NS) < _LONG_NS for item in earlier.cuts):
            return earlier
        since_ns = time.time_ns() - self._request.since_ns if self._request.since_ns else None
        return plan_extraction(self.streams, self.endpoints, scratch, since_ns=since_ns, subjects=self._request.sample)

    def advance(
        self, spark: Any, scratch: Path, place: Path, note: Callable[[str], None], reading: Reading
    ) -> KeptMessages:
        """The messages of the streams; reads only those that are new since the last audit with the state at *place*."""
        plan = self._plan_extraction(scratch, reading.plan)
        register(spark)
        state = AuditState(spark, place, self._topology.name)
        result = state.advance(plan.cuts, lambda cuts: frames.read_live_messages(spark, cuts, plan.access))
        again = f"; read again from the first message: {', '.join(result.reread)}" if result.reread else ""
        closed = (
            f"; {result.closed.messages:,} were right before, and are not judged again"
            if result.closed.virtuals
            else ""
        )
        note(f"{result.new:,} of {plan.messages:,} messages were read from servers{again}{closed}")
        schema = to_arrow_schema(MESSAGES)
        arrivals = read_since_cuts(plan, schema)
        return KeptMessages(
            state=state,
            advance=result,
            streams=make_table(spark, plan.stream_rows(arrivals), STREAMS),
            arrivals=from_arrow(spark, pa.Table.from_batches(arrivals.batches, schema), MESSAGES),
            messages=plan.messages,
        )

    def _judge_with_state(
        self, spark: Any, stored: KeptMessages, scratch: Path, begin: Callable[[str], None]
    ) -> Report:
        """Judge what is not closed in *stored*."""

        def make_pipeline(closed: ClosedPart) -> AuditPipeline:
            is_small = stored.messages - closed.messages < SMALL
            return AuditPipeline(
                store=TableStore(spark, None if is_small else uri_of(f"{scratch}/audit")),
                context=self._context(None),
                figures=self._request.figures,
                closed=closed,
                on_stage=lambda stage: begin(stage.value),
            )

        with convert_spark_errors():
            try:
                closed = stored.advance.closed
                return judge_and_close(stored.state, closed, stored.streams, stored.arrivals, make_pipeline)
            finally:
                spark.catalog.clearCache()

    def _follow_state(self, spark: Any, scratch: Path, place: Path) -> Report:
        """A round: read what is new, and judge what is not closed."""
        with convert_spark_errors():
            stored = self.advance(spark, scratch, place, lambda _: None, Reading())
        return self._judge_with_state(spark, stored, scratch, lambda _: None)

    def _read_tables(self, spark: Any, scratch: Path, progress: AuditProgress, reading: Reading) -> frames.AuditTables:
        """What a state, a reading in the background, or Spark reads from servers, kept as requested."""
        if self._request.state is not None:
            stored = self.advance(spark, scratch, self._request.state, progress.note, reading)
            messages = stored.advance.messages.unionByName(stored.arrivals)
            tables = frames.AuditTables(messages=messages, streams=stored.streams)
        elif reading.background is not None:
            tables = frames.to_spark(spark, reading.background.result())
        else:
            tables = frames.read_live_tables(spark, self._plan_extraction(scratch, reading.plan), scratch)
        return self._keep_tables(spark, tables, scratch)

    def _keep_tables(self, spark: Any, tables: frames.AuditTables, scratch: Path) -> frames.AuditTables:
        """*tables* where the request keeps them; else what would be read from servers, where it is read once."""
        if self._request.tables is not None:
            frames.write_tables(tables, self._request.tables)
            return frames.read_tables(spark, self._request.tables)
        if tables.plan is None:
            return tables
        if str(spark.conf.get("spark.master", "")).startswith("local"):
            return frames.materialize(tables, uri_of(f"{scratch}/messages"))
        return frames.cache_messages(tables)


class CaptureTarget(AuditTarget):
    """The capture of a scenario."""

    def __init__(self, request: AuditRequest, path: Path) -> None:
        super().__init__(request)
        self._capture: Capture = Capture(path)
        self._manifest = self._capture.manifest()

    def plan_reading(self, _scratch: Path) -> Reading:
        """The number of messages in the capture."""
        return Reading(messages=sum(stream.messages or 0 for stream in self._manifest.streams))

    def start_reading(self, reading: Reading) -> Reading:
        """Start to read the capture while Spark starts."""
        return reading.begin(partial(extract_capture, self._capture))

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
        assert reading.background is not None
        result = frames.to_spark(spark, reading.background.result())
        return AuditInput(result, context, make_journal_table(spark, self._capture))


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

    def plan_reading(self, _scratch: Path) -> Reading:
        """The number of extracted messages; if unknown, a large number."""
        is_here = self._uri.startswith(HERE)
        count = frames.count_extracted(Path(self._uri.removeprefix(HERE))) if is_here else None
        return Reading(messages=SMALL if count is None else count)

    def read(self, spark: Any, _scratch: Path, _progress: AuditProgress, _reading: Reading) -> AuditInput:
        """The tables of an earlier audit, which the stages after those that made them read."""
        store = TableStore(spark, reads=self._uri)
        result, context = frames.read_tables(spark, self._uri), read_context(store, self._uri)
        # Files that another audit left beside them are not theirs.
        journal = read_journal(store) if context.has_journal else None
        return AuditInput(result, context, journal, reads=self._uri)


def run_audit(audit_target: AuditTarget, address: SparkAddress, progress: AuditProgress) -> Report:
    """Begin to read while Spark starts, and judge it all. Raises UnknownNameError for a stream that does not exist."""
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        # On this machine, what is to be read decides the size of Spark.
        planned = audit_target.plan_reading(scratch) if address.is_here else Reading()
        with (
            closing(audit_target.start_reading(planned)) as reading,
            _open_spark(address, reading, progress) as spark,
        ):
            return audit_target.audit(spark, scratch, progress, reading)


@contextmanager
def open_rounds(audit_target: AuditTarget, progress: AuditProgress) -> Iterator[Callable[[], Report]]:
    """What audits a round with each call, on this machine, as `Follower.run_round`."""
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        reading = audit_target.plan_reading(scratch)
        with _open_spark(SparkAddress(), reading, progress) as spark:
            yield audit_target.prepare_rounds(spark, scratch)


@contextmanager
def _open_spark(address: SparkAddress, reading: Reading, progress: AuditProgress) -> Iterator[SparkSession]:
    """A session of the size that *reading* needs."""
    with session.open_session(
        master=address.master,
        remote=address.remote,
        conf=session.size_settings(reading.messages) if address.is_here else {},
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
