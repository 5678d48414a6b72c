"""
Messages that a region's read stream lacks and other streams hold: find them, and plan their way back.

Each stream is read once, headers only, and stored as runs of sequences. Then the missing messages are fetched one by
one, and planned: whether they can be put back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256

from vstream.errors import VstreamError
from vstream.health.live import lag
from vstream.health.repair import plan
from vstream.health.repair.live import newest
from vstream.health.repair.live.refill import FILLER_HEADER
from vstream.health.repair.live.scan import TIMEOUT, Fetcher, Scan, Tick, list_sequences, read_provenances
from vstream.health.repair.plan import MissingMessage, Replay, ReplayPlanner
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.replication import PhysicalStream, physical_streams, replication_pairs
from vstream.value_class import value_class

SETTLE = 1.0
"""Seconds until a second check: a message that counts as taken may not be stored yet."""
_MSG_ID = "Nats-Msg-Id"
_NS = 1_000_000_000


@value_class
class Contents:
    """What was found about one virtual stream."""

    stream: VirtualStream
    scans: tuple[Scan, ...]
    """Scans of all streams with copies of what was written."""
    unread: Mapping[str, str]
    """Streams that could not be read, with the reason."""
    replays: tuple[Replay, ...]


@value_class
class _Gap:
    """What the stream of *scan* lacks of *origin*, and what streams hold of that origin, by their names."""

    scan: Scan
    origin: PhysicalStream
    lacks: SequenceSet
    holders: Mapping[str, SequenceSet]


async def read_contents(
    topology: Topology,
    stream: VirtualStream,
    connections: Mapping[str, ReconnectingConnection],
    tick: Tick,
    *,
    with_replays: bool = True,
) -> Contents:
    """Read all streams of *stream*. *with_replays* also checks what is missing, message by message, and plans its return."""
    unread: dict[str, str] = {}
    scans = await _scan_copies(stream, connections, unread, tick)
    replays: list[Replay] = []
    if with_replays:
        written, gone = await _find_written(stream, connections, unread, tick)
        stored = sum(map(len, (*written.values(), *gone.values())))
        if _find_gaps(scans, written, gone, stream):
            gone = await _read_on(scans, gone, tick)
        gaps = _find_gaps(scans, written, gone, stream)
        replays = await _plan_replays(Fetcher(topology, stream, connections, tick), scans, gaps, stored)
    return Contents(stream=stream, scans=tuple(scans), unread=unread, replays=tuple(replays))


def parse_write_stream(stream: VirtualStream, name: str) -> PhysicalStream:
    """The write stream of *stream* that is called *name*, which says its region: that may be gone."""
    region = name.removeprefix(physical.physical_name(stream, Role.WRITE, ""))
    return PhysicalStream(virtual=stream.name, name=name, place=region, role=Role.WRITE)


async def _scan_copies(
    stream: VirtualStream, connections: Mapping[str, ReconnectingConnection], unread: dict[str, str], tick: Tick
) -> list[Scan]:
    """All streams with copies, read; *unread* gets those that did not answer."""
    origins = [part.name for part in physical_streams(stream) if part.role is Role.WRITE]
    scans: list[Scan] = []
    for part in physical_streams(stream):
        if part.role is Role.WRITE:
            continue
        scan = Scan(lag.choose_connection_to(connections, part.place), part.name, part.place, origins)
        try:
            await scan.go_on(tick)
        except VstreamError as error:
            unread[part.name] = error.message
        else:
            scans.append(scan)
    return scans


async def _find_written(
    stream: VirtualStream, connections: Mapping[str, ReconnectingConnection], unread: dict[str, str], tick: Tick
) -> tuple[dict[str, SequenceSet], dict[str, SequenceSet]]:
    """What each origin holds itself, and what it has no more."""
    written, gone = {}, {}
    for part in physical_streams(stream):
        if part.role is not Role.WRITE:
            continue
        try:
            connection = lag.choose_connection_to(connections, part.place)
            written[part.name], last = await list_sequences(connection, part.name, tick)
        except VstreamError as error:
            unread[part.name] = error.message
        else:
            gone[part.name] = SequenceSet([(1, last)]) - written[part.name]
    return written, gone


async def _read_on(scans: list[Scan], gone: Mapping[str, SequenceSet], tick: Tick) -> dict[str, SequenceSet]:
    """What of *gone* is so, once the streams of *scans* have been read again."""
    before = _count_held(scans)
    await asyncio.sleep(SETTLE)
    for scan in scans:
        await scan.go_on(tick)
    after = _count_held(scans)
    # Of an origin of which something came meanwhile, more may be on its way that it has no more.
    return {origin: seqs for origin, seqs in gone.items() if before[origin] == after[origin]}


def _count_held(scans: Iterable[Scan]) -> Counter[str]:
    """How many messages of each origin the streams of *scans* hold."""
    counts = Counter[str]()
    for scan in scans:
        counts.update({origin: len(held.runs) for origin, held in scan.held.items()})
    return counts


def _find_gaps(
    scans: list[Scan], written: Mapping[str, SequenceSet], gone: Mapping[str, SequenceSet], stream: VirtualStream
) -> list[_Gap]:
    fed = {(feed.reader.name, feed.origin.name) for feed in replication_pairs(stream)}
    gaps = []
    for scan in scans:
        for origin, held in scan.held.items():
            # What a mirror lacks, the stream that it mirrors lacks.
            is_fed = (scan.name, origin) in fed or origin in scan.given_up
            if not is_fed or not scan.is_fed:
                continue
            holders = {origin: written.get(origin, SequenceSet())}
            for other_scan in scans:
                if other_scan is not scan and origin in other_scan.held:
                    holders[other_scan.name] = other_scan.held[origin].runs
            elsewhere = SequenceSet(run for sequences in holders.values() for run in sequences.runs())
            # What was replaced there must not come behind the newer message of its subject, which may be on its way.
            is_replaced = newest.kept_of_subject(scan) or scan.info["config"].get("allow_rollup_hdrs")
            never = None if is_replaced else gone.get(origin)
            if lacks := plan.find_missing_sequences(held, scan.reach(origin), elsewhere, never):
                gaps.append(_Gap(scan=scan, origin=parse_write_stream(stream, origin), lacks=lacks, holders=holders))
    return gaps


async def _plan_replays(fetcher: Fetcher, scans: list[Scan], gaps: list[_Gap], stored: int) -> list[Replay]:
    """What comes back of *gaps*, and what of it cannot. *stored* is how many messages all origins have ever stored."""
    replays: list[Replay] = []
    for scan in scans:
        planners = [await _examine_gap(fetcher, gap, stored) for gap in gaps if gap.scan is scan]
        ranked = [message for planner in planners for message in planner.ranked]
        passed, lost = await newest.judge_missing(scan, ranked, fetcher.connections)
        replays += [planner.plan(passed, lost) for planner in planners]
    return [planned for planned in replays if planned.count or planned.irreparable]


async def _examine_gap(fetcher: Fetcher, gap: _Gap, stored: int) -> ReplayPlanner:
    """A planner that has seen all that streams still hold of *gap*."""
    scan, origin, lacks = gap.scan, gap.origin, gap.lacks
    virtual, reader = fetcher.stream.name, scan.name
    nothing = Replay(virtual=virtual, reader=reader, place=scan.place, origin=origin.name, read_to=scan.last)
    planner = ReplayPlanner(nothing)
    if scan.held[origin.name].began_again or scan.adds_up:
        planner.give_up(lacks, plan.MADE_AGAIN if scan.held[origin.name].began_again else plan.ADDITION)
        return planner
    for holder, held in gap.holders.items():
        available = lacks & held
        if not available:
            continue
        lacks -= available
        ranks: dict[int, tuple[bool, bool]] = {}
        if is_ranked := newest.kept_of_subject(scan) > 0:
            ranks = await _rank_by_subject(fetcher, gap, holder, available)
            available = SequenceSet((seq, seq) for seq in ranks)
        by_id = defaultdict[str, list[tuple[int, float, bytes]]](list)  # sequence, time and digest of what is fit
        async for seq, message in fetcher.fetch(origin, holder, available):
            subject = physical.published_subject(fetcher.topology.naming, fetcher.stream, message.subject)
            if not _is_missing(scan, fetcher.stream, message, subject):
                continue
            stored_at, obstacle = (
                to_unix_seconds(message.stored_at),
                plan.find_obstacle(message.subject, message.headers),
            )
            if not obstacle and (msg_id := message.headers.get(_MSG_ID)):
                by_id[msg_id].append((seq, stored_at, sha256(message.data).digest()))
            missing = MissingMessage(stored_at, origin.name, seq, subject, obstacle, *ranks.get(seq, ()))
            planner.take(holder, missing, is_ranked=is_ranked)
        planner.drop(holder, await _find_duplicates(scan, by_id, stored, fetcher.tick))
    return planner


async def _find_duplicates(
    scan: Scan, by_id: Mapping[str, list[tuple[int, float, bytes]]], stored: int, tick: Tick
) -> SequenceSet:
    """Those messages with an id that the stream of *scan* dropped, as it has the same under that id."""
    window, dropped = int(scan.info["config"].get("duplicate_window") or 0) / _NS, SequenceSet()
    # One that has stored as many as all origins has dropped none.
    if not by_id or not window or int(scan.info["state"]["last_seq"]) >= stored:
        return dropped
    async for message, _ in read_provenances(scan.connection, scan.name, 1, tick):
        for seq, stored_at, content in by_id.get(message.headers.get(_MSG_ID, ""), ()):
            if message.time / _NS + window + SETTLE >= stored_at:
                same = await direct.get_by_seq_from_leader(scan.connection, scan.name, message.seq, timeout=TIMEOUT)
                if same is not None and sha256(same.data).digest() == content:
                    dropped.add(seq)
    return dropped


async def _rank_by_subject(
    fetcher: Fetcher, gap: _Gap, holder: str, lacks: SequenceSet
) -> dict[int, tuple[bool, bool]]:
    """What of *lacks*, which *holder* has, may be lost, by its sequence; newer ones have replaced the rest."""
    origin, scan = gap.origin.name, gap.scan
    messages = newest.NewestMessages(lacks, scan.held[origin].runs, newest.kept_of_subject(scan))
    async for seq, message in fetcher.read_headers(origin, holder):
        subject = message.subject
        if holder == origin:
            subject = physical.published_subject(fetcher.topology.naming, fetcher.stream, subject)
        messages.take(subject, seq)
    return messages.sort()


def _is_missing(scan: Scan, stream: VirtualStream, message: DirectMessage, subject: str) -> bool:
    """Whether clients miss *message*: no filler, no canary, and not too old for the stream of *scan*."""
    if FILLER_HEADER.lower() in map(str.lower, message.headers):
        return False
    if any(naming.canary_subject(stream, region) == subject for region in stream.regions):
        return False
    max_age = int(scan.info["config"].get("max_age") or 0) / _NS
    return not max_age or to_unix_seconds(message.stored_at) >= time.time() - max_age
