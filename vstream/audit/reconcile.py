"""
Stage 3: find the buckets in which regions differ, without joining all messages.

The sequences of an origin are contiguous. A bucket of 4096 of them has a digest in each
stream (`one_pass`): the number of copies and the sum of their hashes. Only buckets whose
digests differ are compared message by message.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from xxhash import xxh64_intdigest

from vstream.audit.cut import SKEW_NS, CutTables
from vstream.audit.schema import make_schema

BUCKET: Final = 4096

ORIGIN: Final = ("virtual", "origin", "former")
MESSAGE: Final = (*ORIGIN, "origin_seq")

TRACKS = make_schema("""
    track bigint not null, virtual string not null, origin string, former string, stream string not null,
    region string not null, is_origin boolean not null
""")
"""Columns of TRACKS: the meaning of each track number; may contain tracks that are not in `copies`."""

BUCKETS = StructType(
    [
        *(column for column in TRACKS.fields if column.name != "track"),
        *make_schema("""
            part string not null, bucket bigint, copies bigint not null, payloads bigint, keys bigint, subjects bigint,
            with_subject bigint not null, least bigint, greatest bigint
        """),
    ]
)
"""
Columns of BUCKETS, one digest per row. *part* says what the copies are: `cut` (up to the origin's last sequence),
`ahead` (above it, although stored before the cut), `later` (above it, stored after the cut), `earlier` (written before
the time from which streams were read) or `foreign` (not copies of messages of the virtual stream). *payloads*, *keys*
and *subjects* are sums (`one_pass`) of hashes: of origin sequence and digest, of digest and key, and of the subject in
the origin; *with_subject* is how many copies have the last one.
"""


class Track(NamedTuple):
    """A row of TRACKS."""

    track: int
    virtual: str
    origin: str | None
    former: str
    stream: str
    region: str
    is_origin: bool


_SEED: Final = 42
_RANGES: Final = 16
"""Maximum number of sequence ranges in a filter, by which files skip row groups without matches."""


def build_tracks(copies: DataFrame, cut: CutTables) -> list[Track]:
    """TRACKS of `copies` (`normalise.COPIES`), from the cut alone, except for origins that were created again."""
    names = [name for name in TRACKS.names if name not in ("track", "region", "is_origin")]
    formers = copies.where(F.col("former") != "").select(*names).distinct().collect()
    places = {(virtual, stream): (region, is_own) for virtual, _, stream, region, is_own in cut.tracks}
    rows = [(virtual, origin, "", stream, *more) for virtual, origin, stream, *more in cut.tracks]
    rows += [(*former, *places[former.virtual, former.stream]) for former in formers]
    return [Track(_track_of(row), *row) for row in rows]


def _track_of(row: tuple[Any, ...]) -> int:
    """What `normalise.track_id` gives: Spark hashes each value with the hash before it as seed, and leaves out null."""
    virtual, origin, former, stream, *_ = row
    result = _SEED
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
    gaps = sorted(range(1, len(ranges)), key=lambda n: ranges[n - 1][1] - ranges[n][0])[: _RANGES - 1]
    firsts = [0, *sorted(gaps)]
    lasts = [*(n - 1 for n in firsts[1:]), len(ranges) - 1]
    seq = F.col("origin_seq")
    terms = []
    for first, last in zip(firsts, lasts, strict=True):
        if ranges:
            terms.append(seq.between(ranges[first][0] * size, (ranges[last][1] + 1) * size - 1))
    return copies.where(reduce(or_, terms, F.lit(False)))


def classify_by_cut(copies: DataFrame, cut: CutTables) -> DataFrame:
    """Add `part` to *copies*, with the values of BUCKETS."""
    bounds = cut.origins.select("virtual", "origin", "origin_first", "origin_last", "origin_cut_ns")
    is_current = F.col("former") == ""
    is_below = F.lit(cut.is_narrow) & (~is_current | (F.col("origin_seq") < F.col("origin_first")))
    is_above = is_current & (F.col("origin_seq") > F.col("origin_last"))
    was_there = F.col("time_ns") + SKEW_NS <= F.col("origin_cut_ns")
    return copies.join(F.broadcast(bounds), ["virtual", "origin"], how="left").withColumn(
        "part",
        F.when(F.col("origin").isNull(), "foreign")
        .when(is_above & was_there, "ahead")
        .when(is_above, "later")
        .when(is_below, "earlier")
        .otherwise("cut"),
    )


def find_suspects(buckets: DataFrame, backsteps: DataFrame, cut: CutTables, *, size: int = BUCKET) -> DataFrame:
    """The buckets to compare, as (virtual, origin, former, bucket): those not proven to be equal everywhere."""
    compared = _compare_digests(buckets).join(F.broadcast(cut.origins), ["virtual", "origin"], how="left")
    says_nothing = F.col("greatest_subjects").isNull()
    same_subjects = says_nothing | (
        (F.col("least_subjects") == F.col("own_subjects")) & (F.col("greatest_subjects") == F.col("own_subjects"))
    )
    is_vouched = (F.col("own_copies") == F.col("copies")) & (F.col("own_payloads") == F.col("payloads")) & same_subjects
    # What the origin has removed by itself can only be compared between readers.
    is_gone = F.col("own_copies").isNull() & (
        F.col("origin_last").isNull()
        | (F.col("former") != "")
        | (F.col("origin_may_lose_oldest") & (F.col("greatest") < F.col("origin_first")))
    )
    is_clean = (F.col("seen_by") == F.col("readers")) & F.col("is_alike") & F.col("is_whole") & (is_vouched | is_gone)
    # Of a message that is there twice, the second copy steps back.
    stretch = backsteps.select(
        *ORIGIN,
        "stream",
        F.expr(f"least div {size}").alias("begin"),
        F.expr(f"least(greatest, before) div {size}").alias("end"),
    )
    back = buckets.join(F.broadcast(stretch), [*ORIGIN, "stream"]).where("bucket between begin and end")
    return (
        compared.where(~F.coalesce(is_clean, F.lit(False)))
        .select(*ORIGIN, "bucket")
        .unionByName(back.select(*ORIGIN, "bucket"))
        .distinct()
    )


def _compare_digests(buckets: DataFrame) -> DataFrame:
    """By bucket: the digests of its origin, those of the readers, and whether these are alike and whole."""
    is_own, is_copy = F.col("is_origin"), ~F.col("is_origin")
    with_subject = is_copy & (F.col("with_subject") > 0)

    def are_alike(digest: str) -> Column:
        return F.min(F.when(is_copy, F.col(digest))) == F.max(F.when(is_copy, F.col(digest)))

    are_whole = F.every(is_own | (F.col("with_subject") == 0) | (F.col("with_subject") == F.col("copies")))
    return (
        buckets.where(F.col("part") == "cut")
        .groupBy(*ORIGIN, "bucket")
        .agg(
            F.count_if(is_copy).alias("seen_by"),
            F.coalesce(are_alike("copies") & are_alike("payloads") & are_alike("keys"), F.lit(False)).alias("is_alike"),
            *(F.max(F.when(is_copy, F.col(name))).alias(name) for name in ("copies", "payloads")),
            *(F.max(F.when(is_own, F.col(name))).alias(f"own_{name}") for name in ("copies", "payloads", "subjects")),
            are_whole.alias("is_whole"),
            F.min(F.when(with_subject, F.col("subjects"))).alias("least_subjects"),
            F.max(F.when(with_subject, F.col("subjects"))).alias("greatest_subjects"),
            F.max("greatest").alias("greatest"),
        )
    )
