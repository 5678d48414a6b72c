"""
What reconciliation costs beside a plain join and datacompy, on the same tables, in one run.

So many messages, a third from each of three regions, and every region holds all of them: the
tables have four times as many rows. Faults are planted, and every way has to find them. Times are
wall and CPU seconds of Spark's process tree, memory is the most that was resident. datacompy and
duckdb are only for this, and `scripts/bench` installs them.
"""

from __future__ import annotations

import multiprocessing
import resource
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as F

from vstream.audit.normalise.message_copies import COPIES, substream_id
from vstream.audit.reconcile.bucket_digests import mix
from vstream.audit.spark.local_frames import make_table
from vstream.audit.spark.session import open_session
from vstream.audit.stages import StageRunner
from vstream.audit.tables import stream_facts
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import STREAMS
from vstream.audit.tables.table_store import TableStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame, SparkSession

REGIONS = ("west", "central", "east")
EPOCH = 1_700_000_000_000_000_000
LOST, DOUBLED, CHANGED = 100, 50, 3
_KEYS = 10_000
_FILE = 2_000_000
"""Rows."""
_ENOUGH = 1_200_000
"""Messages that are reconciled as many more are."""
_THRICE = ("vstream", "joins: lost, payload")
"""What is run again when Spark is warm, which compiles in the background for a while, and once more from the start of Java on."""


@dataclass
class Cost:
    """Of this process and of all that it has started."""

    wall: float = 0.0
    cpu: float = 0.0
    resident: int = 0
    stop: Callable[[], None] = lambda: None


@contextmanager
def measure_cost() -> Iterator[Cost]:
    """Measures to the end of the block, or to `stop`: processes that have ended say no longer what they took."""
    cost, ended = Cost(), threading.Event()

    def tree() -> list[psutil.Process]:
        # What is gathered on the driver is gone through there.
        return [psutil.Process(), *psutil.Process().children(recursive=True)]

    def cpu(one: psutil.Process) -> float:
        with suppress(psutil.Error):
            return sum(one.cpu_times()[:4])
        return 0.0

    def resident(one: psutil.Process) -> int:
        with suppress(psutil.Error):
            return int(one.memory_info().rss)
        return 0

    def look() -> None:
        while not ended.wait(0.2):
            cost.resident = max(cost.resident, sum(map(resident, tree())))

    def stop() -> None:
        if not ended.is_set():
            cost.wall, cost.cpu = time.monotonic() - began, sum(map(cpu, tree())) - used
            ended.set()
            thread.join()

    cost.stop = stop
    thread = threading.Thread(target=look, daemon=True)
    began, used = time.monotonic(), sum(map(cpu, tree()))
    thread.start()
    yield cost
    stop()


def generate(spark: SparkSession, rows: int, place: str, *, is_shuffled: bool = False) -> tuple[DataFrame, DataFrame]:
    """`copies` and `streams` of one virtual stream, with faults in east and central; west holds it in any order if *is_shuffled*."""
    names = [("foo", f"foo-{kind}-{region}", f"foo-write-{origin}", "") for kind, region, origin in _substreams()]
    numbered = spark.createDataFrame(names, "virtual string, stream string, origin string, former string")
    substream_ids = {
        (row.stream, row.origin): row.substream for row in numbered.withColumn("substream", substream_id()).collect()
    }
    (Path(place) / "copies").mkdir()
    # In a process of its own, whose memory goes with it.
    with apart() as pool:
        pool.submit(_write, rows, place, substream_ids, is_shuffled=is_shuffled).result()
    return spark.read.schema(COPIES).parquet(f"{place}/copies"), streams(spark, rows)


def apart() -> ProcessPoolExecutor:
    """A process of its own, whose memory goes with it."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


def _substreams() -> Iterator[tuple[str, str, str]]:
    yield from (("write", region, region) for region in REGIONS)
    yield from (("read", region, origin) for region in REGIONS for origin in REGIONS)


def _write(rows: int, place: str, substreams: dict[tuple[str, str], int], *, is_shuffled: bool) -> None:
    """Files of one stream each, by sequence, as extraction leaves them."""
    middle = rows // 2
    for number, region in enumerate(REGIONS):
        count = (rows - number + 2) // 3
        for begin in range(0, count, _FILE):
            seqs = np.arange(begin, min(begin + _FILE, count), dtype=np.int64)
            _file(place, f"foo-write-{region}", region, seqs + 1, 3 * seqs + number, substreams)
    for number, region in enumerate(REGIONS):
        # Origins are interleaved in another way in each region, each in its order.
        for begin in range(0, rows + 2, _FILE):
            seqs = np.arange(begin, min(begin + _FILE, rows + 2), dtype=np.int64)
            ids = 3 * (seqs // 3) + (seqs % 3 - number) % 3
            is_there = ids < rows
            if is_shuffled and region == "west":
                # Within a file: tables of disorder are small.
                order = np.random.default_rng(0).permutation(len(ids))
                ids, is_there = ids[order], is_there[order]
            if region == "east":
                is_there &= (ids < middle) | (ids >= middle + LOST)
            _file(place, f"foo-read-{region}", region, seqs[is_there] + 1, ids[is_there], substreams)
    again = np.arange(middle, middle + DOUBLED, dtype=np.int64)
    _file(place, "foo-read-central", "central", again + rows + 3, again, substreams)


def _file(
    place: str,
    stream: str,
    region: str,
    seqs: NDArray[np.int64],
    ids: NDArray[np.int64],
    substreams: dict[tuple[str, str], int],
) -> None:
    count = len(ids)
    if not count:
        return
    is_origin = stream.startswith("foo-write-")
    digests = mix(ids.view(np.uint64)).view(np.int64)
    if stream == "foo-read-east":
        digests[ids < CHANGED] += 1

    def of(numbers: Any, names: Sequence[str]) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(names))

    def always(name: str) -> pa.Array:
        return of(np.zeros(count, np.int32), [name])

    key = of(ids % _KEYS, [f"foo.{number}" for number in range(_KEYS)])
    origins = [f"foo-write-{region}" for region in REGIONS]
    arrays = {
        "virtual": always("foo"),
        "stream": always(stream),
        "region": always(region),
        "is_origin": pa.repeat(pa.scalar(is_origin), count),
        "seq": pa.array(seqs),
        "time_ns": pa.array(EPOCH + ids * 100_000 + (0 if is_origin else 2_000_000 * (REGIONS.index(region) + 1))),
        "origin": of(ids % 3, origins),
        "former": always(""),
        "origin_seq": pa.array(ids // 3 + 1),
        "sent_subject": key,
        "key": key,
        "msg_id": pa.nulls(count, pa.string()),
        "ttl_ns": pa.nulls(count, pa.int64()),
        "is_replay": pa.repeat(pa.scalar(value=False), count),
        "rolls_up": pa.nulls(count, pa.string()),
        "digest": pa.array(digests),
        "sum": pa.nulls(count, pa.int64()),
        "substream": pa.array(np.array([substreams.get((stream, origin), 0) for origin in origins])[ids % 3]),
    }
    texts = [name for name, array in arrays.items() if pa.types.is_dictionary(array.type)]
    file = f"{place}/copies/{stream}-{seqs[0]:012}.parquet"
    pq.write_table(
        pa.table(arrays).select(COPIES.names),
        file,
        use_dictionary=[*texts, "substream"],
        store_schema=False,
        write_page_index=True,
    )


def streams(spark: SparkSession, rows: int) -> DataFrame:
    def row(
        name: str, region: str, role: str, last: int, number: int, sources: list[tuple[str, int]]
    ) -> tuple[Any, ...]:
        snapshot = EPOCH + rows * 100_000 + 10**12
        return (
            "foo", name, region, role, 1, last, number, 0, snapshot, snapshot, 0, "2.15.1", "consumer", None, sources, {}, None, None, None,
        )  # fmt: skip

    counts = {region: (rows - place + 2) // 3 for place, region in enumerate(REGIONS)}
    sources = [(f"foo-write-{region}", count) for region, count in counts.items()]
    return make_table(
        spark,
        [
            *(row(f"foo-write-{region}", region, "write", count, count, []) for region, count in counts.items()),
            *(row(f"foo-read-{region}", region, "read", rows + DOUBLED + 2, rows, sources) for region in REGIONS),
        ],
        STREAMS,
    )


def ours(copies: DataFrame, streams_: DataFrame) -> dict[str, int]:
    """All of stage 3: digests, order, and what is wrong with each message where they differ."""
    runner = StageRunner(store=TableStore(copies.sparkSession), context=AuditContext(subject="bench"))
    reconciled = runner.reconcile(copies, stream_facts.build_stream_facts(streams_), copies.inputFiles())
    differences = reconciled.differences
    return {row.kind: row.number for row in differences.groupBy("kind").agg(F.sum("number").alias("number")).collect()}


def joins(copies: DataFrame, _: DataFrame, *, everything: bool = False) -> dict[str, int]:
    """
    A join of the write streams with each region's read stream, as one would write it.

    With *everything* keys and subjects are compared as well, as we do; nobody's join looks at the order.
    """
    message = ["origin", "origin_seq"]
    compared = ["digest", *(["key", "sent_subject"] if everything else [])]
    written = copies.where("is_origin").select(*message, *(F.col(column).alias(f"own_{column}") for column in compared))
    counts = {"lost-middle": 0, "payload": 0, "duplicated": 0}
    for region in REGIONS:
        read_copies = (
            copies.where(f"stream = 'foo-read-{region}'")
            .groupBy(*message)
            .agg(F.count(F.lit(1)).alias("n"), *(F.min(column).alias(column) for column in compared))
        )
        differs = reduce(or_, (F.col(f"own_{column}") != F.col(column) for column in compared))
        row = (
            written.join(read_copies, message, how="full_outer")
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
        read_copies = copies.where(f"stream = 'foo-read-{region}'").select(*message, "digest")
        # It needs unique keys: doubled messages are taken away first, and so not found.
        compare = SparkSQLCompare(
            copies.sparkSession,
            written,
            read_copies.dropDuplicates(message),
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
    counts = duckdb.sql(f"""
        with w as (select origin, origin_seq, digest from {source} where is_origin),
        r as (select region, origin, origin_seq, count(*) n, min(digest) digest from {source} where not is_origin
              group by all),
        g as (select distinct region from r)
        select count(*) filter (r.n is null), count(*) filter (w.digest <> r.digest), sum(coalesce(r.n - 1, 0))
        from w cross join g left join r using (region, origin, origin_seq)
    """).fetchall()
    return dict(zip(("lost-middle", "payload", "duplicated"), map(int, counts[0]), strict=True))


def by_polars(place: str) -> dict[str, int]:
    import polars as pl  # noqa: PLC0415

    message = ["origin", "origin_seq"]
    rows = pl.scan_parquet(f"{place}/copies/*.parquet")
    written = rows.filter("is_origin").select(*message, "digest")
    counts = {"lost-middle": 0, "payload": 0, "duplicated": 0}
    for region in REGIONS:
        read_rows = rows.filter(pl.col("stream") == f"foo-read-{region}")
        read_rows = read_rows.group_by(message).agg(pl.len().alias("n"), pl.col("digest").min().alias("theirs"))
        joined = written.join(read_rows, on=message, how="left").select(
            pl.col("n").is_null().sum().alias("lost-middle"),
            (pl.col("digest") != pl.col("theirs")).sum().alias("payload"),
            (pl.col("n").cast(pl.Int64) - 1).sum().alias("duplicated"),
        )
        for name, value in joined.collect(engine="streaming").row(0, named=True).items():
            counts[name] += value
    return counts


def _alone(way: Callable[[str], dict[str, int]], place: str) -> tuple[tuple[float, float, int], dict[str, int]]:
    """One that does not need Spark, in a process that does nothing else: its Cost, and what it finds."""
    way(place)  # it is imported, and the files are in the system's memory
    began, used = time.monotonic(), time.process_time()
    counts = way(place)
    wall, cpu = time.monotonic() - began, time.process_time() - used
    return (wall, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024), counts


def prepare_classes() -> None:
    """Wait until Spark's classes are in the user's cache, as they are after the first audit on a machine."""
    files: list[Path] = []
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place, open_session(on_keeping=files.append) as spark:
        ours(*generate(spark, _ENOUGH, place))
    for file in files:
        while not file.exists():
            time.sleep(0.2)


def _take_archive(_: Path) -> None:
    """Sessions that are told of archives use them."""


def main(sizes: list[int], *, with_others: bool, with_datacompy: bool) -> float:
    """Prints what there is to say; how much longer the first reconciliation took than a later one, of the most messages."""
    ratio = 0.0
    judges: dict[str, Callable[[DataFrame, DataFrame], dict[str, int]]] = {"vstream": ours}
    alone: dict[str, Callable[[str], dict[str, int]]] = {}
    if with_others:
        alone = {"duckdb: one join": by_duckdb, "polars: three joins": by_polars}
        judges["joins: lost, payload"] = joins
    if with_datacompy:
        judges["datacompy"] = by_datacompy
    prepare_classes()
    if with_others:
        judges["joins: keys too"] = partial(joins, everything=True)
    for rows in sizes:
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place:
            with open_session(on_keeping=_take_archive) as spark:
                copies, snapshot = generate(spark, rows, place)
                print(
                    f"\n{rows:,} messages in 3 regions ({4 * rows:,} rows), {LOST + DOUBLED + CHANGED} faults",
                    flush=True,
                )
                copies.agg(F.sum("seq")).collect()
                for name, judge in alone.items():
                    with apart() as pool:
                        spent, counts = pool.submit(_alone, judge, place).result()
                    report(name, Cost(*spent), counts)
                walls: list[float] = []
                for name, several in judges.items():
                    # The first time, Spark compiles what it runs: little beside what the others take.
                    for which in ("first", "second", "third") if name in _THRICE else ("once",):
                        with measure_cost() as cost:
                            counts = several(copies, snapshot)
                        spark.catalog.clearCache()
                        report(f"{name}, {which}", cost, counts)
                        walls += [cost.wall] if name == _THRICE[0] else []
                ratio = walls[0] / min(walls[1:])
            for name in _THRICE if with_others else ():
                # From the start of Java to the result.
                with measure_cost() as cost, open_session(on_keeping=_take_archive) as spark:
                    counts = judges[name](spark.read.schema(COPIES).parquet(f"{place}/copies"), streams(spark, rows))
                    cost.stop()
                report(f"{name}, from Java's start", cost, counts)
    return ratio


def report(name: str, cost: Cost, found: dict[str, int]) -> None:
    shown = ", ".join(f"{kind} {number:,}" for kind, number in sorted(found.items()))
    print(
        f"  {name:<39} {cost.wall:8.1f} s {cost.cpu:8.1f} s CPU {cost.resident / 2**20:8,.0f} MiB  {shown}", flush=True
    )
