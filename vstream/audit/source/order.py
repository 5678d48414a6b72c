"""
In what order the messages of each origin stand in `copies`, file by file, without Spark's rows.

Of a file only three columns of numbers are read, and what comes of it are a few stretches.
Nothing here needs what executors do not have: the standard library and pyarrow.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import LongType, StructField, StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

NAME: Final = "vstream-order"
STRETCHES: Final = StructType(
    [
        StructField("track", LongType(), nullable=False),
        StructField("seq", LongType(), nullable=False),
        StructField("least", LongType(), nullable=False),
        StructField("last_seq", LongType(), nullable=False),
        StructField("greatest", LongType(), nullable=False),
    ]
)
"""
Rows of a track (`normalise.COPIES`) side by side in a file whose sequences do not fall and
whose sequences in the origin rise: from *seq* and *least* to *last_seq* and *greatest*.
"""
MOST: Final = 10_000
"""Stretches of one track in one file; who has more is `GIVEN_UP`."""
GIVEN_UP: Final = -1
"""The *last_seq* of a row that says that its track is too much out of order in a file."""
_COLUMNS: Final = ["track", "seq", "origin_seq"]
_BATCH: Final = 65_536


@dataclass(slots=True)
class File(InputPartition):
    """One task."""

    path: str


class OrderDataSource(DataSource):
    """STRETCHES of the Parquet files that the option `files` lists, of the tracks in `tracks`; both as JSON."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format(...)`."""
        return NAME

    def schema(self) -> StructType:
        """STRETCHES."""
        return STRETCHES

    def reader(self, schema: StructType) -> OrderReader:  # noqa: ARG002 - Spark's signature
        """For a batch query."""
        return OrderReader(self.options)


class OrderReader(DataSourceReader):
    """One task for each file."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._files: list[str] = json.loads(options["files"])
        self._tracks = frozenset(json.loads(options["tracks"]))

    def partitions(self) -> Sequence[InputPartition]:
        """The files."""
        return [File(unquote(urlsplit(one).path)) for one in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor: the stretches of one file."""
        if not isinstance(partition, File):
            return
        with pq.ParquetFile(partition.path) as file:
            batches = file.iter_batches(_BATCH, columns=_COLUMNS, use_threads=False)
            rows = list(stretches(batches, self._tracks))
        arrays = [pa.array([row[place] for row in rows], pa.int64()) for place in range(len(STRETCHES))]
        # Spark compares more than names and types.
        schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in STRETCHES.names])
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def stretches(batches: Iterable[pa.RecordBatch], tracks: frozenset[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """STRETCHES of *tracks* in *batches* of track, sequence and sequence in the origin."""
    found: dict[int, list[list[int]]] = {}
    for batch in batches:
        codes = batch.column(0).dictionary_encode()
        values = codes.dictionary.to_pylist()
        for code, track in enumerate(values):
            if track not in tracks:
                continue
            own = batch if len(values) == 1 else batch.filter(pc.equal(codes.indices, code))
            known = found.setdefault(track, [])
            if len(known) <= MOST:
                _extend(known, own.column(1), own.column(2))
    for track, known in found.items():
        if len(known) > MOST:
            yield track, 0, 0, GIVEN_UP, 0
        else:
            for seq, least, last_seq, greatest in known:
                yield track, seq, least, last_seq, greatest


def _extend(known: list[list[int]], seqs: pa.Array, origin_seqs: pa.Array) -> None:
    """Add the stretches of these rows to the *known* ones, of which they may go on with the last."""
    count = len(seqs)
    falls = pc.or_(
        pc.less(seqs.slice(1), seqs.slice(0, count - 1)),
        pc.less_equal(origin_seqs.slice(1), origin_seqs.slice(0, count - 1)),
    )
    ends = pc.indices_nonzero(falls).slice(0, MOST + 1).to_pylist()
    begin = 0
    for end in [*ends, count - 1]:
        seq, least = seqs[begin].as_py(), origin_seqs[begin].as_py()
        last_seq, greatest = seqs[end].as_py(), origin_seqs[end].as_py()
        if known and begin == 0 and known[-1][2] <= seq and known[-1][3] < least:
            known[-1][2:] = last_seq, greatest
        else:
            known.append([seq, least, last_seq, greatest])
        begin = end + 1
