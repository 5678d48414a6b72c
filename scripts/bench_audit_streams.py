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
from vstream.audit.session import open_session
from vstream.audit.stages import AuditPipeline
from vstream.audit.table_store import TableStore

REGIONS = ("r0", "r1", "r2", "r3", "r4")
EACH = 12
"""Messages that each region writes into each stream."""
GOAL = 10_000
STEP = 10**6
END = EPOCH + EACH * STEP + 10**12


def generate(count: int, place: str) -> None:
    """`messages` and `streams` below *place*, of *count* virtual streams in which nothing is wrong."""
    with open_session() as spark:
        region, origin = (F.concat(F.lit("r"), F.col(name).cast("string")) for name in ("r", "o"))
        name, seq = F.concat(F.lit("s"), F.col("v").cast("string")), F.col("s")
        copies = spark.range(count * len(REGIONS) * len(REGIONS) * EACH).select(
            F.expr(f"id div {len(REGIONS) ** 2 * EACH}").alias("v"),
            F.expr(f"id div {len(REGIONS) * EACH} % {len(REGIONS)}").alias("r"),
            F.expr(f"id % {len(REGIONS)}").alias("o"),
            F.expr(f"id div {len(REGIONS)} % {EACH} + 1").alias("s"),
        )
        written = F.concat(name, F.lit("-write-"), origin)
        columns = {
            "virtual": name,
            "region": region,
            "msg_id": F.lit(None).cast("string"),
            "ttl": F.lit(None).cast("string"),
        }
        columns |= {"size": F.lit(64), "digest": F.xxhash64("v", "o", "s")}
        sent, time = F.concat(F.lit("_vs."), name, F.lit("."), origin, F.lit(".k")), F.lit(EPOCH) + seq * STEP
        reads = columns | {
            "role": F.lit("read"),
            "stream": F.concat(name, F.lit("-read-"), region),
            "seq": (seq - 1) * len(REGIONS) + F.col("o") + 1,
            "time_ns": time + 2 * STEP,
            "subject": F.concat(name, F.lit(".k")),
            "source": F.concat(
                written, F.lit(" "), seq.cast("string"), F.lit(" "), sent, F.lit(" > "), sent, F.lit(" A")
            ),
        }
        writes = columns | {
            "role": F.lit("write"),
            "stream": written,
            "seq": seq,
            "time_ns": time,
            "subject": sent,
            "source": F.lit(None).cast("string"),
        }
        for rows, values in ((copies, reads), (copies.where("r = o"), writes)):
            table = rows.select(*(values[field].alias(field) for field in MESSAGES.names))
            table.repartition(8).write.mode("append").parquet(f"{place}/messages")
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
        with measure_cost() as cost, open_session() as spark:
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
