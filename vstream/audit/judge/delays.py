"""Judge: delays of messages, recovery times after faults, and differences of order between regions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from vstream.audit.finding_kinds import MISSING
from vstream.audit.reconcile.buckets import BUCKET_SIZE, MESSAGE
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts

HOPS = make_schema("""
    virtual string not null, origin_region string, region string not null, written_ns bigint not null,
    arrived_ns bigint
""")
"""
Columns of HOPS: one row for each message that its origin still has and region that has it, with both times.
Mirrors keep the original times, so they have no rows.
"""

DELAYS = make_schema("""
    virtual string not null, origin_region string, region string not null, minute bigint, minutes bigint,
    messages bigint not null, p50_ns double, p90_ns double, p99_ns double, max_ns bigint, min_ns bigint
""")
"""By pair of regions and interval of writing, *minutes* long from *minute* since 1970 on; null for all time."""

NEGATIVE_DELAYS = StructType([DELAYS[name] for name in ("virtual", "origin_region", "region", "min_ns")])

RECOVERY = make_schema("""
    window string, begun_ns bigint, virtual string not null, origin_region string, region string not null,
    messages bigint not null, missing bigint not null, recovery_ns bigint
""")
"""Columns of RECOVERY, by fault and pair of regions: of the messages that were in transit when the fault began or were
written while it lasted, how long after its end the last one arrived; 0 if all arrived before. *missing* is the number
of messages written before its end that never arrived: then the regions have not converged.
"""

ORDER_DIFFERENCES = make_schema("""
    virtual string not null, region string not null, other string not null, neighbours bigint not null,
    inverted bigint not null
""")
"""Columns of ORDER_DIFFERENCES: pairs of adjacent messages in *region*, and how many of them are in reverse order in *other*."""

_WINDOWS = StructType([RECOVERY["window"], RECOVERY["begun_ns"], StructField("ended", LongType())])
_MAX_MEASURED_HOPS: Final = 1_000_000
"""Delays are measured for at most about so many messages."""
_MAX_COMPARED_NEIGHBOURS: Final = 250_000
"""Orders are compared for at most about so many messages."""
MAX_INTERVALS: Final = 1_440
"""Maximum number of intervals: one per minute for a day."""
_MAX_REGION_BITS: Final = 62
"""Number of regions whose places fit into a number."""
_MINUTE_NS: Final = 60 * 10**9
_QUANTILES: Final = (0.5, 0.9, 0.99)


def choose_one_in(facts: StreamFacts) -> int:
    """The N of "delays are measured for one message in N"."""
    return max(1, facts.messages // _MAX_MEASURED_HOPS)


def measure_hops(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """HOPS for one in `choose_one_in` messages, chosen by sequence."""
    one_in = choose_one_in(facts)
    rows = copies.where((F.col("former") == "") & F.col("origin").isNotNull())
    for virtual, stream in sorted(facts.mirrors):
        rows = rows.where((F.col("virtual") != virtual) | (F.col("stream") != stream))
    if one_in > 1:
        rows = rows.where(F.pmod(F.xxhash64("origin_seq"), F.lit(one_in)) == 0)
    message = ["virtual", "origin", "origin_seq"]
    written = rows.where("is_origin").groupBy(*message).agg(F.min("time_ns").alias("written_ns"))
    regions = facts.origins.select("virtual", "origin", "origin_region")
    return (
        rows.where(~F.col("is_origin"))
        .groupBy(*message, "region")
        .agg(F.min("time_ns").alias("arrived_ns"))
        .join(written, message)
        .join(F.broadcast(regions), ["virtual", "origin"])
        .select(*HOPS.names)
    )


def summarize_delays(hops: DataFrame) -> DataFrame:
    """DELAYS of `hops`, in at most `MAX_INTERVALS` intervals."""
    first, last = hops.select(F.min("written_ns"), F.max("written_ns")).collect()[0]
    span = 0 if first is None else last // _MINUTE_NS - first // _MINUTE_NS + 1
    minutes = max(1, -(-span // MAX_INTERVALS))
    late = F.col("arrived_ns") - F.col("written_ns")
    shares = F.percentile(late, F.array(*(F.lit(share) for share in _QUANTILES)))
    timed = hops.withColumn("minute", F.expr(f"written_ns div {_MINUTE_NS} div {minutes} * {minutes}"))
    return (
        timed.groupingSets(
            [["virtual", "origin_region", "region", "minute"], ["virtual", "origin_region", "region"]],
            "virtual",
            "origin_region",
            "region",
            "minute",
        )
        .agg(
            *(F.count(F.lit(1)).alias("messages"), shares.alias("shares")),
            *(F.max(late).alias("max_ns"), F.min(late).alias("min_ns")),
        )
        .selectExpr(
            *("virtual", "origin_region", "region", "minute", f"if(minute is not null, {minutes}L, null) as minutes"),
            *("messages", "shares[0] as p50_ns", "shares[1] as p90_ns", "shares[2] as p99_ns", "max_ns", "min_ns"),
        )
    )


def find_early_or_conflicting(copies: DataFrame, regions: Collection[str]) -> list[Any]:
    """
    Rows (virtual, is_early, is_concurrent) of the virtual streams that may have NEGATIVE_DELAYS, or `keys.CONFLICTS`.

    All others have neither: a few numbers for each message prove that it had arrived everywhere that a later message
    of its key comes from. In more than 62 of the *regions* of readers, none has.
    """
    place = F.array_position(F.array(*map(F.lit, sorted(regions)[:_MAX_REGION_BITS])), F.col("region"))
    bit = F.call_function("shiftleft", F.lit(1).cast("bigint"), F.nullif(place, F.lit(0)).cast("int"))
    numbers = (
        "min(time_ns) filter (where is_origin) as own_ns",
        "min(time_ns) filter (where not is_origin) as first_ns",
        "max(time_ns) filter (where not is_origin) as last_ns",
        "bit_or(bit) filter (where not is_origin) as regions",
        "max(bit) filter (where is_origin) as home",
        "min(xxhash64(key)) as name",
        "max(xxhash64(key)) as other_name",
    )
    before = "lag(struct(origin, own_ns, last_ns, regions)) over (partition by virtual, name order by own_ns) as before"
    had_arrived = "before.own_ns < own_ns and before.last_ns <= own_ns and before.regions & home != 0"
    is_clear = (
        f"own_ns is not null and name = other_name and (before is null or before.origin = origin or {had_arrived})"
    )
    return (
        copies.where("origin is not null and former = ''")
        .withColumn("bit", bit)
        .groupBy("virtual", "origin", "origin_seq")
        .agg(*map(F.expr, numbers))
        .selectExpr("*", before)
        .groupBy("virtual")
        .agg(
            F.expr("any(first_ns < own_ns) as is_early"),
            F.expr(f"any(not coalesce({is_clear}, false)) as is_concurrent"),
        )
        .where("is_early or is_concurrent")
        .collect()
    )


def find_negative_delays(hops: DataFrame) -> DataFrame:
    """NEGATIVE_DELAYS: of pairs of regions with `hops` that arrived before they were written, by how much."""
    late = F.col("arrived_ns") - F.col("written_ns")
    return hops.where(late < 0).groupBy("virtual", "origin_region", "region").agg(F.min(late).alias("min_ns"))


def measure_recovery(
    hops: DataFrame, differences: DataFrame, facts: StreamFacts, windows: Sequence[tuple[str, int, int]]
) -> DataFrame:
    """RECOVERY for *windows*: (name, start, end) in nanoseconds since 1970. *differences* contains the missing messages."""
    of = F.broadcast(make_table(hops.sparkSession, windows, _WINDOWS))
    pair = ["window", "begun_ns", "virtual", "origin_region", "region"]
    arrived = hops.where(F.col("arrived_ns").isNotNull()).join(
        of, (F.col("written_ns") <= F.col("ended")) & (F.col("arrived_ns") >= F.col("begun_ns"))
    )
    # An origin that readers name, and nobody knows, has no region.
    place = F.coalesce("origin_region", "origin").alias("origin_region")
    regions = facts.origins.select("virtual", "origin", place)
    # When a message was written that nobody has any more is not known: it may have been before the end.
    missing = (
        differences.where(F.col("kind").isin(sorted(MISSING)))
        .join(F.broadcast(regions), ["virtual", "origin"])
        .join(of, F.coalesce(F.col("time_ns") <= F.col("ended"), F.lit(True)))
    )
    nothing = F.lit(0).cast("bigint")
    return (
        arrived.select(*pair, F.lit(1).cast("bigint").alias("one"), nothing.alias("gone"), "arrived_ns", "ended")
        .unionByName(
            missing.select(
                *pair, nothing.alias("one"), F.col("number").alias("gone"), F.col("ended").alias("arrived_ns"), "ended"
            )
        )
        .groupBy(*pair)
        .agg(
            F.sum("one").alias("messages"),
            F.sum("gone").alias("missing"),
            F.greatest(F.max("arrived_ns") - F.max("ended"), F.lit(0)).alias("recovery_ns"),
        )
    )


def compare_orders(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """ORDER_DIFFERENCES, compared within buckets of sequences of the first region; of many messages, in some of the buckets."""
    one_in = max(1, facts.messages // _MAX_COMPARED_NEIGHBOURS)
    rows = copies.where(~F.col("is_origin") & F.col("origin").isNotNull())
    item = rows.withColumn("block", F.expr(f"seq div {BUCKET_SIZE}")).select(*MESSAGE, "region", "seq", "block")
    if one_in > 1:
        item = item.where(F.pmod(F.xxhash64("virtual", "region", "block"), F.lit(one_in)) == 0)
    second = rows.select(*MESSAGE, F.col("region").alias("other"), F.col("seq").alias("there"))
    along = Window.partitionBy("virtual", "region", "other", "block").orderBy("seq", "there")
    before = F.lag("there").over(along)
    return (
        item.join(second, list(MESSAGE))
        .where(F.col("region") < F.col("other"))
        .withColumn("before", before)
        .groupBy("virtual", "region", "other")
        .agg(F.count("before").alias("neighbours"), F.count_if(F.col("there") < F.col("before")).alias("inverted"))
    )
