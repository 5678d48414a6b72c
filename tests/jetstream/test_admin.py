"""Requests about streams, as a real server answers them."""

from __future__ import annotations

import pytest

from tests.support.jetstream import JetStreamServer
from vstream.errors import RefusedError
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
