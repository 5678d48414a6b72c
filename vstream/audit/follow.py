"""
Audit continuously: in each round, read the new messages and judge the last minutes again.

Each round takes a snapshot of all streams, like a single audit, and reads from where the previous round ended. Messages
older than the window are forgotten.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vstream.audit.connector.stream_snapshots import ask_for_period
from vstream.audit.connector.values import Access, ReadSnapshot, StreamRef
from vstream.audit.extract import server_access
from vstream.audit.extract.extract_plan import ExtractPlan, take_complete_snapshots, to_server_clock
from vstream.audit.extract.extraction import Extraction, ProcessMemory, read_plan
from vstream.audit.extract.from_servers import make_context
from vstream.audit.report import Report
from vstream.audit.request import LOCAL_SCHEME, MAX_STREAMS_WITH_FIGURES, AuditedServers, AuditRequest
from vstream.audit.spark.audit_session import AuditSession
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.spark_errors import convert_spark_errors
from vstream.audit.stages import StageRunner
from vstream.audit.tables.audit_tables import SparkFiles, add_arrivals
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS, make_schema
from vstream.audit.tables.stream_settings import is_origin
from vstream.audit.tables.table_store import TableStore
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint
from vstream.topology.stream_limits import MESSAGE_TTL, OLDEST_FIRST, REPLACING
from vstream.value_class import value_class

WINDOW_NS: Final = 600 * 10**9
"""Default length of the audited window, in nanoseconds."""
_KEPT_LONGER_NS: Final = 60 * 10**9
"""Rows are kept for so many nanoseconds longer than the window: clocks differ, and a read ends after its snapshot."""
_FIRSTS: Final = make_schema("stream string, first bigint, since bigint")


@value_class
class _ReadPosition:
    """The position up to which a stream has been read."""

    snapshot: ReadSnapshot
    """The stream when it had been read to its end."""
    since: int
    """The first round with rows of the current stream: a stream that was created again starts over."""


@value_class
class _Round:
    """What one round reads."""

    number: int
    since_ns: int
    """Where the window begins, in nanoseconds since 1970 by servers' clocks."""
    plan: ExtractPlan
    positions: Mapping[StreamRef, _ReadPosition]
    """How far streams are read when it ends."""


def make_follower(request: AuditRequest, servers: AuditedServers, session: AuditSession) -> Follower:
    """What audits *servers* in rounds."""
    window_ns = request.since_ns or WINDOW_NS
    return Follower(
        spark=session.spark,
        streams=servers.streams,
        endpoints=servers.endpoints,
        scratch=session.scratch,
        context=make_context(replace(request, since_ns=window_ns), servers),
        window_ns=window_ns,
        max_shown=request.max_shown,
    )


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
    max_shown: int = MAX_STREAMS_WITH_FIGURES
    """As in `StageRunner`."""
    _number: int = 0
    _ended: dict[int, int] = field(default_factory=dict)
    """By round: when servers were asked, in nanoseconds since 1970 by their clocks."""
    _positions: Mapping[StreamRef, _ReadPosition] = field(default_factory=dict)

    def run_round(self) -> Report:
        """
        Read new messages, and return the report on the window that ends now.

        Raises NotReachableError if no stream can be asked, and VstreamError if reading a stream
        was interrupted: the next round then starts where this one did.
        """
        planned = self._plan_round()
        with convert_spark_errors():
            files = SparkFiles(spark=self.spark, scratch=self.scratch, uri=self._place_round(planned.number))
            extraction = read_plan(planned.plan, files, OLDEST_FIRST)
            self._keep_round(planned)
            rows = self._select_rows(planned, extraction)
            window = replace(planned.plan, snapshots=_narrow_to_window(planned, rows))
            streams = make_table(self.spark, replace(extraction, plan=window).streams, STREAMS)
            context = replace(self.context, is_narrow=True)
            try:
                runner = StageRunner(store=TableStore(self.spark), context=context, max_shown=self.max_shown)
                return runner.run(add_arrivals(rows, extraction.arrivals), streams).report
            finally:
                self.spark.catalog.clearCache()

    def _plan_round(self) -> _Round:
        """What is new since the last round. Raises NotReachableError if no stream can be asked."""
        stream_refs = [StreamRef.of(stream) for stream in self.streams]
        access = server_access.find_access(stream_refs, self.endpoints, self.scratch)
        asked_at = time.monotonic()
        snapshots = take_complete_snapshots(self.streams, access)
        since_ns = to_server_clock(time.time_ns(), snapshots) - self.window_ns
        self._number += 1
        positions, parts = dict(self._positions), []
        continued = self._find_continued(snapshots, access, asked_at)
        for item in (item for item in snapshots if item.error is None):
            if item.stream_ref.stream in continued:
                before = positions[item.stream_ref]
                first = max(before.snapshot.last_seq + 1, item.first_seq)
                parts.append(
                    replace(item, first_seq=first, messages=max(0, min(item.messages, item.last_seq - first + 1)))
                )
                positions[item.stream_ref] = replace(before, snapshot=item)
            else:
                parts.append(ask_for_period(item, access[item.stream_ref.region], since_ns=since_ns))
                positions[item.stream_ref] = _ReadPosition(snapshot=item, since=self._number)
        plan = ExtractPlan(snapshots=tuple(snapshots), parts=tuple(parts), access=access, asked_at=asked_at)
        return _Round(number=self._number, since_ns=since_ns, plan=plan, positions=positions)

    def _find_continued(
        self, snapshots: Sequence[ReadSnapshot], access: Mapping[str, Access], asked_at: float
    ) -> set[str]:
        """
        The streams that still hold what earlier rounds have read of them.

        Where the last round ended is another message if a stream had lost its end and has gone on.
        """
        lasts = {ref.stream: position.snapshot for ref, position in self._positions.items()}
        continued, ends = set(), []
        for snapshot in snapshots:
            last = lasts.get(snapshot.stream_ref.stream)
            if snapshot.error is None and last is not None and _is_continued(snapshot, last):
                continued.add(snapshot.stream_ref.stream)
                if snapshot.last_seq > last.last_seq:
                    ends.append(snapshot.clip(first=last.last_seq, last=last.last_seq))
        plan = ExtractPlan(snapshots=(), parts=tuple(ends), access=access, asked_at=asked_at)
        table = ProcessMemory(is_stopped=Event()).load(plan)
        times = zip(table["stream"].to_pylist(), table["time_ns"].to_pylist(), strict=True)
        return continued - {stream for stream, time_ns in times if not _ends_at(lasts[stream], time_ns)}

    def _place_round(self, number: int) -> str:
        """The URI of what round *number* has read."""
        return f"file://{self.scratch}/rounds/round={number}"

    def _keep_round(self, planned: _Round) -> None:
        """Note that *planned* has been read, and forget rounds before the window. A round that fails leaves no trace."""
        self._positions = planned.positions
        self._ended[planned.number] = planned.since_ns + self.window_ns
        for old in [old for old, ended in self._ended.items() if ended < planned.since_ns - _KEPT_LONGER_NS]:
            shutil.rmtree(self._place_round(old).removeprefix(LOCAL_SCHEME), ignore_errors=True)
            del self._ended[old]

    def _select_rows(self, planned: _Round, extraction: Extraction[None]) -> DataFrame:
        """The messages of the window that streams still had after the reading, whichever round has read them."""
        paths = [self._place_round(number) for number in sorted(self._ended)]
        schema = f"{', '.join(f'{item.name} {item.dataType.simpleString()}' for item in MESSAGES.fields)}, round int"
        rows = self.spark.read.schema(schema).option("basePath", f"file://{self.scratch}/rounds").parquet(*paths)
        firsts = []
        for item in (item for item in planned.plan.snapshots if item.error is None):
            first = extraction.later.get(item.stream_ref, item).first_seq
            firsts.append((item.stream_ref.stream, first, planned.positions[item.stream_ref].since))
        # What limits have removed since would else be missing in the midst of what is judged.
        rows = rows.join(F.broadcast(make_table(self.spark, firsts, _FIRSTS)), "stream")
        is_there = (F.col("seq") >= F.col("first")) & (F.col("round") >= F.col("since"))
        is_recent = F.col("time_ns") >= planned.since_ns - _KEPT_LONGER_NS
        return rows.where(is_there & is_recent).select(*MESSAGES.names).persist()


def _is_continued(snapshot: ReadSnapshot, before: ReadSnapshot) -> bool:
    """Whether what came after *before* is all that is new in the stream of *snapshot*, unless it has lost its end and gone on."""
    removes_any = (REPLACING | {MESSAGE_TTL}) & (snapshot.limits or {}).keys()
    if removes_any and not is_origin(snapshot.stream_ref):
        # What a newer message or its time has removed elsewhere is not told apart from what earlier rounds still hold.
        return False
    is_whole = bool(removes_any) or snapshot.num_deleted == before.num_deleted
    is_longer = snapshot.last_seq > before.last_seq or (snapshot.last_seq, snapshot.last_ts) == (
        before.last_seq,
        before.last_ts,
    )
    return is_whole and is_longer and before.created == snapshot.created


def _ends_at(snapshot: ReadSnapshot, time_ns: int) -> bool:
    """Whether the last message of *snapshot* has this time, to the microsecond: Python drops the rest of what servers say."""
    return (
        snapshot.last_ts is not None
        and round(datetime.fromisoformat(snapshot.last_ts).timestamp() * 10**6) == time_ns // 1000
    )


def _narrow_to_window(planned: _Round, rows: DataFrame) -> tuple[ReadSnapshot, ...]:
    """The snapshots of the window with *rows* alone: each origin begins with its first message in the window."""
    since = F.min(F.when(F.col("time_ns") >= planned.since_ns, F.col("seq"))).alias("first_since")
    counted = rows.groupBy("stream").agg(F.count(F.lit(1)), F.min("seq"), since)
    result = {stream: counts for stream, *counts in counted.collect()}
    narrow = []
    for snapshot in planned.plan.snapshots:
        messages, first, first_since = result.get(snapshot.stream_ref.stream, (0, None, None))
        first = first_since if is_origin(snapshot.stream_ref) else first
        seen = replace(snapshot, first_seq=snapshot.last_seq + 1 if first is None else first, messages=messages)
        narrow.append(snapshot if snapshot.error is not None else seen)
    return tuple(narrow)
