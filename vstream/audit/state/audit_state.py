"""
The state that repeated audits of a topology keep, so that each reads only new messages.

A directory with Parquet files and a manifest. Files are never changed, and the manifest is replaced after new files are
written: if an audit is killed, the next one finds the state of the last complete one.

The state must equal what a whole audit would read. Servers only append messages to a stream and remove them. So it is
equal if the stream was not created again, the last message that was read is still there unchanged, and the state has as
many messages as the stream. Otherwise the stream is read again from its first message.

The state also says which messages need not be judged again (`verified`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from pydantic import TypeAdapter, ValidationError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from vstream.audit.connector.values import ReadSnapshot
from vstream.audit.extract.extract_plan import ExtractPlan
from vstream.audit.request import uri_of
from vstream.audit.spark.local_frames import make_table
from vstream.audit.state.verified import Key, RemovedMessages, VerifiedPart, VerifiedVirtual, carry_over
from vstream.audit.tables.audit_tables import read_live_messages
from vstream.audit.tables.schema import MESSAGES, make_schema
from vstream.errors import VstreamError
from vstream.files import write_private
from vstream.value_class import value_class

ReadMessages = Callable[[Sequence[ReadSnapshot]], DataFrame]

MANIFEST: Final = "manifest.json"
_PART_COLUMN: Final = "part"
_KEY_COLUMNS: Final = ("virtual", "stream")
_MERGE_FACTOR: Final = 2
"""An older part is merged with newer ones unless it has so many times their rows, so each row is rarely rewritten."""
_MAX_FILE_ROWS: Final = 2_000_000
_ANCHORS: Final = make_schema("virtual string not null, stream string not null, anchor bigint")
_RANGES: Final = make_schema(
    "virtual string not null, stream string not null, part bigint, least bigint, greatest bigint"
)


class PartRange(NamedTuple):
    """The sequences *first* to *last* of a stream, in one part."""

    part: int
    first: int
    last: int


@value_class
class StreamPosition:
    """How far a stream was read, and where its messages are kept."""

    virtual: str
    stream: str
    created: str | None
    first_seq: int
    last_seq: int
    last_ts: str | None
    messages: int
    last: tuple[int, int, int] | None
    """Sequence, time and digest of the last message that was read."""
    ranges: tuple[PartRange, ...]

    @property
    def key(self) -> Key:
        """The virtual stream, and the stream."""
        return self.virtual, self.stream

    def is_of(self, snapshot: ReadSnapshot) -> bool:
        """Whether *snapshot* can be of the same stream, with messages added at the end or removed at the beginning."""
        is_longer = self.first_seq <= snapshot.first_seq and self.last_seq <= snapshot.last_seq
        return (
            self.created == snapshot.created and is_longer and (self.last is None or snapshot.first_seq <= self.last[0])
        )


@value_class
class MessagePart:
    """A set of files that were written together."""

    number: int
    rows: int
    files: dict[str, int]
    """Their sizes in bytes, by name."""


@value_class
class StateManifest:
    """The contents of the state directory."""

    format: Literal[3]
    topology: str
    parts: tuple[MessagePart, ...] = ()
    streams: tuple[StreamPosition, ...] = ()
    verified: tuple[VerifiedVirtual, ...] = ()


class StateUpdate(NamedTuple):
    """
    All messages, the number read from servers, and the streams that were read again from their first message.

    *verified* are the messages that need not be judged again.
    """

    messages: DataFrame
    new: int
    reread: tuple[str, ...]
    verified: VerifiedPart


class _FreshMessages(NamedTuple):
    """What was read of servers: how far streams are read now, how many messages came, and the part with them, if any."""

    positions: dict[Key, StreamPosition]
    new: int
    parts: Sequence[MessagePart]


_SHAPE = TypeAdapter(StateManifest)


class UnusableStateError(VstreamError):
    """A state that is damaged, or not of these streams. Nothing was read."""


class AuditState:
    """The state in *directory* of audits of *topology*, on a local Spark. The caller must lock the directory."""

    def __init__(self, spark: SparkSession, directory: Path, topology: str) -> None:
        self.spark = spark
        self._directory = directory
        self._topology = topology
        self._manifest = StateManifest(format=3, topology=topology)
        self._shown: list[StreamPosition] = []

    def load(self, plan: ExtractPlan) -> StateUpdate:
        """Read the new messages of *plan* from servers, as `update` does."""
        return self.update(plan.snapshots, partial(read_live_messages, self.spark, access=plan.access))

    def update(self, snapshots: Sequence[ReadSnapshot], read: ReadMessages) -> StateUpdate:
        """
        Read the new messages of *snapshots* with *read*, keep them, and return all messages of the streams.

        Raises UnusableStateError if the state is of another topology or of other servers, or has lost files.
        """
        manifest = self._load(snapshots)
        self._remove_unlisted(manifest)
        before = {position.key: position for position in manifest.streams}
        readable = {_key(snapshot): snapshot for snapshot in snapshots if snapshot.error is None}
        same = {key: item for key, item in before.items() if key in readable and item.is_of(readable[key])}
        removed = self._find_removed(same, readable, manifest)
        idle, longer = _divide_positions(same, readable, removed)
        number = max((part.number for part in manifest.parts), default=0) + 1
        fresh = self._read_part(
            number, {key: snapshot for key, snapshot in readable.items() if key not in idle}, longer, read
        )
        positions = {key: before[key] for key in map(_key, snapshots) if key in before} | idle | fresh.positions
        continued = idle.keys() | (fresh.positions.keys() & longer.keys())
        # Those that turn out to be others than they were are read again, as a whole.
        again = self._read_part(number + 1, {key: readable[key] for key in longer.keys() - continued}, {}, read)
        positions |= again.positions
        reread = [key[1] for key in readable.keys() - continued if key in before and before[key].messages]
        verified = tuple(carry_over(manifest.verified, snapshots, continued, removed))
        merged, parts = self._merge(list(positions.values()), [*manifest.parts, *fresh.parts, *again.parts])
        self._shown = [position for position in merged if position.key in readable]
        self._save(replace(manifest, parts=tuple(parts), streams=tuple(merged), verified=verified))
        return StateUpdate(
            self._rows(self._shown, parts), fresh.new + again.new, tuple(sorted(reread)), VerifiedPart(verified)
        )

    def read_unverified(self, verified: VerifiedPart) -> DataFrame:
        """All messages but those of *verified*, of which those are left in that stand behind unverified ones."""
        positions = []
        for position in self._shown:
            stream = verified.streams.get(position.key)
            first = position.first_seq if stream is None else max(position.first_seq, stream.last_seq + 1)
            positions.append(replace(position, first_seq=first))
        return self._rows(positions, self._manifest.parts)

    def read_verified(self, verified: VerifiedPart) -> DataFrame:
        """Every message of *verified* from some streams that have it."""
        positions = []
        for position in self._shown:
            last = verified.complete_ends.get(position.key)
            if last is not None:
                positions.append(replace(position, ranges=_clip(position.ranges, last=last)))
        return self._rows(positions, self._manifest.parts)

    def record_verified(self, verified: VerifiedPart) -> None:
        """Keep that *verified* need not be judged again."""
        if verified.virtuals != self._manifest.verified:
            self._save(replace(self._manifest, verified=verified.virtuals))

    def _load(self, snapshots: Sequence[ReadSnapshot]) -> StateManifest:
        try:
            manifest = _SHAPE.validate_json((self._directory / MANIFEST).read_bytes())
        except FileNotFoundError:
            # Whatever is here from now on belongs to the state, and is removed unless it is listed.
            if any(not file.name.startswith(f".{MANIFEST}") for file in self._directory.iterdir()):
                raise self._refusal("cannot be made: other files are there") from None
            empty = StateManifest(format=3, topology=self._topology)
            self._save(empty)
            return empty
        except (OSError, ValidationError) as error:
            raise self._refusal(f"has a {MANIFEST} that is damaged, or of another version") from error
        if manifest.topology != self._topology:
            raise self._refusal(f"is of `{manifest.topology}`, not of `{self._topology}`")
        created = {position.key: position.created for position in manifest.streams}
        both = [snapshot for snapshot in snapshots if snapshot.error is None and _key(snapshot) in created]
        if both and all(created[_key(snapshot)] != snapshot.created for snapshot in both):
            raise self._refusal(f"is of other servers, or all its {len(both)} streams were made again")
        for part in manifest.parts:
            for name, size in part.files.items():
                file = self._place(part.number) / name
                if not file.is_file() or file.stat().st_size != size:
                    raise self._refusal(f"has lost `{file.name}`, or it was changed")
        return manifest

    def _refusal(self, problem: str) -> UnusableStateError:
        hint = "name another directory: the first audit with it reads everything"
        return UnusableStateError(f"the audit state in `{self._directory}` {problem}", hint=hint)

    def _place(self, number: int) -> Path:
        return self._directory / f"{_PART_COLUMN}={number}"

    def _remove_unlisted(self, manifest: StateManifest) -> None:
        """Remove files that an interrupted audit or a merge of parts has left."""
        listed = {self._place(part.number) for part in manifest.parts}
        for place in self._directory.glob(f"{_PART_COLUMN}=*"):
            if place not in listed:
                shutil.rmtree(place)
        for file in self._directory.glob(f".{MANIFEST}.*"):
            file.unlink()

    def _find_removed(
        self, positions: Mapping[Key, StreamPosition], snapshots: Mapping[Key, ReadSnapshot], manifest: StateManifest
    ) -> dict[Key, RemovedMessages]:
        """By stream: the kept messages that the stream has removed since, before its first message."""
        gone = []
        for key, position in positions.items():
            if position.first_seq < snapshots[key].first_seq:
                gone.append(replace(position, ranges=_clip(position.ranges, last=snapshots[key].first_seq - 1)))
        if not gone:
            return {}
        name = F.substring_index("source", " ", 1).alias("name")
        table = self._rows(gone, manifest.parts).groupBy(*_KEY_COLUMNS, name)
        removed: dict[Key, RemovedMessages] = {}
        for row in table.agg(F.count(F.lit(1)).alias("number"), F.max("time_ns").alias("last_ns")).collect():
            before = removed.get((row.virtual, row.stream), RemovedMessages({}, 0))
            removed[row.virtual, row.stream] = RemovedMessages(
                {**before.counts, row.name: row.number}, max(before.last_ns, row.last_ns)
            )
        return removed

    def _read_part(
        self,
        number: int,
        snapshots: Mapping[Key, ReadSnapshot],
        existing: Mapping[Key, StreamPosition],
        read: ReadMessages,
    ) -> _FreshMessages:
        """Read *snapshots* into a new part, from the last message of their *existing* positions on, or from the first one."""
        narrow = [_narrow_after(snapshot, existing.get(key)) for key, snapshot in snapshots.items()]
        rows: dict[Key, Any] = {}
        if any(snapshot.is_readable for snapshot in narrow):
            read(narrow).select(*MESSAGES.names).write.mode("overwrite").parquet(uri_of(str(self._place(number))))
            rows = self._summarize_part(number, narrow)
        positions = {}
        for key, snapshot in snapshots.items():
            if key not in existing:
                positions[key] = _begin_position(snapshot, rows.get(key), number)
            elif (extended := _extend_position(existing[key], snapshot, rows.get(key), number)) is not None:
                positions[key] = extended
        new = sum(row.new for row in rows.values())
        return _FreshMessages(positions, new, [self._complete_part(number, new)] if rows else [])

    def _summarize_part(self, number: int, snapshots: Sequence[ReadSnapshot]) -> dict[Key, Any]:
        """By stream: what the part *number* has of it, and the message at the beginning of its snapshot."""
        rows = self.spark.read.schema(MESSAGES).parquet(uri_of(str(self._place(number))))
        anchors = make_table(self.spark, [(*_key(snapshot), snapshot.first_seq) for snapshot in snapshots], _ANCHORS)
        facts = F.struct("seq", "time_ns", "digest")
        summary = (
            rows.join(F.broadcast(anchors), list(_KEY_COLUMNS))
            .groupBy(*_KEY_COLUMNS)
            .agg(
                F.count(F.lit(1)).alias("new"),
                F.min("seq").alias("first"),
                F.max_by(facts, "seq").alias("last"),
                F.first(F.when(F.col("seq") == F.col("anchor"), facts), ignorenulls=True).alias("anchored"),
            )
            .collect()
        )
        return {(row.virtual, row.stream): row for row in summary}

    def _complete_part(self, number: int, rows: int) -> MessagePart:
        files = self._place(number).glob("part-*.parquet")
        return MessagePart(number=number, rows=rows, files={file.name: file.stat().st_size for file in files})

    def _merge(
        self, positions: list[StreamPosition], parts: list[MessagePart]
    ) -> tuple[list[StreamPosition], list[MessagePart]]:
        """Merge parts with too few rows, or with too many removed messages. Returns the new *positions* and *parts*."""
        used = sum(position.messages for position in positions)
        merged: list[MessagePart] = []
        rows, is_wasteful = 0, sum(part.rows for part in parts) > _MERGE_FACTOR * used
        for part in reversed(parts):
            if merged and not is_wasteful and part.rows > _MERGE_FACTOR * rows:
                break
            merged.append(part)
            rows += part.rows
        if len(merged) <= 1 and not is_wasteful:
            return positions, parts
        numbers = {part.number for part in merged}
        number = max(numbers) + 1
        positions_after, moved = [], []
        for position in positions:
            ranges = _clip(position.ranges, first=position.first_seq)
            moving = tuple(item for item in ranges if item.part in numbers)
            ranges = tuple(item for item in ranges if item.part not in numbers)
            if moving:
                moved.append(replace(position, ranges=moving))
                ranges = (*ranges, PartRange(number, moving[0].first, moving[-1].last))
            positions_after.append(replace(position, ranges=ranges))
        remaining = [part for part in parts if part.number not in numbers]
        if not moved:
            return positions_after, remaining
        place = uri_of(str(self._place(number)))
        ordered = self._rows(moved, merged).repartitionByRange(1 + rows // _MAX_FILE_ROWS, *_KEY_COLUMNS, "seq")
        ordered.sortWithinPartitions(*_KEY_COLUMNS, "seq").write.mode("overwrite").parquet(place)
        written = self.spark.read.schema(MESSAGES).parquet(place).count()
        return positions_after, [*remaining, self._complete_part(number, written)]

    def _save(self, manifest: StateManifest) -> None:
        write_private(self._directory / MANIFEST, _SHAPE.dump_json(manifest).decode())
        self._manifest = manifest
        self._remove_unlisted(manifest)

    def _rows(self, positions: Iterable[StreamPosition], parts: Iterable[MessagePart]) -> DataFrame:
        """The messages of *positions*, read from *parts*."""
        ranges = []
        for position in positions:
            for item in _clip(position.ranges, first=position.first_seq):
                ranges.append((*position.key, *item))
        listed = {part for _, _, part, _, _ in ranges}
        places = [uri_of(str(self._place(part.number))) for part in parts if part.number in listed]
        if not places:
            return make_table(self.spark, [], MESSAGES)
        schema = StructType([*MESSAGES.fields, StructField(_PART_COLUMN, LongType())])
        rows = self.spark.read.schema(schema).option("basePath", uri_of(str(self._directory))).parquet(*places)
        return (
            rows.join(F.broadcast(make_table(self.spark, ranges, _RANGES)), [*_KEY_COLUMNS, _PART_COLUMN])
            .where(F.col("seq").between(F.col("least"), F.col("greatest")))
            .select(*MESSAGES.names)
        )


def _key(snapshot: ReadSnapshot) -> Key:
    return snapshot.stream_ref.virtual, snapshot.stream_ref.stream


def _divide_positions(
    same: Mapping[Key, StreamPosition], snapshots: Mapping[Key, ReadSnapshot], removed: Mapping[Key, RemovedMessages]
) -> tuple[dict[Key, StreamPosition], dict[Key, StreamPosition]]:
    """
    The positions of streams that have nothing new, and of those that have more, each without what was *removed*.

    Of other streams in *same*, messages are gone that were not before the first one.
    """
    idle, longer = {}, {}
    for key, position in same.items():
        snapshot, messages = snapshots[key], position.messages - (removed[key].number if key in removed else 0)
        remaining = replace(position, first_seq=snapshot.first_seq, messages=messages)
        if snapshot.last_ts is not None and (position.last_seq, position.last_ts) == (
            snapshot.last_seq,
            snapshot.last_ts,
        ):
            if messages == snapshot.messages:
                idle[key] = remaining
        elif position.last is not None and messages <= snapshot.messages:
            longer[key] = remaining
    return idle, longer


def _narrow_after(snapshot: ReadSnapshot, position: StreamPosition | None) -> ReadSnapshot:
    """The part of *snapshot* to read: from the last kept message on, which shows whether the stream is the same."""
    if position is None or position.last is None:
        return snapshot
    return snapshot.clip(first=position.last[0])


def _begin_position(snapshot: ReadSnapshot, row: Any, part: int) -> StreamPosition:
    """The position of a stream that was read from its first message."""
    return StreamPosition(
        virtual=snapshot.stream_ref.virtual,
        stream=snapshot.stream_ref.stream,
        created=snapshot.created,
        first_seq=snapshot.first_seq,
        last_seq=snapshot.last_seq,
        last_ts=snapshot.last_ts,
        messages=row.new if row else 0,
        last=tuple(row.last) if row else None,
        ranges=(PartRange(part, row.first, row.last.seq),) if row else (),
    )


def _extend_position(position: StreamPosition, snapshot: ReadSnapshot, row: Any, part: int) -> StreamPosition | None:
    """*position* extended by the messages read from its last one on; None if *snapshot* has others."""
    if row is None or row.anchored is None or position.last is None or tuple(row.anchored) != position.last:
        return None
    messages = position.messages + row.new - 1
    if messages != snapshot.messages:
        return None
    added = (PartRange(part, position.last[0] + 1, row.last.seq),) if row.new > 1 else ()
    return replace(_begin_position(snapshot, row, part), messages=messages, ranges=(*position.ranges, *added))


def _clip(ranges: Iterable[PartRange], *, first: int = 0, last: int = 2**63) -> tuple[PartRange, ...]:
    """The parts of *ranges* between *first* and *last*."""
    clipped = (PartRange(item.part, max(item.first, first), min(item.last, last)) for item in ranges)
    return tuple(item for item in clipped if item.first <= item.last)
