"""How far one order is from another: counted as the messages that would have to be moved."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def find_displaced(ranks: Sequence[int]) -> list[int]:
    """
    The places whose ranks would have to be moved for *ranks* to rise strictly: as few as can be.

    Ascending. Takes n log n steps at most, and n where nothing is out of order.
    """
    before = None
    for rank in ranks:
        if before is not None and rank <= before:
            return _outside_longest_rise(ranks)
        before = rank
    return []


def _outside_longest_rise(ranks: Sequence[int]) -> list[int]:
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
