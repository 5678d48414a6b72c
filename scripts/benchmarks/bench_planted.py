"""
Tables of three regions as extraction would write them, of any size, with faults of every kind in known places.

Made by Spark itself, stream by stream and in the order of sequences. `EXPECTED` says how often
an audit has to find what; it does not depend on the size.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from typing import TYPE_CHECKING, Any

from bench_audit import EPOCH, REGIONS, measure_cost, report
from pyspark.sql import functions as F

from vstream.audit.codes import BY_KIND
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import open_session
from vstream.audit.stages import StageRunner
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.table_store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

STEP = 100_000
"""Nanoseconds between writes."""
EXPECTED = {
    "lost-prefix": 40,
    "lost-middle": 100,
    "lost-tail": 30,
    "late": 20,
    "expired": 60,
    "duplicated": 50,
    "payload": 3,
    "subject": 4,
    "reordered": 5,
    "foreign": 6,
    "rolled-back": 7,
    "reused": 6,
    "not-at-origin": 8,
    "row-twice": 2,
    "displaced": 3,
    "deduplicated": 2,
    "shared-id-other": 12,
    "shared-id-same": 6,
    "conflicts": 5,
    "diverged-keys": 5,
}
"""By kind (`codes.BY_KIND`)."""
_GONE = 1_000
"""So many of its first messages the write stream of east has removed, by age."""


def generate(spark: SparkSession, rows: int, place: str) -> tuple[DataFrame, DataFrame]:
    """`messages` below *place*, and `streams`: *rows* messages, a third of them from each region, and every region has all."""
    count = rows // 3
    parts = [_make_write_stream(spark, number, count) for number in range(3)] + [
        _read(spark, number, count) for number in range(3)
    ]
    for number, part in enumerate(parts):
        part.select(*MESSAGES.names).write.mode("overwrite" if not number else "append").parquet(f"{place}/messages")
    messages = spark.read.schema(MESSAGES).parquet(f"{place}/messages")
    return messages, _streams(spark, messages, count)


def _is(origin: int, first: Column, number: int) -> Column:
    """Whether a message is one of so many of *origin*, from *first* on."""
    return (F.col("o") == origin) & F.col("s").between(first, first + number - 1)


def _describe_messages(some: DataFrame, middle: int) -> DataFrame:
    """Messages, given by the number *o* of their origin and their sequence *s* in it."""
    s, o = F.col("s"), F.col("o")
    name = F.element_at(F.array(*map(F.lit, REGIONS)), (o + 1).cast("int"))
    is_twin = o.isin(0, 1) & (s.between(middle + 7000, middle + 7008) | s.between(middle + 7040, middle + 7042))
    is_same = o.isin(0, 1) & (s.between(middle + 7020, middle + 7023) | s.between(middle + 7060, middle + 7061))
    is_shared = (o != 1) & s.between(middle + 8000, middle + 8004)
    key = F.when(is_shared, F.concat(F.lit("c."), s.cast("string"))).otherwise(
        F.concat(F.lit("k."), o.cast("string"), F.lit("."), (s % 3000).cast("string"))
    )
    return some.select(
        "*",
        name.alias("home"),
        F.concat(F.lit("foo-write-"), name).alias("origin"),
        (F.lit(EPOCH) + (3 * (s - 1) + o) * STEP).alias("written"),
        key.alias("key"),
        F.concat(F.lit("_vs.foo."), name, F.lit("."), key).alias("sent"),
        F.xxhash64(F.when(is_same, F.lit(0)).otherwise(o), s).alias("digest"),
        F.when(is_twin | is_same, F.concat(F.lit("twin."), s.cast("string")))
        .when((s % 50 == 0) | _is(2, F.lit(middle + 5000), 2), F.concat_ws(".", F.lit("m"), o, s))
        .alias("msg_id"),
    )


def _row(some: DataFrame, stream: str, region: str, role: str, **columns: Column) -> DataFrame:
    fixed = {"virtual": "foo", "stream": stream, "region": region, "role": role}
    return some.select(
        *(F.lit(value).alias(name) for name, value in fixed.items()),
        *(column.alias(name) for name, column in columns.items()),
        F.lit(None).cast("string").alias("ttl"),
        F.lit(None).cast("string").alias("rollup"),
        F.lit(64).alias("size"),
    )


def _make_write_stream(spark: SparkSession, number: int, count: int) -> DataFrame:
    """The write stream of one region."""
    middle = count // 2
    rows = spark.range(1, count + 1).select(F.col("id").alias("s"), F.lit(number).cast("long").alias("o"))
    rows = _describe_messages(rows, middle).where(~_is(2, F.lit(1), _GONE) & ~_is(1, F.lit(middle + 6000), 8))
    is_reused = _is(2, F.lit(middle + 5000), 2)
    again = rows.where(_is(1, F.lit(middle + 9000), 2))
    return _row(
        rows.unionByName(again),
        f"foo-write-{REGIONS[number]}",
        REGIONS[number],
        "write",
        seq=F.col("s"),
        time_ns=F.col("written"),
        subject=F.col("sent"),
        msg_id=F.when(is_reused, F.concat(F.lit("n"), F.col("msg_id"))).otherwise(F.col("msg_id")),
        source=F.lit(None).cast("string"),
        digest=F.when(is_reused, F.col("digest") + 1).otherwise(F.col("digest")),
    )


def _read(spark: SparkSession, number: int, count: int) -> DataFrame:
    """The read stream of one region; each has the origins in another order."""
    middle, region = count // 2, REGIONS[number]
    end = EPOCH + 3 * count * STEP + 10**9
    place, s = F.col("id"), F.expr("id div 3 + 1")
    origin = (place % 3 + number) % 3
    swapped = (number == 0) & (origin == 1) & s.between(middle + 4000, middle + 4009)
    copied_rows = spark.range(3 * count).select(
        (place + 1).alias("seq"),
        (F.lit(EPOCH + (number + 1) * 2_000_000) + s * 3 * STEP).alias("arrived"),
        origin.alias("o"),
        F.when(swapped, s + F.when((s - middle) % 2 == 0, 1).otherwise(-1)).otherwise(s).alias("s"),
    )
    start = 3 * count
    more: list[tuple[int, Column, Column]] = {
        "west": [],
        "central": [(50, F.lit(0), F.col("id") + middle + 1000)],
        "east": [(7, F.lit(0), F.col("id") + count + 1)],
    }[region]
    for size, whose, which in more:
        extra = spark.range(0, size, 1, 1).select(
            (F.col("id") + start + 1).alias("seq"),
            (F.lit(end) + F.col("id")).alias("arrived"),
            whose.cast("long").alias("o"),
            which.alias("s"),
        )
        copied_rows = copied_rows.unionByName(extra)
    copied_rows = _describe_messages(copied_rows.where(~_lacking(region, count)), middle)
    is_changed, is_renamed = _is(0, F.lit(middle + 2000), 3), _is(0, F.lit(middle + 3000), 4)
    filters = F.concat(F.lit(" _vs.foo."), F.col("home"), F.lit(".> foo.> "), F.col("sent"), F.lit(" AbCdEfGh"))
    rows = _row(
        copied_rows,
        f"foo-read-{region}",
        region,
        "read",
        seq=F.col("seq"),
        time_ns=F.col("arrived"),
        subject=F.when(F.lit(region == "west") & is_renamed, F.lit("foo.wrong")).otherwise(
            F.concat(F.lit("foo."), F.col("key"))
        ),
        msg_id=F.col("msg_id"),
        source=F.concat(F.col("origin"), F.lit(" "), F.col("s").cast("string"), filters),
        digest=F.when(F.lit(region == "east") & is_changed, F.col("digest") + 1).otherwise(F.col("digest")),
    )
    if region != "central":
        return rows
    foreign = spark.range(0, 6, 1, 1)
    return rows.unionByName(
        _row(
            foreign,
            "foo-read-central",
            "central",
            "read",
            seq=F.col("id") + start + 51,
            time_ns=F.lit(end + 100) + F.col("id"),
            subject=F.lit("foo.k.0.1"),
            msg_id=F.lit(None).cast("string"),
            source=F.lit(None).cast("string"),
            digest=F.col("id"),
        )
    )


def _lacking(region: str, count: int) -> Column:
    """What the read stream of *region* does not have."""
    middle = count // 2
    return {
        "west": F.lit(False),  # noqa: FBT003
        "central": _is(2, F.lit(count - 19), 20)
        | _is(2, F.lit(11), EXPECTED["expired"])
        | _is(1, F.lit(middle + 7060), 2),
        "east": _is(0, F.lit(1), EXPECTED["lost-prefix"])
        | _is(1, F.lit(middle), EXPECTED["lost-middle"])
        | _is(1, F.lit(count - 29), 30)
        | _is(0, F.lit(middle + 7040), 3),
    }[region]


def _streams(spark: SparkSession, messages: DataFrame, count: int) -> DataFrame:
    """What the servers would say of their streams."""
    seen = messages.groupBy("stream", "region", "role").agg(F.min("seq"), F.max("seq"), F.count(F.lit(1))).collect()

    def row(stream: str, region: str, role: str, first: int, last: int, number: int) -> tuple[Any, ...]:
        cursors = [
            (f"foo-write-{origin}", count - 20 * (region == "central" and origin == "east")) for origin in REGIONS
        ]
        limits = {"max_age": 10**12} if stream == "foo-write-east" else {}
        snapshot = EPOCH + 3 * count * STEP + 10**12
        return (
            "foo", stream, region, role, first, last, number, last - first + 1 - number, snapshot, snapshot, 0, "2.15.1", "consumer", None,
            cursors if role == "read" else [], limits, None, None, None,
        )  # fmt: skip

    return make_table(spark, [row(*arguments) for arguments in seen], STREAMS)


def main(sizes: list[int]) -> None:
    """The whole audit of tables with faults of every kind: all have to be found, and nothing else."""
    kinds = {code.code: kind for kind, code in BY_KIND.items()}
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place, open_session() as spark:
            messages, stream_rows = generate(spark, rows, place)
            shelf = TableStore(spark, f"file://{place}/audit")
            with measure_cost() as cost:
                audited = (
                    StageRunner(store=shelf, context=AuditContext(subject="planted")).run(messages, stream_rows).report
                )
            result = Counter[str]()
            for finding in audited.findings:
                result[kinds[finding.code]] += finding.count
            stages = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in audited.seconds.items())
            print(f"\n{rows:,} messages in 3 regions ({audited.messages:,} rows): {stages}", flush=True)
            report("the whole audit", cost, dict(result))
            wrong = {
                kind: (result[kind], EXPECTED.get(kind, 0))
                for kind in sorted({*result, *EXPECTED})
                if result[kind] != EXPECTED.get(kind, 0)
            }
            if wrong:
                sys.exit(f"found, and planted: {wrong}")
            print(f"  everything planted was found ({len(EXPECTED)} kinds), and nothing else")
