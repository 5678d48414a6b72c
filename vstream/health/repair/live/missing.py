"""
Messages that a region's read stream lacks and other streams hold: find and fetch them.

Each stream is read once, headers only, and stored as runs of sequences. Then the missing messages are checked one by
one: whether they can be put back.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from hashlib import sha256

from vstream.errors import VstreamError
from vstream.health.live import lag
from vstream.health.repair.live import newest
from vstream.health.repair.live.refill import FILLER_HEADER
from vstream.health.repair.live.scan import TIMEOUT, Scan, Tick, list_sequences, read_provenances
from vstream.health.repair.plan import Replay, find_missing_sequences
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
_AT_ONCE = 64
_MSG_ID = "Nats-Msg-Id"
_NS = 1_000_000_000
_UNFIT = {
    "nats-rollup": "it has `Nats-Rollup`, and would remove later messages",
    "nats-ttl": "it has `Nats-TTL`, and may have expired",
    "nats-incr": "it is an addition to a counter",
    "nats-schedule": "it is a schedule",
}
"""Header prefixes of messages that are not put back late."""


@value_class
class Contents:
    """What was found about one virtual stream."""

    stream: VirtualStream
    scans: tuple[Scan, ...]
    """Scans of all streams with copies of what was written."""
    unread: Mapping[str, str]
    """Streams that could not be read, with the reason."""
    replays: tuple[Replay, ...]


async def find_missing(
    topology: Topology,
    stream: VirtualStream,
    connections: Mapping[str, ReconnectingConnection],
    tick: Tick,
    *,
    for_replay: bool = True,
) -> Contents:
    """Read all streams of *stream*. With *for_replay*, missing messages are checked one by one."""
    origins = {part.name: part for part in physical_streams(stream) if part.role is Role.WRITE}
    scans: list[Scan] = []
    unread: dict[str, str] = {}
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
    replays: list[Replay] = []
    if for_replay:
        written, gone = await _find_written(origins, connections, unread, tick)
        stored = sum(map(len, (*written.values(), *gone.values())))
        fetcher = Fetcher(topology, stream, connections, tick, stored)
        if any(_find_missing(scans, written, gone, stream)):
            before = _count_held(scans)
            await asyncio.sleep(SETTLE)
            for scan in scans:
                await scan.go_on(tick)
            after = _count_held(scans)
            # Of an origin of which something came meanwhile, more may be on its way that it has no more.
            gone = {origin: seqs for origin, seqs in gone.items() if before[origin] == after[origin]}
        for scan, origin, lacks in _find_missing(scans, written, gone, stream):
            replays.append(await fetcher.plan_replay(scan, find_origin(stream, origin), lacks, written, scans))
        for scan in scans:
            replays = await fetcher.leave_older(scan, replays)
    return Contents(
        stream=stream,
        scans=tuple(scans),
        unread=unread,
        replays=tuple(planned for planned in replays if planned.count or planned.irreparable),
    )


def find_origin(stream: VirtualStream, name: str) -> PhysicalStream:
    """The write stream *name* of *stream*, also of a region that is gone."""
    region = name.removeprefix(physical.physical_name(stream, Role.WRITE, ""))
    return PhysicalStream(virtual=stream.name, name=name, place=region, role=Role.WRITE)


async def _find_written(
    origins: Mapping[str, PhysicalStream],
    connections: Mapping[str, ReconnectingConnection],
    unread: dict[str, str],
    tick: Tick,
) -> tuple[dict[str, SequenceSet], dict[str, SequenceSet]]:
    """What each origin holds itself, and what it has no more."""
    written, gone = {}, {}
    for part in origins.values():
        try:
            connection = lag.choose_connection_to(connections, part.place)
            written[part.name], last = await list_sequences(connection, part.name, tick)
        except VstreamError as error:
            unread[part.name] = error.message
        else:
            gone[part.name] = SequenceSet([(1, last)]) - written[part.name]
    return written, gone


def _count_held(scans: Iterable[Scan]) -> Counter[str]:
    """How many messages of each origin the streams of *scans* hold."""
    counts = Counter[str]()
    for scan in scans:
        counts.update({origin: len(held.runs) for origin, held in scan.held.items()})
    return counts


def _find_missing(
    scans: list[Scan], whole: Mapping[str, SequenceSet], gone: Mapping[str, SequenceSet], stream: VirtualStream
) -> list[tuple[Scan, str, SequenceSet]]:
    fed = {(feed.reader.name, feed.origin.name) for feed in replication_pairs(stream)}
    missing = []
    for scan in scans:
        for origin, held in scan.held.items():
            # What a mirror lacks, the stream that it mirrors lacks.
            is_fed = (scan.name, origin) in fed or origin in scan.given_up
            if not is_fed or not scan.is_fed:
                continue
            elsewhere = whole.get(origin, SequenceSet())
            for other_scan in scans:
                if other_scan is not scan and origin in other_scan.held:
                    elsewhere |= other_scan.held[origin].runs
            # What was replaced there must not come behind the newer message of its subject, which may be on its way.
            is_replaced = newest.kept_of_subject(scan) or scan.info["config"].get("allow_rollup_hdrs")
            never = None if is_replaced else gone.get(origin)
            if lacks := find_missing_sequences(held, scan.reach(origin), elsewhere, never):
                missing.append((scan, origin, lacks))
    return missing


def _without_passed(planned: Replay, passed: SequenceSet, lost: Mapping[str, SequenceSet]) -> Replay:
    """*planned* without what *passed* has; of that, what is *lost* is named, by reason."""
    fit = {holder: sequences - passed for holder, sequences in planned.by_holder.items()}
    by_holder = {holder: sequences for holder, sequences in fit.items() if sequences}
    return replace(planned, by_holder=by_holder, irreparable={**planned.irreparable, **lost})


class Fetcher:
    """Fetches messages of *stream* by origin and sequence."""

    def __init__(
        self,
        topology: Topology,
        stream: VirtualStream,
        connections: Mapping[str, ReconnectingConnection],
        tick: Tick,
        stored: int = 0,
    ) -> None:
        """*stored* is how many messages all origins have ever stored."""
        self._topology = topology
        self._stream = stream
        self._connections = connections
        self._tick = tick
        self._stored = stored
        self._by_id = defaultdict[str, list[tuple[int, float, bytes]]](list)
        """Sequence, time and content of the messages that were found fit."""
        self._places = {part.name: part.place for part in physical_streams(stream)}
        self._origins = [part.name for part in physical_streams(stream) if part.role is Role.WRITE]
        self._missing = defaultdict[str, dict[str, list[newest.MissingMessage]]](lambda: defaultdict(list))

    async def plan_replay(
        self,
        scan: Scan,
        origin: PhysicalStream,
        lacks: SequenceSet,
        whole: Mapping[str, SequenceSet],
        scans: list[Scan],
    ) -> Replay:
        """Which of *lacks* can be put back into the stream of *scan*, and from which streams."""
        by_holder: dict[str, SequenceSet] = {}
        irreparable: dict[str, SequenceSet] = defaultdict(SequenceSet)
        holders = [(origin.name, whole.get(origin.name, SequenceSet()))]
        informed = [holder for holder in scans if holder is not scan and origin.name in holder.held]
        holders += [(holder.name, holder.held[origin.name].runs) for holder in informed]
        planned = Replay(
            virtual=self._stream.name,
            reader=scan.name,
            place=scan.place,
            origin=origin.name,
            by_holder=by_holder,
            read_to=scan.last,
        )
        if scan.held[origin.name].began_again:
            return replace(planned, irreparable={"the write stream was made again since, with sequences from 1": lacks})
        if scan.adds_up:
            return replace(planned, irreparable={_UNFIT["nats-incr"]: lacks})
        for holder, held in holders:
            available = lacks & held
            if not available:
                continue
            lacks -= available
            fit, done, ranks = SequenceSet(), 0, dict[int, tuple[bool, bool]]()
            if newest.kept_of_subject(scan):
                ranks = await self._rank_by_subject(scan, origin.name, holder, available)
                available = SequenceSet((seq, seq) for seq in ranks)
            async for seq, message in self.fetch(origin, holder, available):
                done += 1
                self._tick(done, len(available))
                reason = self._find_reason(scan, message, origin.name, seq, ranks.get(seq))
                if reason is None:
                    fit.add(seq)
                elif reason:
                    irreparable[reason].add(seq)
            fit -= await self._find_duplicates(scan)
            if fit:
                by_holder[holder] = fit
        return replace(planned, irreparable=dict(irreparable))

    async def _find_duplicates(self, scan: Scan) -> SequenceSet:
        """Those messages with an id that the stream of *scan* dropped, as it has the same under that id."""
        by_id, self._by_id = self._by_id, defaultdict(list)
        window, dropped = int(scan.info["config"].get("duplicate_window") or 0) / _NS, SequenceSet()
        # One that has stored as many as all origins has dropped none.
        if not by_id or not window or int(scan.info["state"]["last_seq"]) >= self._stored:
            return dropped
        async for message, _ in read_provenances(scan.connection, scan.name, 1, self._tick):
            for seq, time_stored, content in by_id.get(message.headers.get(_MSG_ID, ""), ()):
                if message.time / _NS + window + SETTLE >= time_stored:
                    same = await direct.get_by_seq_from_leader(scan.connection, scan.name, message.seq, timeout=TIMEOUT)
                    if same is not None and sha256(same.data).digest() == content:
                        dropped.add(seq)
        return dropped

    async def leave_older(self, scan: Scan, replays: list[Replay]) -> list[Replay]:
        """*replays*, of which into *scan* only the last message of each subject: one that came behind it would replace it."""
        passed, lost = await newest.sort_missing(
            scan,
            self._missing[scan.name],
            {name: lag.choose_connection_to(self._connections, self._places[name]) for name in self._origins},
        )
        elsewhere = [planned for planned in replays if planned.reader != scan.name]
        into_scan = [planned for planned in replays if planned.reader == scan.name]
        return elsewhere + [
            _without_passed(planned, passed[planned.origin], lost[planned.origin]) for planned in into_scan
        ]

    async def _rank_by_subject(
        self, scan: Scan, origin: str, holder: str, lacks: SequenceSet
    ) -> dict[int, tuple[bool, bool]]:
        """What of *lacks*, which *holder* has, may be lost, by its sequence; newer ones have replaced the rest."""
        messages = newest.NewestMessages(lacks, scan.held[origin].runs, newest.kept_of_subject(scan))
        connection = lag.choose_connection_to(self._connections, self._places[holder])
        async for message, provenance in read_provenances(connection, holder, 1, self._tick):
            if holder == origin:
                subject = physical.published_subject(self._topology.naming, self._stream, message.subject)
                messages.take(subject, message.seq)
            elif provenance is not None and provenance.origin == origin:
                messages.take(message.subject, provenance.seq)
        return messages.sort()

    async def fetch(
        self, origin: PhysicalStream, holder: str, seqs: SequenceSet
    ) -> AsyncIterator[tuple[int, DirectMessage]]:
        """The messages *seqs* of *origin*, ascending, from *holder*, with the subjects that *origin* has."""
        connection = lag.choose_connection_to(self._connections, self._places[holder])
        where: dict[int, int] | None = None
        if holder != origin.name:
            where = {}
            async for message, provenance in read_provenances(connection, holder, 1, self._tick):
                if provenance is not None and provenance.origin == origin.name and provenance.seq in seqs:
                    where.setdefault(provenance.seq, message.seq)
        block: list[int] = []
        for seq in seqs:
            block.append(seq)
            if len(block) == _AT_ONCE:
                for fetched in await self._block(connection, holder, block, where, origin.place):
                    yield fetched
                block = []
        for fetched in await self._block(connection, holder, block, where, origin.place):
            yield fetched

    async def _block(
        self,
        connection: ReconnectingConnection,
        holder: str,
        seqs: list[int],
        where: Mapping[int, int] | None,
        region: str,
    ) -> list[tuple[int, DirectMessage]]:
        positions = [(seq, seq if where is None else where.get(seq)) for seq in seqs]
        located = [(seq, at) for seq, at in positions if at is not None]
        messages = await asyncio.gather(
            *(direct.get_by_seq_from_leader(connection, holder, at, timeout=TIMEOUT) for _, at in located)
        )
        block: list[tuple[int, DirectMessage]] = []
        for (seq, _), message in zip(located, messages, strict=True):
            if message is None:
                continue
            if where is None:
                block.append((seq, message))
                continue
            subject = physical.stored_subject(self._topology.naming, self._stream, region, message.subject)
            block.append((seq, replace(message, subject=subject)))
        return block

    def _find_reason(
        self, scan: Scan, message: DirectMessage, origin: str, seq: int, rank: tuple[bool, bool] | None
    ) -> str | None:
        """Why *message* cannot be put back; None if it can, empty if it is not missing."""
        names = [name.lower() for name in message.headers]
        subject = physical.published_subject(self._topology.naming, self._stream, message.subject)
        if FILLER_HEADER.lower() in names or self._is_canary(subject):
            return ""
        stored = to_unix_seconds(message.stored_at)
        max_age = int(scan.info["config"].get("max_age") or 0) / _NS
        if max_age and stored < time.time() - max_age:
            return ""
        reasons = (reason for name in names for unfit, reason in _UNFIT.items() if name.startswith(unfit))
        obstacle = next(reasons, None)
        if obstacle is None and (msg_id := message.headers.get(_MSG_ID)):
            self._by_id[msg_id].append((seq, stored, sha256(message.data).digest()))
        if rank is None:
            return obstacle
        missing = newest.MissingMessage(stored, origin, seq, obstacle or "", *rank)
        self._missing[scan.name][subject].append(missing)
        return None

    def _is_canary(self, subject: str) -> bool:
        return any(naming.canary_subject(self._stream, region) == subject for region in self._stream.regions)
