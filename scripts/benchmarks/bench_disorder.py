"""
What a read stream in complete disorder costs: one of three is shuffled, beside the same messages in order.

Each message of an origin that has a later one in front of it has to be found, and no other. Fails if the count is
another one.
"""

from __future__ import annotations

import sys
import tempfile
from typing import TYPE_CHECKING, Any

import numpy as np
from bench_audit import generate, measure_cost, ours, report
from pyspark.sql import functions as F

from vstream.audit.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def count_disordered(copies: DataFrame) -> int:
    """In the read stream of west: messages behind a later one of their origin, counted without Spark."""
    rows: Any = copies.where("stream = 'foo-read-west'").select("seq", "origin", "origin_seq").toPandas()
    groups = (group["origin_seq"].to_numpy() for _, group in rows.sort_values("seq").groupby("origin"))
    return sum(int((np.maximum.accumulate(group) > group).sum()) for group in groups)


def main(sizes: list[int]) -> None:
    """Reconcile *sizes* messages in three regions, in order and not."""
    for rows in sizes:
        print(f"\n{rows:,} messages in 3 regions ({4 * rows:,} rows)", flush=True)
        for is_shuffled in (False, True):
            with tempfile.TemporaryDirectory(prefix="vstream-bench-") as place, open_session() as spark:
                copies, snapshot = generate(spark, rows, place, is_shuffled=is_shuffled)
                copies.agg(F.sum("seq")).collect()
                expected = count_disordered(copies)
                ours(copies, snapshot)  # Spark compiles
                spark.catalog.clearCache()
                with measure_cost() as cost:
                    counts = ours(copies, snapshot)
                report("west shuffled" if is_shuffled else "in order", cost, counts)
                if counts.get("reordered", 0) != expected:
                    sys.exit(f"{expected:,} messages are behind a later one of their origin")
