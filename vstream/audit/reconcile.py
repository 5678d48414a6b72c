"""
Stage 3: where regions differ, without joining everything with everything.

The sequences of an origin are contiguous, and a bucket of 4096 of them has a digest in
each stream: how many copies, and the exclusive or of their hashes. Only buckets whose
digests differ are looked into, message by message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import BooleanType, LongType, StringType, StructField, StructType

from vstream.audit.cut import SKEW_NS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from vstream.audit.cut import Cut

BUCKET: Final = 4096

ORIGIN: Final = ("virtual", "origin", "former")
MESSAGE: Final = (*ORIGIN, "origin_seq")

BUCKETS = StructType(
    [
        StructField("virtual", StringType(), nullable=False),
        StructField("origin", StringType(), nullable=True),
        StructField("former", StringType(), nullable=True),
        StructField("stream", StringType(), nullable=False),
        StructField("region", StringType(), nullable=False),
        StructField("is_origin", BooleanType(), nullable=False),
        StructField("part", StringType(), nullable=False),
        StructField("bucket", LongType(), nullable=True),
        StructField("copies", LongType(), nullable=False),
        StructField("payloads", LongType(), nullable=True),
        StructField("keys", LongType(), nullable=True),
        StructField("subjects", LongType(), nullable=True),
        StructField("with_subject", LongType(), nullable=False),
        StructField("least", LongType(), nullable=True),
        StructField("greatest", LongType(), nullable=True),
        StructField("first_seq", LongType(), nullable=True),
        StructField("last_seq", LongType(), nullable=True),
        StructField("last_ns", LongType(), nullable=True),
    ]
)
"""
Digests. *part* says what the copies are: `cut` (at or below the origin's last sequence),
`ahead` (above it, though stored before the cut), `later` (above it, stored since),
`earlier` (written before the moment from which on streams were read) or `foreign`
(copies of nothing that the virtual stream has). *payloads*, *keys* and
*subjects* are exclusive ors of hashes of origin sequence and digest, digest and key,
subject in the origin; *with_subject* is how many copies say the last one.
"""

BACKSTEPS = StructType(
    [
        StructField("virtual", StringType(), nullable=False),
        StructField("origin", StringType(), nullable=True),
        StructField("former", StringType(), nullable=True),
        StructField("stream", StringType(), nullable=False),
        StructField("region", StringType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("origin_seq", LongType(), nullable=True),
        StructField("before", LongType(), nullable=True),
    ]
)
"""What stands in a reader behind a later message of its origin, or behind itself: *origin_seq* at *seq*, *before* is the greatest so far."""


def digests(copies: DataFrame, cut: Cut, *, size: int = BUCKET) -> DataFrame:
    """BUCKETS of `copies` (`normalise.COPIES`), of *size* sequences each."""
    seq = F.col("origin_seq")
    return (
        parted(copies, cut)
        .groupBy(
            *ORIGIN,
            "stream",
            "region",
            "is_origin",
            "part",
            F.expr(f"coalesce(origin_seq, seq) div {size}").alias("bucket"),
        )
        .agg(
            F.count(F.lit(1)).alias("copies"),
            F.bit_xor(F.xxhash64(seq, "digest")).alias("payloads"),
            F.bit_xor(F.xxhash64(seq, "digest", "key")).alias("keys"),
            F.bit_xor(F.xxhash64(seq, "sent_subject")).alias("subjects"),
            F.count("sent_subject").alias("with_subject"),
            F.min(seq).alias("least"),
            F.max(seq).alias("greatest"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            F.max("time_ns").alias("last_ns"),
        )
        .select(*BUCKETS.names)
    )


def parted(copies: DataFrame, cut: Cut) -> DataFrame:
    """*copies* with their `part`, as in BUCKETS."""
    bounds = cut.origins.select("virtual", "origin", "origin_first", "origin_last", "origin_cut_ns")
    is_current = F.col("former") == ""
    is_below = F.lit(cut.is_narrow) & (~is_current | (F.col("origin_seq") < F.col("origin_first")))
    is_above = is_current & (F.col("origin_seq") > F.col("origin_last"))
    was_there = F.col("time_ns") + SKEW_NS <= F.col("origin_cut_ns")
    return copies.join(F.broadcast(bounds), ["virtual", "origin"], how="left").withColumn(
        "part",
        F.when(F.col("origin").isNull(), "foreign")
        .when(is_above & was_there, "ahead")
        .when(is_above, "later")
        .when(is_below, "earlier")
        .otherwise("cut"),
    )


def backsteps(copies: DataFrame) -> DataFrame:
    """BACKSTEPS of `copies`: none where every reader has every origin in order, each message once."""
    rows = copies.where(~F.col("is_origin") & F.col("origin").isNotNull()).select(
        *ORIGIN, "stream", "region", "seq", "origin_seq"
    )
    reader = Window.partitionBy(*ORIGIN, "stream", "region").orderBy("seq", "origin_seq")
    along = reader.rowsBetween(Window.unboundedPreceding, -1)
    return (
        rows.withColumn("before", F.max("origin_seq").over(along))
        .where(F.col("origin_seq") <= F.col("before"))
        .select(*BACKSTEPS.names)
    )


def suspects(buckets: DataFrame, backsteps: DataFrame, cut: Cut, *, size: int = BUCKET) -> DataFrame:
    """The buckets to look into, as (virtual, origin, former, bucket): all that are not proven to hold the same everywhere."""
    own, theirs = F.col("is_origin"), ~F.col("is_origin")

    def alike(digest: str) -> Column:
        return F.min(F.when(theirs, F.col(digest))) == F.max(F.when(theirs, F.col(digest)))

    compared = (
        buckets.where(F.col("part") == "cut")
        .groupBy(*ORIGIN, "bucket")
        .agg(
            F.count_if(theirs).alias("seen_by"),
            F.coalesce(alike("copies") & alike("payloads") & alike("keys"), F.lit(False)).alias("is_alike"),
            F.max(F.when(theirs, F.col("copies"))).alias("copies"),
            F.max(F.when(theirs, F.col("payloads"))).alias("payloads"),
            F.max(F.when(own, F.col("copies"))).alias("own_copies"),
            F.max(F.when(own, F.col("payloads"))).alias("own_payloads"),
            F.max(F.when(own, F.col("subjects"))).alias("own_subjects"),
            F.every(own | (F.col("with_subject") == 0) | (F.col("with_subject") == F.col("copies"))).alias("is_whole"),
            F.min(F.when(theirs & (F.col("with_subject") > 0), F.col("subjects"))).alias("least_subjects"),
            F.max(F.when(theirs & (F.col("with_subject") > 0), F.col("subjects"))).alias("greatest_subjects"),
            F.max("greatest").alias("greatest"),
        )
        .join(F.broadcast(cut.origins), ["virtual", "origin"], how="left")
    )
    says_nothing = F.col("greatest_subjects").isNull()
    same_subjects = says_nothing | (
        (F.col("least_subjects") == F.col("own_subjects")) & (F.col("greatest_subjects") == F.col("own_subjects"))
    )
    is_vouched = (F.col("own_copies") == F.col("copies")) & (F.col("own_payloads") == F.col("payloads")) & same_subjects
    # What the origin has removed by itself can only be compared between readers.
    is_gone = F.col("own_copies").isNull() & (
        F.col("origin_last").isNull()
        | (F.col("former") != "")
        | (F.col("origin_may_lose_oldest") & (F.col("greatest") < F.col("origin_first")))
    )
    is_clean = (F.col("seen_by") == F.col("readers")) & F.col("is_alike") & F.col("is_whole") & (is_vouched | is_gone)
    # Of a message that is there twice, the second copy steps back.
    back = backsteps.select(*ORIGIN, F.expr(f"origin_seq div {size}").alias("bucket"))
    return compared.where(~F.coalesce(is_clean, F.lit(False))).select(*ORIGIN, "bucket").unionByName(back).distinct()
