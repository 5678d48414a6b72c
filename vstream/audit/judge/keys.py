"""
Judge: keys and message ids that were written in two regions.

Regions agree on the messages of a virtual stream, but not on their order. If two regions write a key before they
receive each other's message, each may keep a different value.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType

from vstream.audit.reconcile.buckets import MESSAGE, ORIGIN
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts

DIVERGED_KEYS = make_schema(
    "virtual string not null, key string, is_settled boolean not null, last last not null",
    last=ArrayType(
        make_schema("region string, stream string, origin string, former string, origin_seq bigint, seq bigint")
    ),
)
"""
Columns of DIVERGED_KEYS: keys whose last message, or sum, differs between the regions that have the key. *is_settled*:
every region has received all of these messages, so no message in transit will change it.
"""

CONFLICTS = make_schema("""
    virtual string not null, key string, number bigint not null, origin string, origin_seq bigint, other string,
    other_seq bigint, apart_ns bigint
""")
"""Columns of CONFLICTS: keys that a region wrote before another region's previous write arrived: number and first."""

SHARED_IDS = make_schema("""
    virtual string not null, msg_id string, is_same boolean not null, origin string, origin_seq bigint,
    other string, other_seq bigint
""")
"""Columns of SHARED_IDS: message ids that several messages have; *is_same*: all have the same payload. Names two of them."""


SHARED_KEYS = make_schema("virtual string, key string, has_diverged boolean")
"""Columns of SHARED_KEYS: keys with messages from several origins; *has_diverged*: whether DIVERGED_KEYS may have it."""


def find_shared_keys(copies: DataFrame) -> DataFrame:
    """SHARED_KEYS of `copies`."""
    # Numbers alone: Spark would sort all messages for the least and the last of anything else.
    origin, message = F.xxhash64("origin"), F.xxhash64(*MESSAGE[1:])
    last = (F.max_by(message, "seq").alias("last"), F.max_by("sum", "seq").alias("sum"))
    differ = F.when(F.count("sum") > 0, F.min("sum") != F.max("sum")).otherwise(F.min("last") != F.max("last"))
    return (
        copies.where(~F.col("is_origin") & F.col("origin").isNotNull())
        .groupBy("virtual", "key", "region", "stream")
        .agg(F.min(origin).alias("one"), F.max(origin).alias("other"), *last)
        .groupBy("virtual", "key")
        .agg(F.min("one").alias("one"), F.max("other").alias("other"), differ.alias("has_diverged"))
        .where(F.col("one") != F.col("other"))
        .select(*SHARED_KEYS.names)
    )


def find_diverged_keys(copies: DataFrame, facts: StreamFacts, buckets: DataFrame, shared_keys: DataFrame) -> DataFrame:
    """DIVERGED_KEYS among the *shared_keys* (SHARED_KEYS)."""
    last = (
        copies.where(~F.col("is_origin") & F.col("origin").isNotNull())
        .join(shared_keys.where("has_diverged"), ["virtual", "key"], how="left_semi")
        .groupBy("virtual", "key", "region", "stream")
        .agg(F.max_by(F.struct("origin", "former", "origin_seq", "seq", "sum"), "seq").alias("last"))
        .select("virtual", "key", "region", "stream", "last.*")
    )
    diverged = (
        last.groupBy("virtual", "key")
        .agg(
            F.collect_set(F.struct(*MESSAGE[1:])).alias("messages"),
            F.array_sort(F.collect_list(F.struct("region", "stream", "origin", "former", "origin_seq", "seq"))).alias(
                "last"
            ),
            F.collect_set("sum").alias("sums"),
        )
        # Counters converge, whichever message comes last: what they have added up to is what must be the same.
        .where(F.when(F.size("sums") > 0, F.size("sums") > 1).otherwise(F.size("messages") > 1))
    )
    reached = buckets.where(~F.col("is_origin")).groupBy(*ORIGIN, "stream").agg(F.max("greatest").alias("greatest"))
    is_passed = F.col("origin_seq") <= F.greatest(F.coalesce("cursor", F.lit(0)), F.coalesce("greatest", F.lit(0)))
    settled = (
        diverged.select("virtual", "key", F.inline("messages"))
        .join(F.broadcast(facts.expected.select("virtual", "origin", "stream", "cursor")), ["virtual", "origin"])
        .join(F.broadcast(reached), [*ORIGIN, "stream"], how="left")
        .groupBy("virtual", "key")
        .agg(F.every(is_passed).alias("is_settled"))
    )
    return diverged.join(settled, ["virtual", "key"]).select(*DIVERGED_KEYS.names)


def find_conflicts(copies: DataFrame, facts: StreamFacts, shared_keys: DataFrame) -> DataFrame:
    """CONFLICTS among the *shared_keys*, except those of counters, where order does not matter."""
    regions = sorted({row.region for row in facts.rows})
    place = F.array_position(F.array(*map(F.lit, regions)), F.col("origin_region")).cast("int")
    homes = facts.origins.select("virtual", "origin", F.nullif(place, F.lit(0)).alias("home"))
    # A number for each region in turn: maps, which cannot be built in place, took most of the time of an audit.
    arrivals = [
        F.min(F.when(~F.col("is_origin") & (F.col("region") == region), F.col("time_ns"))) for region in regions
    ]
    writes = (
        copies.where(F.col("origin").isNotNull() & (F.col("former") == "") & F.col("sum").isNull())
        .join(shared_keys, ["virtual", "key"], how="left_semi")
        .groupBy(*MESSAGE, "key")
        .agg(F.array(*arrivals).alias("arrivals"), F.min(F.when(F.col("is_origin"), F.col("time_ns"))).alias("own_ns"))
        .join(F.broadcast(homes), ["virtual", "origin"])
        # The region's own reader is the next best witness of when something was written there.
        .withColumn("written", F.coalesce("own_ns", F.try_element_at("arrivals", "home")))
        .where(F.col("written").isNotNull())
    )
    along = Window.partitionBy("virtual", "key").orderBy("written", "origin", "origin_seq")
    before = F.lag(F.struct("origin", "origin_seq", "written", "arrivals")).over(along)
    seen = F.try_element_at("before.arrivals", "home")
    is_concurrent = (F.col("before.origin") != F.col("origin")) & (seen.isNull() | (seen > F.col("written")))
    return (
        writes.withColumn("before", before)
        .where(is_concurrent)
        .groupBy("virtual", "key")
        .agg(
            F.count(F.lit(1)).alias("number"),
            F.expr("""min(struct(
                written, before.origin, before.origin_seq, origin as other, origin_seq as other_seq,
                written - before.written as apart_ns
            )) as first"""),
        )
        .select("virtual", "key", "number", "first.*")
        .select(*CONFLICTS.names)
    )


def find_shared_ids(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """SHARED_IDS among all messages; of a message that its origin still has, only the origin's copy counts."""
    first = facts.origins.select("virtual", "origin", "origin_first")
    message = F.struct("origin", "origin_seq", "former")
    is_told_elsewhere = ~F.col("is_origin") & (F.col("former") == "") & (F.col("origin_seq") >= F.col("origin_first"))
    return (
        copies.where(F.col("msg_id").isNotNull() & F.col("origin").isNotNull())
        .join(F.broadcast(first), ["virtual", "origin"], how="left")
        .where(~F.coalesce(is_told_elsewhere, F.lit(False)))
        .groupBy("virtual", "msg_id")
        .agg(
            F.min(message).alias("one"),
            F.max(message).alias("two"),
            (F.min("digest") == F.max("digest")).alias("is_same"),
        )
        .where(F.col("one") != F.col("two"))
        .selectExpr(
            *("virtual", "msg_id", "is_same", "one.origin", "one.origin_seq"),
            *("two.origin as other", "two.origin_seq as other_seq"),
        )
    )
