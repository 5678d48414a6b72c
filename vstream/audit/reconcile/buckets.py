"""
Reconcile: in which buckets regions differ. To know it, all messages need not be joined.

The sequences of an origin are contiguous. A bucket of 4096 of them has a digest in each
stream (`one_pass`): the number of copies and the sum of their hashes. Only buckets whose
digests differ are compared message by message.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from xxhash import xxh64_intdigest

from vstream.audit.connector.stream_snapshots import SKEW_NS
from vstream.audit.spark.local_frames import collect_arrow, plain_rows
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_facts import StreamFacts

BUCKET_SIZE: Final = 4096

ORIGIN: Final = ("virtual", "origin", "former")
MESSAGE: Final = (*ORIGIN, "origin_seq")

SUBSTREAMS = make_schema("""
    substream bigint not null, virtual string not null, origin string, former string, stream string not null,
    region string not null, is_origin boolean not null
""")
"""Columns of SUBSTREAMS: the meaning of each substream number; may contain substreams that are not in `copies`."""

BUCKETS = StructType(
    [
        *(column for column in SUBSTREAMS.fields if column.name != "substream"),
        *make_schema("""
            part string not null, bucket bigint, copies bigint not null, payloads bigint, keys bigint, subjects bigint,
            with_subject bigint not null, least bigint, greatest bigint
        """),
    ]
)
"""
Columns of BUCKETS, one digest per row. *part* says what the copies are: `covered` (up to the origin's last sequence),
`ahead` (above it, although stored before the facts), `later` (above it, stored after the facts), `earlier` (written before
the time from which streams were read) or `foreign` (not copies of messages of the virtual stream). *payloads*, *keys*
and *subjects* are sums (`one_pass`) of hashes: of origin sequence and digest, of digest and key, and of the subject in
the origin; *with_subject* is how many copies have the last one.
"""
_HASH_SEED: Final = 42
_MAX_FILTER_RANGES: Final = 16
"""Maximum number of sequence ranges in a filter, by which files skip row groups without matches."""


class Substream(NamedTuple):
    """A row of SUBSTREAMS."""

    substream: int
    virtual: str
    origin: str | None
    former: str
    stream: str
    region: str
    is_origin: bool


def build_substreams(copies: DataFrame, facts: StreamFacts) -> list[Substream]:
    """SUBSTREAMS of `copies` (`message_copies.COPIES`), from the streams alone, except for origins that were created again."""
    names = [name for name in SUBSTREAMS.names if name not in ("substream", "region", "is_origin")]
    formers = copies.where(F.col("former") != "").select(*names).distinct().collect()
    places = {(virtual, stream): (region, is_own) for virtual, _, stream, region, is_own in facts.substreams}
    rows = [(virtual, origin, "", stream, *more) for virtual, origin, stream, *more in facts.substreams]
    rows += [(*former, *places[former.virtual, former.stream]) for former in formers]
    return [Substream(_substream_id_of(row), *row) for row in rows]


def _substream_id_of(row: tuple[Any, ...]) -> int:
    """What `message_copies.substream_id` gives: Spark hashes each value with the hash before it as seed, and leaves out null."""
    virtual, origin, former, stream, *_ = row
    result = _HASH_SEED
    for value in (virtual, stream, origin, former):
        result = result if value is None else xxh64_intdigest(value.encode(), result)
    return result - (1 << 64) if result >> 63 else result


def select_rows_near(copies: DataFrame, buckets: Iterable[int], size: int) -> DataFrame:
    """
    The rows of *copies* in *buckets*, and some rows near them.

    Files know the lowest and highest sequence of each row group, and skip those without
    matches.
    """
    ranges: list[tuple[int, int]] = []
    for bucket in sorted(set(buckets)):
        if ranges and bucket <= ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], bucket)
        else:
            ranges.append((bucket, bucket))
    # The widest gaps are worth most.
    gaps = sorted(range(1, len(ranges)), key=lambda n: ranges[n - 1][1] - ranges[n][0])[: _MAX_FILTER_RANGES - 1]
    firsts = [0, *sorted(gaps)]
    lasts = [*(n - 1 for n in firsts[1:]), len(ranges) - 1]
    seq = F.col("origin_seq")
    terms = []
    for first, last in zip(firsts, lasts, strict=True):
        if ranges:
            terms.append(seq.between(ranges[first][0] * size, (ranges[last][1] + 1) * size - 1))
    return copies.where(reduce(or_, terms, F.lit(False)))


def add_part(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """Add `part` to *copies*, with the values of BUCKETS."""
    bounds = facts.origins.select("virtual", "origin", "origin_first", "origin_last", "origin_snapshot_ns")
    is_current = F.col("former") == ""
    is_below = F.lit(facts.is_narrow) & (~is_current | (F.col("origin_seq") < F.col("origin_first")))
    is_above = is_current & (F.col("origin_seq") > F.col("origin_last"))
    was_there = F.col("time_ns") + SKEW_NS <= F.col("origin_snapshot_ns")
    return copies.join(F.broadcast(bounds), ["virtual", "origin"], how="left").withColumn(
        "part",
        F.when(F.col("origin").isNull(), "foreign")
        .when(is_above & was_there, "ahead")
        .when(is_above, "later")
        .when(is_below, "earlier")
        .otherwise("covered"),
    )


def find_suspects(
    buckets: pa.Table, out_of_order: DataFrame | None, facts: StreamFacts, *, size: int = BUCKET_SIZE
) -> list[tuple[str, str, str, int]]:
    """
    The buckets to compare, as (virtual, origin, former, bucket): those not proven to be equal everywhere.

    *buckets* are BUCKETS, *out_of_order* `order.OUT_OF_ORDER`, if there are any. Of a message that is there twice, the second
    copy steps back.
    """
    suspects = set(plain_rows(_select_unproven(_compare_digests(buckets), facts)))
    if out_of_order is not None:
        begin, end = F.expr(f"least div {size}"), F.expr(f"least(greatest, before) div {size}")
        # Of readers that are out of order everywhere there is a row for each message.
        ranges = collect_arrow(
            out_of_order.select(*ORIGIN, "stream", begin.alias("begin"), end.alias("end")).distinct()
        )
        suspects.update(_select_in_ranges(buckets, ranges))
    return sorted(suspects)


def _compare_digests(buckets: pa.Table) -> pa.Table:
    """By bucket: the digests of its origin, and the least and greatest ones of the readers."""
    rows = buckets.filter(pc.equal(buckets["part"], "covered"))
    is_own, nothing = rows["is_origin"], pa.scalar(None, pa.int64())
    has_subject = pc.and_(pc.invert(is_own), pc.greater(rows["with_subject"], 0))
    columns = {name: rows[name] for name in (*ORIGIN, "bucket", "greatest")}
    columns |= {f"own_{name}": pc.if_else(is_own, rows[name], nothing) for name in ("copies", "payloads", "subjects")}
    columns |= {name: pc.if_else(is_own, nothing, rows[name]) for name in ("copies", "payloads", "keys")}
    columns["subjects"] = pc.if_else(has_subject, rows["subjects"], nothing)
    columns["seen_by"] = pc.invert(is_own).cast(pa.int64())
    is_partial = pc.and_(has_subject, pc.not_equal(rows["with_subject"], rows["copies"]))
    columns["partial"] = is_partial.cast(pa.int64())
    ends = [(name, end) for name in ("copies", "payloads", "keys", "subjects") for end in ("min", "max")]
    greatest = [(name, "max") for name in ("greatest", "own_copies", "own_payloads", "own_subjects")]
    sums = [("seen_by", "sum"), ("partial", "sum")]
    return pa.table(columns).group_by([*ORIGIN, "bucket"], use_threads=False).aggregate([*ends, *greatest, *sums])


def _select_unproven(compared: pa.Table, facts: StreamFacts) -> pa.Table:
    """The buckets of which the digests do not prove that every reader has what the origin has."""
    columns = ("origin_first", "origin_last", "origin_may_lose_oldest", "readers")
    origins = collect_arrow(facts.origins.select("virtual", "origin", *columns))
    rows = compared.join(origins, keys=["virtual", "origin"], join_type="left outer")

    def is_same(left: str, right: str) -> pa.ChunkedArray:
        return pc.equal(rows[left], rows[right])

    is_clean = pc.and_kleene(is_same("seen_by_sum", "readers"), pc.equal(rows["partial_sum"], 0))
    for name in ("copies", "payloads", "keys"):
        is_clean = pc.and_kleene(is_clean, is_same(f"{name}_min", f"{name}_max"))
    is_vouched = pc.and_kleene(is_same("own_copies_max", "copies_max"), is_same("own_payloads_max", "payloads_max"))
    for end in ("min", "max"):
        # Where nobody says a subject there is none to compare.
        is_silent = pc.is_null(rows[f"subjects_{end}"])
        is_vouched = pc.and_kleene(is_vouched, pc.or_kleene(is_silent, is_same(f"subjects_{end}", "own_subjects_max")))
    # What the origin has removed by itself can only be compared between readers.
    is_older = pc.and_kleene(rows["origin_may_lose_oldest"], pc.less(rows["greatest_max"], rows["origin_first"]))
    is_older = pc.or_kleene(is_older, pc.or_(pc.is_null(rows["origin_last"]), pc.not_equal(rows["former"], "")))
    is_gone = pc.and_kleene(pc.is_null(rows["own_copies_max"]), is_older)
    is_clean = pc.fill_null(pc.and_kleene(is_clean, pc.or_kleene(is_vouched, is_gone)), False)
    return rows.filter(pc.invert(is_clean)).select([*ORIGIN, "bucket"])


def _select_in_ranges(buckets: pa.Table, ranges: pa.Table) -> Iterator[tuple[str, str, str, int]]:
    """The *buckets* of streams that are in one of the *ranges*, which have a stream, its *begin* and its *end*."""
    by_stream: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for *stream, begin, end in plain_rows(ranges):
        by_stream[tuple(stream)].append((begin, end))
    # Of the ranges that begin before a bucket, the one that ends last decides.
    ends_of = {stream: _accumulate_ends(group) for stream, group in by_stream.items()}
    for *origin, stream, bucket in plain_rows(buckets.select([*ORIGIN, "stream", "bucket"])):
        begins, ends = ends_of.get((*origin, stream), ((), ()))
        place = bisect_right(begins, bucket)
        if place and bucket <= ends[place - 1]:
            yield (*origin, bucket)


def _accumulate_ends(ranges: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The begins of *ranges* in order, and for each the greatest end up to there."""
    ranges.sort()
    return [begin for begin, _ in ranges], list(accumulate((end for _, end in ranges), max))
