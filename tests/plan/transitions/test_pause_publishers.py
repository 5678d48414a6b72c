"""A stream takes no publishes while it moves or is scaled up, where servers may lose what it holds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, make_refusal, no_answer, render_streams, servers_with
from vstream.apply import execute, retry, wait_for_gates
from vstream.apply.execute import execute_plan
from vstream.apply.result import ApplyObserver, ApplyResult
from vstream.cli.views import apply as apply_view
from vstream.cli.views import plan as view
from vstream.errors import RefusedError
from vstream.plan import saved
from vstream.plan.live.gate_checks import find_missing_quorum, was_just_moved
from vstream.plan.model import Delete, Gate, GateKind, Plan
from vstream.plan.stages import list_stages
from vstream.plan.transitions.pause_publishers import select_resumptions
from vstream.topology.bundle import OPERATOR_PATH, Bundle
from vstream.topology.model import Role

WRITE, READ = "foo-write-west", "foo-read-west"
PAUSED = ("_vs.paused.foo-write-west",)
ONE: Mapping[str, Any] = {"replicas": 1}
MOVED: Mapping[str, Any] = {"replicas": 1, "placement_tags": ["ssd"]}
CHANGES = ({"replicas": 3}, MOVED)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(wait_for_gates, "GATE_POLL_SECONDS", 0.0)


def render(write: Mapping[str, Any] = ONE, **stream: Any) -> Bundle:
    foo = {"subjects": ["foo.>"], "write": write, "read": {"replicas": 1}, **stream}
    return render_streams({"foo": foo}, regions={"west": {"servers": 3, "tags": ["ssd", "ssd", "ssd"]}})


async def servers_of(*versions: str, messages: int = 7) -> FakeServers:
    """Servers of these *versions*, the last of which all others run, too."""
    servers = await servers_with(render())
    servers.versions["west"] = index_versions(*versions)
    for name, stream in servers.streams_by_name.items():
        servers.streams_by_name[name] = replace(stream, cluster="west", messages=messages)
    return servers


async def servers_with_paused_stream() -> FakeServers:
    """As an earlier run that was killed has left them."""
    servers = await servers_of("2.12.8")
    stream = servers.streams_by_name[WRITE]
    servers.streams_by_name[WRITE] = replace(stream, config=stream.config.with_fields(subjects=[*PAUSED]))
    return servers


def index_versions(*versions: str) -> Mapping[str, str]:
    return {f"west-{number}": versions[min(number, len(versions)) - 1] for number in (1, 2, 3)}


def plan_change(servers: FakeServers, desired: Bundle) -> Plan:
    return make_plan("acme", desired, servers.observe())


async def run(servers: FakeServers, desired: Bundle, patience: float = 5.0) -> ApplyResult:
    administration = servers.administer(desired, does_resync=True)
    return await execute_plan(plan_change(servers, desired), administration, gate_timeout=patience)


@pytest.mark.parametrize("write", CHANGES)
async def test_it_is_paused_at_rest_changed_held_and_resumed(write: Mapping[str, Any]) -> None:
    servers = await servers_of("2.14.6")
    desired = render(write, description="new")
    plan = plan_change(servers, desired)
    assert [stage.title for stage in list_stages(plan)][:3] == [
        "pause streams",
        "change write streams",
        "resume streams",
    ]
    result = await run(servers, desired)
    assert result.is_complete
    assert "Applied: 2 streams, 1 reader resynced." in [line.plain for line in apply_view.render_applied(result, "")]
    calls = [call for call in servers.calls if call.endswith(WRITE)]
    assert [
        call for call in calls if call.startswith(("update", "gate publishes_are_stored", "gate quorum_is_current"))
    ] == [
        f"update {WRITE}",
        f"gate publishes_are_stored {WRITE}",
        f"update {WRITE}",
        f"gate quorum_is_current {WRITE}",
        f"update {WRITE}",
        f"update {WRITE}",  # which forgets that replicas were to be compared, or a move to be recorded
    ]
    stored = servers.streams_by_name[WRITE].config
    assert stored.subjects == next(stream for stream in desired.streams if stream.config.name == WRITE).config.subjects
    assert {"vstream.moved", "vstream.scaled"}.isdisjoint(stored.metadata)
    assert plan_change(servers, desired).is_empty


@pytest.mark.parametrize(
    ("versions", "messages", "is_paused"),
    [
        (("2.10.26",), 7, False),
        (("2.11.0",), 7, True),
        (("2.15.1",), 7, False),
        (("",), 7, True),
        (("2.12.8",), 0, True),  # clients may publish between the plan and the change
        (("2.15.1", "2.14.6", "2.15.1"), 7, True),  # servers are upgraded one by one
        (("2.10.26", "2.12.8"), 7, True),
        (("2.15.1", ""), 7, True),
    ],
)
async def test_only_what_may_lose_messages_is_paused(
    versions: tuple[str, ...], messages: int, *, is_paused: bool
) -> None:
    servers = await servers_of(*versions, messages=messages)
    kinds = {gate.kind for gate in plan_change(servers, render(CHANGES[0])).gates}
    assert (GateKind.QUORUM_IS_CURRENT in kinds) is is_paused
    # Clients publish into write streams only, and more replicas than one have agreed on what they hold.
    assert GateKind.QUORUM_IS_CURRENT not in {
        gate.kind for gate in plan_change(servers, render(read={"replicas": 3})).gates
    }
    three = await servers_with(render(CHANGES[0]))
    three.versions["west"] = index_versions(*versions)
    three.streams_by_name[WRITE] = replace(three.streams_by_name[WRITE], cluster="west", messages=7)
    for write in (ONE, {**MOVED, "replicas": 3}):
        assert GateKind.QUORUM_IS_CURRENT not in {gate.kind for gate in plan_change(three, render(write)).gates}


async def test_servers_that_nobody_asked_are_as_new_as_the_topology_says() -> None:
    servers = await servers_of("2.15.1", "")
    for oldest, is_paused in (((2, 14), True), ((2, 15), False)):
        plan = make_plan("acme", render(CHANGES[0]), servers.observe(), server_version=oldest)
        assert (GateKind.QUORUM_IS_CURRENT in {gate.kind for gate in plan.gates}) is is_paused


class KilledError(Exception):
    """As kill -9: nothing in vstream catches it."""


class DyingServers(FakeServers):
    """Nothing can be asked of them after so many updates of the write stream, or right before one."""

    left = 0
    does_last = False

    async def update(self, config: Any) -> None:
        if config.name == WRITE:
            self.left -= 1
            if self.left < 0 and not self.does_last:
                raise KilledError
        await super().update(config)
        if config.name == WRITE and self.left < 0:
            raise KilledError


@pytest.mark.parametrize("write", CHANGES)
async def test_killed_before_or_after_any_step_the_next_run_goes_on(write: Mapping[str, Any]) -> None:
    desired = render(write)
    for does_last in (False, True):
        for updates in range(3):
            servers = await servers_of("2.12.8")
            dying = DyingServers()
            dying.__dict__ = servers.__dict__
            dying.left, dying.does_last = updates, does_last
            with pytest.raises(KilledError):
                await run(dying, desired)
            paused = servers.streams_by_name[WRITE].config.subjects == PAUSED
            assert paused is (0 < updates + does_last < 3)
            servers.calls.clear()
            shown = [line.plain for line in view.render_plan(plan_change(servers, desired))]
            assert any("safe: publishers go on, once it is all there" in line for line in shown) is (
                updates + does_last < 3
            )
            assert (await run(servers, desired)).is_complete
            assert plan_change(servers, desired).is_empty
            if paused:
                (held, resumed) = (
                    servers.calls.index(f"{call} {WRITE}") for call in ("gate quorum_is_current", "update")
                )
                if updates + does_last == 1:
                    assert servers.calls.index(f"gate publishes_are_stored {WRITE}") < resumed < held
                else:
                    assert held < resumed
                    assert (f"gate replicas_are_complete {WRITE}" in servers.calls) is (write["replicas"] == 3)


@pytest.mark.parametrize("write", CHANGES)
async def test_it_resumes_where_servers_refuse_the_change(write: Mapping[str, Any]) -> None:
    servers = await servers_of("2.12.8")
    before = servers.streams_by_name[WRITE].config.fields

    class RefusingServers(FakeServers):
        async def update(self, config: Any) -> None:
            if config.fields["num_replicas"] == 3 or config.fields["placement"] != before["placement"]:
                raise make_refusal()
            await super().update(config)

    refusing = RefusingServers()
    refusing.__dict__ = servers.__dict__
    result = await run(refusing, render(write))
    assert ([change.config.name for change in result.refused], result.is_complete) == ([WRITE], False)
    assert servers.streams_by_name[WRITE].config.fields == before
    assert result.list_paused() == ()


async def test_it_is_not_touched_where_it_cannot_be_paused() -> None:
    servers = await servers_of("2.12.8")
    servers.failures[f"update {WRITE}"] = [make_refusal()]
    result = await run(servers, render(CHANGES[0]))
    assert (len(result.refused), len(result.skipped), result.list_paused()) == (1, 2, ())
    assert servers.calls.count(f"update {WRITE}") == 1


async def test_it_stays_paused_while_its_new_servers_lack_something() -> None:
    servers = await servers_of("2.12.8")
    servers.gate_timeouts[f"quorum_is_current {WRITE}"] = ["west-2 holds nothing yet"] * 99
    result = await run(servers, render(CHANGES[0]), patience=0.0)
    assert [timeout.missing for timeout in result.gate_timeouts] == ["west-2 holds nothing yet"]
    assert servers.streams_by_name[WRITE].config.subjects == PAUSED
    first, todo, *_ = [line.plain for line in apply_view.render_applied(result, "mappings.cfg")]
    assert first == f'`{WRITE}` takes no publishes now: publishers get "no responders".'
    assert "Run `vstream apply` again" in todo
    # Also where the change is taken back meanwhile.
    servers.gate_timeouts.clear()
    assert (await run(servers, render())).is_complete
    assert servers.streams_by_name[WRITE].config.subjects != PAUSED
    assert plan_change(servers, render()).is_empty


@pytest.mark.parametrize(("write", "attempts"), [(CHANGES[0], 3), (MOVED, 1)])
async def test_it_stays_paused_where_the_change_may_have_been_made(write: Mapping[str, Any], attempts: int) -> None:
    """A move that is sent again while it goes on, or changed back, leaves the stream without a leader."""
    servers = await servers_of("2.12.8")
    sent: list[str] = []

    class SilentServers(FakeServers):
        async def update(self, config: Any) -> None:
            sent.append(config.name)
            if len(sent) > 1:
                raise no_answer()
            await super().update(config)

    silent = SilentServers()
    silent.__dict__ = servers.__dict__
    result = await run(silent, render(write))
    assert ([change.config.name for change in result.uncertain], len(sent)) == ([WRITE], 1 + attempts)
    assert result.list_paused() == (WRITE,)
    assert servers.streams_by_name[WRITE].config.subjects == PAUSED
    assert (await run(servers, render(write))).is_complete


async def test_what_does_not_need_it_is_done_while_it_stays_paused() -> None:
    """But nothing is removed: what goes may hold what its new servers lack."""
    bar = {"subjects": ["bar.>"], "write": ONE, "read": {"replicas": 1}}
    regions = {"west": {"servers": 3}}
    foo = {"subjects": ["foo.>"], "write": CHANGES[0], "read": {"replicas": 1}}
    before = render_streams({"foo": {**foo, "write": ONE}, "bar": bar}, regions=regions)
    after = render_streams({"foo": foo, "new": {**bar, "subjects": ["new.>"]}}, regions=regions)
    servers = await servers_with(before)
    servers.versions["west"] = index_versions("2.12.8")
    for name, stream in servers.streams_by_name.items():
        servers.streams_by_name[name] = replace(stream, cluster="west")
    servers.gate_timeouts[f"quorum_is_current {WRITE}"] = ["west-2 holds nothing yet"] * 99
    result = await run(servers, after, patience=0.0)
    assert [timeout.gate.kind for timeout in result.gate_timeouts] == [GateKind.QUORUM_IS_CURRENT]
    assert {"new-write-west", "new-read-west"} < {change.config.name for change in result.done}
    # They may lead the publishers of another region to it.
    assert "load mappings" not in servers.calls
    assert {change.config.name for change in result.skipped} == {WRITE, "bar-write-west", "bar-read-west"}
    lines = [line.plain for line in apply_view.render_applied(result, "mappings.cfg")]
    assert not any(line.startswith("What comes after it") for line in lines)
    # It loads it, or says that an operator has to.
    held_back = "publishers might be led to what is paused. The run that lets it go on comes to that, too."
    assert lines[-1] == f"mappings.cfg was not loaded: {held_back}"
    *_, last = apply_view.render_applied(result, OPERATOR_PATH)
    assert last.plain == f"No account was pushed: {held_back}"
    asked = {call for call in servers.calls if call.startswith("gate") and call.endswith(WRITE)}
    assert asked == {f"gate publishes_are_stored {WRITE}", f"gate quorum_is_current {WRITE}"}
    servers.gate_timeouts.clear()
    plan, administration = plan_change(servers, after), servers.administer(None, does_resync=True)
    assert (await execute_plan(plan, administration, gate_timeout=5.0)).mappings_pending
    assert (await run(servers, after)).is_complete
    assert plan_change(servers, after).is_empty


async def test_a_copy_that_an_origin_replaces_stays_while_another_stream_is_paused() -> None:
    servers = await servers_with_paused_stream()
    plan = plan_change(servers, render())
    config = servers.streams_by_name[READ].config
    copy = Delete(config=config, region="west", role=Role.READ, messages=7, is_replaced=True)
    servers.gate_timeouts[f"quorum_is_current {WRITE}"] = ["west-2 holds nothing yet"] * 99
    administration = servers.administer(render())
    result = await execute_plan(replace(plan, changes=(*plan.changes, copy)), administration, gate_timeout=0.0)
    assert copy in result.skipped
    assert READ in servers.streams_by_name


class Interrupter:
    """Cancels a run of `apply` at a gate, or in an update of the write stream, and keeps what it was told then."""

    def __init__(self, gate: GateKind | None, update: int = 0) -> None:
        self.told: list[ApplyResult] = []
        self._gate, self._update = gate, update

    async def interrupt(self, servers: FakeServers, desired: Bundle) -> ApplyResult:
        left = self._update

        class HangingServers(FakeServers):
            async def update(self, config: Any) -> None:
                nonlocal left
                await super().update(config)
                left -= 1
                if left == 0:
                    running.cancel()
                    await asyncio.Event().wait()

        hanging = HangingServers()
        hanging.__dict__ = servers.__dict__

        def cancel(gate: Gate, _missing: str) -> None:
            if gate.kind is self._gate:
                self._gate = None
                running.cancel()

        observer = ApplyObserver(on_wait=cancel, on_interrupted=self.told.append)
        plan = plan_change(servers, desired)
        running = asyncio.ensure_future(execute_plan(plan, hanging.administer(desired), observer=observer))
        with pytest.raises(asyncio.CancelledError):
            await running
        (told,) = self.told
        return told


@pytest.mark.parametrize("write", CHANGES)
async def test_interrupted_before_it_is_changed_it_takes_publishes_again(write: Mapping[str, Any]) -> None:
    for interrupter in (
        Interrupter(GateKind.PUBLISHES_ARE_STORED),
        Interrupter(None, update=1),
        Interrupter(None, update=3),
    ):
        servers = await servers_of("2.12.8")
        servers.gate_timeouts[f"publishes_are_stored {WRITE}"] = ["it has not stored what was on its way"]
        told = await interrupter.interrupt(servers, render(write))
        assert told.list_paused() == ()
        assert servers.streams_by_name[WRITE].config.subjects != PAUSED
        assert (await run(servers, render(write))).is_complete


@pytest.mark.parametrize("write", CHANGES)
async def test_interrupted_later_it_takes_publishes_once_its_new_servers_hold_everything(
    write: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execute, "INTERRUPTED_SECONDS", 0.1)
    for lacks, is_paused in ((["nothing yet"], False), (["nothing yet"] * 10**6, True)):
        servers = await servers_of("2.12.8")
        servers.gate_timeouts[f"quorum_is_current {WRITE}"] = [*lacks]
        told = await Interrupter(GateKind.QUORUM_IS_CURRENT).interrupt(servers, render(write))
        assert told.list_paused() == ((WRITE,) if is_paused else ())
        assert (servers.streams_by_name[WRITE].config.subjects == PAUSED) is is_paused
        servers.gate_timeouts.clear()
        assert (await run(servers, render(write))).is_complete


@pytest.mark.parametrize("write", CHANGES)
async def test_interrupted_while_it_may_be_changed_it_stays_paused(write: Mapping[str, Any]) -> None:
    servers = await servers_of("2.12.8")
    told = await Interrupter(None, update=2).interrupt(servers, render(write))
    assert told.list_paused() == (WRITE,)
    assert servers.streams_by_name[WRITE].config.subjects == PAUSED
    assert (await run(servers, render(write))).is_complete


async def test_it_counts_as_interrupted_also_if_it_cannot_be_resumed_for_an_unforeseen_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    servers = await servers_of("2.12.8")
    servers.gate_timeouts[f"publishes_are_stored {WRITE}"] = ["it has not stored what was on its way"]
    servers.failures[f"gate quorum_is_current {WRITE}"] = [KilledError()]
    told = await Interrupter(GateKind.PUBLISHES_ARE_STORED).interrupt(servers, render(CHANGES[0]))
    assert told.list_paused() == (WRITE,)
    assert "KilledError" in caplog.text


def share_servers(servers: FakeServers, act: Callable[[], Awaitable[None]]) -> FakeServers:
    """The same *servers* for one run, while another one's *act* comes before its move."""

    class SharedServers(FakeServers):
        async def find_missing(self, gate: Gate) -> str | None:
            if gate.kind is GateKind.PUBLISHES_ARE_STORED:
                await act()
            return await super().find_missing(gate)

    shared = SharedServers()
    shared.__dict__ = servers.__dict__
    return shared


async def test_servers_that_have_not_recorded_a_move_are_made_to() -> None:
    servers = await servers_of("2.14.6")
    servers.gate_timeouts[f"move_is_recorded {WRITE}"] = ["west-2 has not recorded it"]
    assert (await run(servers, render(MOVED))).is_complete
    assert servers.calls.count(f"push move_is_recorded {WRITE}") == 1


@pytest.mark.parametrize("write", CHANGES)
async def test_of_two_runs_at_once_one_changes_it(write: Mapping[str, Any]) -> None:
    """A stream that is told twice to move while it does has no leader any more."""
    servers = await servers_of("2.12.8")
    desired = render(write)

    async def apply_all() -> None:
        assert (await run(servers, desired)).is_complete

    result = await run(share_servers(servers, apply_all), desired)
    assert isinstance(result.failure, RefusedError)
    assert result.list_paused() == ()
    # The one pauses it; the other changes it, resumes it and forgets what it noted; the one resumes it.
    assert servers.calls.count(f"update {WRITE}") == 5
    assert plan_change(servers, desired).is_empty


@pytest.mark.parametrize("write", CHANGES)
async def test_what_another_run_has_told_to_move_is_not_told_again(write: Mapping[str, Any]) -> None:
    servers = await servers_of("2.12.8")
    desired = render(write)

    async def send_move() -> None:
        moved = next(stream.config for stream in desired.streams if stream.config.name == WRITE)
        await servers.update(moved.with_fields(subjects=[*PAUSED]))

    result = await run(share_servers(servers, send_move), desired)
    assert isinstance(result.failure, RefusedError)
    # The one pauses it, the other changes it, the one resumes it.
    assert servers.calls.count(f"update {WRITE}") == 3
    assert (await run(servers, desired)).is_complete


async def test_what_another_run_does_while_a_note_is_removed_is_not_undone() -> None:
    """The request that removes it gets no answer, and the other run pauses the stream before it is sent again."""
    servers = await servers_of("2.12.8")

    class SilentServers(FakeServers):
        async def update(self, config: Any) -> None:
            current = self.streams_by_name[WRITE].config
            if config.name == WRITE and "vstream.scaled" in {*current.metadata} - {*config.metadata}:
                self._store(current.with_fields(subjects=[*PAUSED]), None)
                raise no_answer()
            await super().update(config)

    silent = SilentServers()
    silent.__dict__ = servers.__dict__
    assert (await run(silent, render(CHANGES[0]))).failure is None
    stored = servers.streams_by_name[WRITE].config
    assert (stored.subjects, "vstream.scaled" in stored.metadata) == (PAUSED, True)
    assert (await run(servers, render(CHANGES[0]))).is_complete
    assert plan_change(servers, render(CHANGES[0])).is_empty


async def test_where_anything_is_blocked_it_goes_on_as_it_is() -> None:
    """Also if it is blocked itself, or was to move: only its subjects are given back."""
    for replicas, write in ((1, CHANGES[0]), (1, MOVED), (1, {**MOVED, "replicas": 3}), (3, CHANGES[0]), (3, MOVED)):
        servers = await servers_of("2.12.8")
        stream = servers.streams_by_name[WRITE]
        config = stream.config.with_fields(subjects=[*PAUSED], num_replicas=replicas)
        servers.streams_by_name[WRITE] = replace(stream, config=config)
        desired = render(write, description="new")
        plan = plan_change(servers, desired)
        assert bool(plan.blocked) is ("placement_tags" in write and write["replicas"] != replicas)
        assert plan.list_paused() == (WRITE,)
        resumptions = select_resumptions(plan)
        assert [gate.kind for gate in resumptions.gates] == [GateKind.QUORUM_IS_CURRENT]
        servers.calls.clear()
        assert (await execute_plan(resumptions, servers.administer(desired))).is_complete
        assert servers.calls == [f"gate quorum_is_current {WRITE}", f"update {WRITE}"]
        assert servers.streams_by_name[WRITE].config.fields == {
            **config.fields,
            "subjects": [*stream.config.subjects],
            "metadata": servers.streams_by_name[WRITE].config.metadata,
        }


async def test_what_is_paused_is_named_where_the_plan_is_blocked_as_a_whole() -> None:
    servers = await servers_with_paused_stream()
    plan = plan_change(
        servers, render_streams({"foo": {"subjects": ["foo.>"]}}, routing="regional", server_version="2.11")
    )
    assert {blocked.name for blocked in plan.blocked} == {WRITE, READ}
    assert plan.list_paused() == (WRITE,)
    assert not select_resumptions(plan).changes


async def test_it_is_said_on_which_subjects_a_stream_takes_publishes_again() -> None:
    for lacks, sentence in (
        ([], f"`{WRITE}` takes publishes again, on `_vs.foo.west.>`."),
        (["west-2 holds nothing yet"] * 99, f"`{WRITE}` stays paused: west-2 holds nothing yet"),
    ):
        servers = await servers_with_paused_stream()
        servers.gate_timeouts[f"quorum_is_current {WRITE}"] = lacks
        resumptions = select_resumptions(plan_change(servers, render()))
        result = await execute_plan(resumptions, servers.administer(render()), gate_timeout=0.0)
        assert [line.plain for line in apply_view.render_resumed(result)] == [sentence]


async def test_what_another_run_has_resumed_keeps_the_subjects_that_it_got() -> None:
    """Whoever is asked whether it may go on answers late."""
    servers = await servers_with_paused_stream()
    resumptions = select_resumptions(plan_change(servers, render()))
    resumed = servers.streams_by_name[WRITE].config.with_fields(subjects=["_vs.foo.west.>", "new"])
    await servers.update(resumed)
    assert (await execute_plan(resumptions, servers.administer(render()))).is_complete
    assert servers.streams_by_name[WRITE].config.subjects == resumed.subjects


async def test_what_still_moves_is_not_changed_before_it_is_there() -> None:
    servers = await servers_of("2.15.1")
    servers.streams_by_name[READ] = replace(servers.streams_by_name[READ], replicas=2)
    desired = render(description="new")
    (landed,) = (gate for gate in plan_change(servers, desired).gates if gate.kind is GateKind.MOVE_IS_OVER)
    assert landed.stream == READ
    assert (await run(servers, desired)).is_complete
    assert servers.calls[0] == f"gate move_is_over {READ}"


async def test_a_reviewed_plan_is_the_same_after_more_publishes() -> None:
    servers = await servers_of("2.12.8", messages=0)
    desired = render(CHANGES[0])
    reviewed = json.loads(json.dumps(saved.to_dict(plan_change(servers, desired))))
    servers.streams_by_name[WRITE] = replace(servers.streams_by_name[WRITE], messages=8, bytes=10**9)
    saved.require_same(plan_change(servers, desired), reviewed)


async def test_only_what_an_earlier_run_has_paused_is_called_paused() -> None:
    servers = await servers_of("2.12.8")
    desired = render(CHANGES[0])
    assert plan_change(servers, desired).list_paused() == ()
    stream = servers.streams_by_name[WRITE]
    servers.streams_by_name[WRITE] = replace(stream, config=stream.config.with_fields(subjects=[*PAUSED]))
    for bundle in (desired, render()):
        assert plan_change(servers, bundle).list_paused() == (WRITE,)


@pytest.mark.parametrize(
    ("replicas", "current", "lack"),
    [
        (3, (True, True), None),
        (3, (True, False), None),  # one of three is down, or taken out for good
        (3, (True,), None),
        (3, (False, False), "1 of 3 replicas of `foo` are current"),
        (3, (), "1 of 3 replicas of `foo` are current"),
        (1, (), None),
        (1, (True,), "`foo` has 2 replicas on its way to 1"),
    ],
)
def test_a_paused_stream_waits_for_most_of_its_replicas(
    replicas: int, current: tuple[bool, ...], lack: str | None
) -> None:
    followers = [{"name": f"west-{number}", "current": is_current} for number, is_current in enumerate(current, 2)]
    cluster = {"name": "west", "leader": "west-1", "replicas": followers}
    info = {"config": {"num_replicas": replicas}, "cluster": cluster}
    assert find_missing_quorum(info, "foo") == lack
    cluster["replicas"] = [follower | {"offline": True} for follower in followers]
    assert (find_missing_quorum(info, "foo") is None) is (replicas == 1 and not current)
    cluster["leader"] = ""
    assert find_missing_quorum(info, "foo") == "`foo` has no leader"


@pytest.mark.parametrize(("age", "is_just_moved"), [(-6.0, False), (-4.0, True), (14.0, True), (16.0, False)])
def test_what_was_just_told_to_move_may_have_been_told_so_by_a_clock_that_is_ahead(
    age: float, *, is_just_moved: bool
) -> None:
    info = {"config": {"metadata": {"vstream.moved": "1000"}}}
    assert was_just_moved(info, 1000 + age) is is_just_moved
    assert not was_just_moved({"config": {}}, 1000 + age)
