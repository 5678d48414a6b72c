"""Random scenarios: each follows from its seed, makes sense, and stays within what virtual streams promise."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.night import repetitions
from tests.support.paths import ROOT
from tests.support.topologies import concise
from vstream.lint.check_scenario import check_scenario
from vstream.lint.check_topology import check_topology
from vstream.scenario import fault_types
from vstream.scenario.generate import ScenarioData, generate, to_yaml
from vstream.scenario.model import Converge, Inject, Measure, Scenario
from vstream.topology.model import Topology

FILES = [
    *sorted((ROOT / "scenarios" / "topologies").glob("*.yaml")),
    *(ROOT / "examples" / f"{name}.yaml" for name in ("five-regions", "single-region", "consistency")),
]
SEEDS = st.integers(0, 2**32)


@cache
def topology(file: Path) -> tuple[Topology, Any]:
    content = file.read_bytes()
    return check_topology(content, file.name).require(), yaml.safe_load(content)


def compose(seed: int, file: Path = FILES[0]) -> ScenarioData:
    return generate(*topology(file), seed)


def load_data(data: ScenarioData) -> Scenario:
    def read(name: str) -> bytes:
        raise AssertionError(name)

    loading = check_scenario(to_yaml(data).encode(), "s.yaml", read)
    assert concise(loading.findings) == ""
    return loading.require()


@given(SEEDS)
def test_the_same_seed_gives_the_same_scenario(seed: int) -> None:
    assert to_yaml(compose(seed)) == to_yaml(compose(seed))


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
@settings(max_examples=repetitions(8, night=200), deadline=None)
@given(seed=SEEDS)
def test_whatever_is_composed_is_valid_and_holds_its_topology_and_its_seed(file: Path, seed: int) -> None:
    scenario = load_data(compose(seed, file))
    assert scenario.seed == seed
    assert (
        check_topology(scenario.topology_text.encode(), "t").require()
        == check_topology(file.read_bytes(), "t").require()
    )


@settings(max_examples=repetitions(20, night=400), deadline=None)
@given(SEEDS)
def test_nothing_may_be_lost_and_regions_agree_in_the_end(seed: int) -> None:
    scenario = load_data(compose(seed))
    assert isinstance(scenario.steps[-1].action, Converge)
    # Whatever else is expected, the verdict expects to be 0.
    assert {expectation.measure for expectation in scenario.expectations} == {Measure.CONVERGED}


def test_every_fault_that_is_promised_to_be_survived_comes_up_and_no_other() -> None:
    actions = [step.action for seed in range(repetitions(100, night=300)) for step in load_data(compose(seed)).steps]
    names = {action.fault.type.name for action in actions if isinstance(action, Inject)}
    generated = {name for name, declared in fault_types.FAULTS.items() if declared.is_generated}
    assert names == generated, "teach `vstream/scenario/generate.py` about it, or declare `is_generated=False`"


def test_links_are_left_alone_if_nothing_carries_them() -> None:
    for seed in range(repetitions(30, night=300)):
        data = generate(*topology(FILES[0]), seed, has_links=False)
        assert not {"partition", "isolate", "link"} & {key for step in data["steps"] for key in step}
        load_data({**data, "lab": {"links": "none"}})


def test_faults_of_generated_scenarios_overlap() -> None:
    def most_open(data: ScenarioData) -> int:
        most = opened = 0
        for step in data["steps"]:
            if "heal" in step:
                opened -= 1 if step["heal"] != "all" else opened
            elif "as" in step and "converge" not in step:
                opened += 1
            most = max(most, opened)
        return most

    assert {most_open(compose(seed)) for seed in range(300)} == {0, 1, 2, 3}


def test_links_are_touched_only_while_all_of_them_carry_messages_and_in_one_direction_not_while_servers_come_back() -> (
    None
):
    for seed in range(300):
        opened: dict[str, ScenarioData] = {}
        for step in compose(seed)["steps"]:
            cuts = [name for name, fault in opened.items() if "partition" in fault or "isolate" in fault]
            if "heal" in step:
                one_way = [name for name in cuts if "one-way" in opened[name]]
                assert step["heal"] in {*one_way, "all"} or not one_way
                opened = (
                    {}
                    if step["heal"] == "all"
                    else {name: fault for name, fault in opened.items() if name != step["heal"]}
                )
            if {"partition", "isolate", "link"} & step.keys():
                assert not cuts
                assert not any(
                    fault.get("kill-region") or fault.get("pause") in ("west", "central", "east")
                    for fault in opened.values()
                )
            if "as" in step:
                opened[step["as"]] = step


def test_a_leader_is_only_killed_where_there_is_one_and_another_can_follow() -> None:
    for seed in range(300):
        regions: dict[str, str] = {}
        for step in compose(seed)["steps"]:
            if "heal" in step:
                regions = (
                    {}
                    if step["heal"] == "all"
                    else {key: value for key, value in regions.items() if key != step["heal"]}
                )
            elif "kill-leader" in step or "step-down" in step:
                region = (step.get("kill-leader") or step["step-down"]).rpartition("-")[2]
                assert region not in regions.values()
            elif "rolling-restart" in step or "step-down-meta" in step or "kill-meta-leader" in step:
                assert not regions
            target = step.get("kill-region") or step.get("kill-server") or step.get("pause") or step.get("kill-leader")
            if target:
                regions[step["as"]] = target.rpartition("-")[2] if "kill-leader" in step else target.partition("-")[0]
