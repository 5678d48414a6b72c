"""Scenarios that show what a topology survives."""

from __future__ import annotations

from tests.support.topologies import EVERY_MODEL, begin_topology
from vstream.lint import check_scenario
from vstream.lint.check_topology import check_topology
from vstream.scenario.generate import to_yaml
from vstream.scenario.survival import SurvivalScenario, compose_survival_scenarios, is_testable
from vstream.topology.survival import Ability, Failure, survival_table

_TEXT = (begin_topology("acme", west=3, central=3, east=3) + EVERY_MODEL).encode()


def _scenarios() -> tuple[SurvivalScenario, ...]:
    topology = check_topology(_TEXT, "acme.yaml").require()
    return compose_survival_scenarios(topology, survival_table(topology), rate=20)


def test_every_cell_that_can_be_shown_is_in_one_of_few_failures() -> None:
    cells = survival_table(check_topology(_TEXT, "acme.yaml").require())
    scenarios = _scenarios()
    shown = {key for scenario in scenarios for keys in scenario.cells.values() for key in keys}
    testable = {(cell.stream, cell.failure, cell.ability) for cell in cells if is_testable(cell.ruling)}
    assert shown == {key for key in testable if key[1] is not Failure.ZONE}
    # The home of `prices` is the worst region to lose; a loss of power leaves losses, so nothing comes after it.
    assert [scenario.incidents for scenario in scenarios] == [
        (
            "server east-1",
            "server stretch-west",
            "region east",
            "two_regions west and east",
            "partition east",
            "cut_off west",
        ),
        ("power east",),
    ]


def test_the_scenarios_are_valid_and_each_expectation_is_found_again() -> None:
    for scenario in _scenarios():
        text = to_yaml({**scenario.data, "topology": "acme.yaml"}).encode()
        loaded = check_scenario.check_scenario(text, "survive.yaml", lambda _: _TEXT)
        assert loaded.findings == ()
        expectations = {(item.measure, item.window, item.stream, item.region) for item in loaded.require().expectations}
        assert set(scenario.cells) <= expectations


def test_a_loss_of_power_may_take_what_nobody_asked_about() -> None:
    topology = check_topology(_TEXT, "acme.yaml").require()
    cells = [cell for cell in survival_table(topology) if cell.failure is Failure.POWER]
    consumers = [cell for cell in cells if cell.ability is Ability.CONSUMERS and cell.stream == "sensors"]
    (scenario,) = compose_survival_scenarios(topology, consumers, rate=20)
    anything = {"reordered": "any", "diverged": "any", "lost": "any", "same-order": "any"}
    for stream in topology.streams:
        assert {"stream": stream.name, **anything} in scenario.data["expect"]
