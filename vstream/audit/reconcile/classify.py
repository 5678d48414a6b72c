"""
Reconcile: what is wrong with each message in the buckets that differ.

There is one row per problem, message and reader. Messages that a reader lacks are classified in `absence`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from vstream.audit.finding_kinds import MISSING, FindingKind
from vstream.audit.reconcile.absence import classify_absent
from vstream.audit.reconcile.buckets import BUCKET_SIZE, MESSAGE, ORIGIN, add_part, select_rows_near
from vstream.audit.reconcile.differing_messages import DifferingMessages
from vstream.audit.reconcile.removal import (
    find_oldest_at_origins,
    is_early_at_origin,
    is_old_at_origin,
    is_replaced_alike,
    may_be_gone_at_origin,
)
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts

DIFFERENCES = make_schema("""
    virtual string not null, origin string, former string, origin_seq bigint, stream string not null,
    region string not null, kind string not null, seq bigint, number bigint not null, time_ns bigint, key string
""")
"""
Columns of DIFFERENCES. *stream* is the stream with the problem; *seq* is the sequence of the copy in it, null if the
message is absent. *number* is the number of extra copies if a message is stored several times, else 1. *time_ns* is
when the message was written, in nanoseconds since 1970, as far as that is known.
"""

_EACH: Final = {"digest": "digests", "key": "keys", "sent_subject": "subjects"}
_CANARIES: Final = make_schema("virtual string, usual_key string")


def find_message_differences(
    messages: DifferingMessages,
    copies: DataFrame,
    facts: StreamFacts,
    extents: DataFrame,
    suspects: DataFrame,
    canaries: Mapping[str, Sequence[str]],
    *,
    size: int = BUCKET_SIZE,
) -> DataFrame:
    """DIFFERENCES of the messages of *messages* in the buckets `suspects`, except for those of order; *canaries* by virtual stream."""
    grid = _tabulate_messages(messages.differing, facts, suspects, size).persist()
    absent = classify_absent(grid, copies, facts, extents, messages.ids)
    result = _classify_present(grid).unionByName(absent).unionByName(_classify_at_origins(grid, facts, extents))
    return _excuse_late_canaries(result, grid, canaries) if canaries else result


def _excuse_late_canaries(result: DataFrame, grid: DataFrame, canaries: Mapping[str, Sequence[str]]) -> DataFrame:
    """*result*, in which canaries that came after a probe had deleted them at their origin are no loss."""
    subjects = [(virtual, subject) for virtual, listed in canaries.items() for subject in listed]
    late = (
        grid.where(F.col("own").isNull())
        .join(
            F.broadcast(make_table(grid.sparkSession, subjects, _CANARIES)), ["virtual", "usual_key"], how="left_semi"
        )
        .select(*MESSAGE, F.lit(True).alias("is_late"))
    )
    is_excused = F.coalesce("is_late", F.lit(False)) & F.col("kind").isin(*MISSING, FindingKind.NOT_AT_ORIGIN)
    kind = F.when(is_excused, F.lit(FindingKind.CANARIES_LATE)).otherwise(F.col("kind"))
    return result.join(F.broadcast(late), [*MESSAGE], how="left").withColumn("kind", kind).drop("is_late")


def _tabulate_messages(copies: DataFrame, facts: StreamFacts, suspects: DataFrame, size: int) -> DataFrame:
    """Each message of a suspect bucket: what its origin has, what each reader has, and what most readers have."""
    is_own, is_copy = F.col("is_origin"), ~F.col("is_origin")
    cells = (
        add_part(copies, facts)
        .where(F.col("part") == "covered")
        .withColumn("bucket", F.expr(f"origin_seq div {size}"))
        .join(suspects, [*ORIGIN, "bucket"], how="left_semi")
        .groupBy(*MESSAGE, "is_origin", "stream", "region")
        .agg(
            F.count(F.lit(1)).alias("number"),
            *(F.min(name).alias(name) for name in ("seq", "time_ns", "msg_id", "ttl_ns")),
            *(F.array(F.min(name), F.max(name)).alias(names) for name, names in _EACH.items()),
        )
    )
    cell = F.struct("stream", "region", "number", "seq", "time_ns", "digests", "keys", "subjects", "msg_id")
    return cells.groupBy(*MESSAGE).agg(
        F.first(F.when(is_own, cell), ignorenulls=True).alias("own"),
        F.collect_list(F.when(is_copy, cell)).alias("copies"),
        F.min(F.when(is_copy, F.col("time_ns"))).alias("first_arrival"),
        F.mode(F.when(is_copy, F.col("digests")[0]), deterministic=True).alias("usual_digest"),
        F.mode(F.when(is_copy, F.col("keys")[0]), deterministic=True).alias("usual_key"),
        F.max("msg_id").alias("msg_id"),
        F.min("ttl_ns").alias("ttl_ns"),
    )


def _classify_present(grid: DataFrame) -> DataFrame:
    """DIFFERENCES of copies that exist."""
    original, copy = F.col("own"), F.col("copy")
    digest = F.coalesce(original["digests"][0], F.col("usual_digest"))
    is_other = F.exists(copy["digests"], lambda item: item != digest)
    # What arrived before it was written is a copy of something else.
    is_reused = F.coalesce(original["time_ns"] > copy["time_ns"], F.lit(False)) | F.coalesce(
        original["msg_id"] != copy["msg_id"], F.lit(False)
    )
    is_renamed = F.exists(copy["keys"], lambda item: item != F.col("usual_key")) | F.exists(
        copy["subjects"], lambda item: F.coalesce(item != original["subjects"][0], F.lit(False))
    )
    kinds = F.array(
        F.when(copy["number"] > 1, F.lit(FindingKind.DUPLICATED)),
        F.when(is_other & is_reused, F.lit(FindingKind.REUSED)).when(is_other, F.lit(FindingKind.PAYLOAD)),
        F.when(is_renamed & ~(is_other & is_reused), F.lit(FindingKind.SUBJECT)),
    )
    return (
        grid.withColumn("copy", F.explode("copies"))
        .select(
            *MESSAGE,
            *(copy[name].alias(name) for name in ("stream", "region", "seq")),
            F.explode(F.array_compact(kinds)).alias("kind"),
            copy["number"].alias("copies"),
            F.coalesce(original["time_ns"], F.col("first_arrival")).alias("time_ns"),
            F.col("usual_key").alias("key"),
        )
        .withColumn("number", F.when(F.col("kind") == FindingKind.DUPLICATED, F.col("copies") - 1).otherwise(F.lit(1)))
        .select(*DIFFERENCES.names)
    )


def _classify_at_origins(grid: DataFrame, facts: StreamFacts, extents: DataFrame) -> DataFrame:
    """Messages that readers have and the origin lacks although no limit removes them there, and duplicated rows."""
    number = F.col("own.number")
    is_missing = number.isNull() & (F.col("former") == "") & F.col("origin_last").isNotNull()
    is_gone = is_missing & ~may_be_gone_at_origin()
    return (
        grid.join(F.broadcast(facts.origins), ["virtual", "origin"])
        .join(F.broadcast(find_oldest_at_origins(extents)), ["virtual", "origin"], how="left")
        .withColumn("time_ns", F.coalesce("own.time_ns", "first_arrival"))
        .select(
            *MESSAGE,
            F.col("origin").alias("stream"),
            F.col("origin_region").alias("region"),
            F.when(is_gone, F.lit(FindingKind.NOT_AT_ORIGIN))
            .when(is_missing & is_early_at_origin(), F.lit(FindingKind.REMOVED_EARLY))
            .when(number > 1, F.lit(FindingKind.ROW_TWICE))
            .alias("kind"),
            F.col("own.seq").alias("seq"),
            F.when(number > 1, number - 1).otherwise(F.lit(1)).cast("bigint").alias("number"),
            "time_ns",
            F.coalesce("usual_key", F.col("own.keys")[0]).alias("key"),
        )
        .where(F.col("kind").isNotNull())
    )


def find_expired_before_read(extents: DataFrame, facts: StreamFacts) -> DataFrame:
    """DIFFERENCES for messages that origins removed before readers sourced them, one row per range; reads no messages."""
    cursor = F.greatest("cursor", F.coalesce("greatest", F.lit(0)), F.col("origin_began") - 1)
    return (
        facts.expected.where(F.col("cursor").isNotNull())
        .withColumn("former", F.lit(""))
        .join(F.broadcast(extents), [*ORIGIN, "stream"], how="left")
        .where((cursor < F.col("origin_first") - 1) & ~is_replaced_alike())
        .withColumns({"origin_seq": cursor + 1, "number": F.col("origin_first") - 1 - cursor})
        .selectExpr(
            *(*MESSAGE, "stream", "region", f"'{FindingKind.EXPIRED}' as kind"),
            *("cast(null as bigint) as seq", "number"),
            *("cast(null as bigint) as time_ns", "cast(null as string) as key"),
        )
    )


def find_purged_buckets(copies: DataFrame, facts: StreamFacts, *, size: int = BUCKET_SIZE) -> DataFrame | None:
    """
    Buckets (virtual, origin, former, bucket) whose messages the origins lack although no limit has removed them.

    None if there are none: the youngest message that is gone decides.
    """
    is_aging = F.col("origin_max_age").isNotNull() & (F.col("origin_first") > 1)
    limited = facts.origins.where(is_aging | (F.col("origin_first_kept") < F.col("origin_first")))
    lasts = [(row.origin_first - 1) // size for row in limited.select("origin_first").collect()]
    if not lasts or facts.is_narrow:
        return None

    def select_young(rows: DataFrame) -> DataFrame:
        return (
            rows.where(~F.col("is_origin") & (F.col("former") == ""))
            .join(F.broadcast(limited), ["virtual", "origin"])
            .where(F.col("origin_seq").between(F.col("origin_began"), F.col("origin_first") - 1))
            .where(~is_old_at_origin() | is_early_at_origin())
        )

    near = select_rows_near(copies, {bucket for last in lasts for bucket in (last - 1, last)}, size)
    if select_young(near).isEmpty():
        return None
    return select_young(copies).select(*ORIGIN, F.expr(f"origin_seq div {size}").alias("bucket")).distinct()


def find_misplaced(
    copies: DataFrame, facts: StreamFacts, ahead: Iterable[int], *, size: int = BUCKET_SIZE
) -> DataFrame:
    """DIFFERENCES of impossible copies: of a message that never existed, or (buckets *ahead*) that its origin has lost."""
    rows = select_rows_near(copies, ahead, size).unionByName(copies.where(F.col("origin").isNull()))
    kind = F.when(F.col("part") == "foreign", FindingKind.FOREIGN).when(
        F.col("part") == "ahead", FindingKind.ROLLED_BACK
    )
    return (
        add_part(rows, facts)
        .withColumn("kind", kind)
        .where(F.col("kind").isNotNull())
        .select(*MESSAGE, "stream", "region", "kind", "seq", F.lit(1).cast("bigint").alias("number"), "time_ns", "key")
    )
