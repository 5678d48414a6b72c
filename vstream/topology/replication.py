"""The physical streams and consumers of a topology, and which streams take from which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field

from vstream.syntax.document import Json
from vstream.topology import physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.value_class import value_class


@value_class
class PhysicalStream:
    """A physical stream: its name, and the region, or the stretch cluster, that it lives in."""

    virtual: str
    name: str
    place: str
    role: Role
    fields: Mapping[str, Json] = field(default_factory=dict, compare=False)
    """As the topology has them."""


@value_class
class ReplicationPair:
    """One physical stream that takes everything from another."""

    virtual: str
    origin: PhysicalStream
    reader: PhysicalStream


def physical_streams(stream: VirtualStream) -> tuple[PhysicalStream, ...]:
    """
    The physical streams of *stream*, place by place: the regions in order, then the stretch cluster.

    It remembers them: a status asks for them six times.
    """
    remembered: dict[str, tuple[PhysicalStream, ...]] = vars(stream)
    if "physical_streams" not in remembered:
        remembered["physical_streams"] = tuple(_list_parts(stream))
    return remembered["physical_streams"]


def _list_parts(stream: VirtualStream) -> Iterator[PhysicalStream]:
    for place in dict.fromkeys((*stream.regions, *stream.origin_settings, *stream.order_settings)):
        for role, settings in stream.settings_by_role.items():
            if place in settings:
                name = physical.physical_name(stream, role, place)
                yield PhysicalStream(virtual=stream.name, name=name, place=place, role=role, fields=settings[place])


def holds_all_messages(stream: VirtualStream, name: str) -> bool:
    """Whether *name* is a physical stream of *stream* that holds all of its messages."""
    return any(name == part.name for part in physical_streams(stream) if part.role is not Role.WRITE)


@value_class
class Durable:
    """A consumer that the topology has: the physical stream that it is on, its name, and its region."""

    virtual: str
    stream: str
    name: str
    region: str
    fields: Mapping[str, object] = field(default_factory=dict, compare=False)
    """As the topology has them."""


def list_durables(topology: Topology) -> tuple[Durable, ...]:
    """The consumers of all virtual streams, region by region."""
    consumers = []
    for stream in topology.streams:
        for consumer in stream.consumers:
            for region in consumer.regions:
                consumers.append(
                    Durable(
                        virtual=stream.name,
                        stream=physical.read_stream_in(stream, region),
                        name=consumer.name,
                        region=region,
                        fields=consumer.fields,
                    )
                )
    return tuple(consumers)


def list_physical_streams(topology: Topology) -> tuple[PhysicalStream, ...]:
    """The physical streams of all virtual streams."""
    return tuple(part for stream in topology.streams for part in physical_streams(stream))


def index_physical_streams(topology: Topology) -> dict[str, PhysicalStream]:
    """The same by name."""
    return {part.name: part for part in list_physical_streams(topology)}


def sources_of(stream: VirtualStream, role: Role) -> tuple[PhysicalStream, ...]:
    """The physical streams of *stream* that those of *role* take from: all write streams, or the one that they mirror."""
    if role not in {Role.READ, Role.ORDER}:
        return ()
    mirrored = physical.mirrored_stream(stream) if role is Role.READ else None
    streams = physical_streams(stream)
    if mirrored is not None:
        return tuple(part for part in streams if part.name == mirrored)
    return tuple(part for part in streams if part.role is Role.WRITE)


def replication_pairs(stream: VirtualStream) -> Iterator[ReplicationPair]:
    """Every pair of physical streams of which one takes from the other."""
    for reader in physical_streams(stream):
        for origin in sources_of(stream, reader.role):
            yield ReplicationPair(virtual=stream.name, origin=origin, reader=reader)
