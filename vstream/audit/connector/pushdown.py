"""
Filter pushdown: request only the sequences that can match a filter.

Filters by sequence are exact. Filters by time and subject only narrow the range, and Spark
filters again: clocks of leaders differ a little, and subjects may accidentally contain wildcards.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from pyspark.sql import datasource

from vstream.audit.connector.options import to_nanoseconds
from vstream.value_class import value_class

_SPECIAL_CHARACTERS = frozenset("*> \t\r\n")
_MAX_SUBJECTS = 64


@value_class
class Bounds:
    """The bounds of a read. Both ends are inclusive, None is open; empty *subjects* means all."""

    first: int | None = None
    last: int | None = None
    since_ns: int | None = None
    until_ns: int | None = None
    subjects: tuple[str, ...] = ()
    streams: frozenset[str] | None = None
    regions: frozenset[str] | None = None

    def intersect(self, other: Bounds) -> Bounds:
        """The intersection. Of two lists of subjects the first is used: either is correct, as Spark filters again."""
        return Bounds(
            first=_find_latest(self.first, other.first),
            last=_find_earliest(self.last, other.last),
            since_ns=_find_latest(self.since_ns, other.since_ns),
            until_ns=_find_earliest(self.until_ns, other.until_ns),
            subjects=self.subjects or other.subjects,
            streams=_intersect_names(self.streams, other.streams),
            regions=_intersect_names(self.regions, other.regions),
        )


def push_filters(filters: Iterable[datasource.Filter], bounds: Bounds) -> tuple[Bounds, list[datasource.Filter]]:
    """*bounds* narrowed by *filters*, and the filters that Spark has to apply itself."""
    rest: list[datasource.Filter] = []
    for item in filters:
        result, is_exact = _bounds(item)
        if result is not None:
            bounds = bounds.intersect(result)
        if not is_exact:
            rest.append(item)
    return bounds, rest


def _bounds(condition: Any) -> tuple[Bounds | None, bool]:
    """The bounds from the filter *condition*, None if none; and whether they express it completely."""
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    name = attribute[0] if len(attribute) == 1 else None
    value = getattr(condition, "value", None)
    match name:
        case "seq":
            ends = _ends(condition, value)
            return (Bounds(first=ends[0], last=ends[1]), True) if ends else (None, False)
        case "time_ns" | "time":
            ends = _ends(condition, to_nanoseconds(value) if isinstance(value, datetime) else value)
            # A timestamp has lost its nanoseconds, which may belong to either side.
            slack = 1_000 if name == "time" else 0
            return (_widen(ends, slack), False) if ends else (None, False)
        case "subject":
            subjects = _subjects(condition, value)
            return (Bounds(subjects=subjects) if subjects else None, False)
        case "stream" | "region":
            values = _values(condition, value)
            if values is None:
                return None, False
            return (Bounds(streams=values) if name == "stream" else Bounds(regions=values)), False
        case _:
            return None, False


def _ends(condition: Any, value: Any) -> tuple[int | None, int | None] | None:  # noqa: PLR0911 - one for each kind
    """The first and last whole number that match *condition*, None for another kind of filter."""
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    match condition:
        case datasource.EqualTo() | datasource.EqualNullSafe():
            return value, value
        case datasource.GreaterThan():
            return value + 1, None
        case datasource.GreaterThanOrEqual():
            return value, None
        case datasource.LessThan():
            return None, value - 1
        case datasource.LessThanOrEqual():
            return None, value
        case _:
            return None


def _widen(ends: tuple[int | None, int | None], slack: int) -> Bounds:
    since, until = ends
    return Bounds(since_ns=None if since is None else since - slack, until_ns=None if until is None else until + slack)


def _subjects(condition: Any, value: Any) -> tuple[str, ...]:
    """The NATS subjects that match *condition*, none if they cannot be listed."""
    if isinstance(condition, datasource.StringStartsWith):
        # Only a prefix of whole tokens is a subject: `a.b.` is, `a.b` would also begin `a.bc`.
        prefix = str(value)
        return (f"{prefix}>",) if prefix.endswith(".") and _is_subject(prefix[:-1]) else ()
    values = _values(condition, value)
    if not values or len(values) > _MAX_SUBJECTS or any(not _is_subject(text) for text in values):
        return ()
    return tuple(sorted(values))


def _is_subject(text: str) -> bool:
    return all(text.split(".")) and not _SPECIAL_CHARACTERS & set(text)


def _values(condition: Any, value: Any) -> frozenset[str] | None:
    if isinstance(condition, (datasource.EqualTo, datasource.EqualNullSafe)) and isinstance(value, str):
        return frozenset({value})
    if isinstance(condition, datasource.In) and all(isinstance(text, str) for text in condition.value):
        return frozenset(condition.value)
    return None


def _find_latest(left: int | None, right: int | None) -> int | None:
    return max((value for value in (left, right) if value is not None), default=None)


def _find_earliest(left: int | None, right: int | None) -> int | None:
    return min((value for value in (left, right) if value is not None), default=None)


def _intersect_names(left: frozenset[str] | None, right: frozenset[str] | None) -> frozenset[str] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right
