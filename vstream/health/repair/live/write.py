"""Put a message at exactly the sequence that it had: whatever a repair publishes is written here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from vstream.errors import NoRespondersError
from vstream.health.repair.live.scan import TIMEOUT
from vstream.jetstream.answers import api_error, decode_object
from vstream.jetstream.connection import Connection
from vstream.value_class import value_class

_LAST_SEQUENCE_HEADER = "Nats-Expected-Last-Sequence"
_DROPPED_HEADERS = ("nats-stream-source", "nats-expected-", "nats-batch-")
"""Prefixes of headers that servers write or remove when they source a message."""
_POLL_SECONDS = 0.02


@value_class
class Ack:
    """What a stream says to a message that has to be at one sequence. *stream* is its name in its own account."""

    stream: str
    problem: str | None
    """Why it is not at that sequence; None if it is."""


async def write_message(
    connection: Connection, seq: int, subject: str, headers: Mapping[str, str], data: bytes, *, patience: float
) -> Ack:
    """
    Publish on *subject* what its stream has to store at *seq*, and nowhere else: it names the sequence before it.

    For *patience* seconds it is published again where no stream listens yet, or where one has another message with the
    same id. Raises NoRespondersError after that, and as requests do.
    """
    sent = {name: value for name, value in headers.items() if not name.lower().startswith(_DROPPED_HEADERS)}
    sent[_LAST_SEQUENCE_HEADER] = str(seq - 1)
    until = time.monotonic() + patience
    while True:
        try:
            reply = await connection.request(subject, data, headers=sent, timeout=TIMEOUT)
        except NoRespondersError:
            if time.monotonic() >= until:
                raise
        else:
            ack = decode_object(reply.data, subject)
            if not ack.get("duplicate") or time.monotonic() >= until:
                return Ack(stream=str(ack.get("stream")), problem=_find_problem(ack, seq, subject))
        await asyncio.sleep(_POLL_SECONDS)


def _find_problem(ack: Mapping[str, object], seq: int, subject: str) -> str | None:
    if (error := api_error(ack, subject)) is not None:
        return error.description
    if ack.get("duplicate"):
        return f"its message id is stored already, with sequence {ack.get('seq')}"
    return None if ack.get("seq") == seq else "it was stored under another sequence"
