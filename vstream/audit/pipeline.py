"""
An audit from end to end: read a target into tables, run the stages on these, and keep what was requested. Imports Spark.

`run_audit` does it once, and `open_rounds` again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from pyspark.sql import DataFrame

from vstream.audit.extract.from_capture import begin_reading_capture
from vstream.audit.extract.from_servers import begin_reading_servers, plan_servers, read_servers
from vstream.audit.extract.from_tables import begin_reading_tables
from vstream.audit.extract.target_reader import AuditInput, TargetReader
from vstream.audit.follow import make_follower
from vstream.audit.judge.client_journal import JOURNAL
from vstream.audit.report import Report
from vstream.audit.request import (
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
from vstream.audit.spark.audit_session import AuditSession, open_spark
from vstream.audit.spark.local_frames import select_virtuals
from vstream.audit.spark.progress import watch_progress
from vstream.audit.spark.session import is_local
from vstream.audit.spark.spark_errors import convert_spark_errors
from vstream.audit.stages import StageRunner
from vstream.audit.state.incremental import StateMessages, judge_unverified
from vstream.audit.tables.audit_tables import AuditTables
from vstream.audit.tables.context import AuditContext, save_context
from vstream.audit.tables.table_store import TableStore, publish_results, try_publishing
from vstream.capture.store import Capture


def run_audit(request: AuditRequest, target: AuditTarget, address: SparkAddress, progress: AuditProgress) -> Report:
    """Read *target* and report on it. Raises UnknownNameError for a stream that does not exist."""
    progress.begin("start Spark")
    with (
        scratch_directory() as scratch,
        closing(begin_reading(request, target, address, scratch)) as reader,
        open_spark(address, reader.messages, progress) as spark,
    ):
        session = AuditSession(spark=spark, scratch=scratch, progress=progress)
        return read_and_judge(request, reader, session)


@contextmanager
def open_rounds(
    request: AuditRequest, servers: AuditedServers, progress: AuditProgress
) -> Iterator[Callable[[], Report]]:
    """
    What audits a round with each call, on this machine: all messages, which a state keeps, or those of a window.

    Raises VstreamError, after which the next round may succeed.
    """
    progress.begin("start Spark")
    with scratch_directory() as scratch:
        messages = plan_servers(request, servers, scratch).messages
        with open_spark(SparkAddress(), messages, progress) as spark:
            session = AuditSession(spark=spark, scratch=scratch, progress=AuditProgress())
            if request.state is None:
                yield make_follower(request, servers, session).run_round
            else:
                yield lambda: judge(request, read_servers(request, servers, session), session)


def begin_reading(request: AuditRequest, target: AuditTarget, address: SparkAddress, scratch: Path) -> TargetReader:
    """Begin to read *target*, as far as that needs no Spark. Raises VstreamError if it cannot be read."""
    match target:
        case AuditedServers():
            return begin_reading_servers(request, target, address, scratch)
        case Capture():
            return begin_reading_capture(request, target)
        case AuditedTables():
            return begin_reading_tables(request, target.uri)


def read_and_judge(request: AuditRequest, reader: TargetReader, session: AuditSession) -> Report:
    """Read what is left to be read, and judge all of it."""
    if request.publish is not None:
        try_publishing(session.spark, request.publish, request.publish_as)
    with watch_progress(session.spark, session.progress.tasks):
        return judge(request, reader.read(session), session)


def judge(request: AuditRequest, audit_input: AuditInput, session: AuditSession) -> Report:
    """Run the stages on *audit_input*: with a state, on what is not verified, unless all results are wanted."""
    state_messages = audit_input.state_messages
    if state_messages is None or _are_tables_kept(request):
        return _judge_all(request, audit_input, session)
    runner = _make_runner(request, audit_input.context, TableStore(session.spark), session)
    return _judge_unverified(state_messages, audit_input.tables.streams, session, runner)


def _are_tables_kept(request: AuditRequest) -> bool:
    return request.tables_uri is not None or request.publish is not None


def _make_runner(request: AuditRequest, context: AuditContext, store: TableStore, session: AuditSession) -> StageRunner:
    return StageRunner(
        store=store,
        context=context,
        first_stage=request.first_stage,
        max_shown=request.max_shown,
        on_stage=lambda stage: session.progress.begin(stage.value),
        is_kept=_are_tables_kept(request),
    )


def _judge_unverified(
    state_messages: StateMessages, streams: DataFrame, session: AuditSession, runner: StageRunner
) -> Report:
    """Judge what no earlier audit found right."""
    with convert_spark_errors():
        try:
            return judge_unverified(state_messages, streams, runner, _scratch_uri(session)).report
        finally:
            session.spark.catalog.clearCache()


def _judge_all(request: AuditRequest, audit_input: AuditInput, session: AuditSession) -> Report:
    """Judge all of *audit_input*, and keep and publish all tables if requested."""
    tables_uri, names = request.tables_uri, request.streams
    tables, context, journal = audit_input.tables, audit_input.context, audit_input.journal
    uri = tables_uri or _choose_uri(session, tables)
    store = TableStore(session.spark, uri, earlier=audit_input.earlier_uri, virtuals=names)
    if tables_uri is not None and tables_uri != audit_input.earlier_uri:
        save_context(store, context)
        journal = store.keep("journal", journal, JOURNAL) if journal is not None else None
        store.seal()
    if names:
        require_streams(names, {row.virtual for row in tables.streams.select("virtual").distinct().collect()})
        tables = AuditTables(
            messages=select_virtuals(tables.messages, names), streams=select_virtuals(tables.streams, names)
        )
        journal = select_virtuals(journal, names) if journal is not None else None
        context = replace(context, models={name: context.models.get(name, "virtual") for name in names})
    runner = _make_runner(request, context, store, session)
    report = runner.run(tables.messages, tables.streams, journal).report
    if request.publish is not None:
        session.progress.begin("publish")
        publish_results(store, request.publish, request.publish_as)
    return report


def _choose_uri(session: AuditSession, tables: AuditTables) -> str | None:
    """The URI for tables during the audit, None for memory: many rows are better in files."""
    if not is_local(session.spark):
        return None
    messages = sum(item.messages or 0 for item in tables.streams.select("messages").collect())
    return _scratch_uri(session) if messages >= SMALL_AUDIT_MESSAGES else None


def _scratch_uri(session: AuditSession) -> str:
    return uri_of(f"{session.scratch}/audit")
