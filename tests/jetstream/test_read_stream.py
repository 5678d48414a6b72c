"""What a stream holds, read message by message."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.jetstream import JetStreamServer, fill
from vstream.errors import NotReachableError
from vstream.jetstream.connection import Reply, connect
from vstream.jetstream.read_stream import read_headers, read_messages
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


async def test_what_of_a_request_was_lost_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = JetStreamServer(tmp_path)
    server.start()
    try:
        await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * 10)
        async with connect(Endpoint(urls=(server.url,)), "west") as connection:
            collect, asked = connection.collect, list[str]()

            async def lose_some(
                subject: str, body: bytes, *, is_last: Callable[[Reply], bool], timeout: float
            ) -> object:
                asked.append(subject)
                if len(asked) > 1:
                    return await collect(subject, body, is_last=is_last, timeout=timeout)
                number = itertools.count(1)
                # Six are sent, and four of them arrive.
                six = json.dumps({**json.loads(body), "batch": 6}).encode()
                return await collect(
                    subject, six, is_last=lambda reply: next(number) <= 4 and is_last(reply), timeout=timeout
                )

            monkeypatch.setattr(connection, "collect", lose_some)
            found = [seq async for seq, _ in read_headers(connection, "foo", first=1, last=10, timeout=1)]
        assert found == list(range(1, 11))
        assert len(asked) == 2
    finally:
        server.stop()


async def test_a_consumer_that_the_nearest_server_does_not_know_yet_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = JetStreamServer(tmp_path)
    server.start()
    try:
        await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * 3)
        endpoint = Endpoint(urls=(server.url,))
        connection = await open_reconnecting(endpoint, "west", name="test", knows=lambda _name, _id: True, within=60)
        publish, first = connection.publish, ["nobody.listens"]

        async def publish_elsewhere_first(subject: str, data: bytes, *, reply: str = "") -> None:
            await publish(first.pop() if first else subject, data, reply=reply)

        monkeypatch.setattr(connection, "publish", publish_elsewhere_first)
        try:
            sequences = [message.seq async for message in read_messages(connection, "foo", patience=20)]
            assert sequences == [1, 2, 3]
            first += ["nobody.listens"] * 1000
            with pytest.raises(NotReachableError, match=r"`foo` cannot be read to its end: no responders$"):
                await anext(read_messages(connection, "foo", patience=0.3))
        finally:
            await connection.close()
        assert len(first) > 990
    finally:
        server.stop()
