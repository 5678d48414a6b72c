"""Consumers of a topology on real servers: made in every region, used by the virtual name, compared, repaired."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from tests.support.command import Ran, check_output, vstream
from tests.support.labs import fetch_acknowledged
from tests.support.meta_leader import lead_meta_group_from
from tests.support.publish_load import Load, check_contents, under_load
from tests.support.shared_lab import own_lab
from vstream.errors import NotReachableError
from vstream.health.live.consumer_position import MoveRequest, carry_out_move, plan_move
from vstream.health.live.consumer_sync import ConsumerSync
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.region_connections import connect_all, join_connections
from vstream.lab.endpoints import list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle

pytestmark = pytest.mark.lab

NAME = "durable"
REGIONS = ("west", "central", "east")
ORDERS = [f"orders.new.{number}" for number in range(5)]


def document(consumers: dict[str, Any]) -> str:
    return json.dumps(
        {
            "version": 1,
            "name": NAME,
            "server_version": "2.12",
            "regions": {region: {"servers": 1} for region in REGIONS},
            "defaults": {"write": {"max_age": "1h"}},
            "streams": {
                "orders": {"subjects": ["orders.>"], "consumers": consumers},
                "foo": {"subjects": ["foo.>"], "consumers": {"reader": {}}},
            },
        }
    )


@asynccontextmanager
async def client_in(region: str) -> AsyncIterator[Client]:
    client = await nats.connect(list_endpoints(NAME)[region].urls[0], connect_timeout=30)
    try:
        yield client
    finally:
        await client.close()


async def run(*arguments: str | Path) -> Ran:
    return await asyncio.to_thread(vstream, *arguments)


async def run_json(*arguments: str | Path) -> dict[str, Any]:
    """What a command that must succeed prints as JSON."""
    ran = await run(*arguments, "--format", "json")
    assert ran.code == 0, ran.err
    document: dict[str, Any] = json.loads(ran.out)
    return document


async def take(region: str, durable: str, number: int) -> list[str]:
    """What an unmodified client gets that knows the virtual names only, and acknowledges."""
    async with client_in(region) as client:
        bound = await client.jetstream(timeout=60).pull_subscribe_bind(durable=durable, stream="orders")
        return [message.subject for message in await fetch_acknowledged(bound, number)]


async def test_consumers_from_their_first_apply_to_another_region(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "durable.yaml"
    consumers = {"billing": {"filter_subjects": ["orders.new.*"], "ack_wait": "1m"}, "audit": {"regions": ["east"]}}
    file.write_text(document(consumers))
    assert (await run("lab", "up", file)).code == 0
    applied = await run("apply", file, "--yes")
    assert applied.code == 0, applied.out + applied.err
    assert "7 consumers" in applied.out

    # An unmodified client binds and fetches by the virtual name, in each region.
    async with client_in("west") as client:
        for subject in (*ORDERS, "orders.other"):
            await client.jetstream(timeout=60).publish(subject, b"")
    for region in REGIONS:
        assert await take(region, "billing", 5) == ORDERS
    assert await take("east", "audit", 2) == ORDERS[:2]

    seen = {
        (consumer["name"], consumer["region"]): consumer
        for consumer in json.loads((await run("status", file, "--format", "json")).out)["consumers"]
        if consumer["stream"] == "orders"
    }
    assert {key: (status["exists"], status["pending"], status["unacknowledged"]) for key, status in seen.items()} == {
        ("billing", "west"): (True, 0, 0),
        ("billing", "central"): (True, 0, 0),
        ("billing", "east"): (True, 0, 0),
        ("audit", "east"): (True, 4, 0),
    }

    # Somebody changes one and deletes another.
    async with client_in("west") as client:
        stream = client.jetstream(timeout=60)
        config = (await stream.consumer_info("orders-read-west", "billing")).config
        await stream.add_consumer("orders-read-west", config=config.evolve(ack_wait=5.0))
        await stream.add_consumer("orders-read-west", config=ConsumerConfig(durable_name="mine"))
    async with client_in("east") as client:
        await client.jetstream(timeout=60).delete_consumer("orders-read-east", "audit")
    drift = await run("plan", "--drift", file)
    assert drift.code == 1
    assert "orders-read-west > billing" in drift.out
    assert "ack_wait: 5s → 1m" in drift.out
    findings = json.loads((await run("doctor", file, "--format", "json")).out)["findings"]
    assert [(finding["code"], finding["about"]) for finding in findings] == [("VD505", "orders-read-east > audit")]
    assert "1 consumer does not exist" in (await run("status", file)).out
    assert (await run("apply", file, "--yes")).code == 0

    # One goes: that loses how far it was, and has to be allowed. What is nobody's business stays.
    del consumers["audit"]
    file.write_text(document(consumers))
    assert (await run("apply", file, "--yes", "--allow-destructive")).code == 0
    async with client_in("west") as client:
        names = {consumer.name for consumer in await client.jetstream(timeout=60).consumers_info("orders-read-west")}
        assert names == {"billing", "mine"}
        assert await client.jetstream(timeout=60).consumers_info("orders-read-east")
    await goes_on_elsewhere(file, tmp_path / "reader.json")
    assert vstream("lab", "down", NAME, "--purge").code == 0


async def take_messages(region: str, durable: str, number: int, *, out_of_order: int = 0) -> set[str]:
    """The identities of *number* messages that a client acknowledges, and of some that it leaves before the last of them."""
    result: set[str] = set()
    async with client_in(region) as client:
        bound = await client.jetstream(timeout=60).pull_subscribe_bind(durable=durable, stream="foo")
        left = 0
        while len(result) < number:
            for message in await bound.fetch(min(50, number - len(result)), timeout=30):
                if number - len(result) <= 20 and left < out_of_order:
                    left += 1
                    continue
                await message.ack_sync()
                result.add(message.data.decode())
        await bound.unsubscribe()
    return result


async def rest(region: str, durable: str, number: int) -> list[str]:
    """The identities of the next *number* messages."""
    result: list[str] = []
    async with client_in(region) as client:
        bound = await client.jetstream(timeout=60).pull_subscribe_bind(durable=durable, stream="foo")
        async with asyncio.timeout(60):
            while len(result) < number:
                for message in await bound.fetch(min(200, number - len(result)), timeout=30):
                    await message.ack()
                    result.append(message.data.decode())
        await client.flush()
    return result


async def is_recorded_again_where_a_region_comes_back_empty(text: bytes) -> None:
    topology = check_topology(text, "durable.yaml").require()
    keeper = ConsumerSync(topology, ["foo"], list_endpoints(NAME))
    async with connect_all(topology, list_endpoints(NAME)) as connections, client_in("east") as client:
        await keeper.keep(connections)
        await client.jetstream(timeout=60).delete_consumer("foo-read-east", "reader-of-west")
        away = await keeper.keep({**connections, "east": NotReachableError("it is away")})
        assert [item.kept_in for item in away if item.durable.region == "west"] == [("central",)]
        await keeper.keep(connections)
        await client.jetstream(timeout=60).consumer_info("foo-read-east", "reader-of-west")


async def position_is_shown_and_written(file: Path, record: Path) -> None:
    position = ("consumer", "position", "foo", "reader", "--region", "central", "-t", file)
    assert (await run(*position, "--output", record)).code == 0
    check_output(written := json.loads(await asyncio.to_thread(record.read_text)))
    assert (await run_json(*position))["origins"] == written["origins"]
    shown = (await run(*position)).out.strip().removeprefix("reader in central, now: position ")
    assert {*shown.split(", ")} == {f"{name} {seq:,}" for name, seq in written["origins"].items()}


async def goes_on_elsewhere(file: Path, record: Path) -> None:
    """A consumer goes on in another region: nothing is skipped, and what is seen twice was said before."""
    empty = await run_json("consumer", "failover", "foo", "reader", "-t", file, "--from", "west", "--to", "east")
    assert (empty["start"], empty["ahead"], empty["done"]) == (1, 0, False)
    sent = Load(200)
    async with under_load(sent, list_endpoints(NAME)):
        await sent.wait_for_acknowledged(80)
    await check_contents(NAME, {region: f"foo-read-{region}" for region in REGIONS}, sent)
    everything = len(sent.everything)

    first = await take_messages("west", "reader", 120, out_of_order=5)
    failover = ("consumer", "failover", "foo", "reader", "-t", file)
    direction = ("--from", "west", "--to", "east")
    dry = await run_json(*failover, *direction)
    assert (dry["done"], dry["replaces"]) == (False, True)
    assert 5 <= dry["position"]["unacknowledged"] <= 5 + 50
    assert dry["position"]["beyond"] > 0
    async with client_in("east") as client:
        assert (await client.jetstream(timeout=60).consumer_info("foo-read-east", "reader")).delivered.stream_seq == 0

    answer = await run_json(*failover, *direction, "--yes")
    assert (answer["start"], answer["seen_twice"]) == (dry["start"], dry["seen_twice"])
    assert answer["pending"] == answer["ahead"] == everything - answer["start"] + 1
    second = await rest("east", "reader", answer["ahead"])
    assert len(second) == len(set(second))
    assert sent.everything == first | set(second)
    again = len(first & set(second))
    assert answer["seen_twice"] <= again <= answer["seen_twice"] + answer["position"]["beyond"]
    # Where it began is no drift, and the same again does no harm.
    assert (await run("plan", file, "--detailed-exitcode")).code == 0

    # In central it is synced and recorded, goes on, and then central dies: everything since comes again.
    before = await take_messages("central", "reader", 60)
    synced = await run_json("consumer", "sync", "-t", file, "--stream", "foo")
    assert [
        (consumer["region"], len(consumer["kept_in"]), consumer["problems"]) for consumer in synced["consumers"]
    ] == [(region, 2, []) for region in REGIONS]
    await is_recorded_again_where_a_region_comes_back_empty(await asyncio.to_thread(file.read_bytes))
    await position_is_shown_and_written(file, record)
    since = await take_messages("central", "reader", 30)
    assert (await run("chaos", "kill-region", "central", "-t", file)).code == 0
    moved = ("consumer", "failover", "orders", "billing", "-t", file, "--from", "central", "--to", "west")
    # Until the others have elected a JetStream meta leader, nobody says which consumers there are.
    async with asyncio.timeout(120):
        while "vstream consumer sync" not in (unsynced := await run(*moved)).err:
            assert unsynced.code == 3, unsynced.out
    assert unsynced.code == 3
    recorded = await run_json(*failover, "--position", record, "--to", "west", "--as", "other")
    answer = await run_json(*failover, "--from", "central", "--to", "west", "--as", "other", "--yes")
    assert answer["start"] == recorded["start"]
    assert answer["position"]["origins"] == recorded["position"]["origins"]
    assert (answer["position"]["beyond"], answer["position"]["unacknowledged"], answer["replaces"]) == (0, 0, False)
    third = await rest("west", "other", answer["ahead"])
    assert sent.everything == before | set(third)
    assert len(before & set(third)) == answer["seen_twice"]
    assert since <= set(third)
    # What was synced before is at least what comes twice; with what was acknowledged since, it is at most all that is there.
    assert answer["seen_twice"] <= len((before | since) & set(third)) <= answer["seen_twice_at_most"] == answer["ahead"]
    assert len((before | since) & set(third)) == answer["seen_twice"] + len(since)


async def test_a_consumer_goes_on_while_a_meta_leader_is_elected(state: Path, tmp_path: Path) -> None:
    """A server that hangs leads still, and answers nothing, until the others have waited for it in vain."""
    text = document({})
    topology = check_topology(text.encode(), "durable.yaml").require()
    request = MoveRequest(
        topology=topology,
        stream=topology.stream("foo"),
        durable="reader",
        come_from="east",
        recorded=None,
        to="west",
        name="reader",
    )
    with own_lab(state, tmp_path, NAME, text) as file:
        assert (await run("lab", "up", file)).code == 0
        assert (await run("apply", file, "--yes")).code == 0
        await lead_meta_group_from(NAME, "central-1")
        async with connect_all(topology, list_endpoints(NAME)) as connections:
            move = await plan_move(request, render_bundle(topology), connections)
            assert (await run("chaos", "pause", "central-1", "-t", file)).code == 0
            await carry_out_move(move, connections)
            made = await JetStreamAdmin(join_connections(connections)).consumer("foo-read-west", "reader")
        assert move.existing is not None
        assert made.created > move.existing.created
        assert made.config.fields["opt_start_seq"] == move.start.seq
