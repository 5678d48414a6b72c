"""
How far readers have come in what they source: what is known of it, and what is not.

`lag` is never used: servers report 0 for a source that they have lost or skipped. Servers from 2.15 report the position
(`sources[].seq`); before, it is in the header of the newest message from there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime

from vstream.errors import VstreamError
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.message_reader import read_headers
from vstream.jetstream.source_header import origin_of, read_positions
from vstream.plan.transitions import seed_region
from vstream.subjects.transform import SubjectTransform
from vstream.topology import naming
from vstream.topology.stream_config import UNTIL_KEY, StreamConfig, parse_positions, source_name
from vstream.value_class import value_class

TIMEOUT = 5.0
MAX_SCANNED = 4096
"""Messages at the end of a stream that are looked through for the newest from a write stream that is there."""
_READ_TIMEOUT = 30.0
"""Seconds without a message, where a whole stream is read."""
_MAX_PARALLEL_READS = 64
BEACON_HINT = "publish a message in that region, and it will be"


@value_class
class LiveStream:
    """One stream as its leader describes it."""

    name: str
    config: StreamConfig
    first_seq: int
    last_seq: int
    messages: int
    asked_at: datetime
    """When it did, by its clock."""
    positions: Mapping[str, int]
    """Its position in each source, as servers since 2.15 report it; without sources that have not begun."""
    lags: Mapping[str, int]
    """How many messages of each source it lacked when it last heard from it."""
    is_settled: bool
    """Whether all of its replicas are current."""


@value_class
class ReaderPosition:
    """How far *reader* has come in *origin*."""

    reader: LiveStream
    origin: str
    seq: int | None
    """The last sequence of *origin* that it has taken, 0 for none; None where that cannot be told."""

    @property
    def at_most(self) -> int:
        """It has not come further than this, whatever *seq* is: for each message it has stored one."""
        config = self.reader.config
        return config.start_seq_of(self.origin) + self.reader.last_seq if self.origin in config.source_names else 0

    @property
    def last_heard_of(self) -> int:
        """The last sequence of *origin* of which it knew when it last heard from there."""
        return (self.seq or 0) + self.reader.lags.get(self.origin, 0)

    def explain_unknown(self) -> str:
        """What is not known, where *seq* is None."""
        name = self.reader.name
        return f"how much of `{self.origin}` is in `{name}` cannot be told from its last {MAX_SCANNED:,} messages"


class LivePositionReader:
    """Finds positions over one connection; the account's streams of all clusters answer on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin = JetStreamAdmin(connection)

    async def start_sequences(self, reader: str) -> Mapping[str, int]:
        """See PositionReader. Later messages than the recorded ones are found in the reader itself, which has stopped."""
        stream = await self.read_stream(reader)
        noted = dict(parse_positions(stream.config.metadata))
        since = noted.pop(reader, 1)
        newest = {origin: await self._read_newest(stream, origin, since) for origin in noted}
        starts = {origin: max(start, (newest[origin] or 0) + 1) for origin, start in noted.items()}
        mirrored = stream.config.metadata.get(seed_region.COPY_KEY)
        # Of a stream that sources nothing, a mirror has the very sequences.
        return {**starts, mirrored: stream.last_seq + 1} if mirrored is not None and mirrored in noted else starts

    async def sequence_after(self, origin: str, readers: Sequence[str]) -> int:
        """See PositionReader. Where its newest messages may be gone from a reader, as many are left out as that can have taken."""
        return max([await self._bound_position(origin, name) for name in readers], default=0) + 1

    async def _bound_position(self, origin: str, name: str) -> int:
        """The last sequence of *origin*, which is gone, that the reader *name* can have taken."""
        position = await self.find_position_in_lost(origin, name)
        reader, seq = position.reader, position.seq
        if not seq:
            return position.at_most
        if origin not in reader.config.source_names or origin in reader.positions:
            return seq
        # Servers before 2.15 still know how far they were, and do not say it: what was removed since may be from there.
        return seq + await self._count_removed_after(reader, origin)

    async def sequences_after_mirrors(self, origins: Sequence[str], mirrors: Sequence[str]) -> Mapping[str, int]:
        """See PositionReader."""
        furthest = max([await self.read_stream(name) for name in mirrors], key=lambda mirror: mirror.last_seq)
        return await self._list_positions_after(furthest, origins)

    async def last_taken(self, reader: str, ends: Mapping[str, tuple[int, int]]) -> Mapping[str, int]:
        """See PositionReader."""
        stream = await self.read_stream(reader)
        newest = {origin: await self._read_newest(stream, origin, last + 1) for origin, (_, last) in ends.items()}
        return {origin: newest[origin] or seq for origin, (seq, _) in ends.items()}

    async def end_sequences(self, reader: str) -> Mapping[str, int]:
        """
        See PositionReader.

        For a copy, its donor is asked while the copy still mirrors it: later messages of the donor are in the copy.
        Raises VstreamError if a source's position is unknown.
        """
        before = await self.read_stream(reader)
        since = {reader: before.last_seq + 1}
        # Whatever it holds beyond the positions that are asked for now, it has stored after that.
        stream = await self.read_stream(before.config.mirror_name or reader)
        if not stream.config.source_names:
            return {stream.name: before.last_seq + 1, **since}
        return {**await self._list_positions_after(stream, stream.config.source_names), **since}

    async def ack_floor(self, stream: str, durable: str) -> int:
        """See PositionReader."""
        return (await self._admin.consumer(stream, durable)).ack_floor

    async def _list_positions_after(self, reader: LiveStream, origins: Sequence[str]) -> dict[str, int]:
        """The sequence after the last one that *reader* has taken, by origin. Raises VstreamError where that is unknown."""
        following = {}
        for origin in origins:
            position = await self.find_position(reader, origin)
            if position.seq is None:
                raise VstreamError(position.explain_unknown(), hint=BEACON_HINT)
            following[origin] = position.seq + 1
        return following

    async def find_position(self, reader: LiveStream, name: str) -> ReaderPosition:
        """In the stream *name*, however much of *reader* must be read for it."""
        if name in reader.positions:
            return ReaderPosition(reader=reader, origin=name, seq=reader.positions[name])
        position = await self.find_position_quickly(reader, await self.read_stream(name))
        seq = position.seq
        if seq is None:
            seq = await self._read_newest(reader, name)
        if seq is None and reader.messages == reader.last_seq:  # nothing was ever removed: its source has not begun
            seq = max(reader.config.start_seq_of(name) - 1, 0)
        return replace(position, seq=seq)

    async def find_position_quickly(self, reader: LiveStream, origin: LiveStream) -> ReaderPosition:
        """From what servers say, and from few messages of *reader*."""
        seq = reader.positions.get(origin.name)
        if seq is None and not origin.messages:
            seq = origin.last_seq  # whatever it held, there is nothing left to begin with
        if seq is None:
            seq = await self._find_newest(reader, origin)
        if seq is None and await self._search(reader, origin.name) == origin.last_seq:
            seq = origin.last_seq
        return ReaderPosition(reader=reader, origin=origin.name, seq=seq)

    async def find_position_in_lost(self, origin: str, name: str) -> ReaderPosition:
        """Of the reader *name* in a stream *origin* that does not answer."""
        reader = await self.read_stream(name)
        # Where it is noted, or the server says it, nobody reads back what others have published since: hours of it.
        seq = parse_positions(reader.config.metadata, UNTIL_KEY).get(origin)
        if reader.config.mirror_name == origin:
            seq = reader.last_seq
        elif seq is None or origin in reader.config.source_names:
            seq = reader.positions.get(origin) or await self._read_newest(reader, origin)
        return ReaderPosition(reader=reader, origin=origin, seq=seq or (None if reader.messages else 0))

    async def _find_newest(self, reader: LiveStream, origin: LiveStream) -> int | None:
        """The sequence in *origin* of the newest message from there that *reader* holds; None if none is found."""
        last = await direct.get_by_seq_from_leader(self._connection, origin.name, origin.last_seq)
        subject = _as_read(reader, origin.name, last.subject) if last is not None else None
        if subject is not None and reader.config.fields.get("allow_direct"):
            copy = await direct.get_newest(self._connection, reader.name, subject)
            source, seq = (
                origin_of(copy.headers, [origin.name], reader=reader.name) if copy is not None else (None, None)
            )
            if source == origin.name and seq == origin.last_seq:
                return seq
        return await self._scan(reader, origin.name)

    async def _search(self, reader: LiveStream, origin: str) -> int | None:
        """
        The sequence in *origin* of a message that *reader* holds, of an origin that has been quiet for long.

        The newest one, if much of what came before is from there; else perhaps an older one, or none.
        """
        read = _choose_read(reader)
        low, high, newest = max(reader.first_seq, 1), reader.last_seq, None
        while low <= high:
            middle = (low + high) // 2
            seqs = range(middle, min(middle + _MAX_PARALLEL_READS, reader.last_seq + 1))
            messages = await asyncio.gather(*(read(self._connection, reader.name, seq, TIMEOUT) for seq in seqs))
            seen: list[tuple[int, int]] = []
            for message in messages:
                source, seq = origin_of(message.headers if message is not None else {}, [origin], reader=reader.name)
                if message is not None and source == origin and seq is not None:
                    seen.append((message.seq, seq))
            if seen:
                at, newest = max(seen)
                low = at + 1
            else:
                high = middle - 1
        return newest

    async def _read_newest(self, reader: LiveStream, origin: str, since: int = 1) -> int | None:
        """
        The sequence in *origin* of the newest message from there that *reader* holds from *since* on; None if it holds none.

        However far back that is: what others have published since the origin's region was lost may be any number.
        """
        newest, _ = await self._read_back(reader, origin, since)
        return newest

    async def _count_removed_after(self, reader: LiveStream, origin: str) -> int:
        """How many messages *reader* has stored after the newest from *origin* that it holds, and does not hold any more."""
        _, removed = await self._read_back(reader, origin)
        return removed

    async def _read_back(self, reader: LiveStream, origin: str, since: int = 1) -> tuple[int | None, int]:
        """The newest from *origin* as `_read_newest` says it, and how many of the later sequences of *reader* are empty."""
        bottom, top, size = max(reader.first_seq, since), reader.last_seq, MAX_SCANNED
        removed = 0
        while top >= bottom:
            first, newest = max(bottom, top - size + 1), None
            at, held = first - 1, 0
            headers_of_all = read_headers(self._connection, reader.name, first=first, last=top, timeout=_READ_TIMEOUT)
            async with aclosing(headers_of_all) as messages:
                async for reader_seq, headers in messages:
                    source, seq = origin_of(headers, [origin], reader=reader.name)
                    held += 1
                    if source == origin and seq is not None:
                        newest, at, held = seq, reader_seq, 0
            removed += top - at - held
            if newest is not None:
                return newest, removed
            top, size = first - 1, 2 * size
        return None, removed

    async def _scan(self, reader: LiveStream, origin: str) -> int | None:
        """As `_read_newest`, of the last `MAX_SCANNED` messages."""
        before = max(reader.first_seq - 1, reader.last_seq - MAX_SCANNED, 0)
        read, last = _choose_read(reader), reader.last_seq
        async for message in direct.walk_back(self._connection, reader.name, last, before, timeout=TIMEOUT, read=read):
            source, seq = origin_of(message.headers, [origin], reader=reader.name)
            if source == origin and seq is not None:
                return seq
        return None

    async def read_stream(self, name: str) -> LiveStream:
        """The stream *name*, as its leader describes it now."""
        info = await self._admin.info(name, timeout=TIMEOUT)
        if info["config"]["name"] != naming.local_name(name):
            # A mapping has led the question to a read stream: `name` is a plain stream that was taken over.
            info = await self._admin.info_from_list(name)
        state, cluster, sources = info.get("state") or {}, info.get("cluster") or {}, info.get("sources") or ()
        return LiveStream(
            name=name,
            config=StreamConfig(name=name, fields=info["config"]),
            first_seq=int(state.get("first_seq", 0)),
            last_seq=int(state.get("last_seq", 0)),
            messages=int(state.get("messages", 0)),
            asked_at=datetime.fromisoformat(info["ts"]),
            positions=read_positions(info, name),
            lags={source_name(source, name): int(source.get("lag") or 0) for source in sources},
            is_settled=all(replica.get("current") for replica in cluster.get("replicas") or ()),
        )


def _choose_read(reader: LiveStream) -> direct.Read:
    """How to read *reader*: where Direct Get is off, the first requests through a gateway get no answer at all."""
    return direct.read_message if reader.config.fields.get("allow_direct") else direct.read_message_from_leader


def _as_read(reader: LiveStream, origin: str, subject: str) -> str | None:
    """What *subject* of *origin* is called in *reader*; None if it is not sourced there."""
    for source in reader.config.sources:
        if source.stream != origin:
            continue
        for pattern, destination in source.transforms:
            transform = SubjectTransform.parse(pattern, destination)
            transformed = transform.apply(subject) if isinstance(transform, SubjectTransform) else None
            if transformed is not None:
                return transformed
    return None
