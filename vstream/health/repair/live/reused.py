"""
Sequences that a write stream has used again: what it holds there now is not what a reader took.

After a loss of power a write stream may end before messages that readers have taken, and store others under the same
sequences. A reader is past those, and never takes them. The last one that it took before the loss is followed by a pause:
only there is it asked when the write stream has stored what it holds. What is older than the reader's copy is the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import NamedTuple

from vstream.errors import VstreamError
from vstream.health.repair.contents import ReusedSequences
from vstream.health.repair.live.newest import read_subject_state
from vstream.health.repair.live.scan import TIMEOUT, Fetcher, Scan, is_missing, read_provenances
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.direct import ANY_SUBJECT, DirectMessage
from vstream.jetstream.source_header import MSG_ID
from vstream.timing import SECOND_NS
from vstream.topology import physical
from vstream.topology.model import Role
from vstream.topology.replication import PhysicalStream, physical_streams
from vstream.topology.stream_limits import PER_SUBJECT

_LATER_SECONDS = 0.25
"""Seconds by which what was stored after a loss is newer than what readers took before it. Less is how clocks differ."""
_MAX_FETCHED = 10_000
"""Messages that are fetched one by one to know when they were stored; of more, the headers of all are read."""


class _Fingerprint(NamedTuple):
    """What a message and its copy have in common, with the subject that clients see."""

    subject: str
    msg_id: str
    digest: bytes


async def find_reused_sequences(
    fetcher: Fetcher, scans: Sequence[Scan], written: Mapping[str, SequenceSet]
) -> tuple[ReusedSequences, ...]:
    """What the streams of *scans* hold otherwise than the write streams, which hold *written*. Raises as requests do."""
    result: list[ReusedSequences] = []
    for origin in physical_streams(fetcher.stream):
        if origin.name not in written:
            continue
        # A mirror has what the stream has that it mirrors. Each message of a counter is a sum.
        readers = [scan for scan in scans if scan.has_sources and not scan.holds_counters and origin.name in scan.held]
        suspects = await _find_suspects(fetcher, origin, readers, written[origin.name])
        for scan in readers:
            if not suspects[scan.name]:
                continue
            if sequences := await _find_different(fetcher, origin, scan, suspects[scan.name]):
                result.append(_describe_reuse(origin, scan, sequences))
    return tuple(result)


async def find_changed_mirrors(fetcher: Fetcher) -> tuple[tuple[ReusedSequences, ...], Mapping[str, str]]:
    """What mirrors hold otherwise than the origin of their stream, and by name, why others could not be compared."""
    parts = physical_streams(fetcher.stream)
    origin = next(part for part in parts if part.role is Role.ORIGIN)
    changed: list[ReusedSequences] = []
    unread: dict[str, str] = {}
    for mirror in parts:
        if mirror.name == origin.name:
            continue
        try:
            sequences = await _compare_mirror(fetcher, origin, mirror)
        except VstreamError as error:
            unread[mirror.name] = error.message
        else:
            if sequences:
                changed.append(_describe_reuse(origin, mirror, sequences))
    return tuple(changed), unread


def _describe_reuse(origin: PhysicalStream, reader: Scan | PhysicalStream, sequences: SequenceSet) -> ReusedSequences:
    return ReusedSequences(
        virtual=origin.virtual, reader=reader.name, place=reader.place, origin=origin.name, sequences=sequences
    )


async def _compare_mirror(fetcher: Fetcher, origin: PhysicalStream, mirror: PhysicalStream) -> SequenceSet:
    """The sequences at which *mirror* and *origin* hold messages that differ."""
    suspects = SequenceSet()
    async with (
        aclosing(fetcher.read_headers(origin.name, origin.name)) as originals,
        aclosing(fetcher.read_headers(mirror.name, mirror.name)) as copies,
    ):
        seq, copy = 0, None
        async for original_seq, original in originals:
            while seq < original_seq and (following := await anext(copies, None)) is not None:
                seq, copy = following
            # A mirror keeps the times of what it mirrors.
            if copy is not None and seq == original_seq and copy.time != original.time:
                suspects.add(seq)
    stored: dict[int, _Fingerprint] = {}
    async for seq, message in fetcher.fetch(origin, origin.name, suspects):
        stored[seq] = _make_fingerprint(message, message.subject)
    different = SequenceSet()
    async for seq, message in fetcher.fetch(mirror, mirror.name, suspects):
        if seq in stored and stored[seq] != _make_fingerprint(message, message.subject):
            different.add(seq)
    return different


async def _find_suspects(
    fetcher: Fetcher, origin: PhysicalStream, readers: Iterable[Scan], written: SequenceSet
) -> dict[str, SequenceSet]:
    """By reader, the sequences that it and *origin*, which holds *written*, have, and that *origin* has stored later."""
    ends: list[tuple[Scan, int, float]] = []
    for scan in readers:
        held = scan.held[origin.name]
        for end, came in (*held.before_silences.items(), held.newest_sourced):
            # Of what came before, all is older there, too.
            if (last := written.find_last(end)) is not None:
                ends.append((scan, last, came + _LATER_SECONDS))
    stored = await _read_times(fetcher, origin, SequenceSet((last, last) for _, last, _ in ends))
    runs = defaultdict[str, list[tuple[int, int]]](list)
    for scan, last, came in ends:
        if stored.get(last, 0) > came:
            first = await _find_first_after(fetcher, origin, (written.runs()[0][0], last), came)
            runs[scan.name].append((first, last))
    return {scan.name: SequenceSet(runs[scan.name]) & written & scan.held[origin.name].sequences for scan in readers}


async def _read_times(fetcher: Fetcher, origin: PhysicalStream, seqs: SequenceSet) -> dict[int, float]:
    """When *origin* stored the messages *seqs*, in seconds since 1970."""
    if len(seqs) > _MAX_FETCHED:
        headers = fetcher.read_headers(origin.name, origin.name)
        return {seq: message.time / SECOND_NS async for seq, message in headers if seq in seqs}
    fetched = fetcher.fetch(origin, origin.name, seqs)
    return {seq: to_unix_seconds(message.stored_at) async for seq, message in fetched}


async def _find_first_after(fetcher: Fetcher, origin: PhysicalStream, within: tuple[int, int], moment: float) -> int:
    """The first sequence *within* which *origin* has stored its messages after *moment*: its last one is such a sequence."""
    low, high = within
    connection = fetcher.connections[origin.name]
    while low < high:
        middle = (low + high) // 2
        message = await direct.get_next_from_leader(connection, origin.name, ANY_SUBJECT, middle, timeout=TIMEOUT)
        if message is None or to_unix_seconds(message.stored_at) > moment:
            high = middle
        else:
            low = message.seq + 1
    return high


async def _find_different(fetcher: Fetcher, origin: PhysicalStream, scan: Scan, suspects: SequenceSet) -> SequenceSet:
    """Those *suspects* that the stream of *scan* lacks: under their sequences and message ids it has others, if any."""
    lacks: dict[int, _Fingerprint] = {}
    by_id = defaultdict[str, set[int]](set)
    async for seq, message in fetcher.fetch(origin, origin.name, suspects):
        subject = physical.published_subject(fetcher.topology.naming, fetcher.stream, message.subject)
        if not is_missing(scan, fetcher.stream, message, subject) or await _is_replaced(scan, message, subject):
            continue
        lacks[seq] = _make_fingerprint(message, subject)
        if lacks[seq].msg_id:
            by_id[lacks[seq].msg_id].add(seq)
    # What is twice there may be the same once: after a repair, or if it was published again.
    async for stored, provenance in read_provenances(scan.connection, scan.name, 1, fetcher.tick):
        alike = by_id.get(stored.headers.get(MSG_ID, ""), set())
        if provenance is not None and provenance.origin == origin.name:
            alike = alike | {provenance.seq}
        if not alike & lacks.keys():
            continue
        copy = await direct.get_by_seq_from_leader(scan.connection, scan.name, stored.seq, timeout=TIMEOUT)
        if copy is not None:
            for seq in alike & lacks.keys():
                if lacks[seq] == _make_fingerprint(copy, copy.subject):
                    del lacks[seq]
    return SequenceSet((seq, seq) for seq in lacks)


async def _is_replaced(scan: Scan, message: DirectMessage, subject: str) -> bool:
    """Whether the stream of *scan*, had it taken *message*, had it no more: later ones of its subject fill it."""
    if not (most := scan.limit(PER_SUBJECT)):
        return False
    count, since = await read_subject_state(scan, subject)
    return count >= most and since > to_unix_seconds(message.stored_at)


def _make_fingerprint(message: DirectMessage, subject: str) -> _Fingerprint:
    msg_id = message.headers.get(MSG_ID, "")
    return _Fingerprint(subject=subject, msg_id=msg_id, digest=sha256(message.data).digest())
