"""What happened in each interval of the run: the data behind the charts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSecond:
    """The publishes that were due in one interval of the timeline."""

    ok: int
    rejected: int
    indeterminate: int
    p50: int | None
    p99: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """What happened in each interval. Every list has one entry per interval."""

    start: int
    interval: int
    """Length of an interval in nanoseconds: a second, or more for a long run."""
    intervals: int
    publishes: Mapping[str, tuple[PublishSecond, ...]]
    """By region, over all streams."""
    reads: Mapping[str, tuple[float | None, ...]]
    """By region: share of answered reads; None without reads."""
    control_plane: Mapping[str, tuple[int | None, ...]]
    """By region: the meta leader's slowest answer in nanoseconds; -1 if a request failed, None without requests."""
    lag: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By origin and reading region: messages written and not yet arrived at the interval's end."""
