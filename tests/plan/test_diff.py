from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest

from tests.support.call_counts import count_calls
from tests.support.plans import FakeServers, make_plan, render_streams, topology
from tests.support.topologies import many_streams
from vstream.lint.check_topology import check_topology
from vstream.plan.context import Observed
from vstream.plan.diff import diff
from vstream.plan.model import Create, Delete, GateKind, Plan, TransitionStep, Update, risk_of
from vstream.plan.risk import Risk
from vstream.plan.rules import spell_destinations
from vstream.plan.stages import Stage, stage_of
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import Bundle
from vstream.topology.stream_config import ObservedStream, StreamConfig, with_recorded_positions


def plan(wanted: Bundle, observed: Observed, *adopt: str) -> Plan:
    return make_plan("acme", wanted, observed, adopt=frozenset(adopt))


async def world(of: Bundle) -> FakeServers:
    """Servers that are as *of* says."""
    servers = FakeServers()
    for stream in of.streams:
        await servers.create(stream.config)
    await servers.loader(of).ensure_loaded()
    return servers


def change_stream(observed: Observed, name: str, **fields: Any) -> Observed:
    stream = observed.streams[name]
    config = StreamConfig(name=name, fields={**stream.config.fields, **fields})
    return replace(observed, streams={**observed.streams, name: replace(stream, config=config)})


def only_update(of: Plan) -> Update:
    assert of.blocked == ()
    (change,) = of.changes
    assert isinstance(change, Update)
    return change


async def test_a_matching_world_needs_nothing() -> None:
    bundle = render_streams()
    assert plan(bundle, (await world(bundle)).observe()).is_empty


def test_an_empty_world_needs_everything_and_what_is_sourced_comes_first() -> None:
    made = plan(render_streams(), Observed(streams={}))
    assert all(isinstance(change, Create) for change in made.changes)
    names = [change.config.name for change in made.changes]
    assert names[:3] == ["foo-write-central", "foo-write-east", "foo-write-west"]
    seen: set[str] = set()
    for change in made.changes:
        assert isinstance(change, Create)
        assert set(change.config.source_names) <= seen
        seen.add(change.config.name)


async def test_drift_of_one_field_is_one_field_change() -> None:
    bundle = render_streams()
    observed = change_stream((await world(bundle)).observe(), "foo-read-west", max_age=5)
    update = only_update(plan(bundle, observed))
    (field,) = update.fields
    assert (field.path, field.before, field.after, field.risk) == ("max_age", 5, 0, Risk.SAFE)


async def test_a_default_that_was_changed_by_hand_is_drift() -> None:
    bundle = render_streams()
    observed = change_stream((await world(bundle)).observe(), "foo-write-west", no_ack=True)
    assert [field.path for field in only_update(plan(bundle, observed)).fields] == ["no_ack"]


async def test_an_unknown_field_is_noted_kept_and_no_drift() -> None:
    bundle = render_streams()
    observed = change_stream((await world(bundle)).observe(), "foo-read-west", brand_new=7)
    made = plan(bundle, observed)
    assert made.is_empty
    assert "brand_new" in made.notes[0].text
    update = only_update(plan(bundle, change_stream(observed, "foo-read-west", brand_new=7, max_age=5)))
    assert update.config.fields["brand_new"] == 7


async def test_tightening_a_limit_is_data_loss_and_loosening_is_not() -> None:
    observed = (await world(render_streams())).observe()
    tighter = only_update(plan(render_streams(), change_stream(observed, "foo-write-west", max_age=10**18)))
    assert risk_of(tighter) is Risk.DATA_LOSS
    assert "before another region has sourced them" in tighter.fields[0].why
    looser = only_update(plan(render_streams(), change_stream(observed, "foo-write-west", max_age=10**9)))
    assert risk_of(looser) is Risk.SAFE


async def test_a_changed_source_stops_and_goes_on_where_it_was() -> None:
    bundle = render_streams()
    observed = (await world(bundle)).observe()
    sources = [dict(source) for source in observed.streams["foo-read-west"].config.fields["sources"]]  # type: ignore[arg-type,union-attr]
    sources[0]["subject_transforms"] = [{"src": "other.>", "dest": ">"}]
    made = plan(bundle, change_stream(observed, "foo-read-west", sources=sources))
    stop, go_on = made.changes
    assert isinstance(stop, Update)
    assert isinstance(go_on, Update)
    assert (stop.step, go_on.step) == (TransitionStep.STOP_SOURCING, TransitionStep.CONTINUE_SOURCING)
    assert set(stop.config.source_names) == set(go_on.config.source_names) - {str(sources[0]["name"])}
    assert [(gate.kind, gate.stream) for gate in made.gates] == [
        (GateKind.SOURCED_MESSAGES_ARE_STORED, "foo-read-west")
    ]
    # It has had this form before: servers go on from there, whatever they are told.
    (back,) = [field for field in go_on.fields if field.path.startswith("sources.")]
    assert back.risk is Risk.RESOURCING
    assert "arrives again" in back.why
    # Killed in between: what it stopped for, and where, is written down on the server.
    stopped = with_recorded_positions(stop.config, {str(sources[0]["name"]): 7}).fields
    left = plan(
        bundle, change_stream(observed, "foo-read-west", sources=stopped["sources"], metadata=stopped["metadata"])
    )
    assert [change.step for change in left.changes if isinstance(change, Update)] == [TransitionStep.CONTINUE_SOURCING]
    assert not left.is_destructive


@pytest.mark.parametrize(("before", "after"), [("isolated", "blog"), ("blog", "isolated")])
async def test_another_naming_is_blocked_because_what_is_not_sourced_yet_would_be_left_out(
    before: str, after: str
) -> None:
    observed = (await world(render_streams(naming=before))).observe()
    made = plan(render_streams(naming=after), observed)
    readers = {"foo-read-west", "foo-read-central", "foo-read-east"}
    assert {blocker.name for blocker in made.blocked} == readers
    # What a paused origin listens on says nothing of what it stores.
    for region in ("west", "central", "east"):
        name = f"foo-write-{region}"
        observed = change_stream(observed, name, subjects=[f"_vs.paused.{name}"])
    assert readers <= {blocker.name for blocker in plan(render_streams(naming=after), observed).blocked}
    (reason,) = {blocker.reason.partition(" from ")[0] for blocker in made.blocked if blocker.region == "west"}
    assert reason == f"it would no longer take `{'_vs.foo.central.>' if before == 'isolated' else 'foo.central.>'}`"


async def test_with_the_published_naming_subjects_can_come_and_not_go() -> None:
    less = render_streams({"foo": {"subjects": ["foo.>"]}}, naming="blog")
    more = render_streams({"foo": {"subjects": ["foo.>", "bar.>"]}}, naming="blog")
    wider = plan(more, (await world(less)).observe())
    assert (wider.blocked, wider.is_destructive) == ((), False)
    assert [change.step for change in wider.changes if isinstance(change, Update)].count(
        TransitionStep.CONTINUE_SOURCING
    ) == 3
    assert "`bar.central.>`" in plan(less, (await world(more)).observe()).blocked[0].reason


async def test_thousands_of_sources_of_one_stream_are_numbered_in_one_pass() -> None:
    """Seed 31921 of the fuzz series: `apply` took 42 s of computing for 20,000."""
    bundle = render_streams()
    observed = (await world(bundle)).observe()
    sources: Any = observed.streams["foo-read-west"].config.fields["sources"]
    began = time.process_time()
    made = plan(bundle, change_stream(observed, "foo-read-west", sources=[*sources, *sources[:1] * 20_000]))
    assert time.process_time() - began < 15
    gone = [change.path for update in made.changes if isinstance(update, Update) for change in update.fields]
    assert len(gone) == len(set(gone)) == 20_000
    assert f"sources.{sources[0]['name']}#2" in gone


async def test_sources_that_change_and_sources_that_go_are_two_steps() -> None:
    wide = render_streams()
    narrow = render_streams({"foo": {"subjects": ["foo.>"], "regions": ["west", "east"]}})
    observed = (await world(wide)).observe()
    sources = [dict(source) for source in observed.streams["foo-read-west"].config.fields["sources"]]  # type: ignore[arg-type,union-attr]
    for source in sources:
        source["subject_transforms"] = [{"src": "other.>", "dest": ">"}]
    made = plan(narrow, change_stream(observed, "foo-read-west", sources=sources))
    assert [blocker.name for blocker in made.blocked] == ["foo-read-west"]
    assert "two plans" in made.blocked[0].reason


async def test_a_source_that_is_dropped_waits_for_the_mappings() -> None:
    wide = render_streams()
    narrow = render_streams({"foo": {"subjects": ["foo.>"], "regions": ["west", "east"]}})
    made = plan(narrow, (await world(wide)).observe())
    stages = {change.config.name: stage_of(change) for change in made.changes}
    assert stages["foo-read-west"] is Stage.REMOVE_SOURCES
    assert stages["foo-read-central"] is Stage.DELETE_READ_STREAMS
    assert stages["foo-write-central"] is Stage.DELETE_WRITE_STREAMS
    assert stages["foo-write-central"] > stages["foo-read-west"] > Stage.LOAD_MAPPINGS
    assert made.is_destructive


async def test_a_source_that_is_added_is_no_risk() -> None:
    narrow = render_streams({"foo": {"subjects": ["foo.>"], "regions": ["west", "east"]}})
    made = plan(render_streams(), (await world(narrow)).observe())
    assert not made.is_destructive
    assert {change.config.name for change in made.changes if isinstance(change, Create)} == {
        "foo-write-central",
        "foo-read-central",
    }


async def test_streams_that_are_no_longer_wanted_are_deleted_readers_first() -> None:
    servers = await world(render_streams())
    made = plan(render_streams({}), servers.observe())
    assert [type(change) for change in made.changes] == [Delete] * 6
    assert [change.config.name for change in made.changes][:3] == ["foo-read-central", "foo-read-east", "foo-read-west"]
    assert all(rule.after is None for rule in made.rule_changes)
    assert {rule.source for rule in made.rule_changes} == {mapping.source for mapping in render_streams().mappings}


async def test_a_stream_of_somebody_else_is_never_touched() -> None:
    observed = (await world(render_streams())).observe()
    foreign = change_stream(observed, "foo-read-west", metadata={})
    made = plan(render_streams(), foreign)
    assert [blocked.name for blocked in made.blocked] == ["foo-read-west"]
    assert "vstream did not create it" in made.blocked[0].reason
    assert (
        plan(render_streams({}), foreign).changes
        == plan(
            render_streams({}),
            replace(
                observed, streams={name: stream for name, stream in observed.streams.items() if name != "foo-read-west"}
            ),
        ).changes
    )


@pytest.mark.parametrize("name", ["foo-read-west", "all"])
async def test_adoption_is_explicit(name: str) -> None:
    observed = change_stream((await world(render_streams())).observe(), "foo-read-west", metadata={})
    update = only_update(plan(render_streams(), observed, name))
    assert update.adopts
    assert {field.path for field in update.fields} == {
        "metadata.vstream.region", "metadata.vstream.role", "metadata.vstream.stream", "metadata.vstream.topology",
    }  # fmt: skip


async def test_a_stream_of_another_topology_names_it() -> None:
    observed = change_stream(
        (await world(render_streams())).observe(), "foo-read-west", metadata={"vstream.topology": "other"}
    )
    assert "belongs to the topology `other`" in plan(render_streams(), observed).blocked[0].reason


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"storage": "memory"}, "cannot change the storage"),
        ({"retention": "workqueue"}, "to or from workqueue"),
        ({"deny_delete": True}, "never allow deletes again"),
        ({"mirror": {"name": "x"}}, "into a mirror"),
    ],
)
async def test_what_servers_refuse_is_blocked_with_the_reason(fields: dict[str, Any], reason: str) -> None:
    made = plan(render_streams(), change_stream((await world(render_streams())).observe(), "foo-write-west", **fields))
    assert made.changes == ()
    assert reason in made.blocked[0].reason


def test_a_stream_that_nobody_answered_for_is_blocked_not_created() -> None:
    made = plan(render_streams(), Observed(streams={}, unanswered=("foo-read-west",)))
    assert [blocked.name for blocked in made.blocked] == ["foo-read-west"]
    assert "no server answered" in made.blocked[0].reason
    assert (made.unanswered_items, made.refusals) == (made.blocked, ())
    assert len(made.changes) == 5


async def test_what_nobody_answered_for_is_not_known_to_differ() -> None:
    """So `drift` ends with 3: a region that is down is no drift."""
    bundle = render_streams()
    observed = (await world(bundle)).observe()
    streams = {name: stream for name, stream in observed.streams.items() if name != "foo-read-west"}
    made = plan(bundle, replace(observed, streams=streams, unanswered=("foo-read-west",)))
    assert (made.is_empty, made.differs) == (False, False)
    foreign = plan(bundle, change_stream(observed, "foo-read-west", retention="workqueue"))
    assert (len(foreign.blocked), foreign.differs) == (1, True)


async def test_a_half_reloaded_cluster_shows_which_server_has_what() -> None:
    bundle = render_streams()
    servers = await world(bundle)
    servers.rules["west-1"] = {"foo.>": ("west 100% _vs.foo.west.typo.>",)}
    made = plan(bundle, servers.observe())
    publish = next(rule for rule in made.rule_changes if rule.source == "foo.>")
    assert publish.servers == ("west-1",)
    assert publish.before == ("west 100% _vs.foo.west.typo.>",)
    assert len(made.rule_changes) == len(bundle.mappings)


async def test_mapping_rules_of_others_are_left_alone() -> None:
    bundle = render_streams()
    servers = await world(bundle)
    servers.rules["west-1"] = {**servers.rules["west-1"], "theirs.*": ("* 100% elsewhere.$1",)}
    assert plan(bundle, servers.observe()).is_empty


@pytest.mark.parametrize("naming", ["isolated", "blog"])
async def test_rules_of_a_stream_that_is_gone_are_removed(naming: str) -> None:
    before = render_bundle(topology({"foo": {"subjects": ["foo.>"]}, "bar": {"subjects": ["bar.*"]}}, naming=naming))
    after = render_bundle(topology(naming=naming))
    made = plan(after, (await world(before)).observe())
    remaining = {mapping.source for mapping in after.mappings}
    assert {rule.source for rule in made.rule_changes} == {mapping.source for mapping in before.mappings} - remaining


async def test_the_fingerprint_follows_what_the_plan_depends_on_and_nothing_else() -> None:
    bundle = render_streams()
    observed = (await world(bundle)).observe()
    stranger = ObservedStream(config=StreamConfig(name="other", fields={"name": "other"}), created="t", cluster=None)
    first = plan(bundle, observed).observed_digest
    assert plan(bundle, replace(observed, streams={"other": stranger, **observed.streams})).observed_digest == first
    assert plan(bundle, change_stream(observed, "foo-read-west", max_age=5)).observed_digest != first
    again = replace(observed.streams["foo-read-west"], created="later")
    assert (
        plan(bundle, replace(observed, streams={**observed.streams, "foo-read-west": again})).observed_digest != first
    )
    assert plan(bundle, replace(observed, rules={})).observed_digest != first


async def test_the_valve_counts_updates_and_deletes_against_what_exists() -> None:
    many = {f"s{n}": {"subjects": [f"s{n}.>"]} for n in range(4)}
    servers = await world(render_streams(many))
    observed = servers.observe()
    assert not plan(render_streams(many), change_stream(observed, "s0-read-west", max_age=5)).touches_many
    assert plan(render_streams({key: many[key] for key in ("s0", "s1")}), observed).touches_many
    assert not plan(render_streams(many), Observed(streams={})).touches_many


def test_destinations_are_spelled_the_same_in_any_order() -> None:
    mapping = render_streams().mappings[0]
    assert spell_destinations(mapping) == spell_destinations(replace(mapping, destinations=mapping.destinations[::-1]))


async def test_scaling_and_moving_at_once_is_blocked_because_servers_refuse_it() -> None:
    bundle = render_streams()
    observed = (await world(bundle)).observe()
    drifted = change_stream(observed, "foo-read-west", num_replicas=3, placement={"cluster": "west", "tags": ["ssd"]})
    made = plan(bundle, drifted)
    (blocked,) = made.blocked
    assert blocked.name == "foo-read-west"
    assert "one step" in blocked.reason
    assert made.changes == ()
    # One of the two alone is possible.
    assert only_update(plan(bundle, change_stream(observed, "foo-read-west", num_replicas=3)))


@pytest.mark.parametrize(("version", "is_blocked"), [("2.14.6", True), ("2.15.0", False), ("?", False)])
async def test_a_move_between_2_15_and_older_servers_is_blocked_because_it_never_ends(
    version: str, is_blocked: bool
) -> None:
    bundle = render_streams()
    observed = replace(
        (await world(bundle)).observe(), versions={"east": {"east-1": "2.15.1"}, "west": {"west-1": version}}
    )
    made = plan(bundle, change_stream(observed, "foo-read-west", placement={"cluster": "east"}))
    assert [blocked.reason for blocked in made.blocked] == [
        f"it would move from servers of 2.15.1 to servers of {version}: such a move never ends"
    ] * is_blocked
    assert not plan(bundle, change_stream(observed, "foo-read-west", max_age=5)).blocked


@pytest.mark.parametrize("oldest", [(2, 14), (2, 15)])
async def test_a_region_that_comes_again_begins_after_what_others_took_of_it(oldest: tuple[int, int]) -> None:
    """Also where servers notice that its write stream is new: positions of consumers name the sequences of the old one."""
    two = render_streams({"foo": {"subjects": ["foo.>"], "regions": ["west", "central"]}})
    servers = await world(two)
    for name in ("foo-read-west", "foo-read-central", "foo-write-west"):
        servers.hold(name, 5)
    bundle = render_streams()
    made = make_plan("acme", bundle, servers.observe(), server_version=oldest)
    creates = {change.config.name: change.readers for change in made.changes if isinstance(change, Create)}
    assert creates["foo-write-east"] == ("foo-read-central", "foo-read-west")
    assert creates["foo-read-east"] == ()


async def test_the_work_of_a_plan_grows_with_the_streams_and_no_faster() -> None:
    async def count(streams: int) -> int:
        of = check_topology(many_streams(streams), "t.yaml").require()
        desired = render_bundle(of)
        observed = (await world(desired)).observe()
        return count_calls(lambda: diff(of, desired, observed))

    assert await count(40) < 4.5 * await count(10)


async def test_a_note_on_a_rename_counts_what_is_deleted_with_the_former_stream() -> None:
    servers = await world(render_streams())
    servers.hold("foo-read-west", 1_234)
    renamed = plan(render_streams({"bar": {"subjects": ["foo.>"]}}), servers.observe())
    (note,) = [note for note in renamed.notes if note.name == "bar"]
    assert note.text.startswith("has the shape of `foo`, which goes.")
    assert "what `foo` holds (1,234 messages) is deleted" in note.text
