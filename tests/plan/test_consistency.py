"""Consistency models as values: which physical streams there are, what they are set to, in which order they change."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from tests.plan.test_diff import plan, world
from tests.support.plans import make_plan, render_streams, topology
from vstream.chaos import select
from vstream.plan.model import Create, Delete, Gate, GateKind, Update, risk_of
from vstream.plan.risk import Risk
from vstream.plan.stages import Stage, stage_of
from vstream.subjects.algebra import overlaps
from vstream.topology import physical
from vstream.topology.bundle import Bundle
from vstream.topology.model import Role
from vstream.topology.stream_config import TOPOLOGY_KEY, StreamConfig

WIDE = {"stretch": {"members": "all"}}
FOO: dict[str, Any] = {"subjects": ["foo.>"]}


def streams(consistency: str, **more: Any) -> Bundle:
    return render_streams({"foo": {**FOO, "consistency": consistency, **more}}, **WIDE)


def fields(bundle: Bundle, name: str) -> dict[str, Any]:
    return next(dict(stream.config.fields) for stream in bundle.streams if stream.config.name == name)


@pytest.mark.parametrize(
    ("consistency", "names"),
    [
        ("virtual", {f"foo-{role}-{place}" for role in ("write", "read") for place in ("west", "central", "east")}),
        (
            "ordered",
            {f"foo-{role}-{place}" for role in ("write", "read") for place in ("west", "central", "east")}
            | {"foo-order-stretch"},
        ),
        ("stretch", {"foo", "foo-read-west", "foo-read-central", "foo-read-east"}),
        ("homed", {"foo", "foo-read-west", "foo-read-central"}),
    ],
)
def test_each_model_has_its_streams(consistency: str, names: set[str]) -> None:
    bundle = streams(consistency, **({"home": "east"} if consistency == "homed" else {}))
    assert {stream.config.name for stream in bundle.streams} == names
    assert {stream.config.owner for stream in bundle.streams} == {"acme"}
    # Only what has no stream of the virtual name has to be mapped.
    assert bool(bundle.mappings) == ("foo" not in names)


def test_what_is_read_in_a_region_and_what_takes_its_publishes() -> None:
    (foo,) = topology({"foo": {**FOO, "consistency": "homed", "home": "east"}}).streams
    assert [physical.read_stream_in(foo, region) for region in foo.regions] == [
        "foo-read-west",
        "foo-read-central",
        "foo",
    ]
    assert {physical.write_stream_in(foo, region) for region in foo.regions} == {"foo"}
    (foo,) = topology({"foo": {**FOO, "consistency": "ordered"}}, **WIDE).streams
    assert physical.read_stream_in(foo, "east") == "foo-read-east"
    assert physical.write_stream_in(foo, "east") == "foo-write-east"
    assert physical.mirrored_stream(foo) == "foo-order-stretch"


def test_settings_reach_the_streams_that_they_are_for() -> None:
    bundle = streams(
        "ordered",
        max_bytes="1GiB",
        write={"max_age": "2h"},
        order={"max_age": "3h"},
        read={"max_age": "4h"},
        overrides={"west": {"read": {"max_age": "5h"}}},
    )
    hour = 3600 * 10**9
    ages = {stream.config.name: stream.config.fields["max_age"] for stream in bundle.streams}
    assert ages["foo-write-west"] == 2 * hour
    assert ages["foo-order-stretch"] == 3 * hour
    assert (ages["foo-read-west"], ages["foo-read-east"]) == (5 * hour, 4 * hour)
    assert {stream.config.fields["max_bytes"] for stream in bundle.streams} == {2**30}
    origin = streams("stretch", write={"max_age": "2h"}, read={"max_age": "4h"})
    assert (fields(origin, "foo")["max_age"], fields(origin, "foo-read-west")["max_age"]) == (2 * hour, 4 * hour)


@pytest.mark.parametrize(
    ("write", "overrides", "hours"),
    [({"max_age": "2h"}, {}, 2), ({"max_age": "2h"}, {"west": {"write": {"max_age": "9h"}}}, 9)],
)
def test_the_order_is_kept_as_long_as_the_longest_write_stream(
    write: dict[str, Any], overrides: dict[str, Any], hours: int
) -> None:
    bundle = streams("ordered", write=write, overrides=overrides)
    assert fields(bundle, "foo-order-stretch")["max_age"] == hours * 3600 * 10**9
    for_ever = streams("ordered", write=write, overrides={"east": {"write": {"max_age": "unlimited"}}})
    assert fields(for_ever, "foo-order-stretch")["max_age"] == 0


@pytest.mark.parametrize(("members", "replicas"), [(3, 3), (4, 3), (5, 5), (6, 5), (2, 1)])
def test_streams_in_the_stretch_cluster_survive_what_it_can(members: int, replicas: int) -> None:
    regions = {f"r{number}": {"servers": 1} for number in range(6)}
    over = {"regions": regions, "stretch": {"members": [f"r{number}" for number in range(members)]}}
    bundle = render_streams({"foo": {**FOO, "consistency": "stretch"}}, **over)
    assert fields(bundle, "foo")["num_replicas"] == replicas
    assert fields(bundle, "foo-read-r5")["num_replicas"] == 1


def test_a_mirror_does_not_deduplicate_whatever_is_said() -> None:
    bundle = streams("stretch", duplicate_window="30s")
    assert fields(bundle, "foo")["duplicate_window"] == 30 * 10**9
    assert fields(bundle, "foo-read-west")["duplicate_window"] == 0


async def test_what_is_needed_comes_first_and_goes_last() -> None:
    desired = streams("ordered")
    created = plan(desired, (await world(render_streams({}, **WIDE))).observe())
    assert [getattr(change, "role", None) for change in created.changes] == [Role.WRITE] * 3 + [Role.ORDER] + [
        Role.READ
    ] * 3
    assert all(stage_of(change) < Stage.LOAD_MAPPINGS for change in created.changes)
    deleted = plan(render_streams({}, **WIDE), (await world(desired)).observe())
    assert [getattr(change, "role", None) for change in deleted.changes] == [Role.READ] * 3 + [Role.ORDER] + [
        Role.WRITE
    ] * 3


async def test_the_order_loses_a_region_only_when_nobody_publishes_there_any_more() -> None:
    narrow = streams("ordered", regions=["west", "east"])
    made = plan(narrow, (await world(streams("ordered"))).observe())
    stages = {change.config.name: stage_of(change) for change in made.changes}
    assert stages["foo-order-stretch"] is Stage.REMOVE_SOURCES
    assert stages["foo-write-central"] > stages["foo-order-stretch"] > Stage.LOAD_MAPPINGS


async def test_nothing_changes_where_servers_say_what_was_rendered() -> None:
    for bundle in (streams("ordered"), streams("stretch"), streams("homed", home="west")):
        assert plan(bundle, (await world(bundle)).observe()).is_empty


async def test_an_origin_moves_with_its_home() -> None:
    made = plan(streams("homed", home="west"), (await world(streams("homed", home="east"))).observe())
    moved = next(change for change in made.changes if change.config.name == "foo")
    assert isinstance(moved, Update)
    assert {change.path for change in moved.fields} == {"placement", "metadata.vstream.region"}
    assert risk_of(moved) is Risk.DISRUPTIVE
    assert Gate(kind=GateKind.MOVE_IS_RECORDED, stream="foo") in made.gates
    assert {change.config.name for change in made.changes if isinstance(change, Create)} == {"foo-read-east"}
    assert made.blocked == ()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("virtual", "ordered"),
        ("stretch", "virtual"),
        ("virtual", "stretch"),
        ("ordered", "stretch"),
        ("stretch", "ordered"),
    ],
)
async def test_a_model_with_other_read_streams_is_blocked_with_the_reason(before: str, after: str) -> None:
    made = plan(streams(after), (await world(streams(before))).observe())
    assert {blocker.name for blocker in made.blocked} == {"foo-read-west", "foo-read-central", "foo-read-east"}
    assert all("the consistency model" in blocker.reason for blocker in made.blocked)
    way_out = "add `takes_over: foo`" if after == "virtual" else "another name"
    assert all(way_out in blocker.hint for blocker in made.blocked)


MODELS: dict[str, dict[str, Any]] = {
    "virtual": {},
    "ordered": {"consistency": "ordered"},
    "stretch": {"consistency": "stretch"},
    "homed": {"consistency": "homed", "home": "west"},
    "homed elsewhere": {"consistency": "homed", "home": "east"},
}


@pytest.mark.parametrize("routing", ["accounts", "regional"])
async def test_in_accounts_of_vstream_no_model_changes(routing: str) -> None:
    """Nor is a way out named there that the topology may not take."""
    over = {"routing": routing, "server_version": "2.12", **WIDE}
    bundles = {name: render_streams({"foo": {**FOO, **model}}, **over) for name, model in MODELS.items()}
    worlds = {name: (await world(made)).observe() for name, made in bundles.items()}
    for before, after in permutations(MODELS, 2):
        desired = bundles[after]
        plan = make_plan("acme", desired, worlds[before])
        assert plan.blocked, f"{before} → {after}"
        assert not [blocker for blocker in plan.blocked if "takes_over" in blocker.hint]


@pytest.mark.parametrize(("before", "after"), [("virtual", "homed"), ("homed", "virtual"), ("ordered", "homed")])
async def test_a_stream_of_one_region_is_not_deleted_for_another_model(before: str, after: str) -> None:
    made, desired = (
        render_streams({"foo": {**FOO, "regions": ["west"], **MODELS[model]}}, **WIDE) for model in (before, after)
    )
    change_plan = plan(desired, (await world(made)).observe())
    assert {blocker.name for blocker in change_plan.blocked} == {"foo" if before == "homed" else "foo-write-west"}


async def test_what_mirrored_the_order_sources_from_where_it_is() -> None:
    observed = (await world(streams("ordered"))).observe()
    made = plan(streams("virtual"), observed)
    assert made.blocked == ()
    steps = {Stage.STOP_SOURCING: 3, Stage.CONTINUE_SOURCING: 3, Stage.DELETE_ORDERING_STREAMS: 1}
    assert Counter(map(stage_of, made.changes)) == steps
    assert {(gate.kind, gate.counterparts) for gate in made.gates if gate.stream == "foo-read-west"} == {
        (GateKind.COPY_IS_COMPLETE, ("foo-order-stretch",)),
        (GateKind.SOURCED_MESSAGES_ARE_STORED, ()),
        (GateKind.HAS_ALL_OF_SOURCES, ("foo-write-west", "foo-write-central", "foo-write-east")),
    }
    desired = streams("virtual")
    old = make_plan("acme", desired, observed, server_version=(2, 11))
    assert {blocker.name for blocker in old.blocked} == {"foo-read-west", "foo-read-central", "foo-read-east"}


@pytest.mark.parametrize("name", ["read", "order"])
async def test_servers_that_cannot_turn_a_mirror_are_to_be_updated(name: str) -> None:
    """`takes_over` is for an origin, and there, too, only where servers can."""
    desired = streams("virtual")
    for before in (streams("ordered", virtual_name=name), streams("stretch")):
        observed = (await world(before)).observe()
        old = make_plan("acme", desired, observed, server_version=(2, 11))
        assert {blocker.name for blocker in old.blocked} == {"foo-read-west", "foo-read-central", "foo-read-east"}
        assert all("servers of 2.12" in blocker.hint and "takes_over" not in blocker.hint for blocker in old.blocked)


@pytest.mark.parametrize("before", ["stretch", "homed"])
async def test_an_origin_is_taken_over_as_a_plain_stream_is_and_goes_afterwards(before: str) -> None:
    origin = streams(before, **({"home": "west"} if before == "homed" else {}))
    observed = (await world(origin)).observe()
    made = plan(streams("virtual", takes_over="foo"), observed)
    assert made.blocked == ()
    assert not [change for change in made.changes if isinstance(change, Delete)]
    stopped = {change.config.name for change in made.changes if stage_of(change) is Stage.STOP_SOURCING}
    assert stopped == {"foo-read-central", "foo-read-east"} | ({"foo-read-west"} if before == "stretch" else set())
    # Once it is sourced, and nobody publishes into it: that is waited for.
    sourced = (await world(streams("virtual", takes_over="foo"))).observe()
    left = replace(sourced, streams={**sourced.streams, "foo": observed.streams["foo"]})
    ended = plan(streams("virtual"), left)
    assert [change.config.name for change in ended.changes if isinstance(change, Delete)] == ["foo"]
    assert [change.config.name for change in ended.changes if stage_of(change) is Stage.CLOSE_WRITE_STREAMS] == ["foo"]
    assert [gate.kind for gate in ended.gates if gate.stream == "foo"] == [GateKind.READERS_HAVE_ALL]
    # That of somebody else is not.
    foreign = replace(
        observed.streams["foo"], config=StreamConfig(name="foo", fields={"metadata": {TOPOLOGY_KEY: "b"}})
    )
    strange = replace(observed, streams={**observed.streams, "foo": foreign})
    assert plan(streams("virtual", takes_over="foo"), strange).blocked


async def test_rules_of_others_that_lead_to_an_origin_are_left_alone() -> None:
    desired = streams("stretch")
    servers = await world(desired)
    servers.rules = {"west-1": {"old.>": ("* 100% foo.old.>",), "bar": ("* 100% foo",)}}
    assert plan(desired, servers.observe()).rule_changes == ()
    # One that still sends the stream's own subjects to a write stream of before is not.
    left = await world(render_streams())
    observed = left.observe()
    sources = {mapping.source for mapping in render_streams().mappings}
    assert {rule.source for rule in plan(desired, observed).rule_changes} == sources


async def test_an_origin_that_somebody_made_is_not_taken() -> None:
    desired = streams("stretch")
    servers = await world(desired)
    mine = servers.streams_by_name["foo"]
    bare = StreamConfig(name="foo", fields={**mine.config.fields, "metadata": {}})
    servers.streams_by_name["foo"] = replace(mine, config=bare)
    (blocked,) = plan(desired, servers.observe()).blocked
    assert (blocked.name, blocked.reason) == ("foo", "it exists, and vstream did not create it")


def render_named(**more: Any) -> Bundle:
    return streams("ordered", virtual_name="order", **more)


def test_an_order_that_carries_the_name_needs_the_mapping_of_publishes_alone() -> None:
    bundle = render_named(regions=["west", "east"])
    names = {f"foo-{role}-{place}" for role in ("write", "read") for place in ("west", "east")}
    assert {stream.config.name for stream in bundle.streams} == {*names, "foo"}
    assert fields(bundle, "foo-read-west")["mirror"] == {"name": "foo"}
    (rule,) = bundle.mappings
    assert rule.source == "foo.>"
    # Elsewhere, and at members of the stretch cluster, publishes would end in the order: nobody takes them.
    led = {
        destination.cluster: {
            name for name in names if overlaps(fields(bundle, name).get("subjects", ["-"])[0], destination.subject)
        }
        for destination in rule.destinations
    }
    assert led == {"west": {"foo-write-west"}, "east": {"foo-write-east"}, None: set()}
    assert not overlaps("foo.>", rule.destinations[-1].subject)


def test_a_fault_of_a_named_order_is_told_from_one_of_a_write_stream() -> None:
    wide = topology({"foo": {**FOO, "consistency": "ordered", "virtual_name": "order"}}, **WIDE)
    assert select.find_physical_stream(wide, "foo", None) == "foo"
    assert select.find_physical_stream(wide, "foo", "west") == "foo-write-west"


async def test_an_order_lists_subjects_only_once_they_are_mapped_past_it() -> None:
    desired = render_named()
    servers = await world(render_streams({}, **WIDE))
    steps = [
        change
        for change in plan(desired, servers.observe()).changes
        if isinstance(change, Create | Update) and change.config.name == "foo"
    ]
    assert [(stage_of(step), step.config.fields.get("subjects")) for step in steps] == [
        (Stage.CHANGE_ORDERING_STREAMS, None),
        (Stage.ADD_CLIENT_SUBJECTS, ["foo.>"]),
    ]
    assert Stage.ADD_CLIENT_SUBJECTS > Stage.LOAD_MAPPINGS
    # Whoever was stopped in between goes on.
    servers = await world(desired)
    await servers.update(steps[0].config)
    (rest,) = plan(desired, servers.observe()).changes
    assert isinstance(rest, Update)
    assert (rest.config.fields["subjects"], stage_of(rest)) == (["foo.>"], Stage.ADD_CLIENT_SUBJECTS)
    await servers.update(rest.config)
    assert plan(desired, servers.observe()).is_empty


@pytest.mark.parametrize("is_named", [True, False])
async def test_the_name_of_an_order_stays(is_named: bool) -> None:
    before, after = (render_named(), streams("ordered"))[:: 1 if is_named else -1]
    made = plan(after, (await world(before)).observe())
    assert {blocker.name for blocker in made.blocked} == {"foo-read-west", "foo-read-central", "foo-read-east"}
    assert all("name of the order" in blocker.reason and "another name" in blocker.hint for blocker in made.blocked)


async def test_what_mirrored_an_order_of_the_name_becomes_virtual_like_any_other() -> None:
    made = make_plan("acme", streams("virtual"), (await world(render_named())).observe(), server_version=(2, 12))
    assert made.blocked == ()
    deleted = [change for change in made.changes if isinstance(change, Delete)]
    assert [(change.config.name, stage_of(change)) for change in deleted] == [("foo", Stage.DELETE_ORDERING_STREAMS)]


async def test_rules_of_others_that_lead_to_an_order_of_the_name_are_left_alone() -> None:
    desired = render_named()
    servers = await world(desired)
    other_rules = {"old.>": ("* 100% foo.old.>",), "bar": ("* 100% foo",)}
    servers.rules = {name: {**rules, **other_rules} for name, rules in servers.rules.items()}
    assert plan(desired, servers.observe()).is_empty
