"""
Which messages an audit with a state may close, and whether those that were closed still are (`closed`).

Nothing is closed in virtual streams in which something was found, and where something other than age or size removes
messages. Why it is enough to judge the others:

- A closed message cannot be missing: streams that lost messages otherwise than by their limits are read again.
- If it is stored again, that is behind what was read, and the others lack it there.
- A new message with its id is looked for (`find_known_ids`).
- All that is on its way was written after closed messages had arrived everywhere. What had arrived was judged together.
  So their order, and who knew of what, stay as they were.
- If a new message has a time before that, clocks are wrong, and all is judged again (`find_disturbed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from vstream.audit.codes import BY_KIND
from vstream.audit.extract.plan import ExtractPlan
from vstream.audit.extract.read_plan import read_plan
from vstream.audit.report import Report
from vstream.audit.request import SMALL_AUDIT_MESSAGES, AuditProgress
from vstream.audit.spark.local_frames import collect_arrow, from_arrow, make_table, plain_rows
from vstream.audit.stages import AuditPipeline, AuditResult
from vstream.audit.state.closed import NO_ROUTE, ClosedPart, ClosedRoute, ClosedStream, ClosedVirtual, can_close
from vstream.audit.state.state import AuditState
from vstream.audit.tables.audit_tables import AuditTables
from vstream.audit.tables.cut_tables import CutTables, tabulate_closed
from vstream.audit.tables.schema import MESSAGES, STREAMS, make_schema
from vstream.audit.tables.stream_settings import is_origin
from vstream.audit.tables.table_store import TableStore
from vstream.value_class import value_class

_QUIET: Final = frozenset(BY_KIND[kind].code for kind in ("pending", "removed", "canaries", "canaries-late"))
"""Codes of findings that leave a virtual stream right: what is on its way, and what limits or probes have removed."""
_ENDS = make_schema("virtual string, origin string, until bigint")
MAX_JUDGED: Final = 200_000
"""Number of stored messages up to which all are judged each time: it would take longer to find out which need not be."""


@value_class
class StateMessages:
    """The messages of an audit with a *state*: those that it keeps, and the *arrivals* (`from_servers.read_plan`), which it does not."""

    state: AuditState
    closed: ClosedPart
    """Those that need not be judged again."""
    arrivals: DataFrame
    number: int
    """How many messages the streams had."""


def read_with_state(state: AuditState, plan: ExtractPlan, progress: AuditProgress) -> tuple[AuditTables, StateMessages]:
    """
    All messages of the streams of *plan*: those of *state*, which gets what is new.

    Raises as `read_plan`, and UnusableStateError.
    """
    extraction = read_plan(plan, state)
    update, spark = extraction.messages, state.spark
    again = f"; read again from the first message: {', '.join(update.reread)}" if update.reread else ""
    right = f"{update.closed.messages:,} were right before"
    closed = f"; {right}, and are not judged again" if update.closed.virtuals else ""
    progress.note(f"{update.new:,} of {plan.messages:,} messages were read from servers{again}{closed}")
    arrivals = from_arrow(spark, extraction.arrivals, MESSAGES)
    messages = update.messages.unionByName(arrivals)
    tables = AuditTables(messages=messages, streams=make_table(spark, extraction.streams, STREAMS))
    return tables, StateMessages(state=state, closed=update.closed, arrivals=arrivals, number=plan.messages)


def judge_and_close(
    state_messages: StateMessages, streams: DataFrame, pipeline: AuditPipeline, uri: str, *, at_least: int = MAX_JUDGED
) -> AuditResult:
    """
    Audit all *state_messages* by *pipeline*, but those that are closed: these are only counted.

    Tables of many open messages are stored at *uri*. Virtual streams in which something is found are judged again as a
    whole. Then the state records which messages are closed now, if *at_least* so many are stored.
    """
    state, closed = state_messages.state, state_messages.closed
    while True:
        in_memory = state_messages.number - closed.messages < SMALL_AUDIT_MESSAGES
        store = TableStore(streams.sparkSession, None if in_memory else uri)
        messages = state.read_open(closed).unionByName(state_messages.arrivals)
        audited = replace(pipeline, store=store, closed=closed).audit(messages, streams)
        report, copies, cut = audited.report, audited.copies, audited.cut
        disturbed = find_disturbed(closed, copies, report, cut)
        closed = closed.without(disturbed)
        if closed.virtuals:
            disturbed |= find_known_ids(copies, closed, state.read_closed(closed))
        if not disturbed:
            break
        closed = closed.without(disturbed)
    if report.messages >= at_least:
        state.record_closed(close_messages(closed, copies, audited.buckets, report, cut))
    return audited


def find_disturbed(closed: ClosedPart, copies: DataFrame, report: Report, cut: CutTables) -> set[str]:
    """
    The virtual streams of *closed* that have to be judged as a whole.

    *copies*, *report* and *cut* are those of what is open.
    """
    if not closed.virtuals:
        return set()
    names = {item.virtual for item in closed.virtuals}
    firsts = [(virtual, origin, first) for (virtual, origin), (first, _) in cut.bounds.items() if first is not None]
    is_new = F.col("seq") > F.col("read_to")
    # The origin's own time is when a message was written; without its copy there, that of another.
    tells_time = F.col("is_origin") | (F.col("origin_seq") < F.col("first"))
    is_early = is_new & tells_time & (F.col("time_ns") <= F.col("until_ns"))
    origins = make_table(copies.sparkSession, firsts, make_schema("virtual string, origin string, first bigint"))
    rows = (
        _select(copies, names)
        .join(F.broadcast(tabulate_closed(copies.sparkSession, closed)), ["virtual", "stream", "origin"], how="left")
        .join(F.broadcast(origins), ["virtual", "origin"], how="left")
        .where(F.coalesce(is_early, F.lit(True)))
    )
    disturbed = {row.virtual for row in rows.select("virtual").distinct().collect()}
    return disturbed | {item.virtual for item in report.findings if item.code not in _QUIET} & names


def find_known_ids(copies: DataFrame, closed: ClosedPart, messages: DataFrame) -> set[str]:
    """The virtual streams in which a new one of *copies* has the id of a closed one; *messages* are the closed ones."""
    marks = (
        tabulate_closed(copies.sparkSession, closed).groupBy("virtual", "stream").agg(F.max("read_to").alias("read_to"))
    )
    fresh = (
        copies.where(F.col("msg_id").isNotNull())
        .join(F.broadcast(marks), ["virtual", "stream"])
        .where(F.col("seq") > F.col("read_to"))
        .select("virtual", "msg_id")
        .distinct()
    )
    if fresh.isEmpty():
        return set()
    same = messages.where(F.col("msg_id").isNotNull()).join(F.broadcast(fresh), ["virtual", "msg_id"], how="left_semi")
    return {row.virtual for row in same.select("virtual").distinct().collect()}


def _select(copies: DataFrame, virtuals: Iterable[str]) -> DataFrame:
    """The rows of *copies* about *virtuals*, which may be thousands."""
    names = make_table(copies.sparkSession, [(name,) for name in virtuals], make_schema("virtual string"))
    return copies.join(F.broadcast(names), "virtual", how="left_semi")


def close_messages(
    closed: ClosedPart, copies: DataFrame, buckets: DataFrame, report: Report, cut: CutTables
) -> ClosedPart:
    """*closed* with all that the audit of *copies* lets be closed; *closed* were not judged by it."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in cut.rows:
        rows[row.virtual].append(row)
    is_bad = {item.virtual for item in report.findings if item.code not in _QUIET}
    before = {item.virtual: item for item in closed.virtuals}
    # Where nothing came, all stays as it was.
    judged = {stream.virtual for stream in report.streams if stream.rows > closed.count(stream.virtual, stream.stream)}
    origins: dict[str, set[str]] = defaultdict(set)
    for virtual, origin in cut.bounds:
        origins[virtual].add(origin)
    right = sorted(judged - is_bad - cut.counters)
    virtuals = [name for name in right if _can_close_all(rows[name], origins[name])]
    parts = [item for name, item in before.items() if name not in judged]
    if virtuals:
        parts += _Closing(closed, copies, buckets, {name: rows[name] for name in virtuals}).close()
    done = {item.virtual for item in parts}
    # What could not be closed further is closed as far as it was.
    parts += [item for name, item in before.items() if name not in done and name not in is_bad]
    return ClosedPart(tuple(sorted(parts, key=lambda item: item.virtual)))


def _can_close_all(rows: Sequence[Any], origins: Collection[str]) -> bool:
    """Whether the streams *rows* are readers of all these *origins*, and lose only their oldest messages."""
    written = {row.stream for row in rows if is_origin(row)}
    return len(written) < len(rows) and written == origins and all(map(can_close, rows))


class _Closing:
    """Finds out how far the virtual streams with these *rows* can be closed."""

    def __init__(
        self,
        closed: ClosedPart,
        copies: DataFrame,
        buckets: DataFrame,
        rows: Mapping[str, Sequence[Any]],
    ) -> None:
        self._closed = closed
        self._spark = copies.sparkSession
        self._copies = _select(copies, rows)
        self._until_ns = {item.virtual: item.until_ns for item in closed.virtuals}
        self._buckets = buckets
        self._rows = rows
        self._pairs: list[tuple[str, str, str]] = []
        for virtual, group in rows.items():
            origins = [row.stream for row in group if is_origin(row)]
            readers = [row.stream for row in group if not is_origin(row)]
            self._pairs += [(virtual, origin, reader) for origin in origins for reader in readers]

    def close(self) -> list[ClosedVirtual]:
        """Their closed messages, with those that were closed before."""
        ends = self._find_common_ends(self._find_arrived())
        ends = self._find_common_ends(self._find_before(self._find_open(ends)))
        return self._make_closed(ends)

    def _find_arrived(self) -> Mapping[tuple[str, str, str], int]:
        """By virtual stream, origin and reader: the last sequence that has arrived, even if it was removed since."""
        table = collect_arrow(self._buckets)
        theirs = table.filter(pc.and_(pc.invert(table["is_origin"]), pc.equal(table["part"], "cut")))
        group = ["virtual", "origin", "stream"]
        last = theirs.group_by(group).aggregate([("greatest", "max")]).select([*group, "greatest_max"])
        arrived = {tuple(place): seq for *place, seq in plain_rows(last)}
        for row in (row for group in self._rows.values() for row in group):
            for source in row.sources:
                place = (row.virtual, source.origin, row.stream)
                arrived[place] = max(arrived.get(place, 0), source.last_seq or 0)
        return arrived

    def _find_common_ends(self, arrived: Mapping[tuple[str, str, str], int]) -> Mapping[tuple[str, str], int]:
        """By virtual stream and origin: the last sequence that has *arrived* in all readers, 0 for none."""
        ends: dict[tuple[str, str], int] = {}
        for virtual, origin, reader in self._pairs:
            before = self._closed.routes.get((virtual, origin, reader))
            end = max(arrived.get((virtual, origin, reader), 0), before.until if before is not None else 0)
            ends[virtual, origin] = min(ends.get((virtual, origin), end), end)
        return ends

    def _find_open(self, ends: Mapping[tuple[str, str], int]) -> DataFrame:
        """By virtual stream: when the first message was written that has not arrived everywhere."""
        rows = self._join_ends(ends).where(F.col("origin_seq") > F.col("until"))
        return rows.groupBy("virtual").agg(F.min("time_ns").alias("open_ns"))

    def _find_before(self, opened: DataFrame) -> Mapping[tuple[str, str, str], int]:
        """By virtual stream, origin and reader: the last sequence that had arrived before the times in *opened*."""
        before = (
            self._copies.where(~F.col("is_origin"))
            .join(F.broadcast(opened), "virtual", how="left")
            .where(F.col("open_ns").isNull() | (F.col("time_ns") < F.col("open_ns")))
            .groupBy("virtual", "origin", "stream")
            .agg(F.max("origin_seq").alias("last"))
        )
        return {(row.virtual, row.origin, row.stream): row["last"] for row in before.collect()}

    def _join_ends(self, ends: Mapping[tuple[str, str], int]) -> DataFrame:
        table = make_table(self._spark, [(*origin, end) for origin, end in ends.items()], _ENDS)
        return self._copies.join(F.broadcast(table), ["virtual", "origin"], how="left")

    def _make_closed(self, ends: Mapping[tuple[str, str], int]) -> list[ClosedVirtual]:
        is_closed = F.col("origin_seq") <= F.col("until")
        table = (
            self._join_ends(ends)
            .groupBy("virtual", "origin", "stream")
            .agg(
                F.count_if(is_closed).alias("messages"),
                F.min(F.when(is_closed, F.col("origin_seq"))).alias("first"),
                F.max(F.when(is_closed, F.col("time_ns"))).alias("until_ns"),
                F.min(F.when(~is_closed, F.col("seq"))).alias("open"),
                F.count_if(F.col("until").isNull() | (F.col("former") != "")).alias("strange"),
            )
        )
        facts: dict[str, dict[tuple[str, str | None], Any]] = defaultdict(dict)
        for row in table.collect():
            facts[row.virtual][row.stream, row.origin] = row
        closed = []
        for virtual, rows in self._rows.items():
            if not any(row.strange for row in facts[virtual].values()):
                item = self._close_virtual(virtual, rows, facts[virtual], ends)
                closed += [item] if item is not None else []
        return closed

    def _close_virtual(
        self,
        virtual: str,
        rows: Sequence[Any],
        facts: Mapping[tuple[str, str | None], Any],
        ends: Mapping[tuple[str, str], int],
    ) -> ClosedVirtual | None:
        """None if they are not all messages of their origins from one on."""
        until_ns, streams = [self._until_ns.get(virtual, 0)], []
        origins = [row.stream for row in rows if is_origin(row)]
        for row in rows:
            routes, opened = [], []
            for origin in [row.stream] if is_origin(row) else origins:
                fact = facts.get((row.stream, origin))
                before = self._closed.routes.get((virtual, origin, row.stream), NO_ROUTE)
                count = before.messages + (fact.messages if fact else 0)
                first = fact.first if fact and not before.messages else before.first
                until = ends[virtual, origin]
                if count and (first is None or until - first + 1 != count):
                    return None
                routes.append(ClosedRoute(origin, until, count, first if count else None))
                opened += [fact.open] if fact and fact.open is not None else []
                until_ns += [fact.until_ns] if fact and fact.until_ns is not None else []
            last = ends[virtual, row.stream] if is_origin(row) else min(opened, default=row.last_seq + 1) - 1
            streams.append(ClosedStream(stream=row.stream, last_seq=last, read_to=row.last_seq, routes=tuple(routes)))
        return ClosedVirtual(virtual=virtual, until_ns=max(until_ns), streams=tuple(streams))
