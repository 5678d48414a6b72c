"""Cells of the table of what survives what, shown and refuted on labs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.topologies import begin_topology

_TWO = (
    begin_topology("two", west=1, east=1)
    + """\
streams:
  sensors: {subjects: [sensors.>], canary: sensors._canary.*, write: {max_age: 1h}}
"""
)
_FOUR = (
    begin_topology("four", west=3, central=3, east=3)
    + """\
stretch: {members: all}
streams:
  sensors: {subjects: [sensors.>], canary: sensors._canary.*, write: {max_age: 1h}}
  ledger: {subjects: [ledger.>], consistency: ordered, canary: ledger._canary.*, write: {max_age: 1h}}
  stock: {subjects: [stock.>], consistency: stretch, canary: stock._canary.*}
  prices: {subjects: [prices.>], consistency: homed, home: east, canary: prices._canary.*}
"""
)


@pytest.mark.lab
def test_cells_of_a_region_that_is_cut_off_are_shown(tmp_path: Path, state: Path) -> None:
    (tmp_path / "topology.yaml").write_text(_TWO)
    arguments = ["--failure", "cut_off", "--ability", "writes", "--ability", "own_reads", "--ability", "reads"]
    ran = vstream("survive", "--rehearse", *arguments, "--format", "json", cwd=tmp_path)
    result = ran.json()
    assert [(cell["ability"], cell["answer"], cell["rehearsed"]) for cell in result["cells"]] == [
        ("writes", "yes", "shown"),
        ("reads", "yes", "shown"),
        ("own_reads", "yes", "shown"),
    ], ran.err
    assert ran.code == 0
    assert result["rehearsal"]["acknowledged"] > 0
    assert result["rehearsal"]["lost"] == 0


@pytest.mark.lab
@pytest.mark.night
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["2.12.8", "2.15.1"])
def test_every_cell_of_all_models_is_shown(version: str, tmp_path: Path, state: Path) -> None:
    (tmp_path / "topology.yaml").write_text(_FOUR)
    arguments = ["--server-version", version, "--format", "json"]
    ran = vstream("survive", "--rehearse", *arguments, cwd=tmp_path, timeout=1800)
    result = ran.json()
    rehearsal = result["rehearsal"]
    assert (rehearsal["refuted"], rehearsal["unknown"], rehearsal["problems"]) == (0, 0, []), ran.err
    assert rehearsal["lost"] == rehearsal["expected_losses"]
