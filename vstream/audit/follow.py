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

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from vstream.audit import server_access
from vstream.audit.closed import OLDEST_FIRST
from vstream.audit.context import AuditContext
from vstream.audit.cut_tables import REPLACING, TTL, is_origin
from vstream.audit.extract import ExtractPlan, read_since_cuts, take_complete_cuts, to_server_clock
from vstream.audit.frames import read_live_messages
from vstream.audit.local_frames import from_arrow, make_table
from vstream.audit.report import Report
from vstream.audit.request import FIGURES
from vstream.audit.schema import MESSAGES, STREAMS, make_schema
from vstream.audit.source import register
from vstream.audit.source.datasource import narrow_cut
from vstream.audit.source.pushdown import Bounds
from vstream.audit.source.values import Access, StreamCut, StreamRef
from vstream.audit.spark_errors import convert_spark_errors
from vstream.audit.stages import AuditPipeline
from vstream.audit.table_store import TableStore
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint

WINDOW_NS: Final = 600 * 10**9
"""Default length of the audited window, in nanoseconds."""
_SLACK_NS: Final = 60 * 10**9
"""Rows are kept for so many nanoseconds longer than the window: clocks differ, and a read ends after its cut."""
_FIRSTS: Final = make_schema("stream string, first bigint, since bigint")


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

    def run_round(self) -> Report:
        """
        Read new messages, and return the report on the window that ends now.

        Raises NotReachableError if no stream can be asked, and VstreamError if reading a stream
        was interrupted: the next round then starts where this one did.
        """
        if not self._number:
            register(self.spark)
        access = server_access.find_access(
            [StreamRef.of(stream) for stream in self.streams], self.endpoints, self.scratch
        )
        asked_at = time.monotonic()
        cuts = take_complete_cuts(self.streams, access)
        since_ns = to_server_clock(time.time_ns(), cuts) - self.window_ns
        with convert_spark_errors():
            fresh = self._read(cuts, access, since_ns)
            plan = ExtractPlan(cuts=tuple(cuts), read=tuple(fresh), access=access, asked_at=asked_at)
            schema = to_arrow_schema(MESSAGES)
            arrivals = read_since_cuts(plan, schema, OLDEST_FIRST)
            rows = self._rows(cuts, since_ns, arrivals.later)
            plan = replace(plan, cuts=tuple(self._narrow(cuts, rows, since_ns)))
            streams = make_table(self.spark, plan.stream_rows(arrivals), STREAMS)
            came = from_arrow(self.spark, pa.Table.from_batches(arrivals.batches, schema), MESSAGES)
            context = replace(self.context, is_narrow=True)
            try:
                pipeline = AuditPipeline(store=TableStore(self.spark), context=context, figures=self.figures)
                return pipeline.run(rows.unionByName(came), streams)
            finally:
                self.spark.catalog.clearCache()

    def _read(self, cuts: Sequence[StreamCut], access: Mapping[str, Access], since_ns: int) -> Sequence[StreamCut]:
        """Store the new messages, and return what was read of each stream. A round that fails leaves no trace."""
        number = self._number = self._number + 1
        places = dict(self._places)
        fresh = []
        for item in cuts:
            if item.error is not None:
                continue
            place = places.get(item.stream_ref)
            # What a newer message or its time has removed elsewhere is not told apart from what earlier rounds still hold.
            loses_any = not is_origin(item.stream_ref) and (REPLACING | {TTL}) & (item.limits or {}).keys()
            if loses_any or place is None or place.created != item.created or item.last_seq < place.next_seq - 1:
                fresh.append(narrow_cut(item, access[item.stream_ref.region], Bounds(since_ns=since_ns)))
                places[item.stream_ref] = _ReadPosition(item.last_seq + 1, item.created, number)
                continue
            first = max(place.next_seq, item.first_seq)
            left = max(0, min(item.messages, item.last_seq - first + 1))
            fresh.append(replace(item, first_seq=first, messages=left))
            places[item.stream_ref] = replace(place, next_seq=item.last_seq + 1)
        read_live_messages(self.spark, fresh, access).write.parquet(f"file://{self.scratch}/rounds/round={number}")
        self._places = places
        self._ended[number] = since_ns + self.window_ns
        for old in [old for old, ended in self._ended.items() if ended < since_ns - _SLACK_NS]:
            shutil.rmtree(self.scratch / "rounds" / f"round={old}", ignore_errors=True)
            del self._ended[old]
        return fresh

    def _rows(self, cuts: Sequence[StreamCut], since_ns: int, later: Mapping[StreamRef, StreamCut]) -> DataFrame:
        root = f"file://{self.scratch}/rounds"
        paths = [f"{root}/round={number}" for number in sorted(self._ended)]
        schema = f"{', '.join(f'{item.name} {item.dataType.simpleString()}' for item in MESSAGES.fields)}, round int"
        rows = self.spark.read.schema(schema).option("basePath", root).parquet(*paths)
        asked = [(item.stream_ref, later.get(item.stream_ref, item)) for item in cuts if item.error is None]
        firsts = [(ref.stream, item.first_seq, self._places[ref].since) for ref, item in asked]
        # What limits have removed since would else be missing in the midst of what is judged.
        rows = rows.join(F.broadcast(make_table(self.spark, firsts, _FIRSTS)), "stream")
        is_there = (F.col("seq") >= F.col("first")) & (F.col("round") >= F.col("since"))
        return rows.where(is_there & (F.col("time_ns") >= since_ns - _SLACK_NS)).select(*MESSAGES.names).persist()

    def _narrow(self, cuts: Sequence[StreamCut], rows: DataFrame, since_ns: int) -> list[StreamCut]:
        """*cuts* of the window alone: each origin begins with its first message in the window."""
        since = F.min(F.when(F.col("time_ns") >= since_ns, F.col("seq"))).alias("first_since")
        counted = rows.groupBy("stream").agg(F.count(F.lit(1)), F.min("seq"), since)
        result = {stream: counts for stream, *counts in counted.collect()}
        narrow = []
        for entry in cuts:
            messages, first, first_since = result.get(entry.stream_ref.stream, (0, None, None))
            first = first_since if is_origin(entry.stream_ref) else first
            seen = replace(entry, first_seq=entry.last_seq + 1 if first is None else first, messages=messages)
            narrow.append(entry if entry.error is not None else seen)
        return narrow
