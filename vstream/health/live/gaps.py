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
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from vstream.errors import VstreamError
from vstream.health.live import lag
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import Gap, Repeat, StreamSnapshot, to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.region_connections import choose_connection_to
from vstream.jetstream.source_header import MSG_ID, origin_of, parse_replay
from vstream.timing import MAX_CLOCK_SKEW_SECONDS
from vstream.topology import physical
from vstream.topology.model import Topology, VirtualStream
from vstream.topology.replication import ReplicationPair, replication_pairs
from vstream.value_class import value_class

WINDOW_MESSAGES = 128
"""Number of newest messages of each reader to check."""
MAX_READERS = 32
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
    chosen = sorted(by_reader, key=lambda name: -(streams[name].last_at or 0.0))[:MAX_READERS]
    slots = asyncio.Semaphore(4)

    async def find_in_turn(name: str) -> Sequence[Gap | Repeat]:
        feeding = by_reader[name]
        check = _ReaderCheck(
            topology=topology,
            stream=topology.stream(feeding[0].virtual),
            reader=streams[name],
            connection=choose_connection_to(connections, feeding[0].reader.place),
            origins={feed.origin.name: choose_connection_to(connections, feed.origin.place) for feed in feeding},
            deadline=deadline,
        )
        async with slots:
            if time.monotonic() > deadline:
                return ()
            try:
                return await check.find_gaps_and_repeats()
            except VstreamError:
                return ()  # it is not known: other findings say that it does not answer

    return tuple(each for proven in await asyncio.gather(*map(find_in_turn, chosen)) for each in proven)


@value_class
class _Jump:
    """Two messages of *origin* that a reader has one behind the other: one with sequence *seq* behind *earlier*, with *last*."""

    origin: str
    last: int
    earlier: DirectMessage
    seq: int


def _find_jumps(
    messages: Iterable[DirectMessage | None], origins: Collection[str], reader: str
) -> tuple[list[_Jump], Mapping[str, SequenceSet]]:
    """Where *messages* of *reader* leave out sequences of an origin or go back, and by origin what repairs have put in."""
    before: dict[str, tuple[int, DirectMessage]] = {}
    jumps: list[_Jump] = []
    replayed = defaultdict[str, SequenceSet](SequenceSet)
    for message in messages:
        if message is None:
            before.clear()
            continue
        origin, seq = origin_of(message.headers, origins, reader=reader)
        if origin is None or seq is None:
            continue
        if (replay := parse_replay(origin)) is not None:
            replayed[replay[0]].add(seq)
        if origin in origins:
            last, earlier = before.get(origin, (seq - 1, message))
            before[origin] = seq, message
            if seq != last + 1:
                jumps.append(_Jump(origin=origin, last=last, earlier=earlier, seq=seq))
    return jumps, replayed


@value_class
class _ReaderCheck:
    """One reader of *stream*, and how it and its *origins* are asked, until the *deadline*."""

    topology: Topology
    stream: VirtualStream
    reader: StreamSnapshot
    connection: Connection
    origins: Mapping[str, Connection]
    deadline: float

    async def find_gaps_and_repeats(self) -> list[Gap | Repeat]:
        """What its newest messages prove. Raises as requests do."""
        name, last = self.reader.name, self.reader.last_seq
        seqs = range(max(self.reader.first_seq, last - WINDOW_MESSAGES + 1), last + 1)
        reads = (direct.read_message(self.connection, name, seq, self._remaining()) for seq in seqs)
        jumps, replayed = _find_jumps(await asyncio.gather(*reads), self.origins, name)
        proven: list[Gap | Repeat] = []
        for jump in jumps:
            if jump.seq > jump.last:
                # What a repair has put in stands behind it.
                lacks = SequenceSet([(jump.last + 1, jump.seq - 1)]) - replayed[jump.origin]
                proven += await self._keep_stored_gaps(jump.origin, lacks)
                continue
            # An origin that was made anew has other messages there, or none: then this is no repeat.
            held = await direct.read_message(self.origins[jump.origin], jump.origin, jump.last, self._remaining())
            if held is not None and _is_same(held, jump.earlier):
                proven.append(Repeat(reader=name, origin=jump.origin, seq=jump.seq, later=jump.last))
        return proven

    async def _keep_stored_gaps(self, origin: str, lacks: SequenceSet) -> list[Gap]:
        """The parts of *lacks* in which *origin* still holds a message that was not dropped as a duplicate."""
        gaps = []
        for first, last in lacks.runs():
            held = await self._read_next(origin, first)
            while held is not None and held.seq <= last and await self._may_have_dropped(held):
                held = await self._read_next(origin, held.seq + 1)
            if held is not None and held.seq <= last:
                gaps.append(Gap(reader=self.reader.name, origin=origin, first=held.seq, last=last))
        return gaps

    async def _read_next(self, origin: str, seq: int) -> DirectMessage | None:
        return await direct.read_next_message(self.origins[origin], origin, seq, self._remaining())

    async def _may_have_dropped(self, held: DirectMessage) -> bool:
        """Whether the reader may have dropped *held* as a duplicate. Where it cannot be told, nothing is claimed."""
        subject = physical.published_subject(self.topology.naming, self.stream, held.subject)
        return await lag.is_duplicate(held, subject, self.reader, self.connection, self._remaining()) is not False

    def _remaining(self) -> float:
        return max(0.05, self.deadline - time.monotonic())


def _is_same(held: DirectMessage, sourced: DirectMessage) -> bool:
    """Whether *held*, of the origin, can be the message that was *sourced*: not younger, apart from clock differences."""
    held_at, taken_at = to_unix_seconds(held.stored_at), to_unix_seconds(sourced.stored_at)
    return held_at < taken_at + MAX_CLOCK_SKEW_SECONDS and _content_of(held) == _content_of(sourced)


def _content_of(message: DirectMessage) -> tuple[bytes, str | None, frozenset[tuple[str, str]]]:
    """What its publisher sent: payload, id, and headers of its own."""
    headers = message.headers.items()
    return (
        message.data,
        message.headers.get(MSG_ID),
        frozenset((key, value) for key, value in headers if not key.startswith("Nats-")),
    )
