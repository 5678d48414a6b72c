"""Steps in words, as they stand in reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from vstream.scenario.model import Converge, FaultKind, Heal, Inject, Resync, Try, Wait
from vstream.topology.units import format_duration

if TYPE_CHECKING:
    from vstream.scenario.model import Action, FaultSpec

_DURATIONS = {"rtt", "jitter", "lose"}


def describe(action: Action) -> str:
    """Such as `wait 5s`, or `kill-region west for 10s`."""
    match action:
        case Wait():
            return f"wait {format_duration(action.nanoseconds)}"
        case Inject():
            held = "" if action.lasting is None else f" for {format_duration(action.lasting)}"
            return f"{describe_fault(action.fault)}{held}"
        case Heal():
            return "heal" if action.ids is None else f"heal {', '.join(action.ids)}"
        case Resync():
            return "resync"
        case Converge():
            return f"converge within {format_duration(action.within)}"
        case Try():
            return f"try in {', '.join(action.regions)}"
        case _:
            assert_never(action)


def describe_fault(fault: FaultSpec) -> str:
    """The fault as a command of `vstream chaos`: `partition west | central,east --how drop`."""
    joint = " | " if fault.kind is FaultKind.PARTITION else " "
    words = [fault.kind.value, *([joint.join(fault.targets)] if fault.targets else [])]
    for name, value in fault.options.items():
        option = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is not False:
            words.append(f"{option} {_shown(name, value)}")
    return " ".join(words)


def _shown(name: str, value: str | float) -> str:
    return format_duration(value) if name in _DURATIONS and isinstance(value, int) else str(value)
