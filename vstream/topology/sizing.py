"""What a topology needs at stated rates: storage, bandwidth between regions, and the longest outage without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from vstream.subjects.resolve import publish_cost_us
from vstream.syntax.document import Json
from vstream.timing import SECOND_NS
from vstream.topology.model import Consistency, Role, Topology, VirtualStream
from vstream.topology.profiles import profile_of
from vstream.topology.replication import physical_streams, replication_pairs
from vstream.topology.stream_limits import MAX_AGE, MAX_BYTES, MAX_MESSAGES, PER_SUBJECT, read_limit
from vstream.value_class import value_class

RECORD_BYTES = 30
"""Bytes that a server stores with each message on disk (server/filestore.go: the record's header and checksum)."""
SUBJECT_BYTES = 40
HEADER_BYTES = 120
"""Bytes of the header by which a sourced message names its origin."""
PROTOCOL_BYTES = 120
"""Bytes of a message between regions besides its subject and payload: 111 to 142 were counted, by profile."""
DAY_SECONDS = 86_400
IDLE_SOURCE_CPU = 50e-6
"""CPU seconds a second of servers for each source, which is heard every second: `scripts/bench --streams` measures it."""


@value_class
class Load:
    """What clients publish in each region: messages per second, and bytes of each."""

    rate: float
    size: int


@value_class
class RetentionLimits:
    """How long a physical stream keeps messages: seconds, and how many; infinite where nothing removes them."""

    age: float
    messages: float
    replicas: int


@value_class
class PartSize:
    """One physical stream. *bytes* are those of one replica when it is full, infinite where nothing limits it."""

    stream: str
    place: str
    role: str
    replicas: int
    bytes: float
    per_day: float
    retention: float
    """Seconds from a message's arrival to its removal; infinite where nothing removes it."""
    is_at_most: bool
    """Whether `max_msgs_per_subject` may keep less: how many subjects there are is not known."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "name": self.stream,
            "place": self.place,
            "role": self.role,
            "replicas": self.replicas,
            "bytes_per_replica": _round_unless_infinite(self.bytes),
            "kept_s": _round_unless_infinite(self.retention),
            "at_most": self.is_at_most,
        }


@value_class
class StreamSize:
    """One virtual stream."""

    name: str
    load: Load
    parts: tuple[PartSize, ...]
    crossing: float
    """Bits per second between regions, all links together."""
    outage: float | None
    """Seconds that a region may be away without loss; infinite for any; None for a stream without data in transit."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.name,
            "rate_per_region": self.load.rate,
            "message_bytes": self.load.size,
            "crossing_bits_per_second": round(self.crossing),
            "survivable_outage_s": None if self.outage is None else _round_unless_infinite(self.outage),
            "parts": [part.as_dict() for part in self.parts],
        }


@dataclass(frozen=True, slots=True)
class PlaceSize:
    """The servers of one region, or of the stretch cluster, together. JSON has the same names."""

    place: str
    bytes: int
    bytes_at_least: int
    """What of that is certain, whatever `max_msgs_per_subject` removes."""
    bytes_per_day_without_limit: int
    bytes_per_day_at_least: int
    bytes_available: int
    fits: bool | None
    """Whether it has room for everything that is limited; None where `max_msgs_per_subject` decides."""


@value_class
class Sizing:
    """The whole topology."""

    topology: str
    streams: tuple[StreamSize, ...]
    places: tuple[PlaceSize, ...]
    rules: int
    rule_cost: float
    """Seconds that a server needs to find the mapping rule of each message of a client, as in `vstream map`."""
    sources: int
    """Streams that streams take from, in all regions together."""

    @property
    def idle_cores(self) -> float:
        """CPU seconds a second of all servers together while nobody publishes."""
        return self.sources * IDLE_SOURCE_CPU

    @property
    def fits(self) -> bool | None:
        """Whether every place has room; None where that is not known."""
        fits = [place.fits for place in self.places]
        return next((answer for answer in (False, None) if answer in fits), True)

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it; null for what has no limit."""
        return {
            "topology": self.topology,
            "fits": self.fits,
            "mapping_rules": self.rules,
            "mapping_cost_us_per_message": round(self.rule_cost * 1e6, 3),
            "crossing_bits_per_second": round(sum(stream.crossing for stream in self.streams)),
            "sources": self.sources,
            "idle_cores": round(self.idle_cores, 3),
            "places": [asdict(place) for place in self.places],
            "streams": [stream.as_dict() for stream in self.streams],
        }


def estimate_size(topology: Topology, loads: Mapping[str, Load]) -> Sizing:
    """What *topology* needs at *loads*, by virtual stream."""
    streams = tuple(_size_stream(stream, loads[stream.name]) for stream in topology.streams)
    rules = len(profile_of(topology).list_all_mapping_rules(topology))
    return Sizing(
        topology=topology.name,
        streams=streams,
        places=tuple(_size_places(topology, streams)),
        rules=rules,
        rule_cost=publish_cost_us(rules) / 1e6,
        sources=sum(1 for stream in topology.streams for _ in replication_pairs(stream)),
    )


def _size_stream(stream: VirtualStream, load: Load) -> StreamSize:
    parts = []
    for part in physical_streams(stream):
        taken_rate = load.rate * (1 if part.role is Role.WRITE else len(stream.regions))
        is_sourced = part.role is Role.ORDER or (part.role is Role.READ and stream.consistency is not Consistency.HOMED)
        stored = (
            load.size + RECORD_BYTES + SUBJECT_BYTES + (HEADER_BYTES if is_sourced and stream.write_settings else 0)
        )
        keeping = find_retention_limits(part.fields, stored)
        retention = min(keeping.age, keeping.messages / taken_rate if taken_rate else math.inf)
        parts.append(
            PartSize(
                stream=part.name,
                place=part.place,
                role=part.role.value,
                replicas=keeping.replicas,
                bytes=0.0 if not taken_rate else taken_rate * stored * retention,
                per_day=taken_rate * stored * DAY_SECONDS,
                retention=retention,
                is_at_most=read_limit(part.fields, PER_SUBJECT) > 0,
            )
        )
    writes = [part.retention for part in parts if part.role in {Role.WRITE.value, Role.ORIGIN.value}]
    return StreamSize(
        name=stream.name,
        load=load,
        parts=tuple(parts),
        crossing=_estimate_crossing(stream, load),
        outage=min(writes) if len(stream.regions) > 1 and writes else None,
    )


def find_retention_limits(fields: Mapping[str, Json], stored: int) -> RetentionLimits:
    """What a stream with *fields* keeps, of messages of *stored* bytes."""
    size, number, age = (read_limit(fields, name) or math.inf for name in (MAX_BYTES, MAX_MESSAGES, MAX_AGE))
    replicas = read_limit(fields, "num_replicas") or 1
    return RetentionLimits(age=age / SECOND_NS, messages=min(size / stored, number), replicas=replicas)


def _estimate_crossing(stream: VirtualStream, load: Load) -> float:
    """Bits per second that pass between regions: publishes to elsewhere, replication, sources and mirrors."""
    regions = len(stream.regions)
    bits = 8 * load.rate * (load.size + SUBJECT_BYTES + PROTOCOL_BYTES)
    everything = bits * regions
    published = 0.0 if stream.consistency is Consistency.VIRTUAL else bits * (regions - 1)
    followers = 0
    if stream.consistency in {Consistency.ORDERED, Consistency.STRETCH}:
        central = stream.order_settings or stream.origin_settings
        followers = max((read_limit(settings, "num_replicas") or 1 for settings in central.values()), default=1) - 1
    return published + everything * (followers + regions - 1)


def _size_places(topology: Topology, streams: tuple[StreamSize, ...]) -> list[PlaceSize]:
    by_place: dict[str, list[PartSize]] = {}
    for stream in streams:
        for part in stream.parts:
            by_place.setdefault(part.place, []).append(part)
    places = []
    for place, parts in by_place.items():
        room = topology.stretch.jetstream if topology.stretch and place == topology.stretch.cluster else None
        limits = room or topology.region(place).jetstream
        has = limits.max_file * len(topology.servers_at(place))
        full, growing = [], []
        for group in (parts, [part for part in parts if not part.is_at_most]):
            full.append(round(sum(part.bytes * part.replicas for part in group if math.isfinite(part.bytes))))
            growing.append(round(sum(part.per_day * part.replicas for part in group if math.isinf(part.bytes))))
        fits = full[0] <= has or (False if full[1] > has else None)
        places.append(PlaceSize(place, full[0], full[1], growing[0], growing[1], has, fits))
    return places


def _round_unless_infinite(number: float) -> int | None:
    return round(number) if math.isfinite(number) else None
