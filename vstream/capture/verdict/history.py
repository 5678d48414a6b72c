"""What clients did, packed: one pass over the operations is enough for every check."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from vstream.capture.records import OperationKind, OperationRecord
from vstream.capture.store import Capture
from vstream.capture.verdict.model import PublishTally
from vstream.capture.verdict.packed_operations import CODES, OK, REJECTED, OperationLog

NO_VALUE = -1
_DIGEST_BASE = 16
_MAX_ERRORS = 20
"""Different errors counted per region; the rest is counted together."""


class StringTable:
    """Maps strings to small numbers and back."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []

    def number(self, text: str) -> int:
        """The number of *text*; a new string gets a new number."""
        number = self._numbers.setdefault(text, len(self._texts))
        if number == len(self._texts):
            self._texts.append(text)
        return number

    def text(self, number: int) -> str:
        """The string with *number*."""
        return self._texts[number]


class Attempts:
    """
    The publishes on one virtual stream. All arrays are indexed by attempt number.

    Subjects and digests are kept as 64-bit numbers, 0 for none. They are compared and never shown.
    """

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        """By id."""
        self.repeated: list[str] = []
        """Ids of more than one operation: a capture must have none."""
        self.regions = StringTable()
        self.streams = StringTable()
        self.region = array("H")
        self.outcomes = bytearray()
        self.due = array("q")
        self.sent = array("q")
        self.done = array("q")
        self.subject = array("q")
        self.digest = array("Q")
        self.acked_by = array("h")
        self.acked_seq = array("q")
        """-1 also where the acknowledgement was of an earlier attempt."""

    def __len__(self) -> int:
        """How many there are."""
        return len(self.outcomes)

    def add(self, operation: OperationRecord) -> None:
        """Append a publish that has an id."""
        assert operation.id is not None
        number = self.numbers.setdefault(operation.id, len(self.outcomes))
        if number != len(self.outcomes):
            self.repeated.append(operation.id)
            return
        self.outcomes.append(CODES[operation.outcome])
        self.region.append(self.regions.number(operation.region))
        self.due.append(operation.due)
        self.sent.append(operation.sent)
        self.done.append(NO_VALUE if operation.done is None else operation.done)
        # The subject of a `try` is the name of what was tried.
        has_subject = operation.kind is OperationKind.PUBLISH and operation.subject is not None
        self.subject.append(hash(operation.subject) if has_subject else 0)
        self.digest.append(parse_digest(operation.digest))
        self.acked_by.append(NO_VALUE if operation.acked_by is None else self.streams.number(operation.acked_by))
        self.acked_seq.append(NO_VALUE if operation.seq is None or operation.is_duplicate else operation.seq)

    def is_acked(self, number: int) -> bool:
        """Whether a stream acknowledged it."""
        return self.outcomes[number] == OK

    def is_rejected(self, number: int) -> bool:
        """Whether it was refused, or never sent."""
        return self.outcomes[number] == REJECTED

    def ids(self) -> list[str]:
        """All ids by number. Expensive; only for examples."""
        return list(self.numbers)


class _TallyBuilder:
    """A tally that grows."""

    def __init__(self) -> None:
        self.outcomes = [0, 0, 0]
        self.retried = 0
        self.errors: Counter[str] = Counter()

    def add(self, operation: OperationRecord) -> None:
        self.outcomes[CODES[operation.outcome]] += 1
        self.retried += operation.attempts > 1
        if operation.error is not None:
            existing = operation.error in self.errors or len(self.errors) < _MAX_ERRORS
            self.errors[operation.error if existing else "other errors"] += 1

    def tally(self) -> PublishTally:
        acknowledged, rejected, indeterminate = self.outcomes
        return PublishTally(
            attempted=sum(self.outcomes),
            acknowledged=acknowledged,
            rejected=rejected,
            indeterminate=indeterminate,
            retried=self.retried,
            errors=dict(self.errors.most_common()),
        )


class History:
    """All operations of a capture."""

    def __init__(self) -> None:
        self.attempts: defaultdict[str, Attempts] = defaultdict(Attempts)
        """By virtual stream."""
        self.publishes: defaultdict[tuple[str, str], OperationLog] = defaultdict(OperationLog)
        """By virtual stream and region, as all below."""
        self.reads: defaultdict[tuple[str, str], OperationLog] = defaultdict(OperationLog)
        self.fetches: defaultdict[tuple[str, str], OperationLog] = defaultdict(OperationLog)
        self.trials: list[OperationRecord] = []
        self.read_ids: defaultdict[tuple[str, str], dict[str, OperationRecord]] = defaultdict(dict)
        """Ids that were read when no publish of them was known yet, with the first operation that did."""
        self._counts: defaultdict[tuple[str, str], _TallyBuilder] = defaultdict(_TallyBuilder)

    def add(self, operation: OperationRecord) -> None:
        """Add one operation."""
        key = (operation.stream, operation.region)
        if operation.kind is OperationKind.READ:
            self.reads[key].add(operation)
            if operation.id is not None and operation.id not in self.attempts[operation.stream].numbers:
                self.read_ids[key].setdefault(operation.id, operation)
            return
        if operation.kind is OperationKind.FETCH:
            self.fetches[key].add(operation)
            return
        if operation.kind is OperationKind.TRY:
            self.trials.append(operation)
            if operation.id is None or operation.subject != "publish":
                return
        else:
            self.publishes[key].add(operation)
        self._counts[key].add(operation)
        if operation.id is not None:
            self.attempts[operation.stream].add(operation)

    def tallies(self, stream: str) -> Mapping[str, PublishTally]:
        """Outcomes of the publishes on *stream*, by region."""
        return {region: count.tally() for (name, region), count in self._counts.items() if name == stream}

    def sort_by_regions(self, regions: Sequence[str]) -> None:
        """Sort everything by *regions*, the order of reports."""
        places = {region: place for place, region in enumerate(regions)}

        def place(key: tuple[str, str]) -> tuple[str, int, str]:
            stream, region = key
            return stream, places.get(region, len(places)), region

        tables: tuple[dict[tuple[str, str], Any], ...] = (self.publishes, self.reads, self.fetches, self._counts)
        for table in tables:
            for key in sorted(table, key=place):
                table[key] = table.pop(key)

    def list_logs(self) -> Iterator[OperationLog]:
        """The logs of publishes, reads and fetches."""
        for logs in (self.publishes, self.reads, self.fetches):
            yield from logs.values()

    def lateness(self) -> Iterator[int]:
        """How late each publish, read and fetch was sent after it was due."""
        return chain.from_iterable(calls.late for calls in self.list_logs())

    def last_due(self) -> int:
        """When the last operation was due."""
        return max((calls.due[-1] for calls in self.list_logs() if calls.due), default=0)


def read_history(capture: Capture) -> History:
    """Read every operation of *capture*."""
    history = History()
    for operation in capture.operations():
        history.add(operation)
    history.sort_by_regions(capture.manifest().regions)
    for calls in history.list_logs():
        calls.sort()
    for (stream, _), unknown in history.read_ids.items():
        for entry in [item for item in unknown if item in history.attempts[stream].numbers]:
            del unknown[entry]
    return history


def parse_digest(text: str | None) -> int:
    """A digest as a number; 0 if there is none."""
    return 0 if text is None else int(text, _DIGEST_BASE) or 1
