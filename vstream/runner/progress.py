"""The progress of a scenario in a lab: a file in the lab's directory, for those who watch it from another process."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vstream.files import write_private
from vstream.lab.state import LabDirectory
from vstream.runner.events import Activity, Event, StepBegan, StepEnded
from vstream.value_class import value_class


@value_class
class ScenarioProgress:
    """What a scenario does now. *since*: seconds since 1970."""

    scenario: str
    number: int
    """The current step, from 1 to *total*; 0 before the first."""
    total: int
    description: str
    since: float
    failed: tuple[str, ...] = ()
    """The steps that were not ok, and why."""


_PROGRESS = TypeAdapter(ScenarioProgress)


class ProgressWriter:
    """Writes down what a scenario does, from its events."""

    def __init__(self, directory: LabDirectory, scenario: str, total: int) -> None:
        self._directory = directory
        self._progress = ScenarioProgress(scenario=scenario, number=0, total=total, description="", since=time.time())

    def handle(self, event: Event) -> None:
        """Store what *event* changes. A disk that cannot be written to is not what a scenario fails for."""
        last = self._progress
        match event:
            case Activity(description=description):
                self._progress = replace(last, description=description, since=time.time())
            case StepBegan(number=number, description=description):
                self._progress = replace(last, number=number, description=description, since=time.time())
            case StepEnded(number=number, is_ok=False, detail=detail):
                self._progress = replace(last, failed=(*last.failed, f"step {number}: {detail}"))
            case _:
                return
        with suppress(OSError):
            write_private(_path(self._directory), _PROGRESS.dump_json(self._progress).decode() + "\n")


def read(directory: LabDirectory) -> ScenarioProgress | None:
    """The progress of this lab's scenario; None without a scenario or a readable file."""
    try:
        return _PROGRESS.validate_json(_path(directory).read_bytes())
    except (OSError, ValidationError):
        return None


def _path(directory: LabDirectory) -> Path:
    return directory.path / "scenario.json"
