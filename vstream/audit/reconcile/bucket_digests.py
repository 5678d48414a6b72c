"""
Reconcile: which digests and which order one file or partition of `copies` has.

Only six columns of a file are read, a few hundred thousand rows at a time. The result has
one row for each bucket, and a few rows for the order. Needs only what executors have: the
standard library, pyarrow and numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from vstream.audit.connector.columns import BATCH_ROWS, combine_batches
from vstream.audit.tables.schema import make_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

_HASH_BASE: Final = 0xD6E8FEB86659FD93
_HASH_BASE_INVERSE: Final = pow(_HASH_BASE, -1, 1 << 64)
_HASH_OF_NULL: Final = np.uint64(0xA0761D6478BD642F)
"""The number that represents null."""
_HASHED_TEXT_BYTES: Final = 1 << 20
"""Number of bytes of text that are hashed together."""
_HASH_BASE_POWERS: Final[list[NDArray[np.uint64]]] = [np.ones(1, np.uint64), np.ones(1, np.uint64)]
COLUMNS: Final = ("substream", "seq", "origin_seq", "digest", "key", "sent_subject")
"""The columns of `message_copies.COPIES` that are read."""
_SEGMENT_COLUMNS: Final = ("seq", "least", "last_seq", "greatest")
DIGEST_COLUMNS: Final = ("copies", "payloads", "keys", "subjects", "with_subject")
"""The columns of `buckets.BUCKETS` that are sums: those of several files can be added."""
FOLDED: Final = make_schema("""
    substream bigint not null, bucket bigint, copies bigint, payloads bigint, keys bigint, subjects bigint,
    with_subject bigint, least bigint, greatest bigint, seq bigint, last_seq bigint
""")
"""
Columns of FOLDED. Rows with a *bucket* are digests, as in `buckets.BUCKETS`; *least* and *greatest* are null
if a substream has no origin. Rows without a bucket are segments: adjacent rows of a substream in a file with
non-decreasing sequences and increasing sequences in the origin, from *seq* and *least* to *last_seq* and *greatest*.
"""
MAX_SEGMENTS: Final = 10_000
"""Maximum number of segments of a substream in a file; a substream with more is `GIVEN_UP_LAST_SEQ`."""
GIVEN_UP_LAST_SEQ: Final = -1
"""A *last_seq* that marks a substream that is too much out of order in a file."""
_MIN_ADJACENT_ROWS: Final = 8
"""If buckets have fewer adjacent rows than this on average, rows are sorted first."""


def mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each value, so that they all depend on each other (the last step of SplitMix64)."""
    values = values ^ (values >> np.uint64(30))
    values *= np.uint64(0xBF58476D1CE4E5B9)
    values ^= values >> np.uint64(27)
    values *= np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return values


class TextHashes:
    """Hashes texts, null included. Each text in a dictionary that several arrays share is hashed once."""

    def __init__(self) -> None:
        self._dictionary: pa.Array | None = None
        self._known = np.empty(0, np.uint64)

    def hash_column(self, column: pa.Array) -> NDArray[np.uint64]:
        """The hashes of *column*."""
        if pa.types.is_dictionary(column.type):
            existing = self._hash_dictionary(column.dictionary)
            return existing[column.indices.fill_null(len(existing) - 1).to_numpy()]  # type: ignore[no-any-return]
        result = _hash_texts(column)
        if column.null_count:
            result[column.is_null().to_numpy(zero_copy_only=False)] = _HASH_OF_NULL
        return result

    def _hash_dictionary(self, texts: pa.Array) -> NDArray[np.uint64]:
        # To compare texts takes a fortieth of the time.
        if self._dictionary is None or not texts.equals(self._dictionary):
            self._dictionary, self._known = texts, np.append(_hash_texts(texts), _HASH_OF_NULL)
        return self._known


def _hash_texts(texts: pa.Array) -> NDArray[np.uint64]:
    """
    A polynomial of the bytes of each text, modulo 2⁶⁴, from differences of one running sum.

    The sum before the text is subtracted, and the result is divided by the power with which the text begins.
    """
    texts = texts.cast(pa.large_binary())
    _, places, data = texts.buffers()
    result = np.full(len(texts), _HASH_OF_NULL)
    if data is None or not len(texts):
        return result
    ends = np.frombuffer(places, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    content = np.frombuffer(data, np.uint8)
    begin = 0
    while begin < len(texts):
        # At least one text, however long it is.
        end = max(begin + 1, int(np.searchsorted(ends, ends[begin] + _HASHED_TEXT_BYTES, side="right")) - 1)
        end = min(end, len(texts))
        result[begin:end] = _hash_block(content[ends[begin] : ends[end]], ends[begin : end + 1] - ends[begin])
        begin = end
    return result


def _hash_block(content: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
    powers, inverses = _powers(len(content) + 1)
    sums = np.zeros(len(content) + 1, np.uint64)
    np.cumsum(_HASH_OF_BYTE[content] * powers[: len(content)], out=sums[1:])
    lengths = np.diff(ends).view(np.uint64)
    return mix((sums[ends[1:]] - sums[ends[:-1]]) * inverses[ends[:-1]] + lengths)


def _powers(count: int) -> Any:
    """The first powers of _HASH_BASE and of its inverse."""
    if len(_HASH_BASE_POWERS[0]) < count:
        for place, base in enumerate((_HASH_BASE, _HASH_BASE_INVERSE)):
            factors = np.full(max(count, _HASHED_TEXT_BYTES + 1), base, np.uint64)
            factors[0] = 1
            _HASH_BASE_POWERS[place] = np.multiply.accumulate(factors)
    return _HASH_BASE_POWERS


_HASH_OF_BYTE: Final = mix(np.arange(1, 257, dtype=np.uint64) * np.uint64(_HASH_BASE)) | np.uint64(1)


def make_file_fold(
    files: Sequence[str], readers: frozenset[int], size: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that applies `fold` to each of the Parquet *files* whose number in the list it gets."""

    def work(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            path = unquote(urlsplit(files[number]).path)
            with pq.ParquetFile(path, read_dictionary=["key", "sent_subject"]) as file:
                batches = file.iter_batches(BATCH_ROWS, columns=list(COLUMNS), use_threads=False)
                yield from _fold_to_schema(batches, readers, size)

    return work


def make_partition_fold(
    readers: frozenset[int], size: int
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that applies `fold` to each partition, whose batches are small."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _fold_to_schema(combine_batches(batches), readers, size)

    return work


def _fold_to_schema(batches: Iterable[pa.RecordBatch], readers: frozenset[int], size: int) -> Iterator[pa.RecordBatch]:
    # Spark compares more than names and types.
    fields = [pa.field(field.name, pa.int64(), nullable=field.nullable) for field in FOLDED.fields]
    yield from fold(batches, readers, size).cast(pa.schema(fields)).combine_chunks().to_batches()


def fold(batches: Iterable[pa.RecordBatch], readers: frozenset[int], size: int) -> pa.Table:
    """FOLDED of *batches* with the columns COLUMNS; checks the order of the substreams *readers*."""
    digests: list[pa.Table] = []
    result: dict[int, list[list[int]]] = {}
    hashes = TextHashes()
    of_readers = np.array(sorted(readers), np.int64)
    for batch in batches:
        if batch.num_rows:
            rows = _sort_by_substream(_read_rows(batch, hashes))
            digests.append(rows.digests(size))
            _add_segments(result, rows, of_readers)
    columns: dict[str, list[int]] = {name: [] for name in ("substream", *_SEGMENT_COLUMNS)}
    for substream, existing in result.items():
        group = existing if len(existing) <= MAX_SEGMENTS else [[0, 0, GIVEN_UP_LAST_SEQ, 0]]
        columns["substream"] += [substream] * len(group)
        for name, values in zip(_SEGMENT_COLUMNS, zip(*group, strict=True), strict=True):
            columns[name] += values
    count = len(columns["substream"])
    told = pa.table({name: pa.array(columns.get(name, [None] * count), pa.int64()) for name in FOLDED.names})
    if not digests:
        return told
    return pa.concat_tables([told, merge_digests(pa.concat_tables(digests)).select(FOLDED.names)])


def merge_digests(digests: pa.Table) -> pa.Table:
    """Add up digests (rows of FOLDED), one for each substream and bucket."""
    how = [*((name, "sum") for name in DIGEST_COLUMNS), ("least", "min"), ("greatest", "max")]
    result = digests.group_by(["substream", "bucket"], use_threads=False).aggregate(how)
    names = {f"{name}_{end}": name for name, end in how}
    result = result.rename_columns([names.get(name, name) for name in result.column_names])
    for name in ("seq", "last_seq"):
        result = result.append_column(name, pa.nulls(result.num_rows, pa.int64()))
    return result


@dataclass(slots=True)
class _Rows:
    """The columns of some rows, as NumPy arrays."""

    substream: NDArray[np.int64]
    seq: NDArray[np.int64]
    origin_seq: NDArray[np.int64]
    """The row's own sequence where it has no origin."""
    has_origin: NDArray[np.bool_]
    payload: NDArray[np.uint64]
    name: NDArray[np.uint64]
    subject: NDArray[np.uint64]
    has_subject: NDArray[np.bool_]

    def select_rows(self, which: Any) -> _Rows:
        return _Rows(*(getattr(self, name)[which] for name in _Rows.__slots__))

    def digests(self, size: int) -> pa.Table:
        """Digests of the rows, which are sorted by substream; a bucket may have several."""
        buckets, is_next = self.origin_seq // size, self.substream[1:] != self.substream[:-1]
        begins = _begins((buckets[1:] != buckets[:-1]) | is_next)
        if len(begins) * _MIN_ADJACENT_ROWS > len(buckets) and ((np.diff(buckets) < 0) & ~is_next).any():
            return self.select_rows(np.lexsort((buckets, self.substream))).digests(size)
        has_origin = self.has_origin[begins]
        sums = [np.add.reduceat(item, begins).view(np.int64) for item in (self.payload, self.name, self.subject)]
        return pa.table(
            {
                "substream": self.substream[begins],
                "bucket": buckets[begins],
                "copies": np.diff(begins, append=len(buckets)),
                **dict(zip(("payloads", "keys", "subjects"), sums, strict=True)),
                "with_subject": np.add.reduceat(self.has_subject, begins, dtype=np.int64),
                "least": pa.array(np.minimum.reduceat(self.origin_seq, begins), mask=~has_origin),
                "greatest": pa.array(np.maximum.reduceat(self.origin_seq, begins), mask=~has_origin),
                **{name: pa.nulls(len(begins), pa.int64()) for name in ("seq", "last_seq")},
            }
        ).select(FOLDED.names)


def _begins(is_new: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where groups of adjacent rows begin; *is_new* says it of each row but the first."""
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(is_new) + 1])


def _read_rows(batch: pa.RecordBatch, hashes: TextHashes) -> _Rows:
    columns = {name: batch.column(name) for name in COLUMNS}
    seq = columns["seq"].to_numpy()
    has_origin = _mask_valid(columns["origin_seq"])
    origin_seq = columns["origin_seq"].fill_null(0).to_numpy()
    if not has_origin.all():
        origin_seq = np.where(has_origin, origin_seq, seq)
    place = origin_seq.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    payload = mix(place + columns["digest"].to_numpy().view(np.uint64) * np.uint64(0xC2B2AE3D27D4EB4F))
    names = hashes.hash_column(columns["key"])
    same = columns["key"].equals(columns["sent_subject"])
    return _Rows(
        substream=columns["substream"].to_numpy(),
        seq=seq,
        origin_seq=origin_seq,
        has_origin=has_origin,
        payload=payload,
        name=mix(payload + names),
        subject=mix(place + (names if same else hashes.hash_column(columns["sent_subject"]))),
        has_subject=_mask_valid(columns["sent_subject"]),
    )


def _mask_valid(column: pa.Array) -> NDArray[np.bool_]:
    if not column.null_count:
        return np.ones(len(column), np.bool_)
    return column.is_valid().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _sort_by_substream(rows: _Rows) -> _Rows:
    """The rows of each substream together, in stored order."""
    codes = pa.array(rows.substream).dictionary_encode()
    numbers = codes.indices.to_numpy()
    if (numbers[1:] >= numbers[:-1]).all():
        return rows
    # Numbers of 16 bits are sorted without comparing any two.
    return rows.select_rows(
        np.argsort(numbers.astype(np.uint16) if len(codes.dictionary) < 1 << 16 else numbers, kind="stable")
    )


def _add_segments(segments: dict[int, list[list[int]]], rows: _Rows, readers: NDArray[np.int64]) -> None:
    """Add the segments of *readers* in *rows* to *segments*; the first of a substream may continue its last known one."""
    seqs, origin_seqs = rows.seq, rows.origin_seq
    is_next = rows.substream[1:] != rows.substream[:-1]
    begins = _begins((seqs[1:] < seqs[:-1]) | (origin_seqs[1:] <= origin_seqs[:-1]) | is_next)
    ends = np.append(begins[1:], len(seqs)) - 1
    which = np.flatnonzero(np.isin(rows.substream[begins], readers))
    begins, ends = begins[which], ends[which]
    previous = None
    columns = (rows.substream[begins], seqs[begins], origin_seqs[begins], seqs[ends], origin_seqs[ends])
    for substream, seq, least, last_seq, greatest in zip(*(column.tolist() for column in columns), strict=True):
        group = segments.setdefault(substream, [])
        if substream != previous and group and group[-1][2] <= seq and group[-1][3] < least:
            group[-1][2:] = last_seq, greatest
        elif len(group) <= MAX_SEGMENTS:
            group.append([seq, least, last_seq, greatest])
        previous = substream
