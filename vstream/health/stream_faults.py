"""What keeps a physical stream from storing what its topology sends it, by its own configuration and state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.health.units import list_names
from vstream.subjects.algebra import is_subset
from vstream.topology import physical
from vstream.topology.model import Role
from vstream.topology.replication import physical_streams
from vstream.topology.stream_config import StreamConfig

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from vstream.health.snapshot import Snapshot, StreamSnapshot
    from vstream.topology.model import Topology, VirtualStream
    from vstream.topology.replication import PhysicalStream

_LIMITS = ("max_msgs", "max_bytes")
_TAKES_PUBLISHES = frozenset({Role.WRITE, Role.ORIGIN})


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFault:
    """Why *stream* refuses messages, or stores them where nobody looks for them."""

    stream: str
    evidence: str


def find_stream_faults(topology: Topology, snapshot: Snapshot) -> Iterator[StreamFault]:
    """Each fault that a stream's own configuration shows; none of streams whose configuration is not known."""
    for stream in topology.streams:
        for part in physical_streams(stream):
            observed = snapshot.streams.get(part.name)
            if observed is not None and observed.config is not None:
                for evidence in _evidence(topology, stream, part, observed, observed.config):
                    yield StreamFault(stream=part.name, evidence=evidence)


def _evidence(
    topology: Topology,
    stream: VirtualStream,
    part: PhysicalStream,
    observed: StreamSnapshot,
    fields: Mapping[str, Any],
) -> Iterator[str]:
    config = StreamConfig(name=part.name, fields=fields)
    if fields.get("sealed"):
        yield "it is sealed: it stores nothing any more"
    if part.role in _TAKES_PUBLISHES:
        if fields.get("discard") == "new":
            yield from _full(observed, fields)
        expected = physical.write_subjects(topology, stream, part.place)
        absent = [
            subject for subject in expected if not any(is_subset(subject, listened) for listened in config.subjects)
        ]
        if absent:
            yield f"it does not take {list_names(absent)}"
    if config.subject_transform is not None:
        return  # another layout, which turns subjects back by itself (VD101)
    for source in config.sources:
        for origin in stream.regions:
            if source.stream == physical.physical_name(stream, Role.WRITE, origin):
                absent_pairs = {*physical.source_transforms(topology, stream, origin)} - {*source.transforms}
                if absent_pairs:
                    yield f"what it takes from `{source.stream}` gets other subjects, or is left out"


def _full(observed: StreamSnapshot, fields: Mapping[str, Any]) -> Iterator[str]:
    used = {"max_msgs": observed.messages, "max_bytes": observed.bytes}
    for limit in _LIMITS:
        most = fields.get(limit)
        if isinstance(most, int) and 0 < most <= used[limit]:
            yield f"it is full (`{limit}`), and refuses what is new (`discard: new`)"
