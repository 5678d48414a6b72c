"""What an audit costs and keeps does not grow faster than what it reads, however long or in what disorder that is."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from vstream.audit.judge.delays import HOPS, MAX_INTERVALS, summarize_delays
from vstream.audit.reconcile.order import OUT_OF_ORDER, find_reordered, pair_with_segments

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

PLACE = ("foo", "w", "", "r", "west")
COPIES = (
    "virtual string, origin string, former string, stream string, region string, "
    "origin_seq bigint, seq bigint, time_ns bigint, key string, is_origin boolean, is_replay boolean"
)


def shuffle(spark: SparkSession, rows: int) -> tuple[int, int, int]:
    """How many rows and segments are put together for one shuffled stream of *rows*; and what is found, and is true."""
    order = list(range(1, rows + 1))
    Random(rows).shuffle(order)
    behind, out_of_order, greatest = [], [], 0
    for seq, origin_seq in enumerate(order, 1):
        behind.append((*PLACE, origin_seq, seq, seq, "k", False, False))
        if origin_seq < greatest:
            out_of_order.append((*PLACE, seq, origin_seq, seq, origin_seq, greatest))
        greatest = max(greatest, origin_seq)
    tables = spark.createDataFrame(behind, COPIES), spark.createDataFrame(out_of_order, OUT_OF_ORDER)
    return pair_with_segments(*tables).count(), find_reordered(*tables).count(), len(out_of_order)


def test_twice_as_many_messages_out_of_order_are_compared_twice_as_often(spark: SparkSession) -> None:
    compared, misplaced, planted = shuffle(spark, 1_500)
    assert misplaced == planted
    more, misplaced, planted = shuffle(spark, 3_000)
    assert misplaced == planted
    # The square would be four times as many, and each with each 9,000,000.
    assert 1.9 < more / compared < 2.1
    assert more < 3_000 * 100


def test_the_delays_of_a_year_are_no_more_rows_than_those_of_a_day(spark: SparkSession) -> None:
    """A message in each of 5,000 minutes: they are collected, made into JSON and drawn."""
    apart = 365 * 86_400 * 10**9 // 5_000
    hops = [("foo", "west", "east", number * apart, number * apart + 1) for number in range(5_000)]
    rows = summarize_delays(spark.createDataFrame(hops, HOPS)).collect()
    intervals = [row for row in rows if row.minute is not None]
    # One more where the period does not begin with an interval.
    assert 1_000 < len(intervals) <= MAX_INTERVALS + 1
    assert (len(rows) - len(intervals), sum(row.messages for row in intervals)) == (1, 5_000)
