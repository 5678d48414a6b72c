"""
What a run reports while it goes on, and the file in the lab's directory for those who watch it from another process.

Times of events are nanoseconds since the capture's start.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING, assert_never

from pydantic import TypeAdapter, ValidationError

from vstream.capture.records import Sample
from vstream.files import write_private
from vstream.lab.state import LabDirectory
from vstream.scenario.model import Action, ChangeRegion, Converge, Heal, Inject, RepairMeta, Resync, Try, Wait
from vstream.topology.units import spell_nanoseconds
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.runner.workload.spec import WorkloadProgress


@value_class
class Activity:
    """A longer activity before or after the load."""

    at: int
    description: str


@value_class
class WorkloadBegan:
    """Clients begin at *at*, which people count from."""

    at: int


@value_class
class StepBegan:
    """Step *number* of *total*, counted from 1, begins."""

    at: int
    number: int
    total: int
    name: str | None
    description: str


@value_class
class StepEnded:
    """The step has ended; *detail* says why it is not ok."""

    at: int
    number: int
    is_ok: bool
    detail: str | None


class FaultState(Enum):
    """The state of a fault."""

    CONFIRMED = "confirmed"
    HEALING = "healing"
    HEALED = "healed"
    UNSUPPORTED = "unsupported"
    FAILED = "failed"


@value_class
class FaultStateChanged:
    """A fault has reached this state; *detail* is the evidence, or the reason why not."""

    at: int
    id: str
    command: str
    regions: tuple[str, ...]
    state: FaultState
    detail: str | None


@value_class
class WorkerProgress:
    """What the clients of *region* have done so far."""

    region: str
    progress: WorkloadProgress


@value_class
class SampleTaken:
    """The state that a region reports."""

    sample: Sample


Event = Activity | WorkloadBegan | StepBegan | StepEnded | FaultStateChanged | WorkerProgress | SampleTaken
EventObserver = Callable[[Event], None]
"""Who is told of each event."""


def describe_action(action: Action) -> str:
    """For example `wait 5s`, or `kill-region west for 10s`."""
    match action:
        case Wait():
            text = f"wait {spell_nanoseconds(action.nanoseconds)}"
        case Inject():
            held = "" if action.lasting is None else f" for {spell_nanoseconds(action.lasting)}"
            text = f"{action.fault.command}{held}"
        case Heal():
            text = "heal" if action.ids is None else f"heal {', '.join(action.ids)}"
        case Resync():
            text = "resync"
        case Converge():
            text = f"converge within {spell_nanoseconds(action.within)}"
        case Try():
            text = f"try in {', '.join(action.regions)}"
        case ChangeRegion():
            name, *flags = action.command.value.split()
            text = " ".join((name, action.region, *flags, *(f"--also {region}" for region in action.also)))
        case RepairMeta():
            text = "repair meta"
        case _:
            assert_never(action)
    return text


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
_FILE = "scenario.json"


class ProgressWriter:
    """Writes down what a scenario does, from its events."""

    def __init__(self, directory: LabDirectory, scenario: str, total: int) -> None:
        self._directory = directory
        self._progress = ScenarioProgress(scenario=scenario, number=0, total=total, description="", since=time.time())

    def record_event(self, event: Event) -> None:
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
            write_private(self._directory.path / _FILE, _PROGRESS.dump_json(self._progress).decode() + "\n")


def read_progress(directory: LabDirectory) -> ScenarioProgress | None:
    """The progress of this lab's scenario; None without a scenario or a readable file."""
    try:
        return _PROGRESS.validate_json((directory.path / _FILE).read_bytes())
    except (OSError, ValidationError):
        return None
