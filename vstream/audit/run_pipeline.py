"""Run the stages on what was read, and store what was requested: all tables, the results, or what need not be judged again."""

from __future__ import annotations

from dataclasses import replace

from vstream.audit.audit_session import AuditSession
from vstream.audit.extract.target_reader import AuditInput
from vstream.audit.judge.client_journal import JOURNAL
from vstream.audit.pipeline import AuditPipeline
from vstream.audit.report import Report
from vstream.audit.request import SMALL_AUDIT_MESSAGES, AuditRequest, require_streams, uri_of
from vstream.audit.spark.local_frames import select_virtuals
from vstream.audit.spark.session import is_local
from vstream.audit.spark.spark_errors import convert_spark_errors
from vstream.audit.state.incremental import StateMessages, judge_unverified
from vstream.audit.tables.audit_tables import AuditTables
from vstream.audit.tables.context import save_context
from vstream.audit.tables.table_store import TableStore, publish_results


def run_pipeline(request: AuditRequest, audit_input: AuditInput, session: AuditSession) -> Report:
    """Judge *audit_input*: with a state, what is not verified, unless all results are wanted."""
    pipeline = AuditPipeline(
        store=TableStore(session.spark),
        context=audit_input.context,
        max_shown=request.max_shown,
        on_stage=lambda stage: session.progress.begin(stage.value),
    )
    state_messages, is_kept = audit_input.state_messages, request.tables_uri is not None or request.publish is not None
    if state_messages is None or is_kept:
        return _judge_all(request, audit_input, session, replace(pipeline, is_kept=is_kept))
    return _judge_unverified(state_messages, audit_input, session, pipeline)


def _judge_unverified(
    state_messages: StateMessages, audit_input: AuditInput, session: AuditSession, pipeline: AuditPipeline
) -> Report:
    """Judge what no earlier audit found right."""
    with convert_spark_errors():
        try:
            streams, uri = audit_input.tables.streams, _scratch_uri(session)
            return judge_unverified(state_messages, streams, pipeline, uri).report
        finally:
            session.spark.catalog.clearCache()


def _judge_all(
    request: AuditRequest, audit_input: AuditInput, session: AuditSession, pipeline: AuditPipeline
) -> Report:
    """Judge all of *audit_input*, and store all results if requested."""
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
    pipeline = replace(pipeline, store=store, context=context, first_stage=request.first_stage)
    report = pipeline.make_report(tables.messages, tables.streams, journal)
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
