"""Write the final contents of streams into the capture."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from vstream.capture.digest import digest
from vstream.capture.records import CapturedStream, StoredRecord, message_identity
from vstream.capture.store import Capture, RecordWriter
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.connection import ask_api
from vstream.jetstream.message_reader import StoredMessage, read_messages
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.source_header import MSG_ID, STREAM_SOURCE, origin_of
from vstream.topology import naming
from vstream.topology.bundle import RenderedStream
from vstream.topology.stream_config import source_name
from vstream.topology.stream_limits import read_limits

_COUNTS = "allow_msg_counter"
_ANSWER_TIMEOUT = 5.0
_PAUSE_SECONDS = 0.5


async def read_back(
    connection: ReconnectingConnection,
    stream: RenderedStream,
    streams: Sequence[str],
    capture: Capture,
    *,
    within: float,
) -> CapturedStream:
    """
    Write all messages of *stream* to the capture; *streams* are all possible origins.

    The result must agree with what the stream's leader reports; otherwise it is read again, for up to *within* seconds.
    Never raises for server errors: the result gives the reason.
    """
    deadline, problem = time.monotonic() + within, "no time"
    while time.monotonic() < deadline:
        try:
            return captured_stream(stream, messages=await _read_once(connection, stream.config.name, capture, streams))
        except VstreamError as error:
            problem = error.message
        await asyncio.sleep(_PAUSE_SECONDS)
    return captured_stream(stream, error=problem)


async def _read_once(connection: ReconnectingConnection, name: str, capture: Capture, streams: Sequence[str]) -> int:
    file = capture.stream_file(name)
    file.unlink(missing_ok=True)
    count = last = 0
    lines = RecordWriter(file, StoredRecord)
    try:
        before = await _read_state(connection, name)
        if before["messages"]:
            async for message in read_messages(connection, name, patience=_ANSWER_TIMEOUT):
                lines.write(stored_record(message, streams, name))
                count, last = count + 1, message.seq
        after = await _read_state(connection, name)
    finally:
        lines.close()
    if count and (count, last) != (after["messages"], after["last_seq"]):
        raise NotReachableError(
            f"{count} messages of stream `{name}` could be read, up to {last}, but its leader reports "
            f"{after['messages']}, up to {after['last_seq']}"
        )
    return count


async def _read_state(connection: ReconnectingConnection, name: str) -> dict[str, Any]:
    subject = naming.api_subject("STREAM.INFO", name)
    return dict((await ask_api(connection, subject, timeout=_ANSWER_TIMEOUT))["state"])


def stored_record(message: StoredMessage, streams: Sequence[str], reader: str) -> StoredRecord:
    """What a capture keeps of a *message* in the stream *reader*; *streams* are all possible origins."""
    origin, origin_seq = origin_of(message.headers, streams, reader=reader)
    return StoredRecord(
        seq=message.seq,
        time=message.time,
        subject=message.subject,
        id=message_identity(message.data),
        msg_id=message.headers.get(MSG_ID),
        source=message.headers.get(STREAM_SOURCE),
        origin=origin,
        origin_seq=origin_seq,
        size=len(message.data),
        digest=digest(message.data),
        ttl=message.headers.get("Nats-TTL"),
    )


def captured_stream(stream: RenderedStream, *, messages: int | None = None, error: str | None = None) -> CapturedStream:
    """The entry of *stream* in a manifest, read with so many *messages* or with an *error*."""
    fields = stream.config.fields
    return CapturedStream(
        name=stream.config.name,
        virtual=stream.virtual,
        region=stream.region,
        role=stream.role.value,
        messages=messages,
        error=error,
        mirror=source_name(mirror, stream.config.name) if isinstance(mirror := fields.get("mirror"), dict) else None,
        limits=read_limits(fields) | ({_COUNTS: 1} if fields.get(_COUNTS) else {}),
    )
