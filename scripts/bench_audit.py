"""
What reconciliation costs beside a plain join and datacompy, on the same tables, in one run.

So many messages, a third from each of three regions, and every region holds all of them: the
tables have four times as many rows. Faults are planted, and every way has to find them. Times are
wall and CPU seconds of Spark's process tree, memory is the most that was resident. datacompy and
duckdb are only for this, and `scripts/bench` installs them.
"""

from __future__ import annotations

import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import functions as F  # noqa: N812

from vstream.audit import cut as cutting
from vstream.audit.local import table
from vstream.audit.normalise import COPIES, track
from vstream.audit.schema import STREAMS
from vstream.audit.session import session
from vstream.audit.stages import Context, Run, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

REGIONS = ("west", "central", "east")
EPOCH = 1_700_000_000_000_000_000
LOST, DOUBLED, CHANGED = 100, 50, 3


@dataclass
class Cost:
    wall: float = 0.0
    cpu: float = 0.0
    resident: int = 0


@contextmanager
def measured() -> Iterator[Cost]:
    cost, ended = Cost(), threading.Event()

    def tree() -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    def cpu() -> float:
        return sum(sum(one.cpu_times()[:4]) for one in tree())

    def resident(one: psutil.Process) -> int:
        with suppress(psutil.Error):
            return int(one.memory_info().rss)
        return 0

    def look() -> None:
        while not ended.wait(0.2):
            cost.resident = max(cost.resident, sum(map(resident, tree())))

    thread = threading.Thread(target=look, daemon=True)
    began, used = time.monotonic(), cpu()
    thread.start()
    yield cost
    cost.wall, cost.cpu = time.monotonic() - began, cpu() - used
    ended.set()
    thread.join()


def generate(spark: SparkSession, rows: int, place: str, *, faulty: bool = True) -> tuple[DataFrame, DataFrame]:
    """`copies` and `streams` of one virtual stream, with faults in east and central or none."""
    message = spark.range(rows).select(
        "id",
        F.concat(
            F.lit("foo-write-"), F.element_at(F.array(*map(F.lit, REGIONS)), (F.col("id") % 3 + 1).cast("int"))
        ).alias("origin"),
        F.element_at(F.array(*map(F.lit, REGIONS)), (F.col("id") % 3 + 1).cast("int")).alias("home"),
        (F.expr("id div 3") + 1).alias("origin_seq"),
        (EPOCH + F.col("id") * 100_000).alias("written"),
        F.concat(F.lit("foo."), (F.col("id") % 10_000).cast("string")).alias("key"),
        F.xxhash64("id").alias("digest"),
    )

    def shaped(some: DataFrame, stream: Any, region: Any, seq: Any, arrived: Any, digest: Any) -> DataFrame:
        return some.select(
            F.lit("foo").alias("virtual"),
            stream.alias("stream"),
            region.alias("region"),
            stream.startswith("foo-write-").alias("is_origin"),
            seq.alias("seq"),
            arrived.alias("time_ns"),
            "origin",
            F.lit("").alias("former"),
            "origin_seq",
            F.col("key").alias("sent_subject"),
            "key",
            F.lit(None).cast("string").alias("msg_id"),
            digest.alias("digest"),
        ).select(*COPIES.names[:-1], track().alias("track"))

    written = shaped(message, F.col("origin"), F.col("home"), F.col("origin_seq"), F.col("written"), F.col("digest"))
    tables = [written.orderBy("stream", "seq")]
    middle = rows // 2
    for place_, region in enumerate(REGIONS):
        some, digest = message, F.col("digest")
        # Origins are interleaved in another way in each region, each in its order.
        seq = F.expr(f"(id div 3) * 3 + (id % 3 + {place_}) % 3 + 1")
        if region == "east" and faulty:
            some = some.where(~F.col("id").between(middle, middle + LOST - 1))
            digest = F.when(F.col("id") < CHANGED, F.col("digest") + 1).otherwise(F.col("digest"))
        arrived = F.col("written") + 2_000_000 * (place_ + 1)
        rows_ = shaped(some, F.lit(f"foo-read-{region}"), F.lit(region), seq, arrived, digest)
        if region == "central" and faulty:
            again = some.where(F.col("id").between(middle, middle + DOUBLED - 1))
            rows_ = rows_.unionByName(
                shaped(again, F.lit("foo-read-central"), F.lit("central"), seq + rows, arrived, digest)
            )
        tables.append(rows_)
    copies = tables[0]
    for one in tables[1:]:
        copies = copies.unionByName(one)
    copies.write.mode("overwrite").parquet(f"{place}/copies")
    return spark.read.schema(COPIES).parquet(f"{place}/copies"), streams(spark, rows)


def streams(spark: SparkSession, rows: int) -> DataFrame:
    def row(
        name: str, region: str, role: str, last: int, number: int, sources: list[tuple[str, int]]
    ) -> tuple[Any, ...]:
        cut = EPOCH + rows * 100_000 + 10**12
        return (
            "foo", name, region, role, 1, last, number, 0, cut, "2.15.1", "consumer", None, sources, {}, None, None, None,
        )  # fmt: skip

    counts = {region: (rows - place + 2) // 3 for place, region in enumerate(REGIONS)}
    sources = [(f"foo-write-{region}", count) for region, count in counts.items()]
    return table(
        spark,
        [
            *(row(f"foo-write-{region}", region, "write", count, count, []) for region, count in counts.items()),
            *(row(f"foo-read-{region}", region, "read", rows + DOUBLED, rows, sources) for region in REGIONS),
        ],
        STREAMS,
    )


def ours(copies: DataFrame, streams_: DataFrame) -> dict[str, int]:
    """All of stage 3: digests, order, and what is wrong with each message where they differ."""
    run = Run(shelf=Shelf(copies.sparkSession), context=Context(subject="bench"), by_files_from=0)
    _, found = run.reconciled(copies, cutting.take(streams_), copies.inputFiles())
    return {row.kind: row.number for row in found.groupBy("kind").agg(F.sum("number").alias("number")).collect()}


def joins(copies: DataFrame, _: DataFrame, *, everything: bool = False) -> dict[str, int]:
    """
    A join of the write streams with each region's read stream, as one would write it.

    With *everything* keys and subjects are compared as well, as we do; nobody's join looks at the order.
    """
    message = ["origin", "origin_seq"]
    compared = ["digest", *(["key", "sent_subject"] if everything else [])]
    written = copies.where("is_origin").select(*message, *(F.col(one).alias(f"own_{one}") for one in compared))
    counts = {"lost-middle": 0, "payload": 0, "duplicated": 0}
    for region in REGIONS:
        there = (
            copies.where(f"stream = 'foo-read-{region}'")
            .groupBy(*message)
            .agg(F.count(F.lit(1)).alias("n"), *(F.min(one).alias(one) for one in compared))
        )
        differs = reduce(or_, (F.col(f"own_{one}") != F.col(one) for one in compared))
        row = (
            written.join(there, message, how="full_outer")
            .agg(
                F.count_if(F.col("n").isNull()).alias("lost"),
                F.count_if(differs).alias("payload"),
                F.sum(F.coalesce(F.col("n") - 1, F.lit(0))).alias("duplicated"),
            )
            .collect()[0]
        )
        for name, value in zip(counts, row, strict=True):
            counts[name] += value
    return counts


def by_datacompy(copies: DataFrame, _: DataFrame) -> dict[str, int]:
    from datacompy.spark import SparkSQLCompare  # noqa: PLC0415

    message = ["origin", "origin_seq"]
    written = copies.where("is_origin").select(*message, "digest")
    counts = {"lost-middle": 0, "payload": 0}
    for region in REGIONS:
        there = copies.where(f"stream = 'foo-read-{region}'").select(*message, "digest")
        # It needs unique keys: doubled messages are taken away first, and so not found.
        compare = SparkSQLCompare(
            copies.sparkSession,
            written,
            there.dropDuplicates(message),
            join_columns=message,
            df1_name="w",
            df2_name="r",
        )
        counts["lost-middle"] += compare.df1_unq_rows.count()
        counts["payload"] += (
            compare.count_matching_rows() and compare.intersect_rows.count() - compare.count_matching_rows()
        )
    return counts


def by_duckdb(place: str) -> dict[str, int]:
    import duckdb  # noqa: PLC0415

    source = f"read_parquet('{place}/copies/*.parquet')"
    found = duckdb.sql(f"""
        with w as (select origin, origin_seq, digest from {source} where is_origin),
        r as (select region, origin, origin_seq, count(*) n, min(digest) digest from {source} where not is_origin
              group by all),
        g as (select distinct region from r)
        select count(*) filter (r.n is null), count(*) filter (w.digest <> r.digest), sum(coalesce(r.n - 1, 0))
        from w cross join g left join r using (region, origin, origin_seq)
    """).fetchall()
    return dict(zip(("lost-middle", "payload", "duplicated"), map(int, found[0]), strict=True))


def main(sizes: list[int], *, with_others: bool, with_datacompy: bool) -> None:
    others: dict[str, Callable[[DataFrame, DataFrame], dict[str, int]]] = {}
    if with_others:
        others = {"join: lost, payload": joins, "join: keys too": partial(joins, everything=True)}
    if with_datacompy:
        others["datacompy"] = by_datacompy
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place, session() as spark:
            for faulty in (False, True):
                with measured() as cost:
                    copies, cut = generate(spark, rows, place, faulty=faulty)
                state = "with faults" if faulty else "clean"
                print(
                    f"\n{rows:,} messages in 3 regions ({4 * rows:,} rows), {state}, made in {cost.wall:.1f} s",
                    flush=True,
                )
                copies.agg(F.sum("seq")).collect()
                # The first time, Spark compiles what it runs.
                for name, way in {"vstream, first": ours, "vstream": ours, **(others if faulty else {})}.items():
                    with measured() as cost:
                        found = way(copies, cut)
                    spark.catalog.clearCache()
                    report(name, cost, found)
            if with_others:
                # It runs in this process.
                began, used = time.monotonic(), time.process_time()
                found = by_duckdb(place)
                own = Cost(time.monotonic() - began, time.process_time() - used, psutil.Process().memory_info().rss)
                report("duckdb, one join", own, found)


def report(name: str, cost: Cost, found: dict[str, int]) -> None:
    shown = ", ".join(f"{kind} {number:,}" for kind, number in sorted(found.items()))
    print(
        f"  {name:<22} {cost.wall:8.1f} s {cost.cpu:8.1f} s CPU {cost.resident / 2**20:8,.0f} MiB  {shown}", flush=True
    )
