"""Read every message of a stream in order, through a temporary consumer that acknowledges nothing."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.errors import NotReachableError
from vstream.jetstream.answers import api_error, read_text, reading
from vstream.topology import naming

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from vstream.jetstream.connection import Reply
    from vstream.jetstream.reconnecting import ReconnectingConnection

BATCH = 2000
_NS = 1_000_000_000
_ACK = "$JS.ACK."
_IDLE = 60
"""Seconds after which servers remove the consumer of a reader that has gone away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """A stored message. *time* is when it was stored, in nanoseconds since 1970."""

    seq: int
    time: int
    subject: str
    headers: Mapping[str, str]
    data: bytes
    pending: int
    """How many messages follow it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AckSubject:
    """The parts of a delivered message's reply subject."""

    deliveries: int
    seq: int
    time: int
    pending: int

    @classmethod
    def parse(cls, subject: str) -> AckSubject:
        """Parse `$JS.ACK.STREAM.CONSUMER.…`. Newer servers may put a domain and an account in front of the stream."""
        tokens = subject.split(".")
        first = 4 if len(tokens) < 11 else 6  # noqa: PLR2004
        deliveries, seq, _, time, pending = map(int, tokens[first : first + 5])
        return cls(deliveries=deliveries, seq=seq, time=time, pending=pending)


async def read_messages(
    connection: ReconnectingConnection, stream: str, *, from_seq: int = 1, headers_only: bool = False, patience: float
) -> AsyncIterator[StoredMessage]:
    """
    The messages of the physical *stream* from *from_seq* up to the last one at the time of the request.

    One of its replicas answers, which may be behind the leader. Raises ServerError if the stream does not exist, and
    NotReachableError if nothing arrives for *patience* seconds.
    """
    config = {
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": from_seq,
        "ack_policy": "none",
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _IDLE * _NS,
        "headers_only": headers_only,
    }
    subject, local = naming.api_subject("CONSUMER.CREATE", stream), naming.local_name(stream)
    created = await connection.request_json(subject, {"stream_name": local, "config": config}, timeout=patience)
    error = api_error(created, subject)
    if error is not None:
        raise error
    arrived: asyncio.Queue[StoredMessage | str] = asyncio.Queue()

    async def take(reply: Reply, subject: str) -> None:
        if not reply.reply.startswith(_ACK):
            arrived.put_nowait(f"{reply.headers.get('Description') or 'no responders'} ({reply.status})")
            return
        try:
            ack = AckSubject.parse(reply.reply)
        except ValueError:
            arrived.put_nowait(f"`{reply.reply}` is not an acknowledgement subject")
            return
        arrived.put_nowait(
            StoredMessage(
                seq=ack.seq, time=ack.time, subject=subject, headers=reply.headers, data=reply.data, pending=ack.pending
            )
        )

    inbox = connection.inbox()
    await connection.subscribe(inbox, take)
    with reading(subject):
        left, name = int(created.get("num_pending", 0)), read_text(created["name"])
        # Servers may have a limit of their own for one request.
        most = min(BATCH, int(created.get("config", {}).get("max_batch") or BATCH))
    try:
        while left:
            batch = min(most, left)
            body = json.dumps({"batch": batch, "expires": round(patience * _NS)}).encode()
            await connection.publish(f"{naming.api_subject('CONSUMER.MSG.NEXT', stream)}.{name}", body, reply=inbox)
            for _ in range(batch):
                message = await _next(arrived, stream, patience)
                left -= 1
                yield message
                if message.pending == 0:
                    return
    finally:
        await connection.publish(f"{naming.api_subject('CONSUMER.DELETE', stream)}.{name}", b"")


async def _next(arrived: asyncio.Queue[StoredMessage | str], stream: str, patience: float) -> StoredMessage:
    try:
        async with asyncio.timeout(patience):
            message = await arrived.get()
    except TimeoutError:
        raise NotReachableError(f"nothing more came of stream `{stream}` within {patience:g} s") from None
    if isinstance(message, str):
        raise NotReachableError(f"stream `{stream}` cannot be read to its end: {message}")
    return message
