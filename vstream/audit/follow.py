"""
Audit continuously: in each round, read the new messages and judge the last minutes again.

Each round takes a cut of all streams, like a single audit, and reads from where the previous round ended. Messages
older than the window are forgotten.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vstream.audit import ship_credentials as reaching
from vstream.audit.context import AuditContext
from vstream.audit.cut import is_origin
from vstream.audit.extract import stream_row, take_planned_cuts, tell_by_servers, without_limits
from vstream.audit.frames import read_messages
from vstream.audit.local_frames import make_table
from vstream.audit.report import Report
from vstream.audit.request import FIGURES
from vstream.audit.schema import MESSAGES, STREAMS
from vstream.audit.source import register
from vstream.audit.source.datasource import narrow_cut
from vstream.audit.source.pushdown import Bounds
from vstream.audit.source.values import Access, StreamCut, StreamRef
from vstream.audit.spark_errors import explain_spark_errors
from vstream.audit.stages import AuditPipeline
from vstream.audit.table_store import TableStore
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint

WINDOW_NS: Final = 600 * 10**9
"""Default length of the audited window, in nanoseconds."""
_SLACK_NS: Final = 60 * 10**9
"""Rows are kept for so many nanoseconds longer than the window: clocks differ, and a read ends after its cut."""


@dataclass(frozen=True, slots=True)
class _ReadPosition:
    """The position up to which a stream has been read."""

    next_seq: int
    created: str | None
    since: int
    """The first round with rows of the current stream: a stream that was created again starts over."""


@dataclass(slots=True)
class Follower:
    """Audits *streams* in rounds on a local *spark*; *scratch* holds secrets and the messages read so far."""

    spark: SparkSession
    streams: Sequence[RenderedStream]
    endpoints: Mapping[str, Endpoint]
    scratch: Path
    context: AuditContext
    """The context of each round; its `is_narrow` is always true."""
    window_ns: int = WINDOW_NS
    figures: int = FIGURES
    """As in `AuditPipeline`."""
    _number: int = 0
    _ended: dict[int, int] = field(default_factory=dict)
    """By round: when servers were asked, in nanoseconds since 1970 by their clocks."""
    _places: dict[StreamRef, _ReadPosition] = field(default_factory=dict)

    def round(self) -> Report:
        """
        Read new messages, and return the report on the window that ends now.

        Raises NotReachableError if no stream can be asked, and VstreamError if reading a stream
        was interrupted: the next round then starts where this one did.
        """
        if not self._number:
            register(self.spark)
        access = reaching.resolve_access(
            [StreamRef.of(stream) for stream in self.streams], self.endpoints, self.scratch
        )
        asked_at = time.monotonic()
        cuts = take_planned_cuts(self.streams, access)
        since_ns = tell_by_servers(time.time_ns(), cuts) - self.window_ns
        with explain_spark_errors():
            self._read(cuts, access, since_ns)
            read_in_ns = round((time.monotonic() - asked_at) * 1e9)
            rows = self._rows(cuts, since_ns)
            context = replace(self.context, is_narrow=True)
            try:
                pipeline = AuditPipeline(store=TableStore(self.spark), context=context, figures=self.figures)
                return pipeline.run(rows, self._streams(cuts, rows, since_ns, read_in_ns))
            finally:
                self.spark.catalog.clearCache()

    def _read(self, cuts: Sequence[StreamCut], access: Mapping[str, Access], since_ns: int) -> None:
        """Store the new messages. A round that fails leaves no trace."""
        number = self._number = self._number + 1
        places = dict(self._places)
        fresh = []
        for item in cuts:
            if item.error is not None:
                continue
            place = places.get(item.stream_ref)
            if place is None or place.created != item.created or item.last_seq < place.next_seq - 1:
                fresh.append(narrow_cut(item, access[item.stream_ref.region], Bounds(since_ns=since_ns)))
                places[item.stream_ref] = _ReadPosition(item.last_seq + 1, item.created, number)
                continue
            first = max(place.next_seq, item.first_seq)
            left = max(0, min(item.messages, item.last_seq - first + 1))
            fresh.append(replace(item, first_seq=first, messages=left))
            places[item.stream_ref] = replace(place, next_seq=item.last_seq + 1)
        read_messages(self.spark, fresh, access).write.parquet(f"file://{self.scratch}/rounds/round={number}")
        self._places = places
        self._ended[number] = since_ns + self.window_ns
        for old in [old for old, ended in self._ended.items() if ended < since_ns - _SLACK_NS]:
            shutil.rmtree(self.scratch / "rounds" / f"round={old}", ignore_errors=True)
            del self._ended[old]

    def _rows(self, cuts: Sequence[StreamCut], since_ns: int) -> DataFrame:
        root = f"file://{self.scratch}/rounds"
        paths = [f"{root}/round={number}" for number in sorted(self._ended)]
        schema = f"{', '.join(f'{item.name} {item.dataType.simpleString()}' for item in MESSAGES.fields)}, round int"
        rows = self.spark.read.schema(schema).option("basePath", root).parquet(*paths)
        for entry in cuts:
            name, place = entry.stream_ref.stream, self._places.get(entry.stream_ref)
            if entry.error is not None or place is None:
                rows = rows.where(F.col("stream") != name)
            elif place.since > min(self._ended):
                rows = rows.where((F.col("stream") != name) | (F.col("round") >= place.since))
        return rows.where(F.col("time_ns") >= since_ns - _SLACK_NS).select(*MESSAGES.names).persist()

    def _streams(self, cuts: Sequence[StreamCut], rows: DataFrame, since_ns: int, read_in_ns: int) -> DataFrame:
        """The table `streams` for the window: each origin begins with its first message in the window."""
        result = {}
        for item in (
            rows.groupBy("stream")
            .agg(
                F.count(F.lit(1)).alias("messages"),
                F.min("seq").alias("first_seq"),
                F.min(F.when(F.col("time_ns") >= since_ns, F.col("seq"))).alias("first_since"),
            )
            .collect()
        ):
            result[item.stream] = item
        narrow = []
        for entry in cuts:
            counts = result.get(entry.stream_ref.stream)
            first = None
            if counts is not None:
                first = counts.first_since if is_origin(entry.stream_ref) else counts.first_seq
            seen = replace(
                entry,
                first_seq=entry.last_seq + 1 if first is None else first,
                messages=counts.messages if counts else 0,
            )
            shown = entry if entry.error is not None else without_limits(seen, entry)
            narrow.append(stream_row(shown, read_in_ns))
        return make_table(self.spark, narrow, STREAMS)
