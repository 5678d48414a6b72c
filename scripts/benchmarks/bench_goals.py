"""
What `scripts/bench` has measured beside the goals for it, in one table, and beside what the last run on this machine has.

Each run adds a line of JSON to a history file, so that a slower commit shows.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).resolve().parents[2]
WORSE = 1.25
"""By what factor a value has to be worse than the last one to be called so: on a busy machine ratios differ as much by themselves."""


@dataclass(frozen=True)
class Goal:
    """What is to be reached: at most *bar*, or at least. *section*: the arguments of `scripts/bench` that measure it."""

    name: str
    bar: float
    unit: str = "×"
    is_least: bool = False
    section: tuple[str, ...] = ()

    def is_met(self, value: float) -> bool:
        return value >= self.bar if self.is_least else value <= self.bar

    def is_worse(self, value: float, before: float) -> bool:
        """Whether *value* is clearly worse than the one *before*."""
        return value * WORSE < before if self.is_least else value > before * WORSE


PROFILES = {"accounts": 2.0, "regional": 1.2, "domains": 1.2}
"""A bar is a promise, and each profile's own. `mapped` has none: its cost grows with its rules."""
CLIENTS = ("nats.py", "nats.js")
_PUBLISHING = ("--routing", "--layouts", *PROFILES, "--counts", "1", "1000")
_STATE, _AUDIT, _MANY = ("--state",), ("--audit", "--alone"), ("--audit-streams",)
GOALS = {
    goal.name: goal
    for goal in (
        Goal("apply ÷ bare script, streams a second", 0.9, is_least=True),
        Goal("plan ÷ STREAM.LIST sweep, seconds", 3),
        Goal("status ÷ asking every region, seconds", 2),
        Goal("memory of apply, plan, status, drift, doctor", 1000, "MB"),
        Goal("memory of validate and render", 1000, "MB"),
        Goal("render: cost of a stream, all ÷ 100", 1.2),
        Goal("plan: CPU of a stream, all ÷ 100", 1.2),
        Goal("start of `vstream`, CPU", 0.15, "s"),
        Goal("`plan` of one stream, CPU", 0.4, "s"),
        *(
            Goal(f"acked publish, {profile}, {count:,} ÷ plain", bar, section=_PUBLISHING)
            for profile, bar in PROFILES.items()
            for count in (1, 1000)
        ),
        *(Goal(f"unrelated subject, {profile}, above plain", 0.5, "µs", section=_PUBLISHING) for profile in PROFILES),
        *(
            Goal(f"fetched {batch} at a time, {profile} ÷ plain", 0.8, is_least=True, section=_PUBLISHING)
            for profile in PROFILES
            for batch in (1, 100, 500, 1000)
        ),
        *(
            Goal(f"{client}, fetch {batch}, accounts ÷ plain", 0.8, is_least=True, section=("--fetch",))
            for client in CLIENTS
            for batch in (1, 100, 500, 1000)
        ),
        Goal("audit of 10,000 streams × 5 regions, CPU", 120, "s", section=_MANY),
        Goal("audit of 10,000 streams × 5 servers, CPU", 120, "s", section=(*_MANY, "--extract")),
        Goal("reconciliation, first ÷ later", 1.5, section=_AUDIT),
        Goal("audit --state, reading ÷ a whole one, CPU", 0.1, section=_STATE),
        Goal("audit --state, all ÷ a whole one, CPU", 0.1, section=_STATE),
        Goal("figures within 20 % of the prediction", 1, "×", is_least=True, section=("--simulate",)),
    )
}
"""By name, in the order of the table. What no section has measured yet is shown as not measured."""
SECTIONS = tuple(dict.fromkeys(goal.section for goal in GOALS.values()))
"""Arguments for all that there are goals for."""
_MEASURED: dict[str, float] = {}


def record(name: str, value: float) -> None:
    """Remember what was measured for a goal."""
    assert name in GOALS, name
    _MEASURED[name] = value


def finish(history: Path, arguments: Sequence[str], load_before: float, *, is_summary: bool = False) -> None:
    """Print the table of this run, and add it to the *history*; a summary shows what earlier runs have measured."""
    if not _MEASURED and not is_summary:
        print(f"nothing was measured that has a goal: there is no table, and nothing new in {history}")
        return
    run = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": f"{platform.node()}, {os.cpu_count()} cores, {platform.machine()}",
        "load": [round(load_before, 1), round(os.getloadavg()[0], 1)],
        "arguments": list(arguments),
        "measured": dict(_MEASURED),
    }
    print("\n" + "\n".join(table(run, read(history))))
    if not is_summary:
        history.parent.mkdir(parents=True, exist_ok=True)
        with history.open("a", encoding="utf-8") as file:
            file.write(json.dumps(run, ensure_ascii=False) + "\n")
    print(f"history: {history}")


def read(history: Path) -> list[dict[str, Any]]:
    """The runs in *history*, the oldest first."""
    if not history.exists():
        return []
    return [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines() if line.strip()]


def table(run: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]) -> list[str]:
    """
    Lines that say what *run* has measured, beside the goals and the last run with the same machine and arguments.

    What it has not measured is what the last run on this machine has, whatever its arguments were.
    """
    runs_here = [entry for entry in reversed(earlier) if entry["machine"] == run["machine"]]
    load = " to ".join(str(number) for number in run["load"])
    lines = [
        f"commit {run['commit']}, load {load}, {run['machine']}",
        f"{'goal':<46} {'bar':>10} {'measured':>10} {'of the bar':>10}  {'met':<4} last run",
    ]
    for goal in GOALS.values():
        measuring = [entry for entry in runs_here if goal.name in entry["measured"]]
        if goal.name in run["measured"]:
            value = run["measured"][goal.name]
            last = next((entry for entry in measuring if entry["arguments"] == run["arguments"]), None)
            before = last and last["measured"][goal.name]
            beside = f"{before:.3g} at {last['commit']}" if last else ""
            beside += ", WORSE" if before is not None and goal.is_worse(value, before) else ""
        elif measuring:
            value = measuring[0]["measured"][goal.name]
            beside = f"this is of {measuring[0]['commit']}, load {measuring[0]['load'][0]}"
        else:
            value, beside = None, " ".join(("not measured: scripts/bench", *goal.section[:1]))
        bar = f"{'≥' if goal.is_least else '≤'} {goal.bar:g} {goal.unit}"
        numbers = f"{'–':>10} {'–':>10}  –   " if value is None else _numbers(goal, value)
        lines.append(f"{goal.name:<46} {bar:>10} {numbers} {beside}".rstrip())
    return lines


def _numbers(goal: Goal, value: float) -> str:
    return f"{value:>10.3g} {value / goal.bar:>10.2f}  {'yes' if goal.is_met(value) else 'no':<4}"


def _commit() -> str:
    """The commit of this checkout, with a plus if files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False).stdout

    changed = "+" if git("status", "--porcelain", "--untracked-files=no").strip() else ""
    return (git("rev-parse", "--short", "HEAD").strip() or "unknown") + changed
