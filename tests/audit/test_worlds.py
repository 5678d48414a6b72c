"""A judge of the judge: what vstream says of many worlds on real servers, against what was done to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.night import IS_NIGHT, with_night
from tests.support.worlds.judging import complain, tabulate
from tests.support.worlds.lab import draw_plans, run_worlds

pytestmark = pytest.mark.lab

WORLDS = 50
"""In one lab."""


@pytest.mark.parametrize(
    ("version", "seed"),
    with_night([("2.15.1", 0)], [(version, seed) for version in ("2.10.26", "2.12.8", "2.14.6") for seed in range(6)]),
)
def test_nothing_is_missed_and_nothing_is_invented(
    version: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = (int(version.split(".", maxsplit=1)[0]), int(version.split(".")[1]))
    plans = draw_plans(seed, WORLDS if IS_NIGHT else 6, numbers)
    # To audit what a repair put back starts Spark once more: at night only.
    verdicts = run_worlds(tmp_path, plans, version, is_audited_again=IS_NIGHT)
    with capsys.disabled():
        print(f"\nnats-server {version}, seed {seed}\n{tabulate(verdicts)}")  # noqa: T201 - what the night is for
    assert complain(verdicts) == []
