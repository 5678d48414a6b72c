"""
What one pass over files tells: what steps back is what plain Python finds by looking at
each row, and digests are the same however rows are snapshot up, and others if any value is another.
"""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.night import repetitions
from vstream.audit.reconcile import bucket_digests
from vstream.audit.reconcile.bucket_digests import TextHashes
from vstream.audit.reconcile.order import find_disordered_segments

pytestmark = pytest.mark.spark
SEEDS = repetitions(50, night=500)
SUBSTREAMS = (7, -7)
"""Those that are asked for; there are rows of a third."""


def rows(random: Random) -> list[tuple[int, int, int]]:
    """Substream, sequence and sequence in the origin, in a reader's order."""
    result, at = [], dict.fromkeys((*SUBSTREAMS, 9), 10)
    for seq in range(random.randrange(60)):
        substream = random.choice(list(at))
        at[substream] += 1
        result.append((substream, seq, at[substream]))
    for _ in range(random.choice((0, 0, 1, 3))):
        if result:
            place = random.randrange(len(result))
            substream, seq, _ = result[place]
            result[place] = (substream, seq, random.randrange(5, 40))
    again = random.sample(result, min(len(result), random.choice((0, 0, 1, 4))))
    return sorted(result + again) if random.random() < 0.1 else sorted(result + again, key=lambda row: row[1:])


def batch(some: list[tuple[int, int, int]]) -> pa.RecordBatch:
    columns = [pa.array(column, pa.int64()) for column in zip(*some, strict=True)]
    nothing = pa.nulls(len(some), pa.string())
    return pa.RecordBatch.from_arrays([*columns, columns[0], nothing, nothing], names=list(bucket_digests.COLUMNS))


def of_files(random: Random, some: list[tuple[int, int, int]]) -> list[tuple[int, ...]]:
    """Their segments, if they are in several files, and each is read in batches."""
    snapshots = sorted(random.choices(range(len(some) + 1), k=2))
    files = [some[begin:end] for begin, end in zip([0, *snapshots], [*snapshots, len(some)], strict=True)]
    random.shuffle(files)
    result: list[tuple[int, ...]] = []
    for file in files:
        size = random.choice((1, 3, 100))
        batches = [batch(file[place : place + size]) for place in range(0, len(file), size)]
        result += [
            (message["substream"], message["seq"], message["least"], message["last_seq"], message["greatest"])
            for message in bucket_digests.fold(batches, frozenset(SUBSTREAMS), 4).to_pylist()
            if message["bucket"] is None
        ]
    return result


def test_what_steps_back_is_what_stands_behind_something_greater(monkeypatch: pytest.MonkeyPatch) -> None:
    told_of, given_up = 0, 0
    for seed in range(SEEDS):
        random = Random(seed)
        monkeypatch.setattr(bucket_digests, "MAX_SEGMENTS", random.choice((4, 1000)))
        drawn = rows(random)
        segments, unsorted = find_disordered_segments(of_files(random, drawn))
        given_up += len(unsorted)
        for substream in set(SUBSTREAMS) - unsorted:
            of_substream = sorted((seq, origin_seq) for name, seq, origin_seq in drawn if name == substream)
            expected, greatest = set(), 0
            for row in of_substream:
                if row[1] <= greatest:
                    expected.add((*row, greatest))
                greatest = max(greatest, row[1])
            told = {
                (*row, before)
                for name, (seq, least, last_seq, last, before) in segments
                if name == substream
                for row in of_substream
                if (seq, least) <= row <= (last_seq, last) and row[1] <= before
            }
            # Of two rows that are the same, only the second steps back.
            assert told >= expected, seed
            assert {row[:2] for row in told} == {row[:2] for row in expected}, seed
            told_of += len(expected)
    assert told_of > SEEDS // 2
    assert given_up


def full(random: Random) -> list[dict[str, Any]]:
    """Rows with all columns, of which those of substream 9 have no origin."""
    texts = ("", "foo", "foo.1", "1.foo", "żółw", None)
    result = []
    for substream, seq, origin_seq in rows(random):
        seq_at_origin = None if substream == 9 else origin_seq
        values = (
            substream,
            seq,
            seq_at_origin,
            random.choice((-5, 0, 2**63 - 1)),
            random.choice(texts),
            random.choice(texts),
        )
        result.append(dict(zip(bucket_digests.COLUMNS, values, strict=True)))
    return result


def digests(random: Random, some: list[dict[str, Any]], size: int) -> dict[tuple[int, int], dict[str, int]]:
    """Of these rows, if they are in several files with texts in several forms."""
    snapshot = random.randrange(len(some) + 1)
    tables = []
    for file in (some[:snapshot], some[snapshot:]):
        kinds = [pa.int64()] * 4 + [random.choice((pa.string(), pa.dictionary(pa.int32(), pa.string())))] * 2
        schema = pa.schema(list(zip(bucket_digests.COLUMNS, kinds, strict=True)))
        step = random.choice((1, 7, 1000))
        batches = [
            pa.RecordBatch.from_pylist(file[place : place + step], schema=schema) for place in range(0, len(file), step)
        ]
        tables.append(bucket_digests.fold(batches, frozenset(), size))
    table = pa.concat_tables(tables)
    told = bucket_digests.merge_digests(table.filter(pc.is_valid(table["bucket"]))).to_pylist()
    return {(row.pop("substream"), row.pop("bucket")): row for row in told}


def test_digests_do_not_depend_on_files_and_tell_every_change() -> None:
    changes = 0
    for seed in range(SEEDS // 4):
        random = Random(seed)
        drawn = full(random)
        told = digests(random, drawn, 8)
        assert told == digests(random, random.sample(drawn, len(drawn)), 8), seed
        expected = defaultdict(list)
        for row in drawn:
            place = row["seq"] if row["origin_seq"] is None else row["origin_seq"]
            expected[row["substream"], place // 8].append(row)
        assert told.keys() == expected.keys()
        for place, copies in expected.items():
            seqs = [row["origin_seq"] for row in copies if row["origin_seq"] is not None]
            assert told[place]["copies"] == len(copies)
            assert (told[place]["least"], told[place]["greatest"]) == (min(seqs, default=None), max(seqs, default=None))
            assert told[place]["with_subject"] == sum(row["sent_subject"] is not None for row in copies)
        for name, digest in (("digest", "payloads"), ("key", "keys"), ("sent_subject", "subjects")):
            if not drawn:
                continue
            changed = [dict(row) for row in drawn]
            row = random.choice(changed)
            row[name] = 77 if name == "digest" else "bar"
            after = digests(random, changed, 8)
            different = [place for place in told if told[place][digest] != after[place][digest]]
            assert [place[0] for place in different] == [row["substream"]], seed
            changes += 1
    assert changes > SEEDS // 2


def test_texts_have_hashes_of_their_own_wherever_they_stand() -> None:
    texts = [f"foo.{number}.{number * 7919}" for number in range(50_000)] + ["x" * 3_000_000, "", "x" * 3_000_001]
    column = pa.array([None, *texts, "foo.0.0"])
    hashes = TextHashes()
    hashed = hashes.hash_column(column)
    assert len(set(hashed.tolist())) == len(texts) + 1
    assert hashed[1] == hashed[-1]
    assert (hashes.hash_column(column.slice(777, 60_000)) == hashed[777:60_777]).all()
    assert (hashes.hash_column(column.dictionary_encode()) == hashed).all()
    # Another dictionary of the same length, and the first one again.
    assert (hashes.hash_column(column[::-1].dictionary_encode()) == hashed[::-1]).all()
    assert (hashes.hash_column(column.dictionary_encode().slice(5)) == hashed[5:]).all()
