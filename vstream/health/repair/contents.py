"""
Repair plans, as values: what restores the contents of read streams.

A message is known by its provenance: the stream that took it from its client, and its sequence there. A message that
other streams hold and a reader has passed is missing; one that a reader holds twice is a duplicate.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from vstream.health.repair.sequence_set import SequenceSet
from vstream.syntax.document import Json
from vstream.value_class import value_class

_MAX_NAMED = 10
FILLER_HEADER = "Vstream-Lost"
"""Header of a filler for a lost message that no reader has: the sequence that it fills."""
SILENCE_SECONDS = 0.5
"""Seconds without a message after which a reader may have taken what its origin then lost: that is not back sooner."""
RECREATED = "the write stream was made again since, with sequences from 1"
ADDITION = "it is an addition to a counter"
_UNFIT_HEADERS = {
    "nats-rollup": "it has `Nats-Rollup`, and would remove later messages",
    "nats-ttl": "it has `Nats-TTL`, and may have expired",
    "nats-incr": ADDITION,
    "nats-schedule": "it is a schedule",
}
"""Header prefixes of messages that are not put back late."""


@dataclass(slots=True, kw_only=True)
class OriginHoldings:
    """What one reader holds of one origin, found in one pass."""

    sequences: SequenceSet = field(default_factory=SequenceSet)
    """Sequences of the origin that it holds."""
    duplicated: SequenceSet = field(default_factory=SequenceSet)
    """Sequences that it holds more than once."""
    lowest: int = 0
    highest_sourced: int = 0
    """The highest sequence that it sourced from the origin itself, not from a replay; 0 for none."""
    newest_reader_seq: int = 0
    """The newest message, by its sequence in the reader, of the source as it is defined now."""
    newest_sourced: tuple[int, float] = (0, 0)
    """The last that it sourced from the origin itself: its sequence, and when it came, in seconds since 1970."""
    before_silences: dict[int, float] = field(default_factory=dict)
    """The same of each after which nothing came for a while, by its sequence."""
    identities: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By the origin's identity in headers, a new one each time it is created: its first and last sequence."""

    @property
    def was_recreated(self) -> bool:
        """Whether the origin was made again, with sequences that it had used before."""
        ranges = list(self.identities.values())
        return any(after[0] <= before[1] for before, after in pairwise(ranges))

    def add(
        self, *, reader_seq: int, seq: int, arrived_at: float, is_replayed: bool, is_current: bool, identity: str
    ) -> None:
        """Add one message of the reader: *reader_seq* there, where it *arrived_at* that time, and *seq* in the origin."""
        if not self.sequences.add(seq):
            self.duplicated.add(seq)
        if is_replayed:
            return
        if self.newest_sourced[0] and arrived_at - self.newest_sourced[1] >= SILENCE_SECONDS:
            self.before_silences[self.newest_sourced[0]] = self.newest_sourced[1]
        self.newest_sourced = seq, arrived_at
        self.lowest = min(self.lowest or seq, seq)
        self.highest_sourced = max(self.highest_sourced, seq)
        if is_current:
            self.newest_reader_seq = reader_seq
        if identity:
            first, last = self.identities.get(identity, (seq, seq))
            self.identities[identity] = min(first, seq), max(last, seq)

    def choose_copy_to_keep(self, copies: Sequence[int]) -> int:
        """Which of the *copies* of one message, all in the reader, stays: the first, unless servers need another."""
        # Servers before 2.15 go on behind the newest message that the source as it is defined now has brought.
        return self.newest_reader_seq if self.newest_reader_seq in copies else copies[0]


@value_class
class ExpectedRange:
    """The sequences of an origin that a reader should hold."""

    position: int | None
    """Its reported position; None on servers that do not report it."""
    is_whole: bool
    """Whether its beginning is complete: no limit removed any of it, and it was not created later."""


def find_missing_sequences(
    held: OriginHoldings, expected: ExpectedRange, elsewhere: SequenceSet, gone: SequenceSet | None = None
) -> SequenceSet:
    """
    Sequences that are held *elsewhere*, and that this reader has passed without taking them, or that are *gone*.

    Those are what its origin has no more. Not what may still come, and where its beginning is not whole, not what may
    have been dropped.
    """
    first = 1 if expected.is_whole else held.lowest
    last = held.highest_sourced if expected.position is None else expected.position
    lacks = elsewhere - held.sequences
    passed = lacks.restrict_to(first, last) | (lacks & (gone or SequenceSet())).restrict_to(first, sys.maxsize)
    return passed if first else SequenceSet()


@value_class
class Replay:
    """Messages of one origin that one reader lacks."""

    virtual: str
    reader: str
    place: str
    origin: str
    by_holder: Mapping[str, SequenceSet] = field(default_factory=dict)
    """Sequences in the origin, by the stream that holds them."""
    irreparable: Mapping[str, SequenceSet] = field(default_factory=dict)
    """Sequences that must stay missing, by reason."""
    read_to: int = 0
    """The reader has been read up to this sequence of its own: what another repair has put in since is behind it."""

    @property
    def count(self) -> int:
        """Number of messages to put back."""
        return sum(map(len, self.by_holder.values()))

    @property
    def sequences(self) -> SequenceSet:
        """Their sequences."""
        return SequenceSet(run for sequences in self.by_holder.values() for run in sequences.runs())

    def exclude(self, passed: SequenceSet, lost: Mapping[str, SequenceSet]) -> Replay:
        """The same without what is *passed*. What of that is *lost* for good is named, by reason."""
        fit = {holder: sequences - passed for holder, sequences in self.by_holder.items()}
        by_holder = {holder: sequences for holder, sequences in fit.items() if sequences}
        return replace(self, by_holder=by_holder, irreparable={**self.irreparable, **lost})

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            **_name_missing(self, self.sequences),
            "from": {name: len(sequences) for name, sequences in sorted(self.by_holder.items())},
            "irreparable": {reason: len(sequences) for reason, sequences in sorted(self.irreparable.items())},
        }


@value_class
class ReusedSequences:
    """Sequences at which an origin has other messages by now than a reader took: the reader never takes these."""

    virtual: str
    reader: str
    place: str
    origin: str
    sequences: SequenceSet

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return _name_missing(self, self.sequences)


def _name_missing(item: Replay | ReusedSequences, sequences: SequenceSet) -> dict[str, Json]:
    return {
        "stream": item.virtual,
        "reader": item.reader,
        "place": item.place,
        "origin": item.origin,
        "missing": len(sequences),
        "runs": [list(run) for run in sequences.runs()[:_MAX_NAMED]],
    }


def find_obstacle(subject: str, headers: Iterable[str]) -> str:
    """Why a message on *subject*, with *headers*, cannot be put back, whatever else is there; empty if it can."""
    # What servers write into JSON for bytes that are not UTF-8.
    if "\ufffd" in subject:
        return "its subject is not UTF-8"
    names = [name.lower() for name in headers]
    reasons = (reason for name in names for unfit, reason in _UNFIT_HEADERS.items() if name.startswith(unfit))
    return next(reasons, "")


class SubjectRank(NamedTuple):
    """Where a message stands among those of its origin on its subject."""

    is_newest: bool
    has_older_in_reader: bool
    """Whether the reader has an older one: no limit has removed this one."""


class MissingMessage(NamedTuple):
    """A message that its reader may have lost. They are sorted by when they were written."""

    written_at: float
    origin: str
    seq: int
    subject: str
    obstacle: str
    """Why it cannot be put back, whatever else is there; empty if it can."""
    rank: SubjectRank


@value_class
class DuplicatePair:
    """One message that a reader holds twice: the sequences of the copy that stays and of the one to delete."""

    origin: str
    origin_seq: int
    kept_seq: int
    deleted_seq: int
    difference: str | None
    """How they differ; None if they are equal."""


@value_class
class Duplicates:
    """What one reader holds more than once."""

    virtual: str
    reader: str
    place: str
    count: int
    """Number of copies to delete."""
    examples: tuple[DuplicatePair, ...]
    """The first of them."""
    differing: Mapping[str, int]
    """Number of copies that stay because they differ, by what differs."""
    differing_examples: tuple[DuplicatePair, ...] = ()
    """The first of the copies that stay."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.virtual,
            "reader": self.reader,
            "place": self.place,
            "copies": self.count,
            "examples": [asdict(pair) for pair in self.examples],
            "differing": sum(self.differing.values()),
            "differing_examples": [asdict(pair) for pair in self.differing_examples],
        }


class DuplicateTally:
    """Counts duplicates as they are found, and keeps the first ones."""

    def __init__(self) -> None:
        self._same: list[DuplicatePair] = []
        self._different: list[DuplicatePair] = []
        self._counts: Counter[str | None] = Counter()
        """Of copies, by what differs; None for those in which nothing does."""

    def add(self, pair: DuplicatePair) -> None:
        """Add one."""
        self._counts[pair.difference] += 1
        examples = self._same if pair.difference is None else self._different
        if len(examples) < _MAX_NAMED:
            examples.append(pair)

    def make_duplicates(self, virtual: str, reader: str, place: str) -> Duplicates:
        """All duplicates that were added."""
        return Duplicates(
            virtual=virtual,
            reader=reader,
            place=place,
            count=self._counts[None],
            examples=tuple(self._same),
            differing={reason: count for reason, count in self._counts.items() if reason is not None},
            differing_examples=tuple(self._different),
        )


@value_class
class ContentRepairs:
    """What is wrong with what streams hold, and what to do about it."""

    replays: tuple[Replay, ...] = ()
    reused: tuple[ReusedSequences, ...] = ()
    duplicates: tuple[Duplicates, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)
    """Streams that could not be read, with the reason."""


@value_class
class RepairedContents:
    """What was done about `ContentRepairs`, and what was not."""

    replayed: tuple[Replay, ...] = ()
    """With the messages that were put in."""
    deleted: tuple[Duplicates, ...] = ()
    """With the number of copies that were deleted."""
    still_open: tuple[str, ...] = ()
    """What remains, in words."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The names of what was repaired."""
        return (*(replay.reader for replay in self.replayed), *(duplicates.reader for duplicates in self.deleted))
