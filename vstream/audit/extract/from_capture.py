"""
The tables of a scenario's capture, equal to those read from servers at the end of the run.

They are read on this machine, in Arrow format: a capture has a few hundred thousand messages, and errors name the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice, takewhile
from threading import Event
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from vstream.audit.connector.values import ReadSnapshot, SourceCursor, StreamRef
from vstream.audit.extract.background_read import BackgroundRead, begin_background_read
from vstream.audit.extract.extraction import ArrowTables
from vstream.audit.extract.stream_rows import make_stream_row
from vstream.audit.extract.target_reader import AuditInput
from vstream.audit.judge.client_journal import make_journal_table
from vstream.audit.request import AuditRequest
from vstream.audit.spark.audit_session import AuditSession
from vstream.audit.tables.audit_tables import store_tables, to_spark
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES
from vstream.audit.tables.stream_settings import CAPTURE
from vstream.capture.digest import to_signed_int64
from vstream.capture.records import CapturedStream, FaultOutcome, Manifest, Sample, StoredRecord
from vstream.capture.store import Capture
from vstream.value_class import value_class

_BATCH_ROWS = 65_536


def begin_reading_capture(request: AuditRequest, capture: Capture) -> CaptureReader:
    """Begin to read *capture*. Raises VstreamError if it is none."""
    messages = sum(stream.messages or 0 for stream in capture.manifest().streams)
    background = begin_background_read(partial(extract_capture, capture))
    return CaptureReader(request=request, capture=capture, messages=messages, background=background)


@value_class
class CaptureReader:
    """Reads *capture*."""

    request: AuditRequest
    capture: Capture
    messages: int
    background: BackgroundRead

    def read(self, session: AuditSession) -> AuditInput:
        """The messages of the capture and the answers that clients got."""
        session.progress.begin("extract")
        tables = store_tables(to_spark(session.spark, self.background.tables.result()), self.request.tables_uri)
        journal = make_journal_table(session.spark, self.capture)
        return AuditInput(tables=tables, context=_make_context(self.capture), journal=journal)

    def close(self) -> None:
        """Stop reading."""
        self.background.stop()


def _make_context(capture: Capture) -> AuditContext:
    manifest, wall = capture.manifest(), capture.manifest().wall
    # What was not seen to bite is no outage to recover from, and what was not healed has no end.
    windows = []
    for fault in capture.faults():
        if fault.healed is not None and fault.outcome is FaultOutcome.CONFIRMED:
            windows.append((fault.command, wall + fault.injected, wall + fault.healed))
    return AuditContext(
        subject=f"{manifest.scenario} in {capture.path}",
        models=manifest.models,
        windows=tuple(windows),
        unfinished=None if manifest.is_complete else manifest.stopped_by or "the run was killed, or has not ended",
        has_journal=True,
        stretch=next((stream.region for stream in manifest.streams if stream.region not in manifest.regions), None),
    )


def extract_capture(capture: Capture, is_stopped: Event | None = None) -> ArrowTables:
    """
    Read the tables of *capture*. Stops early once *is_stopped* is set.

    A capture does not contain the servers' state, so `first_seq` and `num_deleted` are
    computed from the messages; a higher `last_seq` may come from samples of the running
    scenario. Raises VstreamError if it is not a capture, or if a line is invalid.
    """
    manifest = capture.manifest()
    samples = list(capture.samples())
    schema = to_arrow_schema(MESSAGES)
    batches: list[pa.RecordBatch] = []
    rows = []
    for stream in manifest.streams:
        requested = StreamRef(stream=stream.name, region=stream.region, virtual=stream.virtual, role=stream.role)
        read = _batches(capture.read_stored(stream.name), requested, schema) if stream.error is None else iter(())
        stream_batches = list(takewhile(lambda _: is_stopped is None or not is_stopped.is_set(), read))
        batches += stream_batches
        rows.append(make_stream_row(_make_snapshot(requested, stream, stream_batches, manifest, samples)))
    return ArrowTables(messages=pa.Table.from_batches(batches, schema), streams=rows)


def _make_snapshot(
    ref: StreamRef, stream: CapturedStream, batches: list[pa.RecordBatch], manifest: Manifest, samples: list[Sample]
) -> ReadSnapshot:
    count = sum(batch.num_rows for batch in batches)
    first = batches[0]["seq"][0].as_py() if batches else 0
    last = batches[-1]["seq"][-1].as_py() if batches else 0
    seen = max([last, *(sample.last_seq.get(stream.name, 0) for sample in samples)])
    versions = [server.version for server in manifest.servers if server.region == stream.region]
    error = stream.error
    if error is None and stream.messages is not None and stream.messages != count:
        error = f"the capture has {count} of its {stream.messages} messages"
    return ReadSnapshot(
        stream_ref=ref,
        snapshot_ns=manifest.wall + (samples[-1].at if samples else 0),
        first_seq=first or seen + 1,
        last_seq=seen,
        messages=count,
        num_deleted=seen - first + 1 - count if count else 0,
        server_version=versions[0] if versions else None,
        path=CAPTURE,
        limits=dict(stream.limits),
        sources=_find_cursors(stream, samples),
        mirror=stream.mirror,
        error=error,
    )


def _find_cursors(stream: CapturedStream, samples: list[Sample]) -> tuple[SourceCursor, ...]:
    """The cursors of *stream* in the last sample that contains it."""
    positions: Mapping[str, int] = next(
        (sample.sourced[stream.name] for sample in reversed(samples) if stream.name in sample.sourced), {}
    )
    return tuple(SourceCursor(origin=origin, last_seq=seq) for origin, seq in sorted(positions.items()))


def _batches(messages: Iterator[StoredRecord], stream: StreamRef, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    while part := list(islice(messages, _BATCH_ROWS)):
        columns: dict[str, Any] = {
            "virtual": [stream.virtual] * len(part),
            "stream": [stream.stream] * len(part),
            "region": [stream.region] * len(part),
            "role": [stream.role] * len(part),
            "seq": [item.seq for item in part],
            "time_ns": [item.time for item in part],
            "subject": [item.subject for item in part],
            "msg_id": [item.msg_id for item in part],
            "source": [item.source for item in part],
            "ttl": [item.ttl for item in part],
            "rollup": [None] * len(part),
            "size": [item.size for item in part],
            "digest": [to_signed_int64(item.digest) for item in part],
        }
        yield pa.RecordBatch.from_pydict(columns, schema=schema)
