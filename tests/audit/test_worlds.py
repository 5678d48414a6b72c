"""A judge of the judge: what vstream says of many worlds on real servers, against what was done to them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.golden import Golden
from tests.support.paths import ROOT
from tests.support.worlds.judging import complain, record, render_kinds, render_versions
from tests.support.worlds.lab import draw_plans, run_worlds, smoke_plans

pytestmark = [
    pytest.mark.lab,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

WORLDS = 100
"""In one lab."""
COUNTS = Path(__file__).parent / "worlds.json"
PAGE = ROOT / "docs" / "what-sees-what.md"


def test_repair_finds_exactly_what_was_planted_in_six_worlds(tmp_path: Path, spark: SparkSession) -> None:
    complaints = complain(run_worlds(tmp_path, smoke_plans(), "2.15.1", spark))
    assert not complaints, "\n".join(complaints)


@pytest.mark.night
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("version", ["2.10.26", "2.12.8", "2.14.6", "2.15.1"])
def test_nothing_is_missed_and_nothing_is_invented(
    version: str, seed: int, tmp_path: Path, spark: SparkSession, golden: Golden
) -> None:
    """With `--update-golden`, what was found is added to the tables of the page."""
    numbers = (int(version.split(".", maxsplit=1)[0]), int(version.split(".")[1]))
    plans = draw_plans(seed, WORLDS, numbers)
    verdicts = run_worlds(tmp_path, plans, version, spark)
    if golden.update:
        record(COUNTS, version, seed, verdicts)
        counts = json.loads(COUNTS.read_text(encoding="utf-8"))
        parts = PAGE.read_text(encoding="utf-8").split("\n\n")
        for table in (render_versions(counts), render_kinds(counts)):
            head = table.partition("\n")[0]
            parts = [table.strip() if part.startswith(head) else part for part in parts]
        PAGE.write_text("\n\n".join(parts), encoding="utf-8")
    complaints = complain(verdicts)
    assert not complaints, "\n".join(complaints)
