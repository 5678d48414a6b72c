"""
What is known of origins and readers, as small tables that later stages join with.

The table `streams` has one row per physical stream. The driver reads it once and builds small tables from it, so that
Spark need not compute them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit.spark.local_frames import collect_arrow, make_table, plain_rows
from vstream.audit.state.verified import NOTHING_VERIFIED, VerifiedPart
from vstream.audit.tables.schema import STREAMS, make_schema
from vstream.audit.tables.stream_settings import CAPTURE, HAS_HOLES, LOST_OLDEST, find_first_kept, is_origin
from vstream.topology.model import Role
from vstream.topology.stream_config import UNTIL_KEY
from vstream.topology.stream_limits import MESSAGE_TTL, OLDEST_FIRST, PER_SUBJECT, REMOVING, REPLACING, ROLLUPS

_ANY: Final = frozenset({"retention"})
_SELECTIVE: Final = _ANY | REPLACING
"""Settings that can remove messages in the middle of a stream."""
_ROLES = make_schema("virtual string, stream string, is_origin boolean, mirror string")
_ORIGINS = make_schema("""
    virtual string, origin string, origin_region string, origin_first bigint, origin_last bigint,
    origin_snapshot_ns bigint, origin_read_ns bigint, origin_may_lose_oldest boolean, origin_may_lose_any boolean,
    origin_has_ttl boolean, origin_max_age bigint, origin_began bigint, origin_keeps bigint, origin_first_kept bigint,
    readers bigint
""")
_READERS = make_schema("""
    stream string, region string, cursor bigint, reader_snapshot_ns bigint, reader_read_ns bigint, is_capture boolean,
    has_holes boolean, lost_oldest boolean, may_lose_oldest boolean, max_age bigint, may_lose_any boolean,
    has_ttl boolean, may_hide boolean, keeps bigint, may_roll_up boolean, window bigint, takes_no_more boolean,
    removed_early bigint, is_purged boolean
""")
_VERIFIED = make_schema("virtual string, stream string, origin string, until bigint, read_to bigint, until_ns bigint")
_EXPECTED = StructType([*_ORIGINS.fields, *_READERS.fields])
_OriginRow = Row(*_ORIGINS.names)
# Spark's own rows look each attribute up in a list of names.
_StreamRow = make_dataclass("_StreamRow", STREAMS.names, slots=True)
_SourceRow = make_dataclass("_SourceRow", ("origin", "last_seq"), slots=True)
_TransformRow = make_dataclass("_TransformRow", ("src", "dest"), slots=True)


class Hole(NamedTuple):
    """An origin that lacks messages between its *first* sequence and its *last*."""

    virtual: str
    origin: str
    region: str
    first: int
    last: int
    is_capture: bool


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """The rows of `streams` (`schema.STREAMS`), and tables derived from them."""

    rows: Sequence[Any]
    roles: DataFrame
    """By *virtual* and *stream*: *is_origin*, whether clients publish to it, and the stream that it mirrors, if any."""
    origins: DataFrame
    """
    One row for each origin. *origin_last* is null if it could not be read or is not among `streams`.

    *origin_may_lose_oldest* and *origin_may_lose_any* say whether its limits can remove the oldest or any messages;
    both are true if its limits are unknown. *origin_has_ttl* says whether messages with a time to live are removed when
    it ends. *origin_max_age* is null unless age alone removes messages; *origin_keeps* is as *keeps* of a reader.
    *origin_began* is the first sequence that it could have: a stream that is made again begins after the messages that
    the region's lost one had sent. *origin_first_kept* is the first sequence that its `max_msgs` leaves (`find_first_kept`).
    *readers* is the number of streams that should have its messages.
    """
    expected: DataFrame
    """
    Each origin with each reader that could be read.

    *cursor* is how far the reader has sourced, null if its server does not report that. *keeps* is the minimum number
    of messages of a subject that it keeps, null without such a limit; *max_age* is null unless age alone removes the
    oldest. *may_hide*: what replaced a message may have ended. *may_roll_up* says whether a message may remove all
    others of its subject. *window* is how long, in nanoseconds, the reader drops a message of the origin with the id of
    another; null if unknown, and 0 if the reader has stored everything that arrived, and so dropped nothing.
    *takes_no_more*: the origin's region was given up. *removed_early* is the number of removed messages that its
    `max_msgs` leaves, and *is_purged* says whether a smaller one has not removed them either.
    """
    identities: Mapping[tuple[str, str], str]
    """By *virtual* and origin: the identity that servers since 2.15 give it, if known."""
    mirrors: frozenset[tuple[str, str]]
    """Pairs of *virtual* and stream: mirrors, which keep the original timestamps, so the arrival time is unknown."""
    bounds: Mapping[tuple[str, str], tuple[int | None, int | None]]
    """By *virtual* and origin: its first and last sequence, as in *origins*."""
    substreams: Sequence[tuple[Any, ...]]
    """Each stream with each origin (or None) whose messages it may have: virtual, origin, stream, region, is_origin."""
    readers: Mapping[str, int]
    """By *virtual*: the number of streams that should have the messages of each origin."""
    counters: frozenset[str] = frozenset()
    """
    Virtual streams of counters: a sourced message gets the local sum as its payload, so payloads differ by stream.

    Counters whose regions mirror one stream are not included: their payloads are equal.
    """
    holes: Sequence[Hole] = ()
    """The origins with gaps that none of their limits explains."""
    is_narrow: bool = False
    """Whether streams were read only from a certain time on: then older messages of an origin are not checked."""
    is_sampled: bool = False
    """Whether only some subjects were read."""
    verified: VerifiedPart = NOTHING_VERIFIED
    """What is not judged again: origins and limits are those of streams without these messages."""
    has_removed_early: bool = False
    """Whether any reader has removed messages that its `max_msgs` leaves."""

    @property
    def messages(self) -> int:
        """Number of messages to judge in all streams."""
        return sum(row.messages or 0 for row in self.rows) - self.verified.messages

    @property
    def keeps_last(self) -> bool:
        """Whether any reader may keep only the last messages of each subject, or only messages after a roll-up."""
        return any(row.limits is None or REPLACING & row.limits.keys() for row in self.rows if not is_origin(row))


def build_stream_facts(
    streams: DataFrame, *, is_narrow: bool = False, is_sampled: bool = False, verified: VerifiedPart = NOTHING_VERIFIED
) -> StreamFacts:
    """
    Build the tables from `streams`.

    *is_narrow*: read only from some time on. *is_sampled*: some subjects only. Messages that are *verified* are not judged.
    """
    # Arrow takes no null for a structure whose fields cannot be null.
    told = collect_arrow(streams.withColumn("transform", F.col("transform").cast("struct<src: string, dest: string>")))
    rows = sorted(map(_make_plain_row, plain_rows(told)), key=lambda row: (row.virtual, row.stream))
    by_virtual: dict[str, list[Any]] = {}
    for row in rows:
        by_virtual.setdefault(row.virtual, []).append(verified.narrow(row, is_origin=is_origin(row)))
    roles, origins, expected, substreams, has_removed_early = [], [], [], [], False
    for virtual, rows_of_one in by_virtual.items():
        # Old captures do not say what is mirrored. Where one stream takes all publishes, it is that one.
        alone = next((row.stream for row in rows_of_one if row.role == Role.ORIGIN.value), None)
        roles += [
            (virtual, row.stream, is_origin(row), row.mirror or (None if row.sources else alone)) for row in rows_of_one
        ]
        readers = [
            row for row in rows_of_one if not is_origin(row) and row.role != Role.CATALOG.value and row.error is None
        ]
        origin_rows = _make_origin_rows(virtual, rows_of_one, len(readers), is_narrow=is_narrow)
        origins += origin_rows
        seen = {row.stream: row for row in rows_of_one if row.error is None}
        early = {row.stream: _count_removed_early(row, seen) for row in readers}
        has_removed_early |= any(early.values())
        purged = {row.stream for row in readers if early[row.stream] and _is_purged(row, readers)}
        for origin in origin_rows:
            for row in readers:
                removed = early[row.stream], row.stream in purged
                expected.append((*origin, *_make_reader_row(row, origin.origin, seen), *removed))
        names = [None, *(origin.origin for origin in origin_rows)]
        for row in rows_of_one:
            origin_names = [row.stream] if is_origin(row) else names
            substreams += [(virtual, name, row.stream, row.region, is_origin(row)) for name in origin_names]
    spark = streams.sparkSession
    mirrors = {(virtual, row.stream) for virtual, own_rows in by_virtual.items() for row in _list_mirrors(own_rows)}
    return StreamFacts(
        rows=[row for row in rows if row.role != Role.CATALOG.value],
        roles=make_table(spark, roles, _ROLES),
        origins=make_table(spark, origins, _ORIGINS),
        expected=make_table(spark, expected, _EXPECTED),
        identities={(row.virtual, row.stream): row.identity for row in rows if row.identity is not None},
        substreams=substreams,
        mirrors=frozenset(mirrors),
        bounds={(row.virtual, row.origin): (row.origin_first, row.origin_last) for row in origins},
        readers={row.virtual: row.readers for row in origins},
        counters=frozenset(
            row.virtual for row in rows if row.sources and row.limits and "allow_msg_counter" in row.limits
        ),
        holes=() if is_narrow or is_sampled else [_make_hole(row) for row in rows if _has_hole(row)],
        is_narrow=is_narrow,
        is_sampled=is_sampled,
        verified=verified,
        has_removed_early=has_removed_early,
    )


def tabulate_verified(spark: SparkSession, verified: VerifiedPart) -> DataFrame:
    """Each stream with each origin of it: how far its messages are *verified*, and when that was."""
    rows = []
    for item in verified.virtuals:
        for stream in item.streams:
            place = (item.virtual, stream.stream)
            rows += [(*place, route.origin, route.until, stream.read_to, item.until_ns) for route in stream.routes]
    return make_table(spark, rows, _VERIFIED)


def _make_plain_row(row: Any) -> Any:
    plain = _StreamRow(*row)
    plain.sources = [_SourceRow(**source) for source in plain.sources]
    plain.limits = None if plain.limits is None else dict(plain.limits)
    plain.transform = None if plain.transform is None else _TransformRow(**plain.transform)
    return plain


def may_have_holes(row: Any) -> bool:
    """Whether settings of a stream may remove messages in its middle."""
    return row.limits is None or bool((_SELECTIVE | {MESSAGE_TTL}) & row.limits.keys())


def _has_hole(row: Any) -> bool:
    return is_origin(row) and row.error is None and bool(row.num_deleted) and not may_have_holes(row)


def _make_hole(row: Any) -> Hole:
    return Hole(row.virtual, row.stream, row.region, row.first_seq, row.last_seq, row.path == CAPTURE)


def _list_mirrors(streams: Sequence[Any]) -> list[Any]:
    """The mirrors among the streams of one virtual stream; in old captures, only the roles show them."""
    roles = {row.role for row in streams}
    if Role.ORIGIN.value in roles or Role.ORDER.value in roles:
        return [row for row in streams if row.mirror is not None or (row.role == Role.READ.value and not row.sources)]
    return [row for row in streams if row.mirror is not None]


def _make_origin_rows(virtual: str, streams: Sequence[Any], readers: int, *, is_narrow: bool) -> list[Row]:
    rows = []
    for row in (row for row in streams if is_origin(row)):
        keys = row.limits.keys() if row.limits is not None else _SELECTIVE
        may_lose_any = bool(_SELECTIVE & keys)
        ends = row.first_seq, row.last_seq, row.snapshot_ns, row.read_at_ns
        may_lose = bool(OLDEST_FIRST & keys) or may_lose_any, may_lose_any, MESSAGE_TTL in keys
        began = 1 if row.limits is None else row.limits.get("first_seq", 1)
        age = None if may_lose_any else _find_age(row.limits)
        keeps = (row.limits or {}).get(PER_SUBJECT)
        first_kept = None if is_narrow or row.path == CAPTURE else find_first_kept(row)
        facts = *ends, *may_lose, age, began, keeps, first_kept
        rows.append(_OriginRow(virtual, row.stream, row.region, *facts, readers))
    # A migration leaves streams behind that readers still take from; from one that was given up they have taken.
    names = {source.origin for row in streams for source in row.sources} - {row.stream for row in streams}
    unknown = *(None,) * 5, True, True, False, None, 1, None, None
    return rows + [_OriginRow(virtual, name, *unknown, readers) for name in sorted(names)]


def _find_cursor(row: Any, origin: str, seen: Mapping[str, Any]) -> int | None:
    """How far a reader has sourced *origin*, None if unknown; *seen* are the streams of the virtual stream by name."""
    if row.mirror == origin:
        # It has its stream's sequences, and its last one stays when messages go.
        return int(row.last_seq) or None
    if row.mirror is not None:
        through = seen.get(row.mirror)
        return _find_cursor(through, origin, seen) if through is not None and row.last_seq >= through.last_seq else None
    cursors = [source.last_seq for source in row.sources if source.origin == origin]
    if not cursors:
        return None
    if None in cursors:
        # Captures of servers before 2.15 do not say it (`from_servers` finds it).
        return int(seen[origin].last_seq) if _has_taken_all(row, seen) else None
    # A stream may be sourced twice, with two filters.
    return int(min(cursors))


def _has_taken_all(row: Any, seen: Mapping[str, Any]) -> bool:
    """
    Whether a reader has ever stored as many messages as its origins had, which its last sequence shows.

    Its cursors alone do not: servers since 2.15 do not count messages there that were dropped as duplicates.
    """
    if not {source.origin for source in row.sources} <= seen.keys():
        return False
    lasts = {source.origin: seen[source.origin].last_seq for source in row.sources}
    if None in {source.last_seq for source in row.sources}:
        return bool(row.path == CAPTURE and row.last_seq == sum(lasts.values()))
    # A stream may be sourced twice, with two filters.
    cursors = {source.origin: source.last_seq for source in sorted(row.sources, key=lambda source: source.last_seq)}
    return bool(row.last_seq == sum(cursors.values())) and all(cursors[name] >= last for name, last in lasts.items())


def _make_reader_row(row: Any, origin: str, seen: Mapping[str, Any]) -> tuple[Any, ...]:
    limits = row.limits
    keys = limits.keys() if limits is not None else frozenset()
    return (
        row.stream,
        row.region,
        _find_cursor(row, origin, seen),
        row.snapshot_ns,
        row.read_at_ns,
        row.path == CAPTURE,
        row.last_seq > row.messages or HAS_HOLES in keys,
        row.first_seq > 1 or LOST_OLDEST in keys,
        limits is None or bool(OLDEST_FIRST & keys),
        _find_age(limits),
        bool(_ANY & keys),
        MESSAGE_TTL in keys,
        MESSAGE_TTL in keys and any(is_origin(each) and each.last_seq > each.messages for each in seen.values()),
        1 if limits is None else limits.get(PER_SUBJECT),
        ROLLUPS in keys,
        _find_duplicate_window(row, origin, seen),
        f"{UNTIL_KEY}{origin}" in keys,
    )


def _count_removed_early(row: Any, seen: Mapping[str, Any]) -> int:
    """How many of the removed messages of *row* its `max_msgs` leaves; *seen* as in `_find_cursor`."""
    first_kept = find_first_kept(row)
    # A capture does not say what the stream held before.
    if first_kept is None or row.path == CAPTURE:
        return 0
    if row.mirror is not None:
        # A mirror never had what was gone from its stream when it was made.
        if row.mirror not in seen:
            return 0
        first_kept = max(first_kept, seen[row.mirror].first_seq)
    return max(0, int(row.first_seq) - first_kept)


def _is_purged(row: Any, readers: Sequence[Any]) -> bool:
    """Whether no smaller `max_msgs` of *row* has removed these either: it is empty, or another of *readers* has lost none."""
    if not row.messages:
        return True
    # Beyond the limit, who has lost none has another one, or was made later.
    if row.last_seq > row.limits["max_msgs"]:
        return False
    whole = (sibling for sibling in readers if sibling.first_seq == 1 and sibling.limits is not None)
    return any(
        sibling.last_seq >= row.first_seq and {"max_msgs"} >= REMOVING & sibling.limits.keys() for sibling in whole
    )


def _find_duplicate_window(row: Any, origin: str, seen: Mapping[str, Any]) -> int | None:
    # Who takes messages from another reader lacks what that one has left out.
    if origin not in {source.origin for source in row.sources}:
        return None
    if _has_taken_all(row, seen):
        return 0
    return None if row.limits is None else row.limits.get("duplicate_window")


def _find_age(limits: Mapping[str, int] | None) -> int | None:
    """The age at which messages are removed, in nanoseconds, if no other limit removes the oldest ones."""
    return limits["max_age"] if limits is not None and limits.keys() & OLDEST_FIRST == {"max_age"} else None
