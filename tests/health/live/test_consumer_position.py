"""Where a consumer goes on by a record of its position, on a real server."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta

import pytest

from tests.support.jetstream import JetStreamServer, fill
from vstream.health.live.consumer_position import MoveRequest, carry_out_move, plan_move
from vstream.jetstream import direct
from vstream.jetstream.connection import Connection, connect
from vstream.lint import check_topology
from vstream.plan.consumer_failover import parse_position
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server

LOST_HOME = b"""
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 1, lost: {prices: central}}, central: {servers: 1}, east: {servers: 1}}
streams:
  prices: {subjects: [prices.>], consistency: homed, home: west, write: {max_age: unlimited}, consumers: {reader: {}}}
"""
LIVING_HOME = LOST_HOME.replace(b", lost: {prices: central}", b"").replace(b"home: west", b"home: central")


async def continue_reader(connection: Connection, text: bytes, acknowledged: int, at: datetime) -> tuple[int, int]:
    """Continue the reader of `west` in central: where it begins, and how many messages are to be delivered."""
    topology = check_topology.check_topology(text, "acme.yaml").require()
    (stream,) = topology.streams
    record = {"format": 1, "topology": "acme", "stream": "prices", "consumer": "reader", "region": "west"}
    record |= {"at": at.isoformat(), "origins": {"prices": acknowledged}, "unknown": []}
    record |= {"beyond": 0, "unacknowledged": 0, "config": {}}
    request = MoveRequest(
        topology=topology,
        stream=stream,
        durable="reader",
        come_from=None,
        recorded=parse_position(json.dumps(record), "record"),
        to="central",
        name="reader",
    )
    connections = {"central": connection}
    move = await plan_move(request, render_bundle(topology), connections)
    return move.start.seq, await carry_out_move(move, connections)


async def publish(server: JetStreamServer, number: int) -> None:
    await asyncio.to_thread(fill, server, "prices", [("prices.a", b"", None)] * number)


async def stored_at(connection: Connection, seq: int) -> datetime:
    message = await direct.get_by_seq(connection, "prices", seq)
    assert message is not None
    return datetime.fromisoformat(message.stored_at)


async def make_origin_of_copy(server: JetStreamServer, connection: Connection) -> None:
    """An origin that begins with the 20 messages of a copy, and takes publishes."""
    await asyncio.to_thread(fill, server, "copy", [("copy.a", b"", None)] * 20)
    await asyncio.to_thread(fill, server, "prices", [], subjects=[], mirror={"name": "copy"})
    async with asyncio.timeout(60):
        while await direct.get_by_seq(connection, "prices", 20) is None:
            await asyncio.sleep(0.05)
    config = {"name": "prices", "subjects": ["prices.>"], "storage": "memory", "num_replicas": 1, "allow_direct": True}
    opened = await connection.request_json("$JS.API.STREAM.UPDATE.prices", config)
    assert "error" not in opened, opened


async def test_sequences_that_a_new_origin_gives_out_again_are_delivered(server: JetStreamServer) -> None:
    """West had acknowledged 35, and no copy had more than 20."""
    async with connect(Endpoint(urls=(server.url,)), "central") as connection:
        await make_origin_of_copy(server, connection)
        at = await stored_at(connection, 20) - timedelta(milliseconds=999)
        for topology in (LOST_HOME, LIVING_HOME):
            assert await continue_reader(connection, topology, 35, at) == (21, 0)  # nothing was published yet
        await publish(server, 20)
        assert await stored_at(connection, 21) >= at + timedelta(seconds=1)
        for topology in (LOST_HOME, LIVING_HOME):
            assert await continue_reader(connection, topology, 35, at) == (21, 20)
            assert await continue_reader(connection, topology, 12, at) == (13, 28)
        # A record that is younger than all of them is what it says.
        later = await stored_at(connection, 40)
        assert await continue_reader(connection, LIVING_HOME, 35, later) == (36, 5)
        # In a dead region nobody can have acknowledged them, whatever the clock said.
        assert await continue_reader(connection, LOST_HOME, 35, later + timedelta(hours=1)) == (21, 20)
