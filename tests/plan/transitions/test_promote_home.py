"""A homed stream whose home is dead: an origin is made out of the copy that has come furthest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import FakeServers, read_back, topology
from vstream.apply.execute import execute_plan
from vstream.plan.consumer_failover import Position, parse_record, record_config
from vstream.plan.context import Observed
from vstream.plan.diff import diff
from vstream.plan.model import CreateConsumer, Delete, Gate, GateKind, Plan, RegionLoss
from vstream.plan.saved import require_same
from vstream.plan.stages import Stage, stage_after
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Topology

HOMED = {
    "prices": {
        "subjects": ["prices.>"],
        "consistency": "homed",
        "home": "west",
        "write": {"max_age": "unlimited"},
        "consumers": {"reader": {}},
    }
}
STEPS = [
    "forget prices",
    "update prices-read-central",
    "create prices",
    "update prices",
    "create prices > reader",
    "delete prices-read-central",
    "update prices",
]


def regions(homes: dict[str, str] | None) -> dict[str, Any]:
    west: dict[str, Any] = {"servers": 1} if homes is None else {"servers": 1, "lost": homes}
    return {"west": west, "central": {"servers": 1}, "east": {"servers": 1}}


def lose_west(home: str, **over: Any) -> Topology:
    return topology(HOMED, regions=regions({"prices": home}), server_version="2.12", **over)


async def make_orphaned(central: int = 5, east: int = 3) -> FakeServers:
    """Two copies of an origin that is gone, each with so many messages."""
    servers, whole = FakeServers(), render_bundle(topology(HOMED, server_version="2.12"))
    for stream in whole.streams:
        await servers.create(stream.config)
    for consumer in whole.consumers:
        await servers.create_consumer(consumer.config)
    del servers.streams_by_name["prices"], servers.consumers["prices"]
    for name, last in (("prices-read-central", central), ("prices-read-east", east)):
        held = servers.streams_by_name[name]
        servers.streams_by_name[name] = replace(held, last_seq=last, messages=last, consumers=1)
    reader = servers.consumers["prices-read-central"]["reader"]
    servers.consumers["prices-read-central"]["reader"] = replace(reader, ack_floor=4)
    servers.positions["prices"] = {"prices-read-central": central + 1}
    servers.calls.clear()
    return servers


def plan_for(wanted: Topology, servers: FakeServers, *unanswered: str) -> Plan:
    observed: Observed = servers.observe()
    return diff(wanted, render_bundle(wanted), replace(observed, unanswered=unanswered))


async def test_the_copy_becomes_the_origin_and_nothing_is_open_before_the_copy_is_gone() -> None:
    servers = await make_orphaned()
    plan = plan_for(lose_west("central"), servers, "prices")
    assert not plan.blocked
    applied = await execute_plan(plan, servers.administer(render_bundle(lose_west("central"))))
    assert applied.is_complete
    assert [call for call in servers.calls if not call.startswith(("gate", "load"))] == STEPS
    origin = servers.streams_by_name["prices"].config
    assert (origin.subjects, origin.mirror_name) == (("prices.>",), None)
    assert servers.streams_by_name["prices-read-east"].config.mirror_name == "prices"
    assert servers.consumers["prices"]["reader"].config.fields["opt_start_seq"] == 5
    assert plan_for(lose_west("central"), servers).is_empty


@pytest.mark.parametrize("steps", range(1, len(STEPS)))
async def test_killed_after_any_step_the_next_run_does_the_rest(steps: int) -> None:
    servers = await make_orphaned()
    unanswered = ["prices"]
    for call in STEPS[:steps]:
        plan = plan_for(lose_west("central"), servers, *unanswered)
        (change,) = [change for change in plan.changes if describe(change) == call][:1]
        await execute_plan(replace(plan, changes=(change,), rule_changes=(), gates=()), servers.administer(None))
        unanswered = []
    rest = plan_for(lose_west("central"), servers)
    assert [describe(change) for change in rest.changes] == STEPS[steps:]


def describe(change: Any) -> str:
    """As `FakeServers` calls it."""
    verb = "forget" if getattr(change, "is_dead", False) else type(change).__name__.removesuffix("Consumer").lower()
    return f"{verb} {change.config.name}"


async def test_an_origin_that_has_been_opened_is_never_forgotten() -> None:
    servers = await make_orphaned()
    plan = plan_for(lose_west("central"), servers, "prices")
    await execute_plan(plan, servers.administer(render_bundle(lose_west("central"))))
    del servers.streams_by_name["prices"]
    down = plan_for(lose_west("central"), servers, "prices")
    assert [blocked.name for blocked in down.blocked] == ["prices"]
    assert not down.changes


async def test_a_copy_that_is_behind_another_cannot_become_the_origin() -> None:
    servers = await make_orphaned()
    (blocked,) = plan_for(lose_west("east"), servers, "prices").blocked
    assert "`prices-read-central` has 5 messages" in blocked.reason
    (unknown,) = plan_for(lose_west("central"), servers, "prices", "prices-read-east").blocked[:1]
    assert "whether `prices-read-east` has more" in unknown.reason


async def test_the_origin_waits_until_it_has_everything_of_the_copy_although_its_region_is_given_up() -> None:
    servers = await make_orphaned()
    loss = RegionLoss(stream="prices", region="west", readers={"prices-read-central": 5}, is_origin=True)
    copied = Gate(kind=GateKind.COPY_IS_COMPLETE, stream="prices", counterparts=("prices-read-central",))
    # The copy stays for as long as another command that has not seen the origin may still forget it.
    resting = Gate(kind=GateKind.SOURCED_MESSAGES_ARE_STORED, stream="prices")
    assert stage_after(resting) < Stage.DELETE_REPLACED_COPIES
    west_lost = lose_west("central")
    observed = replace(servers.observe(), unanswered=("prices",), lost=("west",), losses=(loss,))
    assert diff(west_lost, render_bundle(west_lost), observed).gates == (copied, resting)


async def test_a_saved_plan_says_all_of_it() -> None:
    servers = await make_orphaned()
    plan = plan_for(lose_west("central"), servers, "prices")
    require_same(plan, read_back(plan))
    assert [change.continues for change in plan.changes if isinstance(change, CreateConsumer)] == [
        "prices-read-central"
    ]


async def test_the_copy_goes_because_it_is_replaced_and_a_note_counts_the_consumers_of_clients() -> None:
    servers = await make_orphaned()
    copy = servers.streams_by_name["prices-read-central"]
    servers.streams_by_name["prices-read-central"] = replace(copy, consumers=4)
    plan = plan_for(lose_west("central"), servers, "prices")
    (deleted,) = [change for change in plan.changes if isinstance(change, Delete) and not change.is_dead]
    assert (deleted.config.name, deleted.is_replaced) == ("prices-read-central", True)
    (note,) = [note for note in plan.notes if note.name == "prices-read-central"]
    assert note.text == "is replaced by `prices`: 3 consumers of clients go with it"


async def test_positions_that_were_kept_beside_the_copy_go_over_to_the_origin() -> None:
    servers = await make_orphaned()
    position = Position(
        topology="acme",
        stream="prices",
        consumer="reader",
        region="west",
        at="2026-01-01T00:00:00+00:00",
        origins={"prices": 5},
    )
    for region in ("west", "east"):
        await servers.create_consumer(record_config(replace(position, region=region), "prices-read-central"))
    copy = servers.streams_by_name["prices-read-central"]
    servers.streams_by_name["prices-read-central"] = replace(copy, consumers=4)
    west_lost = lose_west("central")
    plan = plan_for(west_lost, servers, "prices")
    assert ["1 consumers of clients" in note.text for note in plan.notes if note.name == copy.config.name] == [True]
    assert (await execute_plan(plan, servers.administer(render_bundle(west_lost)))).is_complete
    assert servers.consumers["prices"].keys() == {"reader", "reader-of-west"}  # east's is written by the next sync
    assert parse_record(servers.consumers["prices"]["reader-of-west"].config) == position
    assert plan_for(west_lost, servers).is_empty


async def test_the_new_consumer_goes_on_where_that_of_the_copy_was() -> None:
    plan = plan_for(lose_west("central"), await make_orphaned(), "prices")
    (created,) = [change for change in plan.changes if isinstance(change, CreateConsumer)]
    assert (created.config.name, created.continues) == ("prices > reader", "prices-read-central")


@pytest.mark.parametrize("steps", range(len(STEPS)))
async def test_an_origin_that_was_deleted_is_made_from_the_copy_where_its_new_home_is(steps: int) -> None:
    servers = await make_orphaned()
    moved = topology({"prices": {**HOMED["prices"], "home": "central"}}, server_version="2.12")
    for call in STEPS[1:steps]:
        plan = plan_for(moved, servers)
        (change,) = [change for change in plan.changes if describe(change) == call][:1]
        await execute_plan(replace(plan, changes=(change,), rule_changes=(), gates=()), servers.administer(None))
    plan = plan_for(moved, servers)
    calls = [describe(change) for change in plan.changes]
    assert [call for call in calls if "prices-read-west" not in call] == STEPS[max(steps, 1) :]
    assert not any(note.name == "prices" for note in plan.notes)


async def test_an_origin_that_does_not_answer_is_not_made_again_where_its_new_home_is() -> None:
    moved = topology({"prices": {**HOMED["prices"], "home": "central"}}, server_version="2.12")
    down = plan_for(moved, await make_orphaned(), "prices")
    assert "prices" in {blocked.name for blocked in down.blocked}
    assert "create prices" not in map(describe, down.changes)
    (behind,) = plan_for(
        topology({"prices": {**HOMED["prices"], "home": "east"}}, server_version="2.12"), await make_orphaned()
    ).blocked
    assert (behind.reason[:22], behind.hint) == ("its origin is gone, an", "make `central` its home")
