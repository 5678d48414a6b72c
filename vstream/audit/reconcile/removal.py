"""Reconcile: whether limits, newer messages or times to live may have removed a message from its origin."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

LATE_NS: Final = 30_000_000_000
"""A message that has not arrived after so many nanoseconds is late; until then it is in transit."""
_MAX_TRAVEL_DIVISOR: Final = 10
"""What part of a stream's `max_age` a message may have taken to its first reader: this is no proof that it was removed too early."""


def may_be_gone_at_origin() -> Column:
    """Whether a limit of the origin may have removed a message; *time_ns* is when it was written or first arrived."""
    # The limits have gone on removing the oldest ones until the origin was read.
    is_below = F.col("origin_seq") < F.greatest("origin_first", F.coalesce("origin_least", F.lit(2**63 - 1)))
    by_limit = F.when(is_below, F.col("origin_may_lose_oldest") & is_old_at_origin()).otherwise(
        F.col("origin_may_lose_any")
    )
    was_before = F.col("origin_seq") < F.col("origin_began")
    return was_before | by_limit | (F.col("origin_has_ttl") & is_ttl_over("origin_read_ns"))


def is_early_at_origin() -> Column:
    """Whether a message is gone that the origin's `max_msgs` leaves: no limit has removed it, unless that was smaller."""
    is_kept = F.col("origin_seq").between(F.col("origin_first_kept"), F.col("origin_first") - 1)
    return F.coalesce(is_kept, F.lit(False))


def find_oldest_at_origins(extents: DataFrame) -> DataFrame:
    """By origin: *origin_least*, the first sequence that was read from it."""
    is_own = (F.col("stream") == F.col("origin")) & (F.col("former") == "")
    return extents.where(is_own).select("virtual", "origin", F.col("least").alias("origin_least"))


def is_old_at_origin() -> Column:
    """Whether a message may be older than the `max_age` of its origin, if that is the only limit there."""
    # What an origin no longer has is as old as it says, or older by the time that it was on its way.
    until = F.col("time_ns") + F.col("origin_max_age") - find_longest_delay("origin_max_age")
    return F.coalesce(until <= F.col("origin_read_ns"), F.lit(True))


def find_longest_delay(max_age: str) -> Column:
    """How long a message of a stream with *max_age* may have taken to its first reader, in nanoseconds."""
    return F.lit(LATE_NS) + F.expr(f"{max_age} div {_MAX_TRAVEL_DIVISOR}")


def is_ttl_over(read: str) -> Column:
    """Whether a message's time to live had ended when its stream was read."""
    return F.coalesce(F.col("time_ns") + F.col("ttl_ns") <= F.col(read) + LATE_NS, F.lit(False))


def is_replaced_alike() -> Column:
    """Whether what newer messages of its subject removed from an origin, they remove from the reader, too."""
    return F.coalesce(F.col("keeps") <= F.col("origin_keeps"), F.lit(False))
