"""What `scripts/bench --audit` compares: tables as they are today, in which each way finds what was planted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from scripts.benchmarks.bench_audit import CHANGED, DOUBLED, LOST, generate, joins, ours

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]


def test_every_way_finds_what_is_planted(spark: SparkSession, tmp_path: Path) -> None:
    copies, streams = generate(spark, 9_000, str(tmp_path))
    planted = {"lost-middle": LOST, "duplicated": DOUBLED, "payload": CHANGED}
    assert ours(copies, streams) == joins(copies, streams) == planted
