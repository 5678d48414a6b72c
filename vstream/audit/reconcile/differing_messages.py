"""
Reconcile: which messages of the buckets that differ are not the same everywhere.

A bucket has thousands of messages, and usually few of them differ. If there are few such buckets, their rows are
collected on the driver, and messages that are equal everywhere are dropped before classification.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from vstream.audit.normalise.message_copies import COPIES
from vstream.audit.reconcile.buckets import BUCKET_SIZE, MESSAGE, ORIGIN, select_rows_near
from vstream.audit.spark.local_frames import collect_arrow, from_arrow, plain_rows
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts
from vstream.value_class import value_class

_EXTENTS: Final = make_schema(
    "virtual string, origin string, former string, stream string, least bigint, greatest bigint"
)


@value_class
class DifferingMessages:
    """The part of `copies` (`message_copies.COPIES`) to classify, with all rows of each message in it."""

    differing: DataFrame
    """Messages that may differ between streams."""
    behind: DataFrame
    """Messages of readers that may be stored after a later message of their origin."""
    ids: Sequence[str] | None = None
    """Message ids of *differing*; None if they were not collected."""


def select_messages_near(copies: DataFrame, buckets: Sequence[int], *, size: int = BUCKET_SIZE) -> DifferingMessages:
    """All rows in or near *buckets*, as DifferingMessages without a selection."""
    rows = select_rows_near(copies, buckets, size)
    return DifferingMessages(differing=rows, behind=rows)


def gather_rows(copies: DataFrame, suspects: DataFrame, buckets: Sequence[int], *, size: int = BUCKET_SIZE) -> pa.Table:
    """Collect the rows of `suspects` on the driver; *buckets* are the bucket numbers in `suspects`."""
    return collect_arrow(
        select_rows_near(copies.where(F.col("origin").isNotNull()), buckets, size)
        .withColumn("bucket", F.expr(f"origin_seq div {size}"))
        .join(F.broadcast(suspects), [*ORIGIN, "bucket"], how="left_semi")
        .select(*COPIES.names)
    )


def select_differing(
    rows: pa.Table, copies: DataFrame, facts: StreamFacts, out_of_order: DataFrame
) -> DifferingMessages:
    """Select the messages that may be wrong from *rows*, which are those of the buckets to check."""
    differing = _find_differing(rows, facts.readers)
    behind = _find_behind(rows, out_of_order)
    spark = copies.sparkSession
    return DifferingMessages(
        differing=from_arrow(spark, differing, COPIES),
        behind=from_arrow(spark, behind, COPIES),
        ids=[item for item in pc.unique(differing["msg_id"]).to_pylist() if item is not None],
    )


def _find_differing(rows: pa.Table, readers: Mapping[str, int]) -> pa.Table:
    """All rows of messages that are not stored exactly once and unchanged in their origin and each reader."""
    is_own = rows["is_origin"]
    count = rows.num_rows

    def number_values(name: str) -> pa.Array:
        """Numbers for the values of a text column, null for null: Arrow compares numbers faster."""
        return rows[name].combine_chunks().dictionary_encode().indices.cast(pa.int64())

    numbers = pa.table(
        {
            **{name: rows[name] for name in MESSAGE},
            "own": is_own.cast(pa.int64()),
            "stream": number_values("stream"),
            "digest": rows["digest"],
            "key": pc.if_else(is_own, pa.scalar(None, pa.int64()), number_values("key")),
            "unnamed": pc.and_(pc.invert(is_own), pc.is_null(rows["key"])).cast(pa.int64()),
            "subject": number_values("sent_subject"),
            "one": pa.repeat(pa.scalar(1, pa.int64()), count),
        }
    )
    edges = [(name, end) for name in ("digest", "key", "subject") for end in ("min", "max")]
    aggregates = [*edges, *((name, "sum") for name in ("own", "one", "unnamed")), ("stream", "count_distinct")]
    by_message = numbers.group_by(list(MESSAGE), use_threads=False).aggregate(aggregates)
    expected = pc.add(pa.array([readers[item] for item in by_message["virtual"].to_pylist()], pa.int64()), 1)
    is_same = pc.and_(pc.equal(by_message["own_sum"], 1), pc.equal(by_message["one_sum"], expected))
    is_same = pc.and_(is_same, pc.equal(by_message["stream_count_distinct"], expected))
    is_same = pc.and_(is_same, pc.equal(by_message["unnamed_sum"], 0))
    for name in ("digest", "key", "subject"):
        # Where nobody says a subject there is none to compare.
        alike = pc.equal(by_message[f"{name}_min"], by_message[f"{name}_max"])
        is_same = pc.and_(is_same, pc.fill_null(alike, True))
    differing = by_message.filter(pc.invert(is_same)).select(list(MESSAGE))
    return rows.join(differing, keys=list(MESSAGE), join_type="left semi")


def _find_behind(rows: pa.Table, out_of_order: DataFrame) -> pa.Table:
    """Rows of readers with *out_of_order*, except those above all of these."""
    reader = [*ORIGIN, "stream"]
    result = out_of_order.select(*reader, "least", "before").toArrow()
    if not result.num_rows:
        return rows.slice(0, 0)
    ends = result.group_by(reader).aggregate([("least", "min"), ("before", "max")])
    theirs = rows.filter(pc.invert(rows["is_origin"])).join(ends, keys=reader, join_type="inner")
    seq = theirs["origin_seq"]
    is_in_it = pc.and_(pc.greater_equal(seq, theirs["least_min"]), pc.less_equal(seq, theirs["before_max"]))
    return theirs.filter(is_in_it).select(rows.column_names)


def count_rows(buckets: pa.Table, suspects: Collection[tuple[str, str, str, int]]) -> int:
    """The number of rows in the buckets *suspects*, summed from *buckets* (`buckets.BUCKETS`)."""
    rows = plain_rows(buckets.select([*ORIGIN, "bucket", "copies"])) if suspects else ()
    return sum(copies for *bucket, copies in rows if tuple(bucket) in suspects)


def find_misplaced_buckets(buckets: pa.Table) -> set[tuple[str, int]]:
    """Part and number of the *buckets* whose copies cannot exist there (`ahead` or `foreign`)."""
    those = buckets.filter(pc.is_in(buckets["part"], value_set=pa.array(["ahead", "foreign"])))
    return {(item["part"], item["bucket"]) for item in those.select(["part", "bucket"]).to_pylist()}


def measure_extents(spark: SparkSession, buckets: pa.Table) -> DataFrame:
    """By stream and origin: the lowest and highest sequence of the origin that was read from the stream."""
    result = (
        buckets.filter(pc.equal(buckets["part"], "covered"))
        .group_by([*ORIGIN, "stream"])
        .aggregate([("least", "min"), ("greatest", "max")])
    )
    columns = result.select([*ORIGIN, "stream", "least_min", "greatest_max"])
    return from_arrow(spark, columns.rename_columns(_EXTENTS.names), _EXTENTS)
