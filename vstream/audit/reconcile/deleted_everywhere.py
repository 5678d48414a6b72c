"""
Reconcile: which messages are gone from an origin and from all its readers.

No message is left to compare, so the gaps between sequences tell. Canaries leave such gaps, too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vstream.audit.finding_kinds import FindingKind
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts, may_have_holes
from vstream.audit.tables.stream_settings import is_origin

_ENDS: Final = make_schema("virtual string not null, origin string, origin_seq bigint")
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
    names = {hole.virtual for hole in facts.holes} & {*with_canary}
    witnesses = [row for row in facts.rows if row.virtual in names and _shows_what_it_deleted(row)]
    untold = names - {row.virtual for row in witnesses}
    kind = F.when(F.col("virtual").isin(*untold), F.lit(FindingKind.CANARIES_OR_LOST)).otherwise(
        F.lit(FindingKind.DELETED_EVERYWHERE)
    )
    if witnesses:
        gaps = gaps.join(_find_canaries(gaps, copies, witnesses), [*key, "before"], how="left")
        kind = F.when(F.col("is_canary"), F.lit(FindingKind.CANARIES)).otherwise(kind)
    rows = gaps.join(holes, key).withColumn("kind", kind)
    return rows.selectExpr(
        *(*key, "'' as former", "before + 1 as origin_seq", "origin as stream", "region"),
        *("kind", "cast(null as bigint) as seq", "number"),
        *("cast(null as bigint) as time_ns", "cast(null as string) as key"),
    )


def _shows_what_it_deleted(row: Any) -> bool:
    """Whether a sequence that the stream *row* lacks is a message that it had, and that somebody has deleted."""
    # A mirror has the sequences of its origin, also of what was lost there before it was copied.
    is_copy = not is_origin(row) and row.mirror is None
    return is_copy and row.error is None and not may_have_holes(row)


def _find_canaries(gaps: DataFrame, copies: DataFrame, witnesses: Sequence[Any]) -> DataFrame:
    """
    Those of *gaps* that canaries may have left: virtual, origin, before, is_canary.

    One of the *witnesses* has stored and deleted as many messages between the neighbours: they were not lost on their way.
    """
    spark, key, reader = copies.sparkSession, ["virtual", "origin"], ["virtual", "stream"]
    lasts = F.broadcast(make_table(spark, [(row.virtual, row.stream, row.last_seq) for row in witnesses], _LASTS))
    stored = copies.where(~F.col("is_origin")).join(lasts, reader).where(F.col("seq") <= F.col("last_seq"))
    absent = F.col("seq") - F.row_number().over(Window.partitionBy(*reader).orderBy("seq"))
    placed = (
        stored.withColumn("absent", absent)
        .where(F.col("former") == "")
        .groupBy(*key, "stream", "origin_seq")
        .agg(F.min("absent").alias("absent"))
    )
    # Behind the last message of an origin, a reader is at its own end.
    ends = stored.groupBy(*reader, "last_seq").agg((F.col("last_seq") - F.count(F.lit(1))).alias("at_end"))
    before = placed.select(*key, "stream", F.col("origin_seq").alias("before"), F.col("absent").alias("absent_before"))
    return (
        gaps.join(before, [*key, "before"])
        .join(placed, [*key, "stream", "origin_seq"], how="left")
        .join(ends, reader)
        .where(F.coalesce("absent", "at_end") - F.col("absent_before") >= F.col("number"))
        .select(*key, "before", F.lit(True).alias("is_canary"))
        .distinct()
    )
