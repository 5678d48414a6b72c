"""
Measure whether streams have caught up, for the gates of a plan.

`lag` is never used: servers report 0 for a source that they have lost or skipped. What counts is how far a reader has
come in a write stream, compared with that stream's last sequence. Servers from 2.15 report it (`sources[].seq`);
before, it is in the header of the newest message from there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, assert_never

from vstream.errors import NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.formatting import quote_names
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.read_stream import read_headers
from vstream.jetstream.source_header import origin_of
from vstream.plan.plan import Gate, GateKind
from vstream.plan.transitions import seed_region
from vstream.subjects.transform import SubjectTransform
from vstream.topology import naming
from vstream.topology.stream_config import UNTIL_KEY, StreamConfig, parse_positions, source_name
from vstream.value_class import value_class

STEADY = 2.0
"""Seconds that a gate's condition must hold: by then, accepted messages are stored."""
SCANNED = 4096
"""Messages at the end of a stream that are looked through for the newest from a write stream that is there."""
_READ_TIMEOUT = 30.0
"""Seconds without a message, where a whole stream is read."""
_AT_ONCE = 64
_SAMPLES = 64
"""Messages of a copy that are compared with its origin's."""
_TIMEOUT = 5.0


@value_class
class _Stream:
    """One stream as its leader describes it."""

    name: str
    config: StreamConfig
    first_seq: int
    last_seq: int
    messages: int
    positions: Mapping[str, int]
    """Its position in each source, as servers since 2.15 report it; without sources that have not begun."""
    lags: Mapping[str, int]
    """How many messages of each source it lacked when it last heard from it."""
    is_settled: bool
    """Whether all of its replicas are current."""


class LiveGateChecker:
    """Checks gates over one connection; the account's streams of all clusters answer on it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin = JetStreamAdmin(connection)
        self._steady: dict[Gate, tuple[object, float]] = {}
        self._drained: dict[str, int] = {}

    async def find_missing(self, gate: Gate) -> str | None:
        """See GateChecker."""
        try:
            return await self._check_gate(gate)
        except (NotReachableError, ServerError, NoRespondersError) as error:
            self._steady.pop(gate, None)
            return error.message

    async def leader(self, stream: str) -> str | None:
        """See GateChecker."""
        try:
            info = await self._admin.info(stream, timeout=_TIMEOUT)
        except (NotReachableError, ServerError, NoRespondersError):
            return None
        return (info.get("cluster") or {}).get("leader")

    async def ack_floor(self, stream: str, durable: str) -> int:
        """See GateChecker."""
        return (await self._admin.consumer(stream, durable)).ack_floor

    async def _check_gate(self, gate: Gate) -> str | None:
        match gate.kind:
            case GateKind.SETTLED | GateKind.ARRIVED:
                copies = gate.counterparts if gate.kind is GateKind.ARRIVED else ()
                return await self._check_settled(gate) or await self._compare_copies(gate.stream, copies)
            case GateKind.COPIED:
                return await self._check_copy(gate)
            case GateKind.AT_REST:
                return await self._check_at_rest(gate)
            case GateKind.FED:
                return await self._check_fed(gate)
            case GateKind.DRAINED | GateKind.PASSED_ON:
                return await self._check_drained(gate)
            case GateKind.UNCHANGED:
                return await self._check_unchanged(gate)
            case _:
                assert_never(gate.kind)

    async def start_sequences(self, reader: str) -> Mapping[str, int]:
        """See GateChecker. Later messages than the recorded ones are found in the reader itself, which has stopped."""
        stream = await self._read_stream(reader)
        noted = dict(parse_positions(stream.config.metadata))
        since = noted.pop(reader, 1)
        newest = {origin: await self._read_newest(stream, origin, since) for origin in noted}
        starts = {origin: max(start, (newest[origin] or 0) + 1) for origin, start in noted.items()}
        mirrored = stream.config.metadata.get(seed_region.COPY_KEY)
        # Of a stream that sources nothing, a mirror has the very sequences.
        return {**starts, mirrored: stream.last_seq + 1} if mirrored is not None and mirrored in noted else starts

    async def sequence_after(self, origin: str, readers: Sequence[str]) -> int:
        """See GateChecker. If no message of it is left in any, as many are left out as they can have taken."""
        cursors, _ = await self.cursors(origin, readers)
        if last := max((seq or 0 for seq in cursors.values()), default=0):
            return last + 1
        # Servers before 2.15 still know how far they were, and do not say it.
        streams = [await self._read_stream(name) for name in readers]
        sourcing = [stream for stream in streams if origin in stream.config.source_names]
        return max((stream.config.start_seq_of(origin) + stream.last_seq for stream in sourcing), default=0) + 1

    async def sequences_after_mirrors(self, origins: Sequence[str], mirrors: Sequence[str]) -> Mapping[str, int]:
        """See GateChecker."""
        furthest = max([await self._read_stream(name) for name in mirrors], key=lambda mirror: mirror.last_seq)
        return await self._list_positions_after(furthest, origins)

    async def last_taken(self, reader: str, ends: Mapping[str, tuple[int, int]]) -> Mapping[str, int]:
        """See GateChecker."""
        stream = await self._read_stream(reader)
        newest = {origin: await self._read_newest(stream, origin, last + 1) for origin, (_, last) in ends.items()}
        return {origin: newest[origin] or seq for origin, (seq, _) in ends.items()}

    async def cursors(self, origin: str, readers: Sequence[str]) -> tuple[Mapping[str, int | None], int]:
        """
        How far each of *readers* has come in a stream *origin* that does not answer, None where nothing of it is found.

        And how many more messages of it the readers knew of when they last heard of it.
        """
        cursors: dict[str, int | None] = {}
        last_known = 0
        for name in readers:
            reader = await self._read_stream(name)
            # Where it is noted, or the server says it, nobody reads back what others have published since: hours of it.
            noted = parse_positions(reader.config.metadata, UNTIL_KEY).get(origin)
            if reader.config.mirror_name == origin:
                noted = reader.last_seq
            elif noted is None or origin in reader.config.source_names:
                noted = reader.positions.get(origin) or await self._read_newest(reader, origin)
            last = noted or 0
            cursors[name] = last or (None if reader.messages else 0)
            last_known = max(last_known, last + reader.lags.get(origin, 0))
        return cursors, max(0, last_known - max((seq or 0 for seq in cursors.values()), default=0))

    async def end_sequences(self, reader: str) -> Mapping[str, int]:
        """
        See GateChecker.

        For a copy, its donor is asked while the copy still mirrors it: later messages of the donor are in the copy.
        Raises VstreamError if a source's position is unknown.
        """
        before = await self._read_stream(reader)
        since = {reader: before.last_seq + 1}
        # Whatever it holds beyond the positions that are asked for now, it has stored after that.
        stream = await self._read_stream(before.config.mirror_name or reader)
        if not stream.config.source_names:
            return {stream.name: before.last_seq + 1, **since}
        return {**await self._list_positions_after(stream, stream.config.source_names), **since}

    async def _list_positions_after(self, reader: _Stream, origins: Sequence[str]) -> dict[str, int]:
        """The sequence after the last one that *reader* has taken, by origin. Raises VstreamError where that is unknown."""
        positions = {origin: await self._find_position(reader, origin) for origin in origins}
        if unknown := [origin for origin, position in positions.items() if position is None]:
            raise VstreamError(_explain_unknown_position(reader.name, unknown[0]), hint=_BEACON)
        return {origin: position + 1 for origin, position in positions.items() if position is not None}

    async def _check_settled(self, gate: Gate) -> str | None:
        info = await self._admin.info(gate.stream, timeout=_TIMEOUT)
        cluster = info.get("cluster") or {}
        replicas = cluster.get("replicas") or ()
        number, target = len(replicas) + 1, int(info["config"].get("num_replicas") or 1)
        placement = info["config"].get("placement") or {}
        if not cluster.get("leader"):
            return f"`{gate.stream}` has no leader"
        if placement.get("cluster", cluster.get("name")) != cluster.get("name"):
            return f"`{gate.stream}` is still in cluster `{cluster.get('name')}`"
        if number != target:
            return f"`{gate.stream}` has {number} replicas on its way to {target}"
        if not all(replica.get("current") for replica in replicas):
            return f"not all replicas of `{gate.stream}` are current"
        return None

    async def _compare_copies(self, stream: str, copies: Sequence[str]) -> str | None:
        """What *stream* lacks of *copies*, which have its very sequences and times; None if nothing is seen."""
        get = partial(direct.get_by_seq_from_leader, self._connection)
        for name in copies:
            copy, origin = await self._read_stream(name), await self._read_stream(stream)
            if copy.last_seq > origin.last_seq:
                ends = f"`{stream}` ends at {origin.last_seq:,}, and its copy `{name}` at {copy.last_seq:,}"
                return f"{ends}: it has lost messages that the copy holds"
            seqs = _choose_samples(max(copy.first_seq, origin.first_seq), copy.last_seq)
            copied = await asyncio.gather(*(get(name, seq) for seq in seqs))
            stored = await asyncio.gather(*(get(stream, seq) for seq in seqs))
            for seq, copied_message, message in zip(seqs, copied, stored, strict=True):
                if copied_message and message and copied_message.stored_at != message.stored_at:
                    differ = f"`{stream}` has another message at {seq:,} than its copy `{name}`"
                    return f"{differ}: it may have lost messages that the copy holds"
        return None

    async def _check_copy(self, gate: Gate) -> str | None:
        donor = await self._read_stream(gate.counterparts[0])
        copy = await self._read_stream(gate.stream)
        # Of messages that were deleted from the donor's end, such as canaries, a mirror hears with the next message.
        after = copy.last_seq + 1
        if after <= donor.last_seq and await direct.get_next_from_leader(self._connection, donor.name, ">", after):
            return f"`{copy.name}` is at {copy.last_seq:,} of {donor.last_seq:,}"
        is_whole = seed_region.COPY_KEY in copy.config.metadata  # a mirror that was one before has limits of its own
        if is_whole and (
            copy.messages < donor.messages or (copy.messages and copy.first_seq > max(donor.first_seq, 1))
        ):
            return f"`{copy.name}` holds {copy.messages:,} messages, `{donor.name}` {donor.messages:,}"
        for origin in donor.config.source_names:
            if await self._find_position(donor, origin) is None:
                return f"{_explain_unknown_position(donor.name, origin)}; {_BEACON}"
        return None

    async def _check_at_rest(self, gate: Gate) -> str | None:
        copy = await self._read_stream(gate.stream)
        if not copy.is_settled:
            self._steady.pop(gate, None)
            return f"not all replicas of `{copy.name}` are current"
        return self._wait_for_steady(gate, copy.last_seq, f"`{copy.name}` is at {copy.last_seq:,}")

    async def _check_fed(self, gate: Gate) -> str | None:
        # The reader is asked last: what clients publish meanwhile is not what it lacks.
        origins = [await self._read_stream(origin) for origin in gate.counterparts]
        reader = await self._read_stream(gate.stream)
        for origin in origins:
            missing = await self._describe_lag(reader, origin)
            if missing is not None:
                return missing
        return None

    async def _check_drained(self, gate: Gate) -> str | None:
        origin = await self._read_stream(gate.stream)
        for reader in gate.counterparts:
            missing = await self._describe_lag(await self._read_stream(reader), origin)
            if missing is not None:
                self._steady.pop(gate, None)
                return missing
        self._drained[origin.name] = origin.last_seq
        return self._wait_for_steady(gate, origin.last_seq, f"the last message of `{origin.name}` has just been taken")

    async def _check_unchanged(self, gate: Gate) -> str | None:
        origin = await self._read_stream(gate.stream)
        before = self._drained.get(origin.name)
        if before is not None:
            more = origin.last_seq - before
            text = f"{more:,} messages have come into `{origin.name}`, which no stream sources any more: {_BACK}"
            return text if more else None
        # An earlier run has drained it, and nobody sources it now: what it holds must be in the readers.
        for name in gate.counterparts:
            missing = await self._describe_lag(await self._read_stream(name), origin)
            if missing is not None:
                return f"{missing}, which no stream sources any more: {_BACK}"
        return None

    def _wait_for_steady(self, gate: Gate, state: object, reason: str) -> str | None:
        """*reason* until *state* has been the same for long enough."""
        before, since = self._steady.get(gate, (None, 0.0))
        if before != state:
            self._steady[gate] = (state, time.monotonic())
            return reason
        return None if time.monotonic() - since >= STEADY else reason

    async def _describe_lag(self, reader: _Stream, origin: _Stream) -> str | None:
        """How far *reader* is behind *origin*; None if it has taken everything that *origin* holds."""
        if not origin.messages:
            return None  # nothing is left in it that could be taken
        if reader.config.start_seq_of(origin.name) > origin.last_seq:
            return None  # it began with what comes after
        position = reader.positions.get(origin.name)
        if position is None:
            position = await self._find_newest(reader, origin)
        if position is None and await self._search(reader, origin.name) == origin.last_seq:
            return None
        if position is None:
            # Those that it listens on, also where no client is mapped to it any more.
            subjects = quote_names(origin.config.subjects) or f"`{origin.name}`"
            return f"{_explain_unknown_position(reader.name, origin.name)}; one more message on {subjects} will tell"
        if position < origin.last_seq:
            return f"`{reader.name}` is at {position:,} of {origin.last_seq:,} in `{origin.name}`"
        return None

    async def _find_position(self, reader: _Stream, name: str) -> int | None:
        """The last sequence of the stream *name* that *reader* has taken, or 0; None if that cannot be known."""
        if name in reader.positions:
            return reader.positions[name]
        origin = await self._read_stream(name)
        if not origin.messages:
            return origin.last_seq  # whatever it held, there is nothing left to begin with
        newest = await self._find_newest(reader, origin)
        if newest is None:
            newest = await self._read_newest(reader, name)
        if newest is None and reader.messages == reader.last_seq:  # nothing was ever removed: its source has not begun
            return max(reader.config.start_seq_of(name) - 1, 0)
        return newest

    async def _find_newest(self, reader: _Stream, origin: _Stream) -> int | None:
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

    async def _search(self, reader: _Stream, origin: str) -> int | None:
        """
        The sequence in *origin* of a message that *reader* holds, of an origin that has been quiet for long.

        The newest one, if much of what came before is from there; else perhaps an older one, or none.
        """
        get = direct.get_by_seq if reader.config.fields.get("allow_direct") else direct.get_by_seq_from_leader
        low, high, newest = max(reader.first_seq, 1), reader.last_seq, None
        while low <= high:
            middle = (low + high) // 2
            seqs = range(middle, min(middle + _AT_ONCE, reader.last_seq + 1))
            messages = await asyncio.gather(*(get(self._connection, reader.name, seq) for seq in seqs))
            seen: list[tuple[int, int]] = []
            for message in messages:
                source, seq = origin_of(message.headers if message is not None else {}, [origin])
                if message is not None and source == origin and seq is not None:
                    seen.append((message.seq, seq))
            if seen:
                at, newest = max(seen)
                low = at + 1
            else:
                high = middle - 1
        return newest

    async def _read_newest(self, reader: _Stream, origin: str, since: int = 1) -> int | None:
        """
        The sequence in *origin* of the newest message from there that *reader* holds from *since* on; None if it holds none.

        However far back that is: what others have published since the origin's region was lost may be any number.
        """
        bottom, top, size = max(reader.first_seq, since), reader.last_seq, SCANNED
        while top >= bottom:
            first, newest = max(bottom, top - size + 1), None
            headers_of_all = read_headers(self._connection, reader.name, first=first, last=top, timeout=_READ_TIMEOUT)
            async with aclosing(headers_of_all) as messages:
                async for _, headers in messages:
                    source, seq = origin_of(headers, [origin], reader=reader.name)
                    newest = seq if source == origin and seq is not None else newest
            if newest is not None:
                return newest
            top, size = first - 1, 2 * size
        return None

    async def _scan(self, reader: _Stream, origin: str) -> int | None:
        """As `_read_newest`, of the last `SCANNED` messages."""
        bottom = max(reader.first_seq, reader.last_seq - SCANNED + 1, 1)
        # Where Direct Get is off, nobody answers it.
        get = direct.get_by_seq if reader.config.fields.get("allow_direct") else direct.get_by_seq_from_leader
        for top in range(reader.last_seq, bottom - 1, -_AT_ONCE):
            seqs = range(top, max(bottom, top - _AT_ONCE + 1) - 1, -1)
            messages = await asyncio.gather(*(get(self._connection, reader.name, seq) for seq in seqs))
            for message in messages:
                headers = message.headers if message is not None else {}
                source, seq = origin_of(headers, [origin], reader=reader.name)
                if source == origin and seq is not None:
                    return seq
        return None

    async def _read_stream(self, name: str) -> _Stream:
        info = await self._admin.info(name, timeout=_TIMEOUT)
        if info["config"]["name"] != naming.local_name(name):
            # A mapping has led the question to a read stream: `name` is a plain stream that was taken over.
            info = await self._admin.info_from_list(name)
        state, cluster, sources = info.get("state") or {}, info.get("cluster") or {}, info.get("sources") or ()
        return _Stream(
            name=name,
            config=StreamConfig(name=name, fields=info["config"]),
            first_seq=int(state.get("first_seq", 0)),
            last_seq=int(state.get("last_seq", 0)),
            messages=int(state.get("messages", 0)),
            positions=_read_positions(sources, name),
            lags={source_name(source, name): int(source.get("lag") or 0) for source in sources},
            is_settled=all(replica.get("current") for replica in cluster.get("replicas") or ()),
        )


def _choose_samples(first: int, last: int) -> Sequence[int]:
    """Some of the sequences *first* to *last*: evenly spread, and more and more towards the end, where most is lost."""
    spread = range(first, last + 1, max(1, (last - first) // _SAMPLES))
    return sorted({*spread, *(last + 1 - 2**power for power in range((last - first + 1).bit_length()))})


_BEACON = "publish a message in that region, and it will be"
_BACK = "let the topology have the region again, apply it, and take it out once more"


def _explain_unknown_position(reader: str, origin: str) -> str:
    return f"how much of `{origin}` is in `{reader}` cannot be told from its last {SCANNED:,} messages"


def _read_positions(sources: Sequence[Mapping[str, Any]], reader: str) -> Mapping[str, int]:
    """Sources by name. A stream that is sourced twice, with other filters, is as far as the one that is behind."""
    cursors: dict[str, int] = {}
    for source in sources:
        name, seq = source_name(source, reader), int(source.get("seq") or 0)
        cursors[name] = min(seq, cursors.get(name, seq))
    return {name: seq for name, seq in cursors.items() if seq}


def _as_read(reader: _Stream, origin: str, subject: str) -> str | None:
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
