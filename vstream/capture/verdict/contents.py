"""Compare one physical stream's contents with what was published."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from vstream.capture.records import CapturedStream, Manifest, StoredRecord
from vstream.capture.store import Capture
from vstream.capture.verdict.context import CaptureContext, ExampleCollector, ExampleFactory
from vstream.capture.verdict.history import NO_VALUE, Attempts, StringTable, parse_digest
from vstream.capture.verdict.model import Affected, PhysicalStreamVerdict
from vstream.errors import VstreamError
from vstream.topology.naming import PHYSICAL_PREFIX, PUBLISH_PREFIX
from vstream.value_class import value_class

_MAX_COPIES_COUNTED = 2
"""Copies are counted up to this number: one, or more than one."""

_Ranking = tuple["array[int]", "array[int]"]
"""Positions in a stream, and the rank of the message at each position."""
READ_ROLES = frozenset({"read", "mirror"})
"""Roles of streams that clients read and never publish to."""
_BETWEEN = frozenset({"order"})
"""Roles of streams between write and read streams."""
_EMPTY = frozenset({"catalog"})
"""Roles of streams that never hold a message: they exist to be found by name."""


def _make_ranking() -> _Ranking:
    return array("q"), array("q")


class AttemptLedger:
    """What the streams read so far say about each publish attempt, by attempt number."""

    def __init__(self, attempts: Attempts) -> None:
        count = len(attempts)
        self.attempts = attempts
        self.streams = StringTable()
        self.write_stream = array("h", [NO_VALUE]) * count
        """The stream that was published to, if it holds the message."""
        self.write_seq = array("q", [NO_VALUE]) * count
        self.stored_at = array("q", [NO_VALUE]) * count
        """When it was stored there, on the wall clock; else when it was acknowledged."""
        self.digest = array("Q", attempts.digest)


class StreamScan:
    """
    The contents of one physical stream, packed.

    The arrays have one entry per workload message, in stream order and without duplicates.
    """

    def __init__(
        self,
        captured: CapturedStream,
        ledger: AttemptLedger,
        examples: ExampleFactory,
        context: CaptureContext,
        *,
        is_write: bool,
    ) -> None:
        self.captured = captured
        self.is_write = is_write
        """Whether it is published to."""
        self.error: str | None = captured.error
        self.rows = 0
        self.first_seq = 0
        self.last_seq = 0
        self.numbers = array("i")
        self.seqs = array("q")
        self.times = array("q")
        self.origins = array("h")
        self.origin_seqs = array("q")
        self.copies = bytearray(len(ledger.attempts))
        """By number: 0, 1, or 2 for more."""
        self.duplicated = ExampleCollector()
        self.unexpected = ExampleCollector()
        self.reordered = ExampleCollector()
        self.altered = 0
        self._ledger = ledger
        self._examples = examples
        self._context = context

    @property
    def removed_count(self) -> int:
        """Number of messages that the stream once held and has removed."""
        return self.last_seq - self.rows

    def as_verdict(self, diverged: Affected) -> PhysicalStreamVerdict:
        """The verdict on this stream; *diverged* are the messages that it lacks, and another has."""
        return PhysicalStreamVerdict(
            name=self.captured.name,
            region=self.captured.region,
            role=self.captured.role,
            stored=None if self.error is not None else self.rows,
            error=self.error,
            duplicated=self.duplicated.as_affected(),
            unexpected=self.unexpected.as_affected(),
            altered=self.altered,
            diverged=diverged,
            reordered=self.reordered.as_affected(),
        )

    def judge(self, capture: Capture) -> None:
        """
        Read the contents, and compare their order with what is known by now.

        Write streams come first: what they hold goes into the ledger, and the order of copies is compared with that.
        """
        self._read(capture)
        if self.is_write:
            self._enter_in_ledger()
            self._compare_with_acks()
        else:
            self._compare_with_origins()
        # Only the order checks needed them.
        self.origins = array("h")
        self.origin_seqs = array("q")

    def _read(self, capture: Capture) -> None:
        """Read the contents. If reading fails, `error` says why, and what was read so far is kept."""
        if self.error is not None or self.captured.messages is None:
            self.error = self.error or "it was not read"
            return
        try:
            self._read_rows(capture.read_stored(self.captured.name))
        except VstreamError as error:
            self.error = error.message
            return
        if self.error is None and self.rows != self.captured.messages:
            self.error = f"the capture holds {self.rows:,} of its {self.captured.messages:,} messages"

    def _read_rows(self, rows: Iterator[StoredRecord]) -> None:
        # Millions of rows pass here: what the loop needs is at hand.
        ledger, copies, is_write, home = self._ledger, self.copies, self.is_write, self._ledger.write_stream
        numbers, digests, subjects = ledger.attempts.numbers, ledger.digest, ledger.attempts.subject
        keep, keep_seq, keep_time = self.numbers.append, self.seqs.append, self.times.append
        keep_origin, keep_origin_seq = self.origins.append, self.origin_seqs.append
        origins: dict[str | None, int] = {None: NO_VALUE}
        count = seq = 0
        for row in rows:
            count += 1
            if row.seq <= seq and self.error is None:
                self.error = (
                    f"its sequence {row.seq:,} comes after {seq:,}" if count > 1 else f"it begins with {row.seq:,}"
                )
            seq = row.seq
            number = numbers.get(row.id) if row.id is not None else None
            if number is None:
                self._add_unpublished(row)
                continue
            digest = parse_digest(row.digest)
            if not digests[number]:
                digests[number] = digest
            requested = subjects[number]
            if digest != digests[number]:
                self._add_altered(number, row, "with a payload that differs from the published one")
            elif requested and hash(row.subject) != requested and not self._is_mapped(row.subject, requested):
                self._add_altered(number, row, f"with another subject than it was published on: `{row.subject}`")
            if copies[number]:
                copies[number] = _MAX_COPIES_COUNTED
                self._add(self.duplicated, number, row.seq, row.time, "stored again")
                continue
            copies[number] = 1
            keep(number)
            keep_seq(seq)
            keep_time(row.time)
            keep_origin(origins.setdefault(row.origin, len(origins)))
            keep_origin_seq(NO_VALUE if row.origin_seq is None else row.origin_seq)
            if is_write and home[number] != NO_VALUE:
                self._add_second_home(number, row)
        self.rows, self.last_seq = count, seq
        self.first_seq = self.seqs[0] if self.seqs else 0

    def _is_mapped(self, subject: str, requested: int) -> bool:
        """Whether *subject* is a physical form of the virtual subject whose hash is *requested*."""
        if self.captured.role in READ_ROLES:
            return False
        tokens = subject.split(".")
        if tokens[0] != PHYSICAL_PREFIX:
            return hash(".".join([*tokens[:1], *tokens[2:]])) == requested
        # In a domain what stands before it is shorter.
        return requested in {hash(".".join(tokens[3:])), hash(subject.removeprefix(f"{PUBLISH_PREFIX}."))}

    def _add_unpublished(self, row: StoredRecord) -> None:
        detail = "never published" if row.id is not None else "not a message of the workload"
        self.unexpected.add(self._examples.describe_row(row, detail, stream=self.captured.name))

    def _add_altered(self, number: int, row: StoredRecord, how: str) -> None:
        self.altered += 1
        self._add(self.unexpected, number, row.seq, row.time, f"stored {how}")

    def _add_second_home(self, number: int, row: StoredRecord) -> None:
        first = self._ledger.streams.text(self._ledger.write_stream[number])
        self._add(self.duplicated, number, row.seq, row.time, f"stored in {first} too")

    def _add(self, to: ExampleCollector, number: int, seq: int, time: int, detail: str) -> None:
        if not to.wants_more:
            to.count += 1
            return
        moment = self._context.shift_to_start(time)
        to.add(self._examples.describe_attempt(number, detail, stream=self.captured.name, seq=seq, at=moment))

    def list_absent(self) -> Iterator[int]:
        """The attempts that the stream does not hold."""
        number = self.copies.find(0)
        while number >= 0:
            yield number
            number = self.copies.find(0, number + 1)

    def _enter_in_ledger(self) -> None:
        """Enter the messages of a write stream into the ledger: their place, and when they were written."""
        ledger, attempts = self._ledger, self._ledger.attempts
        home = ledger.streams.number(self.captured.name)
        name = attempts.streams.number(self.captured.name)
        region = attempts.regions.number(self.captured.region)
        for number, seq, time in zip(self.numbers, self.seqs, self.times, strict=True):
            # Of a message in two streams, the one that acknowledged it tells its place.
            by = attempts.acked_by[number]
            is_own = by == name if by != NO_VALUE else attempts.region[number] == region
            if is_own or ledger.write_stream[number] == NO_VALUE:
                ledger.write_stream[number], ledger.write_seq[number], ledger.stored_at[number] = home, seq, time

    def _compare_with_acks(self) -> None:
        """Compare the order of a write stream's messages with the sequences in their acknowledgements."""
        attempts, (places, ranks) = self._ledger.attempts, _make_ranking()
        name = attempts.streams.number(self.captured.name)
        for place, number in enumerate(self.numbers):
            if attempts.acked_by[number] == name and attempts.acked_seq[number] >= 0:
                places.append(place)
                ranks.append(attempts.acked_seq[number])
        self._add_reordered([(places, ranks)], "not in the order of the acknowledgements")

    def _compare_with_origins(self) -> None:
        """
        Compare the order of each origin's messages with its write stream.

        This is done twice: by the sequences in the headers, and by the contents of the write streams. Each sees what
        the other cannot; the larger count is reported.
        """
        if self._is_in_order():
            return
        ledger = self._ledger
        told: defaultdict[int, _Ranking] = defaultdict(_make_ranking)
        held: defaultdict[int, _Ranking] = defaultdict(_make_ranking)
        rows = zip(self.numbers, self.origins, self.origin_seqs, strict=True)
        for place, (number, origin, seq) in enumerate(rows):
            if seq != NO_VALUE:
                places, ranks = told[origin]
                places.append(place)
                ranks.append(seq)
            home = ledger.write_stream[number]
            if home != NO_VALUE:
                places, ranks = held[home]
                places.append(place)
                ranks.append(ledger.write_seq[number])
        self._add_reordered(told.values(), "out of its origin's order, by the sequences in the headers")
        by_headers, self.reordered = self.reordered, ExampleCollector()
        self._add_reordered(held.values(), "out of the order of its write stream")
        if by_headers.count >= self.reordered.count:
            self.reordered = by_headers

    def _is_in_order(self) -> bool:
        """Whether both ways to tell an origin's order find nothing, which is quick to see."""
        home, home_seq = self._ledger.write_stream, self._ledger.write_seq
        told: dict[int, int] = {}
        held: dict[int, int] = {}
        for number, origin, seq in zip(self.numbers, self.origins, self.origin_seqs, strict=True):
            if seq != NO_VALUE:
                if seq <= told.get(origin, NO_VALUE):
                    return False
                told[origin] = seq
            written_to = home[number]
            if written_to != NO_VALUE:
                rank = home_seq[number]
                if rank <= held.get(written_to, NO_VALUE):
                    return False
                held[written_to] = rank
        return True

    def _add_reordered(self, groups: Iterable[_Ranking], detail: str) -> None:
        for places, ranks in groups:
            for item in find_displaced(ranks):
                place = places[item]
                self._add(self.reordered, self.numbers[place], self.seqs[place], self.times[place], detail)


def find_displaced(ranks: Sequence[int]) -> list[int]:
    """
    The fewest positions whose ranks must move for *ranks* to rise strictly, in ascending order.

    Takes at most n log n steps, and n if everything is in order.
    """
    before = None
    for rank in ranks:
        if before is not None and rank <= before:
            return _list_outside_longest_rise(ranks)
        before = rank
    return []


def _list_outside_longest_rise(ranks: Sequence[int]) -> list[int]:
    # The longest rising subsequence: `tails[k]` ends the one of length k + 1 whose last rank is lowest.
    tails: list[int] = []
    places: list[int] = []
    previous: list[int] = []
    for place, rank in enumerate(ranks):
        length = bisect_left(tails, rank)
        if length == len(tails):
            tails.append(rank)
            places.append(place)
        else:
            tails[length] = rank
            places[length] = place
        previous.append(places[length - 1] if length else -1)
    stored = bytearray(len(ranks))
    place = places[-1]
    while place >= 0:
        stored[place] = 1
        place = previous[place]
    return [place for place, keep in enumerate(stored) if not keep]


@value_class
class Layout:
    """The physical streams of one virtual stream."""

    writes: tuple[CapturedStream, ...]
    """The streams that acknowledge publishes."""
    copies: tuple[CapturedStream, ...]
    """The streams that get their messages from others."""
    served: Mapping[str, CapturedStream | None]
    """The stream that clients read, by region. None: it should exist, and is not in the capture."""


def find_layout(manifest: Manifest, stream: str, published: Iterable[str]) -> Layout:
    """
    The layout of the virtual *stream*; *published* are the regions that published on it.

    A region without a read stream reads the write stream if there is exactly one.
    """
    captured = [item for item in manifest.streams if item.virtual == stream and item.role not in _EMPTY]
    writes = tuple(item for item in captured if item.role not in READ_ROLES | _BETWEEN)
    reads = {item.region: item for item in captured if item.role in READ_ROLES}
    alone = writes[0] if len(writes) == 1 and manifest.models.get(stream) != "virtual" else None
    requested = {item.region for item in captured} | set(published)
    living = [region for region in manifest.regions if region not in manifest.absent]
    regions = [region for region in living if alone is not None or region in requested]
    return Layout(
        writes=writes,
        copies=tuple(item for item in captured if item.role in READ_ROLES | _BETWEEN),
        served={region: reads.get(region, alone) for region in regions},
    )
