"""What each step is for, and what may be said beside it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from vstream.scenario.document import StepDocument, yaml_key
from vstream.scenario.model import FaultKind

if TYPE_CHECKING:
    from collections.abc import Mapping


class Aim(Enum):
    """What the value of an action names."""

    NOTHING = "nothing"
    REGIONS = "regions"
    SERVERS = "servers"
    MACHINES = "regions or servers"
    STREAM = "a physical stream, or with `region` a virtual one"
    SIDES = "regions on each side"
    ENDS = "two regions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One kind of step. *fault* is None for a step that breaks nothing."""

    aim: Aim
    options: tuple[str, ...] = ()
    """Fields of a step that mean something here, besides `as` and `at`."""
    fault: FaultKind | None = None
    stays: bool = False
    """Whether the fault stays open until it is healed. Others end by themselves."""


def _lasting(kind: FaultKind, aim: Aim, *options: str) -> Action:
    return Action(aim=aim, options=("for_", *options), fault=kind, stays=True)


def _passing(kind: FaultKind, aim: Aim, *options: str) -> Action:
    return Action(aim=aim, options=options, fault=kind)


FAULTS: Final[Mapping[FaultKind, Action]] = {
    one.fault: one
    for one in (
        _lasting(FaultKind.KILL_REGION, Aim.REGIONS),
        _lasting(FaultKind.KILL_SERVER, Aim.SERVERS),
        _lasting(FaultKind.KILL_LEADER, Aim.STREAM, "region"),
        _lasting(FaultKind.KILL_META_LEADER, Aim.NOTHING),
        _passing(FaultKind.RESTART_REGION, Aim.REGIONS),
        _lasting(FaultKind.PAUSE, Aim.MACHINES),
        _lasting(FaultKind.PARTITION, Aim.SIDES, "how", "one_way"),
        _lasting(FaultKind.ISOLATE, Aim.REGIONS, "how"),
        _lasting(FaultKind.LINK, Aim.ENDS, "rtt", "jitter", "loss", "rate"),
        _lasting(FaultKind.DISK_FULL, Aim.MACHINES),
        _passing(FaultKind.POWER_LOSS, Aim.MACHINES, "lose"),
        _passing(FaultKind.STEP_DOWN, Aim.STREAM, "region"),
        _passing(FaultKind.STEP_DOWN_META, Aim.NOTHING),
        _passing(FaultKind.ROLLING_RESTART, Aim.REGIONS, "lame_duck"),
        _passing(FaultKind.UPGRADE, Aim.MACHINES, "to"),
    )
    if one.fault is not None
}

ACTIONS: Final[Mapping[str, Action]] = {
    "wait": Action(aim=Aim.NOTHING),
    **{kind.value.replace("-", "_"): action for kind, action in FAULTS.items()},
    "heal": Action(aim=Aim.NOTHING),
    "resync": Action(aim=Aim.NOTHING),
    "converge": Action(aim=Aim.NOTHING),
    "try_": Action(aim=Aim.REGIONS),
}
"""By field of a step."""

COMMON: Final = ("as_", "at")
OPTIONS: Final = tuple(name for name in StepDocument.model_fields if name not in ACTIONS and name not in COMMON)
"""Fields of a step that mean something beside some actions only."""


def actions_of(step: StepDocument) -> list[str]:
    """The fields of *step* that are actions, as they were written."""
    return [name for name in ACTIONS if name in step.model_fields_set]


def written(name: str) -> str:
    """A field of a step, as it is written."""
    return yaml_key(name)
