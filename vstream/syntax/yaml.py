"""
YAML with positions.

PyYAML's parser gives nodes; what they mean is decided here, by the YAML 1.2 core
schema (`no` is a word, `12:30` is not a number), and every key is text. A node tree
also shows what a loader hides: keys written twice, aliases that explode. No tag ever
constructs an object.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import yaml

from vstream.diagnostics import Diagnostic, Severity, Span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.model.json import Json

Path: TypeAlias = "tuple[str | int, ...]"

MAX_BYTES = 32 * 1024 * 1024
MAX_NODES = 500_000
"""Values after aliases are followed: above any real topology, far below an alias bomb."""
MAX_DEPTH = 60

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+|0o[0-7]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


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
    diagnostics: tuple[Diagnostic, ...]


def parse(content: bytes, file: str) -> Document:
    """
    Parse one YAML document. Never raises: what is wrong becomes VS001 to VS004.

    Where the document cannot be read at all, data is None.
    """
    builder = _Builder(file)
    text = builder.decode(content)
    data: Json = None
    if text is not None:
        node = builder.compose(text)
        if node is not None:
            data = builder.convert(node)
    return Document(
        data=data,
        source=SourceMap(file, builder.values, builder.keys),
        text=text or "",
        diagnostics=tuple(builder.diagnostics),
    )


class _TooMuchError(Exception):
    """Conversion stopped: the document expands beyond the limits."""


@dataclass
class _Builder:
    file: str
    diagnostics: list[Diagnostic] = field(default_factory=list)
    values: dict[Path, Span] = field(default_factory=dict)
    keys: dict[Path, Span] = field(default_factory=dict)
    _count: int = 0
    _open: set[int] = field(default_factory=set)
    _lines: list[str] = field(default_factory=list)

    def _report(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.diagnostics.append(
            Diagnostic(code=code, severity=Severity.ERROR, message=message, span=span, hint=hint)
        )

    def decode(self, content: bytes) -> str | None:
        start = Span.point(self.file, 1, 1)
        if len(content) > MAX_BYTES:
            self._report(
                "VS004",
                f"the file has {len(content):,} bytes, more than the {MAX_BYTES:,} that a topology may have",
                start,
                "is this the right file?",
            )
            return None
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
            self._report(
                "VS004",
                f"not UTF-8 text: byte 0x{content[error.start]:02x}",
                Span.point(self.file, line, column),
                "save the file as UTF-8",
            )
            return None
        for match in re.finditer(r"[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text):
            line = text.count("\n", 0, match.start()) + 1
            column = match.start() - (text.rfind("\n", 0, match.start()) + 1) + 1
            self._report(
                "VS004",
                f"the character U+{ord(match[0]):04X} cannot stand in YAML",
                Span.point(self.file, line, column),
                "remove it; is this a text file?",
            )
            return None
        return text

    def compose(self, text: str) -> yaml.Node | None:
        self._lines = text.splitlines()
        # libyaml composes nested collections recursively: bound the nesting before it does.
        if not self._nesting_is_sane(text):
            return None
        loader = _Loader(text)
        try:
            node: yaml.Node | None = loader.get_single_node()
        except yaml.MarkedYAMLError as error:
            self._report_syntax(error)
            return None
        finally:
            loader.dispose()
        if node is None:
            self._report(
                "VS001", "the file is empty", Span.point(self.file, 1, 1), "`vstream init` writes a commented starter"
            )
        return node

    def _nesting_is_sane(self, text: str) -> bool:
        try:
            depth = 0
            for event in yaml.parse(text, Loader=_Loader):
                if isinstance(event, yaml.CollectionStartEvent):
                    depth += 1
                    if depth > MAX_DEPTH:
                        self._report(
                            "VS003",
                            f"nested more than {MAX_DEPTH} levels deep",
                            self._mark_span(event.start_mark),
                            "a topology is never this deep",
                        )
                        return False
                elif isinstance(event, yaml.CollectionEndEvent):
                    depth -= 1
        except yaml.MarkedYAMLError as error:
            self._report_syntax(error)
            return False
        return True

    def _report_syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark = error.problem_mark or error.context_mark
        span = self._mark_span(mark) if mark else Span.point(self.file, 1, 1)
        problem = error.problem or "cannot be parsed"
        hint = "check the indentation and the quotes on this line and the one before"
        if mark and self._line(mark.line)[mark.column : mark.column + 1] == "\t":
            problem, hint = "a tab cannot indent YAML", "use spaces"
        elif "expected a single document" in str(error) or "but found another document" in problem:
            problem, hint = "a second document starts here", "keep one document per file"
        elif "undefined alias" in problem:
            hint = "define the anchor (`&name`) above the alias (`*name`)"
        elif error.context:
            problem = f"{problem} ({error.context})"
        self._report("VS001", problem, span, hint)

    def _line(self, index: int) -> str:
        return self._lines[index] if index < len(self._lines) else ""

    def _mark_span(self, mark: yaml.Mark) -> Span:
        return Span.point(self.file, mark.line + 1, mark.column + 1)

    def _span(self, node: yaml.Node) -> Span:
        start, end = node.start_mark, node.end_mark
        return Span(self.file, start.line + 1, start.column + 1, end.line + 1, end.column + 1)

    def convert(self, node: yaml.Node) -> Json:
        try:
            return self._value(node, ())
        except _TooMuchError:
            return None

    def _value(self, node: yaml.Node, path: Path) -> Json:
        self.values[path] = self._span(node)
        self._count += 1
        if self._count > MAX_NODES:
            self._report(
                "VS003",
                f"the document expands to more than {MAX_NODES:,} values",
                self._span(node),
                "aliases of aliases multiply: write the values out, or use `presets`",
            )
            raise _TooMuchError
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if id(node) in self._open:
            self._report("VS003", "an alias that contains itself", self._span(node), "remove the alias")
            return None
        if len(path) > MAX_DEPTH:
            self._report("VS003", f"aliases nest more than {MAX_DEPTH} levels deep", self._span(node))
            raise _TooMuchError
        self._check_tag(node)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.SequenceNode):
                return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
            return self._mapping(node, path)
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, path: Path) -> Json:
        own: dict[str, Json] = {}
        merged: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._report("VS001", "a key must be a word, not a list or a map", self._span(key_node))
                continue
            key = str(key_node.value)
            if key == "<<" and not key_node.style:
                for pair in self._merge_pairs(value_node):
                    merged.setdefault(str(pair[0].value), pair)
                continue
            if key in own:
                first = self.keys[(*path, key)]
                self._report(
                    "VS002",
                    f"`{key}` is written twice, first on line {first.line}",
                    self._span(key_node),
                    "remove one of the two",
                )
                continue
            self.keys[(*path, key)] = self._span(key_node)
            own[key] = self._value(value_node, (*path, key))
        for key, (key_node, value_node) in merged.items():
            if key not in own:
                self.keys[(*path, key)] = self._span(key_node)
                own[key] = self._value(value_node, (*path, key))
        return own

    def _merge_pairs(self, node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        pairs: list[tuple[yaml.Node, yaml.Node]] = []
        for one in nodes:
            if not isinstance(one, yaml.MappingNode):
                self._report("VS001", "`<<` merges maps only", self._span(one), "give it an alias of a map: `<<: *name`")
                continue
            if id(one) in self._open:
                self._report("VS003", "an alias that contains itself", self._span(one), "remove the alias")
                continue
            self._open.add(id(one))
            for key_node, value_node in one.value:
                if not isinstance(key_node, yaml.ScalarNode):
                    continue
                if key_node.value == "<<":
                    pairs.extend(self._merge_pairs(value_node))
                else:
                    pairs.append((key_node, value_node))
            self._open.discard(id(one))
        return pairs

    def _check_tag(self, node: yaml.Node) -> None:
        tag = str(node.tag)
        if not tag.startswith("tag:yaml.org,2002:") or tag.startswith("tag:yaml.org,2002:python"):
            self._report("VS001", f"the tag `{tag}` has no meaning here", self._span(node), "remove the tag")

    def _scalar(self, node: yaml.ScalarNode) -> Json:
        self._check_tag(node)
        text = str(node.value)
        if node.style:
            return text
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text.lower() == "true"
        if _INT.fullmatch(text) and len(text) < 40:  # noqa: PLR2004 - beyond any number, and quadratic to convert
            return int(text)
        if _HEX.fullmatch(text):
            return int(text, 0)
        if _FLOAT.fullmatch(text):
            return float(text)
        return text
