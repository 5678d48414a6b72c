"""Stages and gates of a plan, and a new region's read stream that begins as a copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, make_refusal, no_answer, read_back, render_streams, servers_with
from vstream.apply import retry, wait_for_gates
from vstream.apply.execute import execute_plan
from vstream.apply.result import ApplyResult
from vstream.cli.views import apply as apply_view
from vstream.cli.views import plan as view
from vstream.errors import StalePlanError, VstreamError
from vstream.plan.model import Gate, GateKind, Plan, TransitionStep, Update
from vstream.plan.saved import require_same, to_dict
from vstream.plan.stages import Stage, list_stages, stage_after, stage_as_dict, stage_of
from vstream.topology.bundle import Bundle
from vstream.topology.model import Role
from vstream.topology.stream_config import StreamConfig, parse_noted_messages

TWO = ["west", "central"]
ALL = ["west", "central", "east"]
POSITIONS = {"foo-write-west": 41, "foo-write-central": 1, "foo-write-east": 0}


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(wait_for_gates, "GATE_POLL_SECONDS", 0.0)


def regions(names: list[str], **over: Any) -> Bundle:
    return render_streams({"foo": {"subjects": ["foo.>"], "regions": names}}, **over)


def plan_change(servers: FakeServers, wanted: Bundle, version: tuple[int, int] = (2, 12)) -> Plan:
    return make_plan("acme", wanted, servers.observe(), server_version=version)


async def run(servers: FakeServers, wanted: Bundle, patience: float = 5.0) -> ApplyResult:
    plan = plan_change(servers, wanted)
    return await execute_plan(plan, servers.administer(wanted, does_resync=True), gate_timeout=patience)


async def servers_in(names: list[str], messages: int = 100) -> FakeServers:
    servers = FakeServers()
    topology = regions(names)
    for server in topology.servers:
        servers.rules[server.server.name] = {}
    assert (await run(servers, topology)).is_complete
    for name in servers.streams_by_name:
        servers.hold(name, messages)
    servers.positions["foo-read-east"] = POSITIONS
    servers.calls.clear()
    return servers


def starts(config: StreamConfig) -> dict[str, Any]:
    sources = config.fields["sources"]
    assert isinstance(sources, list)
    return {str(source["name"]): source.get("opt_start_seq") for source in sources if isinstance(source, dict)}


async def test_a_region_goes_in_stages_with_gates_between_them() -> None:
    servers = await servers_in(ALL)
    assert (await run(servers, regions(TWO))).is_complete
    assert servers.calls == [
        "load mappings",
        "gate readers_have_all foo-write-east",
        "update foo-read-central",
        "update foo-read-west",
        "gate nothing_has_arrived_since foo-write-east",
        "delete foo-read-east",
        "delete foo-write-east",
    ]


async def test_positions_are_read_again_while_a_leader_is_elected() -> None:
    servers = await servers_in(TWO)
    servers.failures["positions foo-read-east"] = [make_refusal(10008, 503)] * 5 + [no_answer()] * 2
    assert (await run(servers, regions(ALL))).is_complete


async def test_a_change_whose_positions_nobody_tells_was_not_tried() -> None:
    servers = await servers_in(TWO)
    servers.failures["positions foo-read-east"] = [no_answer()] * 3
    applied = await run(servers, regions(ALL))
    assert not applied.uncertain
    assert "foo-read-east" in {change.config.name for change in applied.skipped}
    assert str(applied.failure) == str(no_answer())
    assert "update foo-read-east" not in servers.calls


async def test_a_region_comes_as_a_copy_that_then_sources() -> None:
    servers = await servers_in(TWO)
    assert (await run(servers, regions(ALL))).is_complete
    assert servers.calls == [
        "create foo-write-east",
        "update foo-read-central",
        "create foo-read-east",
        "update foo-read-west",
        "gate copy_is_complete foo-read-east",
        "update foo-read-east",
        "gate sourced_messages_are_stored foo-read-east",
        "update foo-read-east",
        "gate has_all_of_sources foo-read-east",
        "load mappings",
    ]
    made = servers.streams_by_name["foo-read-east"].config
    assert made.mirror_name is None
    expected = {"foo-write-west": 41, "foo-write-central": None, "foo-write-east": None}
    assert starts(made) == expected
    assert not any(key.startswith(("vstream.copy", "vstream.from")) for key in made.metadata)
    # Where a source began is no drift, and later changes keep it.
    assert plan_change(servers, regions(ALL)).is_empty
    changed = render_streams({"foo": {"subjects": ["foo.>"], "regions": ALL, "description": "new"}})
    update = next(change for change in plan_change(servers, changed).changes if change.config.name == "foo-read-east")
    assert isinstance(update.config, StreamConfig)
    assert starts(update.config) == expected


def render_scaled(replicas: int, **stream: Any) -> Bundle:
    """One virtual stream whose write streams have *replicas*."""
    return render_streams(
        {"foo": {"subjects": ["foo.>"], "write": {"replicas": replicas}, "read": {"replicas": 1}, **stream}},
        regions={region: {"servers": 3} for region in ALL},
        stretch={"members": "all"},
    )


async def test_readers_of_what_is_scaled_are_resynced_once_it_has_settled() -> None:
    servers = await servers_with(render_scaled(1))
    plan = plan_change(servers, render_scaled(3))
    (writes, resynced, compared) = list_stages(plan)
    assert len(writes.changes) == 3
    assert not compared.changes
    assert (resynced.title, resynced.counts) == ("resync readers", "3 to resync")
    assert "`foo-write-west` is where it is placed, with all of its replicas" in resynced.waits
    assert stage_as_dict(resynced)["readers"] == ("foo-read-central", "foo-read-east", "foo-read-west")
    result = await run(servers, render_scaled(3))
    assert (result.is_complete, len(result.resynced)) == (True, 3)
    assert servers.calls == [
        *(f"update foo-write-{region}" for region in sorted(ALL)),
        *(f"gate replicas_are_current foo-write-{region}" for region in sorted(ALL)),
        "resync foo-read-central foo-read-east foo-read-west",
        *(f"gate replicas_are_complete foo-write-{region}" for region in sorted(ALL)),
        *(f"update foo-write-{region}" for region in sorted(ALL)),  # which forgets that this was to be done
    ]
    # Only where one replica was all that there was.
    assert all(gate.kind is not GateKind.REPLICAS_ARE_COMPLETE for gate in plan_change(servers, render_scaled(1)).gates)


async def test_new_replicas_are_compared_whatever_else_changes_and_by_the_next_run_if_that_failed() -> None:
    """A read stream that is scaled up drops a source at the same time, which is done late."""

    def render_read(names: list[str], replicas: int, **stream: str) -> Bundle:
        foo = {"subjects": ["foo.>"], "regions": names, "read": {"replicas": replicas}, **stream}
        return render_streams({"foo": foo}, regions={region: {"servers": 3} for region in ALL})

    servers = await servers_with(render_read(ALL, 1))
    desired = render_read(TWO, 3)
    lacking = VstreamError("the replica on `west-2` lacks messages")
    servers.failures["gate replicas_are_complete foo-read-west"] = [lacking]
    assert (await run(servers, desired)).failure is lacking
    order = [servers.calls.index(f"{call} foo-read-west") for call in ("update", "gate replicas_are_complete")]
    assert order == sorted(order)
    assert not any(call.startswith("delete") for call in servers.calls)
    noted = servers.streams_by_name["foo-read-west"].config.metadata
    assert "vstream.scaled" in noted
    # What changes besides does not make it forget that, and only what holds is not asked again.
    servers.failures["gate replicas_are_complete foo-read-west"] = [lacking]
    desired = render_read(TWO, 3, description="new")
    assert (await run(servers, desired)).failure is lacking
    servers.calls.clear()
    assert (await run(servers, desired)).is_complete
    assert "gate replicas_are_complete foo-read-west" in servers.calls
    assert not any("vstream.scaled" in stream.config.metadata for stream in servers.streams_by_name.values())
    assert not plan_change(servers, desired).has_work


async def test_servers_record_what_moves_to_them_before_it_has_left_the_others() -> None:
    """Readers may be resynced for half a minute after that."""

    def render_homed(home: str) -> Bundle:
        return render_streams({"foo": {"subjects": ["foo.>"], "consistency": "homed", "home": home}})

    servers = await servers_with(render_homed("west"))
    servers.gate_timeouts["move_is_recorded foo"] = ["east-1 has not recorded that `foo` is there"]
    servers.gate_timeouts["replicas_are_current foo"] = ["it has 2 replicas on its way to 1"] * 3
    result = await run(servers, render_homed("east"))
    assert result.is_complete
    recorded = servers.calls.index("gate move_is_recorded foo")
    (resynced,) = (index for index, call in enumerate(servers.calls) if call.startswith("resync"))
    assert recorded < resynced
    assert servers.calls.index("note foo") < servers.calls.index("update foo")


async def test_what_settles_later_is_resynced_later() -> None:
    servers = await servers_with(render_scaled(1))
    servers.gate_timeouts["replicas_are_current foo-write-west"] = ["on its way", "on its way"]
    assert (await run(servers, render_scaled(3))).is_complete
    resyncs = [call for call in servers.calls if call.startswith("resync")]
    assert resyncs == ["resync foo-read-central foo-read-east foo-read-west"] * 2


async def test_readers_of_what_has_kept_its_leader_are_left_alone() -> None:
    servers = await servers_with(render_scaled(1))
    servers.moves = False
    result = await run(servers, render_scaled(3))
    assert (result.is_complete, result.resynced) == (True, ())
    assert not any(call.startswith("resync") for call in servers.calls)


async def test_a_resync_that_fails_ends_nothing() -> None:
    servers = await servers_with(render_scaled(1))
    servers.failures["resync foo-read-central foo-read-east foo-read-west"] = [no_answer()]
    result = await run(servers, render_scaled(3))
    assert (result.is_complete, result.resynced, result.not_resynced) == (True, (), ("no answer within 10 s",))
    assert "not resynced: no answer within 10 s" in "\n".join(
        line.plain for line in apply_view.render_applied(result, "mappings.cfg")
    )


async def test_a_move_that_takes_longer_ends_nothing() -> None:
    servers = await servers_with(render_scaled(1))
    servers.gate_timeouts["replicas_are_current foo-write-west"] = ["on its way"] * 99
    result = await run(servers, render_scaled(3), patience=0.0)
    assert (result.is_complete, result.not_resynced) == (True, ("on its way",))


async def test_a_write_stream_that_gets_no_leader_is_not_done(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = await servers_with(render_scaled(1))
    servers.gate_timeouts["replicas_are_current foo-write-west"] = ["it has no leader"] * 99

    async def say_leader(stream: str) -> str | None:
        return None if stream == "foo-write-west" else "leader"

    monkeypatch.setattr(servers, "leader", say_leader)
    result = await run(servers, render_scaled(3), patience=0.0)
    assert [(shut.gate.stream, shut.missing) for shut in result.gate_timeouts] == [
        ("foo-write-west", "it has no leader")
    ]
    assert not result.is_complete


async def test_who_mirrors_an_ordering_stream_is_resynced_too() -> None:
    ordered = {"consistency": "ordered"}
    servers = await servers_with(render_scaled(1, **ordered))
    assert set(plan_change(servers, render_scaled(3, **ordered)).readers_to_resync) > {
        "foo-read-west",
        "foo-read-east",
    }


async def test_nothing_is_resynced_where_nothing_moves() -> None:
    servers = await servers_with(render_scaled(1))
    assert plan_change(servers, render_scaled(1, description="new")).readers_to_resync == ()
    assert plan_change(servers, render_scaled(1, read={"replicas": 3})).readers_to_resync == ()


NOW = datetime(2026, 1, 1, tzinfo=UTC)


async def servers_killed_after_a_move(
    origin: Mapping[str, Any], reader: Mapping[str, Any], **stream: Any
) -> FakeServers:
    """All is as it is to be, and west's write stream and the first stream that takes from it say this of themselves."""
    servers = await servers_with(render_scaled(3, read={"replicas": 3}, **stream))
    takers = [
        name for name, stream in servers.streams_by_name.items() if "foo-write-west" in stream.config.source_names
    ]
    fields = {"at": NOW, "replicas": 3, "leader_since": NOW - timedelta(hours=1)}
    heard = {"silence_by_source": {"foo-write-west": timedelta(seconds=1)}}
    for name, more in (("foo-write-west", origin), (takers[0], {**heard, **reader})):
        servers.streams_by_name[name] = replace(servers.streams_by_name[name], **{**fields, **more})
    return servers


@pytest.mark.parametrize(
    ("origin", "reader", "number"),
    [
        ({}, {}, 0),
        ({"leader_since": NOW}, {}, 1),
        ({"leader_since": NOW}, {"silence_by_source": {}}, 0),  # it has heard of nobody yet
        ({"leader_since": NOW}, {"replicas": 1}, 0),  # nobody else can lead it
        ({"leader_since": None}, {}, 0),
        ({"leader_since": None}, {"silence_by_source": {"foo-write-west": timedelta(seconds=4)}}, 1),
        ({"replicas": 6}, {}, 3),
        ({"replicas": 1}, {}, 3),
        ({"replicas": 2}, {}, 0),  # a server is dead for good
    ],
)
async def test_what_a_killed_run_has_moved_is_seen_and_its_readers_resynced_by_the_next(
    origin: Mapping[str, Any], reader: Mapping[str, Any], number: int
) -> None:
    servers = await servers_killed_after_a_move(origin, reader)
    desired = render_scaled(3, read={"replicas": 3})
    plan = plan_change(servers, desired)
    assert (plan.is_empty, plan.has_work, len(plan.readers_to_resync)) == (True, number > 0, number)
    assert ("to resync" in view.summarize(plan)) is (number > 0)
    assert len([*list_stages(plan)]) == (number > 0)
    result = await run(servers, desired)
    assert (result.is_complete, result.resynced) == (True, plan.readers_to_resync)
    # A reviewed plan holds although readers have heard of it meanwhile.
    require_same(replace(plan, interrupted_gates=()), read_back(plan))


async def test_who_mirrors_what_a_killed_run_has_not_resynced_is_resynced_too() -> None:
    servers = await servers_killed_after_a_move({"leader_since": NOW}, {}, consistency="ordered")
    plan = plan_change(servers, render_scaled(3, read={"replicas": 3}, consistency="ordered"))
    assert plan.readers_to_resync == ("foo-order-stretch", "foo-read-central", "foo-read-east", "foo-read-west")


@pytest.mark.parametrize(("passed", "is_recorded"), [(3, True), (90, False)])
async def test_what_a_killed_run_has_moved_is_recorded_by_the_next_whoever_leads_it_now(
    passed: float, *, is_recorded: bool
) -> None:
    """Nothing else tells that a stream with one replica has come from elsewhere."""
    servers = await servers_with(streams_at("west"))
    moved = streams_at("east")
    plan = plan_change(servers, moved)
    (move,) = [change for change in plan.changes if change.config.name == "foo"]
    await execute_plan(replace(plan, changes=(move,), gates=(), rule_changes=()), servers.administer(None))
    assert parse_noted_messages(servers.streams_by_name["foo"].config) == {1: "t1", 7: "t7"}
    observed = replace(servers.observe(), at=datetime.now(UTC) + timedelta(seconds=passed))
    left = make_plan("acme", moved, observed)
    assert "foo" not in {change.config.name for change in left.changes}
    assert [gate.kind for gate in left.interrupted_gates] == [GateKind.MOVE_IS_RECORDED] * is_recorded
    alone = replace(left, changes=(), gates=(), rule_changes=())
    assert ("have recorded what has just moved" in view.summarize(alone)) is is_recorded
    assert (await execute_plan(alone, servers.administer(None))).is_complete
    assert ("gate move_is_recorded foo" in servers.calls) is is_recorded


@pytest.mark.parametrize("has_begun", [True, False])
async def test_what_has_moved_and_is_recorded_leaves_nothing_to_do(*, has_begun: bool) -> None:
    """Nothing is sent to what has not begun to move: an update would leave it without a leader."""
    servers = await servers_with(streams_at("west"))
    servers.moves = has_begun
    plan = plan_change(servers, streams_at("east"))
    (move,) = [change for change in plan.changes if change.config.name == "foo"]
    gates = tuple(gate for gate in plan.gates if gate.kind is GateKind.MOVE_IS_RECORDED)
    alone = replace(plan, changes=(move,), gates=gates, rule_changes=())
    assert (await execute_plan(alone, servers.administer(None))).is_complete
    left = make_plan("acme", streams_at("east"), replace(servers.observe(), at=datetime.now(UTC)))
    assert [gate.kind for gate in left.interrupted_gates] == [GateKind.MOVE_IS_RECORDED] * (not has_begun)
    assert servers.calls.count("update foo") == 1 + has_begun
    assert parse_noted_messages(servers.streams_by_name["foo"].config) == {1: "t1", 7: "t7"}


def streams_at(home: str) -> Bundle:
    foo = {"subjects": ["foo.>"], "regions": [home], "consistency": "homed", "home": home}
    return render_streams({"foo": foo}, regions={name: {"servers": 1} for name in ALL})


class KilledError(Exception):
    """As kill -9: nothing in vstream catches it."""


class DyingServers(FakeServers):
    """Nothing can be asked of them after so many calls."""

    left = 0

    def _answer(self, call: str) -> None:
        if not self.left:
            raise KilledError
        self.left -= 1
        super()._answer(call)


@pytest.mark.parametrize(("before", "after"), [(TWO, ALL), (ALL, TWO)])
async def test_killed_before_any_request_the_next_run_goes_on(before: list[str], after: list[str]) -> None:
    for calls in range(5 if after is TWO else 7):
        servers = await servers_in(before)
        dying = DyingServers()
        dying.__dict__ = servers.__dict__
        dying.left = calls
        with pytest.raises(KilledError):
            await run(dying, regions(after))
        created = {name: stream.created for name, stream in servers.streams_by_name.items()}
        assert (await run(servers, regions(after))).is_complete
        assert plan_change(servers, regions(after)).is_empty
        now = {name: stream.created for name, stream in servers.streams_by_name.items()}
        assert {name: now[name] for name in now if name in created} == {
            name: created[name] for name in now if name in created
        }
        read = servers.streams_by_name[f"foo-read-{after[-1]}"].config
        assert sorted(read.source_names) == sorted(f"foo-write-{name}" for name in after)


async def test_a_gate_that_does_not_hold_ends_it_and_says_what_is_missing() -> None:
    servers = await servers_in(ALL)
    servers.gate_timeouts["readers_have_all foo-write-east"] = [
        "`foo-read-west` is at 3 of 9 in `foo-write-east`"
    ] * 1000
    applied = await run(servers, regions(TWO), patience=0.0)
    assert [gate_timeout.missing for gate_timeout in applied.gate_timeouts] == [
        "`foo-read-west` is at 3 of 9 in `foo-write-east`"
    ]
    assert not applied.is_complete
    assert len(applied.skipped) == 4
    assert servers.calls[-1] != "update foo-read-west"
    assert not [call for call in servers.calls if call.startswith("delete")]
    shown = " ".join(line.plain for line in apply_view.render_applied(applied, "mappings.cfg"))
    assert "is at 3 of 9" in shown
    servers.gate_timeouts.clear()
    assert (await run(servers, regions(TWO))).is_complete


async def test_a_gate_that_holds_after_a_while_is_waited_for() -> None:
    servers = await servers_in(ALL)
    servers.gate_timeouts["readers_have_all foo-write-east"] = ["not yet"] * 3
    assert (await run(servers, regions(TWO))).is_complete
    assert servers.calls.count("gate readers_have_all foo-write-east") == 4


async def test_old_servers_cannot_make_a_read_stream_out_of_a_copy_and_the_plan_says_so() -> None:
    plan = plan_change(await servers_in(TWO), regions(ALL), (2, 11))
    assert not [gate for gate in plan.gates if gate.stream == "foo-read-east"]
    assert [note.name for note in plan.notes] == ["foo-read-east"]
    assert "what the write streams still hold" in plan.notes[0].text


async def test_nothing_is_copied_where_there_is_nothing_to_copy() -> None:
    servers = await servers_in(TWO, messages=0)
    assert not plan_change(servers, regions(ALL)).gates


async def test_a_whole_stream_that_goes_has_no_readers_to_wait_for() -> None:
    assert not plan_change(await servers_in(ALL), render_streams({})).gates


async def test_stages_are_shown_in_order_and_saved() -> None:
    plan = plan_change(await servers_in(ALL), regions(TWO))
    names = [stage.stage.name.lower() for stage in list_stages(plan)]
    assert names == ["load_mappings", "remove_sources", "delete_read_streams", "delete_write_streams"]
    dropped = stage_as_dict(list(list_stages(plan))[1])
    assert dropped["gates"] == [
        {"gate": "mappings_are_loaded"},
        {"gate": "readers_have_all", "stream": "foo-write-east", "counterparts": ("foo-read-central", "foo-read-west")},
    ]
    lines = [line.plain for line in view.render_plan(plan)]
    first, wait, second = (
        next(number for number, line in enumerate(lines) if text in line)
        for text in ("1 load mappings", "have everything of `foo-write-east`", "2 remove sources")
    )
    assert first < wait < second
    shown = view.render_markdown(plan, "routing: mapped")
    assert "| 2 | remove sources: 2 to update |" in shown
    assert "\nrouting: mapped\n" in shown


async def test_a_saved_plan_has_its_gates_and_steps() -> None:
    plan = plan_change(await servers_in(TWO), regions(ALL))
    for reviewed in (read_back(plan), to_dict(plan)):
        require_same(plan, reviewed)
        with pytest.raises(StalePlanError):
            require_same(replace(plan, gates=plan.gates[1:]), reviewed)


class FakeRacks:
    """ServerAdmin that remembers what it was asked for."""

    def __init__(self) -> None:
        self.retired: list[str] = []

    async def retire(self, servers: Sequence[str]) -> None:
        self.retired.extend(servers)


async def test_servers_that_leave_go_last_and_only_if_all_before_was_done() -> None:
    servers, racks = await servers_in(ALL), FakeRacks()
    topology = regions(TWO)
    plan = replace(plan_change(servers, topology), leaving_servers=("east-1",))
    assert [stage.stage.name for stage in list_stages(plan)][-1] == "REMOVE_SERVERS"
    servers.gate_timeouts["nothing_has_arrived_since foo-write-east"] = [
        "1 messages have come into `foo-write-east`"
    ] * 1000
    applied = await execute_plan(plan, servers.administer(topology, servers=racks), gate_timeout=0.0)
    assert (applied.retired, racks.retired) == ((), [])
    servers.gate_timeouts.clear()
    again = replace(plan_change(servers, topology), leaving_servers=("east-1",))
    applied = await execute_plan(again, servers.administer(topology, servers=racks))
    assert applied.is_complete
    assert (applied.retired, racks.retired) == (("east-1",), ["east-1"])
    require_same(again, read_back(again))
    only = replace(plan, changes=(), rule_changes=())
    assert not only.is_empty
    assert only.is_destructive
    # Whatever their mappings send elsewhere must not come to servers that are gone.
    assert [stage.waits_for_mappings for stage in list_stages(replace(only, gates=()))] == [True]


async def test_an_order_that_is_made_again_begins_after_its_mirrors_and_takes_nothing_again() -> None:
    ordered = {"subjects": ["foo.>"], "regions": TWO, "consistency": "ordered", "virtual_name": "order"}
    bundle = render_streams(
        {"foo": ordered}, regions={name: {"servers": 3} for name in ALL}, stretch={"members": "all"}
    )
    servers = await servers_with(bundle)
    del servers.streams_by_name["foo"]
    servers.streams_by_name["foo-read-west"] = replace(servers.streams_by_name["foo-read-west"], last_seq=90)
    servers.positions = {"foo-read-west": {"foo": 91, "foo-write-west": 41, "foo-write-central": 51}}
    (note,) = plan_change(servers, bundle).notes
    assert (note.name, "begins empty, after the end of `foo-read-west`" in note.text) == ("foo", True)
    assert (await run(servers, bundle)).is_complete
    made = servers.streams_by_name["foo"].config
    assert (made.first_seq, starts(made)) == (91, {"foo-write-west": 41, "foo-write-central": 51})
    assert plan_change(servers, bundle).is_empty


async def test_a_write_stream_that_is_made_again_begins_after_what_its_readers_took() -> None:
    servers = await servers_in(TWO)
    del servers.streams_by_name["foo-write-west"]
    servers.positions = {f"foo-read-{name}": {"foo-write-west": at} for name, at in (("west", 41), ("central", 38))}
    plan = plan_change(servers, regions(TWO))
    require_same(plan, read_back(plan))
    assert any(
        "starts after the last message that foo-read-central, foo-read-west sourced" in line.plain
        for line in view.render_plan(plan)
    )
    # Also those of which everything has expired know how far they were.
    empty = replace(servers.streams_by_name["foo-read-west"], messages=0, last_seq=41)
    servers.streams_by_name["foo-read-west"] = empty
    assert plan_change(servers, regions(TWO)) == plan
    assert (await run(servers, regions(TWO))).is_complete
    assert servers.streams_by_name["foo-write-west"].config.fields["first_seq"] == 41
    # That is no drift, and later changes keep it.
    assert plan_change(servers, regions(TWO)).is_empty
    changed = render_streams({"foo": {"subjects": ["foo.>"], "regions": TWO, "description": "new"}})
    update = next(change for change in plan_change(servers, changed).changes if change.config.name == "foo-write-west")
    assert update.config.fields["first_seq"] == 41


@pytest.mark.parametrize("kind", GateKind)
def test_every_gate_says_what_must_hold(kind: GateKind) -> None:
    clause = str(Gate(kind=kind, stream="foo-write-west", counterparts=("foo-read-east",)))
    assert "`foo-write-west`" in clause
    assert "{" not in clause
    assert kind.value == kind.name.lower()
    assert stage_after(Gate(kind=kind, stream="foo-write-west")) in Stage


@pytest.mark.parametrize("step", TransitionStep)
def test_every_step_has_a_stage(step: TransitionStep) -> None:
    config = StreamConfig(name="foo-write-west", fields={})
    assert stage_of(Update(config=config, region="west", role=Role.WRITE, fields=(), step=step)) in Stage
