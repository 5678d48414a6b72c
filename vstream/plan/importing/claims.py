"""Which virtual stream, role and place a stream on the servers stands for, by its marks, or else by its name and what it takes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.plan.importing.found import Leftover
from vstream.topology.model import Role
from vstream.topology.stream_config import REGION_KEY, ROLE_KEY, STREAM_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.topology.stream_config import ObservedStream

_NAMED = (Role.WRITE, Role.READ, Role.ORDER)
"""Roles that are part of a physical stream's name. An origin is called like its virtual stream; an ordering stream can be."""
AT_ITS_CLUSTER = ""
"""The place of an unmarked stream that is called so: nothing but its cluster says where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedStream:
    """One physical stream of a virtual one. *place* is a region, the stretch cluster, or `AT_ITS_CLUSTER`."""

    virtual: str
    role: Role
    place: str
    stream: ObservedStream


def match_streams(
    streams: Mapping[str, ObservedStream], owner: str | None
) -> tuple[list[MatchedStream], list[Leftover]]:
    """
    The parts that virtual streams have among *streams*, and what is marked in a way that cannot be.

    Those marked by the topology *owner* are what they say; those that no topology has marked are told by how they are
    wired. Streams of other topologies are nobody's.
    """
    parts: list[MatchedStream] = []
    leftovers: list[Leftover] = []
    others = Counter[str]()
    for name, one in sorted(streams.items()):
        if one.config.owner is None:
            continue
        if one.config.owner != owner:
            others[one.config.owner] += 1
        elif part := _marked(one):
            parts.append(part)
        else:
            what = "has vstream's marks, and is not called as they say"
            leftovers.append(Leftover(kind="stream", name=name, what=what))
    for other, number in sorted(others.items()):
        do = f"`--name {other}` imports that one"
        leftovers.append(Leftover(kind="topology", name=other, what=f"owns {number:,} streams", do=do))
    taken = {part.stream.config.name for part in parts}
    free = {name: one for name, one in streams.items() if one.config.owner is None and name not in taken}
    parts.extend(_wired(free))
    return parts, leftovers


def stream_name(virtual: str, role: Role, place: str) -> str:
    """What a physical stream of *virtual* is called. An ordering stream can be called like the virtual one instead."""
    return virtual if role is Role.ORIGIN else f"{virtual}-{role.value}-{place}"


def _marked(one: ObservedStream) -> MatchedStream | None:
    marks = one.config.metadata
    role = next((role for role in Role if role.value == marks.get(ROLE_KEY)), None)
    virtual, place = marks.get(STREAM_KEY), marks.get(REGION_KEY)
    if role is None or not virtual or not place:
        return None
    names = {stream_name(virtual, role, place), *([virtual] if role is Role.ORDER else [])}
    if one.config.name not in names:
        return None
    return MatchedStream(virtual=virtual, role=role, place=place, stream=one)


def _wired(streams: Mapping[str, ObservedStream]) -> Iterator[MatchedStream]:
    """What is called and wired as physical streams are: a name alone says nothing."""
    readers = [part for name, one in sorted(streams.items()) if (part := _reader(name, one))]
    mirrored = {part.stream.config.mirror_name for part in readers}
    readers += [
        MatchedStream(virtual=name, role=Role.ORDER, place=AT_ITS_CLUSTER, stream=one)
        for name, one in sorted(streams.items())
        if name in mirrored
        and any(source.startswith(f"{name}-{Role.WRITE.value}-") for source in one.config.source_names)
    ]
    yield from readers
    sourced = {source for part in readers for source in part.stream.config.source_names}
    for name, one in sorted(streams.items()):
        if one.config.source_names or one.config.mirror_name:
            continue
        split = _split(name, Role.WRITE)
        if split and name in sourced:
            yield MatchedStream(virtual=split[0], role=Role.WRITE, place=split[1], stream=one)
        elif name in mirrored:
            yield MatchedStream(virtual=name, role=Role.ORIGIN, place=AT_ITS_CLUSTER, stream=one)


def _reader(name: str, one: ObservedStream) -> MatchedStream | None:
    """The stream called *name* if it is one that is read from, or decides on an order."""
    config = one.config
    for role in (Role.READ, Role.ORDER):
        split = _split(name, role)
        if split is None:
            continue
        virtual, place = split
        write, order = f"{virtual}-{Role.WRITE.value}-", f"{virtual}-{Role.ORDER.value}-"
        mirror = config.mirror_name or ""
        is_fed = any(source.startswith(write) for source in config.source_names)
        if is_fed or (role is Role.READ and (mirror == virtual or mirror.startswith(order))):
            return MatchedStream(virtual=virtual, role=role, place=place, stream=one)
    return None


def _split(name: str, role: Role) -> tuple[str, str] | None:
    """The virtual stream and the place in *name*: `foo`, `west` of `foo-write-west`."""
    virtual, separator, place = name.partition(f"-{role.value}-")
    return (virtual, place) if separator and virtual and place else None
