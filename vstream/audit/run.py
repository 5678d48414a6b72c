"""
An audit from end to end, in one line. Imports Spark.

From the target follows how it is read (`choose_extractor`). That begins before Spark has started (`begin_reading`) and
ends when it has (`read`); what was read is judged (`judge_input`), whatever the target is. `run_audit` does it once, and
`open_rounds` again and again.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from vstream.audit.extract.from_capture import extract_capture
from vstream.audit.extract.from_servers import (
    MAX_BEFORE_SPARK,
    ExtractedTables,
    ExtractPlan,
    extract,
    plan_extraction,
    read_plan,
)
from vstream.audit.follow import WINDOW_NS, Follower
from vstream.audit.judge.client_journal import JOURNAL, make_journal_table
from vstream.audit.report import Report
from vstream.audit.request import (
    LOCAL_SCHEME,
    SMALL_AUDIT_MESSAGES,
    AuditedServers,
    AuditedTables,
    AuditProgress,
    AuditRequest,
    AuditTarget,
    SparkAddress,
    require_streams,
    uri_of,
)
from vstream.audit.scratch import scratch_directory
from vstream.audit.spark.daemon_threads import DaemonExecutor
from vstream.audit.spark.local_frames import from_arrow, make_table, select_virtuals
from vstream.audit.spark.progress import watch_progress
from vstream.audit.spark.session import cluster_exposure, is_local, open_session, size_settings
from vstream.audit.spark.spark_errors import convert_spark_errors, is_read_error
from vstream.audit.stages import AuditPipeline
from vstream.audit.state.closing import StateMessages, judge_and_close
from vstream.audit.state.state import AuditState, UnusableStateError
from vstream.audit.tables import audit_tables
from vstream.audit.tables.context import AuditContext, read_context, save_context
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore, publish_results, try_publishing
from vstream.capture.records import FaultOutcome
from vstream.capture.store import Capture
from vstream.errors import NotReachableError, VstreamError
from vstream.topology.units import spell_nanoseconds
from vstream.value_class import value_class

_SOON_TIMEOUT = 1.0
_LONG_AGE_NS = 3600 * 10**9
"""An age in nanoseconds: what is removed at this age was there, for the most part, when Spark began to start."""


def run_audit(request: AuditRequest, target: AuditTarget, address: SparkAddress, progress: AuditProgress) -> Report:
    """Begin to read *target* while Spark starts, and judge it all. Raises UnknownNameError for a stream that does not exist."""
    extractor = choose_extractor(request, target)
    progress.begin("start Spark")
    with (
        scratch_directory() as scratch,
        closing(extractor.begin_reading(scratch, address)) as begun,
        _open_spark(address, begun.messages, progress) as spark,
    ):
        return extract_and_judge(extractor, AuditSession(spark=spark, scratch=scratch, progress=progress), begun)


@contextmanager
def open_rounds(
    request: AuditRequest, servers: AuditedServers, progress: AuditProgress
) -> Iterator[Callable[[], Report]]:
    """What audits a round with each call, on this machine. Raises VstreamError, after which the next round may succeed."""
    extractor = make_servers_extractor(request, servers)
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        messages = extractor.make_plan(scratch).messages
        with _open_spark(SparkAddress(), messages, progress) as spark:
            session = AuditSession(spark=spark, scratch=scratch, progress=AuditProgress())
            yield extractor.begin_rounds(session)


@value_class
class AuditSession:
    """What an audit works with."""

    spark: Any
    scratch: Path
    """A directory for credentials and rows, which is removed at the end."""
    progress: AuditProgress


@value_class
class BegunReading:
    """What was done of the reading before Spark has started: nothing, unless it is one of those below."""

    messages: int = 0
    """The number of messages to read, which decides the size of Spark."""

    def close(self) -> None:
        """Stop what has begun."""


@value_class
class PlannedReading(BegunReading):
    """Servers were asked what they have. Spark reads it."""

    plan: ExtractPlan


@value_class
class EarlyReading(BegunReading):
    """Everything is read in a thread of this process, while Spark starts."""

    extracted: Future[ExtractedTables]
    given_up: Event

    @classmethod
    def begin(cls, read: Callable[[Event], ExtractedTables], messages: int) -> EarlyReading:
        """Begin to *read* so many *messages*, which ends early once its event is set."""
        given_up, thread = Event(), DaemonExecutor(1)
        extracted = thread.submit(read, given_up)
        thread.shutdown(wait=False)
        return cls(messages=messages, extracted=extracted, given_up=given_up)

    def close(self) -> None:
        """Give up. Returns when the reading has ended, or after a second if a server does not answer."""
        self.given_up.set()
        wait([self.extracted], timeout=_SOON_TIMEOUT)


NOT_BEGUN = BegunReading()


@value_class
class AuditInput:
    """What is judged: *tables*, and the *journal* of a scenario's clients."""

    tables: audit_tables.AuditTables
    context: AuditContext
    journal: DataFrame | None = None
    earlier_uri: str | None = None
    """Where an earlier audit has kept these, and the tables of its stages; None if they were read now."""
    state_messages: StateMessages | None = None
    """None without a state."""


class TargetExtractor(ABC):
    """How a target is read: servers, a capture or tables."""

    def __init__(self, request: AuditRequest) -> None:
        self.request = request

    @abstractmethod
    def begin_reading(self, scratch: Path, address: SparkAddress) -> BegunReading:
        """Begin to read what can be read without the Spark at *address*. Raises NotReachableError if nothing can be."""

    @abstractmethod
    def read(self, session: AuditSession, begun: BegunReading) -> AuditInput:
        """Read what is left to be read after *begun*."""


class MessageReader(ABC):
    """How tasks of Spark read what is planned to be read of servers."""

    is_whole: ClassVar[bool]
    """Whether all that is planned is read from servers."""

    @abstractmethod
    def read(self, session: AuditSession, plan: ExtractPlan) -> tuple[audit_tables.AuditTables, StateMessages | None]:
        """The messages of *plan*, and what a state keeps of them; None without a state."""


@value_class
class WholeReader(MessageReader):
    """Reads all messages from servers."""

    tables_uri: str | None
    """Where they are stored; None for memory."""
    is_whole = True

    def read(self, session: AuditSession, plan: ExtractPlan) -> tuple[audit_tables.AuditTables, None]:
        """The messages of *plan*."""
        return audit_tables.extract_tables(session.spark, plan, session.scratch, self.tables_uri), None


@value_class
class StateReader(MessageReader):
    """Reads from servers what is new since the last audit with the state in *directory*, of the topology *name*."""

    directory: Path
    name: str
    tables_uri: str | None
    """As of `WholeReader`."""
    is_whole = False

    def read(self, session: AuditSession, plan: ExtractPlan) -> tuple[audit_tables.AuditTables, StateMessages]:
        """All messages of the streams of *plan*, those from the state, too."""
        state = AuditState(session.spark, self.directory, self.name)
        extraction = read_plan(plan, state)
        advance = extraction.messages
        again = f"; read again from the first message: {', '.join(advance.reread)}" if advance.reread else ""
        right = f"{advance.closed.messages:,} were right before"
        closed = f"; {right}, and are not judged again" if advance.closed.virtuals else ""
        session.progress.note(f"{advance.new:,} of {plan.messages:,} messages were read from servers{again}{closed}")
        arrivals = from_arrow(session.spark, extraction.arrivals, MESSAGES)
        tables = audit_tables.AuditTables(
            messages=advance.messages.unionByName(arrivals),
            streams=make_table(session.spark, extraction.streams, STREAMS),
        )
        state_messages = StateMessages(state=state, closed=advance.closed, arrivals=arrivals, number=plan.messages)
        return audit_tables.store_tables(tables, self.tables_uri), state_messages


class TopologyExtractor(TargetExtractor):
    """How the servers of a topology are read: messages by *reader*."""

    def __init__(self, request: AuditRequest, servers: AuditedServers, reader: MessageReader) -> None:
        super().__init__(request)
        self._reader = reader
        self._topology = servers.topology
        self._description = servers.description
        self.endpoints = servers.endpoints
        self.streams = servers.streams

    def begin_reading(self, scratch: Path, address: SparkAddress) -> BegunReading:
        """Ask the servers what they have, if Spark is here; few messages are read in this process from now on."""
        if not address.is_local:
            return NOT_BEGUN
        plan = self.make_plan(scratch)
        if self._reader.is_whole and plan.messages <= MAX_BEFORE_SPARK:
            return EarlyReading.begin(partial(extract, plan), plan.messages)
        return PlannedReading(messages=plan.messages, plan=plan)

    def read(self, session: AuditSession, begun: BegunReading) -> AuditInput:
        """The messages of the servers; they are planned and read again if a server ends in the midst."""
        session.progress.begin("extract")
        try:
            return self._read_once(session, begun)
        except VstreamError as error:
            if isinstance(error, NotReachableError | UnusableStateError) or not is_read_error(error):
                raise
            # A region that went down meanwhile is one that cannot be read: the next cut says so.
            session.progress.note(f"reading was interrupted and starts again: {error.message}")
            return self._read_once(session, NOT_BEGUN)

    def _read_once(self, session: AuditSession, begun: BegunReading) -> AuditInput:
        with convert_spark_errors():
            match begun:
                case EarlyReading():
                    tables = audit_tables.to_spark(session.spark, begun.extracted.result())
                    tables = audit_tables.store_tables(tables, self.request.tables_uri)
                    return AuditInput(tables=tables, context=self._make_context(self.request.since_ns))
                case PlannedReading():
                    plan = self._renew_plan(begun.plan, session.scratch)
                case _:
                    plan = self.make_plan(session.scratch)
            return self._read_planned(session, plan)

    def _read_planned(self, session: AuditSession, plan: ExtractPlan) -> AuditInput:
        tables, state_messages = self._reader.read(session, plan)
        context = self._make_context(self.request.since_ns)
        return AuditInput(tables=tables, context=context, state_messages=state_messages)

    def run_round(self, session: AuditSession) -> Report:
        """Judge all that the servers have now; with a state, what is not closed."""
        with convert_spark_errors():
            audit_input = self._read_planned(session, self.make_plan(session.scratch))
        return judge_input(session, self.request, audit_input)

    def begin_rounds(self, session: AuditSession) -> Callable[[], Report]:
        """What audits a round with each call: all messages, which a state keeps, or those of a window."""
        if self.request.state is not None:
            return partial(self.run_round, session)
        window_ns = self.request.since_ns or WINDOW_NS
        return Follower(
            spark=session.spark,
            streams=self.streams,
            endpoints=self.endpoints,
            scratch=session.scratch,
            context=self._make_context(window_ns),
            window_ns=window_ns,
            max_shown=self.request.max_shown,
        ).run_round

    def make_plan(self, scratch: Path) -> ExtractPlan:
        """What is to be read of what the servers have now. Raises NotReachableError if no stream can be read."""
        since_ns = time.time_ns() - self.request.since_ns if self.request.since_ns else None
        return plan_extraction(self.streams, self.endpoints, scratch, since_ns=since_ns, sample=self.request.sample)

    def _renew_plan(self, plan: ExtractPlan, scratch: Path) -> ExtractPlan:
        """*plan*, or a new one if what the streams had then may be gone by now."""
        # Thousands of streams need not be asked again after Spark has started.
        if any((item.limits or {}).get("max_age", _LONG_AGE_NS) < _LONG_AGE_NS for item in plan.cuts):
            return self.make_plan(scratch)
        return plan

    def _make_context(self, since_ns: int | None) -> AuditContext:
        """The context of an audit of the last *since_ns* nanoseconds, or of everything."""
        sample, names = self.request.sample, {stream.virtual for stream in self.streams}
        # A part that passes is not the whole: whoever reads the verdict sees what it is about.
        part = f", the last {spell_nanoseconds(since_ns)}" if since_ns is not None else ""
        part += f", {sample} of the subjects" if sample is not None else ""
        return AuditContext(
            subject=f"{self._topology.name} on {self._description}{part}",
            models={stream.name: stream.consistency.value for stream in self._topology.streams if stream.name in names},
            with_canary=frozenset(stream.name for stream in self._topology.streams if stream.canary is not None),
            is_narrow=since_ns is not None,
            is_sampled=sample is not None,
            stretch=self._topology.stretch.cluster if self._topology.stretch is not None else None,
        )


class CaptureExtractor(TargetExtractor):
    """How the *capture* of a scenario is read. Raises VstreamError if it cannot be."""

    def __init__(self, request: AuditRequest, capture: Capture) -> None:
        super().__init__(request)
        self._capture = capture
        self._manifest = capture.manifest()

    def begin_reading(self, _scratch: Path, _address: SparkAddress) -> BegunReading:
        """Begin to read the capture."""
        messages = sum(stream.messages or 0 for stream in self._manifest.streams)
        return EarlyReading.begin(partial(extract_capture, self._capture), messages)

    def read(self, session: AuditSession, begun: BegunReading) -> AuditInput:
        """The messages of the capture and the answers that clients got."""
        session.progress.begin("extract")
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
        assert isinstance(begun, EarlyReading)
        tables = audit_tables.to_spark(session.spark, begun.extracted.result())
        tables = audit_tables.store_tables(tables, self.request.tables_uri)
        return AuditInput(tables=tables, context=context, journal=make_journal_table(session.spark, self._capture))


class TablesExtractor(TargetExtractor):
    """How the tables of an earlier audit at *uri* are read."""

    def __init__(self, request: AuditRequest, uri: str) -> None:
        super().__init__(request)
        self._uri = uri

    def begin_reading(self, _scratch: Path, _address: SparkAddress) -> BegunReading:
        """Nothing can be read without Spark but their number; if that is unknown, it is taken to be large."""
        is_local = self._uri.startswith(LOCAL_SCHEME)
        count = audit_tables.count_extracted(Path(self._uri.removeprefix(LOCAL_SCHEME))) if is_local else None
        return BegunReading(messages=SMALL_AUDIT_MESSAGES if count is None else count)

    def read(self, session: AuditSession, _begun: BegunReading) -> AuditInput:
        """The tables of an earlier audit, which the stages after those that made them read."""
        store = TableStore(session.spark, earlier=self._uri)
        tables, context = audit_tables.read_tables(session.spark, self._uri), read_context(store, self._uri)
        # Files that another audit left beside them are not theirs.
        journal = store.read_earlier("journal", JOURNAL) if context.has_journal else None
        if self.request.tables_uri != self._uri:
            tables = audit_tables.store_tables(tables, self.request.tables_uri)
        return AuditInput(tables=tables, context=context, journal=journal, earlier_uri=self._uri)


def choose_extractor(request: AuditRequest, target: AuditTarget) -> TargetExtractor:
    """How *target* is read. Raises VstreamError if it cannot be."""
    match target:
        case AuditedServers():
            return make_servers_extractor(request, target)
        case Capture():
            return CaptureExtractor(request, target)
        case AuditedTables():
            return TablesExtractor(request, target.uri)


def make_servers_extractor(request: AuditRequest, servers: AuditedServers) -> TopologyExtractor:
    """How *servers* are read: with or without a state."""
    reader: MessageReader = WholeReader(tables_uri=request.tables_uri)
    if request.state is not None:
        reader = StateReader(directory=request.state, name=servers.topology.name, tables_uri=request.tables_uri)
    return TopologyExtractor(request, servers, reader)


def extract_and_judge(extractor: TargetExtractor, session: AuditSession, begun: BegunReading) -> Report:
    """Read what is left after *begun*, judge it, and store what was requested."""
    request = extractor.request
    if request.publish is not None:
        try_publishing(session.spark, request.publish, request.publish_as)
    with watch_progress(session.spark, session.progress.tasks):
        return judge_input(session, request, extractor.read(session, begun))


def judge_input(session: AuditSession, request: AuditRequest, audit_input: AuditInput) -> Report:
    """Judge *audit_input*: with a state, what is not closed, unless all results are wanted."""
    pipeline = AuditPipeline(
        store=TableStore(session.spark),
        context=audit_input.context,
        max_shown=request.max_shown,
        on_stage=lambda stage: session.progress.begin(stage.value),
    )
    state_messages = audit_input.state_messages
    if state_messages is None or request.tables_uri is not None or request.publish is not None:
        return _judge_all(session, request, audit_input, pipeline)
    scratch_uri = uri_of(f"{session.scratch}/audit")
    with convert_spark_errors():
        try:
            return judge_and_close(state_messages, audit_input.tables.streams, pipeline, scratch_uri).report
        finally:
            session.spark.catalog.clearCache()


def _judge_all(
    session: AuditSession, request: AuditRequest, audit_input: AuditInput, pipeline: AuditPipeline
) -> Report:
    """Judge all of *audit_input* by *pipeline*, and store all results if requested."""
    tables_uri, names = request.tables_uri, request.streams
    tables, context, journal = audit_input.tables, audit_input.context, audit_input.journal
    uri = tables_uri or _choose_scratch_uri(session, tables)
    store = TableStore(session.spark, uri, earlier=audit_input.earlier_uri, virtuals=names)
    if tables_uri is not None and tables_uri != audit_input.earlier_uri:
        save_context(store, context)
        journal = store.keep("journal", journal, JOURNAL) if journal is not None else None
        store.seal()
    if names:
        require_streams(names, {row.virtual for row in tables.streams.select("virtual").distinct().collect()})
        tables = audit_tables.AuditTables(
            messages=select_virtuals(tables.messages, names), streams=select_virtuals(tables.streams, names)
        )
        journal = select_virtuals(journal, names) if journal is not None else None
        context = replace(context, models={name: context.models.get(name, "virtual") for name in names})
    is_kept = tables_uri is not None or request.publish is not None
    pipeline = replace(pipeline, store=store, context=context, first_stage=request.first_stage, is_kept=is_kept)
    report = pipeline.run(tables.messages, tables.streams, journal)
    if request.publish is not None:
        session.progress.begin("publish")
        publish_results(store, request.publish, request.publish_as)
    return report


@contextmanager
def _open_spark(address: SparkAddress, messages: int, progress: AuditProgress) -> Iterator[SparkSession]:
    """A session of the size that *messages* need."""
    with open_session(
        master=address.master,
        remote=address.remote,
        conf=size_settings(messages) if address.is_local else {},
        on_keeping=progress.keeping if address.is_local else None,
    ) as spark:
        exposure = cluster_exposure(address.master or "local", spark.conf.get("spark.authenticate", None))
        if exposure is not None:
            progress.note(exposure)
        yield spark


def _choose_scratch_uri(session: AuditSession, tables: audit_tables.AuditTables) -> str | None:
    """The URI for tables during the audit, None for memory: many rows are better in files."""
    if not is_local(session.spark):
        return None
    messages = sum(item.messages or 0 for item in tables.streams.select("messages").collect())
    return uri_of(f"{session.scratch}/audit") if messages >= SMALL_AUDIT_MESSAGES else None
