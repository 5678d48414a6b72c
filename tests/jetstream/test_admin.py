"""Requests about streams, as a real server answers them."""

from __future__ import annotations

import asyncio
import json

import nats
import pytest
from nats.aio.msg import Msg

from tests.support.jetstream import JetStreamServer
from vstream.errors import RefusedError, ServerError
from vstream.jetstream import error_codes
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.topology.model import Endpoint
from vstream.topology.stream_config import StreamConfig


async def test_a_stream_that_answers_is_not_forgotten(server: JetStreamServer) -> None:
    """Two who give the same region up at once: what one of them has made again, the other does not delete."""
    async with connect(Endpoint(urls=(server.url,)), "west") as connection:
        admin = JetStreamAdmin(connection)
        await admin.create(StreamConfig(name="prices", fields={"name": "prices", "subjects": ["prices.>"]}))
        await connection.request("prices.a", b"1")
        with pytest.raises(RefusedError, match="answers again"):
            await admin.forget("prices")
        assert (await admin.info("prices"))["state"]["messages"] == 1


async def test_a_removal_that_is_refused_for_good_is_not_asked_for_again(server: JetStreamServer) -> None:
    """What ends by itself is waited for."""
    asked: list[str] = []
    answers = [error_codes.MEMBER_CHANGE_IN_PROGRESS, error_codes.CLUSTER_NOT_AVAILABLE, 10003]

    async def refuse(request: Msg) -> None:
        asked.append(json.loads(request.data)["peer"])
        refusal = {"code": 400, "err_code": answers.pop(0), "description": "no"}
        await request.respond(json.dumps({"error": refusal}).encode())

    client = await nats.connect(server.url)
    try:
        # A server without a cluster removes nothing, and says nothing.
        await client.subscribe("$JS.API.SERVER.REMOVE", cb=refuse)
        await client.flush()
        async with connect(Endpoint(urls=(server.url,)), "west") as connection, asyncio.timeout(20):
            with pytest.raises(ServerError, match="no"):
                await JetStreamAdmin(connection).remove_peer("west-3")
    finally:
        await client.close()
    assert (asked, answers) == (["west-3"] * 3, [])
