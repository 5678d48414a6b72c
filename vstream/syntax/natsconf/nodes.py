"""
The tree of a NATS configuration: what was written, in the order it was written, and where.

Nodes are tuples, since a file can have a million of them, and tuples are made in half the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple, TypeAlias

from vstream.findings import Finding, Span

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
ConfNode: TypeAlias = "ConfMap | ConfArray | ConfScalar"


class ScalarKind(Enum):
    """What the server takes a single value for."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    DATETIME = "datetime"
    UNRESOLVED = "unresolved"
    """A variable that could not be resolved: a finding says so, and the value is the text `$NAME`."""


class ConfScalar(NamedTuple):
    """
    One value that is neither a map nor an array.

    *raw* is the text of the file, quotes included. Where a variable stands, *value*
    and *kind* are those of the variable, and *raw* and *span* those of `$NAME`.
    A datetime of the year 0, which Python cannot hold, stays text.
    """

    value: str | int | float | bool | datetime
    kind: ScalarKind
    raw: str
    span: Span


class ConfArray(NamedTuple):
    """The values between `[` and `]`, of any mixture of kinds."""

    items: tuple[ConfNode, ...]
    span: Span


class ConfEntry(NamedTuple):
    """A key and its value. The quotes of a quoted key belong to *key_span*, not to *key*."""

    key: str
    key_span: Span
    value: ConfNode

    @property
    def span(self) -> Span:
        """From the first character of the key to the last one of the value."""
        key, value = self.key_span, self.value.span
        return Span(key.file, key.line, key.column, value.end_line, value.end_column)


class ConfMap(NamedTuple):
    """
    The entries of a file, or between `{` and `}`, as they were written.

    A key that was written twice is here twice; the server takes the last one, and
    so do `get`, `items` and `effective_entries`. Entries of an included file stand where
    the include directive stood, with spans in their own file.
    """

    entries: tuple[ConfEntry, ...]
    span: Span

    def get(self, key: str) -> ConfNode | None:
        """The value that the server takes for *key*, compared exactly."""
        return next((entry.value for entry in reversed(self.entries) if entry.key == key), None)

    def get_folded(self, key: str) -> ConfNode | None:
        """The value for *key* in any mixture of cases, as the server compares the names of its options."""
        folded = key.lower()
        return next((entry.value for entry in reversed(self.entries) if entry.key.lower() == folded), None)

    def effective_entries(self) -> tuple[ConfEntry, ...]:
        """The entries that count: one for each key, in the order in which keys first appear."""
        return tuple({entry.key: entry for entry in self.entries}.values())

    def items(self) -> Iterator[tuple[str, ConfNode]]:
        """The keys and values that count, as `dict.items` gives them."""
        return ((entry.key, entry.value) for entry in self.effective_entries())


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment: *text* without its `#` or `//`, *span* with it."""

    text: str
    span: Span


@dataclass(frozen=True, slots=True)
class Reference:
    """
    A place where a variable is used.

    *definition* is the key that gave the value, or None where the environment gave it or nothing did.
    The server does not complain about an unknown option that some reference uses.
    """

    name: str
    span: Span
    definition: Span | None


@dataclass(frozen=True, slots=True)
class ConfDocument:
    """
    A file as far as it could be read.

    With a VS010 error among the findings, *root* holds what was written before it.
    """

    root: ConfMap
    findings: tuple[Finding, ...]
    comments: tuple[Comment, ...]
    references: tuple[Reference, ...]


def to_python(node: ConfNode) -> Json:
    """The plain values of *node* as the server takes them; datetimes become text such as `2026-01-31T00:00:00Z`."""
    if isinstance(node, ConfScalar):
        return node.value.isoformat().replace("+00:00", "Z") if isinstance(node.value, datetime) else node.value
    if isinstance(node, ConfArray):
        return [to_python(item) for item in node.items]
    return {key: to_python(value) for key, value in node.items()}
