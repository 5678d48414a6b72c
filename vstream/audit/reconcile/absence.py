"""
Reconcile: why a reader lacks a message that others have.

The rules are in `_list_absence_rules`; below it is what they look at. A message that a limit may have removed is not
reported as lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from vstream.audit.connector.stream_snapshots import SKEW_NS
from vstream.audit.finding_kinds import FindingKind
from vstream.audit.reconcile.buckets import MESSAGE, ORIGIN, add_part
from vstream.audit.reconcile.removal import (
    LATE_NS,
    find_longest_delay,
    find_oldest_at_origins,
    is_replaced_alike,
    is_ttl_over,
    may_be_gone_at_origin,
)
from vstream.audit.tables.stream_facts import StreamFacts

_MAX_IDS_LOOKED_UP: Final = 1_000
"""Message ids that are looked up one by one."""


def classify_absent(
    grid: DataFrame, copies: DataFrame, facts: StreamFacts, extents: DataFrame, ids: Sequence[str] | None
) -> DataFrame:
    """Messages that readers lack, with the reason."""
    cells = (
        grid.join(F.broadcast(facts.expected), ["virtual", "origin"])
        .where(~F.exists("copies", lambda copy: copy["stream"] == F.col("stream")))
        .join(F.broadcast(extents), [*ORIGIN, "stream"], how="left")
        .join(F.broadcast(find_oldest_at_origins(extents)), ["virtual", "origin"], how="left")
        .join(F.broadcast(_find_oldest_sourced(copies, facts)), [*ORIGIN, "stream"], how="left")
        .withColumn("least", F.coalesce("oldest_sourced", "least"))
        .withColumn("time_ns", F.coalesce("own.time_ns", "first_arrival"))
        .withColumn("key", F.coalesce("usual_key", F.col("own.keys")[0]))
    )
    return (
        cells.transform(_with_key_counts, copies, facts)
        .transform(_with_same_id, copies, ids)
        .transform(_with_newer_absent)
        .transform(_with_younger_absent, facts)
        .withColumn("kind", _explain_absence())
        .where(F.col("kind").isNotNull())
        .selectExpr(
            *MESSAGE, "stream", "region", "kind", "cast(null as bigint) as seq", "1L as number", "time_ns", "key"
        )
    )


class AbsenceRule(NamedTuple):
    """Of a message for which this *applies*, and no rule before it, the absence has this *kind*."""

    kind: FindingKind | None
    applies: Column


def _explain_absence() -> Column:
    """Why a message is absent; null if it is counted without looking at messages (`classify.find_expired_before_read`)."""
    first, *following = _list_absence_rules()
    kind = F.when(first.applies, F.lit(first.kind))
    for rule in following:
        kind = kind.when(rule.applies, F.lit(rule.kind))
    return kind


def _list_absence_rules() -> list[AbsenceRule]:
    """All rules; the first that applies to a message counts, and the last applies to all."""
    seq, has_cursor = F.col("origin_seq"), F.col("cursor").isNotNull()
    is_at_origin, is_origin_readable = F.col("own").isNotNull(), F.col("origin_last").isNotNull()
    digest = F.coalesce(F.col("own.digests")[0], "usual_digest")
    may_be_removed = _may_be_removed()
    # The reader has not come so far; where it has no cursor, its messages tell.
    is_ahead = seq > _find_reached()
    can_arrive = is_ahead & (is_at_origin | ~is_origin_readable)
    is_overdue = F.col("is_capture") | (F.col("time_ns") + LATE_NS <= F.col("reader_snapshot_ns"))
    is_left_by_limit = _is_oldest() & _is_kept_by_number() & ~F.col("is_purged")
    is_former = F.col("former") != ""
    is_before_origin = has_cursor & ~is_former & (seq < F.col("origin_first"))
    return [
        # The reader has dropped it for another message with its id: the same one, or one with another payload.
        AbsenceRule(FindingKind.DEDUPLICATED, F.array_contains("same_id_digests", digest)),
        AbsenceRule(FindingKind.DISPLACED, F.col("same_id_digests").isNotNull()),
        # Who does not say how far it has come may have come past what its limits explain.
        AbsenceRule(FindingKind.REMOVED, ~has_cursor & may_be_removed),
        # No limit explains it, except one that was smaller once.
        AbsenceRule(FindingKind.REMOVED_EARLY, is_left_by_limit & ~may_be_removed & (~has_cursor | ~is_ahead)),
        # The reader would still get it, but its origin was given up.
        AbsenceRule(FindingKind.EXPIRED, is_ahead & ~is_origin_readable & F.col("takes_no_more")),
        # The reader will still get it.
        AbsenceRule(FindingKind.LATE, can_arrive & is_overdue),
        AbsenceRule(FindingKind.PENDING, can_arrive),
        # Its origin has removed it for newer ones of its subject, for which the reader would remove it, too.
        AbsenceRule(FindingKind.REMOVED, is_ahead & (seq < F.col("replaced_until"))),
        # Its origin has removed it before the reader came so far: a range of these is counted at once.
        AbsenceRule(None, is_ahead & is_before_origin & ~is_replaced_alike()),
        # The reader has come past it, and its limits explain that it has it no more.
        AbsenceRule(FindingKind.REMOVED, ~is_ahead & may_be_removed),
        # No reader can source it any more, as its origin has removed it, or was made again.
        AbsenceRule(FindingKind.EXPIRED, ~is_at_origin & is_origin_readable & (is_former | may_be_gone_at_origin())),
        # Nothing explains it: it is missing before, between or after what the reader has.
        AbsenceRule(FindingKind.LOST_PREFIX, _is_oldest()),
        AbsenceRule(FindingKind.LOST_MIDDLE, seq < F.col("greatest")),
        AbsenceRule(FindingKind.LOST_TAIL, F.lit(True)),
    ]


def _may_be_removed() -> Column:
    """Whether limits of the reader may have removed a message."""
    # What its origin no longer has was written before it came to the region that still has it.
    slack = F.when(F.col("own").isNotNull(), F.lit(0)).otherwise(find_longest_delay("max_age"))
    old_since = F.col("time_ns") + F.col("max_age") - slack
    is_old = F.coalesce(old_since <= F.col("reader_read_ns"), F.lit(True))
    # It may be the first one that the stream has ever removed.
    is_newly_old = F.coalesce(is_old & (old_since > F.col("reader_snapshot_ns")), F.lit(False))
    by_age = F.col("may_lose_oldest") & _is_oldest() & is_newly_old
    by_limit = by_age | F.col("has_holes") & (
        F.col("may_lose_any")
        | (F.col("may_lose_oldest") & F.col("lost_oldest") & _is_oldest() & is_old & ~_is_kept_by_number())
        | (F.col("keeps").isNotNull() & F.coalesce(_is_replaced(), F.lit(False)))
        | (F.col("may_roll_up") & _may_be_rolled_up())
    )
    return by_limit | (F.col("has_ttl") & is_ttl_over("reader_read_ns"))


def _is_kept_by_number() -> Column:
    """Whether the reader's `max_msgs` leaves a message, as it has removed none of the youngest."""
    return F.coalesce(F.col("younger_absent") < F.col("removed_early"), F.lit(False))


def _is_older_kept() -> Column:
    """Whether the reader has an older one: of one origin, no message goes for newer ones before those in front of it."""
    return F.coalesce(F.col("kept_from") < F.col("origin_seq"), F.lit(False))


def _are_newer_kept() -> Column:
    """Whether what the reader has of the key is newer."""
    return (F.col("kept_since") + SKEW_NS >= F.col("time_ns")) & ~_is_older_kept()


def _is_replaced() -> Column:
    """Whether there are, or were, as many newer messages of the key as the reader keeps."""
    newer = F.coalesce("kept", F.lit(0)) + F.col("newer_absent")
    # What replaced it in all regions may be gone from everywhere: its time to live was short.
    is_enough = (newer >= F.col("keeps")) | (F.col("may_hide") & (F.size("copies") == 0))
    return F.col("key").isNull() | (is_enough & (F.col("kept").isNull() | _are_newer_kept()))


def _may_be_rolled_up() -> Column:
    """Whether a roll-up may have removed the message, there or in all read streams."""
    # Who rolls a subject up in one region, or all subjects, leaves in the others' write streams what is gone from all read streams.
    is_all_newer = F.col("lost_oldest") & _is_oldest() & (F.col("has_since") + SKEW_NS >= F.col("time_ns"))
    are_newer = F.coalesce(_are_newer_kept(), F.lit(False)) | F.coalesce(is_all_newer, F.lit(False))
    # Of another region it may have been read before it was rolled up.
    is_nowhere = (F.size("copies") == 0) | (F.col("kept_until") + SKEW_NS >= F.col("reader_snapshot_ns"))
    is_guessed = F.coalesce(is_nowhere, F.lit(False)) & are_newer

    def is_before(rolled: str) -> Column:
        return F.coalesce(F.col("time_ns") <= F.col(rolled) + SKEW_NS, F.lit(False))

    is_rolled_up = (is_before("rolled_until") & ~_is_older_kept()) | (is_before("all_rolled_until") & _is_oldest())
    was_anywhere = is_before("rolled_anywhere") | is_before("all_rolled_anywhere")
    # A capture does not say what is a roll-up, and one with a time to live may be gone.
    is_told = ~F.col("is_capture") & ~F.col("has_ttl")
    told = is_rolled_up | ((F.size("copies") == 0) & are_newer & was_anywhere)
    return F.when(is_told, told).otherwise(is_guessed)


def _find_oldest_sourced(copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """Where a repair added messages: the lowest sequence among all others. Limits remove these before what it added."""
    reader = [*ORIGIN, "stream"]
    added = F.broadcast(copies.where("is_replay").select(*reader).distinct())
    theirs = add_part(copies.join(added, reader, how="left_semi"), facts).where(F.col("part") == "covered")
    oldest = F.coalesce(F.min(F.when(~F.col("is_replay"), F.col("origin_seq"))), F.lit(2**63 - 1))
    return theirs.groupBy(*reader).agg(oldest.alias("oldest_sourced"))


def _with_key_counts(cells: DataFrame, copies: DataFrame, facts: StreamFacts) -> DataFrame:
    """
    Add to *cells* how many messages of the key the reader has, and from when to when, if these may have replaced others.

    *kept_from* is the lowest sequence of their own origin among these. *has_since* is the time of
    the reader's oldest message of any key. *rolled_until* is the time of its last roll-up of the key, *all_rolled_until*
    that of all keys; the others of these names are those of the reader that has the last one.
    """
    if not facts.keeps_last:
        nothing = F.lit(None).cast("bigint")
        names = "kept", "kept_since", "kept_until", "kept_from", "has_since", "replaced_until"
        rolled = "rolled_until", "rolled_anywhere", "all_rolled_until", "all_rolled_anywhere"
        return cells.withColumns(dict.fromkeys((*names, *rolled), nothing))
    by_key = ["virtual", "stream", "key"]
    # Names of streams have no spaces.
    origin = F.concat_ws(" ", "origin", "former")
    times = F.min("time_ns").alias("since"), F.max("time_ns").alias("until"), _time_of("sub").alias("rolled")
    # What was read one after the other may be more than the reader had at a time.
    newest = F.row_number().over(Window.partitionBy(*by_key).orderBy(F.col("seq").desc()))
    stored = (
        copies.where(~F.col("is_origin"))
        .join(
            cells.where(F.col("keeps").isNotNull() | F.col("may_roll_up")).select(*by_key, "keeps").distinct(), by_key
        )
        .withColumn("newest", newest)
        .where(F.col("keeps").isNull() | (F.col("newest") <= F.col("keeps")))
        .groupBy(*by_key, origin.alias("of"))
        .agg(F.count(F.lit(1)).alias("number"), *times, F.min("origin_seq").alias("from"))
        .groupBy(*by_key)
        .agg(
            F.sum("number").alias("kept"),
            F.min("since").alias("kept_since"),
            F.max("until").alias("kept_until"),
            F.map_from_entries(F.collect_list(F.struct("of", "from"))).alias("froms"),
            F.max("rolled").alias("rolled_until"),
        )
        .withColumn("rolled_anywhere", F.max("rolled_until").over(Window.partitionBy("virtual", "key")))
    )
    oldest = (
        copies.where(~F.col("is_origin"))
        .groupBy("virtual", "stream")
        .agg(F.min("time_ns").alias("has_since"), _time_of("all").alias("all_rolled_until"))
        .withColumn("all_rolled_anywhere", F.max("all_rolled_until").over(Window.partitionBy("virtual")))
    )
    return (
        _with_replaced_until(cells, copies)
        .join(stored, by_key, how="left")
        .join(F.broadcast(oldest), ["virtual", "stream"], how="left")
        .withColumn("kept_from", F.try_element_at("froms", origin))
    )


def _time_of(roll_up: str) -> Column:
    """When the last of these messages came that is such a *roll_up*."""
    return F.max(F.when(F.col("rolls_up") == roll_up, F.col("time_ns")))


def _with_replaced_until(cells: DataFrame, copies: DataFrame) -> DataFrame:
    """Add *replaced_until* to *cells*: of the key, as many from there on as the reader keeps, where its origin keeps no fewer."""
    by_key = [*ORIGIN, "key", "keeps"]
    newest = F.row_number().over(Window.partitionBy(*by_key).orderBy(F.col("origin_seq").desc()))
    asked = cells.where(is_replaced_alike()).select(*by_key).distinct()
    rows = copies.join(asked, by_key[:-1]).dropDuplicates([*by_key, "origin_seq"]).withColumn("newest", newest)
    last = rows.where(F.col("newest") == F.col("keeps")).select(*by_key, F.col("origin_seq").alias("replaced_until"))
    return cells.join(last, by_key, how="left")


def _with_same_id(cells: DataFrame, copies: DataFrame, ids: Sequence[str] | None) -> DataFrame:
    """
    Add to *cells* the digests of the reader's messages with the same id; null if none of them can be the reason.

    *ids*, if known, contains the ids of *cells*, and may contain others.
    """
    by_id = ["virtual", "stream", "msg_id"]
    if ids is not None and not ids:
        return cells.withColumn("same_id_digests", F.lit(None).cast("array<bigint>"))
    if ids is not None and len(ids) <= _MAX_IDS_LOOKED_UP:
        copies = copies.where(F.col("msg_id").isin(list(ids)))
    same_id = (
        copies.where(~F.col("is_origin") & F.col("msg_id").isNotNull())
        .join(cells.select(*by_id).distinct(), by_id, how="left_semi")
        .groupBy(*by_id)
        .agg(F.collect_set("digest").alias("same_id_digests"), F.max("time_ns").alias("same_id_until"))
    )
    # What was written when the window of the last one was over cannot have come within it.
    is_over = (F.col("window") == 0) | (F.col("same_id_until") + F.col("window") + SKEW_NS < F.col("time_ns"))
    return cells.join(same_id, by_id, how="left").withColumn(
        "same_id_digests", F.when(~F.coalesce(is_over, F.lit(False)), F.col("same_id_digests"))
    )


def _with_newer_absent(cells: DataFrame) -> DataFrame:
    """
    Add to *cells* how many newer messages of the key the reader lacks too, although its position is past them.

    These were stored and removed older ones: if a reader lost one of them, it did not lose those removed for it.
    """
    was_there = F.col("same_id_digests").isNull() & (F.col("origin_seq") <= _find_reached())
    return cells.withColumn("newer_absent", _count_younger(was_there, "key"))


def _with_younger_absent(cells: DataFrame, facts: StreamFacts) -> DataFrame:
    """Add to *cells* how many younger messages of any key the reader has removed in front of what it has of their origins."""
    if not facts.has_removed_early:
        return cells.withColumn("younger_absent", F.lit(None).cast("bigint"))
    is_passed = F.col("cursor").isNull() | (F.col("origin_seq") <= _find_reached())
    return cells.withColumn(
        "younger_absent", _count_younger(F.col("same_id_digests").isNull() & _is_oldest() & is_passed)
    )


def _count_younger(is_counted: Column, *by: str) -> Column:
    """For each cell: the number of younger ones of its reader (and the same *by*) for which *is_counted* is true."""
    newest_first = [F.col(name).desc() for name in ("time_ns", "origin", "former", "origin_seq")]
    younger = (
        Window.partitionBy("virtual", "stream", *by).orderBy(*newest_first).rowsBetween(Window.unboundedPreceding, -1)
    )
    return F.coalesce(F.sum(is_counted.cast("bigint")).over(younger), F.lit(0))


def _find_reached() -> Column:
    """How far a reader has come in an origin, by its cursor or its messages."""
    return F.greatest(F.coalesce("cursor", F.lit(0)), F.coalesce("greatest", F.lit(0)))


def _is_oldest() -> Column:
    """Whether a message stands before all that its reader has of its origin."""
    return F.coalesce(F.col("origin_seq") < F.col("least"), F.lit(True))
