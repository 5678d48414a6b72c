"""Restore the lost end of a stream: find what its readers hold of it, and publish it again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from math import inf

from vstream.errors import VstreamError
from vstream.health.repair.contents import FILLER_HEADER
from vstream.health.repair.live.scan import Tick
from vstream.health.repair.live.write import write_message
from vstream.health.repair.sourcing import HeldMessage, LostEnd, Refill
from vstream.health.snapshot import StreamSnapshot, to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import get_by_seq_from_leader
from vstream.jetstream.region_connections import choose_connection_to
from vstream.jetstream.source_header import origin_of
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import physical_streams

_ANSWER_TIMEOUT = 10.0
"""Seconds for one answer."""
_BLOCK_MESSAGES = 128
"""Messages requested at once, backwards from a reader's last one."""


async def plan_refill(
    topology: Topology, lost: LostEnd, streams: Mapping[str, StreamSnapshot], connections: Mapping[str, Connection]
) -> Refill:
    """
    The messages of *lost* that readers hold. Reads backwards from each reader's end until that is known.

    Raises VstreamError if a reader does not answer.
    """
    stream = topology.stream(lost.virtual)
    held: dict[int, HeldMessage] = {}
    sequences = range(lost.last + 1, lost.last_taken + 1)
    for reader in lost.readers:
        if all(seq in held for seq in sequences):
            break
        for message in await _read_held_messages(stream, lost, streams[reader], connections):
            held.setdefault(message.seq, message)
    first_conflict = await _find_rewritten(topology, lost, held, connections)
    return Refill(
        lost=lost,
        messages=tuple(held[seq] for seq in sequences if seq in held),
        absent=tuple(seq for seq in sequences if seq not in held),
        filler=naming.canary_subject(stream, choose_writing_region(topology, lost)),
        first_conflict=first_conflict,
    )


async def _read_held_messages(
    stream: VirtualStream, lost: LostEnd, reader: StreamSnapshot, connections: Mapping[str, Connection]
) -> list[HeldMessage]:
    """What *reader* holds from *lost* from its last sequence on, and a few before it."""
    part = next(candidate for candidate in physical_streams(stream) if candidate.name == reader.name)
    is_mirror = part.role is Role.READ and physical.mirrored_stream(stream) is not None
    connection = choose_connection_to(connections, part.place)
    held: list[HeldMessage] = []
    for end in range(reader.last_seq, reader.first_seq - 1, -_BLOCK_MESSAGES):
        seqs = range(end, max(end - _BLOCK_MESSAGES, reader.first_seq - 1), -1)
        block = await asyncio.gather(
            *(direct.read_message(connection, reader.name, seq, _ANSWER_TIMEOUT) for seq in seqs)
        )
        for message in block:
            if message is None:
                continue
            origin, seq = origin_of(message.headers, (lost.origin,), reader=reader.name)
            if is_mirror:
                origin, seq = lost.origin, message.seq
            if origin == lost.origin and seq is not None and seq <= lost.last_taken:
                held.append(HeldMessage(seq=seq, reader=reader.name, message=message))
        # One that is still there is looked at too: whether it is the same tells if somebody has published since.
        if held and held[-1].seq <= max(lost.last, 1):
            break
    return held


async def _find_rewritten(
    topology: Topology, lost: LostEnd, held: Mapping[int, HeldMessage], connections: Mapping[str, Connection]
) -> int | None:
    """The first of the last sequences of the stream itself at which it and its readers do not agree."""
    first = None
    connection = choose_connection_to(connections, lost.place)
    subject = partial(physical.published_subject, topology.naming, topology.stream(lost.virtual))
    for seq in sorted((seq for seq in held if seq <= lost.last), reverse=True):
        original = await direct.read_message(connection, lost.origin, seq, _ANSWER_TIMEOUT)
        if original is None:
            continue
        copied = held[seq].message
        if original.data == copied.data and subject(original.subject) == copied.subject:
            break
        first = seq
    if first is not None or lost.last in held or lost.last == 0:
        return first
    # Where readers keep the last of each subject, they hold nothing to compare it with. Its time tells.
    newest = await get_by_seq_from_leader(connection, lost.origin, lost.last)
    since = [to_unix_seconds(lost_one.message.stored_at) for lost_one in held.values() if lost_one.seq > lost.last]
    is_later = newest is not None and to_unix_seconds(newest.stored_at) > min(since, default=inf)
    return lost.last if is_later else None


def choose_writing_region(topology: Topology, lost: LostEnd) -> str:
    """The region to publish in. A stream of the stretch cluster can be reached from any."""
    names = [region.name for region in topology.regions]
    return lost.place if lost.place in names else names[0]


async def publish_lost_end(refill: Refill, connection: Connection, tick: Tick) -> None:
    """
    Publish what was lost, by *connection* to the place of the stream.

    Each message names the sequence that it must follow: what somebody else publishes meanwhile is never
    overwritten, and ends this with a VstreamError. What was published until then is where it belongs.
    """
    lost, by_seq = refill.lost, {held.seq: held.message for held in refill.messages}
    total = lost.last_taken - lost.last
    for done, seq in enumerate(range(lost.last + 1, lost.last_taken + 1)):
        if (message := by_seq.get(seq)) is not None:
            ack = await write_message(connection, seq, message.subject, message.headers, message.data, patience=0)
        else:
            assert refill.filler is not None, "a blocked refill is not done"
            ack = await write_message(connection, seq, refill.filler, {FILLER_HEADER: str(seq)}, b"", patience=0)
        so_far = f"{done:,} of {total:,} lost messages are back where they were"
        if ack.problem is not None:
            raise VstreamError(
                f"`{lost.origin}` did not take sequence {seq:,}: {ack.problem}; {so_far}",
                hint="another client publishes there: stop it, and run `vstream repair messages` again",
            )
        if naming.qualify_answer(ack.stream, lost.origin) != lost.origin:
            raise VstreamError(
                f"what was published in `{lost.place}` was stored in `{ack.stream}`, not in `{lost.origin}`; {so_far}",
                hint="`vstream probe` shows where the mapping rules of each region lead",
            )
        tick(done + 1, total)
