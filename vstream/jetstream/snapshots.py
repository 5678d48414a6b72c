"""
Snapshots of streams, as servers make and take them: STREAM.SNAPSHOT and STREAM.RESTORE.

A snapshot is a stream of chunks in the servers' own format, with sequences, times, headers, and the consumers' positions.
The server sends so many that a window is full, and goes on when they are acknowledged: 5 s without that, and it gives up. It takes
chunks one by one, answers each, and forgets what it has got so far if none comes for 5 s
(server/jetstream_api.go, streamSnapshot and processStreamRestore).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from nats.aio.msg import Msg

from vstream.errors import NoRespondersError, NotReachableError, ServerError
from vstream.jetstream.answers import api_error, convert_malformed_errors, decode_object, require_config, require_state
from vstream.jetstream.connection import Connection, ask_api
from vstream.topology import naming
from vstream.topology.stream_config import StreamConfig
from vstream.value_class import value_class

CHUNK_BYTES = 128 * 1024
_WINDOW_BYTES = 4 * 1024 * 1024
"""Bytes that may be on their way."""
_ANSWER_TIMEOUT = 15.0
"""Seconds for one answer: the servers' own limit is 5."""
_RESTORE_TIMEOUT = 300.0
"""Seconds that a server gets to build a stream from what it was sent."""
_ENDED_WELL = (None, "", "204")
_CHUNK_TIMEOUT = 5.0
"""Seconds without a chunk after which a server forgets a restore."""
_PAUSE_SECONDS = 0.05


@value_class
class SnapshotHead:
    """What a server says of a snapshot before it sends it: the stream's configuration and state, in the API's own fields."""

    config: StreamConfig
    state: Mapping[str, Any]


async def take_snapshot(connection: Connection, stream: str, write: Callable[[bytes], object]) -> SnapshotHead:
    """
    Give every chunk of a snapshot of *stream*, with its consumers, to *write*, in order.

    Raises ServerError if the servers refuse it or break off, NotReachableError if nothing comes, and what *write* raises.
    """
    client, arrived = connection.client, asyncio.Queue[Any]()

    async def take(message: Msg) -> None:
        arrived.put_nowait(message)

    subject, inbox = naming.api_subject("STREAM.SNAPSHOT", stream), client.new_inbox()
    subscription = await client.subscribe(inbox, cb=take)
    try:
        request = {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES, "window_size": _WINDOW_BYTES, "jsck": True}
        answer = await ask_api(connection, subject, request, timeout=_ANSWER_TIMEOUT)
        while (chunk := await _read_chunk(arrived, stream)).data:
            write(chunk.data)
            if chunk.reply:
                await client.publish(chunk.reply, b"")
        _require_whole(chunk.headers or {}, subject)
    finally:
        if client.is_connected:
            await subscription.unsubscribe()
    with convert_malformed_errors(subject):
        fields = require_config(answer.get("config"), subject)
        return SnapshotHead(
            config=StreamConfig(name=stream, fields=fields), state=require_state(answer["state"], subject)
        )


async def _read_chunk(arrived: asyncio.Queue[Any], stream: str) -> Any:
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT):
            return await arrived.get()
    except TimeoutError:
        raise NotReachableError(f"no more of the snapshot of `{stream}` within {_ANSWER_TIMEOUT:g} s") from None


def _require_whole(headers: Mapping[str, str], subject: str) -> None:
    """Raise ServerError if a snapshot's last message says that it is not all."""
    status = headers.get("Status")
    if status not in _ENDED_WELL:
        reason = f"{headers.get('Description') or 'the snapshot broke off'} ({status})"
        raise ServerError(code=500, err_code=0, description=reason, subject=subject)


async def restore_snapshot(
    connection: Connection, config: StreamConfig, state: Mapping[str, Any], chunks: Iterable[bytes]
) -> None:
    """
    Make the stream of *config* from the *chunks* of a snapshot, which was taken in *state*. It must not exist.

    Raises ServerError if the servers refuse it, NotReachableError if there was no answer (it may exist then, in part or whole).
    """
    subject = naming.api_subject("STREAM.RESTORE", config.name)
    fields = {**config.fields, "name": naming.local_name(config.name)}
    answer = await ask_api(connection, subject, {"config": fields, "state": dict(state)}, timeout=_ANSWER_TIMEOUT)
    with convert_malformed_errors(subject):
        target = str(answer["deliver_subject"])
    for chunk in chain(chunks, (b"",)):
        # An empty one ends it, and is answered when the stream is there.
        data = await _send_chunk(connection, target, chunk, _ANSWER_TIMEOUT if chunk else _RESTORE_TIMEOUT)
        if data and (error := api_error(decode_object(data, subject), subject)) is not None:
            raise error


async def _send_chunk(connection: Connection, target: str, chunk: bytes, timeout: float) -> bytes:
    """The answer to *chunk*. It takes a moment until other clusters know that a server listens on *target*."""
    deadline = time.monotonic() + _CHUNK_TIMEOUT
    while True:
        try:
            return (await connection.request(target, chunk, timeout=timeout)).data
        except NoRespondersError:
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)
