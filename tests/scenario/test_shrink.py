"""Shrinking a scenario that fails: to what its failing needs, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenario.test_generate import compose
from tests.support.night import repetitions
from tests.support.topologies import concise
from vstream.lint.check_scenario import check_scenario
from vstream.scenario.generate import ScenarioData, to_yaml
from vstream.scenario.shrink import name_action, shrink, with_steps

MOST = 500


def is_valid(data: ScenarioData) -> bool:
    return not check_scenario(to_yaml(data).encode(), "s.yaml", lambda _: b"").findings


class Runs:
    """A run that fails if *is_broken*, and how often it was asked."""

    def __init__(self, is_broken: Callable[[ScenarioData], bool]) -> None:
        self.is_broken = is_broken
        self.asked: list[ScenarioData] = []

    async def fails(self, data: ScenarioData) -> bool:
        self.asked.append(data)
        return self.is_broken(data)


def has(data: ScenarioData, *words: str) -> bool:
    """Whether *words* are among the actions of *data*, in this order."""
    actions = iter([name_action(step) for step in data["steps"]])
    return all(any(word == action for action in actions) for word in words)


def with_words(*words: str) -> ScenarioData:
    """The first composed scenario that has *words*."""
    return next(data for seed in range(10_000) if has(data := compose(seed), *words))


@pytest.mark.parametrize(
    "words",
    [
        ("kill-region",),
        ("rolling-restart",),
        ("pause", "heal"),
        ("partition", "kill-server"),
        ("kill-leader", "link", "isolate"),
    ],
)
async def test_what_is_left_is_what_the_failure_needs(words: tuple[str, ...]) -> None:
    data = with_words(*words)
    runs = Runs(lambda one: has(one, *words))
    shrunk = await shrink(data, runs.fails, is_valid=is_valid, most=MOST)
    assert [name_action(step) for step in shrunk["steps"]] == list(words)


async def test_times_and_load_become_small() -> None:
    data = with_words("kill-region")
    runs = Runs(lambda one: has(one, "wait"))
    shrunk = await shrink(data, runs.fails, is_valid=is_valid, most=MOST)
    assert [step["wait"] for step in shrunk["steps"]] == ["500ms"]
    assert shrunk["workload"] == {"rate": "10/s", "size": "64B", "keys": 1, "retry": "none", "readers": []}


async def test_what_the_failure_needs_of_the_load_stays() -> None:
    data = with_words("kill-region")
    data["workload"]["rate"] = "200/s"

    def is_broken(one: ScenarioData) -> bool:
        return has(one, "kill-region") and int(one["workload"]["rate"].removesuffix("/s")) >= 50

    shrunk = await shrink(data, Runs(is_broken).fails, is_valid=is_valid, most=MOST)
    assert shrunk["workload"]["rate"] == "50/s"


@settings(max_examples=repetitions(5, night=50), deadline=None)
@given(st.integers(0, 10_000), st.sets(st.integers(0, 30)))
async def test_every_candidate_is_valid_and_none_is_run_twice(seed: int, needed: set[int]) -> None:
    data = compose(seed)
    essential = [
        step
        for index, step in enumerate(data["steps"])
        if index in needed and name_action(step) not in {"wait", "heal"}
    ]
    runs = Runs(lambda one: all(step in one["steps"] for step in essential))
    shrunk = await shrink(data, runs.fails, is_valid=is_valid, most=MOST)
    assert len(runs.asked) == len({repr(candidate) for candidate in runs.asked})
    for candidate in [*runs.asked, shrunk]:
        assert concise(check_scenario(to_yaml(candidate).encode(), "s.yaml", lambda _: b"").findings) == ""
    assert all(step in shrunk["steps"] for step in essential)
    assert runs.is_broken(shrunk)


async def test_shrinking_stops_when_no_runs_are_left() -> None:
    runs = Runs(lambda _: True)
    await shrink(compose(1), runs.fails, is_valid=is_valid, most=3)
    assert len(runs.asked) == 3


async def test_a_failure_that_does_not_come_again_leaves_the_scenario_as_it_was() -> None:
    data = compose(1)
    assert await shrink(data, Runs(lambda _: False).fails, is_valid=is_valid, most=MOST) == data


def test_steps_without_what_they_are_about_are_left_out() -> None:
    data: ScenarioData = {
        "steps": [],
        "expect": [{"in": "b", "converged": "<= 60s"}, {"lost": 0}, {"in": "c", "published": "100%"}],
    }
    steps: list[ScenarioData] = [
        {"wait": "1s"},
        {"wait": "2s"},
        {"heal": "a"},
        {"pause": "west", "as": "p"},
        {"heal": ["p", "a"]},
        {"heal": "all"},
        {"converge": "60s", "as": "b"},
    ]
    assert with_steps(data, steps) == {
        "steps": [{"wait": "3s"}, {"pause": "west", "as": "p"}, {"heal": "p"}, {"converge": "60s", "as": "b"}],
        "expect": [{"in": "b", "converged": "<= 60s"}, {"lost": 0}],
    }
    assert with_steps(data, [{"heal": "all"}]) is None
