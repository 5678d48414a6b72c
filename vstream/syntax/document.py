"""What a parser makes of a text: plain data (`Json`), and where each part of it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from vstream.findings import Finding, Span
from vstream.value_class import value_class

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Path: TypeAlias = tuple[str | int, ...]
"""Where a value is in a document: keys of mappings, and positions in lists."""


@dataclass(frozen=True, slots=True)
class SourceMap:
    """Where each path of a document was written."""

    file: str
    values: Mapping[Path, Span]
    keys: Mapping[Path, Span]

    def value_span(self, path: Path) -> Span:
        """The span of the value at *path*, or of its nearest ancestor that was written down."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path) or Span.point(self.file, 1, 1)

    def key_span(self, path: Path) -> Span:
        """The span of the key that *path* ends with, or of the value if there is no such key."""
        return self.keys.get(path) or self.value_span(path)


@value_class
class Document:
    """One document: plain data, where it was written, and what is wrong with it as YAML or JSON."""

    data: Json
    source: SourceMap
    text: str
    findings: tuple[Finding, ...]

    @property
    def is_readable(self) -> bool:
        """Whether *data* is what was meant, but for keys written twice or removed in vain: it is worth looking for more."""
        return all(finding.code in {"VS002", "VS006"} for finding in self.findings)


def object_or_empty(value: Json) -> Mapping[str, Json]:
    """*value* if it is an object, an empty one if it is anything else."""
    return value if isinstance(value, dict) else {}
