"""The actions of steps, and the options of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vstream.scenario.document import StepDocument
from vstream.scenario.faults import FAULT_OPTIONS, FAULTS, Aim, FaultType
from vstream.value_class import value_class


@value_class
class ActionType:
    """One kind of step. *fault* is None for a step that injects nothing."""

    aim: Aim
    options: tuple[str, ...] = ()
    """Fields of a step that are valid here, besides `as` and `at`."""
    fault: FaultType | None = None

    @property
    def stays_open(self) -> bool:
        """Whether the fault stays open until it is healed. Others end by themselves."""
        return self.fault is not None and self.fault.stays_open


def _make_action_type(declared: FaultType) -> ActionType:
    options = tuple(option.name for option in declared.options)
    return ActionType(aim=declared.aim, options=("for_", *options) if declared.stays_open else options, fault=declared)


ACTIONS: Final[Mapping[str, ActionType]] = {
    "wait": ActionType(aim=Aim.NOTHING),
    **{declared.field: _make_action_type(declared) for declared in FAULTS.values()},
    "heal": ActionType(aim=Aim.NOTHING),
    "resync": ActionType(aim=Aim.NOTHING),
    "converge": ActionType(aim=Aim.NOTHING),
    "try_": ActionType(aim=Aim.REGIONS),
    "run": ActionType(aim=Aim.COMMAND),
}
"""By field of a step."""

COMMON: Final = ("as_", "at")
OPTIONS: Final = ("for_", *FAULT_OPTIONS)
"""Fields of a step that are valid with some actions only."""


def list_action_fields(step: StepDocument) -> list[str]:
    """The fields of *step* that are actions, as they were written."""
    return [name for name in ACTIONS if name in step.model_fields_set]
