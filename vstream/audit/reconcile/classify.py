"""
Stage 3, second half: classify each message in the buckets that differ.

There is one row per problem, message and reader. Missing messages are classified by their likely cause: a message that
a limit may have removed is not reported as lost.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from vstream.audit.connector.stream_cuts import SKEW_NS
from vstream.audit.reconcile.differing_messages import DifferingMessages
from vstream.audit.reconcile.reconcile import BUCKET_SIZE, MESSAGE, ORIGIN, classify_by_cut, select_rows_near
from vstream.audit.spark.local_frames import make_table
from vstream.audit.tables.cut_tables import CutTables
from vstream.audit.tables.schema import make_schema
from vstream.audit.tables.stream_settings import is_origin

DIFFERENCES = make_schema("""
    virtual string not null, origin string, former string, origin_seq bigint, stream string not null,
    region string not null, kind string not null, seq bigint, number bigint not null, time_ns bigint, key string
""")
"""
Columns of DIFFERENCES. *stream* is the stream with the problem; *seq* is the sequence of the copy in it, null if the
message is absent. *number* is the number of extra copies if a message is stored several times, else 1. *time_ns* is
when the message was written, in nanoseconds since 1970, as far as that is known.
"""

MISSING: Final = frozenset({"lost-prefix", "lost-middle", "lost-tail", "expired", "late", "displaced"})
"""Kinds of differences in which a reader lacks a message that it should have."""
_EACH: Final = {"digest": "digests", "key": "keys", "sent_subject": "subjects"}
_MAX_IDS_LOOKED_UP: Final = 1_000
"""Message ids that are looked up one by one."""
LATE_NS: Final = 30_000_000_000
"""A message that has not arrived after so many nanoseconds is late; until then it is in transit."""
_MAX_TRAVEL_DIVISOR: Final = 10
"""What part of a stream's `max_age` a message may have taken to its first reader: this is no proof that it was removed too early."""
_SLICE_SEQUENCES: Final = 64
"""Number of sequences in a slice in which rows are compared with segments."""
RANGED: Final = frozenset({"expired", "deleted-everywhere", "canaries"})
"""Kinds of differences whose rows describe a range of messages."""
_ENDS: Final = StructType([DIFFERENCES["virtual"], DIFFERENCES["origin"], DIFFERENCES["origin_seq"]])
_CANARIES: Final = make_schema("virtual string, usual_key string")
_LASTS: Final = make_schema("virtual string, stream string, last_seq bigint")
_HOLES: Final = make_schema("virtual string, origin string, region string, first bigint, last bigint")


def find_message_differences(
    messages: DifferingMessages,
    copies: DataFrame,
    cut: CutTables,
    extents: DataFrame,
    suspects: DataFrame,
    canaries: Mapping[str, Sequence[str]],
    *,
    size: int = BUCKET_SIZE,
) -> DataFrame:
    """DIFFERENCES of the messages of *messages* in the buckets `suspects`, except for those of order; *canaries* by virtual stream."""
    grid = _tabulate_messages(messages.differing, cut, suspects, size).persist()
    absent = _classify_absent(grid, copies, cut, extents, messages.ids)
    result = _classify_present(grid).unionByName(absent).unionByName(_classify_at_origins(grid, cut, extents))
    return _excuse_late_canaries(result, grid, canaries) if canaries else result


def _excuse_late_canaries(result: DataFrame, grid: DataFrame, canaries: Mapping[str, Sequence[str]]) -> DataFrame:
    """*result*, in which canaries that came after a probe had deleted them at their origin are no loss."""
    subjects = [(virtual, subject) for virtual, listed in canaries.items() for subject in listed]
    late = (
        grid.where(F.col("own").isNull())
        .join(
            F.broadcast(make_table(grid.sparkSession, subjects, _CANARIES)), ["virtual", "usual_key"], how="left_semi"
        )
        .select(*MESSAGE, F.lit(True).alias("is_late"))
    )
    is_excused = F.coalesce("is_late", F.lit(False)) & F.col("kind").isin(*MISSING, "not-at-origin")
    kind = F.when(is_excused, F.lit("canaries-late")).otherwise(F.col("kind"))
    return result.join(F.broadcast(late), [*MESSAGE], how="left").withColumn("kind", kind).drop("is_late")


def _tabulate_messages(copies: DataFrame, cut: CutTables, suspects: DataFrame, size: int) -> DataFrame:
    """Each message of a suspect bucket: what its origin has, what each reader has, and what most readers have."""
    is_own, is_copy = F.col("is_origin"), ~F.col("is_origin")
    cells = (
        classify_by_cut(copies, cut)
        .where(F.col("part") == "cut")
        .withColumn("bucket", F.expr(f"origin_seq div {size}"))
        .join(suspects, [*ORIGIN, "bucket"], how="left_semi")
        .groupBy(*MESSAGE, "is_origin", "stream", "region")
        .agg(
            F.count(F.lit(1)).alias("number"),
            *(F.min(name).alias(name) for name in ("seq", "time_ns", "msg_id", "ttl_ns")),
            *(F.array(F.min(name), F.max(name)).alias(names) for name, names in _EACH.items()),
        )
    )
    cell = F.struct("stream", "region", "number", "seq", "time_ns", "digests", "keys", "subjects", "msg_id")
    return cells.groupBy(*MESSAGE).agg(
        F.first(F.when(is_own, cell), ignorenulls=True).alias("own"),
        F.collect_list(F.when(is_copy, cell)).alias("copies"),
        F.min(F.when(is_copy, F.col("time_ns"))).alias("first_arrival"),
        F.mode(F.when(is_copy, F.col("digests")[0]), deterministic=True).alias("usual_digest"),
        F.mode(F.when(is_copy, F.col("keys")[0]), deterministic=True).alias("usual_key"),
        F.max("msg_id").alias("msg_id"),
        F.min("ttl_ns").alias("ttl_ns"),
    )


def _classify_present(grid: DataFrame) -> DataFrame:
    """DIFFERENCES of copies that exist."""
    original, copy = F.col("own"), F.col("copy")
    digest = F.coalesce(original["digests"][0], F.col("usual_digest"))
    is_other = F.exists(copy["digests"], lambda item: item != digest)
    # What arrived before it was written is a copy of something else.
    is_reused = F.coalesce(original["time_ns"] > copy["time_ns"], F.lit(False)) | F.coalesce(
        original["msg_id"] != copy["msg_id"], F.lit(False)
    )
    is_renamed = F.exists(copy["keys"], lambda item: item != F.col("usual_key")) | F.exists(
        copy["subjects"], lambda item: F.coalesce(item != original["subjects"][0], F.lit(False))
    )
    kinds = F.array(
        F.when(copy["number"] > 1, F.lit("duplicated")),
        F.when(is_other & is_reused, F.lit("reused")).when(is_other, F.lit("payload")),
        F.when(is_renamed & ~(is_other & is_reused), F.lit("subject")),
    )
    return (
        grid.withColumn("copy", F.explode("copies"))
        .select(
            *MESSAGE,
            *(copy[name].alias(name) for name in ("stream", "region", "seq")),
            F.explode(F.array_compact(kinds)).alias("kind"),
            copy["number"].alias("copies"),
            F.coalesce(original["time_ns"], F.col("first_arrival")).alias("time_ns"),
            F.col("usual_key").alias("key"),
        )
        .withColumn("number", F.when(F.col("kind") == "duplicated", F.col("copies") - 1).otherwise(F.lit(1)))
        .select(*DIFFERENCES.names)
    )


def _classify_at_origins(grid: DataFrame, cut: CutTables, extents: DataFrame) -> DataFrame:
    """Messages that readers have and the origin lacks although no limit removes them there, and duplicated rows."""
    number = F.col("own.number")
    is_missing = number.isNull() & (F.col("former") == "") & F.col("origin_last").isNotNull()
    is_gone = is_missing & ~_may_be_gone_at_origin()
    return (
        grid.join(F.broadcast(cut.origins), ["virtual", "origin"])
        .join(F.broadcast(_find_oldest_at_origins(extents)), ["virtual", "origin"], how="left")
        .withColumn("time_ns", F.coalesce("own.time_ns", "first_arrival"))
        .select(
            *MESSAGE,
            F.col("origin").alias("stream"),
            F.col("origin_region").alias("region"),
            F.when(is_gone, F.lit("not-at-origin"))
            .when(is_missing & _is_early_at_origin(), F.lit("removed-early"))
            .when(number > 1, F.lit("row-twice"))
            .alias("kind"),
            F.col("own.seq").alias("seq"),
            F.when(number > 1, number - 1).otherwise(F.lit(1)).cast("bigint").alias("number"),
            "time_ns",
            F.coalesce("usual_key", F.col("own.keys")[0]).alias("key"),
        )
        .where(F.col("kind").isNotNull())
    )


def _may_be_gone_at_origin() -> Column:
    """Whether a limit of the origin may have removed a message; *time_ns* is when it was written or first arrived."""
    # The limits have gone on removing the oldest ones until the origin was read.
    is_below = F.col("origin_seq") < F.greatest("origin_first", F.coalesce("origin_least", F.lit(2**63 - 1)))
    by_limit = F.when(is_below, F.col("origin_may_lose_oldest") & is_old_at_origin()).otherwise(
        F.col("origin_may_lose_any")
    )
    was_before = F.col("origin_seq") < F.col("origin_began")
    return was_before | by_limit | (F.col("origin_has_ttl") & _is_ttl_over("origin_read_ns"))


def _is_early_at_origin() -> Column:
    """Whether a message is gone that the origin's `max_msgs` leaves: no limit has removed it, unless that was smaller."""
    is_kept = F.col("origin_seq").between(F.col("origin_first_kept"), F.col("origin_first") - 1)
    return F.coalesce(is_kept, F.lit(False))


def _find_oldest_at_origins(extents: DataFrame) -> DataFrame:
    """By origin: *origin_least*, the first sequence that was read from it."""
    is_own = (F.col("stream") == F.col("origin")) & (F.col("former") == "")
    return extents.where(is_own).select("virtual", "origin", F.col("least").alias("origin_least"))


def is_old_at_origin() -> Column:
    """Whether a message may be older than the `max_age` of its origin, if that is the only limit there."""
    # What an origin no longer has is as old as it says, or older by the time that it was on its way.
    until = F.col("time_ns") + F.col("origin_max_age") - _longest_delay("origin_max_age")
    return F.coalesce(until <= F.col("origin_read_ns"), F.lit(True))


def _longest_delay(max_age: str) -> Column:
    """How long a message of a stream with *max_age* may have taken to its first reader, in nanoseconds."""
    return F.lit(LATE_NS) + F.expr(f"{max_age} div {_MAX_TRAVEL_DIVISOR}")


def _is_ttl_over(read: str) -> Column:
    """Whether a message's time to live had ended when its stream was read."""
    return F.coalesce(F.col("time_ns") + F.col("ttl_ns") <= F.col(read) + LATE_NS, F.lit(False))


def _classify_absent(
    grid: DataFrame, copies: DataFrame, cut: CutTables, extents: DataFrame, ids: Sequence[str] | None
) -> DataFrame:
    """Messages that readers lack, with the reason."""
    cells = (
        grid.join(F.broadcast(cut.expected), ["virtual", "origin"])
        .where(~F.exists("copies", lambda copy: copy["stream"] == F.col("stream")))
        .join(F.broadcast(extents), [*ORIGIN, "stream"], how="left")
        .join(F.broadcast(_find_oldest_at_origins(extents)), ["virtual", "origin"], how="left")
        .join(F.broadcast(_find_oldest_sourced(copies, cut)), [*ORIGIN, "stream"], how="left")
        .withColumn("least", F.coalesce("oldest_sourced", "least"))
        .withColumn("time_ns", F.coalesce("own.time_ns", "first_arrival"))
        .withColumn("key", F.coalesce("usual_key", F.col("own.keys")[0]))
    )
    return (
        _with_younger_absent(_with_newer_absent(_with_twins(_with_key_counts(cells, copies, cut), copies, ids)), cut)
        .withColumn("kind", _explain_absence())
        .where(F.col("kind").isNotNull())
        .selectExpr(
            *MESSAGE, "stream", "region", "kind", "cast(null as bigint) as seq", "1L as number", "time_ns", "key"
        )
    )


def _find_oldest_sourced(copies: DataFrame, cut: CutTables) -> DataFrame:
    """Where a repair added messages: the lowest sequence among all others. Limits remove these before what it added."""
    reader = [*ORIGIN, "stream"]
    added = F.broadcast(copies.where("is_replay").select(*reader).distinct())
    theirs = classify_by_cut(copies.join(added, reader, how="left_semi"), cut).where(F.col("part") == "cut")
    oldest = F.coalesce(F.min(F.when(~F.col("is_replay"), F.col("origin_seq"))), F.lit(2**63 - 1))
    return theirs.groupBy(*reader).agg(oldest.alias("oldest_sourced"))


def _with_key_counts(cells: DataFrame, copies: DataFrame, cut: CutTables) -> DataFrame:
    """
    Add to *cells* how many messages of the key the reader has, and from when to when, if these may have replaced others.

    *kept_from* is the lowest sequence of their own origin among these. *has_since* is the time of
    the reader's oldest message of any key. *rolled_until* is the time of its last roll-up of the key, *all_rolled_until*
    that of all keys; the others of these names are those of the reader that has the last one.
    """
    if not cut.keeps_last:
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
    asked = cells.where(_is_replaced_alike()).select(*by_key).distinct()
    rows = copies.join(asked, by_key[:-1]).dropDuplicates([*by_key, "origin_seq"]).withColumn("newest", newest)
    last = rows.where(F.col("newest") == F.col("keeps")).select(*by_key, F.col("origin_seq").alias("replaced_until"))
    return cells.join(last, by_key, how="left")


def _is_replaced_alike() -> Column:
    """Whether what newer messages of its subject removed from an origin, they remove from the reader, too."""
    return F.coalesce(F.col("keeps") <= F.col("origin_keeps"), F.lit(False))


def _with_twins(cells: DataFrame, copies: DataFrame, ids: Sequence[str] | None) -> DataFrame:
    """
    Add to *cells* the digests of the reader's messages with the same id; null if none of them can be the reason.

    *ids*, if known, contains the ids of *cells*, and may contain others.
    """
    by_id = ["virtual", "stream", "msg_id"]
    if ids is not None and not ids:
        return cells.withColumn("twins", F.lit(None).cast("array<bigint>"))
    if ids is not None and len(ids) <= _MAX_IDS_LOOKED_UP:
        copies = copies.where(F.col("msg_id").isin(list(ids)))
    twins = (
        copies.where(~F.col("is_origin") & F.col("msg_id").isNotNull())
        .join(cells.select(*by_id).distinct(), by_id, how="left_semi")
        .groupBy(*by_id)
        .agg(F.collect_set("digest").alias("twins"), F.max("time_ns").alias("twins_until"))
    )
    # What was written when the window of the last one was over cannot have come within it.
    is_over = (F.col("window") == 0) | (F.col("twins_until") + F.col("window") + SKEW_NS < F.col("time_ns"))
    return cells.join(twins, by_id, how="left").withColumn(
        "twins", F.when(~F.coalesce(is_over, F.lit(False)), F.col("twins"))
    )


def _with_newer_absent(cells: DataFrame) -> DataFrame:
    """
    Add to *cells* how many newer messages of the key the reader lacks too, although its position is past them.

    These were stored and removed older ones: if a reader lost one of them, it did not lose those removed for it.
    """
    was_there = F.col("twins").isNull() & (F.col("origin_seq") <= _find_reached())
    return cells.withColumn("newer_absent", _count_younger(was_there, "key"))


def _with_younger_absent(cells: DataFrame, cut: CutTables) -> DataFrame:
    """Add to *cells* how many younger messages of any key the reader has removed in front of what it has of their origins."""
    if not cut.has_removed_early:
        return cells.withColumn("younger_absent", F.lit(None).cast("bigint"))
    is_passed = F.col("cursor").isNull() | (F.col("origin_seq") <= _find_reached())
    return cells.withColumn("younger_absent", _count_younger(F.col("twins").isNull() & _is_oldest() & is_passed))


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


def _explain_absence() -> Column:
    """Why a message is absent; null if it is counted without looking at messages (`find_expired_before_read`)."""
    seq, cursor, has_no_cursor = F.col("origin_seq"), _find_reached(), F.col("cursor").isNull()
    is_there, is_readable = F.col("own").isNotNull(), F.col("origin_last").isNotNull()
    may_be_gone = (F.col("former") != "") | _may_be_gone_at_origin()
    may_be_removed = _may_be_removed()
    is_early = _is_oldest() & _is_kept_by_number() & ~F.col("is_purged")
    is_passed = (F.col("former") == "") & F.col("cursor").isNotNull() & (seq < F.col("origin_first"))
    is_late = F.col("is_capture") | (F.col("time_ns") + LATE_NS <= F.col("reader_cut_ns"))
    lost = (
        F.when(_is_oldest(), F.lit("lost-prefix"))
        .when(seq < F.col("greatest"), F.lit("lost-middle"))
        .otherwise(F.lit("lost-tail"))
    )
    return (
        F.when(F.array_contains("twins", F.coalesce(F.col("own.digests")[0], "usual_digest")), F.lit("deduplicated"))
        .when(F.col("twins").isNotNull(), F.lit("displaced"))
        # Who does not say how far it has come may have come past what its limits explain.
        .when(has_no_cursor & may_be_removed, F.lit("removed"))
        # No limit explains it, except one that was smaller once.
        .when(is_early & ~may_be_removed & (has_no_cursor | (seq <= cursor)), F.lit("removed-early"))
        .when((seq > cursor) & ~is_readable & F.col("takes_no_more"), F.lit("expired"))
        .when((seq > cursor) & (is_there | ~is_readable), F.when(is_late, F.lit("late")).otherwise(F.lit("pending")))
        .when((seq > cursor) & (seq < F.col("replaced_until")), F.lit("removed"))
        .when((seq > cursor) & is_passed & ~_is_replaced_alike(), F.lit(None))
        .when(may_be_removed & (seq <= cursor), F.lit("removed"))
        .when(~is_there & is_readable & may_be_gone, F.lit("expired"))
        .otherwise(lost)
    )


def _may_be_removed() -> Column:
    """Whether limits of the reader may have removed a message."""
    # What its origin no longer has was written before it came to the region that still has it.
    slack = F.when(F.col("own").isNotNull(), F.lit(0)).otherwise(_longest_delay("max_age"))
    old_since = F.col("time_ns") + F.col("max_age") - slack
    is_old = F.coalesce(old_since <= F.col("reader_read_ns"), F.lit(True))
    # It may be the first one that the stream has ever removed.
    is_newly_old = F.coalesce(is_old & (old_since > F.col("reader_cut_ns")), F.lit(False))
    by_age = F.col("may_lose_oldest") & _is_oldest() & is_newly_old
    by_limit = by_age | F.col("has_holes") & (
        F.col("may_lose_any")
        | (F.col("may_lose_oldest") & F.col("lost_oldest") & _is_oldest() & is_old & ~_is_kept_by_number())
        | (F.col("keeps").isNotNull() & F.coalesce(_is_replaced(), F.lit(False)))
        | (F.col("may_roll_up") & _may_be_rolled_up())
    )
    return by_limit | (F.col("has_ttl") & _is_ttl_over("reader_read_ns"))


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
    is_nowhere = (F.size("copies") == 0) | (F.col("kept_until") + SKEW_NS >= F.col("reader_cut_ns"))
    is_guessed = F.coalesce(is_nowhere, F.lit(False)) & are_newer

    def is_before(rolled: str) -> Column:
        return F.coalesce(F.col("time_ns") <= F.col(rolled) + SKEW_NS, F.lit(False))

    is_rolled_up = (is_before("rolled_until") & ~_is_older_kept()) | (is_before("all_rolled_until") & _is_oldest())
    was_anywhere = is_before("rolled_anywhere") | is_before("all_rolled_anywhere")
    # A capture does not say what is a roll-up, and one with a time to live may be gone.
    is_told = ~F.col("is_capture") & ~F.col("has_ttl")
    told = is_rolled_up | ((F.size("copies") == 0) & are_newer & was_anywhere)
    return F.when(is_told, told).otherwise(is_guessed)


def find_expired_before_read(extents: DataFrame, cut: CutTables) -> DataFrame:
    """DIFFERENCES for messages that origins removed before readers sourced them, one row per range; reads no messages."""
    cursor = F.greatest("cursor", F.coalesce("greatest", F.lit(0)), F.col("origin_began") - 1)
    return (
        cut.expected.where(F.col("cursor").isNotNull())
        .withColumn("former", F.lit(""))
        .join(F.broadcast(extents), [*ORIGIN, "stream"], how="left")
        .where((cursor < F.col("origin_first") - 1) & ~_is_replaced_alike())
        .withColumns({"origin_seq": cursor + 1, "number": F.col("origin_first") - 1 - cursor})
        .selectExpr(
            *(*MESSAGE, "stream", "region", "'expired' as kind", "cast(null as bigint) as seq", "number"),
            *("cast(null as bigint) as time_ns", "cast(null as string) as key"),
        )
    )


def find_purged_buckets(copies: DataFrame, cut: CutTables, *, size: int = BUCKET_SIZE) -> DataFrame | None:
    """
    Buckets (virtual, origin, former, bucket) whose messages the origins lack although no limit has removed them.

    None if there are none: the youngest message that is gone decides.
    """
    is_aging = F.col("origin_max_age").isNotNull() & (F.col("origin_first") > 1)
    limited = cut.origins.where(is_aging | (F.col("origin_first_kept") < F.col("origin_first")))
    lasts = [(row.origin_first - 1) // size for row in limited.select("origin_first").collect()]
    if not lasts or cut.is_narrow:
        return None

    def select_young(rows: DataFrame) -> DataFrame:
        return (
            rows.where(~F.col("is_origin") & (F.col("former") == ""))
            .join(F.broadcast(limited), ["virtual", "origin"])
            .where(F.col("origin_seq").between(F.col("origin_began"), F.col("origin_first") - 1))
            .where(~is_old_at_origin() | _is_early_at_origin())
        )

    near = select_rows_near(copies, {bucket for last in lasts for bucket in (last - 1, last)}, size)
    if select_young(near).isEmpty():
        return None
    return select_young(copies).select(*ORIGIN, F.expr(f"origin_seq div {size}").alias("bucket")).distinct()


def find_deleted_everywhere(copies: DataFrame, cut: CutTables, with_canary: Collection[str]) -> DataFrame:
    """
    DIFFERENCES of messages missing in the middle of origins (`CutTables.holes`) and in all readers: one row per range.

    *with_canary* are the virtual streams whose canaries are deleted again.
    """
    spark, key, seq = copies.sparkSession, ["virtual", "origin"], F.col("origin_seq")
    holes = F.broadcast(make_table(spark, [hole[:5] for hole in cut.holes], _HOLES))
    # What is gone behind the last message has the end of the stream behind it; of a capture that is not known for sure.
    ends = [(virtual, origin, last + 1) for virtual, origin, _, _, last, is_capture in cut.holes if not is_capture]
    held = (
        copies.where(F.col("former") == "")
        .join(holes, key)
        .where(seq.between(F.col("first"), F.col("last")))
        .select(*key, "origin_seq")
        .distinct()
        .unionByName(make_table(spark, ends, _ENDS))
        .withColumn("before", F.lag(seq).over(Window.partitionBy(*key).orderBy(seq)))
    )
    gaps = held.where(seq > F.col("before") + 1).withColumn("number", seq - F.col("before") - 1)
    if names := {virtual for virtual, *_ in cut.holes} & {*with_canary}:
        gaps = gaps.join(_find_canaries(gaps, copies, cut, names), [*key, "before"], how="left")
    else:
        gaps = gaps.withColumn("kind", F.lit(None))
    return gaps.join(holes, key).selectExpr(
        *(*key, "'' as former", "before + 1 as origin_seq", "origin as stream", "region"),
        *("coalesce(kind, 'deleted-everywhere') as kind", "cast(null as bigint) as seq", "number"),
        *("cast(null as bigint) as time_ns", "cast(null as string) as key"),
    )


def _find_canaries(gaps: DataFrame, copies: DataFrame, cut: CutTables, names: Collection[str]) -> DataFrame:
    """
    Those of *gaps* that canaries of the virtual streams *names* may have left: virtual, origin, before, kind.

    A reader has stored and deleted as many messages between the neighbours: they were not lost on their way to it.
    """
    spark, key, reader = copies.sparkSession, ["virtual", "origin"], ["virtual", "stream"]
    rows = [row for row in cut.rows if row.virtual in names and not is_origin(row) and row.error is None]
    lasts = F.broadcast(make_table(spark, [(row.virtual, row.stream, row.last_seq) for row in rows], _LASTS))
    stored = copies.where(~F.col("is_origin")).join(lasts, reader).where(F.col("seq") <= F.col("last_seq"))
    absent = F.col("seq") - F.row_number().over(Window.partitionBy(*reader).orderBy("seq"))
    placed = (
        stored.withColumn("absent", absent)
        .where(F.col("former") == "")
        .groupBy(*key, "stream", "origin_seq")
        .agg(F.min("absent").alias("absent"))
    )
    # Behind the last message of an origin, a reader is at its own end.
    ends = stored.groupBy(*reader, "last_seq").agg((F.col("last_seq") - F.count(F.lit(1))).alias("at_end"))
    before = placed.select(*key, "stream", F.col("origin_seq").alias("before"), F.col("absent").alias("absent_before"))
    return (
        gaps.join(before, [*key, "before"])
        .join(placed, [*key, "stream", "origin_seq"], how="left")
        .join(ends, reader)
        .where(F.coalesce("absent", "at_end") - F.col("absent_before") >= F.col("number"))
        .select(*key, "before", F.lit("canaries").alias("kind"))
        .distinct()
    )


def find_misplaced(copies: DataFrame, cut: CutTables, ahead: Iterable[int], *, size: int = BUCKET_SIZE) -> DataFrame:
    """DIFFERENCES of impossible copies: of a message that never existed, or (buckets *ahead*) that its origin has lost."""
    rows = select_rows_near(copies, ahead, size).unionByName(copies.where(F.col("origin").isNull()))
    kind = F.when(F.col("part") == "foreign", "foreign").when(F.col("part") == "ahead", "rolled-back")
    return (
        classify_by_cut(rows, cut)
        .withColumn("kind", kind)
        .where(F.col("kind").isNotNull())
        .select(*MESSAGE, "stream", "region", "kind", "seq", F.lit(1).cast("bigint").alias("number"), "time_ns", "key")
    )


def find_reordered(behind: DataFrame, backsteps: DataFrame) -> DataFrame:
    """
    DIFFERENCES of order: messages of *behind* that are stored after a later message of their origin; first copies only.

    *before*, the greatest sequence in front of a segment, is the maximum so far for each of its rows
    that is not above it. Further copies of a message do not change it.
    """
    place = F.struct("seq", "origin_seq")
    is_in_it = place.between(F.struct("first_seq", "least"), F.struct("last_seq", "greatest"))
    return (
        pair_with_segments(behind, backsteps)
        .where(is_in_it & (F.col("origin_seq") < F.col("before")))
        # A row that was read twice is in two segments.
        .dropDuplicates([*ORIGIN, "stream", "region", "origin_seq"])
        .selectExpr(
            *(*MESSAGE, "stream", "region", "if(is_replay, 'put-back', 'reordered') as kind"),
            *("seq", "1L as number", "time_ns", "key"),
        )
    )


def pair_with_segments(behind: DataFrame, backsteps: DataFrame) -> DataFrame:
    """
    The first copies of the messages of *behind*, each paired with the segments near it.

    The join is by slices of a few sequences: a reader that is completely out of order has as many segments as
    rows, and joining each row with each segment would be quadratic.
    """
    reader = [*ORIGIN, "stream", "region"]
    slices = F.sequence(F.expr(f"seq div {_SLICE_SEQUENCES}"), F.expr(f"last_seq div {_SLICE_SEQUENCES}"))
    segments = backsteps.withColumn("slice", F.explode(slices)).withColumnsRenamed({"seq": "first_seq"})
    first = (
        behind.where(~F.col("is_origin"))
        .join(F.broadcast(backsteps.select(*reader).distinct()), reader, how="left_semi")
        .groupBy(*reader, "origin_seq")
        .agg(
            F.min("seq").alias("seq"), *(F.min_by(name, "seq").alias(name) for name in ("time_ns", "key", "is_replay"))
        )
    )
    return first.withColumn("slice", F.expr(f"seq div {_SLICE_SEQUENCES}")).join(segments, [*reader, "slice"])
