"""
Streaming queries: batches of new messages, without silent loss.

An offset has, for each stream, the last sequence read and the time when the stream was
created: a stream that was deleted and created again starts at 1 again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from vstream.audit.connector import stream_snapshots
from vstream.audit.connector.client import api_request, connect
from vstream.audit.connector.options import Options
from vstream.audit.connector.reading import read_range
from vstream.audit.connector.spark_types import ReadPartition, make_arrow_schema
from vstream.audit.connector.values import ABSENT, ReadSnapshot, ReadTask, StreamRef, split_tasks
from vstream.errors import VstreamError
from vstream.jetstream.answers import convert_malformed_errors

_LOG = logging.getLogger("vstream.jetstream")


class StreamOffset(TypedDict):
    """The position up to which one stream was read."""

    seq: int
    created: str | None
    """When the stream was created, as servers report it; None in checkpoints from before 24 November 2026."""


class JetStreamStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows streams. Offsets are by region and stream."""

    def __init__(self, schema: StructType, options: Options) -> None:
        self._schema = make_arrow_schema(schema)
        self._options = options
        if options.since_ns or options.until_ns or options.end_seq:
            raise VstreamError(
                "a streaming query has no since, until or end_seq", hint="use start, start_seq, and filters"
            )
        self._streams = options.stream_refs
        self._access = {item.region: options.access for item in options.stream_refs}
        self._snapshots: dict[str, ReadSnapshot] = {}
        self._reached: Mapping[str, StreamOffset] = {}
        """The end of the newest batch."""
        self._target: dict[str, StreamOffset] | None = None
        """The end of a query that ends; None for others."""
        self._last_batch = time.monotonic()

    def initialOffset(self) -> dict[str, StreamOffset]:
        """The offset before the first message to read."""
        self._take_snapshots()
        if self._options.start == "latest":
            return {key: _end_of(item) for key, item in self._snapshots.items()}
        starts, start = self._options.starts, self._options.start_seq or 1
        first = {
            key: max(item.first_seq, starts.get(item.stream_ref.stream, start)) for key, item in self._snapshots.items()
        }
        return {key: StreamOffset(seq=first[key] - 1, created=item.created) for key, item in self._snapshots.items()}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The maximum number of messages of each stream in a batch, unless a trigger requests all."""
        rows = self._options.rows_per_batch
        return ReadMaxRows(rows) if rows else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of the query: it reads everything that is stored now, in as many batches as needed."""
        self._take_snapshots()
        self._target = {key: _end_of(item) for key, item in self._snapshots.items()}

    def latestOffset(
        self, start: Mapping[str, StreamOffset | int] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, StreamOffset]:
        """
        The end of the next batch. Unreachable streams do not advance; none do while there are too few new messages.

        Raises VstreamError if a stream was deleted, unless data loss is accepted.
        """
        self._take_snapshots()
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        before = {key: _decode_offset(offset) for key, offset in (start or {}).items()}
        result = dict(before)
        for key, item in self._snapshots.items():
            end = self._target.get(key) if self._target is not None else _end_of(item)
            if end is not None:
                result[key] = _advance(item, result.get(key), end, most)
        self._reached = before if self._is_to_wait(before, result) else result
        return dict(self._reached)

    def _is_to_wait(self, before: Mapping[str, StreamOffset], end: Mapping[str, StreamOffset]) -> bool:
        """Whether a batch between these has too few messages. Never if a stream was created again."""
        least, now = self._options.min_rows_per_batch, time.monotonic()
        is_few = before.keys() == end.keys() and all(
            _is_same(before[key]["created"], end[key]["created"]) for key in end
        )
        if least and is_few and self._target is None and now < self._last_batch + self._options.max_batch_delay:
            return sum(end[key]["seq"] - before[key]["seq"] for key in end) < least
        self._last_batch = now
        return False

    def reportLatestOffset(self) -> dict[str, dict[str, Any]]:
        """
        The end of each stream, and how many sequences *behind* the newest batch is: `latestOffset` in a query's progress.

        Spark 4.3 asks no Python source for metrics: its classes for these do not implement `ReportsSourceMetrics`.
        """
        return {key: {**_end_of(item), "behind": self._behind(item)} for key, item in self._snapshots.items()}

    def _behind(self, item: ReadSnapshot) -> int:
        reached = self._reached.get(_key(item.stream_ref), StreamOffset(seq=item.first_seq - 1, created=item.created))
        return item.last_seq - (reached["seq"] if _is_same(item.created, reached["created"]) else 0)

    def partitions(
        self, start: Mapping[str, StreamOffset | int], end: Mapping[str, StreamOffset | int]
    ) -> Sequence[InputPartition]:
        """The ranges between two offsets. Raises VstreamError if messages are gone, unless data loss is accepted."""
        ends = {key: _decode_offset(until) for key, until in end.items()}
        existing = {key: item.created for key, item in self._snapshots.items()}
        if any(key not in existing or not _is_same(existing[key], until["created"]) for key, until in ends.items()):
            self._take_snapshots()
        snapshots = []
        for key, last in ends.items():
            before = _decode_offset(start[key]) if key in start else None
            entry = self._snapshots.get(key)
            if entry is None or entry.error:
                if before is None or last["seq"] > before["seq"]:
                    raise VstreamError(
                        f"stream `{key}` cannot be read: {entry.error if entry else 'it is not asked for'}"
                    )
                continue
            snapshots.append(self._select_between(entry, before, last))
        options = self._options
        tasks = split_tasks(snapshots, self._access, rows=options.rows_per_task, subjects=options.subjects)
        whole = {item.stream_ref for item in snapshots if not item.num_deleted and not options.subjects}
        partitions: list[InputPartition] = [
            ReadPartition((item,), is_whole=options.fails_on_loss and item.stream_ref in whole) for item in tasks
        ]
        return partitions or [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the messages of one range."""
        return read_partition(partition, self._schema) if isinstance(partition, ReadPartition) else iter(())

    def commit(self, end: Mapping[str, StreamOffset | int]) -> None:
        """Do nothing: no position is kept on servers."""

    def _select_between(self, entry: ReadSnapshot, before: StreamOffset | None, last: StreamOffset) -> ReadSnapshot:
        """The part of *entry* after *before*, up to *last*."""
        after = before["seq"] if before is not None else max(entry.first_seq, 1) - 1
        loss = None
        if not _is_same(entry.created, last["created"]):
            loss = _describe_recreated(entry, after)
            last = StreamOffset(seq=0, created=last["created"])
        elif before is not None and not _is_same(before["created"], last["created"]):
            loss = _describe_recreated(entry, after)
            after = 0
        elif last["seq"] < after:
            loss = f"it ends at {last['seq']}, and {after} was read: {last['seq'] + 1} to {after} were taken back"
        elif entry.first_seq > after + 1 and last["seq"] > after:
            gone = min(entry.first_seq - 1, last["seq"])
            loss = f"{after + 1} to {gone} were removed before they were read: {gone - after:,} of its sequences"
        if loss is not None:
            self._report_loss(entry.stream_ref, loss)
        first = max(after + 1, entry.first_seq)
        if first > last["seq"]:
            return replace(entry, messages=0)
        rows = max(1, min(entry.messages, last["seq"] - first + 1))
        size = entry.bytes * rows // max(1, entry.messages)
        return replace(entry, first_seq=first, last_seq=last["seq"], messages=rows, bytes=size)

    def _report_loss(self, stream: StreamRef, loss: str) -> None:
        if self._options.fails_on_loss:
            raise _make_loss_error(stream, loss)
        _LOG.warning("messages of stream `%s` are lost to this query: %s", stream.stream, loss)

    def _take_snapshots(self) -> None:
        """A new snapshot. Raises VstreamError for a stream that never answered or that was deleted."""
        for snapshot in stream_snapshots.take_snapshots(self._streams, self._access, path=self._options.read_by):
            key = _key(snapshot.stream_ref)
            if not snapshot.error:
                self._snapshots[key] = snapshot
            elif key not in self._snapshots:
                raise VstreamError(f"stream `{snapshot.stream_ref.stream}` cannot be read: {snapshot.error}")
            elif snapshot.error == ABSENT and self._options.fails_on_loss:
                raise _make_loss_error(
                    snapshot.stream_ref, f"it was deleted; {self._snapshots[key].last_seq} was its last sequence"
                )


def read_partition(partition: ReadPartition, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The messages of one range. Raises VstreamError if messages of a complete range are removed during the read."""
    (task,), rows = partition.ranges, 0
    for batch in read_range(task, schema):
        rows += batch.num_rows
        yield batch
    if partition.is_whole and rows <= task.last - task.first:
        first = _first_of(task)
        if first > task.first:
            gone = min(first - 1, task.last)
            raise _make_loss_error(task.stream_ref, f"some of {task.first} to {gone} were removed while they were read")


def _first_of(task: ReadTask) -> int:
    with connect(task.access) as client, convert_malformed_errors(f"STREAM.INFO.{task.stream_ref.name}"):
        return int(api_request(client, task.access, f"STREAM.INFO.{task.stream_ref.name}")["state"]["first_seq"])


def _advance(item: ReadSnapshot, before: StreamOffset | None, end: StreamOffset, most: int | None) -> StreamOffset:
    """The end of a batch that begins after *before*: *end*, or earlier after *most* messages."""
    if before is None:
        before = StreamOffset(seq=max(item.first_seq, 1) - 1, created=end["created"])
    is_other = not _is_same(before["created"], end["created"])
    after = max(0 if is_other else before["seq"], item.first_seq - 1)
    last = min(end["seq"], after + most) if most else end["seq"]
    return StreamOffset(seq=last, created=end["created"])


def _end_of(item: ReadSnapshot) -> StreamOffset:
    return StreamOffset(seq=item.last_seq, created=item.created)


def _decode_offset(offset: StreamOffset | int) -> StreamOffset:
    return StreamOffset(seq=offset, created=None) if isinstance(offset, int) else offset


def _is_same(created: str | None, created_then: str | None) -> bool:
    return created is None or created_then is None or created == created_then


def _describe_recreated(entry: ReadSnapshot, after: int) -> str:
    return (
        f"it was deleted and created again at {entry.created}; messages of the old stream after {after} are gone, "
        f"and the new one has {entry.first_seq} to {entry.last_seq}"
    )


def _make_loss_error(stream: StreamRef, loss: str) -> VstreamError:
    where = f" in region `{stream.region}`" if stream.region else ""
    return VstreamError(
        f"data loss: stream `{stream.stream}`{where}: {loss}. "
        'With option("failOnDataLoss", "false") the query continues with the remaining messages'
    )


def _key(ref: StreamRef) -> str:
    return f"{ref.region}/{ref.stream}" if ref.region else ref.stream
