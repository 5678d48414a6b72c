"""What is written in a scenario: every error of shape in its place, and what the rest means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.golden import Golden
from tests.support.paths import TESTS
from tests.support.scenarios import ACME, FILES, HEAD, STEPS, load_text, problems, read, scenario
from tests.support.topologies import concise
from vstream.errors import InvalidInputError
from vstream.lint.check_scenario import check_scenario
from vstream.lint.check_topology import check_topology
from vstream.scenario import fault_types
from vstream.scenario.actions import ACTIONS
from vstream.scenario.model import (
    ChangeRegion,
    ClientOperation,
    Compare,
    Converge,
    Heal,
    Inject,
    Measure,
    ReaderKind,
    RegionCommand,
    RepairMeta,
    Resync,
    Retry,
    Try,
    Wait,
)

SHAPES = sorted((TESTS / "golden" / "scenarios").glob("*.yaml"))
SECOND = 10**9


@pytest.mark.parametrize("path", SHAPES, ids=lambda path: path.stem)
def test_what_is_wrong_is_said_where_it_stands_all_at_once(path: Path, golden: Golden) -> None:
    loading = load_text(path.read_text(), path.name)
    golden.check(path.with_suffix(".out"), concise(loading.findings))
    with pytest.raises(InvalidInputError):
        loading.require()


def action(text: str) -> Any:
    return scenario(f"steps:\n{text}").steps[0].action


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  - wait: 1m30s\n", Wait(nanoseconds=90 * SECOND)),
        ("  - resync\n", Resync()),
        ("  - converge\n", Converge(within=60 * SECOND)),
        ("  - converge: 5s\n", Converge(within=5 * SECOND)),
        ("  - try\n", Try(regions=("west", "central", "east"))),
        ("  - try: [east, west]\n", Try(regions=("east", "west"))),
        ("  - run: drain west\n", ChangeRegion(command=RegionCommand.DRAIN, region="west")),
        ("  - run: drain west --undo\n", ChangeRegion(command=RegionCommand.UNDO_DRAIN, region="west")),
        ("  - run: failover west\n", ChangeRegion(command=RegionCommand.FAILOVER, region="west")),
        (
            "  - run: failover west --also east\n",
            ChangeRegion(command=RegionCommand.FAILOVER, region="west", also=("east",)),
        ),
        ("  - run: failback west\n", ChangeRegion(command=RegionCommand.FAILBACK, region="west")),
        ("  - run: repair meta\n", RepairMeta()),
    ],
)
def test_a_step_that_breaks_nothing(text: str, expected: object) -> None:
    assert action(text) == expected


@pytest.mark.parametrize(
    ("text", "kind", "targets", "options", "lasting"),
    [
        ("kill-region: west", fault_types.KILL_REGION, ("west",), {}, None),
        ("kill-region: [west, east]\n    for: 20s", fault_types.KILL_REGION, ("west", "east"), {}, 20 * SECOND),
        ("kill-server: west-1", fault_types.KILL_SERVER, ("west-1",), {}, None),
        ("kill-leader: foo\n    region: east", fault_types.KILL_LEADER, ("foo",), {"region": "east"}, None),
        ("kill-meta-leader", fault_types.KILL_META_LEADER, (), {}, None),
        ("kill-meta-leader:\n    for: 5s", fault_types.KILL_META_LEADER, (), {}, 5 * SECOND),
        ("restart-region: west", fault_types.RESTART_REGION, ("west",), {}, None),
        ("pause: [west-1, east]", fault_types.PAUSE, ("west-1", "east"), {}, None),
        ("partition: west | central, east", fault_types.PARTITION, ("west", "central,east"), {}, None),
        ("partition: [west, [central, east]]\n    how: drop\n    one-way: true", fault_types.PARTITION,
         ("west", "central,east"), {"how": "drop", "one_way": True}, None),
        ("isolate: west\n    how: reset", fault_types.ISOLATE, ("west",), {"how": "reset"}, None),
        ("link: west-east\n    rtt: 140ms\n    jitter: 2ms\n    loss: 5%\n    rate: 1.5mbit", fault_types.LINK, ("west", "east"),
         {"rtt": 140 * 10**6, "jitter": 2 * 10**6, "loss": 0.05, "rate": 1_500_000}, None),
        ("link: [west, east]\n    rtt: 0s", fault_types.LINK, ("west", "east"), {"rtt": 0}, None),
        ("link: all\n    rtt: 5ms", fault_types.LINK, (), {"rtt": 5 * 10**6}, None),
        ("disk-full: west\n    for: 5s", fault_types.DISK_FULL, ("west",), {}, 5 * SECOND),
        ("power-loss: west\n    lose: 5s", fault_types.POWER_LOSS, ("west",), {"lose": 5 * SECOND}, None),
        ("step-down: foo-read-west", fault_types.STEP_DOWN, ("foo-read-west",), {}, None),
        ("step-down-meta", fault_types.STEP_DOWN_META, (), {}, None),
        ("rolling-restart", fault_types.ROLLING_RESTART, (), {}, None),
        ("rolling-restart: all", fault_types.ROLLING_RESTART, (), {}, None),
        ("rolling-restart: west\n    lame-duck: true", fault_types.ROLLING_RESTART, ("west",), {"lame_duck": True}, None),
        ("upgrade:\n    to: 2.15.1", fault_types.UPGRADE, (), {"to": "2.15.1"}, None),
    ],
)  # fmt: skip
def test_every_fault_is_decoded_with_its_options(
    text: str, kind: fault_types.FaultType, targets: tuple[str, ...], options: dict[str, object], lasting: int | None
) -> None:
    injection = action(f"  - {text}\n")
    assert isinstance(injection, Inject)
    assert (injection.fault.type, injection.fault.targets, injection.fault.options) == (kind, targets, options)
    assert injection.lasting == lasting


def test_every_fault_can_be_written() -> None:
    # The names are those of `vstream chaos`: each is a step.
    assert {action.fault for action in ACTIONS.values() if action.fault} == set(fault_types.FAULTS.values())


def test_faults_have_the_names_of_their_steps_or_made_up_ones_that_nothing_else_has() -> None:
    rehearsal = scenario(
        "steps:\n  - kill-server: west-1\n    as: f1\n  - pause: east\n  - isolate: west\n  - heal: f1\n  - heal\n"
    )
    assert [step.action.id for step in rehearsal.steps if isinstance(step.action, Inject)] == ["f1", "f2", "f3"]
    assert [step.action for step in rehearsal.steps][3:] == [Heal(ids=("f1",)), Heal(ids=None)]


def test_a_step_knows_its_name_its_time_and_its_place() -> None:
    step = scenario("steps:\n  - wait: 5s\n  - wait: 5s\n    at: 1m\n    as: calm\n").steps[1]
    assert (step.name, step.at, step.span[:3]) == ("calm", 60 * SECOND, ("s.yaml", 6, 5))


def test_clients_are_there_without_being_asked_for() -> None:
    workload = scenario(STEPS).workload
    assert [(publisher.stream, publisher.subject, publisher.regions) for publisher in workload.publishers] == [
        ("foo", "foo.load.{region}.{key}", ("west", "central", "east")),
        ("bar", "bar.load-{region}-{key}", ("west", "east")),
    ]
    first = workload.publishers[0]
    assert (first.rate, first.size, first.keys, first.retry) == (50.0, (128, 128), 50, Retry.NONE)
    assert (first.timeout, first.give_up) == (2 * SECOND, 60 * SECOND)
    assert [(reader.stream, reader.kind) for reader in workload.readers] == [
        ("foo", ReaderKind.CONSUMER), ("foo", ReaderKind.DIRECT), ("bar", ReaderKind.CONSUMER), ("bar", ReaderKind.DIRECT),
    ]  # fmt: skip


def test_what_the_workload_says_is_for_publishers_that_say_nothing_else() -> None:
    workload = scenario(
        "workload:\n  rate: 30/m\n  size: 64B..1KiB\n  retry: same-id\n  publishers:\n"
        "    - {stream: bar, rate: 200/s, subject: 'bar.{n}', regions: [east, central]}\n    - {keys: 7}\n"
        f"  readers: [{{by: sequence, rate: 5/s, timeout: 1s}}]\n{STEPS}"
    ).workload
    assert [
        (publisher.stream, publisher.rate, publisher.keys, publisher.regions) for publisher in workload.publishers
    ] == [
        ("bar", 200.0, 50, ("east",)),
        ("foo", 0.5, 7, ("west", "central", "east")),
        ("bar", 0.5, 7, ("west", "east")),
    ]
    assert {(publisher.size, publisher.retry) for publisher in workload.publishers} == {((64, 1024), Retry.SAME_ID)}
    assert workload.publishers[0].subject == "bar.{n}"
    assert [(reader.stream, reader.kind, reader.rate, reader.timeout) for reader in workload.readers] == [
        ("foo", ReaderKind.SEQUENCE, 5.0, SECOND), ("bar", ReaderKind.SEQUENCE, 5.0, SECOND),
    ]  # fmt: skip


def decode_expected(text: str, steps: str = STEPS) -> list[tuple[object, ...]]:
    return [
        (
            expectation.measure,
            expectation.compare.value,
            expectation.value,
            expectation.window,
            expectation.region,
            expectation.stream,
            expectation.origin,
            expectation.operation,
        )
        for expectation in scenario(f"{steps}expect:\n{text}").expectations
    ]


NAMED = "steps:\n  - wait: 5s\n    as: w\n  - try: west\n    as: t\n  - converge\n    as: c\n"
NAMED = NAMED.replace("  - converge\n", "  - converge:\n")


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("  - published: 100%\n", (Measure.PUBLISHED, "==", 1.0, None, None, None, None, None)),
        ('  - in: w\n    published: {west: ">= 99.9%"}\n', (Measure.PUBLISHED, ">=", 0.999, "w", "west", None, None, None)),
        ('  - {stream: foo, read: "<=1%"}\n', (Measure.READ, "<=", 0.01, None, None, "foo", None, None)),
        ("  - delivered: 5\n", (Measure.DELIVERED, "==", 5.0, None, None, None, None, None)),
        ("  - control-plane: 0\n", (Measure.CONTROL_PLANE, "==", 0.0, None, None, None, None, None)),
        ('  - publish-time: "<= 5ms"\n', (Measure.PUBLISH_TIME, "<=", 5e6, None, None, None, None, None)),
        ('  - publish-gap: "<= 5s"\n', (Measure.PUBLISH_GAP, "<=", 5e9, None, None, None, None, None)),
        ('  - read-time: {east: "<= 5ms"}\n', (Measure.READ_TIME, "<=", 5e6, None, "east", None, None, None)),
        ('  - propagation: {west -> east: "<= 5ms"}\n', (Measure.PROPAGATION, "<=", 5e6, None, "east", None, "west", None)),
        ("  - in: w\n    visible: {west->east: 0}\n", (Measure.VISIBLE, "==", 0.0, "w", "east", None, "west", None)),
        ('  - in: c\n    converged: "<= 60s"\n', (Measure.CONVERGED, "<=", 6e10, "c", None, None, None, None)),
        ("  - in: t\n    works: {publish: true}\n", (Measure.WORKS, "==", 1.0, "t", "west", None, None, "publish")),
        ("  - in: t\n    works: {west: {fetch: false}}\n", (Measure.WORKS, "==", 0.0, "t", "west", None, None, "fetch")),
        ('  - lost: ">= 1"\n', (Measure.LOST, ">=", 1.0, None, None, None, None, None)),
        ("  - same-order: false\n", (Measure.SAME_ORDER, "==", 0.0, None, None, None, None, None)),
    ],
)  # fmt: skip
def test_every_expectation_is_decoded(text: str, first: tuple[object, ...]) -> None:
    assert decode_expected(text, NAMED)[0] == first


def test_an_operation_has_to_work_where_it_is_tried() -> None:
    steps = "steps:\n  - try: [east, west]\n    as: t\n  - try\n  - try: all\n    as: u\n"
    expectations = decode_expected(
        "  - in: t\n    works: {publish: true}\n  - in: u\n    works: {fetch: true}\n", steps
    )
    regions = [(expectation[3], expectation[4]) for expectation in expectations if expectation[0] is Measure.WORKS]
    assert regions == [("t", "east"), ("t", "west"), ("u", "west"), ("u", "central"), ("u", "east")]


def test_what_is_said_of_safety_is_all_that_is_expected_of_it() -> None:
    assert decode_expected("  - lost: any\n") == [(Measure.LOST, ">=", 0.0, None, None, None, None, None)]
    assert decode_expected("  - {stream: bar, diverged: '<= 3'}\n") == [
        (Measure.DIVERGED, "<=", 3.0, None, None, "bar", None, None)
    ]
    assert scenario(STEPS).expectations == ()


def test_an_expectation_knows_its_place() -> None:
    expectation = scenario(f'{STEPS}expect:\n  - published: {{west: ">= 99%", east: ">= 98%"}}\n').expectations[1]
    assert (expectation.value, expectation.span.line, expectation.span.column, expectation.compare) == (
        0.98,
        7,
        39,
        Compare.AT_LEAST,
    )


def test_a_topology_that_is_written_inside_is_the_same_as_one_beside() -> None:
    inside = json.dumps(yaml.safe_load(ACME))
    loading = load_text(f"scenario: 1\nname: s\ntopology: {inside}\n{STEPS}")
    assert concise(loading.findings) == ""
    rehearsal = loading.require()
    assert rehearsal.topology_file == "s.yaml"
    assert check_topology(rehearsal.topology_text.encode(), "t").require() == check_topology(ACME, "t").require()
    assert rehearsal.topology == check_topology(ACME, "t").require()


def test_paths_are_relative_to_the_file() -> None:
    asked: list[str] = []

    def reading(name: str) -> bytes:
        asked.append(name)
        return ACME

    text = f"scenario: 1\nname: s\ntopology: ../t/acme.yaml\nlab: {{templates: mine}}\n{STEPS}"
    loading = check_scenario(text.encode(), "some/where/s.yaml", reading).require()
    assert asked == [loading.topology_file] == ["some/where/../t/acme.yaml"]
    assert loading.lab.templates == "some/where/mine"
    assert (
        check_scenario(text.replace("../t", "/t").encode(), "s.yaml", reading).require().topology_file == "/t/acme.yaml"
    )


def test_the_texts_are_kept_as_they_are() -> None:
    rehearsal = scenario(STEPS)
    assert rehearsal.text == HEAD + STEPS
    assert rehearsal.topology_text == ACME.decode()


def test_one_version_or_one_for_each_region_is_decoded() -> None:
    assert scenario(f"lab: {{versions: 2.12.8}}\n{STEPS}").lab.versions == {"*": "2.12.8"}
    mixed = scenario(f"lab: {{versions: {{'*': 2.12.8, west: 2.15.1}}}}\n{STEPS}").lab
    assert (mixed.versions, mixed.links) == ({"*": "2.12.8", "west": "2.15.1"}, "proxy")


def test_one_region_has_no_links_that_anything_would_carry() -> None:
    assert load_text(f"scenario: 1\nname: s\ntopology: one.yaml\n{STEPS}").require().lab.links == "none"


def test_errors_of_the_topology_and_of_the_scenario_are_said_together() -> None:
    loading = load_text("scenario: 1\nname: s\ntopology: wrong.yaml\nsteps:\n  - kill-region: wset\n    for: 5s\n")
    assert [(finding.code, finding.span.file) for finding in loading.findings if finding.span] == [
        ("VS503", "s.yaml"), ("VS101", "wrong.yaml"),
    ]  # fmt: skip
    assert loading.texts["wrong.yaml"] == FILES["wrong.yaml"].decode()


def test_every_operation_of_a_try_step_can_be_expected() -> None:
    works = ", ".join(f"{trial.value}: true" for trial in ClientOperation)
    assert problems(f"{HEAD}{NAMED}expect:\n  - in: t\n    works: {{{works}}}\n") == ""


def test_reading_fails_only_for_what_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        read("nix.yaml")


@pytest.mark.parametrize("bound", [" " * 20_000, " " * 20_000 + "\0", "-> " * 7_000], ids=["spaces", "zero", "arrows"])
def test_a_long_bound_is_refused_at_once(bound: str) -> None:
    """Not after hours: scenarios of strangers are checked in CI, and patterns could go back and forth over spaces."""
    refusals = problems(f"{STEPS}expect: [{{lost: {json.dumps(bound)}}}]\n")
    assert refusals
