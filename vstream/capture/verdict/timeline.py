"""What happened interval by interval, as values: what charts are drawn from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    """What happened interval by interval. Every list has one entry for each interval."""

    start: int
    interval: int
    """Nanoseconds: a second, or more for a long run."""
    intervals: int
    publishes: Mapping[str, tuple[PublishSecond, ...]]
    """By region, all streams."""
    reads: Mapping[str, tuple[float | None, ...]]
    """By region: share of reads that were answered; None where there were none."""
    control_plane: Mapping[str, tuple[int | None, ...]]
    """By region: the slowest answer of a meta leader in nanoseconds, -1 where one failed, None where none was asked."""
    lag: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By origin, by reading region: messages written and not yet arrived, at the interval's end."""
