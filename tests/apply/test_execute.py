from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.night import repetitions
from tests.support.plans import FakeServers, make_plan, make_refusal, no_answer, render_streams, servers_with
from vstream.apply import retry
from vstream.apply.execute import execute_plan
from vstream.apply.result import ApplyResult
from vstream.cli.views import apply as apply_view
from vstream.errors import NotPermittedError
from vstream.jetstream import error_codes
from vstream.topology.bundle import Bundle


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "PAUSE_SECONDS", 0.0)


async def run(servers: FakeServers, wanted: Bundle, *, can_load: bool = True) -> ApplyResult:
    plan = make_plan("acme", wanted, servers.observe())
    return await execute_plan(plan, servers.administer(wanted if can_load else None))


async def test_writes_then_reads_then_mappings() -> None:
    servers = FakeServers()
    bundle = render_streams()
    for server in bundle.servers:
        servers.rules[server.server.name] = {}
    applied = await run(servers, bundle)
    assert applied.is_complete
    assert applied.mappings_loaded
    kinds = ["write" if "-write-" in call else "read" if "-read-" in call else call for call in servers.calls]
    assert kinds == ["write"] * 3 + ["read"] * 3 + ["load mappings"]
    assert make_plan("acme", bundle, servers.observe()).is_empty


async def test_removal_goes_the_other_way_round() -> None:
    servers = await servers_with(render_streams())
    assert (await run(servers, render_streams({}))).is_complete
    kinds = ["write" if "-write-" in call else "read" if "-read-" in call else call for call in servers.calls]
    assert kinds == ["load mappings"] + ["read"] * 3 + ["write"] * 3
    assert servers.streams_by_name == {}


async def test_nothing_is_deleted_while_servers_may_still_map_to_it() -> None:
    servers = await servers_with(render_streams())
    applied = await run(servers, render_streams({}), can_load=False)
    assert applied.mappings_pending
    assert not applied.is_complete
    assert len(applied.skipped) == 6
    assert servers.calls == []


async def test_a_refusal_stops_everything_after_it() -> None:
    servers = FakeServers()
    servers.failures["create foo-write-east"] = [make_refusal()]
    applied = await run(servers, render_streams())
    assert [change.config.name for change in applied.refused] == ["foo-write-east"]
    assert {change.config.name for change in applied.skipped} >= {"foo-read-west", "foo-read-central", "foo-read-east"}
    assert applied.failure is not None
    assert not any("-read-" in call for call in servers.calls)


async def test_a_stream_that_still_moves_is_waited_for() -> None:
    servers = FakeServers()
    # More often than what is tried again otherwise.
    servers.failures["create foo-write-east"] = [make_refusal(error_codes.STREAM_MOVE_IN_PROGRESS)] * 9
    assert (await run(servers, render_streams())).failure is None
    assert servers.calls.count("create foo-write-east") == 10


async def test_a_request_without_an_answer_is_asked_again_and_then_uncertain() -> None:
    servers = FakeServers()
    servers.failures["create foo-write-east"] = [no_answer(), no_answer(), no_answer()]
    applied = await run(servers, render_streams())
    assert [change.config.name for change in applied.uncertain] == ["foo-write-east"]
    assert servers.calls.count("create foo-write-east") == 3


async def test_what_the_user_may_not_do_is_refused_at_once() -> None:
    servers = FakeServers()
    servers.failures["create foo-write-east"] = [NotPermittedError("no")]
    applied = await run(servers, render_streams())
    assert [change.config.name for change in applied.refused] == ["foo-write-east"]
    assert not applied.uncertain


async def test_a_create_that_was_answered_the_second_time_is_done() -> None:
    servers = FakeServers()
    servers.failures["create foo-write-east"] = [no_answer()]
    assert (await run(servers, render_streams())).is_complete


async def test_a_create_that_had_its_effect_without_an_answer_is_done_by_the_next_attempt() -> None:
    servers = FakeServers()
    bundle = render_streams()
    stream = next(stream for stream in bundle.streams if stream.config.name == "foo-write-east")
    plan = make_plan("acme", bundle, servers.observe())
    await servers.create(stream.config)
    servers.failures["create foo-write-east"] = [no_answer()]
    applied = await execute_plan(plan, servers.administer(bundle))
    assert applied.is_complete


async def test_a_delete_without_an_answer_is_never_repeated() -> None:
    servers = await servers_with(render_streams())
    servers.failures["delete foo-read-west"] = [no_answer()]
    applied = await run(servers, render_streams({}))
    assert [change.config.name for change in applied.uncertain] == ["foo-read-west"]
    assert servers.calls.count("delete foo-read-west") == 1
    assert not any(call.startswith("delete foo-write") for call in servers.calls)


@pytest.mark.parametrize("code", [10008, 10005], ids=["no leader", "no peers that are known yet"])
async def test_what_servers_do_not_know_for_a_moment_is_waited_for(code: int) -> None:
    servers = FakeServers()
    servers.failures["create foo-write-east"] = [make_refusal(code, 503), make_refusal(code, 503)]
    assert (await run(servers, render_streams())).is_complete


async def test_a_server_that_does_not_load_the_mappings_keeps_what_it_maps_to() -> None:
    servers = await servers_with(render_streams())
    servers.failures["load mappings"] = [no_answer()]
    applied = await run(servers, render_streams({}))
    assert applied.failure is not None
    assert len(servers.streams_by_name) == 6


async def test_unchanged_streams_keep_their_creation_time() -> None:
    servers = await servers_with(render_streams())
    created = {name: stream.created for name, stream in servers.streams_by_name.items()}
    assert (await run(servers, render_streams({"foo": {"subjects": ["foo.>"], "read": {"max_msgs": 10}}}))).is_complete
    assert {name: stream.created for name, stream in servers.streams_by_name.items()} == created


_STREAMS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {"regions": st.lists(st.sampled_from(["west", "central", "east"]), min_size=1, unique=True)},
        optional={
            "read": st.fixed_dictionaries(
                {}, optional={"max_msgs": st.integers(1, 9), "description": st.sampled_from("xy")}
            ),
            "allow_rollup": st.booleans(),
        },
    ),
)


def _documents(choice: dict[str, dict[str, object]]) -> Bundle:
    return render_streams({name: {"subjects": [f"{name}.>"], **rest} for name, rest in choice.items()})


@settings(derandomize=True, max_examples=repetitions(25, night=500), deadline=None)
@given(_STREAMS, _STREAMS, st.sets(st.integers(0, 30)))
async def test_from_any_world_two_rounds_lead_to_any_other(
    before: dict[str, dict[str, object]], after: dict[str, dict[str, object]], silent: set[int]
) -> None:
    """Some requests get no answer in the first round; the second ends with an empty plan."""
    old, new = _documents(before), _documents(after)
    servers = FakeServers()
    for server in new.servers:
        servers.rules[server.server.name] = {}
    assert (await run(servers, old)).is_complete
    created = {name: stream.created for name, stream in servers.streams_by_name.items()}
    plan = make_plan("acme", new, servers.observe())
    for number, change in enumerate(plan.changes):
        if number in silent:
            for verb in ("create", "update", "delete"):
                servers.failures[f"{verb} {change.config.name}"] = [no_answer()] * 3
    await execute_plan(plan, servers.administer(new))
    servers.failures.clear()
    assert (await run(servers, new)).is_complete
    assert make_plan("acme", new, servers.observe()).is_empty
    staying = servers.streams_by_name.keys() & created.keys()
    survivors = {stream.config.name for stream in new.streams} & {stream.config.name for stream in old.streams}
    assert staying == survivors
    assert {name: servers.streams_by_name[name].created for name in staying} == {
        name: created[name] for name in staying
    }


async def test_a_plan_is_carried_out_and_nothing_else() -> None:
    servers = FakeServers()
    bundle = render_streams()
    plan = make_plan("acme", bundle, servers.observe())
    half = replace(plan, changes=plan.changes[:2])
    await execute_plan(half, servers.administer(bundle))
    assert servers.calls == [f"create {change.config.name}" for change in plan.changes[:2]]


async def test_nothing_is_deleted_while_a_servers_mappings_are_unknown() -> None:
    servers = await servers_with(render_streams())
    bundle = render_streams({})
    # The servers that were read have loaded the new rules already; of east-1 nobody knows.
    servers.rules = {"west-1": {}, "central-1": {}}
    observed = replace(servers.observe(), unread_servers=("east-1",))
    plan = make_plan("acme", bundle, observed)
    assert not plan.rule_changes
    applied = await execute_plan(plan, servers.administer(None))
    assert applied.unread_servers == ("east-1",)
    output = " ".join(line.plain for line in apply_view.render_applied(applied, "mappings.cfg"))
    assert "could not read whether the mappings of east-1 still use it" in output
    assert len(applied.skipped) == 6
    assert not applied.is_complete
    assert servers.calls == []


async def test_what_is_created_does_not_wait_for_unknown_mappings() -> None:
    servers = FakeServers()
    bundle = render_streams()
    observed = replace(servers.observe(), unread_servers=("east-1",))
    plan = make_plan("acme", bundle, observed)
    applied = await execute_plan(plan, servers.administer(None))
    assert applied.is_complete
    assert len(applied.done) == 6


async def test_mappings_that_were_just_loaded_everywhere_are_known() -> None:
    servers = await servers_with(render_streams())
    bundle = render_streams({})
    observed = replace(servers.observe(), unread_servers=("east-1",))
    plan = make_plan("acme", bundle, observed)
    applied = await execute_plan(plan, servers.administer(bundle))
    assert applied.is_complete
    assert servers.streams_by_name == {}
