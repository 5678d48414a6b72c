"""Durables in a plan: what is compared, in which order things are done, what servers would refuse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, read_back, render_streams
from vstream.apply.execute import execute_plan
from vstream.plan.context import Observed
from vstream.plan.model import CreateConsumer, DeleteConsumer, Plan, UpdateConsumer
from vstream.plan.saved import require_same
from vstream.plan.stages import Stage, stage_of
from vstream.topology.bundle import Bundle
from vstream.topology.consumer_config import FAILOVER_KEY, ConsumerConfig

STREAM = "foo-read-west"


def render_reader(**settings: Any) -> Bundle:
    return render_streams({"foo": {"subjects": ["foo.>"], "consumers": {"reader": settings}}})


def plan(of: Bundle, observed: Observed, *adopt: str) -> Plan:
    return make_plan("acme", of, observed, adopt=frozenset(adopt))


async def world(of: Bundle) -> FakeServers:
    servers = FakeServers()
    await execute_plan(plan(of, servers.observe()), servers.administer(of))
    return servers


def observe_changed(servers: FakeServers, **fields: Any) -> Observed:
    """The servers, where somebody has changed *fields* of the consumer in west."""
    current = servers.consumers[STREAM]["reader"]
    config = ConsumerConfig(stream=STREAM, durable="reader", fields={**current.config.fields, **fields})
    servers.consumers[STREAM]["reader"] = replace(current, config=config)
    return servers.observe()


async def test_a_durable_comes_in_every_region_after_the_streams_and_before_the_mappings() -> None:
    servers = await world(render_reader())
    created = [call for call in servers.calls if call.endswith("> reader")]
    assert {f"create foo-read-{region} > reader" for region in ("west", "central", "east")} == set(created)
    assert Stage.CONTINUE_SOURCING < Stage.CHANGE_CONSUMERS < Stage.LOAD_MAPPINGS
    assert servers.calls.index("create foo-read-east") < min(map(servers.calls.index, created))
    assert plan(render_reader(), servers.observe()).is_empty


async def test_what_servers_fill_in_is_no_difference() -> None:
    servers = await world(render_reader(ack_policy="none"))
    observed = observe_changed(servers, max_deliver=-1, max_waiting=512, filter_subjects=None, metadata_of_nobody=None)
    assert plan(render_reader(ack_policy="none"), observed).is_empty


async def test_one_filter_is_the_same_in_both_spellings() -> None:
    servers = await world(render_reader(filter_subjects=["foo.a"]))
    observed = observe_changed(servers, filter_subjects=None, filter_subject="foo.a")
    assert plan(render_reader(filter_subjects=["foo.a"]), observed).is_empty


async def test_a_changed_wait_is_an_update_that_keeps_what_vstream_does_not_know() -> None:
    servers = await world(render_reader())
    (change,) = plan(render_reader(), observe_changed(servers, ack_wait=5 * 10**9, brand_new=True)).changes
    assert isinstance(change, UpdateConsumer)
    assert [(field.path, field.before, field.after) for field in change.fields] == [("ack_wait", 5 * 10**9, 30 * 10**9)]
    assert change.config.fields["brand_new"] is True


@pytest.mark.parametrize(
    ("field", "value"), [("deliver_policy", "new"), ("ack_policy", "all"), ("max_waiting", 5), ("mem_storage", True)]
)
async def test_what_servers_cannot_change_is_blocked_with_the_reason(field: str, value: Any) -> None:
    servers = await world(render_reader())
    (blocked,) = plan(render_reader(), observe_changed(servers, **{field: value})).blocked
    assert field in blocked.reason
    assert blocked.name == f"{STREAM} > reader"


async def test_a_consumer_of_somebody_else_is_blocked_until_it_is_adopted() -> None:
    servers = await world(render_reader())
    observed = observe_changed(servers, metadata={})
    (blocked,) = plan(render_reader(), observed).blocked
    assert "vstream did not create it" in blocked.reason
    (change,) = plan(render_reader(), observed, f"{STREAM} > reader").changes
    assert isinstance(change, UpdateConsumer)
    assert change.adopts


async def test_a_durable_that_the_topology_no_longer_has_goes_after_the_mappings_and_is_destructive() -> None:
    servers = await world(render_reader())
    made = plan(render_streams(), servers.observe())
    assert made.is_destructive
    assert {type(change) for change in made.changes} == {DeleteConsumer}
    assert [stage_of(change) for change in made.changes].count(Stage.DELETE_CONSUMERS) == 3
    await execute_plan(made, servers.administer(render_streams()))
    assert plan(render_streams(), servers.observe()).is_empty


async def test_consumers_of_others_and_of_streams_that_go_are_left_alone() -> None:
    servers = await world(render_reader())
    observe_changed(servers, metadata={})
    made = plan(render_streams(), servers.observe())
    assert {change.config.name for change in made.changes} == {"foo-read-central > reader", "foo-read-east > reader"}
    gone = plan(render_streams({}), servers.observe())
    assert not [change for change in gone.changes if isinstance(change, DeleteConsumer)]


async def test_a_consumer_that_nobody_answered_for_is_blocked_and_not_made_again() -> None:
    servers = await world(render_reader())
    observed = servers.observe()
    silent = replace(
        observed,
        consumers={name: {} if name == STREAM else consumer for name, consumer in observed.consumers.items()},
        silent_consumers=(f"{STREAM} > reader",),
    )
    made = plan(render_reader(), silent)
    assert [blocker.name for blocker in made.blocked] == [f"{STREAM} > reader"]
    assert not made.changes


async def test_where_a_failed_over_consumer_began_is_no_drift() -> None:
    servers = await world(render_reader())
    metadata = {**servers.consumers[STREAM]["reader"].config.metadata, FAILOVER_KEY: "east at 7"}
    observed = observe_changed(servers, deliver_policy="by_start_sequence", opt_start_seq=7, metadata=metadata)
    assert plan(render_reader(), observed).is_empty


async def test_a_plan_with_consumers_survives_its_file() -> None:
    servers = await world(render_reader())
    made = plan(
        render_reader(ack_wait="5s"),
        observe_changed(servers, metadata={**servers.consumers[STREAM]["reader"].config.metadata}),
    )
    del servers.consumers["foo-read-east"]
    mixed = plan(render_reader(ack_wait="5s"), servers.observe())
    assert {type(change) for change in mixed.changes} == {CreateConsumer, UpdateConsumer}
    for written_plan in (made, mixed):
        require_same(written_plan, read_back(written_plan))
    assert made.observed_digest != mixed.observed_digest
