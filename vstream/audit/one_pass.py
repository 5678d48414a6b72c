"""
Stage 3 in one pass over the rows: digests and order together, without Spark's row format.

Executors process files that they can open by path, one by one (`source.fold`), or else the
partitions that Spark reads for them. The driver combines the results. Few rows are processed
on the driver.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit import order
from vstream.audit.local_frames import collect_arrow, from_arrow, make_table
from vstream.audit.reconcile import BUCKET, BUCKETS, TRACKS, classify_by_cut, nearby_buckets
from vstream.audit.source import fold
from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from vstream.audit.cut import CutTables

_ALONG = ("track", "seq", "origin_seq")
_PLACE = ("virtual", "origin", "former", "stream", "region")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglePassResult:
    """The result of one pass. *buckets* are an Arrow table on the driver, *digests* the same as a DataFrame."""

    buckets: pa.Table
    digests: DataFrame
    backsteps: DataFrame
    is_in_order: bool
    """Whether there are no *backsteps*."""
    is_here: bool
    """Whether *backsteps* are on the driver; Spark sorts readers that are out of order everywhere."""


def can_open(files: Sequence[str] | None) -> bool:
    """Whether executors can open *files* by path."""
    return bool(files) and {urlsplit(file).scheme for file in files or ()} == {"file"}


def fold_files(
    files: Sequence[str], copies: DataFrame, cut: CutTables, tracks: DataFrame, *, size: int = BUCKET
) -> SinglePassResult:
    """The result for *files*, which are all files of `copies`."""
    spark = copies.sparkSession
    spark.dataSource.register(fold.FoldDataSource)
    existing = tracks.collect()
    reader = spark.read.format(fold.NAME).option("files", json.dumps(list(files))).option("size", str(size))
    result = collect_arrow(reader.option("readers", json.dumps(sorted(_reader_tracks(existing)))).load())
    return _combine(result, copies, cut, existing, size)


def fold_partitions(copies: DataFrame, cut: CutTables, tracks: DataFrame, *, size: int = BUCKET) -> SinglePassResult:
    """The result for `copies`, which Spark passes to executors from any place; costs more per row than files."""
    existing = tracks.collect()
    work = fold.fold_partitions(_reader_tracks(existing), size)
    return _combine(
        collect_arrow(copies.select(*fold.COLUMNS).mapInArrow(work, fold.FOLDED)), copies, cut, existing, size
    )


def fold_rows(copies: DataFrame, cut: CutTables, tracks: DataFrame, *, size: int = BUCKET) -> SinglePassResult:
    """The result for all of `copies`, computed on the driver."""
    existing = tracks.collect()
    along = collect_arrow(copies.select(*fold.COLUMNS)).sort_by([(name, "ascending") for name in _ALONG])
    result = fold.fold(along.combine_chunks().to_batches(), _reader_tracks(existing), size)
    return _combine(result, copies, cut, existing, size)


def _reader_tracks(tracks: Sequence[Any]) -> frozenset[int]:
    return frozenset(track.track for track in tracks if not track.is_origin and track.origin is not None)


def _combine(
    digests: pa.Table, copies: DataFrame, cut: CutTables, tracks: Sequence[Any], size: int
) -> SinglePassResult:
    spark = copies.sparkSession
    is_digest = pc.is_valid(digests["bucket"])
    buckets = _buckets(fold.merge_digests(digests.filter(is_digest)), copies, cut, tracks, size)
    places = {track.track: tuple(track[name] for name in _PLACE) for track in tracks}
    stretches = digests.filter(pc.invert(is_digest)).select(["track", "seq", "least", "last_seq", "greatest"])
    rows, unsorted = order.merge_stretches(tuple(stretch.values()) for stretch in stretches.to_pylist())
    backsteps = make_table(spark, [(*places[track], *stretch) for track, stretch in rows], order.BACKSTEPS)
    if unsorted:
        group = [tuple(track) for track in tracks if track.track in unsorted]
        backsteps = backsteps.unionByName(order.find_backsteps(copies, make_table(spark, group, TRACKS)))
    return SinglePassResult(
        buckets=buckets,
        digests=from_arrow(spark, buckets, BUCKETS),
        backsteps=backsteps,
        is_in_order=not rows and not unsorted,
        is_here=not unsorted,
    )


def _buckets(digests: pa.Table, copies: DataFrame, cut: CutTables, tracks: Sequence[Any], size: int) -> pa.Table:
    """
    BUCKETS of *digests*.

    Most buckets belong to a single part. Only those with the origin's last sequence, or its
    first one that counts, are computed again from their rows.
    """
    bounds = {
        (origin.virtual, origin.origin): (origin.origin_first, origin.origin_last) for origin in cut.origins.collect()
    }
    firsts, lasts = [], []
    for item in tracks:
        first, last = bounds.get((item.virtual, item.origin), (None, None))
        firsts.append(first)
        lasts.append(last if item.former == "" else None)
    numbers = pa.array([track.track for track in tracks], pa.int64())
    which = pc.index_in(digests["track"], value_set=numbers)
    if which.null_count:
        raise VstreamError(
            "`copies` has rows of a track that `streams` does not know", hint="start again with `--from normalise`"
        )
    is_mixed = pc.fill_null(pc.greater(digests["greatest"], pa.array(lasts, pa.int64()).take(which)), False)
    if cut.is_narrow:
        is_former = pa.array([track.former != "" for track in tracks], pa.bool_()).take(which)
        is_older = pc.less(digests["least"], pa.array(firsts, pa.int64()).take(which))
        is_mixed = pc.or_(is_mixed, pc.or_(is_former, pc.fill_null(is_older, False)))
    parts = pa.array(["foreign" if track.origin is None else "cut" for track in tracks], pa.string())
    plain = _as_buckets(digests, which, tracks, parts.take(which)).filter(pc.invert(is_mixed))
    mixed = digests.filter(is_mixed).select(["track", "bucket"])
    return pa.concat_tables([plain, _split_by_part(mixed, copies, cut, tracks, size)]) if mixed.num_rows else plain


def _split_by_part(mixed: pa.Table, copies: DataFrame, cut: CutTables, tracks: Sequence[Any], size: int) -> pa.Table:
    """BUCKETS of the *mixed* buckets, separately for each part."""
    schema = StructType([TRACKS["track"], BUCKETS["bucket"]])
    those = from_arrow(copies.sparkSession, mixed, schema)
    rows = collect_arrow(
        classify_by_cut(nearby_buckets(copies, mixed["bucket"].to_pylist(), size), cut)
        .withColumn("bucket", F.expr(f"coalesce(origin_seq, seq) div {size}"))
        .join(F.broadcast(those), ["track", "bucket"], how="left_semi")
        .select("part", *fold.COLUMNS)
    ).combine_chunks()
    numbers = pa.array([track.track for track in tracks], pa.int64())
    names = rows["part"].combine_chunks().dictionary_encode()
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    # A number for each track and part of it.
    count = len(names.dictionary)
    which = pc.index_in(rows["track"], value_set=numbers).cast(pa.int64())
    both = pc.add(pc.multiply(which, count), names.indices.cast(pa.int64()))
    rows = rows.set_column(rows.column_names.index("track"), "track", both)
    result = fold.merge_digests(fold.fold(rows.select(fold.COLUMNS).to_batches(), frozenset(), size))
    which = pc.divide(result["track"], count)
    part = names.dictionary.take(pc.subtract(result["track"], pc.multiply(which, count)))
    return _as_buckets(result, which, tracks, part)


def _as_buckets(digests: pa.Table, which: Any, tracks: Sequence[Any], part: Any) -> pa.Table:
    """Convert *digests* to BUCKETS; *which* is the index in *tracks* for each."""
    names = [field.name for field in TRACKS.fields if field.name != "track"]
    kinds = {name: pa.bool_() if name == "is_origin" else pa.string() for name in names}
    for name, kind in kinds.items():
        digests = digests.append_column(name, pa.array([track[name] for track in tracks], kind).take(which))
    return digests.append_column("part", part.cast(pa.string())).select(BUCKETS.names)
