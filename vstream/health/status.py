"""What follows from what servers said: how far each pair is behind, for how long that is safe, and what is wrong."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vstream.health.report import (
    ConsumerStatus,
    PairState,
    PairStatus,
    Problem,
    RegionStatus,
    Share,
    Status,
    StreamStatus,
)
from vstream.health.snapshot import NS
from vstream.health.units import format_duration, list_names
from vstream.topology import physical
from vstream.topology.replication import ReplicationPair, all_physical_streams, durables, replication_pairs
from vstream.topology.versions import parse_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.health.snapshot import Lag, RegionSnapshot, Snapshot, SourceSnapshot, StreamSnapshot
    from vstream.topology.model import Topology, VirtualStream
    from vstream.topology.replication import PhysicalStream
    from vstream.topology.versions import Version

SILENT_AFTER = 5.0
"""Seconds. A source that works is heard every second, messages or not; servers before 2.11 count messages only."""
BEHIND_AFTER = 5.0
"""Seconds that a message may be on its way before its reader is called behind."""
_FULL = 0.98
"""A stream with so much of what it may hold drops its oldest messages."""
_SAYS_ALIVE: Version = (2, 11, 0)


def assess(topology: Topology, facts: Snapshot) -> Status:
    """The picture that *facts* give of *topology*."""
    physical = all_physical_streams(topology)
    outages = _outages(physical, facts)
    pairs = tuple(
        _pair(feed, facts, outages.get(feed.reader.place))
        for stream in topology.streams
        for feed in replication_pairs(stream)
    )
    regions = tuple(_region(topology, facts, region) for region in facts.regions)
    return Status(
        topology=topology.name,
        at=facts.at,
        took=facts.took,
        places=(*(one.name for one in topology.regions), *((topology.stretch.cluster,) if topology.stretch else ())),
        servers=facts.servers,
        meta_leader=_meta_leader(facts) if topology.hubs is None else None,
        has_one_meta_group=topology.hubs is None,
        regions=regions,
        streams=tuple(_lines(physical, facts)),
        pairs=pairs,
        problems=(*_problems(physical, facts, regions, pairs), *_consumer_problems(topology, facts)),
        consumers=tuple(_consumers(topology, facts)),
        beacons=facts.beacons,
    )


def _consumers(topology: Topology, facts: Snapshot) -> Iterator[ConsumerStatus]:
    for one in durables(topology):
        key = one.stream, one.name
        found = facts.consumers.get(key)
        yield ConsumerStatus(
            virtual=one.virtual,
            name=one.name,
            region=one.region,
            stream=one.stream,
            exists=found is not None if key in facts.consumers else False if one.stream in facts.absent else None,
            pending=found.pending if found else None,
            unacknowledged=found.unacknowledged if found else None,
            redelivered=found.redelivered if found else None,
            waiting=found.waiting if found else None,
            ack_floor=found.ack_floor if found else None,
        )


def _consumer_problems(topology: Topology, facts: Snapshot) -> Iterator[Problem]:
    """What is wrong with consumers of streams that are well."""
    led = [one for one in durables(topology) if (f := facts.streams.get(one.stream)) and f.leader is not None]
    absent = [f"{one.stream} > {one.name}" for one in led if facts.consumers.get((one.stream, one.name), "?") is None]
    silent = [f"{one.stream} > {one.name}" for one in led if (one.stream, one.name) not in facts.consumers]
    for about, some in (("consumers that do not exist", absent), ("consumers that do not answer", silent)):
        if some:
            yield Problem(about=f"{len(some):,} {about}", text=list_names(some))


def _meta_leader(facts: Snapshot) -> str | None:
    """Whom most servers take for it."""
    named = Counter(server.meta_leader for server in facts.servers if server.meta_leader)
    return max(sorted(named), key=lambda leader: named[leader], default=None)


def _lines(physical: Sequence[PhysicalStream], facts: Snapshot) -> Iterator[StreamStatus]:
    for part in physical:
        found = facts.streams.get(part.name)
        yield StreamStatus(
            virtual=part.virtual,
            name=part.name,
            place=part.place,
            role=part.role.value,
            leader=found.leader if found else None,
            current=found.current if found else 0,
            replicas=found.replicas if found else 0,
            messages=found.messages if found else None,
            bytes=found.bytes if found else None,
            last=found.last_seq if found else None,
        )


def _outages(physical: Sequence[PhysicalStream], facts: Snapshot) -> Mapping[str, float]:
    """
    For how many seconds each place has not been heard, where its streams do not answer now.

    Its own readers cannot say since when they lack messages. Those elsewhere know when they last heard it.
    """
    place_of = {part.name: part.place for part in physical}
    silent = {place for name, place in place_of.items() if name not in facts.streams or not facts.streams[name].leader}
    found: dict[str, float] = {}
    for stream in facts.streams.values():
        for source in stream.sources:
            place = place_of.get(source.stream)
            if place in silent and source.heard is not None and source.heard > SILENT_AFTER:
                found[place] = max(found.get(place, 0.0), source.heard)
    return found


def _pair(feed: ReplicationPair, facts: Snapshot, outage: float | None) -> PairStatus:
    origin, reader = facts.streams.get(feed.origin.name), facts.streams.get(feed.reader.name)
    source = None if reader is None else next((one for one in reader.sources if one.stream == feed.origin.name), None)
    tail = facts.lags.get((feed.origin.name, feed.reader.name))
    cursor = tail.cursor if tail else source.seq if source else None
    last = tail.last if tail else origin.last_seq if origin else None
    if cursor is None and last == 0:
        cursor = 0
    kept = _kept(feed, origin, tail, facts.at)
    pending, age, left = None, None, None
    if tail is not None and cursor is not None:
        # Sequences whose messages were removed are never to come.
        pending = 0 if tail.oldest_seq is None else max(0, tail.last - tail.oldest_seq + 1)
        if tail.oldest_at is not None:
            age = max(0.0, facts.at - tail.oldest_at)
            left = None if kept is None else max(0.0, kept - age)
    elif cursor is not None and last is not None:
        pending = max(0, last - cursor)
    if reader is None and origin is not None and outage is not None:
        if origin.last_at is None or origin.last_at < facts.at - outage - SILENT_AFTER:
            pending = 0  # nothing was written since
        else:
            age = outage
            left = None if kept is None else max(0.0, kept - outage)
    state, detail = _state(feed, facts, source, tail, age)
    return PairStatus(
        virtual=feed.virtual,
        origin=feed.origin.name,
        origin_place=feed.origin.place,
        reader=feed.reader.name,
        reader_place=feed.reader.place,
        state=state,
        detail=detail,
        cursor=cursor,
        last=last,
        pending=pending,
        age=age,
        left=left,
        kept=kept,
    )


def _kept(feed: ReplicationPair, origin: StreamSnapshot | None, tail: Lag | None, at: float) -> float | None:
    """The seconds for which the origin of *feed* keeps messages: its `max_age`, or less where it is full; None for ever."""
    limits = feed.origin.limits
    age = limits.get("max_age")
    kept = tail.max_age if tail else age / NS if isinstance(age, int) else 0.0
    if origin is not None and origin.first_at is not None and limits.get("discard", "old") == "old":
        for name, there in (("max_bytes", origin.bytes), ("max_msgs", origin.messages)):
            most = limits.get(name)
            if isinstance(most, int) and 0 < most * _FULL <= there:
                held = max(0.0, at - origin.first_at)
                kept = min(kept or held, held)
    return kept or None


def _state(
    feed: ReplicationPair, facts: Snapshot, source: SourceSnapshot | None, tail: Lag | None, age: float | None
) -> tuple[PairState, str]:
    origin, reader = feed.origin.name, feed.reader.name
    if reader not in facts.streams:
        since = (
            "" if age is None else f" and lacks what was written since: it was last heard {format_duration(age)} ago"
        )
        return PairState.UNKNOWN, f"`{reader}` {_missing(facts, reader)}{since}"
    if source is None:
        return PairState.UNKNOWN, f"`{reader}` does not take from `{origin}`"
    if origin not in facts.streams:
        return PairState.UNKNOWN, f"`{origin}` {_missing(facts, origin)}: {_heard(source)}"
    return (None if tail is None else _refuted(feed, tail)) or _waiting(feed, facts, source, tail, age)


def _waiting(
    feed: ReplicationPair, facts: Snapshot, source: SourceSnapshot, tail: Lag | None, age: float | None
) -> tuple[PairState, str]:
    """What may mend by itself."""
    origin, reader = feed.origin.name, feed.reader.name
    is_silent = source.heard is None or source.heard > SILENT_AFTER
    if is_silent and not _counts_messages_only(facts, facts.streams[reader].cluster):
        return PairState.SILENT, f"`{reader}` takes nothing from `{origin}`: {_heard(source)}"
    if source.seq is None and facts.streams[origin].last_seq and (tail is None or tail.cursor is None):
        how = "was not" if tail is None else "cannot be"
        return PairState.UNKNOWN, f"how far `{reader}` is in `{origin}` {how} found out"
    if age is not None and age > BEHIND_AFTER:
        return PairState.BEHIND, f"`{reader}` lacks a message of `{origin}` that is {format_duration(age)} old"
    return PairState.OK, "it has everything" if age is None else f"what it lacks is {format_duration(age)} old"


def _counts_messages_only(facts: Snapshot, cluster: str | None) -> bool:
    """Whether servers of *cluster* call a source silent that has nothing to say: those before 2.11 do."""
    return any(
        server.cluster == cluster
        and server.version is not None
        and (parse_version(server.version) or _SAYS_ALIVE) < _SAYS_ALIVE
        for server in facts.servers
    )


def _heard(source: SourceSnapshot) -> str:
    return "it was never heard" if source.heard is None else f"it was last heard {format_duration(source.heard)} ago"


def _refuted(feed: ReplicationPair, tail: Lag) -> tuple[PairState, str] | None:
    """What no more waiting will mend."""
    origin, reader = feed.origin.name, feed.reader.name
    if tail.cursor is None:
        return None
    if tail.cursor > tail.last:
        return PairState.ROLLED_BACK, (
            f"`{reader}` has taken sequence {tail.cursor:,} of `{origin}`, which ends at {tail.last:,}: "
            f"what is published up to {tail.cursor:,} will be skipped"
        )
    gone = tail.first - max(tail.cursor + 1, tail.begins)
    if tail.is_exact and tail.max_age and gone > 0:
        return PairState.LOSSY, (
            f"`{origin}` has dropped {gone:,} sequences that `{reader}` had not taken: it is at {tail.cursor:,}, "
            f"and the origin begins at {tail.first:,}"
        )
    return None


def _missing(facts: Snapshot, name: str) -> str:
    return "does not exist" if name in facts.absent else "does not answer"


def _region(topology: Topology, facts: Snapshot, region: RegionSnapshot) -> RegionStatus:
    mine = [stream for stream in topology.streams if region.name in stream.regions]
    servers = [server for server in facts.servers if server.region == region.name]

    def led(name: str) -> bool:
        found = facts.streams.get(name)
        return found is not None and found.leader is not None

    def publishes(stream: VirtualStream) -> bool:
        name = physical.write_stream_in(stream, region.name)
        # An origin is elsewhere: it must be reached from here, too.
        return led(name) and (not stream.origin or region.origins.get(name, "not asked") is None)

    return RegionStatus(
        name=region.name,
        servers=len(servers),
        reached=sum(server.is_reached for server in servers),
        problem=region.problem,
        publish=Share(works=sum(map(publishes, mine)), of=len(mine)),
        direct_get=Share(
            works=sum(physical.read_stream_in(one, region.name) in facts.streams for one in mine), of=len(mine)
        ),
        consumers=Share(works=sum(led(physical.read_stream_in(one, region.name)) for one in mine), of=len(mine)),
        control=region.problem is None and region.control is None,
    )


def _problems(
    physical: Sequence[PhysicalStream],
    facts: Snapshot,
    regions: tuple[RegionStatus, ...],
    pairs: tuple[PairStatus, ...],
) -> Iterator[Problem]:
    for region, seen in zip(regions, facts.regions, strict=True):
        yield from _region_problems(facts, region, seen)
    for about, some in (
        ("streams that do not exist", [one.name for one in physical if one.name in facts.absent]),
        (
            "streams without a leader",
            [one.name for one in physical if (f := facts.streams.get(one.name)) and f.leader is None],
        ),
        (
            "streams that do not answer",
            [one.name for one in physical if one.name not in facts.streams and one.name not in facts.absent],
        ),
    ):
        if some:
            yield Problem(about=f"{len(some):,} {about}", text=list_names(some))
    yield from _pair_problems(facts, pairs)


def _region_problems(facts: Snapshot, region: RegionStatus, seen: RegionSnapshot) -> Iterator[Problem]:
    if region.problem is not None:
        yield Problem(about=region.name, text=region.problem)
    away = [server for server in facts.servers if server.region == region.name and not server.is_reached]
    unwatched = [server for server in away if server.url is None]
    if len(away) > len(unwatched):
        names = [server.name for server in away]
        yield Problem(
            about=region.name, text=f"{len(names)} of {region.servers} servers do not answer: {list_names(names)}"
        )
    for server in facts.servers:
        if server.region == region.name and server.is_reached and not server.has_jetstream:
            yield Problem(about=server.name, text="JetStream is switched off there: was its disk full?")
    if region.problem is None and seen.control is not None:
        yield Problem(
            about=region.name,
            text=f"no new consumers, streams or changes from there ({seen.control}): "
            "publishing, Direct Get and consumers that exist need no meta leader",
        )
    for share, what in ((region.publish, "publish"), (region.direct_get, "Direct Get")):
        if not share.is_full and share.works:
            yield Problem(about=region.name, text=f"{what} works for {share.works} of {share.of} streams only")


def _pair_problems(facts: Snapshot, pairs: tuple[PairStatus, ...]) -> Iterator[Problem]:
    """One for each state and pair of places: the worst stands for the others."""
    groups: dict[tuple[str, str, PairState], list[PairStatus]] = {}
    for pair in pairs:
        is_told = pair.origin not in facts.streams or (pair.reader not in facts.streams and pair.left is None)
        # Streams that do not answer are a problem of their own, and one is enough.
        if pair.state is not PairState.OK and not is_told:
            groups.setdefault((pair.origin_place, pair.reader_place, pair.state), []).append(pair)
    for (origin, reader, state), some in groups.items():
        worst = max(some, key=lambda one: one.badness)
        times = f" ({len(some):,} streams)" if len(some) > 1 else ""
        left = "" if worst.left is None else f"; messages are lost in {format_duration(worst.left)}"
        yield Problem(about=f"{origin} → {reader} {state.value}", text=f"{worst.detail}{times}{left}")
