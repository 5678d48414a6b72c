"""
Shapes for charts over time, as SVG path data.

A plot is *intervals* wide and `CHART_HEIGHT` high, with 0 at the bottom, and is stretched to
the page's width: so there is no text in it, and strokes do not scale.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log10
from typing import Any

from markupsafe import Markup

CHART_HEIGHT = 100
_MAX_DIGITS = 5
_MIN_DRAWN = 1e-6
"""What is less is drawn as nothing."""
_NICE_STEPS = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
_TICK_SECONDS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400)
_MAX_TICKS = 12
_LAST_TICK_SHARE = 0.96
"""Of the width: there is room for a number after it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """From *low* at the bottom to *high* at the top; logarithmic if *is_log*."""

    low: float
    high: float
    is_log: bool = False

    def y(self, value: float) -> float:
        """Where *value* is drawn. What lies outside is drawn at the edge."""
        low, high = self.low, self.high
        if self.is_log:
            value, low, high = log10(max(value, low)), log10(low), log10(high)
        share = (value - low) / (high - low)
        return CHART_HEIGHT * (1 - min(max(share, 0), 1))


def linear(values: Iterable[float]) -> Scale:
    """From 0 to a round number that no value exceeds."""
    most = max(values, default=0)
    if most < _MIN_DRAWN:
        return Scale(0, 1)
    power = 10 ** floor(log10(most))
    return Scale(0, next(step * power for step in _NICE_STEPS if step * power >= most))


def logarithmic(values: Iterable[float]) -> Scale:
    """From a power of ten to a power of ten, one at least."""
    positive = [value for value in values if value > 0]
    smallest, largest = min(positive, default=1), max(positive, default=1)
    low, high = floor(log10(smallest)), ceil(log10(largest))
    # log10 rounds: just below a power of ten it returns the power, and just above it, too.
    low -= 10**low > smallest
    high = max(high + (10**high < largest), low + 1)
    return Scale(10**low, 10**high, is_log=True)


def short(number: float) -> str:
    """A coordinate in as few characters as it needs."""
    return f"{number:.{_MAX_DIGITS}g}"


def area(lower: Sequence[float], upper: Sequence[float], scale: Scale) -> str:
    """The steps between *lower* and *upper*, value by value. Empty if they are the same everywhere."""
    if list(lower) == list(upper):
        return ""
    forth = "".join(f"V{short(scale.y(value))}H{x}" for x, value in enumerate(upper, 1))
    back = "".join(f"V{short(scale.y(value))}H{len(lower) - x}" for x, value in enumerate(reversed(lower), 1))
    return f"M0,{short(scale.y(upper[0]))}{forth}{back}Z"


def line(values: Sequence[float | None], scale: Scale) -> str:
    """A line through the middles of the intervals, with gaps where values are missing."""
    parts = []
    for has_values, run in groupby(enumerate(values), key=lambda item: item[1] is not None):
        if not has_values:
            continue
        points = [(x, scale.y(value)) for x, value in run if value is not None]
        first, y = points[0]
        if len(points) == 1:
            parts.append(f"M{first},{short(y)}H{first + 1}")
        else:
            parts.append(f"M{first}.5,{short(y)}" + "".join(f"L{x}.5,{short(y)}" for x, y in points[1:]))
    return "".join(parts)


def strip(states: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each state with the path of the intervals in which it holds."""
    paths: dict[str, list[str]] = {}
    for state, run in groupby(enumerate(states), key=lambda item: item[1]):
        intervals = [x for x, _ in run]
        paths.setdefault(state, []).append(f"M{intervals[0]},0H{intervals[-1] + 1}V{CHART_HEIGHT}H{intervals[0]}Z")
    return ((state, "".join(parts)) for state, parts in paths.items())


def choose_ticks(start: float, end: float) -> list[int]:
    """Round moments from *start* to *end*, in seconds: a dozen at most."""
    step = next((seconds for seconds in _TICK_SECONDS if (end - start) / seconds <= _MAX_TICKS), _TICK_SECONDS[-1])
    while (end - start) / step > _MAX_TICKS:
        step *= 2
    return list(range(step * ceil(start / step), int(end) + 1, step))


def place_ticks(start: float, length: float) -> list[dict[str, str]]:
    """Round moments of an axis that begins at *start* seconds and is *length* seconds long, and their places on it."""
    moments = choose_ticks(start, start + length)
    shown = [moment for moment in moments if moment - start <= _LAST_TICK_SHARE * length]
    return [{"left": short(100 * (moment - start) / length), "name": f"{moment:,}"} for moment in shown]


def draw_lines(
    lines: Mapping[str, Sequence[float | None]], names: Mapping[str, str], scale: Scale
) -> dict[str, list[dict[str, Any]]]:
    """A chart's lines by their kind, their legend, and the values for its tooltips: *names* are what readers call them."""
    return {
        "paths": [{"kind": f"line {kind}", "d": line(values, scale)} for kind, values in lines.items()],
        "legend": [{"kind": f"line {kind}", "name": name} for kind, name in names.items()],
        "data": [{"name": names[kind], "values": values} for kind, values in lines.items()],
    }


def embed_json(data: Any) -> Markup:
    """*data* as JSON that cannot end the element it stands in."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 - as said


def assign_lanes(spans: Sequence[tuple[float, float]]) -> list[int]:
    """For each span, the first lane in which it overlaps no earlier one."""
    ends: list[float] = []
    chosen = []
    for start, end in spans:
        lane = next((number for number, free in enumerate(ends) if free <= start), len(ends))
        if lane == len(ends):
            ends.append(end)
        ends[lane] = end
        chosen.append(lane)
    return chosen


def group_by_section(charts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Numbered charts under the heading and the legend that they have in common."""
    sections: dict[str, dict[str, Any]] = {}
    for number, chart in enumerate(charts):
        title = chart["section"]
        section = sections.setdefault(title, {"title": title, "charts": [], "legend": chart["legend"]})
        section["charts"].append({**chart, "number": number})
    return list(sections.values())
