"""Which gaps of origins are explained by messages that a reader had and that were deleted there; imports no Spark."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple


class GapAtReader(NamedTuple):
    """
    A gap of an origin, and what a reader lacks between the messages on both sides of it.

    Sequences that the reader lacks are numbered; those numbered *low* + 1 to *high* are between the two messages.
    """

    virtual: str
    origin: str
    before: int
    """The sequence in front of the gap, at the origin."""
    number: int
    """How many messages are gone."""
    reader: str
    low: int
    high: int


def find_explained(gaps: Iterable[GapAtReader]) -> list[GapAtReader]:
    """
    Those of *gaps*, all of one reader, for which each message that is gone can be another sequence that the reader lacks.

    What one gap needs, no other can have: where gaps overlap, all of them are explained, or none.
    """
    explained = []
    for group in _split_overlapping(gaps):
        if _has_enough(group):
            explained += group
    return explained


def _split_overlapping(gaps: Iterable[GapAtReader]) -> Iterator[list[GapAtReader]]:
    """Groups of *gaps* that have lacked sequences in common, in order."""
    group: list[GapAtReader] = []
    highest = 0
    for gap in sorted(gaps, key=lambda gap: gap.low):
        if group and gap.low >= highest:
            yield group
            group = []
        group.append(gap)
        highest = max(highest, gap.high)
    if group:
        yield group


def _has_enough(group: list[GapAtReader]) -> bool:
    """Whether lacked sequences can be dealt out to all of *group*, which is in order: first to the gap that ends first."""
    waiting: list[tuple[int, int]] = []
    """The end of each gap and the number that it still needs: a heap."""
    position = 0
    for index, gap in enumerate(group):
        position = max(position, gap.low)
        heapq.heappush(waiting, (gap.high, gap.number))
        until = group[index + 1].low if index + 1 < len(group) else None
        while waiting and (until is None or position < until):
            high, needed = heapq.heappop(waiting)
            share = needed if until is None else min(needed, until - position)
            position += share
            if position > high:
                return False
            if share < needed:
                heapq.heappush(waiting, (high, needed - share))
    return True
