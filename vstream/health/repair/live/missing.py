"""
Messages that a region's read stream lacks and other streams hold: find them, and plan their way back.

Each stream is read once, headers only, and stored as runs of sequences. Then the missing messages are fetched one by
one, and planned: whether they can be put back.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256

from vstream.errors import VstreamError
from vstream.health.repair.contents import (
    ADDITION,
    RECREATED,
    ContentRepairs,
    MissingMessage,
    Replay,
    SubjectRank,
    find_missing_sequences,
    find_obstacle,
)
from vstream.health.repair.live.newest import NewestMessages, find_unreplayable
from vstream.health.repair.live.reused import find_reused_sequences
from vstream.health.repair.live.scan import TIMEOUT, Fetcher, Scan, Tick, is_missing, list_sequences, read_provenances
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.region_connections import choose_connection_to
from vstream.jetstream.source_header import MSG_ID
from vstream.timing import SECOND_NS
from vstream.topology import physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import PhysicalStream, physical_streams, replication_pairs
from vstream.topology.stream_limits import PER_SUBJECT, REPLACING
from vstream.value_class import value_class

SETTLE_SECONDS = 1.0
"""Seconds until a second check: a message that counts as taken may not be stored yet."""


@value_class
class Contents:
    """What the streams of one virtual stream hold of what was written in each region."""

    stream: VirtualStream
    scans: tuple[Scan, ...]
    """Scans of all streams with copies, which can read on."""
    unread: Mapping[str, str]
    """Streams that could not be read, with the reason."""


@value_class
class _Written:
    """What the write streams of one virtual stream hold themselves, by their names."""

    held: Mapping[str, SequenceSet]
    gone: Mapping[str, SequenceSet]
    """What they have no more."""
    unread: Mapping[str, str]


@value_class
class _Gap:
    """What the stream of *scan* lacks of *origin*, and what streams hold of that origin, by their names."""

    scan: Scan
    origin: PhysicalStream
    lacks: SequenceSet
    holders: Mapping[str, SequenceSet]


async def read_contents(
    stream: VirtualStream, connections: Mapping[str, ReconnectingConnection], tick: Tick
) -> Contents:
    """Read all streams with copies of *stream*."""
    parts = physical_streams(stream)
    origins = [part.name for part in parts if part.role is Role.WRITE]
    scans: list[Scan] = []
    unread: dict[str, str] = {}
    for part in parts:
        if part.role is Role.WRITE:
            continue
        scan = Scan(choose_connection_to(connections, part.place), part.name, part.place, origins)
        try:
            await scan.read_new_messages(tick)
        except VstreamError as error:
            unread[part.name] = error.message
        else:
            scans.append(scan)
    return Contents(stream=stream, scans=tuple(scans), unread=unread)


async def plan_replays(
    topology: Topology, contents: Contents, connections: Mapping[str, ReconnectingConnection], tick: Tick
) -> ContentRepairs:
    """What streams of *contents* lack, checked message by message, and which write streams could not be asked for it."""
    stream, scans = contents.stream, contents.scans
    written = await _read_written(stream, connections, tick)
    gone = written.gone
    if _find_gaps(scans, written.held, gone, stream):
        gone = await _read_on(scans, gone, tick)
    gaps = _find_gaps(scans, written.held, gone, stream)
    stored = sum(map(len, (*written.held.values(), *written.gone.values())))
    fetcher = Fetcher(topology, stream, connections, tick)
    replays: list[Replay] = []
    for scan in scans:
        examined = [await _examine_gap(fetcher, gap, stored) for gap in gaps if gap.scan is scan]
        ranked = [message for _, messages in examined for message in messages]
        passed, lost = await find_unreplayable(scan, ranked, fetcher.connections)
        replays += [replay.exclude(passed[replay.origin], lost[replay.origin]) for replay, _ in examined]
    lacking = tuple(replay for replay in replays if replay.count or replay.irreparable)
    return ContentRepairs(
        replays=lacking, reused=await find_reused_sequences(fetcher, scans, written.held), unread=written.unread
    )


def parse_write_stream(stream: VirtualStream, name: str) -> PhysicalStream:
    """The write stream of *stream* that is called *name*, which says its region: that may be gone."""
    region = name.removeprefix(physical.physical_name(stream, Role.WRITE, ""))
    return PhysicalStream(virtual=stream.name, name=name, place=region, role=Role.WRITE)


async def _read_written(
    stream: VirtualStream, connections: Mapping[str, ReconnectingConnection], tick: Tick
) -> _Written:
    held: dict[str, SequenceSet] = {}
    gone: dict[str, SequenceSet] = {}
    unread: dict[str, str] = {}
    for part in physical_streams(stream):
        if part.role is not Role.WRITE:
            continue
        connection = choose_connection_to(connections, part.place)
        try:
            held[part.name], last = await list_sequences(connection, part.name, tick)
        except VstreamError as error:
            unread[part.name] = error.message
        else:
            gone[part.name] = SequenceSet([(1, last)]) - held[part.name]
    return _Written(held=held, gone=gone, unread=unread)


async def _read_on(scans: Sequence[Scan], gone: Mapping[str, SequenceSet], tick: Tick) -> dict[str, SequenceSet]:
    """What of *gone* is so, once the streams of *scans* have been read again."""
    before = _count_held(scans)
    await asyncio.sleep(SETTLE_SECONDS)
    for scan in scans:
        await scan.read_new_messages(tick)
    after = _count_held(scans)
    # Of an origin of which something came meanwhile, more may be on its way that it has no more.
    return {origin: seqs for origin, seqs in gone.items() if before[origin] == after[origin]}


def _count_held(scans: Iterable[Scan]) -> Counter[str]:
    """How many messages of each origin the streams of *scans* hold."""
    counts = Counter[str]()
    for scan in scans:
        counts.update({origin: len(held.sequences) for origin, held in scan.held.items()})
    return counts


def _find_gaps(
    scans: Sequence[Scan], written: Mapping[str, SequenceSet], gone: Mapping[str, SequenceSet], stream: VirtualStream
) -> list[_Gap]:
    fed = {(feed.reader.name, feed.origin.name) for feed in replication_pairs(stream)}
    gaps = []
    for scan in scans:
        for origin, held in scan.held.items():
            # What a mirror lacks, the stream that it mirrors lacks.
            is_fed = (scan.name, origin) in fed or origin in scan.lost_origins
            if not is_fed or not scan.has_sources:
                continue
            holders = {origin: written.get(origin, SequenceSet())}
            for other_scan in scans:
                if other_scan is not scan and origin in other_scan.held:
                    holders[other_scan.name] = other_scan.held[origin].sequences
            elsewhere = SequenceSet(run for sequences in holders.values() for run in sequences.runs())
            # What was replaced there must not come behind the newer message of its subject, which may be on its way.
            is_replaced = any(map(scan.limit, REPLACING))
            never = None if is_replaced else gone.get(origin)
            if lacks := find_missing_sequences(held, scan.expected_range(origin), elsewhere, never):
                gaps.append(_Gap(scan=scan, origin=parse_write_stream(stream, origin), lacks=lacks, holders=holders))
    return gaps


async def _examine_gap(fetcher: Fetcher, gap: _Gap, stored: int) -> tuple[Replay, list[MissingMessage]]:
    """
    What comes back of *gap*, as far as each message tells, of *stored* that all origins have ever stored.

    With those that have to be judged together, as only the newest of each subject comes back.
    """
    scan, origin, lacks = gap.scan, gap.origin, gap.lacks
    replay = Replay(
        virtual=fetcher.stream.name, reader=scan.name, place=scan.place, origin=origin.name, read_to=scan.last
    )
    if scan.held[origin.name].was_recreated or scan.holds_counters:
        reason = RECREATED if scan.held[origin.name].was_recreated else ADDITION
        return replace(replay, irreparable={reason: lacks}), []
    by_holder: dict[str, SequenceSet] = {}
    irreparable = defaultdict[str, SequenceSet](SequenceSet)
    ranked: list[MissingMessage] = []
    is_ranked = scan.limit(PER_SUBJECT) > 0
    for holder, held in gap.holders.items():
        available = lacks & held
        if not available:
            continue
        lacks -= available
        ranks = await _rank_by_subject(fetcher, gap, holder, available) if is_ranked else None
        returning = SequenceSet()
        by_id = defaultdict[str, list[tuple[MissingMessage, bytes]]](list)
        async for missing, message in _fetch_missing(fetcher, gap, holder, available, ranks):
            if is_ranked:
                ranked.append(missing)
            elif missing.obstacle:
                irreparable[missing.obstacle].add(missing.seq)
                continue
            returning.add(missing.seq)
            if not missing.obstacle and (msg_id := message.headers.get(MSG_ID)):
                by_id[msg_id].append((missing, sha256(message.data).digest()))
        by_holder[holder] = returning - await _find_dropped(scan, by_id, stored, fetcher.tick)
    return replace(replay, by_holder=by_holder, irreparable=irreparable), ranked


async def _fetch_missing(
    fetcher: Fetcher, gap: _Gap, holder: str, available: SequenceSet, ranks: Mapping[int, SubjectRank] | None
) -> AsyncIterator[tuple[MissingMessage, DirectMessage]]:
    """What is missing of *available*, with the message that *holder* has; where there are *ranks*, only what has one."""
    seqs = available if ranks is None else SequenceSet((seq, seq) for seq in ranks)
    async for seq, message in fetcher.fetch(gap.origin, holder, seqs):
        subject = physical.published_subject(fetcher.topology.naming, fetcher.stream, message.subject)
        if is_missing(gap.scan, fetcher.stream, message, subject):
            written, obstacle = to_unix_seconds(message.stored_at), find_obstacle(message.subject, message.headers)
            rank = ranks[seq] if ranks is not None else SubjectRank(is_newest=True, has_older_in_reader=False)
            yield MissingMessage(written, gap.origin.name, seq, subject, obstacle, rank), message


async def _find_dropped(
    scan: Scan, by_id: Mapping[str, list[tuple[MissingMessage, bytes]]], stored: int, tick: Tick
) -> SequenceSet:
    """Those messages with an id, each with the digest of its payload, that the stream of *scan* dropped: it has the same."""
    window, dropped = scan.limit("duplicate_window") / SECOND_NS, SequenceSet()
    # One that has stored as many as all origins has dropped none.
    if not by_id or not window or int(scan.info["state"]["last_seq"]) >= stored:
        return dropped
    async for message, _ in read_provenances(scan.connection, scan.name, 1, tick):
        for missing, digest in by_id.get(message.headers.get(MSG_ID, ""), ()):
            if message.time / SECOND_NS + window + SETTLE_SECONDS >= missing.written_at:
                same = await direct.get_by_seq_from_leader(scan.connection, scan.name, message.seq, timeout=TIMEOUT)
                if same is not None and sha256(same.data).digest() == digest:
                    dropped.add(missing.seq)
    return dropped


async def _rank_by_subject(fetcher: Fetcher, gap: _Gap, holder: str, lacks: SequenceSet) -> dict[int, SubjectRank]:
    """What of *lacks*, which *holder* has, may be lost, by its sequence; newer ones have replaced the rest."""
    origin, scan = gap.origin.name, gap.scan
    messages = NewestMessages(lacks, scan.held[origin].sequences, scan.limit(PER_SUBJECT))
    async for seq, message in fetcher.read_headers(origin, holder):
        subject = message.subject
        if holder == origin:
            subject = physical.published_subject(fetcher.topology.naming, fetcher.stream, subject)
        messages.add(subject, seq)
    return messages.rank_missing()
