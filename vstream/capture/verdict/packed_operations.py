"""Operations of one kind on one stream in one region, packed: a million take 25 MB; and quantiles of what they took."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from math import ceil

from vstream.capture.records import OperationOutcome, OperationRecord
from vstream.capture.verdict.model import Distribution

OK, REJECTED, INDETERMINATE = range(3)
CODES = {OperationOutcome.OK: OK, OperationOutcome.REJECTED: REJECTED, OperationOutcome.INDETERMINATE: INDETERMINATE}


class OperationLog:
    """When each operation was due, and how it ended. Read it after `sort`."""

    __slots__ = ("due", "late", "outcomes", "took")

    def __init__(self) -> None:
        self.due = array("q")
        self.late = array("q")
        """Nanoseconds between due and sent."""
        self.took = array("q")
        """Nanoseconds between sent and done; -1 without an answer."""
        self.outcomes = bytearray()

    def add(self, operation: OperationRecord) -> None:
        """Append *operation*."""
        self.due.append(operation.due)
        self.late.append(operation.sent - operation.due)
        self.took.append(-1 if operation.done is None else operation.done - operation.sent)
        self.outcomes.append(CODES[operation.outcome])

    def sort(self) -> None:
        """Sort by due time."""
        order = sorted(range(len(self.due)), key=self.due.__getitem__)
        self.due = array("q", map(self.due.__getitem__, order))
        self.late = array("q", map(self.late.__getitem__, order))
        self.took = array("q", map(self.took.__getitem__, order))
        self.outcomes = bytearray(map(self.outcomes.__getitem__, order))

    def find_range(self, start: int, end: int) -> tuple[int, int]:
        """The index range of operations that were due from *start* on and before *end*."""
        return bisect_left(self.due, start), bisect_left(self.due, end)

    def durations(self, low: int, high: int) -> list[int]:
        """Durations of the successful operations at the indexes *low* to *high*."""
        outcomes, took = self.outcomes, self.took
        return [took[index] for index in range(low, high) if not outcomes[index] and took[index] >= 0]

    def longest_gap(self, low: int, high: int, end: int) -> int:
        """The longest time without a success: from the first failure to the next success, or to *end*."""
        longest = 0
        index = low
        while (failed := self.find_next_failure(index, high)) < high:
            index = self.find_next_success(failed, high)
            longest = max(longest, (self.due[index] if index < high else end) - self.due[failed])
        return longest

    def find_next_failure(self, low: int, high: int) -> int:
        """The index of the first failure at or after *low*; *high* if there is none."""
        failures = [index for code in (REJECTED, INDETERMINATE) if (index := self.outcomes.find(code, low, high)) >= 0]
        return min(failures, default=high)

    def find_next_success(self, low: int, high: int) -> int:
        """The index of the first success at or after *low*; *high* if there is none."""
        index = self.outcomes.find(OK, low, high)
        return index if index >= 0 else high

    def find_last_failure(self, low: int, high: int) -> int | None:
        """The index of the last failure."""
        index = max(self.outcomes.rfind(code, low, high) for code in (REJECTED, INDETERMINATE))
        return index if index >= 0 else None

    def count(self, code: int, low: int, high: int) -> int:
        """How many operations at the indexes *low* to *high* ended with *code*."""
        return self.outcomes.count(code, low, high)


def quantile(ordered: Sequence[int], share: float) -> int:
    """The quantile *share* (0 to 1) of the sorted values *ordered*, by nearest rank."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


def summarize(values: Iterable[int]) -> Distribution | None:
    """The distribution of *values*; None if empty."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Distribution(count=len(ordered), p50=quantile(ordered, 0.5), p99=quantile(ordered, 0.99), max=ordered[-1])
