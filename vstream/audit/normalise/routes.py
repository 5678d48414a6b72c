"""
Convert subjects of a write stream to those of its virtual stream.

Headers name the transforms of a source: patterns and destinations, joined by form feeds if there are
several. The transform of the reading stream itself is applied after them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

SEPARATOR = "\f"
_CALL = re.compile(r"\{\{\s*wildcard\s*\(\s*(\d+)\s*\)\s*\}\}", re.IGNORECASE)
_OLD_CALL = re.compile(r"^\$(\d+)$")
_GROUP = re.compile(r"\\(\$)|\$(\d+)")

_STEP = StructType([StructField(name, StringType()) for name in ("pattern", "replacement", "head", "lead")])
ROUTES = ArrayType(StructType([StructField("steps", ArrayType(_STEP)), StructField("whole", _STEP)]))
"""The routes for `apply_routes`: regular expressions and replacements in Java's syntax."""


class TransformStep(NamedTuple):
    r"""
    One transform. Group n of *pattern* is `$n` in *replacement*, and a literal dollar is `\$`.

    If the transform only replaces the prefix *head* by *lead*, these are set, and no
    regular expression is needed.
    """

    pattern: str
    replacement: str
    head: str | None = None
    lead: str | None = None

    def apply(self, subject: str) -> str | None:
        """Apply the transform to *subject*; None if it does not match."""
        if self.head is not None and self.lead is not None:
            rest = subject.removeprefix(self.head)
            return self.lead + rest if rest and len(rest) + len(self.head) == len(subject) else None
        matched = re.fullmatch(self.pattern, subject)
        return _GROUP.sub(lambda item: item[1] or matched[int(item[2])], self.replacement) if matched else None


@dataclass(frozen=True, slots=True)
class SubjectRoute:
    """The transforms of one source, of which the first match counts, and the transform of the reading stream."""

    steps: tuple[TransformStep, ...]
    whole: TransformStep | None

    @property
    def is_prefix(self) -> bool:
        """Whether it only replaces one prefix by another."""
        return self.whole is None and len(self.steps) == 1 and self.steps[0].head is not None

    def apply(self, subject: str) -> str | None:
        """The subject in the reading stream for *subject*; None if the source does not copy it."""
        middle = next((text for step in self.steps if (text := step.apply(subject)) is not None), None)
        if middle is None or self.whole is None:
            return middle
        # A transform of a stream leaves alone what it does not match.
        changed = self.whole.apply(middle)
        return middle if changed is None else changed


def parse_route(filters: str, destinations: str, transform: tuple[str, str] | None) -> SubjectRoute | None:
    """The route from a header and the reading stream; None if a function in it cannot be written as a replacement."""
    pairs = list(zip(filters.split(SEPARATOR), destinations.split(SEPARATOR), strict=False))
    steps = [_step(source, destination) for source, destination in pairs]
    whole = _step(*transform) if transform is not None else None
    if None in steps or (transform is not None and whole is None):
        return None
    return SubjectRoute(steps=tuple(step for step in steps if step is not None), whole=whole)


def _step(source: str, destination: str) -> TransformStep | None:
    groups = {"*": "([^.]+)", ">": "(.+)"}
    tokens = source.split(".")
    pattern = r"\.".join(groups.get(token) or re.escape(token) for token in tokens)
    last = sum(token in groups for token in tokens)
    parts, is_literal = [], True
    for token in destination.split("."):
        call = _CALL.fullmatch(token) or _OLD_CALL.match(token)
        if token == ">":
            parts.append(f"${last}")
        elif call:
            parts.append(f"${call[1]}")
            is_literal = False
        elif "{{" in token or "\\" in token:
            return None
        else:
            # As in `$KV`, which is no group of an expression.
            parts.append(token.replace("$", r"\$"))
    is_prefix_swap = is_literal and last == 1 and source.endswith(">") and destination.endswith(">")
    ends = (source.removesuffix(">"), destination.removesuffix(">")) if is_prefix_swap else (None, None)
    return TransformStep(f"^{pattern}$", ".".join(parts), *ends)


def replaces_prefix() -> Column:
    """Whether a header's transform, if it replaces one prefix (`is_prefix`), explains the subject."""
    return F.expr("""
        startswith(sent_subject, left(filters, length(filters) - 1)) and length(sent_subject) >= length(filters)
        and subject = left(destinations, length(destinations) - 1) || substring(sent_subject, length(filters))
    """)


def to_rows(routes: Sequence[SubjectRoute]) -> list[tuple[Sequence[TransformStep], TransformStep | None]]:
    """Convert *routes* to a value of ROUTES."""
    return [(route.steps, route.whole) for route in routes]


def apply_routes(subject: Column, routes: Column) -> Column:
    """Convert *subject* by the first of *routes* (ROUTES) that matches, null if none does."""
    first = F.get(routes, F.lit(0))
    step = F.get(first["steps"], F.lit(0))
    is_prefix_swap = first["whole"].isNull() & subject.startswith(step["head"]) & (subject != step["head"])
    every = F.get(F.filter(F.transform(routes, lambda item: _apply_route(subject, item)), F.isnotnull), F.lit(0))
    swapped = F.concat(step["lead"], F.substring(subject, F.length(step["head"]) + 1, F.length(subject)))
    return F.when(is_prefix_swap, swapped).otherwise(every)


def _apply_route(subject: Column, route: Column) -> Column:
    middles = F.transform(
        F.filter(route["steps"], lambda step: F.rlike(subject, step["pattern"])),
        lambda step: F.regexp_replace(subject, step["pattern"], step["replacement"]),
    )
    whole = route["whole"]
    # Where there is no match, nothing is replaced.
    ends = F.transform(
        middles,
        lambda middle: F.when(whole.isNull(), middle).otherwise(
            F.regexp_replace(middle, whole["pattern"], whole["replacement"])
        ),
    )
    return F.get(ends, F.lit(0))
