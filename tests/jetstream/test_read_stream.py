"""What a stream holds, read message by message."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.jetstream import JetStreamServer, fill
from vstream.jetstream.read_stream import read_messages
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server


async def test_a_limit_of_the_server_for_one_request_is_kept(tmp_path: Path) -> None:
    limited = f'jetstream {{ store_dir: "{tmp_path / "store"}", limits {{ max_request_batch: 7 }} }}'
    server = JetStreamServer(tmp_path, more=limited)
    server.start()
    try:
        # In a thread of its own: `fill` has an event loop.
        await asyncio.to_thread(fill, server, "foo", [("foo.x", b"%d" % number, None) for number in range(100)])
        endpoint = Endpoint(urls=(server.url,))
        connection = await open_reconnecting(endpoint, "west", name="test", knows=lambda _name, _id: True, within=60)
        try:
            found = [message.seq async for message in read_messages(connection, "foo", patience=20)]
        finally:
            await connection.close()
        assert found == list(range(1, 101))
    finally:
        server.stop()
