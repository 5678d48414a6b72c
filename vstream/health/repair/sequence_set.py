"""A set of sequences, stored as runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class SequenceSet:
    """
    Whole numbers, kept as ascending runs: a million in a row take as much memory as one.

    Numbers that rise are added in constant time.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, runs: Iterable[tuple[int, int]] = ()) -> None:
        """Of (first, last) pairs, both inclusive, in any order."""
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for first, last in sorted(runs):
            if self._lasts and first <= self._lasts[-1] + 1:
                self._lasts[-1] = max(self._lasts[-1], last)
            elif first <= last:
                self._firsts.append(first)
                self._lasts.append(last)

    def add(self, number: int) -> bool:
        """Add *number*; False if it was there."""
        at = bisect_right(self._firsts, number) - 1
        if at >= 0 and number <= self._lasts[at]:
            return False
        joins_before = at >= 0 and self._lasts[at] == number - 1
        joins_after = at + 1 < len(self._firsts) and self._firsts[at + 1] == number + 1
        if joins_before and joins_after:
            self._lasts[at] = self._lasts.pop(at + 1)
            del self._firsts[at + 1]
        elif joins_before:
            self._lasts[at] = number
        elif joins_after:
            self._firsts[at + 1] = number
        else:
            self._firsts.insert(at + 1, number)
            self._lasts.insert(at + 1, number)
        return True

    def __contains__(self, number: int) -> bool:
        """Whether *number* is in the set."""
        at = bisect_right(self._firsts, number) - 1
        return at >= 0 and number <= self._lasts[at]

    def find_last(self, most: int) -> int | None:
        """The highest number that is at most *most*; None if there is none."""
        at = bisect_right(self._firsts, most) - 1
        return min(most, self._lasts[at]) if at >= 0 else None

    def __len__(self) -> int:
        """How many numbers."""
        return sum(last - first + 1 for first, last in self.runs())

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._firsts)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same numbers."""
        return isinstance(other, SequenceSet) and self.runs() == other.runs()

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __iter__(self) -> Iterator[int]:
        """Each number, ascending."""
        for first, last in self.runs():
            yield from range(first, last + 1)

    def __repr__(self) -> str:
        """As it could be written."""
        return f"SequenceSet({self.runs()})"

    def runs(self) -> list[tuple[int, int]]:
        """The (first, last) pairs, ascending, with a gap between any two."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def __or__(self, other: SequenceSet) -> SequenceSet:
        """What is in one of them."""
        return SequenceSet((*self.runs(), *other.runs()))

    def __sub__(self, other: SequenceSet) -> SequenceSet:
        """What *other* has not."""
        remaining: list[tuple[int, int]] = []
        removed = other.runs()
        at = 0
        for first, last in self.runs():
            while at < len(removed) and removed[at][1] < first:
                at += 1
            start, step = first, at
            while step < len(removed) and removed[step][0] <= last:
                if start < removed[step][0]:
                    remaining.append((start, removed[step][0] - 1))
                start = removed[step][1] + 1
                step += 1
            if start <= last:
                remaining.append((start, last))
        return SequenceSet(remaining)

    def restrict_to(self, first: int, last: int) -> SequenceSet:
        """The numbers from *first* to *last*."""
        return SequenceSet(
            (max(start, first), min(end, last)) for start, end in self.runs() if start <= last and end >= first
        )

    def __and__(self, other: SequenceSet) -> SequenceSet:
        """What is in both."""
        return self - (self - other)

    def describe(self, most: int = 4) -> str:
        """The first *most* runs, and how many more there are."""
        runs = self.runs()
        named = ", ".join(f"{first:,}" if first == last else f"{first:,}-{last:,}" for first, last in runs[:most])
        return named + (f" and {len(runs) - most:,} more runs" if len(runs) > most else "")
