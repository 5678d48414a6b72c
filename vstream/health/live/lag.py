"""
Replication lag: how far readers have come, and the oldest message that each has not taken yet.

Servers since 2.15 report how far a stream has come in each of its sources. For older servers it is read from
what they store: each sourced message names its origin and its sequence there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from vstream.errors import VstreamError
from vstream.health.pairs import has_taken_all
from vstream.health.snapshot import Lag, StreamSnapshot, parse_stream, to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import convert_malformed_errors, is_from_leader
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.region_connections import choose_connection_to
from vstream.jetstream.source_header import MSG_ID, origin_of
from vstream.timing import BEHIND_AFTER_SECONDS, CLOCK_SKEW_SECONDS, SECOND_NS
from vstream.topology import physical
from vstream.topology.model import Topology
from vstream.topology.replication import PhysicalStream, ReplicationPair, replication_pairs

MAX_PAIRS = 1_000
"""Maximum number of pairs to measure, those furthest behind first: each costs at least two requests. Others are not known."""
_MAX_SEARCHED_MESSAGES = 32
"""Number of a reader's newest messages that are searched for the last one of each origin."""
_MAX_PARALLEL_REQUESTS = 32
_MAX_CANDIDATES = 64
"""Maximum number of messages on one subject among which one with the same id is looked for."""


async def measure_lag(
    topology: Topology, streams: Mapping[str, StreamSnapshot], connections: Mapping[str, Connection], deadline: float
) -> dict[tuple[str, str], Lag]:
    """
    The lag of pairs that differ, or whose reader's position is not known, by origin and reader.

    *deadline* is on the monotonic clock: pairs without an answer by then are left out.
    """
    if not connections:
        return {}
    unequal: list[tuple[int, ReplicationPair, int | None]] = []
    for stream in topology.streams:
        for feed in replication_pairs(stream):
            origin, reader = streams.get(feed.origin.name), streams.get(feed.reader.name)
            if origin is None or reader is None or has_taken_all(reader, streams):
                continue
            source = reader.find_source(origin.name)
            cursor = None if source is None else source.seq
            if cursor is None and reader.last_seq == 0:
                cursor = 0
            if cursor != origin.last_seq and not (cursor is None and origin.last_seq == 0):
                unequal.append((abs(origin.last_seq - (cursor or 0)), feed, cursor))
    unequal.sort(key=lambda source: -source[0])
    search = _Search(topology, streams, connections, deadline)
    lags = await asyncio.gather(*(search.tail(feed, cursor) for _, feed, cursor in unequal[:MAX_PAIRS]))
    measured = zip(unequal, lags, strict=False)
    return {(pair.origin.name, pair.reader.name): lag for (_, pair, _), lag in measured if lag is not None}


@dataclass(slots=True)
class _Search:
    topology: Topology
    streams: Mapping[str, StreamSnapshot]
    connections: Mapping[str, Connection]
    deadline: float
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_MAX_PARALLEL_REQUESTS))
    walks: dict[str, asyncio.Task[dict[str, int]]] = field(default_factory=dict)

    async def tail(self, feed: ReplicationPair, cursor: int | None) -> Lag | None:
        try:
            async with self.slots:
                with convert_malformed_errors(feed.origin.name):
                    return await self._read_tail(feed, cursor)
        except VstreamError:
            return None  # no answer is no answer: the pair is reported as the servers' own figures have it

    async def _read_tail(self, feed: ReplicationPair, cursor: int | None) -> Lag | None:
        is_exact = True
        if cursor is None:
            cursor, is_exact = await self._read_cursor(feed)
        # Asked for after the cursor: messages that came in between are not to look as if they had been taken back.
        answer = await self._ask_leader(feed.origin)
        if answer is None:
            return None
        connection, info = answer
        origin = parse_stream(info, feed.origin.name)
        oldest = None
        late_since = to_unix_seconds(info["ts"]) - BEHIND_AFTER_SECONDS  # the clock here may be wrong
        if cursor is not None and cursor < origin.last_seq and origin.messages:
            oldest = await direct.read_next_message(
                connection, feed.origin.name, max(cursor + 1, origin.first_seq), self._remaining()
            )
            is_late = oldest is not None and to_unix_seconds(oldest.stored_at) <= late_since  # else it is on its way
            if oldest is not None and is_late and await self._has_dropped(feed, oldest, origin.last_seq, connection):
                oldest = None
        return Lag(
            last=origin.last_seq,
            first=origin.first_seq,
            cursor=cursor,
            is_exact=is_exact,
            oldest_at=to_unix_seconds(oldest.stored_at) if oldest else None,
            oldest_seq=oldest.seq if oldest else None,
            max_age=int(info["config"].get("max_age") or 0) / SECOND_NS,
            begins=int(info["config"].get("first_seq") or 1),
        )

    async def _has_dropped(
        self, feed: ReplicationPair, oldest: DirectMessage, last: int, connection: Connection
    ) -> bool:
        """Whether the reader has dropped the *oldest* message that it has not taken, and the *last* one, as duplicates."""
        stream = self.topology.stream(feed.virtual)
        with suppress(VstreamError):
            newest = (
                oldest
                if oldest.seq == last
                else await direct.read_message(connection, oldest.stream, last, self._remaining())
            )
            for message in (oldest, newest or oldest):
                subject = physical.published_subject(self.topology.naming, stream, message.subject)
                reader, by = self.streams[feed.reader.name], self._connection_to(feed.reader.place)
                if not await is_duplicate(message, subject, reader, by, self._remaining()):
                    return False
            return True
        return False

    async def _ask_leader(self, origin: PhysicalStream) -> tuple[Connection, dict[str, Any]] | None:
        """What the leader of *origin* says, else a replica, and the connection over which it did; None if nobody answers."""
        # Each region leads to the stretch cluster, and one that is cut off to a replica that has no leader.
        is_home = origin.place in self.connections
        connections = [self._connection_to(origin.place)] if is_home else list(self.connections.values())
        answer = None
        for left, connection in zip(range(len(connections), 0, -1), connections, strict=True):
            with suppress(VstreamError):
                info = await JetStreamAdmin(connection).info(origin.name, timeout=self._remaining() / left)
                answer = connection, info
                if is_from_leader(info):
                    break
        return answer

    async def _read_cursor(self, feed: ReplicationPair) -> tuple[int | None, bool]:
        """The least position that the reader has reached, and whether that is exact."""
        walk = self.walks.get(feed.reader.name)
        if walk is None:
            walk = self.walks[feed.reader.name] = asyncio.ensure_future(self._walk(feed))
        seen = (await walk).get(feed.origin.name)
        if seen is not None:
            return seen, True
        reader = self.streams[feed.reader.name]
        if reader.messages == reader.last_seq <= _MAX_SEARCHED_MESSAGES:
            return 0, True  # it has all that it ever took, and nothing of this origin
        connection = self._connection_to(feed.origin.place)
        last = await direct.read_message(
            connection, feed.origin.name, self.streams[feed.origin.name].last_seq, self._remaining()
        )
        if last is None:
            return None, False
        stream = self.topology.stream(feed.virtual)
        subject = physical.published_subject(self.topology.naming, stream, last.subject)
        copied = await direct.get_newest(
            self._connection_to(feed.reader.place), feed.reader.name, subject, timeout=self._remaining()
        )
        origin, seq = origin_of(copied.headers if copied else {}, self.streams, reader=feed.reader.name)
        return (seq, seq == last.seq) if origin == feed.origin.name else (None, False)

    async def _walk(self, feed: ReplicationPair) -> dict[str, int]:
        """The last sequence of each origin among the last messages of the reader."""
        connection, last = self._connection_to(feed.reader.place), self.streams[feed.reader.name].last_seq
        before = max(0, last - _MAX_SEARCHED_MESSAGES)
        last_seqs: dict[str, int] = {}
        async for message in direct.walk_back(connection, feed.reader.name, last, before, timeout=self._remaining()):
            stream, seq = origin_of(message.headers, self.streams, reader=feed.reader.name)
            if stream is not None and seq is not None:
                last_seqs.setdefault(stream, seq)
        return last_seqs

    def _connection_to(self, place: str) -> Connection:
        return choose_connection_to(self.connections, place)

    def _remaining(self) -> float:
        return max(0.05, self.deadline - time.monotonic())


async def is_duplicate(
    message: DirectMessage, subject: str, reader: StreamSnapshot, connection: Connection, patience: float
) -> bool | None:
    """
    Whether *reader* has the same as *message*, published on *subject*, under the same id and within its window.

    None if there are too many messages on that subject to tell. Raises as `direct`.
    """
    window, msg_id = (reader.config or {}).get("duplicate_window"), message.headers.get(MSG_ID)
    if not isinstance(window, int) or not window or not msg_id:
        return False
    since = to_unix_seconds(message.stored_at) - window / SECOND_NS - CLOCK_SKEW_SECONDS
    stored = await direct.get_newest(connection, reader.name, subject, timeout=patience)
    if stored is None or to_unix_seconds(stored.stored_at) < since:
        return False
    seq = 0
    for _ in range(_MAX_CANDIDATES):
        if stored is None or stored.headers.get(MSG_ID) == msg_id:
            return stored is not None and stored.data == message.data
        seq = stored.seq + 1 if seq else await _find_first_since(since, reader, connection, patience)
        stored = await direct.get_next(connection, reader.name, subject, seq, timeout=patience)
    return None


async def _find_first_since(since: float, reader: StreamSnapshot, connection: Connection, patience: float) -> int:
    """The sequence of the first message that *reader* has stored at *since* or later, by bisection."""
    low, high = reader.first_seq, reader.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        stored = await direct.read_next_message(connection, reader.name, middle, patience)
        if stored is None or to_unix_seconds(stored.stored_at) >= since:
            high = middle
        else:
            low = stored.seq + 1
    return max(1, low)
