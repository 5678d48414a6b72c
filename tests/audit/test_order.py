"""A reader in complete disorder costs as much for each message, however many there are."""

from __future__ import annotations

from random import Random

import pytest
from pyspark.sql import SparkSession

from vstream.audit.classify import find_reordered, pair_with_stretches
from vstream.audit.order import BACKSTEPS

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark-judging"),
    pytest.mark.usefixtures("small_tables"),
]

PLACE = ("foo", "w", "", "r", "west")
COPIES = (
    "virtual string, origin string, former string, stream string, region string, "
    "origin_seq bigint, seq bigint, time_ns bigint, key string, is_origin boolean, is_replay boolean"
)


def shuffle(spark: SparkSession, rows: int) -> tuple[int, int, int]:
    """How many rows and stretches are put together for one shuffled stream of *rows*; and what is found, and is true."""
    order = list(range(1, rows + 1))
    Random(rows).shuffle(order)
    behind, backsteps, greatest = [], [], 0
    for seq, origin_seq in enumerate(order, 1):
        behind.append((*PLACE, origin_seq, seq, seq, "k", False, False))
        if origin_seq < greatest:
            backsteps.append((*PLACE, seq, origin_seq, seq, origin_seq, greatest))
        greatest = max(greatest, origin_seq)
    tables = spark.createDataFrame(behind, COPIES), spark.createDataFrame(backsteps, BACKSTEPS)
    return pair_with_stretches(*tables).count(), find_reordered(*tables).count(), len(backsteps)


def test_twice_as_many_messages_out_of_order_are_compared_twice_as_often(spark: SparkSession) -> None:
    compared, found, planted = shuffle(spark, 3_000)
    assert found == planted
    more, found, planted = shuffle(spark, 6_000)
    assert found == planted
    # The square would be four times as many, and each with each 36,000,000.
    assert 1.9 < more / compared < 2.1
    assert more < 6_000 * 100
