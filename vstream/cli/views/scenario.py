"""Scenarios, before they run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from vstream.formatting import format_count
from vstream.scenario.model import Inject, Scenario
from vstream.scenario.timeline import minimum_duration

_SECOND = 10**9


def outline(scenario: Scenario) -> str:
    """`9 steps, 3 faults, 12 expectations, about 60 s plus convergence`."""
    faults = _faults(scenario)
    parts = ((len(scenario.steps), "step"), (faults, "fault"), (len(scenario.expectations), "expectation"))
    counted = ", ".join(format_count(number, noun) for number, noun in parts)
    return f"{counted}, about {_seconds(scenario)} s plus convergence"


def summary(scenario: Scenario) -> str:
    """The first line of its description."""
    return scenario.description.partition("\n")[0]


def table(scenarios: Mapping[str, Scenario]) -> Table:
    """One line for each scenario."""
    grid = Table(box=None, pad_edge=False, show_header=True, header_style="bold")
    for title, justify in (("scenario", "left"), ("steps", "right"), ("at least", "right"), ("", "left")):
        grid.add_column(title, justify=justify, no_wrap=bool(title))  # type: ignore[arg-type]
    for name, scenario in scenarios.items():
        grid.add_row(name, str(len(scenario.steps)), f"{_seconds(scenario)} s", summary(scenario))
    return grid


def as_list(scenarios: Mapping[str, Scenario]) -> list[dict[str, Any]]:
    """The scenarios as plain JSON data, in their order."""
    return [_scenario_as_dict(name, scenario) for name, scenario in scenarios.items()]


def _scenario_as_dict(name: str, scenario: Scenario) -> dict[str, Any]:
    return {
        "name": name,
        "description": scenario.description,
        "steps": len(scenario.steps),
        "faults": _faults(scenario),
        "expectations": len(scenario.expectations),
        "at_least_s": _seconds(scenario),
    }


def _faults(scenario: Scenario) -> int:
    return sum(isinstance(step.action, Inject) for step in scenario.steps)


def _seconds(scenario: Scenario) -> int:
    return -(-minimum_duration(scenario) // _SECOND)
