"""
Read single stored messages, through Direct Get where possible.

Any server with a copy of the stream answers Direct Get (ADR-31). It needs no leader of any kind, and its `Nats-Stream`
header names the stream that answered: what a probe wants to know about a virtual name. Only forms that 2.10 already has
are used here. A copy may lag behind its leader: a message that it does not hold yet is answered as not found.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from vstream.errors import NoRespondersError, ServerError
from vstream.jetstream import error_codes
from vstream.jetstream.answers import convert_malformed_errors, require_text
from vstream.jetstream.connection import REQUEST_TIMEOUT, Connection, Reply, ask_api
from vstream.topology import naming
from vstream.value_class import value_class

ANY_SUBJECT = ">"

_STATUS_NOT_FOUND = 404
_STREAM = "Nats-Stream"
_SEQUENCE = "Nats-Sequence"
_SUBJECT = "Nats-Subject"
_TIME = "Nats-Time-Stamp"
_MAX_PARALLEL_READS = 64


@value_class
class DirectMessage:
    """A stored message. *stream* is the physical stream that answered, whatever name was requested."""

    stream: str
    seq: int
    subject: str
    stored_at: str
    """Time in RFC 3339, as the server wrote it."""
    headers: Mapping[str, str]
    """The message's own headers, without those that the answer adds."""
    data: bytes
    header_block: bytes = b""
    """The headers as they are stored, where the leader answered."""


Read: TypeAlias = Callable[[Connection, str, int, float], Awaitable[DirectMessage | None]]
"""Reads a message of a stream by its sequence, within some seconds: from any replica, or from the leader."""


async def get_by_seq(
    connection: Connection, stream: str, seq: int, *, timeout: float = REQUEST_TIMEOUT
) -> DirectMessage | None:
    """
    The message at *seq*; None if it does not exist.

    This and the other functions raise ServerError for any status but 404, NoRespondersError if no stream answers (it
    does not exist, or its `allow_direct` is off), and NotReachableError if no answer comes within *timeout* seconds.
    """
    return await _request_direct(connection, stream, {"seq": seq}, timeout)


async def get_newest(
    connection: Connection, stream: str, subject: str, *, timeout: float = REQUEST_TIMEOUT
) -> DirectMessage | None:
    """
    The newest message on *subject*, which may hold wildcards; None if there is none. Raises as `get_by_seq`.

    Do not use it for ANY_SUBJECT: servers up to at least 2.15.1 then look only at the last sequence, and find nothing
    if that message was deleted. `get_next` handles this.
    """
    return await _request_direct(connection, stream, {"last_by_subj": subject}, timeout)


async def get_next(
    connection: Connection, stream: str, subject: str, from_seq: int, *, timeout: float = REQUEST_TIMEOUT
) -> DirectMessage | None:
    """The first message on *subject* at or after *from_seq*, None if there is none. Raises as `get_by_seq`."""
    return await _request_direct(connection, stream, {"seq": from_seq, "next_by_subj": subject}, timeout)


async def get_next_from_leader(
    connection: Connection, stream: str, subject: str, from_seq: int, *, timeout: float = REQUEST_TIMEOUT
) -> DirectMessage | None:
    """
    Like `get_next`, but the stream's leader answers: never behind, and possible with `allow_direct` off.

    *stream* is a physical name, because this answer does not say which stream gave it. Needs a leader of the stream and
    of the meta group. Raises ServerError if the stream does not exist or a leader is missing.
    """
    return await _request_from_leader(connection, stream, {"seq": from_seq, "next_by_subj": subject}, timeout)


async def get_by_seq_from_leader(
    connection: Connection, stream: str, seq: int, *, timeout: float = REQUEST_TIMEOUT
) -> DirectMessage | None:
    """Like `get_by_seq`, but the leader answers; see `get_next_from_leader`."""
    return await _request_from_leader(connection, stream, {"seq": seq}, timeout)


async def get_newest_from_leader(
    connection: Connection, stream: str, subject: str, *, timeout: float = REQUEST_TIMEOUT
) -> DirectMessage | None:
    """Like `get_newest`, but the leader answers; see `get_next_from_leader`."""
    return await _request_from_leader(connection, stream, {"last_by_subj": subject}, timeout)


async def read_message(connection: Connection, stream: str, seq: int, timeout: float) -> DirectMessage | None:
    """The message at *seq*, by Direct Get, or from the leader where that is switched off. Raises as they do."""
    try:
        return await get_by_seq(connection, stream, seq, timeout=timeout)
    except NoRespondersError:
        return await get_by_seq_from_leader(connection, stream, seq, timeout=timeout)


async def read_message_from_leader(
    connection: Connection, stream: str, seq: int, timeout: float
) -> DirectMessage | None:
    """The message at *seq*, from the leader of *stream*. Raises as `get_by_seq_from_leader`."""
    return await get_by_seq_from_leader(connection, stream, seq, timeout=timeout)


async def read_next_message(connection: Connection, stream: str, seq: int, timeout: float) -> DirectMessage | None:
    """Like `read_message`, the first message at or after *seq*."""
    try:
        return await get_next(connection, stream, ANY_SUBJECT, seq, timeout=timeout)
    except NoRespondersError:
        return await get_next_from_leader(connection, stream, ANY_SUBJECT, seq, timeout=timeout)


async def walk_back(
    connection: Connection, stream: str, last: int, before: int, *, timeout: float, read: Read = read_message
) -> AsyncIterator[DirectMessage]:
    """The messages of *stream* from sequence *last* down to the one after *before*, without those that are not there."""
    for top in range(last, before, -_MAX_PARALLEL_READS):
        seqs = range(top, max(before, top - _MAX_PARALLEL_READS), -1)
        for message in await asyncio.gather(*(read(connection, stream, seq, timeout) for seq in seqs)):
            if message is not None:
                yield message


async def _request_direct(
    connection: Connection, stream: str, query: Mapping[str, Any], timeout: float
) -> DirectMessage | None:
    subject = naming.api_subject("DIRECT.GET", stream)
    reply = await connection.request(subject, json.dumps(query).encode(), timeout=timeout)
    if reply.status == _STATUS_NOT_FOUND:
        return None
    if reply.status is not None:
        raise ServerError(
            code=reply.status,
            err_code=0,
            description=reply.headers.get("Description") or "no description",
            subject=subject,
        )
    return _decode_message(reply, connection.region, subject)


def _decode_message(reply: Reply, region: str, subject: str) -> DirectMessage:
    answer_headers = {_STREAM, _SEQUENCE, _SUBJECT, _TIME}
    with convert_malformed_errors(f"{region}: {subject}"):
        return DirectMessage(
            stream=reply.headers[_STREAM],
            seq=int(reply.headers[_SEQUENCE]),
            subject=reply.headers[_SUBJECT],
            stored_at=reply.headers[_TIME],
            headers={name: value for name, value in reply.headers.items() if name not in answer_headers},
            data=reply.data,
        )


async def _request_from_leader(
    connection: Connection, stream: str, query: Mapping[str, Any], timeout: float
) -> DirectMessage | None:
    subject = naming.api_subject("STREAM.MSG.GET", stream)
    try:
        answer = await ask_api(connection, subject, query, timeout=timeout)
    except ServerError as error:
        if error.err_code == error_codes.MESSAGE_NOT_FOUND:
            return None
        raise
    with convert_malformed_errors(f"{connection.region}: {subject}"):
        message = answer["message"]
        block = base64.b64decode(message.get("hdrs", ""))
        return DirectMessage(
            stream=stream,
            seq=int(message["seq"]),
            subject=require_text(message["subject"]),
            stored_at=require_text(message["time"]),
            headers=_decode_headers(block),
            data=base64.b64decode(message.get("data", "")),
            header_block=block,
        )


def _decode_headers(block: bytes) -> Mapping[str, str]:
    """The headers of a message as it is stored: a version line, then `Name: value` lines."""
    lines = block.decode(errors="replace").split("\r\n")[1:]
    pairs = (line.partition(":") for line in lines if line)
    return {name: value.strip() for name, _, value in pairs}
