"""The actions of steps, and the options of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from vstream.scenario.document import StepDocument
from vstream.scenario.fault_types import FAULT_OPTIONS, FAULTS, FaultType, Target
from vstream.value_class import value_class


@value_class
class ActionType:
    """One kind of step. *fault* is None for a step that injects nothing."""

    target: Target
    options: tuple[str, ...] = ()
    """Fields of a step that are valid here, besides `as` and `at`."""
    fault: FaultType | None = None

    @property
    def stays_open(self) -> bool:
        """Whether the fault stays open until it is healed. Others end by themselves."""
        return self.fault is not None and self.fault.stays_open


def _make_action_type(declared: FaultType) -> ActionType:
    options = [*(["for_"] if declared.stays_open else []), *(option.name for option in declared.options)]
    return ActionType(target=declared.target, options=tuple(options), fault=declared)


ACTIONS: Final[Mapping[str, ActionType]] = {
    "wait": ActionType(target=Target.NOTHING),
    **{declared.field: _make_action_type(declared) for declared in FAULTS.values()},
    "heal": ActionType(target=Target.NOTHING),
    "resync": ActionType(target=Target.NOTHING),
    "converge": ActionType(target=Target.NOTHING),
    "try_": ActionType(target=Target.REGIONS),
    "run": ActionType(target=Target.COMMAND),
}
"""By field of a step."""

COMMON: Final = ("as_", "at")
OPTIONS: Final = ("for_", *FAULT_OPTIONS)
"""Fields of a step that are valid with some actions only."""


def list_action_fields(step: StepDocument) -> list[str]:
    """The fields of *step* that are actions, as they were written."""
    return [name for name in ACTIONS if name in step.model_fields_set]
