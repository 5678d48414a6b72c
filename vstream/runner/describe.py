"""Steps in words, as they stand in reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from vstream.scenario.model import Converge, Heal, Inject, Resync, Try, Wait
from vstream.topology.units import format_duration

if TYPE_CHECKING:
    from vstream.scenario.model import Action


def describe(action: Action) -> str:
    """Such as `wait 5s`, or `kill-region west for 10s`."""
    match action:
        case Wait():
            return f"wait {format_duration(action.nanoseconds)}"
        case Inject():
            held = "" if action.lasting is None else f" for {format_duration(action.lasting)}"
            return f"{action.fault.command}{held}"
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
