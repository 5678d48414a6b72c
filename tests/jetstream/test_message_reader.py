"""What a stream holds, read message by message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.jetstream import JetStreamServer, fill
from vstream.errors import NotReachableError
from vstream.jetstream import message_reader
from vstream.jetstream.connection import Reply, connect
from vstream.jetstream.message_reader import AckSubject, read_headers, read_messages, read_through
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server


@asynccontextmanager
async def reconnecting(server: JetStreamServer) -> AsyncIterator[ReconnectingConnection]:
    """A connection that outlives its server, as runs and backups read with."""
    endpoint = Endpoint(urls=(server.url,))
    connection = await open_reconnecting(
        endpoint, "west", name="test", accepts_server=lambda _name, _id: True, within=60
    )
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_limit_of_the_server_for_one_request_is_kept(tmp_path: Path) -> None:
    limited = f'jetstream {{ store_dir: "{tmp_path / "store"}", limits {{ max_request_batch: 7 }} }}'
    with JetStreamServer(tmp_path, more=limited) as server:
        # In a thread of its own: `fill` has an event loop.
        await asyncio.to_thread(fill, server, "foo", [("foo.x", b"%d" % number, None) for number in range(100)])
        async with reconnecting(server) as connection:
            sequences = [message.seq async for message in read_messages(connection, "foo", patience=20)]
        assert sequences == list(range(1, 101))


async def test_messages_are_read_without_a_task_for_each(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = 500
    await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * number)
    async with connect(Endpoint(urls=(server.url,)), "west") as connection:
        tasks = Mock(wraps=asyncio.get_running_loop().create_task)
        monkeypatch.setattr(asyncio.get_running_loop(), "create_task", tasks)
        sequences = [seq async for seq, _ in read_headers(connection, "foo", first=1, last=number, timeout=20)]
    assert sequences == list(range(1, number + 1))
    assert tasks.call_count < 20


@pytest.mark.parametrize(
    "lost", [{5, 6}, {3}, {10}, set(range(1, 11))], ids=["the last of a request", "one between", "the very last", "all"]
)
async def test_what_was_lost_on_its_way_is_asked_for_again(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch, lost: set[int]
) -> None:
    await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * 10)
    monkeypatch.setattr(message_reader, "_SILENCE_TIMEOUT", 0.3)
    async with connect(Endpoint(urls=(server.url,)), "west") as connection:
        request_many, asked = connection.request_many, list[str]()

        async def lose_some(
            subject: str, body: bytes, *, is_last: Callable[[Reply], bool], timeout: float
        ) -> tuple[Reply, ...]:
            asked.append(subject)
            if len(asked) > 1:
                return await request_many(subject, body, is_last=is_last, timeout=timeout)
            batch = max(lost) if len(lost) > 1 else json.loads(body)["batch"]
            sent = json.dumps({**json.loads(body), "batch": batch}).encode()
            answers = await request_many(
                subject, sent, is_last=lambda reply: has_come(reply) and is_last(reply), timeout=timeout
            )
            return tuple(filter(has_come, answers))

        def has_come(reply: Reply) -> bool:
            return AckSubject.parse(reply.reply).number not in lost

        monkeypatch.setattr(connection, "request_many", lose_some)
        sequences = [seq async for seq, _ in read_headers(connection, "foo", first=1, last=10, timeout=1)]
    assert sequences == list(range(1, 11))
    assert len(asked) == 2


@pytest.mark.parametrize("lost", [{2}, {4}, {1, 2, 3, 4}], ids=["one between", "the last", "all"])
async def test_a_message_that_is_lost_on_its_way_is_asked_for_again(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch, lost: set[int]
) -> None:
    await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * 4)
    monkeypatch.setattr(message_reader, "_SILENCE_TIMEOUT", 0.3)
    async with reconnecting(server) as connection:
        subscribe, losing = connection.subscribe, [True]

        async def lose_some(inbox: str, take: Callable[[Reply, str], Awaitable[None]]) -> None:
            is_losing = losing.pop() if losing else False

            async def take_others(reply: Reply, subject: str) -> None:
                if not is_losing or AckSubject.parse(reply.reply).number not in lost:
                    await take(reply, subject)

            await subscribe(inbox, take_others)

        monkeypatch.setattr(connection, "subscribe", lose_some)
        assert [message.seq async for message in read_messages(connection, "foo", patience=20)] == [1, 2, 3, 4]
        assert not losing
        losing += [True] * 1000
        if lost == {1, 2, 3, 4}:
            with pytest.raises(NotReachableError, match=r"nothing more came of stream `foo` within 0.5 s$"):
                await anext(read_messages(connection, "foo", patience=0.5))


async def test_a_replica_that_stays_behind_its_leader_is_given_up(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * 5)
    read_all, rounds = read_messages, iter((3, 5))

    async def read_as_replica(connection: ReconnectingConnection, stream: str, **options: Any) -> Any:
        """As a replica answers that has three messages, and later five."""
        held = next(rounds, 3)
        async for message in read_all(connection, stream, **options):
            if message.seq <= held:
                yield message

    monkeypatch.setattr(message_reader, "read_messages", read_as_replica)
    async with reconnecting(server) as connection:
        assert [message.seq async for message in read_through(connection, "foo", first=2, last=4, patience=20)] == [
            2,
            3,
            4,
        ]
        with pytest.raises(NotReachableError, match="a replica of `foo` lacks what its leader has from sequence 4 on"):
            await anext(read_through(connection, "foo", first=4, last=5, patience=0.5))


async def test_a_consumer_that_the_nearest_server_does_not_know_yet_is_asked_again(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncio.to_thread(fill, server, "foo", [("foo.x", b"", None)] * 3)
    async with reconnecting(server) as connection:
        publish, first = connection.publish, ["nobody.listens"]

        async def publish_elsewhere_first(subject: str, data: bytes, *, reply: str = "") -> None:
            await publish(first.pop() if first else subject, data, reply=reply)

        monkeypatch.setattr(connection, "publish", publish_elsewhere_first)
        sequences = [message.seq async for message in read_messages(connection, "foo", patience=20)]
        assert sequences == [1, 2, 3]
        first += ["nobody.listens"] * 1000
        with pytest.raises(NotReachableError, match=r"`foo` cannot be read to its end: no responders$"):
            await anext(read_messages(connection, "foo", patience=0.3))
    assert len(first) > 990
