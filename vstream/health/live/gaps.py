"""
Messages that a stream has skipped, or has sourced twice.

The newest messages of a reader name their origins and sequences. Where these leave some out
that the origin still holds, they were skipped; where they go back in an origin that is still
the same, it has begun again. What was deleted from the reader leaves a hole in its own
sequences; next to one, nothing is claimed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial

from vstream.errors import VstreamError
from vstream.health.live import lag
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import Gap, Repeat, StreamSnapshot, to_unix_seconds
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.source_header import origin_of, parse_replay
from vstream.plan.live.connections import choose_connection_to
from vstream.topology import physical
from vstream.topology.model import Topology
from vstream.topology.replication import ReplicationPair, replication_pairs

WINDOW = 128
"""Number of newest messages of each reader to check."""
_SKEW = 5.0
"""Maximum clock difference between servers, in seconds."""
MOST = 32
"""Maximum number of readers to check, those with the newest messages first."""


async def find_gaps_and_repeats(
    topology: Topology, streams: Mapping[str, StreamSnapshot], connections: Mapping[str, Connection], deadline: float
) -> tuple[Gap | Repeat, ...]:
    """Gaps and repeats that can be proven before *deadline*, on the monotonic clock. Skips mirrors, which keep sequences."""
    if not connections:
        return ()
    by_reader: dict[str, list[ReplicationPair]] = {}
    for stream in topology.streams:
        for feed in replication_pairs(stream):
            reader = streams.get(feed.reader.name)
            if reader is not None and reader.messages and not (reader.config or {}).get("mirror"):
                by_reader.setdefault(feed.reader.name, []).append(feed)
    chosen = sorted(by_reader, key=lambda name: -(streams[name].last_at or 0.0))[:MOST]
    slots = asyncio.Semaphore(4)

    async def find_in_reader(name: str) -> Sequence[Gap | Repeat]:
        async with slots:
            if time.monotonic() > deadline:
                return ()
            try:
                return await _find_gaps(topology, by_reader[name], streams[name], connections, deadline)
            except VstreamError:
                return ()  # it is not known: other findings say that it does not answer

    return tuple(each for proven in await asyncio.gather(*map(find_in_reader, chosen)) for each in proven)


async def _find_gaps(
    topology: Topology,
    feeding: Sequence[ReplicationPair],
    reader: StreamSnapshot,
    connections: Mapping[str, Connection],
    deadline: float,
) -> list[Gap | Repeat]:
    connection = choose_connection_to(connections, feeding[0].reader.place)
    seqs = range(max(reader.first_seq, reader.last_seq - WINDOW + 1), reader.last_seq + 1)
    messages = await asyncio.gather(
        *(lag.read_message(connection, reader.name, seq, _get_remaining(deadline)) for seq in seqs)
    )
    places = {feed.origin.name: feed.origin.place for feed in feeding}
    before: dict[str, tuple[int, DirectMessage]] = {}
    passed: list[tuple[str, int, int]] = []
    replayed: dict[str, SequenceSet] = {}
    proven: list[Gap | Repeat] = []
    for message in messages:
        if message is None:
            before.clear()
            continue
        origin, seq = origin_of(message.headers, places, reader=reader.name)
        if origin is None or seq is None:
            continue
        if (replay := parse_replay(origin)) is not None:
            replayed.setdefault(replay[0], SequenceSet()).add(seq)
        if origin not in places:
            continue
        last, earlier = before.get(origin, (seq - 1, message))
        before[origin] = seq, message
        if seq > last + 1:
            passed.append((origin, last + 1, seq - 1))
        elif seq <= last:
            # An origin that was made anew has other messages there, or none: then this is no repeat.
            held = await lag.read_message(
                choose_connection_to(connections, places[origin]), origin, last, _get_remaining(deadline)
            )
            if held is not None and _is_same(held, earlier):
                proven.append(Repeat(reader=reader.name, origin=origin, seq=seq, later=last))
    is_dropped = partial(_is_dropped, topology, feeding[0].virtual, reader, connection, deadline)
    for origin, first, end in passed:
        # What a repair has put in stands behind it.
        lacks = SequenceSet([(first, end)]) - replayed.get(origin, SequenceSet())
        proven += await _keep_stored_gaps(
            reader.name, origin, lacks, choose_connection_to(connections, places[origin]), deadline, is_dropped
        )
    return proven


async def _is_dropped(
    topology: Topology,
    virtual: str,
    reader: StreamSnapshot,
    connection: Connection,
    deadline: float,
    held: DirectMessage,
) -> bool:
    """Whether *reader* may have dropped *held* as a duplicate. Where it cannot be told, nothing is claimed."""
    stream = topology.stream(virtual)
    subject = physical.published_subject(topology.naming, stream, held.subject)
    return await lag.is_duplicate(held, subject, reader, connection, _get_remaining(deadline)) is not False


async def _keep_stored_gaps(
    reader: str,
    origin: str,
    lacks: SequenceSet,
    connection: Connection,
    deadline: float,
    is_dropped: Callable[[DirectMessage], Awaitable[bool]],
) -> list[Gap]:
    """The parts of *lacks* in which *origin* still holds a message that *is_dropped* does not explain."""
    gaps = []
    for first, last in lacks.runs():
        held = await lag.read_next_message(connection, origin, first, _get_remaining(deadline))
        while held is not None and held.seq <= last and await is_dropped(held):
            held = await lag.read_next_message(connection, origin, held.seq + 1, _get_remaining(deadline))
        if held is not None and held.seq <= last:
            gaps.append(Gap(reader=reader, origin=origin, first=held.seq, last=last))
    return gaps


def _is_same(held: DirectMessage, sourced: DirectMessage) -> bool:
    """Whether *held*, of the origin, can be the message that was *sourced*: not younger, apart from clock differences."""
    held_at, taken_at = to_unix_seconds(held.stored_at), to_unix_seconds(sourced.stored_at)
    return held_at < taken_at + _SKEW and _content_of(held) == _content_of(sourced)


def _content_of(message: DirectMessage) -> tuple[bytes, str | None, frozenset[tuple[str, str]]]:
    """What its publisher sent: payload, id, and headers of its own."""
    headers = message.headers.items()
    return (
        message.data,
        message.headers.get("Nats-Msg-Id"),
        frozenset((key, value) for key, value in headers if not key.startswith("Nats-")),
    )


def _get_remaining(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())
