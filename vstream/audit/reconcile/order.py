"""
Reconcile: which messages a reader has in a different order than their origin, or than other readers where all have one.

Normally, a reader's messages of an origin form a few long ascending segments, one for each
file (`one_pass`). The driver merges them. Spark sorts rows without segments, and
readers that are out of order everywhere.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from vstream.audit.finding_kinds import FindingKind
from vstream.audit.reconcile.bucket_digests import GIVEN_UP_LAST_SEQ
from vstream.audit.reconcile.buckets import MESSAGE, ORIGIN
from vstream.audit.tables.schema import make_schema

OUT_OF_ORDER: Final = make_schema("""
    virtual string not null, origin string, former string, stream string not null, region string not null,
    seq bigint not null, least bigint not null, last_seq bigint not null, greatest bigint not null,
    before bigint not null
""")
"""
Columns of OUT_OF_ORDER: segments of a reader that begin after a later message of their origin, or after the same one.

Sequences of the origin increase within a segment, from *least* at *seq* to *greatest* at
*last_seq*; *before* is the greatest sequence in front of it. Rows of the segment that are not
above *before* are out of order.
"""

_SLICE_SEQUENCES: Final = 64
"""Number of sequences in a slice in which rows are compared with segments."""
_PLACE: Final = (*ORIGIN, "stream", "region")


def find_disordered_segments(segments: Iterable[tuple[int, ...]]) -> tuple[list[tuple[int, tuple[int, ...]]], set[int]]:
    """
    The out-of-order segments with their substream and *before*; *segments* are rows of (substream, columns of `FOLDED`).

    Also returns the substreams that are too much out of order to tell.
    """
    by_substream: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for substream, *segment in segments:
        by_substream[substream].append(tuple(segment))
    result, unsorted = [], set()
    for substream, group in by_substream.items():
        group.sort()
        ends = [(last_seq, greatest) for _, _, last_seq, greatest in group]
        if any(last_seq == GIVEN_UP_LAST_SEQ for _, _, last_seq, _ in group) or any(
            end > item[:2] for end, item in zip(ends, group[1:], strict=False)
        ):
            unsorted.add(substream)
            continue
        before = group[0][1] - 1
        for entry in group:
            if entry[1] <= before:
                result.append((substream, (*entry, before)))
            before = max(before, entry[3])
    return result, unsorted


def find_out_of_order(copies: DataFrame, substreams: DataFrame) -> DataFrame:
    """
    OUT_OF_ORDER of `copies`, each of a single row; empty if every reader has every message once and in order.

    Only the *substreams* (`buckets.SUBSTREAMS`) of readers are checked.
    """
    readers = substreams.where("not is_origin and origin is not null")
    along = Window.partitionBy("substream").orderBy("seq", "least").rowsBetween(Window.unboundedPreceding, -1)
    return (
        copies.join(F.broadcast(readers.select("substream")), "substream", how="left_semi")
        .select("substream", "seq", F.col("origin_seq").alias("least"))
        .withColumn("before", F.max("least").over(along))
        .where(F.col("least") <= F.col("before"))
        .withColumns({"last_seq": F.col("seq"), "greatest": F.col("least")})
        .join(F.broadcast(readers.select("substream", *_PLACE)), "substream")
        .select(*OUT_OF_ORDER.names)
    )


def find_reordered(behind: DataFrame, out_of_order: DataFrame) -> DataFrame:
    """
    DIFFERENCES of order: messages of *behind* that are stored after a later message of their origin; first copies only.

    *before*, the greatest sequence in front of a segment, is the maximum so far for each of its rows
    that is not above it. Further copies of a message do not change it.
    """
    place = F.struct("seq", "origin_seq")
    is_in_it = place.between(F.struct("first_seq", "least"), F.struct("last_seq", "greatest"))
    return (
        pair_with_segments(behind, out_of_order)
        .where(is_in_it & (F.col("origin_seq") < F.col("before")))
        # A row that was read twice is in two segments.
        .dropDuplicates([*ORIGIN, "stream", "region", "origin_seq"])
        .selectExpr(
            *(*MESSAGE, "stream", "region"),
            f"if(is_replay, '{FindingKind.PUT_BACK}', '{FindingKind.REORDERED}') as kind",
            *("seq", "1L as number", "time_ns", "key"),
        )
    )


def pair_with_segments(behind: DataFrame, out_of_order: DataFrame) -> DataFrame:
    """
    The first copies of the messages of *behind*, each paired with the segments near it.

    The join is by slices of a few sequences: a reader that is completely out of order has as many segments as
    rows, and joining each row with each segment would be quadratic.
    """
    reader = [*ORIGIN, "stream", "region"]
    slices = F.sequence(F.expr(f"seq div {_SLICE_SEQUENCES}"), F.expr(f"last_seq div {_SLICE_SEQUENCES}"))
    segments = out_of_order.withColumn("slice", F.explode(slices)).withColumnsRenamed({"seq": "first_seq"})
    first = (
        behind.where(~F.col("is_origin"))
        .join(F.broadcast(out_of_order.select(*reader).distinct()), reader, how="left_semi")
        .groupBy(*reader, "origin_seq")
        .agg(
            F.min("seq").alias("seq"), *(F.min_by(name, "seq").alias(name) for name in ("time_ns", "key", "is_replay"))
        )
    )
    return first.withColumn("slice", F.expr(f"seq div {_SLICE_SEQUENCES}")).join(segments, [*reader, "slice"])


def find_misordered(copies: DataFrame, virtuals: Sequence[str]) -> DataFrame:
    """DIFFERENCES of *virtuals*, which guarantee one order everywhere: sequences where a reader differs from most others."""
    rows = copies.where(~F.col("is_origin") & F.col("virtual").isin(list(virtuals)))
    identity = F.xxhash64("origin", "former", "origin_seq", "digest")
    usual = (
        rows.groupBy("virtual", "seq")
        .agg(F.mode(identity, deterministic=True).alias("usual"), (F.min(identity) != F.max(identity)).alias("differs"))
        .where("differs")
    )
    return (
        rows.join(usual, ["virtual", "seq"])
        .where(identity != F.col("usual"))
        .selectExpr(
            *MESSAGE, "stream", "region", f"'{FindingKind.MISORDERED}' as kind", "seq", "1L as number", "time_ns", "key"
        )
    )
