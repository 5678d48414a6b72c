"""Exploring, with runs that are made up: what is kept, what is written, and what is made short."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenario.test_generate import compose
from vstream.capture.verdict.model import CaseStatus
from vstream.errors import LabError
from vstream.lint.check_scenario import check_scenario
from vstream.runner.explore import (
    Exploration,
    ExploredRun,
    RunOutcome,
    SearchLimits,
    list_seeds,
    summarize_steps,
)
from vstream.scenario import fault_types
from vstream.scenario.model import Inject, Scenario

PASS = RunOutcome(status=CaseStatus.PASS, acknowledged=100)
FAIL = RunOutcome(status=CaseStatus.FAIL, failed=("lost",), measures=frozenset({"lost"}), acknowledged=100, lost=3)
OTHER = RunOutcome(status=CaseStatus.FAIL, failed=("converged",), measures=frozenset({"converged"}))
FOREVER = 10_000.0


class Silent:
    def __init__(self) -> None:
        self.said: list[str] = []

    def on_begin(self, number: int, seed: int, steps: str) -> None:
        self.said.append(f"begins {number} {seed} {steps}")

    def on_shrink(self, number: int, steps: str) -> None:
        self.said.append(f"shrinks {number} {steps}")

    def on_end(self, explored: ExploredRun) -> None:
        self.said.append(f"ended {explored.number} {explored.outcome.status.value}")


def kinds(scenario: Scenario) -> set[fault_types.FaultType]:
    return {step.action.fault.type for step in scenario.steps if isinstance(step.action, Inject)}


def write_capture(directory: Path) -> None:
    directory.mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")


async def run_exploration(
    out: Path, judge: Callable[[Scenario], RunOutcome], *, seed: int = 7, bounds: SearchLimits, is_kept: bool = False
) -> Exploration:
    async def run(scenario: Scenario, capture: Path) -> RunOutcome:
        write_capture(capture)
        return judge(scenario)

    exploration = Exploration(
        seed=seed, compose=compose, run=run, out=out, bounds=bounds, observer=Silent(), is_kept=is_kept
    )
    await exploration.explore()
    return exploration


def read(path: Path) -> Scenario:
    return check_scenario(path.read_bytes(), str(path), lambda _: b"").require()


def test_the_seeds_follow_from_one() -> None:
    assert list_seeds(7) == list_seeds(7)
    assert list_seeds(7)[:100] != list_seeds(8)[:100]
    assert len(set(list_seeds(7))) == len(list_seeds(7))


async def test_each_scenario_can_be_replayed_and_a_capture_is_kept_of_what_did_not_pass(tmp_path: Path) -> None:
    outcomes = iter([PASS, RunOutcome(status=CaseStatus.UNKNOWN), PASS])
    exploration = await run_exploration(
        tmp_path, lambda _: next(outcomes), bounds=SearchLimits(seconds=FOREVER, runs=3)
    )
    assert [run.seed for run in exploration.runs] == list_seeds(7)[:3]
    for run in exploration.runs:
        assert read(run.directory / "scenario.yaml").seed == run.seed
        assert (run.directory / "capture").exists() == (run.outcome.status is not CaseStatus.PASS)
    assert (
        exploration.count(CaseStatus.PASS),
        exploration.count(CaseStatus.UNKNOWN),
        exploration.count(CaseStatus.FAIL),
    ) == (2, 1, 0)
    written = json.loads((tmp_path / "explored.json").read_text())
    assert written == json.loads(json.dumps(exploration.as_dict()))
    assert (written["runs"], written["pass"], written["acknowledged"]) == (3, 2, 200)


async def test_captures_of_what_passed_are_kept_if_wanted(tmp_path: Path) -> None:
    exploration = await run_exploration(
        tmp_path, lambda _: PASS, bounds=SearchLimits(seconds=FOREVER, runs=1), is_kept=True
    )
    assert (exploration.runs[0].directory / "capture" / "manifest.json").is_file()


async def test_no_run_begins_when_time_is_over(tmp_path: Path) -> None:
    assert (await run_exploration(tmp_path, lambda _: PASS, bounds=SearchLimits(seconds=0))).runs == []


async def test_what_fails_becomes_short_and_fails_in_the_same_way(tmp_path: Path) -> None:
    def judge(scenario: Scenario) -> RunOutcome:
        if fault_types.KILL_REGION in kinds(scenario):
            return FAIL
        return OTHER if fault_types.ISOLATE in kinds(scenario) else PASS

    exploration = await run_exploration(
        tmp_path, judge, bounds=SearchLimits(seconds=FOREVER, runs=12, shrinking_runs=200)
    )
    failed = [run for run in exploration.runs if run.outcome == FAIL]
    assert failed
    for failure in failed:
        assert failure.short is not None
        short = read(failure.short)
        assert [step.action.fault.type for step in short.steps if isinstance(step.action, Inject)] == [
            fault_types.KILL_REGION
        ]
        assert len(short.steps) == 1
        assert short.seed == failure.seed
        assert (failure.directory / "short" / "manifest.json").is_file()
        assert (failure.directory / "capture" / "manifest.json").is_file()
        assert not (failure.directory / "shrinking").exists()


async def test_what_does_not_fail_again_is_kept_as_it_is(tmp_path: Path) -> None:
    outcomes = iter([FAIL, PASS, PASS, PASS])
    (explored_run,) = (
        await run_exploration(tmp_path, lambda _: next(outcomes), bounds=SearchLimits(seconds=FOREVER, runs=1))
    ).runs
    assert (explored_run.short, explored_run.note) == (
        None,
        "it did not fail again in 3 runs: the capture is what there is",
    )
    assert (explored_run.directory / "capture").is_dir()


async def test_what_fails_every_other_time_gets_two_chances(tmp_path: Path) -> None:
    count = 0

    def judge(scenario: Scenario) -> RunOutcome:
        nonlocal count
        count += 1
        return FAIL if count % 2 else PASS

    (explored_run,) = (
        await run_exploration(tmp_path, judge, bounds=SearchLimits(seconds=FOREVER, runs=1, shrinking_runs=300))
    ).runs
    assert explored_run.short is not None
    assert len(read(explored_run.short).steps) == 1


async def test_a_failing_scenario_is_not_shrunk_if_that_is_not_wanted(tmp_path: Path) -> None:
    (explored_run,) = (
        await run_exploration(tmp_path, lambda _: FAIL, bounds=SearchLimits(seconds=FOREVER, runs=1, shrinking_runs=0))
    ).runs
    assert (explored_run.short, explored_run.note) == (None, None)


async def test_a_run_that_could_not_begin_is_unknown_and_the_next_one_begins(tmp_path: Path) -> None:
    def judge(_: Scenario) -> RunOutcome:
        raise LabError("no ports are free")

    exploration = await run_exploration(tmp_path, judge, bounds=SearchLimits(seconds=FOREVER, runs=2))
    assert [(run.outcome.status, run.outcome.detail) for run in exploration.runs] == [
        (CaseStatus.UNKNOWN, "no ports are free")
    ] * 2


async def test_stopped_in_between_it_has_what_had_ended(tmp_path: Path) -> None:
    async def run(scenario: Scenario, capture: Path) -> RunOutcome:
        if len(exploration.runs) == 2:
            raise asyncio.CancelledError
        return PASS

    exploration = Exploration(
        seed=7, compose=compose, run=run, out=tmp_path, bounds=SearchLimits(seconds=FOREVER), observer=Silent()
    )
    with pytest.raises(asyncio.CancelledError):
        await exploration.explore()
    assert len(exploration.runs) == 2
    assert json.loads((tmp_path / "explored.json").read_text())["runs"] == 2


def test_the_steps_of_a_scenario_in_a_line() -> None:
    steps = [
        {"wait": "5s"}, {"kill-region": "west", "as": "f"}, {"link": ["west", "east"], "rtt": "5ms"}, {"heal": "all"}, {"step-down-meta": None},
    ]  # fmt: skip
    assert summarize_steps({"steps": steps}) == "kill-region west, link west-east, heal all, step-down-meta"
