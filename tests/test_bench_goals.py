"""The table of `scripts/bench`: what was measured, beside the goals and the last run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.benchmarks import bench_goals
from vstream.topology.profiles import PROFILES

PLAN, APPLY = "plan ÷ STREAM.LIST sweep, seconds", "apply ÷ bare script, streams a second"


def run(
    commit: str, measured: dict[str, float], machine: str = "here", arguments: str = "streams=10"
) -> dict[str, Any]:
    return {"commit": commit, "machine": machine, "load": [1, 2], "arguments": [arguments], "measured": measured}


def line(lines: list[str], name: str) -> str:
    [row] = [line for line in lines if line.startswith(name)]
    return " ".join(row.removeprefix(name).split())


def test_each_goal_has_its_line_and_what_became_clearly_worse_is_named() -> None:
    earlier = [
        run("aaa", {PLAN: 1.0, APPLY: 1.0}),
        run("bbb", {PLAN: 2.0}),
        run("ccc", {PLAN: 0.1, APPLY: 9.0}, machine="elsewhere"),
        run("ddd", {PLAN: 0.1}, arguments="streams=10000"),
    ]
    lines = bench_goals.table(run("eee", {PLAN: 2.6}), earlier)
    assert line(lines, PLAN) == "≤ 3 × 2.6 0.87 yes 2 at bbb, WORSE"
    assert line(lines, APPLY) == "≥ 0.9 × 1 1.11 yes this is of aaa, load 1"
    assert line(lines, "start of `vstream`, CPU") == "≤ 0.15 s – – – not measured: scripts/bench"
    assert line(lines, "reconciliation, first ÷ later").endswith("not measured: scripts/bench --audit")
    lines = bench_goals.table(run("fff", {PLAN: 3.1, APPLY: 0.81}), [*earlier, run("eee", {PLAN: 2.6, APPLY: 1.0})])
    assert line(lines, PLAN) == "≤ 3 × 3.1 1.03 no 2.6 at eee"
    assert line(lines, APPLY) == "≥ 0.9 × 0.81 0.90 no 1 at eee"
    lines = bench_goals.table(run("ggg", {APPLY: 0.79}), [run("eee", {APPLY: 1.0})])
    assert line(lines, APPLY) == "≥ 0.9 × 0.79 0.88 no 1 at eee, WORSE"


def recorded_names() -> list[str]:
    """What the scripts record, as patterns."""
    scripts = Path(bench_goals.__file__).parent
    calls = [
        node
        for path in scripts.glob("bench*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"record", "bench_goals.record"}
    ]
    names = [call.args[0].values if isinstance(call.args[0], ast.JoinedStr) else [call.args[0]] for call in calls]
    return [
        "".join(re.escape(str(part.value)) if isinstance(part, ast.Constant) else ".+" for part in parts)
        for parts in names
    ]


def test_a_section_measures_each_goal() -> None:
    """Sections need hours, servers and Spark: this looks at their text."""
    names = recorded_names()
    assert [goal for goal in bench_goals.GOALS if not any(re.fullmatch(name, goal) for name in names)] == []
    options = Path(bench_goals.__file__).with_name("bench.py").read_text(encoding="utf-8")
    words = {word for section in bench_goals.SECTIONS for word in section if word.startswith("--")}
    assert [word for word in words if f'"{word}"' not in options] == []


def test_each_profile_whose_publishes_cost_the_same_however_many_streams_has_a_bar() -> None:
    constant = {routing.value for routing, profile in PROFILES.items() if profile.has_roots}
    assert bench_goals.PROFILES.keys() == constant, "say in bench_goals.PROFILES what a publish may cost"


def test_runs_are_added_to_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "state" / "bench.jsonl"
    monkeypatch.setattr(bench_goals, "_MEASURED", {})
    bench_goals.finish(history, ["streams=10"], 0.5)
    assert not history.exists()
    assert f"nothing new in {history}" in capsys.readouterr().out
    for seconds in (1.0, 5.0):
        bench_goals.record(PLAN, seconds)
        bench_goals.finish(history, ["streams=10"], 0.5)
    bench_goals.finish(history, ["goals=True"], 0.5, is_summary=True)
    assert [run["measured"] for run in bench_goals.read(history)] == [{PLAN: 1.0}, {PLAN: 5.0}]
    assert ", WORSE" in capsys.readouterr().out


def test_a_run_says_what_the_last_one_like_it_has_measured(tmp_path: Path) -> None:
    history = tmp_path / "bench.jsonl"

    def bench(streams: int) -> str:
        arguments = ("--only-render", "--streams", str(streams), "--history", str(history))
        script = Path(bench_goals.__file__).with_name("bench.py")
        return subprocess.run([sys.executable, script, *arguments], capture_output=True, text=True, check=True).stdout

    goal = "render: cost of a stream, all ÷ 100"
    assert "nothing was measured that has a goal" in bench(10)
    assert " at " not in line(bench(101).splitlines(), goal)
    # More options than these two would be another kind of run as soon as one is added, or a default changes.
    [entry] = bench_goals.read(history)
    assert entry["arguments"] == ["streams=101", "only_render=True"]
    last = f"{entry['measured'][goal]:.3g} at {entry['commit']}"
    assert last in line(bench(101).splitlines(), goal)
    assert last not in line(bench(102).splitlines(), goal)
