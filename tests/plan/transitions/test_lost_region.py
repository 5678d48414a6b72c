"""A region that is given up: what the plan no longer waits for, and what it says is lost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.support.plans import FakeServers, make_plan, make_refusal, no_answer, read_back, render_streams, topology
from vstream.apply.execute import execute_plan
from vstream.apply.retry import MAX_ATTEMPTS
from vstream.errors import StalePlanError
from vstream.plan.context import Observed
from vstream.plan.model import Delete, GateKind, Plan, RegionLoss, Update
from vstream.plan.pipeline import PlanRequest, give_up_regions
from vstream.plan.saved import require_same
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint, Role
from vstream.topology.stream_config import UNTIL_KEY

ALL = {"foo": {"subjects": ["foo.>"]}}
TWO = {"foo": {"subjects": ["foo.>"], "regions": ["west", "central"]}}
DEAD = ("foo-read-east", "foo-write-east")


async def make_orphaned() -> tuple[FakeServers, Observed]:
    """All three regions, of which east does not answer any more."""
    servers, whole = FakeServers(), render_streams(ALL)
    for stream in whole.streams:
        await servers.create(stream.config)
    await servers.loader(whole).ensure_loaded()
    for name in DEAD:
        del servers.streams_by_name[name]
    return servers, replace(servers.observe(), unanswered=DEAD, unread_servers=("west-9",))


def plan_loss(of: Bundle, observed: Observed, *losses: RegionLoss) -> Plan:
    return make_plan("acme", of, replace(observed, lost=("east",), losses=losses))


async def test_nothing_waits_for_the_region_and_its_streams_are_forgotten_last() -> None:
    servers, observed = await make_orphaned()
    waiting = make_plan("acme", render_streams(TWO), observed)
    assert [gate.kind for gate in waiting.gates] == [GateKind.READERS_HAVE_ALL]
    plan = plan_loss(render_streams(TWO), replace(observed, unread_servers=()))
    assert plan.gates == ()
    applied = await execute_plan(plan, servers.administer(render_streams(TWO)))
    assert applied.is_complete
    assert servers.calls[-5:] == [
        "load mappings",
        "update foo-read-central",
        "update foo-read-west",
        "forget foo-read-east",
        "forget foo-write-east",
    ]


LOSS = RegionLoss(
    stream="foo-write-east",
    region="east",
    readers={"foo-read-west": 5, "foo-read-central": None},
    last_seqs={"foo-read-west": 60, "foo-read-central": 70},
)


def read_notes(servers: FakeServers) -> dict[str, str]:
    """By reader: what it notes of how far it was in what was given up."""
    metadata = {name: stream.config.metadata for name, stream in servers.streams_by_name.items()}
    key = f"{UNTIL_KEY}foo-write-east"
    return {name: values[key] for name, values in metadata.items() if key in values}


async def test_how_far_each_reader_was_is_noted_until_it_sources_the_region_again() -> None:
    servers, observed = await make_orphaned()
    servers.taken_later["foo-read-west"] = 8
    plan = plan_loss(render_streams(TWO), replace(observed, unread_servers=()), LOSS)
    applied = await execute_plan(plan, servers.administer(render_streams(TWO)))
    assert applied.is_complete
    for region in ("west", "central"):
        dropped, measured = f"update foo-read-{region}", f"measure foo-read-{region}"
        assert [call for call in servers.calls if call in {dropped, measured}] == [dropped, measured, dropped]
    assert read_notes(servers) == {"foo-read-west": "8", "foo-read-central": "0"}
    assert plan_loss(render_streams(TWO), servers.observe(), LOSS).is_empty
    back = make_plan("acme", render_streams(ALL), servers.observe())
    assert (await execute_plan(back, servers.administer(render_streams(ALL)))).is_complete
    assert read_notes(servers) == {}
    assert make_plan("acme", render_streams(ALL), servers.observe()).is_empty


@pytest.mark.parametrize("failures", [[no_answer()] * MAX_ATTEMPTS, [make_refusal()]], ids=["silent", "refused"])
@pytest.mark.parametrize("step", ["measure", "note"])
async def test_what_was_not_noted_is_noted_by_the_next_run(failures: list[Exception], step: str) -> None:
    servers, observed = await make_orphaned()
    servers.taken_later["foo-read-west"] = 8
    if step == "measure":
        servers.failures["measure foo-read-west"] = [*failures]
    else:
        measure = servers.last_taken

        async def last_taken(reader: str, ends: Mapping[str, tuple[int, int]]) -> Mapping[str, int]:
            servers.failures["update foo-read-west"] = [*failures] if reader == "foo-read-west" else []
            return await measure(reader, ends)

        servers.last_taken = last_taken  # type: ignore[method-assign]
    plan = plan_loss(render_streams(TWO), replace(observed, unread_servers=()), LOSS)
    applied = await execute_plan(plan, servers.administer(render_streams(TWO)))
    # Its source is gone, whatever was refused then.
    assert [change.config.name for change in applied.uncertain] == ["foo-read-west"]
    assert not applied.refused
    assert "foo-read-west" not in read_notes(servers)
    servers.failures.clear()
    servers.last_taken = FakeServers.last_taken.__get__(servers)  # type: ignore[method-assign]
    later = replace(LOSS, readers={"foo-read-west": None, "foo-read-central": None}, last_seqs={"foo-read-west": 99})
    rest = plan_loss(render_streams(TWO), replace(servers.observe(), unanswered=DEAD), later)
    (update,) = [change for change in rest.changes if isinstance(change, Update)]
    assert update.dead_sources == {"foo-write-east": (5, 60)}
    assert (await execute_plan(rest, servers.administer(render_streams(TWO)))).is_complete
    assert read_notes(servers)["foo-read-west"] == "8"
    assert make_plan("acme", render_streams(TWO), servers.observe()).is_empty


def test_other_servers_that_were_not_read_are_still_waited_for() -> None:
    observed = Observed(streams={}, unread_servers=("http://east", "east-1", "west-9"))
    endpoints = {"east": Endpoint(urls=(), monitor=("http://east",))}
    request = PlanRequest(topology=topology(ALL), bundle=render_streams(ALL), endpoints=endpoints, lost=("east",))
    assert give_up_regions(observed, request, ()).unread_servers == ("west-9",)


async def test_giving_up_a_region_is_destructive_and_survives_a_saved_plan() -> None:
    _, observed = await make_orphaned()
    plan = plan_loss(render_streams(TWO), observed, LOSS)
    assert plan.is_destructive
    assert [change.is_dead for change in plan.changes if isinstance(change, Delete)] == [True, True]
    reviewed = read_back(plan)
    require_same(plan, reviewed)
    updates = [change for change in reviewed["changes"] if change["action"] == "update"]
    assert {update["name"]: update["dead_sources"] for update in updates} == {
        "foo-read-west": {"foo-write-east": [5, 60]},
        "foo-read-central": {"foo-write-east": [0, 70]},
    }
    # Clients publish meanwhile: how far readers are is measured again, and another loss must be reviewed again.
    require_same(
        plan_loss(render_streams(TWO), observed, replace(LOSS, last_seqs=dict.fromkeys(LOSS.last_seqs, 99))), reviewed
    )
    with pytest.raises(StalePlanError):
        require_same(plan_loss(render_streams(TWO), observed, replace(LOSS, waiting_count=1)), reviewed)


async def test_only_streams_of_the_region_that_nobody_answers_for_are_given_up() -> None:
    _, observed = await make_orphaned()
    unanswered = (*DEAD, "foo-read-west", "bar-write-east", "mine")
    plan = plan_loss(render_streams(TWO), replace(observed, unanswered=unanswered))
    deleted = [
        (change.config.name, change.region, change.role) for change in plan.changes if isinstance(change, Delete)
    ]
    assert deleted == [("foo-read-east", "east", Role.READ), ("foo-write-east", "east", Role.WRITE)]


def test_a_loss_says_who_has_how_much() -> None:
    alike = RegionLoss(stream="w", region="east", readers={"a": 7, "b": 7})
    assert (
        str(alike)
        == "what was acknowledged in `east` after sequence 7 of `w` is lost; up to there `a` has it, `b` has it"
    )
    behind = RegionLoss(stream="w", region="east", readers={"a": 7, "b": 3, "c": None}, waiting_count=4)
    assert str(behind) == (
        "what was acknowledged in `east` after sequence 7 of `w`, 4 messages at least, is lost; up to there `a` has it, "
        "`b` has it up to 3 only, `c` has an unknown part of it: `b` will not get the rest by itself"
    )
