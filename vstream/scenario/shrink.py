"""
Shorten a failing scenario: fewer steps, shorter times and less load, while it still fails.

Delta debugging (Zeller's ddmin) over the steps, then one change after the other, each kept if the scenario still fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from copy import deepcopy
from typing import Any, Final

from vstream.scenario.actions import ACTIONS, COMMON, OPTIONS
from vstream.scenario.document import yaml_key
from vstream.scenario.generate import ScenarioData
from vstream.topology.units import parse_duration, spell_nanoseconds

Fails = Callable[[ScenarioData], Awaitable[bool]]

_MIN_TIME_NS: Final = 500 * 10**6
_MIN_RATE: Final = 10
_ACTIONS: Final = {yaml_key(name): action for name, action in ACTIONS.items()}
_COMMON_KEYS: Final = {yaml_key(name) for name in (*COMMON, *OPTIONS)}


async def shrink(
    data: ScenarioData, fails: Fails, *, is_valid: Callable[[ScenarioData], bool], most: int
) -> ScenarioData:
    """
    The shortest scenario found that still *fails*, which is asked *most* times at most, of valid scenarios only.

    *data* is known to fail. In every candidate nothing is healed that is not open, and nothing is expected of a
    window that is gone.
    """
    budget = _Budget(fails, is_valid, most)
    smallest = await _drop_steps(data, budget)
    return await _reduce(smallest, budget)


class _Budget:
    """Asks whether a scenario fails, each only once, and no more often than is allowed."""

    def __init__(self, fails: Fails, is_valid: Callable[[ScenarioData], bool], most: int) -> None:
        self._fails = fails
        self._is_valid = is_valid
        self._left = most
        self._outcomes: dict[str, bool] = {}

    async def fails(self, data: ScenarioData) -> bool:
        key = repr(data)
        if key not in self._outcomes:
            if self._left <= 0 or not self._is_valid(data):
                return False
            self._left -= 1
            self._outcomes[key] = await self._fails(data)
        return self._outcomes[key]


async def _drop_steps(data: ScenarioData, budget: _Budget) -> ScenarioData:
    """Try ever smaller pieces: to leave out each."""
    pieces = 2
    while len(data["steps"]) > 1:
        steps = data["steps"]
        size = -(-len(steps) // pieces)
        for start in range(0, len(steps), size):
            candidate = with_steps(data, [*steps[:start], *steps[start + size :]])
            if candidate is not None and len(candidate["steps"]) < len(steps) and await budget.fails(candidate):
                data, pieces = candidate, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(pieces * 2, len(steps))
    return data


async def _reduce(data: ScenarioData, budget: _Budget) -> ScenarioData:
    """Make one thing smaller after the other, as long as that helps."""
    progress = True
    while progress:
        progress = False
        for candidate in list_smaller(data):
            if await budget.fails(candidate):
                data, progress = candidate, True
                break
    return data


def with_steps(data: ScenarioData, steps: list[ScenarioData]) -> ScenarioData | None:
    """*data* with *steps* only, and what no longer makes sense left out; None if nothing is left."""
    sensible = list(_keep_sensible(steps))
    if not sensible:
        return None
    windows = {step["as"] for step in sensible if "as" in step}
    expect = [group for group in data.get("expect", ()) if "in" not in group or group["in"] in windows]
    changed = {**data, "steps": sensible, "expect": expect}
    if not expect:
        del changed["expect"]
    return changed


def _keep_sensible(steps: list[ScenarioData]) -> Iterator[ScenarioData]:
    """*steps* without the healing of faults that are not open, and with waits in a row put together."""
    opened: list[str] = []
    waited: ScenarioData | None = None
    for step in steps:
        name = name_action(step)
        if name == "wait" and waited is not None and not {"as", "at"} & (step.keys() | waited.keys()):
            total = parse_duration(waited["wait"]) + parse_duration(step["wait"])
            waited["wait"] = spell_nanoseconds(total)
            continue
        waited = dict(step) if name == "wait" else None
        if name == "heal":
            healed = opened if step["heal"] in (None, "all") else _as_list(step["heal"])
            left = [fault for fault in healed if fault in opened]
            if not left:
                continue
            opened = [fault for fault in opened if fault not in left]
            yield step if step["heal"] in (None, "all") else {**step, "heal": left[0] if len(left) == 1 else left}
            continue
        if _ACTIONS[name].stays_open and "for" not in step:
            opened.append(step.get("as", ""))
        yield waited if waited is not None else step


def _as_list(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def name_action(step: ScenarioData) -> str:
    """The word that says what *step* does."""
    return next(key for key in step if key not in _COMMON_KEYS)


def list_smaller(data: ScenarioData) -> Iterator[ScenarioData]:
    """*data* with one thing made smaller: the workload first, since that shortens what has to be read."""
    workload = data.get("workload", {})
    for key in ("readers", "size", "keys", "retry"):
        simple: Any = {"readers": [], "size": "64B", "keys": 1, "retry": "none"}[key]
        if workload.get(key, simple) != simple:
            yield _with_value(data, ("workload", key), simple)
    rate = _parse_rate(workload.get("rate"))
    if rate is not None and rate > _MIN_RATE:
        yield _with_value(data, ("workload", "rate"), f"{max(rate // 2, _MIN_RATE)}/s")
    for index, step in enumerate(data["steps"]):
        for key in ("wait", "for"):
            time = parse_duration(step[key]) if key in step else 0
            if time > _MIN_TIME_NS:
                half = max(time // 2 // 10**8 * 10**8, _MIN_TIME_NS)
                yield _with_value(data, ("steps", index, key), spell_nanoseconds(half))


def _parse_rate(text: Any) -> int | None:
    return int(text.removesuffix("/s")) if isinstance(text, str) and text.removesuffix("/s").isdecimal() else None


def _with_value(data: ScenarioData, path: tuple[str | int, ...], value: Any) -> ScenarioData:
    changed = deepcopy(data)
    place: Any = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed
