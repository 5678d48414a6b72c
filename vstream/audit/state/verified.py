"""
The messages of a virtual stream that an audit with a state need not judge again.

A message is *verified* if an audit found it right: every read stream has it once, unchanged and in order, and nothing of
its virtual stream was wrong. All messages before it of its origin are verified, too, and in every read stream, all that
was still on its way stands behind it. So what is not verified is judged alone (`incremental`), and verified messages are only
counted. Whatever contradicts that is a reason to judge the whole virtual stream again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from vstream.audit.connector.values import ReadSnapshot
from vstream.audit.tables.stream_settings import find_first_kept
from vstream.topology.model import Role
from vstream.topology.stream_config import header_name
from vstream.topology.stream_limits import OLDEST_FIRST
from vstream.value_class import value_class

_HARMLESS: Final = OLDEST_FIRST | {"duplicate_window", "first_seq"}
"""Limits that remove no messages but the oldest ones."""
Key = tuple[str, str]  # a virtual stream, and a stream of it


class VerifiedRoute(NamedTuple):
    """The verified messages of *origin* in a stream: *messages* of them are stored there, sequences *first* to *until*."""

    origin: str
    until: int
    messages: int
    first: int | None


NO_ROUTE: Final = VerifiedRoute("", 0, 0, None)


@value_class
class VerifiedStream:
    """The verified messages of one stream."""

    stream: str
    last_seq: int
    """All its messages up to this sequence are verified. So are some up to *read_to*, of a reader."""
    read_to: int
    """The last sequence that had been read when they were verified."""
    routes: tuple[VerifiedRoute, ...]

    @property
    def is_origin(self) -> bool:
        """Whether clients publish to it."""
        return [route.origin for route in self.routes] == [self.stream]

    @property
    def messages(self) -> int:
        """The number of verified messages that are stored."""
        return sum(route.messages for route in self.routes)


@value_class
class VerifiedVirtual:
    """The verified messages of a virtual stream."""

    virtual: str
    until_ns: int
    """When the last of them was stored anywhere, in nanoseconds since 1970 by servers' clocks."""
    streams: tuple[VerifiedStream, ...]


class RemovedMessages(NamedTuple):
    """Kept messages that a stream has removed since: how many by the name in their header, and the time of the last."""

    counts: Mapping[str | None, int]
    last_ns: int

    @property
    def number(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


@dataclass(frozen=True)
class VerifiedPart:
    """The verified messages of *virtuals*: those of other virtual streams are all judged."""

    virtuals: tuple[VerifiedVirtual, ...] = ()

    @cached_property
    def streams(self) -> Mapping[Key, VerifiedStream]:
        """By virtual stream and stream."""
        return {(item.virtual, stream.stream): stream for item in self.virtuals for stream in item.streams}

    @cached_property
    def routes(self) -> Mapping[tuple[str, str, str], VerifiedRoute]:
        """By virtual stream, origin and stream."""
        routes: dict[tuple[str, str, str], VerifiedRoute] = {}
        for (virtual, name), stream in self.streams.items():
            routes |= {(virtual, route.origin, name): route for route in stream.routes}
        return routes

    @property
    def messages(self) -> int:
        """The number of stored messages that are not judged again."""
        return sum(stream.messages for stream in self.streams.values())

    def count(self, virtual: str, stream: str) -> int:
        """The number of messages of *stream* that are stored and not judged again."""
        verified = self.streams.get((virtual, stream))
        return verified.messages if verified is not None else 0

    @cached_property
    def complete_ends(self) -> Mapping[Key, int]:
        """The last verified sequences of streams that have all verified messages: of origins, if these have all."""
        streams = {}
        for item in self.virtuals:
            firsts = {stream.stream: stream.routes[0].first for stream in item.streams if stream.is_origin}
            are_enough = True
            for route in (route for stream in item.streams for route in stream.routes):
                first = firsts[route.origin]
                are_enough &= route.first is None or (first is not None and first <= route.first)
            for stream in item.streams:
                if stream.is_origin or not are_enough:
                    streams[item.virtual, stream.stream] = stream.last_seq
        return streams

    def without(self, names: Collection[str]) -> VerifiedPart:
        """Without the virtual streams *names*."""
        return VerifiedPart(tuple(item for item in self.virtuals if item.virtual not in names))

    def narrow(self, row: Any, *, is_origin: bool) -> Any:
        """*row* of `schema.STREAMS` as of a stream without its verified messages, but with the same positions."""
        verified = self.streams.get((row.virtual, row.stream))
        if verified is None or row.error is not None:
            return row
        if is_origin:
            return replace(row, first_seq=max(row.first_seq, verified.last_seq + 1))
        if not verified.messages:
            return row
        # The oldest ones are removed first, and these are still there.
        return replace(row, limits={name: limit for name, limit in row.limits.items() if name not in OLDEST_FIRST})


NOTHING_VERIFIED: Final = VerifiedPart()


def carry_over(
    verified: Iterable[VerifiedVirtual],
    snapshots: Iterable[ReadSnapshot],
    continued: Collection[Key],
    removed: Mapping[Key, RemovedMessages],
) -> Iterator[VerifiedVirtual]:
    """
    Those of *verified* that hold for streams as *snapshots* have them, less the messages that limits have *removed* since.

    *continued* are the streams that are the same as before, with messages added or removed at an end.
    """
    by_virtual: dict[str, dict[str, ReadSnapshot]] = defaultdict(dict)
    for snapshot in snapshots:
        if snapshot.stream_ref.role != Role.CATALOG.value:
            by_virtual[snapshot.stream_ref.virtual][snapshot.stream_ref.stream] = snapshot
    for item in verified:
        group, streams = by_virtual[item.virtual], []
        if group.keys() != {stream.stream for stream in item.streams} or not all(map(can_verify, group.values())):
            continue
        for stream in item.streams:
            key = (item.virtual, stream.stream)
            remaining = _without_removed(stream, group[stream.stream], removed.get(key))
            if remaining is not None and key in continued:
                streams.append(remaining)
        if len(streams) == len(item.streams):
            yield replace(item, streams=tuple(streams))


def can_verify(stream: Any) -> bool:
    """Whether nothing but the oldest messages can go from *stream*, a snapshot or a row of `schema.STREAMS`."""
    is_whole = stream.error is None and not stream.num_deleted
    return is_whole and stream.limits is not None and _HARMLESS.issuperset(stream.limits)


def _without_removed(
    stream: VerifiedStream, snapshot: ReadSnapshot, removed: RemovedMessages | None
) -> VerifiedStream | None:
    """*stream* without the messages *removed* from it; None if its limits do not explain it, or unverified ones are gone."""
    if snapshot.first_seq > stream.last_seq + 1 and stream.messages:
        return None
    if removed is None or not removed.counts:
        return stream
    limits = OLDEST_FIRST & (snapshot.limits or {}).keys()
    is_young = limits == {"max_age"} and removed.last_ns + (snapshot.limits or {})["max_age"] > snapshot.snapshot_ns
    first_kept = find_first_kept(snapshot)
    if not limits or is_young or (first_kept is not None and first_kept < snapshot.first_seq):
        return None
    counts = _count_by_origin(removed.counts, snapshot, [route.origin for route in stream.routes])
    if counts is None:
        return None
    routes = []
    for route in stream.routes:
        gone = counts.get(route.origin, 0)
        if gone > route.messages:
            return None
        left = route.messages - gone
        routes.append(route._replace(messages=left, first=route.until - left + 1 if left else None))
    return replace(stream, routes=tuple(routes))


def _count_by_origin(
    counts: Mapping[str | None, int], snapshot: ReadSnapshot, origins: Sequence[str]
) -> Mapping[str, int] | None:
    """*counts* by the name in headers, by origin; None if a name is not that of one of the *origins*."""
    names = {header_name(origin, snapshot.stream_ref.stream): origin for origin in origins}
    itself = snapshot.mirror or snapshot.stream_ref.stream
    result: dict[str, int] = defaultdict(int)
    for header, count in counts.items():
        # Servers add what a consumer was made for, and a hash to a stream of another domain.
        name = header.partition(":C=")[0] if header is not None else itself
        origin = names.get(name) or names.get(name.partition(":")[0])
        if origin is None:
            return None
        result[origin] += count
    return result
