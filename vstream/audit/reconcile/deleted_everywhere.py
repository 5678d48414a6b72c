"""
Reconcile: which messages are gone from an origin and from all its readers.

No message is left to compare, so the gaps between sequences tell. Where a virtual stream has canaries, which leave gaps, too,
a gap is one of three kinds:

* `CANARIES`: between the same neighbours, a reader lacks a sequence of its own for each message that is gone. So it had them all.
* `CANARIES_OR_LOST`: no reader lacks as many there, but one lacks some; or no reader shows what it has deleted.
* `DELETED_EVERYWHERE`: no reader lacks any there. So none ever had one of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vstream.audit.finding_kinds import FindingKind
from vstream.audit.reconcile.absences import GapAtReader, find_explained
from vstream.audit.spark.local_frames import collect_arrow, make_table, plain_rows
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts, may_have_holes
from vstream.audit.tables.stream_settings import is_origin

_ENDS: Final = make_schema("virtual string not null, origin string, origin_seq bigint")
_CANARY_KINDS: Final = make_schema("virtual string, origin string, before bigint, canary_kind string")
_LASTS: Final = make_schema("virtual string, stream string, last_seq bigint")
_HOLES: Final = make_schema(
    "virtual string, origin string, region string, first bigint, last bigint, is_capture boolean"
)


def find_deleted_everywhere(copies: DataFrame, facts: StreamFacts, with_canary: Collection[str]) -> DataFrame:
    """
    DIFFERENCES of messages missing in the middle of origins (`StreamFacts.holes`) and in all readers: one row per range.

    *with_canary* are the virtual streams whose canaries are deleted again.
    """
    spark, key, seq = copies.sparkSession, ["virtual", "origin"], F.col("origin_seq")
    holes = F.broadcast(make_table(spark, facts.holes, _HOLES))
    # What is gone behind the last message has the end of the stream behind it; of a capture that is not known for sure.
    ends = [(hole.virtual, hole.origin, hole.last + 1) for hole in facts.holes if not hole.is_capture]
    held = (
        copies.where(F.col("former") == "")
        .join(holes, key)
        .where(seq.between(F.col("first"), F.col("last")))
        .select(*key, "origin_seq")
        .distinct()
        .unionByName(make_table(spark, ends, _ENDS))
        .withColumn("before", F.lag(seq).over(Window.partitionBy(*key).orderBy(seq)))
    )
    gaps = held.where(seq > F.col("before") + 1).withColumn("number", seq - F.col("before") - 1)
    gaps = gaps.join(_judge_canaries(copies, facts, with_canary), [*key, "before"], how="left")
    rows = gaps.join(holes, key).withColumn("kind", F.coalesce("canary_kind", F.lit(FindingKind.DELETED_EVERYWHERE)))
    return rows.selectExpr(
        *(*key, "'' as former", "before + 1 as origin_seq", "origin as stream", "region"),
        *("kind", "cast(null as bigint) as seq", "number"),
        *("cast(null as bigint) as time_ns", "cast(null as string) as key"),
    )


def _judge_canaries(copies: DataFrame, facts: StreamFacts, with_canary: Collection[str]) -> DataFrame:
    """
    The kinds of gaps of the virtual streams *with_canary*, except DELETED_EVERYWHERE: virtual, origin, before, canary_kind.

    A sequence that a reader lacks counts for one message of one origin.
    """
    names = {hole.virtual for hole in facts.holes} & {*with_canary}
    unknown = _find_with_unknown_origins(copies, facts, names) if names else set()
    witnesses = [row for row in facts.rows if row.virtual in names - unknown and _shows_what_it_deleted(row)]
    gaps_by_reader: dict[tuple[str, str], list[GapAtReader]] = defaultdict(list)
    if witnesses:
        for row in plain_rows(collect_arrow(_place_gaps(copies, facts, witnesses))):
            gap = GapAtReader(*row)
            gaps_by_reader[gap.virtual, gap.reader].append(gap)
    readers = gaps_by_reader.values()
    doubtful = {gap[:3] for gaps in readers for gap in gaps if gap.high > gap.low}
    explained = {gap[:3] for gaps in readers for gap in find_explained(gaps)}
    kinds = dict.fromkeys(doubtful, FindingKind.CANARIES_OR_LOST) | dict.fromkeys(explained, FindingKind.CANARIES)
    result = make_table(copies.sparkSession, [(*gap, kind) for gap, kind in kinds.items()], _CANARY_KINDS)
    if undecidable := names - {row.virtual for row in witnesses}:
        gaps_of_any = _find_gaps(copies, facts, undecidable).select("virtual", "origin", "before")
        result = result.unionByName(gaps_of_any.withColumn("canary_kind", F.lit(FindingKind.CANARIES_OR_LOST)))
    return result


def _find_with_unknown_origins(copies: DataFrame, facts: StreamFacts, names: Collection[str]) -> set[str]:
    """
    Those of *names* with an origin of which nobody knows what is gone: it was not read, given up, or made anew.

    What readers lack may be of that one.
    """
    of_names = F.col("virtual").isin(*names)
    unread = facts.origins.where(of_names & F.col("origin_last").isNull()).select("virtual")
    made_anew = copies.where(of_names & (F.col("former") != "")).select("virtual")
    return {row.virtual for row in unread.unionByName(made_anew).distinct().collect()}


def _shows_what_it_deleted(row: Any) -> bool:
    """Whether a sequence that the stream *row* lacks is a message that it had, and that somebody has deleted."""
    # A mirror has the sequences of its origin, also of what was lost there before it was copied.
    is_copy = not is_origin(row) and row.mirror is None
    return is_copy and row.error is None and not may_have_holes(row)


def _find_gaps(copies: DataFrame, facts: StreamFacts, names: Collection[str]) -> DataFrame:
    """The gaps of all origins of the virtual streams *names*, also before their first messages: virtual, origin, before, number."""
    key, seq = ["virtual", "origin"], F.col("origin_seq")
    origins = facts.origins.where(F.col("virtual").isin(*names) & F.col("origin_last").isNotNull())
    ends = origins.select(
        *key, F.explode(F.array(F.col("origin_began") - 1, F.col("origin_last") + 1)).alias("origin_seq")
    )
    held = copies.where(F.col("former") == "").join(F.broadcast(origins.select(*key)), key).select(*key, "origin_seq")
    return (
        held.unionByName(ends)
        .distinct()
        .withColumn("before", F.lag(seq).over(Window.partitionBy(*key).orderBy(seq)))
        .where(seq > F.col("before") + 1)
        .select(*key, "before", (seq - F.col("before") - 1).alias("number"))
    )


def _place_gaps(copies: DataFrame, facts: StreamFacts, witnesses: Sequence[Any]) -> DataFrame:
    """Each gap at each of the *witnesses*: columns of `GapAtReader`."""
    spark, key, reader = copies.sparkSession, ["virtual", "origin"], ["virtual", "stream"]
    lasts = F.broadcast(make_table(spark, [(row.virtual, row.stream, row.last_seq) for row in witnesses], _LASTS))
    gaps = _find_gaps(copies, facts, {row.virtual for row in witnesses})
    stored = copies.where(~F.col("is_origin")).join(lasts, reader).where(F.col("seq") <= F.col("last_seq"))
    absent = F.col("seq") - F.row_number().over(Window.partitionBy(*reader).orderBy("seq"))
    ends = stored.groupBy(*reader, "last_seq").agg((F.col("last_seq") - F.count(F.lit(1))).alias("at_end"))
    neighbours = (
        stored.withColumn("absent", absent)
        .where(F.col("former") == "")
        .select(
            *key, "stream", F.col("origin_seq").alias("before"), "absent", F.lit(None).cast("bigint").alias("number")
        )
    )
    placed = gaps.join(ends.select(*reader), "virtual").withColumn("absent", F.lit(None).cast("bigint"))
    # The nearest messages on both sides that the reader has; without one, its own first or last.
    in_order = Window.partitionBy(*key, "stream").orderBy("before", F.col("number").isNotNull())
    low = F.last("absent", ignorenulls=True).over(in_order.rowsBetween(Window.unboundedPreceding, 0))
    high = F.first("absent", ignorenulls=True).over(in_order.rowsBetween(0, Window.unboundedFollowing))
    return (
        neighbours.unionByName(placed)
        .withColumns({"low": low, "high": high})
        .where(F.col("number").isNotNull())
        .join(ends, reader)
        .select(*key, "before", "number", "stream", F.coalesce("low", F.lit(0)), F.coalesce("high", "at_end"))
    )
