"""A judge of the judge: what vstream says of many worlds on real servers, against what was done to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.worlds.judging import complain, tabulate
from tests.support.worlds.lab import draw_plans, run_worlds

pytestmark = [pytest.mark.lab, pytest.mark.night]  # one of two runs of the short form complained of a repair

WORLDS = 50
"""In one lab."""


@pytest.mark.parametrize(
    ("version", "seed"),
    [(version, seed) for version in ("2.10.26", "2.12.8", "2.14.6", "2.15.1") for seed in range(6)],
)
def test_nothing_is_missed_and_nothing_is_invented(
    version: str, seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = (int(version.split(".", maxsplit=1)[0]), int(version.split(".")[1]))
    plans = draw_plans(seed, WORLDS, numbers)
    verdicts = run_worlds(tmp_path, plans, version, is_audited_again=True)
    with capsys.disabled():
        print(f"\nnats-server {version}, seed {seed}\n{tabulate(verdicts)}")  # noqa: T201 - what the night is for
    assert complain(verdicts) == []
