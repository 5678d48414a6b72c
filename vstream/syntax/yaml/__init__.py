"""
YAML with positions.

PyYAML's parser gives events; what they mean is decided here, by the YAML 1.2 core
schema (`no` is a word, `12:30` is not a number), and every key is text. The tree that
is built of them also shows what a loader hides: keys written twice, aliases that
explode. No tag ever constructs an object.

`parse` takes time and memory in proportion to the file, whatever it says: nesting,
values and what aliases multiply are bounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.diagnostics import Finding, Span
from vstream.syntax.yaml.compose import MAX_DEPTH, MAX_NODES, compose
from vstream.syntax.yaml.convert import Path, convert
from vstream.syntax.yaml.text import MAX_BYTES, decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.syntax.json_types import Json

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "Document", "Path", "SourceMap", "parse"]


@dataclass(frozen=True, slots=True)
class SourceMap:
    """Where each path of a document was written."""

    file: str
    values: Mapping[Path, Span]
    keys: Mapping[Path, Span]

    def value(self, path: Path) -> Span:
        """The span of the value at *path*, or of its nearest ancestor that was written down."""
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path) or Span.point(self.file, 1, 1)

    def key(self, path: Path) -> Span:
        """The span of the key that *path* ends with, or of the value if there is no such key."""
        return self.keys.get(path) or self.value(path)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document: plain data, where it was written, and what is wrong with it as YAML."""

    data: Json
    source: SourceMap
    text: str
    diagnostics: tuple[Finding, ...]

    @property
    def is_readable(self) -> bool:
        """Whether *data* is what was meant, but for keys written twice: then it is worth looking for more."""
        return all(diagnostic.code == "VS002" for diagnostic in self.diagnostics)


def parse(content: bytes, file: str) -> Document:
    """
    Parse one YAML document. Never raises: what is wrong becomes VS001 to VS004.

    Where the document cannot be read at all, data is None.
    """
    text = decode(content, file)
    if isinstance(text, Finding):
        return Document(data=None, source=SourceMap(file, {}, {}), text="", diagnostics=(text,))
    root, problems = compose(text, file)
    if root is None:
        return Document(data=None, source=SourceMap(file, {}, {}), text=text, diagnostics=tuple(problems))
    converted = convert(root)
    findings = sorted((*problems, *converted.diagnostics), key=Finding.sort_key)
    source = SourceMap(file, converted.values, converted.keys)
    return Document(data=converted.data, source=source, text=text, diagnostics=tuple(findings))
