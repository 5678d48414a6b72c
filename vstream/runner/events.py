"""What a run reports while it goes on. Times are nanoseconds since the capture's start."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, assert_never

from vstream.capture.records import Sample
from vstream.scenario.model import Action, ChangeRegion, Converge, Heal, Inject, RepairMeta, Resync, Try, Wait
from vstream.topology.units import format_duration
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.runner.workload.spec import WorkloadProgress


@value_class
class Activity:
    """A longer activity before or after the load."""

    at: int
    description: str


@value_class
class LoadBegan:
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
class FaultSeen:
    """A fault has reached this state; *detail* is the evidence, or the reason why not."""

    at: int
    id: str
    asked: str
    regions: tuple[str, ...]
    state: FaultState
    detail: str | None


@value_class
class WorkerProgress:
    """What the clients of *region* have done so far."""

    region: str
    progress: WorkloadProgress


@value_class
class Sampled:
    """The state that a region reports."""

    sample: Sample


Event = Activity | LoadBegan | StepBegan | StepEnded | FaultSeen | WorkerProgress | Sampled


def describe(action: Action) -> str:
    """For example `wait 5s`, or `kill-region west for 10s`."""
    match action:
        case Wait():
            text = f"wait {format_duration(action.nanoseconds)}"
        case Inject():
            held = "" if action.lasting is None else f" for {format_duration(action.lasting)}"
            text = f"{action.fault.command}{held}"
        case Heal():
            text = "heal" if action.ids is None else f"heal {', '.join(action.ids)}"
        case Resync():
            text = "resync"
        case Converge():
            text = f"converge within {format_duration(action.within)}"
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
