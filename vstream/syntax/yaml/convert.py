"""A tree of nodes → plain data, with the place of every key and value."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from vstream.findings import Finding, Severity, Span
from vstream.formatting import quote_value
from vstream.syntax.document import Json, Path
from vstream.syntax.yaml.compose import MAX_DEPTH, MAX_NODES, MapNode, Node, Scalar, Sequence

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_NUMBER_LENGTH = 40
"""Characters: beyond any number that fits into 64 bits, and far below what is slow to convert."""
_MERGE = "<<"


@dataclass(slots=True)
class Converted:
    """Data and where it was written. After VS003, data is None."""

    data: Json = None
    findings: list[Finding] = field(default_factory=list)
    values: dict[Path, Span] = field(default_factory=dict)
    keys: dict[Path, Span] = field(default_factory=dict)


def convert(root: Node) -> Converted:
    """The data that *root* stands for, by the YAML 1.2 core schema; what is wrong is VS001 to VS003."""
    converter = _Converter()
    try:
        converter.result.data = converter.value(root, ())
    except _TooMuchError:
        converter.result.data = None
    return converter.result


class _TooMuchError(Exception):
    """Conversion stopped: the document expands beyond the limits."""


class _Converter:
    def __init__(self) -> None:
        self.result = Converted()
        self._count = 0
        self._open: set[int] = set()
        self._merged: dict[int, dict[str, tuple[Scalar, Node]]] = {}

    def _report(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        finding = Finding(code=code, severity=Severity.ERROR, message=message, where=span, hint=hint)
        self.result.findings.append(finding)

    def _charge(self, values: int, span: Span) -> None:
        self._count += values
        if self._count > MAX_NODES:
            message = f"the document expands to more than {MAX_NODES:,} values"
            hint = "aliases of aliases multiply: write the values out, or use `presets`"
            self._report("VS003", message, span, hint)
            raise _TooMuchError

    def value(self, node: Node, path: Path) -> Json:
        self.result.values[path] = node.span
        self._charge(1, node.span)
        if isinstance(node, Scalar):
            return self._scalar(node)
        if id(node) in self._open:
            self._report("VS003", "an alias that contains itself", node.span, "remove the alias")
            return None
        if len(path) > MAX_DEPTH:
            hint = "write the values out, or use `presets`"
            self._report("VS003", f"aliases nest more than {MAX_DEPTH} levels deep", node.span, hint)
            raise _TooMuchError
        self._open.add(id(node))
        try:
            if isinstance(node, Sequence):
                return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MapNode, path: Path) -> Json:
        keys = self.result.keys
        converted: dict[str, Json] = {}
        for key, value in node.pairs:
            if not isinstance(key, Scalar):
                self._report("VS001", "a key must be a word, not a list or a map", key.span, "put the key in quotes")
            elif (first := keys.get((*path, key.text))) is not None:
                message = f"{quote_value(key.text)} is written twice, first on line {first.line}"
                hint = "merge several maps with `<<: [*one, *two]`" if _is_merge(key) else "remove one of the two"
                self._report("VS002", message, key.span, hint)
            else:
                keys[*path, key.text] = key.span
                if not _is_merge(key):
                    converted[key.text] = self.value(value, (*path, key.text))
        for name, (key, value) in self._inherited_entries(node, depth=0).items():
            if name not in converted:
                keys[*path, name] = key.span
                converted[name] = self.value(value, (*path, name))
        return converted

    def _inherited_entries(self, node: MapNode, depth: int) -> dict[str, tuple[Scalar, Node]]:
        """What `<<` brings into *node*: of two maps that are merged the first wins."""
        inherited: dict[str, tuple[Scalar, Node]] = {}
        for key, value in node.pairs:
            if isinstance(key, Scalar) and _is_merge(key):
                for parent in value.items if isinstance(value, Sequence) else [value]:
                    for name, pair in self._flatten(parent, depth + 1).items():
                        inherited.setdefault(name, pair)
        return inherited

    def _flatten(self, node: Node, depth: int) -> dict[str, tuple[Scalar, Node]]:
        """The pairs of a map that is merged somewhere: its own, then those that it merges itself."""
        if not isinstance(node, MapNode):
            self._report("VS001", "`<<` merges maps only", node.span, "give it an alias of a map: `<<: *name`")
            return {}
        if id(node) in self._open:
            self._report("VS003", "an alias that contains itself", node.span, "remove the alias")
            return {}
        merged = self._merged.get(id(node))
        if merged is not None:
            return merged
        if depth > MAX_DEPTH:
            self._report("VS003", f"`<<` merges more than {MAX_DEPTH} levels deep", node.span, "use `presets`")
            raise _TooMuchError
        self._open.add(id(node))
        pairs: dict[str, tuple[Scalar, Node]] = {}
        for key, value in node.pairs:
            if isinstance(key, Scalar) and not _is_merge(key):
                pairs.setdefault(key.text, (key, value))
        pairs |= {name: pair for name, pair in self._inherited_entries(node, depth).items() if name not in pairs}
        self._open.discard(id(node))
        self._charge(len(pairs), node.span)
        self._merged[id(node)] = pairs
        return pairs

    def _scalar(self, node: Scalar) -> Json:
        text = node.text
        if not node.is_plain:
            return text
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text.lower() == "true"
        number = _number(text)
        if isinstance(number, float) and math.isfinite(number):
            return number
        if number is not None and not -(2**63) <= number < 2**64:
            message = f"the number {quote_value(text)} does not fit into 64 bits"
            self._report("VS001", message, node.span, "put it in quotes if it is text")
            return None
        return text if number is None else number


def _is_merge(key: Scalar) -> bool:
    return key.text == _MERGE and key.is_plain


def _number(text: str) -> int | float | None:
    """The number that a plain scalar stands for, None if it is a word; infinity for what is far too large."""
    is_integer = _INT.fullmatch(text) or _HEX.fullmatch(text)
    if not is_integer and not _FLOAT.fullmatch(text):
        return None
    if len(text) > _MAX_NUMBER_LENGTH:
        return math.inf if is_integer else float(text)
    if not is_integer:
        return float(text)
    return int(text, 0 if _HEX.fullmatch(text) else 10)
