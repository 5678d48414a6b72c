"""
How far each reader is behind each of its origins, for how long that is safe, and when it counts as behind.

What is known of such a pair, with its outage margin, is an `AssessedPair` (`vstream.health.status`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from vstream.formatting import format_duration
from vstream.health.snapshot import Lag, Snapshot, SourceSnapshot, StreamSnapshot, to_unix_seconds
from vstream.health.status import AssessedPair, PairState
from vstream.timing import BEHIND_AFTER_SECONDS, SECOND_NS, SILENT_AFTER_SECONDS
from vstream.topology.model import Topology
from vstream.topology.replication import PhysicalStream, ReplicationPair, list_physical_streams, replication_pairs
from vstream.topology.stream_config import StreamConfig
from vstream.topology.stream_limits import MAX_AGE, MAX_BYTES, MAX_MESSAGES, PER_SUBJECT, read_limit
from vstream.topology.units import Version, parse_version

_FULL_SHARE = 0.98
"""A stream that is this full drops its oldest messages."""
_SAYS_ALIVE_SINCE: Version = (2, 11, 0)


def assess_pairs(topology: Topology, snapshot: Snapshot) -> tuple[AssessedPair, ...]:
    """Every pair of a reader and an origin in *topology*."""
    outages = _measure_outages(list_physical_streams(topology), snapshot)
    pairs = [pair for stream in topology.streams for pair in replication_pairs(stream)]
    return tuple(_assess_pair(pair, snapshot, outages.get(pair.reader.place)) for pair in pairs)


def is_unmeasured(pair: AssessedPair, snapshot: Snapshot) -> bool:
    """Whether the reader's position is unknown, although both streams of *pair* answer and are connected."""
    reader = snapshot.streams.get(pair.reader)
    has_source = reader is not None and reader.find_source(pair.origin) is not None
    return pair.state is PairState.UNKNOWN and has_source and pair.origin in snapshot.streams


def has_taken_all(reader: StreamSnapshot, streams: Mapping[str, StreamSnapshot]) -> bool:
    """Whether *reader*, whose position no server says, took as many as its origins ever had: its last sequence counts."""
    if any(source.seq is not None for source in reader.sources):
        return False
    origins = {source.stream for source in reader.sources}
    is_seen = bool(origins) and origins <= streams.keys()
    return is_seen and reader.last_seq == sum(streams[origin].last_seq for origin in origins)


def _measure_outages(streams: Sequence[PhysicalStream], snapshot: Snapshot) -> Mapping[str, float]:
    """
    For each place whose streams do not answer: the seconds since others last heard it.

    Its own readers cannot say since when they lack messages.
    """
    place_of = {stream.name: stream.place for stream in streams}
    led = {name for name, stream in snapshot.streams.items() if stream.leader}
    silent = {place for name, place in place_of.items() if name not in led}
    outages: dict[str, float] = {}
    for reader in snapshot.streams.values():
        for source in reader.sources:
            place = place_of.get(source.stream)
            if place in silent and source.heard is not None and source.heard > SILENT_AFTER_SECONDS:
                outages[place] = max(outages.get(place, 0.0), source.heard)
    return outages


def _assess_pair(pair: ReplicationPair, snapshot: Snapshot, outage: float | None) -> AssessedPair:
    origin, reader = snapshot.streams.get(pair.origin.name), snapshot.streams.get(pair.reader.name)
    source = None if reader is None else reader.find_source(pair.origin.name)
    lag = snapshot.lags.get((pair.origin.name, pair.reader.name))
    if source is not None and reader is not None and origin is not None:
        position = max(source.seq or 0, 0 if lag is None else lag.cursor or 0)
        # A new region's read stream is a copy of another, and begins with what comes after that.
        is_new = position < origin.last_seq == _start_of(reader, origin.name) - 1
        lag = None if is_new else lag
        if is_new or has_taken_all(reader, snapshot.streams):
            source = replace(source, seq=origin.last_seq)
    cursor, last = _find_positions(origin, source, lag)
    retention = _find_retention(pair, origin, snapshot.at)
    pending: int | None = None
    age: float | None = None
    if lag is not None and cursor is not None:
        # Sequences whose messages were removed never arrive.
        pending = 0 if lag.oldest_seq is None else max(0, lag.last - lag.oldest_seq + 1)
        if lag.oldest_at is not None:
            age = max(0.0, snapshot.at - lag.oldest_at)
    elif cursor is not None and last is not None:
        pending = max(0, last - cursor)
    if reader is None and origin is not None and outage is not None:
        if origin.last_at is None or origin.last_at < snapshot.at - outage - SILENT_AFTER_SECONDS:
            pending = 0  # nothing was written since
        else:
            age = outage
    state, detail = _assess_state(pair, snapshot, source, lag, age)
    return AssessedPair(
        virtual=pair.virtual,
        origin=pair.origin.name,
        origin_place=pair.origin.place,
        reader=pair.reader.name,
        reader_place=pair.reader.place,
        state=state,
        detail=detail,
        cursor=cursor,
        last=last,
        pending=pending,
        age=age,
        lossy_in=None if retention is None or age is None else max(0.0, retention - age),
        retention=retention,
    )


def _start_of(reader: StreamSnapshot, origin: str) -> int:
    return StreamConfig(name=reader.name, fields=reader.config or {}).start_seq_of(origin)


def _find_positions(
    origin: StreamSnapshot | None, source: SourceSnapshot | None, lag: Lag | None
) -> tuple[int | None, int | None]:
    """The reader's position and the origin's last sequence, as measured, or as the streams themselves report."""
    if lag is not None:
        return (0 if lag.cursor is None and lag.last == 0 else lag.cursor), lag.last
    cursor = None if source is None else source.seq
    last = None if origin is None else origin.last_seq
    return (0 if cursor is None and last == 0 else cursor), last


def _find_retention(pair: ReplicationPair, origin: StreamSnapshot | None, at: float) -> float | None:
    """For how many seconds the origin keeps messages: its `max_age`, or less if it is full; None for ever."""
    # What it has now counts, not what it should have.
    limits = pair.origin.fields if origin is None or origin.config is None else origin.config
    retention = read_limit(limits, MAX_AGE) / SECOND_NS
    if origin is not None and origin.first_at is not None and limits.get("discard", "old") == "old":
        for limit, used in ((MAX_BYTES, origin.bytes), (MAX_MESSAGES, origin.messages)):
            if 0 < read_limit(limits, limit) * _FULL_SHARE <= used:
                held = max(0.0, at - origin.first_at)
                retention = min(retention or held, held)
    return retention or None


def _assess_state(
    pair: ReplicationPair, snapshot: Snapshot, source: SourceSnapshot | None, lag: Lag | None, age: float | None
) -> tuple[PairState, str]:
    origin, reader = pair.origin.name, pair.reader.name
    if reader not in snapshot.streams:
        since = ""
        if age is not None:
            since = f" and lacks what was written since: it was last heard {format_duration(age)} ago"
        return PairState.UNKNOWN, f"`{reader}` {_describe_absence(snapshot, reader)}{since}"
    if source is None:
        return PairState.UNKNOWN, f"`{reader}` does not take from `{origin}`"
    if origin not in snapshot.streams:
        return PairState.UNKNOWN, f"`{origin}` {_describe_absence(snapshot, origin)}: {_describe_last_heard(source)}"
    lasting = None if lag is None or _is_other_stream(pair, snapshot, source) else _permanent_state(pair, lag, snapshot)
    return lasting or _assess_passing_state(pair, snapshot, source, lag, age)


def _is_other_stream(pair: ReplicationPair, snapshot: Snapshot, source: SourceSnapshot) -> bool:
    """
    Whether the origin was made again, or restored, since its reader last heard it.

    From 2.15 on a reader tells such a stream from the one before, and takes all of it once it hears it.
    """
    reader, created = snapshot.streams[pair.reader.name], snapshot.streams[pair.origin.name].created
    if source.seq is None or source.heard is None or not created or (reader.config or {}).get("mirror"):
        return False
    with suppress(ValueError):
        return to_unix_seconds(created) > snapshot.at - source.heard
    return False


def _assess_passing_state(
    pair: ReplicationPair, snapshot: Snapshot, source: SourceSnapshot, lag: Lag | None, age: float | None
) -> tuple[PairState, str]:
    """States that may end by themselves."""
    origin, reader = pair.origin.name, pair.reader.name
    is_silent = source.heard is None or source.heard > SILENT_AFTER_SECONDS
    if is_silent and not _counts_messages_only(snapshot, snapshot.streams[reader].cluster):
        return PairState.SILENT, f"`{reader}` takes nothing from `{origin}`: {_describe_last_heard(source)}"
    if source.seq is None and snapshot.streams[origin].last_seq and (lag is None or lag.cursor is None):
        until = "was not found out: ask again" if lag is None else f"is not known until `{origin}` stores a message"
        return PairState.UNKNOWN, f"how far `{reader}` is in `{origin}` {until}"
    last = snapshot.streams[origin].last_seq
    if lag is None and source.seq is not None and source.seq != last:
        return (
            PairState.UNKNOWN,
            f"`{reader}` is at {source.seq:,} of `{origin}`, which ends at {last:,}: since when is not known",
        )
    if age is not None and age > BEHIND_AFTER_SECONDS:
        return PairState.BEHIND, f"`{reader}` lacks a message of `{origin}` that is {format_duration(age)} old"
    return PairState.OK, "it has everything" if age is None else f"what it lacks is {format_duration(age)} old"


def _counts_messages_only(snapshot: Snapshot, cluster: str | None) -> bool:
    """Whether servers of *cluster* report an idle source as silent: those before 2.11 do."""
    texts = [server.version for server in snapshot.servers if server.version and server.cluster == cluster]
    return any((parse_version(text) or _SAYS_ALIVE_SINCE) < _SAYS_ALIVE_SINCE for text in texts)


def _describe_last_heard(source: SourceSnapshot) -> str:
    return "it was never heard" if source.heard is None else f"it was last heard {format_duration(source.heard)} ago"


def _permanent_state(pair: ReplicationPair, lag: Lag, snapshot: Snapshot) -> tuple[PairState, str] | None:
    """States that waiting does not end."""
    origin, reader = pair.origin.name, pair.reader.name
    if lag.cursor is None:
        return None
    if lag.cursor > lag.last:
        return PairState.ROLLED_BACK, (
            f"`{reader}` has taken sequence {lag.cursor:,} of `{origin}`, which ends at {lag.last:,}: "
            f"what is published up to {lag.cursor:,} will be skipped"
        )
    gone = lag.first - max(lag.cursor + 1, lag.begins, _start_of(snapshot.streams[reader], origin))
    if not (lag.is_exact and lag.max_age and gone > 0):
        return None
    if _replace_alike(snapshot.streams[origin], snapshot.streams[reader]):
        why = "newer messages of their subjects replaced them, or they were too old"
        return PairState.UNKNOWN, f"`{origin}` has dropped {gone:,} sequences that `{reader}` had not taken: {why}"
    return PairState.LOSSY, (
        f"`{origin}` has dropped {gone:,} sequences that `{reader}` had not taken: it is at {lag.cursor:,}, "
        f"and the origin begins at {lag.first:,}"
    )


def _replace_alike(origin: StreamSnapshot, reader: StreamSnapshot) -> bool:
    """Whether what newer messages of its subject remove from *origin*, they would remove from *reader*, too."""
    origin_keeps, reader_keeps = (read_limit(stream.config or {}, PER_SUBJECT) for stream in (origin, reader))
    return 0 < reader_keeps <= origin_keeps


def _describe_absence(snapshot: Snapshot, name: str) -> str:
    return "does not exist" if name in snapshot.absent else "does not answer"
