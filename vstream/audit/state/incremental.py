"""
Judge only what no earlier audit with the same state has verified (`verified`), and record what is verified now.

Nothing is verified in virtual streams in which something was found, and where something other than age or size removes
messages. Why it is enough to judge the others:

- A verified message cannot be missing: streams that lost messages otherwise than by their limits are read again.
- If it is stored again, that is behind what was read, and the others lack it there.
- A new message with its id is looked for (`find_known_ids`).
- All that is on its way was written after verified messages had arrived everywhere. What had arrived was judged together.
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
from vstream.audit.extract.extract_plan import ExtractPlan
from vstream.audit.extract.extraction import read_plan
from vstream.audit.finding_kinds import FindingKind
from vstream.audit.report import Report
from vstream.audit.request import SMALL_AUDIT_MESSAGES, AuditProgress
from vstream.audit.spark.local_frames import collect_arrow, from_arrow, make_table, plain_rows
from vstream.audit.stages import AuditResult, StageRunner
from vstream.audit.state.audit_state import AuditState
from vstream.audit.state.verified import (
    NO_ROUTE,
    VerifiedPart,
    VerifiedRoute,
    VerifiedStream,
    VerifiedVirtual,
    can_verify,
)
from vstream.audit.tables.audit_tables import AuditTables
from vstream.audit.tables.schema import MESSAGES, STREAMS, make_schema
from vstream.audit.tables.stream_facts import StreamFacts, tabulate_verified
from vstream.audit.tables.stream_settings import is_origin
from vstream.audit.tables.table_store import TableStore
from vstream.value_class import value_class

_QUIET_KINDS: Final = (FindingKind.PENDING, FindingKind.REMOVED, FindingKind.CANARIES, FindingKind.CANARIES_LATE)
_QUIET: Final = frozenset(BY_KIND[kind].code for kind in _QUIET_KINDS)
"""Codes of findings that leave a virtual stream right: what is on its way, and what limits or probes have removed."""
_ENDS = make_schema("virtual string, origin string, until bigint")
MAX_JUDGED: Final = 200_000
"""Number of stored messages up to which all are judged each time: it would take longer to find out which need not be."""


@value_class
class StateMessages:
    """The messages of an audit with a *state*: those that it keeps, and the *arrivals* (`extraction.read_plan`), which it does not."""

    state: AuditState
    verified: VerifiedPart
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
    right = f"{update.verified.messages:,} were right before"
    verified = f"; {right}, and are not judged again" if update.verified.virtuals else ""
    progress.note(f"{update.new:,} of {plan.messages:,} messages were read from servers{again}{verified}")
    arrivals = from_arrow(spark, extraction.arrivals, MESSAGES)
    messages = update.messages.unionByName(arrivals)
    tables = AuditTables(messages=messages, streams=make_table(spark, extraction.streams, STREAMS))
    return tables, StateMessages(state=state, verified=update.verified, arrivals=arrivals, number=plan.messages)


def judge_unverified(
    state_messages: StateMessages, streams: DataFrame, runner: StageRunner, uri: str, *, at_least: int = MAX_JUDGED
) -> AuditResult:
    """
    Audit all *state_messages* by *runner*, but those that are verified: these are only counted.

    Tables of many unverified messages are stored at *uri*. Virtual streams in which something is found are judged again as a
    whole. Then the state records which messages are verified now, if *at_least* so many are stored.
    """
    state, verified = state_messages.state, state_messages.verified
    while True:
        in_memory = state_messages.number - verified.messages < SMALL_AUDIT_MESSAGES
        store = TableStore(streams.sparkSession, None if in_memory else uri)
        messages = state.read_unverified(verified).unionByName(state_messages.arrivals)
        audited = replace(runner, store=store, verified=verified).run(messages, streams)
        report, copies, facts = audited.report, audited.copies, audited.facts
        disturbed = find_disturbed(verified, copies, report, facts)
        verified = verified.without(disturbed)
        if verified.virtuals:
            disturbed |= find_known_ids(copies, verified, state.read_verified(verified))
        if not disturbed:
            break
        verified = verified.without(disturbed)
    if report.messages >= at_least:
        state.record_verified(verify_messages(verified, copies, audited.buckets, report, facts))
    return audited


def find_disturbed(verified: VerifiedPart, copies: DataFrame, report: Report, facts: StreamFacts) -> set[str]:
    """
    The virtual streams of *verified* that have to be judged as a whole.

    *copies*, *report* and *facts* are those of what is unverified.
    """
    if not verified.virtuals:
        return set()
    names = {item.virtual for item in verified.virtuals}
    firsts = [(virtual, origin, first) for (virtual, origin), (first, _) in facts.bounds.items() if first is not None]
    is_new = F.col("seq") > F.col("read_to")
    # The origin's own time is when a message was written; without its copy there, that of another.
    tells_time = F.col("is_origin") | (F.col("origin_seq") < F.col("first"))
    is_early = is_new & tells_time & (F.col("time_ns") <= F.col("until_ns"))
    origins = make_table(copies.sparkSession, firsts, make_schema("virtual string, origin string, first bigint"))
    rows = (
        _select(copies, names)
        .join(
            F.broadcast(tabulate_verified(copies.sparkSession, verified)), ["virtual", "stream", "origin"], how="left"
        )
        .join(F.broadcast(origins), ["virtual", "origin"], how="left")
        .where(F.coalesce(is_early, F.lit(True)))
    )
    disturbed = {row.virtual for row in rows.select("virtual").distinct().collect()}
    return disturbed | {item.virtual for item in report.findings if item.code not in _QUIET} & names


def find_known_ids(copies: DataFrame, verified: VerifiedPart, messages: DataFrame) -> set[str]:
    """The virtual streams in which a new one of *copies* has the id of a verified one; *messages* are the verified ones."""
    marks = (
        tabulate_verified(copies.sparkSession, verified)
        .groupBy("virtual", "stream")
        .agg(F.max("read_to").alias("read_to"))
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


def verify_messages(
    verified: VerifiedPart, copies: DataFrame, buckets: DataFrame, report: Report, facts: StreamFacts
) -> VerifiedPart:
    """*verified* with all that the audit of *copies* lets be verified; *verified* were not judged by it."""
    rows: dict[str, list[Any]] = defaultdict(list)
    for row in facts.rows:
        rows[row.virtual].append(row)
    is_bad = {item.virtual for item in report.findings if item.code not in _QUIET}
    before = {item.virtual: item for item in verified.virtuals}
    # Where nothing came, all stays as it was.
    judged = {
        stream.virtual for stream in report.streams if stream.rows > verified.count(stream.virtual, stream.stream)
    }
    origins: dict[str, set[str]] = defaultdict(set)
    for virtual, origin in facts.bounds:
        origins[virtual].add(origin)
    right = sorted(judged - is_bad - facts.counters)
    virtuals = [name for name in right if _can_verify_all(rows[name], origins[name])]
    parts = [item for name, item in before.items() if name not in judged]
    if virtuals:
        parts += _Verification(verified, copies, buckets, {name: rows[name] for name in virtuals}).verify()
    done = {item.virtual for item in parts}
    # What could not be verified further is verified as far as it was.
    parts += [item for name, item in before.items() if name not in done and name not in is_bad]
    return VerifiedPart(tuple(sorted(parts, key=lambda item: item.virtual)))


def _can_verify_all(rows: Sequence[Any], origins: Collection[str]) -> bool:
    """Whether the streams *rows* are readers of all these *origins*, and lose only their oldest messages."""
    written = {row.stream for row in rows if is_origin(row)}
    return len(written) < len(rows) and written == origins and all(map(can_verify, rows))


class _Verification:
    """Finds out how far the virtual streams with these *rows* can be verified."""

    def __init__(
        self,
        verified: VerifiedPart,
        copies: DataFrame,
        buckets: DataFrame,
        rows: Mapping[str, Sequence[Any]],
    ) -> None:
        self._verified = verified
        self._spark = copies.sparkSession
        self._copies = _select(copies, rows)
        self._until_ns = {item.virtual: item.until_ns for item in verified.virtuals}
        self._buckets = buckets
        self._rows = rows
        self._pairs: list[tuple[str, str, str]] = []
        for virtual, group in rows.items():
            origins = [row.stream for row in group if is_origin(row)]
            readers = [row.stream for row in group if not is_origin(row)]
            self._pairs += [(virtual, origin, reader) for origin in origins for reader in readers]

    def verify(self) -> list[VerifiedVirtual]:
        """Their verified messages, with those that were verified before."""
        ends = self._find_common_ends(self._find_arrived())
        ends = self._find_common_ends(self._find_before(self._find_unverified(ends)))
        return self._make_verified(ends)

    def _find_arrived(self) -> Mapping[tuple[str, str, str], int]:
        """By virtual stream, origin and reader: the last sequence that has arrived, even if it was removed since."""
        table = collect_arrow(self._buckets)
        theirs = table.filter(pc.and_(pc.invert(table["is_origin"]), pc.equal(table["part"], "covered")))
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
            before = self._verified.routes.get((virtual, origin, reader))
            end = max(arrived.get((virtual, origin, reader), 0), before.until if before is not None else 0)
            ends[virtual, origin] = min(ends.get((virtual, origin), end), end)
        return ends

    def _find_unverified(self, ends: Mapping[tuple[str, str], int]) -> DataFrame:
        """By virtual stream: when the first message was written that has not arrived everywhere."""
        rows = self._join_ends(ends).where(F.col("origin_seq") > F.col("until"))
        return rows.groupBy("virtual").agg(F.min("time_ns").alias("unverified_ns"))

    def _find_before(self, unverified: DataFrame) -> Mapping[tuple[str, str, str], int]:
        """By virtual stream, origin and reader: the last sequence that had arrived before the times in *unverified*."""
        before = (
            self._copies.where(~F.col("is_origin"))
            .join(F.broadcast(unverified), "virtual", how="left")
            .where(F.col("unverified_ns").isNull() | (F.col("time_ns") < F.col("unverified_ns")))
            .groupBy("virtual", "origin", "stream")
            .agg(F.max("origin_seq").alias("last"))
        )
        return {(row.virtual, row.origin, row.stream): row["last"] for row in before.collect()}

    def _join_ends(self, ends: Mapping[tuple[str, str], int]) -> DataFrame:
        table = make_table(self._spark, [(*origin, end) for origin, end in ends.items()], _ENDS)
        return self._copies.join(F.broadcast(table), ["virtual", "origin"], how="left")

    def _make_verified(self, ends: Mapping[tuple[str, str], int]) -> list[VerifiedVirtual]:
        is_verified = F.col("origin_seq") <= F.col("until")
        table = (
            self._join_ends(ends)
            .groupBy("virtual", "origin", "stream")
            .agg(
                F.count_if(is_verified).alias("messages"),
                F.min(F.when(is_verified, F.col("origin_seq"))).alias("first"),
                F.max(F.when(is_verified, F.col("time_ns"))).alias("until_ns"),
                F.min(F.when(~is_verified, F.col("seq"))).alias("first_unverified"),
                F.count_if(F.col("until").isNull() | (F.col("former") != "")).alias("strange"),
            )
        )
        counts_of: dict[str, dict[tuple[str, str | None], Any]] = defaultdict(dict)
        for row in table.collect():
            counts_of[row.virtual][row.stream, row.origin] = row
        verified = []
        for virtual, rows in self._rows.items():
            if not any(row.strange for row in counts_of[virtual].values()):
                item = self._verify_virtual(virtual, rows, counts_of[virtual], ends)
                verified += [item] if item is not None else []
        return verified

    def _verify_virtual(
        self,
        virtual: str,
        rows: Sequence[Any],
        counts_of: Mapping[tuple[str, str | None], Any],
        ends: Mapping[tuple[str, str], int],
    ) -> VerifiedVirtual | None:
        """None if they are not all messages of their origins from one on."""
        until_ns, streams = [self._until_ns.get(virtual, 0)], []
        origins = [row.stream for row in rows if is_origin(row)]
        for row in rows:
            routes, unverified = [], []
            for origin in [row.stream] if is_origin(row) else origins:
                fact = counts_of.get((row.stream, origin))
                before = self._verified.routes.get((virtual, origin, row.stream), NO_ROUTE)
                count = before.messages + (fact.messages if fact else 0)
                first = fact.first if fact and not before.messages else before.first
                until = ends[virtual, origin]
                if count and (first is None or until - first + 1 != count):
                    return None
                routes.append(VerifiedRoute(origin, until, count, first if count else None))
                unverified += [fact.first_unverified] if fact and fact.first_unverified is not None else []
                until_ns += [fact.until_ns] if fact and fact.until_ns is not None else []
            last = ends[virtual, row.stream] if is_origin(row) else min(unverified, default=row.last_seq + 1) - 1
            streams.append(VerifiedStream(stream=row.stream, last_seq=last, read_to=row.last_seq, routes=tuple(routes)))
        return VerifiedVirtual(virtual=virtual, until_ns=max(until_ns), streams=tuple(streams))
