"""Read a stream once: which sequences of each origin it holds, and which of them twice. Then fetch single messages."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from vstream.health.repair.contents import FILLER_HEADER, ExpectedRange, OriginHoldings
from vstream.health.repair.sequence_set import SequenceSet
from vstream.health.snapshot import to_unix_seconds
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import convert_malformed_errors
from vstream.jetstream.connection import ask_api
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.message_reader import StoredMessage, read_through
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.region_connections import choose_connection_to
from vstream.jetstream.source_header import Provenance, parse_provenance
from vstream.timing import SECOND_NS
from vstream.topology import naming, physical
from vstream.topology.model import Topology, VirtualStream
from vstream.topology.replication import PhysicalStream, physical_streams
from vstream.topology.stream_config import UNTIL_KEY, parse_positions
from vstream.topology.stream_limits import MAX_AGE, SIZES, read_limit

Tick = Callable[[int, int], None]
"""Called with how many of how many messages were read or written; of 0 where that is not known yet."""

TIMEOUT = 30.0
"""Seconds to wait for the next message."""
_MAX_PARALLEL_READS = 64
_MAX_LISTED = 50_000
"""Deleted sequences of an origin that are listed in one answer; where there are more, it is read."""
_TICK_MESSAGES = 512


def ignore_progress(_done: int, _total: int) -> None:
    """A `Tick` for what is short."""


class Scan:
    """What the stream *name* in *place* holds of *origins*. Empty until `read_new_messages`."""

    def __init__(self, connection: ReconnectingConnection, name: str, place: str, origins: Collection[str]) -> None:
        self.connection = connection
        self.name = name
        self.place = place
        self.held = {origin: OriginHoldings() for origin in origins}
        self.info: dict[str, Any] = {}
        """The leader's answer before anything was read."""
        self.last = 0
        """It has been read up to this sequence."""
        self._ahead = 0.0
        """How many seconds the clock of its leader is ahead of the one here, which may be wrong."""

    async def read_new_messages(self, tick: Tick) -> None:
        """Read what has not been read yet. Raises as requests do."""
        info = await JetStreamAdmin(self.connection).info(self.name)
        self.info = self.info or info
        self._ahead = to_unix_seconds(info["ts"]) - time.time()
        for origin in self.lost_origins:
            self.held.setdefault(origin, OriginHoldings())
        sources = [source for source in info["config"].get("sources") or () if str(source.get("name")) in self.held]
        current = {parse_definition(source) for source in sources}
        async for message, provenance in read_provenances(self.connection, self.name, self.last + 1, tick):
            self.last = message.seq
            if provenance is not None and provenance.origin in self.held:
                self.held[provenance.origin].add(
                    reader_seq=message.seq,
                    seq=provenance.seq,
                    arrived_at=message.time / SECOND_NS,
                    is_replayed=provenance.is_replayed,
                    is_current=not any(provenance.definition) or provenance.definition in current,
                    identity=provenance.identity,
                )

    def limit(self, name: str) -> int:
        """The limit *name* of its configuration; 0 where it has none."""
        return read_limit(self.info["config"], name)

    def expected_range(self, origin: str) -> ExpectedRange:
        """The sequences of *origin* that it should hold."""
        state = self.info["state"]
        source, defined = find_source(self.info, origin), find_source(self.info["config"], origin)
        # What newer messages have replaced is told apart by its subject.
        has_limits = any(map(self.limit, SIZES)) or self._may_have_expired()
        starts_later = int(defined.get("opt_start_seq") or 0) > 1 or bool(defined.get("opt_start_time"))
        position = int(source["seq"]) if source.get("seq") else None
        # Nothing more is on its way from a region that was given up.
        return ExpectedRange(
            position=sys.maxsize if origin in self.lost_origins else position,
            is_whole=not starts_later and (int(state["first_seq"]) <= 1 or not has_limits),
        )

    def _may_have_expired(self) -> bool:
        """Whether it has a `max_age`, and is older than that."""
        max_age = self.limit(MAX_AGE) / SECOND_NS
        return max_age > 0 and to_unix_seconds(self.info["created"]) + max_age < self.read_clock()

    def read_clock(self) -> float:
        """What the servers' clock says now, in seconds since 1970."""
        return time.time() + self._ahead

    @property
    def lost_origins(self) -> set[str]:
        """Write streams of dead regions, which it sources no more."""
        ends = parse_positions(self.info["config"].get("metadata") or {}, UNTIL_KEY)
        return ends.keys() - {source.get("name") for source in self.info["config"].get("sources") or ()}

    @property
    def has_sources(self) -> bool:
        """Whether it sources; a mirror keeps messages as they are."""
        return bool(self.info["config"].get("sources"))

    @property
    def holds_counters(self) -> bool:
        """Whether it holds counters: each message is the sum of all before it."""
        return bool(self.info["config"].get("allow_msg_counter"))


def find_source(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The source *name* in *holder*, a configuration or what servers say of a stream; empty if there is none."""
    return next((source for source in holder.get("sources") or () if source.get("name") == name), {})


def parse_definition(source: dict[str, Any]) -> tuple[str, str]:
    """A *source*'s filters and destinations, as servers write them."""
    transforms = source.get("subject_transforms") or ()
    if not transforms:
        return str(source.get("filter_subject") or ">"), ">"
    return (
        "\f".join(str(transform.get("src") or ">") for transform in transforms),
        "\f".join(str(transform.get("dest") or ">") for transform in transforms),
    )


async def read_provenances(
    connection: ReconnectingConnection, stream: str, from_seq: int, tick: Tick
) -> AsyncIterator[tuple[StoredMessage, Provenance | None]]:
    """Headers of the messages of *stream* from *from_seq* on, up to those that its leader has now."""
    last = int((await JetStreamAdmin(connection).info(stream))["state"]["last_seq"])
    done, total = 0, max(0, last - from_seq + 1)
    messages = read_through(connection, stream, first=from_seq, last=last, headers_only=True, patience=TIMEOUT)
    async for message in messages:
        yield message, parse_provenance(message.headers)
        done += 1
        if done % _TICK_MESSAGES == 0:
            tick(done, total)
    tick(done, done)


async def list_sequences(connection: ReconnectingConnection, stream: str, tick: Tick) -> tuple[SequenceSet, int]:
    """The sequences that *stream* holds itself, and its last one: by arithmetic where few are deleted, else by reading it."""
    state = (await JetStreamAdmin(connection).info(stream, timeout=TIMEOUT))["state"]
    subject = naming.api_subject("STREAM.INFO", stream)
    with convert_malformed_errors(subject):
        if not state["messages"]:
            return SequenceSet(), int(state["last_seq"])
        if int(state.get("num_deleted") or 0) > _MAX_LISTED:
            sequences = SequenceSet()
            async for message, _ in read_provenances(connection, stream, int(state["first_seq"]), tick):
                sequences.add(message.seq)
            return sequences, int(state["last_seq"])
        if state.get("num_deleted"):
            state = (await ask_api(connection, subject, {"deleted_details": True}, timeout=TIMEOUT))["state"]
        deleted = SequenceSet((int(seq), int(seq)) for seq in state.get("deleted") or ())
        last = int(state["last_seq"])
        return SequenceSet([(int(state["first_seq"]), last)]) - deleted, last


def is_missing(scan: Scan, stream: VirtualStream, message: DirectMessage, subject: str) -> bool:
    """Whether clients miss *message*: no filler, no canary, and not too old for the stream of *scan*."""
    if FILLER_HEADER.lower() in map(str.lower, message.headers):
        return False
    if subject in naming.list_canary_subjects(stream):
        return False
    max_age = scan.limit(MAX_AGE) / SECOND_NS
    return not max_age or to_unix_seconds(message.stored_at) >= scan.read_clock() - max_age


class Fetcher:
    """Fetches messages of *stream* by origin and sequence."""

    def __init__(
        self, topology: Topology, stream: VirtualStream, connections: Mapping[str, ReconnectingConnection], tick: Tick
    ) -> None:
        self.topology = topology
        self.stream = stream
        self.connections = {
            part.name: choose_connection_to(connections, part.place) for part in physical_streams(stream)
        }
        """By the physical stream that is read."""
        self.tick = tick

    async def fetch(
        self, origin: PhysicalStream, holder: str, seqs: SequenceSet
    ) -> AsyncIterator[tuple[int, DirectMessage]]:
        """The messages *seqs* of *origin*, ascending, from *holder*, with the subjects that *origin* has."""
        positions: dict[int, int] = {}
        if holder != origin.name:
            async for seq, message in self.read_headers(origin.name, holder):
                if seq in seqs:
                    positions.setdefault(seq, message.seq)
        remaining, done = iter(seqs), 0
        while block := list(islice(remaining, _MAX_PARALLEL_READS)):
            if holder != origin.name:
                block = [seq for seq in block if seq in positions]
            requests = (self._get_message(origin, holder, positions.get(seq, seq)) for seq in block)
            for seq, fetched in zip(block, await asyncio.gather(*requests), strict=True):
                if fetched is not None:
                    done += 1
                    self.tick(done, len(seqs))
                    yield seq, fetched

    async def _get_message(self, origin: PhysicalStream, holder: str, at: int) -> DirectMessage | None:
        message = await direct.get_by_seq_from_leader(self.connections[holder], holder, at, timeout=TIMEOUT)
        if message is None or holder == origin.name:
            return message
        subject = physical.stored_subject(self.topology.naming, self.stream, origin.place, message.subject)
        return replace(message, subject=subject)

    async def read_headers(self, origin: str, holder: str) -> AsyncGenerator[tuple[int, StoredMessage], None]:
        """All that *holder* has of *origin*, without contents, each with its sequence there."""
        async for message, provenance in read_provenances(self.connections[holder], holder, 1, self.tick):
            if holder == origin:
                yield message.seq, message
            elif provenance is not None and provenance.origin == origin:
                yield provenance.seq, message
