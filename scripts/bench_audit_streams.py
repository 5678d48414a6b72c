"""
What an audit of many small virtual streams costs: five regions, 60 messages in each stream, of tables as extraction leaves them.

From the start of Spark to the report's findings: CPU seconds of all processes, and the most memory that they had together.
"""

from __future__ import annotations

import tempfile

from bench_audit import EPOCH, apart, measure_cost, report
from bench_goals import record
from pyspark.sql import functions as F

from vstream.audit.context import AuditContext
from vstream.audit.local_frames import make_table
from vstream.audit.schema import MESSAGES, STREAMS
from vstream.audit.session import open_session, size_settings
from vstream.audit.stages import AuditPipeline
from vstream.audit.table_store import TableStore

REGIONS = ("r0", "r1", "r2", "r3", "r4")
EACH = 12
"""Messages that each region writes into each stream."""
GOAL = 10_000
STEP = 10**6
_ROWS = EACH * (1 + len(REGIONS))
"""Messages of a virtual stream in one region: of its write stream and of its read stream."""
_FILE = 500
"""Virtual streams in a file: a task of extraction reads so many small ones of a region."""
END = EPOCH + EACH * len(REGIONS) * STEP + 10**12


def generate(count: int, place: str) -> None:
    """`messages` and `streams` below *place*, of *count* virtual streams in which nothing is wrong."""
    with open_session() as spark:
        # As extraction leaves it: a file has a region's streams one after the other, each in its order.
        rows = spark.range(count * len(REGIONS) * _ROWS, numPartitions=-(-count * len(REGIONS) // _FILE)).select(
            F.expr(f"id div {_ROWS} % {count}").alias("v"),
            F.expr(f"id div {count * _ROWS}").alias("r"),
            F.expr(f"id % {_ROWS} - {EACH}").alias("n"),
        )
        is_write = F.col("n") < 0
        rows = rows.select(
            *("v", "r", is_write.alias("is_write")),
            F.when(is_write, F.col("r")).otherwise(F.expr(f"n % {len(REGIONS)}")).alias("o"),
            F.when(is_write, F.col("n") + EACH + 1).otherwise(F.expr(f"n div {len(REGIONS)} + 1")).alias("s"),
        )
        region, origin = (F.concat(F.lit("r"), F.col(name).cast("string")) for name in ("r", "o"))
        name, place_there, is_write = F.concat(F.lit("s"), F.col("v").cast("string")), F.col("s"), F.col("is_write")
        place_here = (place_there - 1) * len(REGIONS) + F.col("o") + 1
        written, key = F.concat(name, F.lit("-write-"), origin), F.concat(name, F.lit(".k"))
        prefix = F.concat(F.lit("_vs."), name, F.lit("."), origin, F.lit("."))
        header = F.concat_ws(
            " ", written, place_there, F.concat(prefix, F.lit(">")), F.lit(">"), F.concat(prefix, key), F.lit("A")
        )
        # Regions write the same key, each after it has received what others wrote.
        sent_ns = F.lit(EPOCH) + place_here * STEP
        values = {
            "virtual": name,
            "region": region,
            "role": F.when(is_write, "write").otherwise("read"),
            "stream": F.when(is_write, written).otherwise(F.concat(name, F.lit("-read-"), region)),
            "seq": F.when(is_write, place_there).otherwise(place_here),
            "time_ns": sent_ns + F.when(is_write, 0).otherwise(STEP // 2),
            "subject": F.when(is_write, F.concat(prefix, key)).otherwise(key),
            "source": F.when(~is_write, header),
            "msg_id": F.lit(None).cast("string"),
            "ttl": F.lit(None).cast("string"),
            "size": F.lit(64),
            "digest": F.xxhash64("v", "o", "s"),
        }
        table = rows.select(*(values[field.name].cast(field.dataType).alias(field.name) for field in MESSAGES))
        table.write.parquet(f"{place}/messages")
        sources = {number: [(f"s{number}-write-{each}", EACH) for each in REGIONS] for number in range(count)}
        stream_rows = [
            (
                f"s{number}", f"s{number}-{role}-{each}", each, role, 1, last, last, 0, END, "2.15.1", "consumer", None,
                sources[number] if role == "read" else [], {}, None, None, None,
            )
            for number in range(count)
            for role, last in (("write", EACH), ("read", EACH * len(REGIONS)))
            for each in REGIONS
        ]  # fmt: skip
        make_table(spark, stream_rows, STREAMS).write.parquet(f"{place}/streams")


def main(count: int) -> None:
    """Print what the audit of *count* streams took. Nothing may be found."""
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place:
        with apart() as pool:
            pool.submit(generate, count, place).result()
        with measure_cost() as cost, open_session(conf=size_settings(count * len(REGIONS) * _ROWS)) as spark:
            tables = [spark.read.schema(schema).parquet(f"{place}/{name}") for schema, name in TABLES]
            pipeline = AuditPipeline(
                store=TableStore(spark, f"file://{place}/audit"), context=AuditContext(subject="many")
            )
            audited = pipeline(*tables)
            cost.stop()
    assert not audited.findings, audited.findings
    report(f"{count:,} virtual streams × 5 regions", cost, {"rows": audited.messages})
    if count == GOAL:
        record("audit of 10,000 streams × 5 regions, CPU", cost.cpu)


TABLES = ((MESSAGES, "messages"), (STREAMS, "streams"))
