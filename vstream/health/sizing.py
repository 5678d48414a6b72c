"""What a topology needs at stated rates: storage, bandwidth between regions, and the longest outage without loss."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vstream.health.snapshot import NS
from vstream.subjects.resolve import publish_cost_us
from vstream.syntax.json_types import Json
from vstream.topology import physical
from vstream.topology.model import Consistency, PhysicalPart, Role, StreamSettings, Topology, VirtualStream
from vstream.topology.profiles import profile_of

RECORD = 30
"""Bytes that a server stores with each message on disk (server/filestore.go: the record's header and checksum)."""
SUBJECT = 40
"""Assumed bytes of a subject."""
ORIGIN_HEADER = 120
"""Bytes of the header by which a sourced message names its origin."""
PROTOCOL = 60
"""Bytes that a message takes on the wire besides subject, headers and payload."""
DAY = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What clients publish in each region: messages per second, and bytes of each."""

    rate: float
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
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
            "bytes_per_replica": _whole(self.bytes),
            "kept_s": _whole(self.retention),
            "at_most": self.is_at_most,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
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
            "survivable_outage_s": None if self.outage is None else _whole(self.outage),
            "parts": [part.as_dict() for part in self.parts],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceSize:
    """The servers of one region, or of the stretch cluster, together."""

    place: str
    needs: float
    needs_at_least: float
    """What of that is certain, whatever `max_msgs_per_subject` removes."""
    per_day: float
    per_day_at_least: float
    has: int

    @property
    def fits(self) -> bool | None:
        """Whether it has room for everything that is limited; None where `max_msgs_per_subject` decides."""
        return self.needs <= self.has or (False if self.needs_at_least > self.has else None)

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "place": self.place,
            "bytes": _whole(self.needs),
            "bytes_at_least": _whole(self.needs_at_least),
            "bytes_per_day_without_limit": round(self.per_day),
            "bytes_per_day_at_least": round(self.per_day_at_least),
            "bytes_available": self.has,
            "fits": self.fits,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizing:
    """The whole topology."""

    topology: str
    streams: tuple[StreamSize, ...]
    places: tuple[PlaceSize, ...]
    rules: int
    rule_cost: float
    """Seconds that a server needs to find the mapping rule of each message of a client, as in `vstream map`."""

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
            "places": [place.as_dict() for place in self.places],
            "streams": [stream.as_dict() for stream in self.streams],
        }


def estimate_size(topology: Topology, loads: Mapping[str, Load]) -> Sizing:
    """What *topology* needs at *loads*, by virtual stream."""
    streams = tuple(_stream(stream, loads[stream.name]) for stream in topology.streams)
    rules = len(profile_of(topology).mapping_set(topology))
    return Sizing(
        topology=topology.name,
        streams=streams,
        places=tuple(_places(topology, streams)),
        rules=rules,
        rule_cost=publish_cost_us(rules) / 1e6,
    )


def _stream(stream: VirtualStream, load: Load) -> StreamSize:
    parts = []
    for part in stream.physical:
        taken_rate = load.rate * (1 if part.role is Role.WRITE else len(stream.regions))
        is_sourced = part.role is Role.ORDER or (part.role is Role.READ and stream.consistency is not Consistency.HOMED)
        stored = load.size + RECORD + SUBJECT + (ORIGIN_HEADER if is_sourced and stream.write else 0)
        retention = _retention(part, taken_rate, stored)
        parts.append(
            PartSize(
                stream=physical.physical_name(stream, part.role, part.place),
                place=part.place,
                role=part.role.value,
                replicas=find_limit(part.settings, "num_replicas") or 1,
                bytes=0.0 if not taken_rate else taken_rate * stored * retention,
                per_day=taken_rate * stored * DAY,
                retention=retention,
                is_at_most=find_limit(part.settings, "max_msgs_per_subject") is not None,
            )
        )
    writes = [part.retention for part in parts if part.role in {Role.WRITE.value, Role.ORIGIN.value}]
    return StreamSize(
        name=stream.name,
        load=load,
        parts=tuple(parts),
        crossing=_crossing(stream, load),
        outage=min(writes) if len(stream.regions) > 1 and writes else None,
    )


def _retention(part: PhysicalPart, rate: float, stored: int) -> float:
    """Seconds until the first of a stream's limits removes a message."""
    limits = [math.inf]
    if age := find_limit(part.settings, "max_age"):
        limits.append(age / NS)
    if rate:
        if size := find_limit(part.settings, "max_bytes"):
            limits.append(size / (rate * stored))
        if number := find_limit(part.settings, "max_msgs"):
            limits.append(number / rate)
    return min(limits)


def find_limit(settings: StreamSettings, name: str) -> int | None:
    """The setting *name* of the JetStream API; None if it limits nothing."""
    value = settings.fields.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _crossing(stream: VirtualStream, load: Load) -> float:
    """Bits per second that pass between regions: publishes to elsewhere, replication, sources and mirrors."""
    regions = len(stream.regions)
    bits = 8 * load.rate * (load.size + SUBJECT + PROTOCOL)
    everything = bits * regions
    match stream.consistency:
        case Consistency.VIRTUAL:
            return everything * (regions - 1)
        case Consistency.HOMED:
            return bits * (regions - 1) + everything * (regions - 1)
        case Consistency.ORDERED | Consistency.STRETCH:
            central = stream.order or stream.origin
            copies = (
                max((int(str(settings.fields.get("num_replicas") or 1)) for settings in central.values()), default=1)
                - 1
            )
            return bits * (regions - 1) + everything * copies + everything * (regions - 1)


def _places(topology: Topology, streams: tuple[StreamSize, ...]) -> list[PlaceSize]:
    by_place: dict[str, list[PartSize]] = {}
    for stream in streams:
        for part in stream.parts:
            by_place.setdefault(part.place, []).append(part)
    places = []
    for place, parts in by_place.items():
        seats = topology.servers_at(place)
        room = topology.stretch.jetstream if topology.stretch and place == topology.stretch.cluster else None
        limits = room or topology.region(place).jetstream
        certain = [part for part in parts if not part.is_at_most]
        places.append(
            PlaceSize(
                place=place,
                needs=_sum_full(parts),
                needs_at_least=_sum_full(certain),
                per_day=_sum_per_day(parts),
                per_day_at_least=_sum_per_day(certain),
                has=limits.max_file * len(seats),
            )
        )
    return places


def _sum_full(parts: Sequence[PartSize]) -> float:
    return sum(part.bytes * part.replicas for part in parts if math.isfinite(part.bytes))


def _sum_per_day(parts: Sequence[PartSize]) -> float:
    return sum(part.per_day * part.replicas for part in parts if not math.isfinite(part.bytes))


def _whole(number: float) -> int | None:
    return round(number) if math.isfinite(number) else None
