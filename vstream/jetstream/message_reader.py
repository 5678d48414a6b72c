"""Read every message of a stream in order, through a temporary consumer that acknowledges nothing."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, VstreamError
from vstream.jetstream.answers import convert_malformed_errors, require_text
from vstream.jetstream.connection import STATUS_NO_RESPONDERS, Connection, Reply, ask_api
from vstream.jetstream.direct import ANY_SUBJECT, get_next_from_leader
from vstream.timing import SECOND_NS
from vstream.topology import naming
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.jetstream.reconnecting import ReconnectingConnection

BATCH_MESSAGES = 2000
_ACK = "$JS.ACK."
_PAUSE_SECONDS = 0.1
"""Seconds between two requests to a consumer that nobody has found, or to a replica that is behind."""
_SILENCE_TIMEOUT = 10.0
"""Seconds without a message after which the request, or what answered it, counts as lost."""
_INACTIVE_SECONDS = 60
"""Seconds after which servers remove the consumer of a reader that has gone away."""


@value_class
class StoredMessage:
    """A stored message. *time* is when it was stored, in nanoseconds since 1970."""

    seq: int
    time: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    pending: int
    """How many messages follow it."""


@value_class
class AckSubject:
    """The parts of a delivered message's reply subject."""

    deliveries: int
    seq: int
    number: int
    """Which delivery of its consumer it is, from 1 on: where one is left out, a message was sent and lost."""
    time: int
    pending: int

    @classmethod
    def parse(cls, subject: str) -> AckSubject:
        """Parse `$JS.ACK.STREAM.CONSUMER.…`. Newer servers may put a domain and an account in front of the stream."""
        tokens = subject.split(".")
        first = 4 if len(tokens) < 11 else 6  # noqa: PLR2004
        deliveries, seq, number, time, pending = map(int, tokens[first : first + 5])
        return cls(deliveries=deliveries, seq=seq, number=number, time=time, pending=pending)


async def read_messages(
    connection: ReconnectingConnection, stream: str, *, from_seq: int = 1, headers_only: bool = False, patience: float
) -> AsyncGenerator[StoredMessage]:
    """
    The messages of the physical *stream* from *from_seq* up to the last one at the time of the request.

    One of its replicas answers, which may be behind the leader. What is lost on its way is asked for again. Raises
    ServerError if the stream does not exist, and NotReachableError if nothing arrives for *patience* seconds.
    """
    until = time.monotonic() + patience
    while True:
        # The consumer of each attempt is new: one that has sent a message does not send it again.
        messages = _read_once(connection, stream, from_seq, headers_only=headers_only, patience=patience)
        try:
            async with aclosing(messages):
                async for message in messages:
                    from_seq = message.seq + 1
                    yield message
                    until = time.monotonic() + patience  # not counting what the caller took
        except NotReachableError as error:
            if isinstance(error, NotPermittedError) or time.monotonic() > until:
                raise
        else:
            return
        await asyncio.sleep(_PAUSE_SECONDS)


async def read_through(
    connection: ReconnectingConnection,
    stream: str,
    *,
    first: int,
    last: int,
    headers_only: bool = False,
    patience: float,
) -> AsyncGenerator[StoredMessage]:
    """
    The messages from *first* to *last* that the leader of the physical *stream* has. What is deleted meanwhile is left out.

    Raises as `read_messages`, and NotReachableError if a replica answers that stays behind its leader for *patience* seconds.
    """
    until = time.monotonic() + patience
    while first <= last:
        before = first
        messages = read_messages(connection, stream, from_seq=first, headers_only=headers_only, patience=patience)
        async with aclosing(messages):
            async for message in messages:
                if message.seq > last:
                    return
                first = message.seq + 1
                yield message
                until = time.monotonic() + patience
        if first == before:
            following = await get_next_from_leader(connection, stream, ANY_SUBJECT, first, timeout=patience)
            if following is None or following.seq > last:
                return
            if time.monotonic() > until:
                raise NotReachableError(
                    f"a replica of `{stream}` lacks what its leader has from sequence {first:,} on",
                    hint="try again when it has caught up",
                )
            await asyncio.sleep(_PAUSE_SECONDS)


async def _read_once(
    connection: ReconnectingConnection, stream: str, from_seq: int, *, headers_only: bool, patience: float
) -> AsyncGenerator[StoredMessage]:
    """As `read_messages`, with one consumer. Raises NotReachableError as soon as something seems to be lost."""
    reader = await _create_consumer(connection, stream, from_seq, headers_only=headers_only, timeout=patience)
    arrived: asyncio.Queue[StoredMessage | str | VstreamError | None] = asyncio.Queue()
    numbers = itertools.count(1)

    async def take(reply: Reply, subject: str) -> None:
        arrived.put_nowait(_decode_delivery(reply, subject, numbers))

    def end_reading(refusal: asyncio.Future[None]) -> None:
        if not refusal.cancelled() and isinstance(error := refusal.exception(), VstreamError):
            arrived.put_nowait(error)

    refusal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    refusal.add_done_callback(end_reading)
    connection.client.expect(reader.pulls, refusal)
    inbox = connection.inbox()
    await connection.subscribe(inbox, take)
    left, until = reader.pending, time.monotonic() + patience
    try:
        while left:
            batch = min(reader.most, left)
            body = json.dumps({"batch": batch, "expires": round(patience * SECOND_NS)}).encode()
            await connection.publish(reader.pulls, body, reply=inbox)
            for _ in range(batch):
                message = await _read_next(arrived, stream, patience)
                if message is None:  # servers of other regions do not know of a consumer at once
                    if time.monotonic() > until:
                        raise NotReachableError(f"stream `{stream}` cannot be read to its end: no responders")
                    await asyncio.sleep(_PAUSE_SECONDS)
                    break
                left, until = left - 1, time.monotonic() + patience
                yield message
                if message.pending == 0:
                    return
    finally:
        refusal.cancel()
        await _delete_consumer(connection, reader)


async def _delete_consumer(connection: Connection, reader: _TemporaryConsumer) -> None:
    """Remove *reader*; servers do it later where they do not answer. Raises NotPermittedError if that is refused."""
    try:
        # An answer is waited for: a refusal would else be taken for that of the next request.
        await connection.request(reader.deletes)
    except NotPermittedError:
        raise
    except VstreamError:
        return


def _decode_delivery(reply: Reply, subject: str, numbers: Iterator[int]) -> StoredMessage | str | None:
    """The message in *reply*, or why there is none; None where nobody listens. *numbers* are those of deliveries to come."""
    if reply.status == STATUS_NO_RESPONDERS:
        return None
    if not reply.reply.startswith(_ACK):
        return f"{reply.headers.get('Description') or 'no more'} ({reply.status})"
    try:
        ack = AckSubject.parse(reply.reply)
    except ValueError:
        return f"`{reply.reply}` is not an acknowledgement subject"
    if ack.number != next(numbers):
        return f"a message before sequence {ack.seq:,} was lost on its way"
    return StoredMessage(
        seq=ack.seq, time=ack.time, subject=subject, headers=reply.headers, data=reply.data, pending=ack.pending
    )


async def read_headers(
    connection: Connection, stream: str, *, first: int, last: int, timeout: float
) -> AsyncGenerator[tuple[int, Mapping[str, str]]]:
    """
    Sequence and headers of each message of the physical *stream* from *first* to *last*.

    Raises ServerError if the stream does not exist, and NotReachableError if nothing arrives for *timeout* seconds.
    """
    reader = await _create_consumer(connection, stream, first, headers_only=True, timeout=timeout)
    held, number, pending, until = first - 1, 0, reader.pending, time.monotonic() + timeout
    try:
        while pending and held < last:
            batch = min(reader.most, pending)
            before = number
            for reply in await _pull(connection, reader.pulls, batch, timeout):
                if not reply.reply.startswith(_ACK):
                    text = f"{reply.headers.get('Description') or 'no more'} ({reply.status})"
                    raise NotReachableError(f"stream `{stream}` cannot be read to sequence {last:,}: {text}")
                with convert_malformed_errors(reader.pulls):
                    ack = AckSubject.parse(reply.reply)
                if ack.number != number + 1:
                    break
                if ack.seq > last:
                    return
                held, number, pending = ack.seq, ack.number, ack.pending
                yield ack.seq, reply.headers
            if number > before:
                until = time.monotonic() + timeout
            elif time.monotonic() > until:
                raise NotReachableError(f"stream `{stream}` cannot be read to sequence {last:,}: messages are lost")
            if pending and number < before + batch:
                # What is missing may have been sent and lost: this consumer does not send it again.
                reader = await _create_consumer(connection, stream, held + 1, headers_only=True, timeout=timeout)
                number, pending = 0, reader.pending
    finally:
        await connection.request(reader.deletes, timeout=timeout)


@value_class
class _TemporaryConsumer:
    """A temporary consumer that acknowledges nothing."""

    pulls: str
    """Where messages are asked for."""
    deletes: str
    """Where it is removed."""
    pending: int
    most: int
    """How many messages one request may ask for."""


async def _create_consumer(
    connection: Connection, stream: str, from_seq: int, *, headers_only: bool, timeout: float
) -> _TemporaryConsumer:
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": from_seq,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _INACTIVE_SECONDS * SECOND_NS,
        "headers_only": headers_only,
    }
    subject, local = naming.api_subject("CONSUMER.CREATE", stream), naming.local_name(stream)
    created = await ask_api(connection, subject, {"stream_name": local, "config": config}, timeout=timeout)
    with convert_malformed_errors(subject):
        name = require_text(created["name"])
        return _TemporaryConsumer(
            pulls=f"{naming.api_subject('CONSUMER.MSG.NEXT', stream)}.{name}",
            deletes=f"{naming.api_subject('CONSUMER.DELETE', stream)}.{name}",
            pending=int(created.get("num_pending", 0)),
            # Servers may have a limit of their own for one request.
            most=min(BATCH_MESSAGES, int(created.get("config", {}).get("max_batch") or BATCH_MESSAGES)),
        )


async def _pull(connection: Connection, subject: str, batch: int, timeout: float) -> tuple[Reply, ...]:
    """
    The next messages of a consumer, *batch* of them at most, and what the server says where there are no more.

    Fewer, or none, if the rest has not come in time. Raises NoRespondersError if nobody listens for *timeout* seconds.
    """
    replies: list[Reply] = []

    def is_last(reply: Reply) -> bool:
        replies.append(reply)
        return len(replies) == batch or not reply.reply.startswith(_ACK) or reply.reply.endswith(".0")

    body = json.dumps({"batch": batch, "expires": round(timeout * SECOND_NS)}).encode()
    deadline = time.monotonic() + timeout
    while True:
        try:
            return await connection.request_many(subject, body, is_last=is_last, timeout=min(timeout, _SILENCE_TIMEOUT))
        except NotPermittedError:
            raise
        except NotReachableError:
            return tuple(replies)
        except NoRespondersError:
            # Servers of other regions do not know of a consumer at once.
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)


async def _read_next(
    arrived: asyncio.Queue[StoredMessage | str | VstreamError | None], stream: str, patience: float
) -> StoredMessage | None:
    """The next message, or None where nobody listens for the request. Raises NotPermittedError if it was refused."""
    try:
        async with asyncio.timeout(min(patience, _SILENCE_TIMEOUT)):
            message = await arrived.get()
    except TimeoutError:
        raise NotReachableError(f"nothing more came of stream `{stream}` within {patience:g} s") from None
    if isinstance(message, VstreamError):
        raise message
    if isinstance(message, str):
        raise NotReachableError(f"stream `{stream}` cannot be read to its end: {message}")
    return message
