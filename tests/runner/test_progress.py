"""Where a scenario is, as another process reads it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from vstream.lab.state import LabDirectory
from vstream.runner.events import Activity, ProgressWriter, StepBegan, StepEnded, read_progress

BEGAN = StepBegan(at=0, number=1, total=3, name=None, description="kill-region west")


@pytest.fixture
def directory(tmp_path: Path) -> LabDirectory:
    return LabDirectory(name="acme", path=tmp_path)


def test_the_step_that_has_begun_last_is_read_with_those_that_failed(directory: LabDirectory) -> None:
    writer = ProgressWriter(directory, "region-flap", 3)
    writer.record_event(Activity(at=0, description="probing"))
    before = read_progress(directory)
    assert before is not None
    assert (before.scenario, before.number, before.total, before.description) == ("region-flap", 0, 3, "probing")
    writer.record_event(BEGAN)
    writer.record_event(StepEnded(at=1, number=1, is_ok=False, detail="west is up"))
    writer.record_event(replace(BEGAN, number=2, description="heal"))
    now = read_progress(directory)
    assert now is not None
    assert (now.number, now.description, now.failed) == (2, "heal", ("step 1: west is up",))


def test_a_lab_without_a_scenario_has_no_progress(directory: LabDirectory) -> None:
    assert read_progress(directory) is None
    (directory.path / "scenario.json").write_text('{"scenario": 5}')
    assert read_progress(directory) is None


def test_a_directory_that_is_not_there_does_not_end_the_scenario(tmp_path: Path) -> None:
    ProgressWriter(LabDirectory(name="acme", path=tmp_path / "nowhere"), "region-flap", 1).record_event(BEGAN)
