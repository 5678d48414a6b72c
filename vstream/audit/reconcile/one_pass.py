"""
Reconcile: which digests buckets have, and where the order is broken. One pass over the rows, without Spark's row format.

Executors process files that they can open by path, one by one (`bucket_digests`), or else the
partitions that Spark reads for them. The driver combines the results. Few rows are processed
on the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit.reconcile import order
from vstream.audit.reconcile.bucket_digests import (
    COLUMNS,
    FOLDED,
    GIVEN_UP_LAST_SEQ,
    fold,
    make_file_fold,
    make_partition_fold,
    merge_digests,
)
from vstream.audit.reconcile.buckets import (
    BUCKET_SIZE,
    BUCKETS,
    SUBSTREAMS,
    Substream,
    add_part,
    select_rows_near,
)
from vstream.audit.spark.local_frames import collect_arrow, from_arrow, make_table
from vstream.audit.tables.stream_facts import StreamFacts
from vstream.errors import VstreamError
from vstream.value_class import value_class

_ALONG = ("substream", "seq", "origin_seq")
_PLACE = ("virtual", "origin", "former", "stream", "region")


@value_class
class SinglePassResult:
    """The result of one pass. *buckets* are an Arrow table on the driver, *digests* the same as a DataFrame."""

    buckets: pa.Table
    digests: DataFrame
    out_of_order: DataFrame
    is_in_order: bool
    """Whether there are no *out_of_order*."""
    on_driver: bool
    """Whether *out_of_order* are on the driver; Spark sorts readers that are out of order everywhere."""


def fold_copies(
    copies: DataFrame,
    facts: StreamFacts,
    substreams: Sequence[Substream],
    files: Sequence[str] | None,
    *,
    on_driver: bool,
    size: int = BUCKET_SIZE,
) -> SinglePassResult:
    """The result for `copies`, which are in *files* if these are given. *on_driver*: computed there."""
    readers = frozenset(
        substream.substream for substream in substreams if not substream.is_origin and substream.origin is not None
    )
    if on_driver:
        along = collect_arrow(copies.select(*COLUMNS)).sort_by([(name, "ascending") for name in _ALONG])
        folded = fold(along.combine_chunks().to_batches(), readers, size)
    elif files and {urlsplit(file).scheme for file in files} == {"file"}:
        numbers = copies.sparkSession.range(0, len(files), 1, len(files))
        folded = collect_arrow(numbers.mapInArrow(make_file_fold(files, readers, size), FOLDED))
    else:
        # From any place; it costs more per row than files that executors can open by path.
        work = make_partition_fold(readers, size)
        folded = collect_arrow(copies.select(*COLUMNS).mapInArrow(work, FOLDED))
    return _combine(folded, copies, facts, substreams, size)


def _combine(
    digests: pa.Table, copies: DataFrame, facts: StreamFacts, substreams: Sequence[Substream], size: int
) -> SinglePassResult:
    spark = copies.sparkSession
    is_digest = pc.is_valid(digests["bucket"])
    buckets = _make_buckets(merge_digests(digests.filter(is_digest)), copies, facts, substreams, size)
    places = {substream.substream: tuple(getattr(substream, name) for name in _PLACE) for substream in substreams}
    segments = _without_single_segments(
        digests.filter(pc.invert(is_digest)).select(["substream", "seq", "least", "last_seq", "greatest"])
    )
    rows, unsorted = order.find_disordered_segments(tuple(segment.values()) for segment in segments.to_pylist())
    out_of_order = make_table(
        spark, [(*places[substream], *segment) for substream, segment in rows], order.OUT_OF_ORDER
    )
    if unsorted:
        group = [substream for substream in substreams if substream.substream in unsorted]
        out_of_order = out_of_order.unionByName(order.find_out_of_order(copies, make_table(spark, group, SUBSTREAMS)))
    return SinglePassResult(
        buckets=buckets,
        digests=from_arrow(spark, buckets, BUCKETS),
        out_of_order=out_of_order,
        is_in_order=not rows and not unsorted,
        on_driver=not unsorted,
    )


def _without_single_segments(segments: pa.Table) -> pa.Table:
    """*segments* of substreams that have several, or too many: one alone steps back behind nothing."""
    counts = segments.group_by("substream", use_threads=False).aggregate([([], "count_all"), ("last_seq", "min")])
    is_told = pc.or_(pc.greater(counts["count_all"], 1), pc.equal(counts["last_seq_min"], GIVEN_UP_LAST_SEQ))
    return segments.filter(
        pc.is_in(segments["substream"], value_set=counts.filter(is_told)["substream"].combine_chunks())
    )


def _make_buckets(
    digests: pa.Table, copies: DataFrame, facts: StreamFacts, substreams: Sequence[Substream], size: int
) -> pa.Table:
    """
    BUCKETS of *digests*.

    Most buckets belong to a single part. Only those with the origin's last sequence, or its
    first one that counts, are computed again from their rows.
    """
    firsts, lasts = [], []
    for item in substreams:
        first, last = facts.bounds.get((item.virtual, item.origin or ""), (None, None))
        firsts.append(first)
        lasts.append(last if item.former == "" else None)
    numbers = pa.array([substream.substream for substream in substreams], pa.int64())
    which = pc.index_in(digests["substream"], value_set=numbers)
    if which.null_count:
        raise VstreamError(
            "`copies` has rows of a substream that `streams` does not know", hint="start again with `--from normalise`"
        )
    is_mixed = pc.fill_null(pc.greater(digests["greatest"], pa.array(lasts, pa.int64()).take(which)), False)
    if facts.is_narrow:
        is_former = pa.array([substream.former != "" for substream in substreams], pa.bool_()).take(which)
        is_older = pc.less(digests["least"], pa.array(firsts, pa.int64()).take(which))
        is_mixed = pc.or_(is_mixed, pc.or_(is_former, pc.fill_null(is_older, False)))
    parts = pa.array(["foreign" if substream.origin is None else "covered" for substream in substreams], pa.string())
    plain = _as_buckets(digests, which, substreams, parts.take(which)).filter(pc.invert(is_mixed))
    mixed = digests.filter(is_mixed).select(["substream", "bucket"])
    return (
        pa.concat_tables([plain, _split_by_part(mixed, copies, facts, substreams, size)]) if mixed.num_rows else plain
    )


def _split_by_part(
    mixed: pa.Table, copies: DataFrame, facts: StreamFacts, substreams: Sequence[Substream], size: int
) -> pa.Table:
    """BUCKETS of the *mixed* buckets, separately for each part."""
    schema = StructType([SUBSTREAMS["substream"], BUCKETS["bucket"]])
    those = from_arrow(copies.sparkSession, mixed, schema)
    rows = collect_arrow(
        add_part(select_rows_near(copies, mixed["bucket"].to_pylist(), size), facts)
        .withColumn("bucket", F.expr(f"coalesce(origin_seq, seq) div {size}"))
        .join(F.broadcast(those), ["substream", "bucket"], how="left_semi")
        .select("part", *COLUMNS)
    ).combine_chunks()
    numbers = pa.array([substream.substream for substream in substreams], pa.int64())
    names = rows["part"].combine_chunks().dictionary_encode()
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    # A number for each substream and part of it.
    count = len(names.dictionary)
    which = pc.index_in(rows["substream"], value_set=numbers).cast(pa.int64())
    both = pc.add(pc.multiply(which, count), names.indices.cast(pa.int64()))
    rows = rows.set_column(rows.column_names.index("substream"), "substream", both)
    result = merge_digests(fold(rows.select(COLUMNS).to_batches(), frozenset(), size))
    which = pc.divide(result["substream"], count)
    part = names.dictionary.take(pc.subtract(result["substream"], pc.multiply(which, count)))
    return _as_buckets(result, which, substreams, part)


def _as_buckets(digests: pa.Table, which: Any, substreams: Sequence[Substream], part: Any) -> pa.Table:
    """Convert *digests* to BUCKETS; *which* is the index in *substreams* for each."""
    names = [field.name for field in SUBSTREAMS.fields if field.name != "substream"]
    kinds = {name: pa.bool_() if name == "is_origin" else pa.string() for name in names}
    for name, kind in kinds.items():
        digests = digests.append_column(
            name, pa.array([getattr(substream, name) for substream in substreams], kind).take(which)
        )
    return digests.append_column("part", part.cast(pa.string())).select(BUCKETS.names)
