"""Order, told from stretches of files: what steps back is what plain Python finds by looking at each row."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from vstream.audit.order import merged
from vstream.audit.source import order

pytestmark = pytest.mark.spark
TRACKS = (7, -7)
"""Those that are asked for; there are rows of a third."""


def rows(random: Random) -> list[tuple[int, int, int]]:
    """Track, sequence and sequence in the origin, in a reader's order."""
    found, at = [], dict.fromkeys((*TRACKS, 9), 10)
    for seq in range(random.randrange(60)):
        track = random.choice(list(at))
        at[track] += 1
        found.append((track, seq, at[track]))
    for _ in range(random.choice((0, 0, 1, 3))):
        if found:
            place = random.randrange(len(found))
            track, seq, _ = found[place]
            found[place] = (track, seq, random.randrange(5, 40))
    again = random.sample(found, min(len(found), random.choice((0, 0, 1, 4))))
    return sorted(found + again) if random.random() < 0.1 else sorted(found + again, key=lambda row: row[1:])


def of_files(random: Random, some: list[tuple[int, int, int]]) -> list[tuple[int, ...]]:
    """Their stretches, if they are in several files, and each is read in batches."""
    cuts = sorted(random.choices(range(len(some) + 1), k=2))
    files = [some[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(some)], strict=True)]
    random.shuffle(files)
    found: list[tuple[int, ...]] = []
    for file in files:
        size = random.choice((1, 3, 100))
        batches = [
            pa.RecordBatch.from_arrays(
                [pa.array(column, pa.int64()) for column in zip(*file[place : place + size], strict=True)],
                names=["track", "seq", "origin_seq"],
            )
            for place in range(0, len(file), size)
        ]
        found += order.stretches(batches, frozenset(TRACKS))
    return found


def test_what_steps_back_is_what_stands_behind_something_greater(monkeypatch: pytest.MonkeyPatch) -> None:
    told_of, given_up = 0, 0
    for seed in range(2000):
        random = Random(seed)
        monkeypatch.setattr(order, "MOST", random.choice((4, 1000)))
        some = rows(random)
        found, unsorted = merged(of_files(random, some))
        given_up += len(unsorted)
        for track in set(TRACKS) - unsorted:
            own = sorted((seq, origin_seq) for name, seq, origin_seq in some if name == track)
            expected, greatest = set(), 0
            for row in own:
                if row[1] <= greatest:
                    expected.add((*row, greatest))
                greatest = max(greatest, row[1])
            told = {
                (*row, before)
                for name, (seq, least, last_seq, last, before) in found
                if name == track
                for row in own
                if (seq, least) <= row <= (last_seq, last) and row[1] <= before
            }
            # Of two rows that are the same, only the second steps back.
            assert told >= expected, seed
            assert {row[:2] for row in told} == {row[:2] for row in expected}, seed
            told_of += len(expected)
    assert told_of > 1000
    assert given_up
