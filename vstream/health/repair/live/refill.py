"""Restore the lost end of a stream: find what its readers hold of it, and publish it again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from math import inf

from vstream.errors import VstreamError
from vstream.health.live import lag
from vstream.health.repair.refill import Copy, LostEnd, Refill
from vstream.health.snapshot import StreamSnapshot, to_unix_seconds
from vstream.jetstream.answers import api_error, decode_object
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import DirectMessage, get_by_seq_from_leader
from vstream.jetstream.source_header import origin_of
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import physical_streams

ANSWER_TIMEOUT = 10.0
"""Seconds for one answer."""
FILLER_HEADER = "Vstream-Lost"
"""Header of a filler for a lost message that no reader has: the sequence that it fills."""
_BLOCK = 128
"""Messages requested at once, backwards from a reader's last one."""
_EXPECTED = "Nats-Expected-"
_LAST_SEQUENCE = "Nats-Expected-Last-Sequence"
_DROPPED = frozenset({"nats-stream-source"})
"""Headers that servers added when they sourced the message."""


async def plan_refill(
    topology: Topology, lost: LostEnd, streams: Mapping[str, StreamSnapshot], connections: Mapping[str, Connection]
) -> Refill:
    """
    The messages of *lost* that readers hold. Reads backwards from each reader's end until that is known.

    Raises VstreamError if a reader does not answer.
    """
    stream = _find_stream(topology, lost)
    copies: dict[int, Copy] = {}
    sequences = range(lost.last + 1, lost.last_taken + 1)
    for reader in lost.readers:
        if all(seq in copies for seq in sequences):
            break
        for copy in await _read_copies(stream, lost, streams[reader], connections):
            copies.setdefault(copy.seq, copy)
    rewritten = await _rewrite(topology, lost, copies, connections)
    return Refill(
        lost=lost,
        copies=tuple(copies[seq] for seq in sequences if seq in copies),
        absent=tuple(seq for seq in sequences if seq not in copies),
        filler=naming.canary_subject(stream, choose_writing_region(topology, lost)),
        rewritten=rewritten,
    )


async def _read_copies(
    stream: VirtualStream, lost: LostEnd, reader: StreamSnapshot, connections: Mapping[str, Connection]
) -> list[Copy]:
    """What *reader* holds from *lost* from its last sequence on, and a few before it."""
    part = next(candidate for candidate in physical_streams(stream) if candidate.name == reader.name)
    is_mirror = part.role is Role.READ and physical.mirrored_stream(stream) is not None
    connection = lag.choose_connection_to(connections, part.place)
    copies: list[Copy] = []
    for end in range(reader.last_seq, reader.first_seq - 1, -_BLOCK):
        seqs = range(end, max(end - _BLOCK, reader.first_seq - 1), -1)
        block = await asyncio.gather(*(lag.read_message(connection, reader.name, seq, ANSWER_TIMEOUT) for seq in seqs))
        for message in block:
            if message is None:
                continue
            origin, seq = origin_of(message.headers, (lost.origin,), reader=reader.name)
            if is_mirror:
                origin, seq = lost.origin, message.seq
            if origin == lost.origin and seq is not None and seq <= lost.last_taken:
                copies.append(_copy(message, seq, reader.name))
        # One that is still there is looked at too: whether it is the same tells if somebody has published since.
        if copies and copies[-1].seq <= max(lost.last, 1):
            break
    return copies


def _copy(message: DirectMessage, seq: int, reader: str) -> Copy:
    names = [name for name in message.headers if name.lower() not in _DROPPED and not name.startswith(_EXPECTED)]
    headers = {name: message.headers[name] for name in names}
    at = message.stored_at
    return Copy(seq=seq, subject=message.subject, headers=headers, data=message.data, reader=reader, stored_at=at)


async def _rewrite(
    topology: Topology, lost: LostEnd, copies: Mapping[int, Copy], connections: Mapping[str, Connection]
) -> int | None:
    """The first of the last sequences of the stream itself at which it and its readers do not agree."""
    first = None
    connection = lag.choose_connection_to(connections, lost.place)
    subject = partial(physical.published_subject, topology.naming, _find_stream(topology, lost))
    for seq in sorted((seq for seq in copies if seq <= lost.last), reverse=True):
        original = await lag.read_message(connection, lost.origin, seq, ANSWER_TIMEOUT)
        if original is None:
            continue
        if original.data == copies[seq].data and subject(original.subject) == copies[seq].subject:
            break
        first = seq
    if first is not None or lost.last in copies or lost.last == 0:
        return first
    # Where readers keep the last of each subject, they hold nothing to compare it with. Its time tells.
    newest = await get_by_seq_from_leader(connection, lost.origin, lost.last)
    since = [to_unix_seconds(copy.stored_at) for copy in copies.values() if copy.seq > lost.last]
    is_later = newest is not None and to_unix_seconds(newest.stored_at) > min(since, default=inf)
    return lost.last if is_later else None


def _find_stream(topology: Topology, lost: LostEnd) -> VirtualStream:
    return next(stream for stream in topology.streams if stream.name == lost.virtual)


def choose_writing_region(topology: Topology, lost: LostEnd) -> str:
    """The region to publish in. A stream of the stretch cluster can be reached from any."""
    names = [region.name for region in topology.regions]
    return lost.place if lost.place in names else names[0]


async def refill(refill: Refill, connection: Connection, on_progress: Callable[[int, int], None]) -> None:
    """
    Publish what was lost, by *connection* to the place of the stream; *on_progress* hears how many of how many.

    Each message names the sequence that it must follow: what somebody else publishes meanwhile is never
    overwritten, and ends this with a VstreamError. What was published until then is where it belongs.
    """
    lost = refill.lost
    by_seq = {copy.seq: copy for copy in refill.copies}
    total = lost.last_taken - lost.last
    for done, seq in enumerate(range(lost.last + 1, lost.last_taken + 1), 1):
        copy = by_seq.get(seq)
        if copy is not None:
            subject, headers, data = copy.subject, dict(copy.headers), copy.data
        else:
            assert refill.filler is not None, "a blocked refill is not done"
            subject, headers, data = refill.filler, {FILLER_HEADER: str(seq)}, b""
        headers[_LAST_SEQUENCE] = str(seq - 1)
        reply = await connection.request(subject, data, headers=headers, timeout=ANSWER_TIMEOUT)
        _check_ack(reply.data, lost, seq, done - 1)
        on_progress(done, total)


def _check_ack(answer: bytes, lost: LostEnd, seq: int, before: int) -> None:
    """Raise VstreamError unless *answer* says that the message is stored where it was."""
    ack = decode_object(answer, lost.origin)
    so_far = f"{before:,} of {lost.last_taken - lost.last:,} lost messages are back where they were"
    if "error" in ack or ack.get("seq") != seq or ack.get("duplicate"):
        error = api_error(ack, lost.origin)
        detail = error.description if error is not None else None
        if ack.get("duplicate"):
            detail = f"its message id is stored already, with sequence {ack.get('seq')}"
        raise VstreamError(
            f"`{lost.origin}` did not take sequence {seq:,}: {detail or 'it was stored under another sequence'}; {so_far}",
            hint="another client publishes there: stop it, and run `vstream repair messages` again",
        )
    if naming.qualify_answer(str(ack.get("stream")), lost.origin) != lost.origin:
        raise VstreamError(
            f"what was published in `{lost.place}` was stored in `{ack.get('stream')}`, not in `{lost.origin}`; {so_far}",
            hint="`vstream probe` shows where the mapping rules of each region lead",
        )
