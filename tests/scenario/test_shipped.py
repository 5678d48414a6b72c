"""The scenarios that ship with vstream."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.topologies import concise
from vstream.lint.check_scenario import check_scenario
from vstream.scenario.timeline import find_minimum_duration

SHIPPED = sorted((ROOT / "scenarios").glob("*.yaml"))
SECOND = 10**9
LONGEST = 120 * SECOND


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_is_valid_and_is_called_as_its_file(path: Path) -> None:
    loading = check_scenario(path.read_bytes(), str(path), lambda name: Path(name).read_bytes())
    assert concise(loading.findings) == ""
    scenario = loading.require()
    assert scenario.name == path.stem
    headline = scenario.description.splitlines()[0]
    assert headline.endswith("."), "`scenario list` shows the first line alone"
    assert len(headline) < 120
    assert scenario.lab.templates is None or Path(scenario.lab.templates).is_dir()


def test_the_runbooks_name_scenarios_that_are_shipped() -> None:
    page = (ROOT / "docs" / "runbooks.md").read_text(encoding="utf-8")
    named = {*re.findall(r"\| `([\w-]+)` \|$", page, re.MULTILINE)}
    changes = {path.stem for path in SHIPPED if "\n  - run: " in path.read_text(encoding="utf-8")}
    assert changes <= named <= {path.stem for path in SHIPPED}


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_scenario_does_not_take_long(path: Path) -> None:
    assert (
        find_minimum_duration(
            check_scenario(path.read_bytes(), str(path), lambda name: Path(name).read_bytes()).require()
        )
        <= LONGEST
    )
