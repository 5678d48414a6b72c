"""Text → a tree of nodes, in one pass over the parser's events and without recursion."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TypeAlias

import yaml

from vstream.findings import Finding, Severity, Span
from vstream.formatting import quote_value

MAX_NODES = 250_000
"""Values, also after aliases are followed: above any real topology, far below an alias bomb."""
MAX_DEPTH = 60

Node: TypeAlias = "Scalar | Sequence | MapNode"

_Loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

_CORE = "tag:yaml.org,2002:"
_TEXT_TAGS = ("!", f"{_CORE}str")


@dataclass(slots=True, eq=False)
class Scalar:
    """A single value. *is_plain* says that the schema decides what it is, not quotes or a `!!str`."""

    text: str
    is_plain: bool
    span: Span


@dataclass(slots=True, eq=False)
class Sequence:
    """A list."""

    span: Span
    items: list[Node] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class MapNode:
    """A map: keys and values in turn, as they were written."""

    span: Span
    items: list[Node] = field(default_factory=list)

    @property
    def pairs(self) -> list[tuple[Node, Node]]:
        """Each key with its value."""
        return list(zip(self.items[::2], self.items[1::2], strict=True))


def compose(text: str, file: str) -> tuple[Node | None, list[Finding]]:
    """The root node of the only document in *text*, None if there is none; and what is wrong (VS001, VS003)."""
    composer = _Composer(file, text)
    try:
        for event in yaml.parse(text, Loader=_Loader):
            composer.take(event)
    except yaml.MarkedYAMLError as error:
        composer.report_syntax(error)
        return None, composer.findings
    except _StopError:
        return None, composer.findings
    if composer.root is None:
        composer.report(
            "VS001", "the file is empty", Span.point(file, 1, 1), "`vstream init` writes a commented starter"
        )
    return composer.root, composer.findings


class _StopError(Exception):
    """The rest of the document is not worth reading; a finding says why."""


class _Composer:
    def __init__(self, file: str, text: str) -> None:
        self.findings: list[Finding] = []
        self.root: Node | None = None
        self._file = file
        # As editors count: after a last line break stands one more, empty line.
        self._lines = re.split(r"\r\n|[\n\r\x85\u2028\u2029]", text)
        self._end = (len(self._lines), len(self._lines[-1]))
        self._open: list[tuple[Sequence | MapNode, bool]] = []
        self._anchors: dict[str, Node] = {}
        self._count = 0

    def report(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        self.findings.append(Finding(code=code, severity=Severity.ERROR, message=message, where=span, hint=hint))

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._check_tag(event, _TEXT_TAGS)
                is_plain = not event.style and event.tag is None
                self._add(Scalar(str(event.value), is_plain, self._span(event)), event.anchor)
            case yaml.AliasEvent():
                self._add_alias(event)
            case yaml.SequenceStartEvent():
                self._check_tag(event, ("!", f"{_CORE}seq"))
                self._enter(Sequence(self._span(event)), event)
            case yaml.MappingStartEvent():
                self._check_tag(event, ("!", f"{_CORE}map"))
                self._enter(MapNode(self._span(event)), event)
            case yaml.CollectionEndEvent():
                self._leave(event)
            case yaml.DocumentStartEvent() if self.root is not None:
                span = self._span(event)
                self.report("VS001", "a second document starts here", span, "keep one document per file")
                raise _StopError

    def _add(self, node: Node, anchor: str | None) -> None:
        self._count += 1
        if self._count > MAX_NODES:
            self.report("VS003", f"more than {MAX_NODES:,} values", node.span, "is this the right file?")
            raise _StopError
        if anchor:
            self._anchors[anchor] = node
        if self._open:
            self._open[-1][0].items.append(node)
        else:
            self.root = node

    def _add_alias(self, event: yaml.AliasEvent) -> None:
        name = str(event.anchor)
        node = self._anchors.get(name)
        if node is None:
            close = get_close_matches(name, self._anchors, n=1)
            self.report(
                "VS001",
                f"no anchor {quote_value('&' + name)} stands above this alias",
                self._span(event),
                f"did you mean `*{close[0]}`?" if close else "define the anchor (`&name`) above the alias (`*name`)",
            )
            raise _StopError
        self._add(node, None)

    def _enter(self, node: Sequence | MapNode, event: yaml.CollectionStartEvent) -> None:
        self._add(node, event.anchor)
        self._open.append((node, bool(event.flow_style)))
        if len(self._open) > MAX_DEPTH:
            message = f"nested more than {MAX_DEPTH} levels deep"
            self.report("VS003", message, node.span, "a topology is never this deep")
            raise _StopError

    def _leave(self, event: yaml.CollectionEndEvent) -> None:
        node, is_flow = self._open.pop()
        # The parser ends a block where the next thing begins, we where its last value ends.
        last = node.items[-1].span if node.items else node.span
        end = self._span(event) if is_flow or last < node.span else last
        node.span = Span(self._file, node.span.line, node.span.column, end.end_line, end.end_column)

    def _check_tag(self, event: yaml.NodeEvent, allowed: tuple[str, ...]) -> None:
        tag = getattr(event, "tag", None)
        if tag is not None and tag not in allowed:
            written = "!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag
            self.report(
                "VS001", f"the tag {quote_value(written)} has no meaning here", self._span(event), "remove the tag"
            )

    def _span(self, event: yaml.Event) -> Span:
        start, end = event.start_mark, event.end_mark
        if start is None or end is None:  # The parser marks every event; only its types allow for more.
            return Span.point(self._file, 1, 1)
        return Span(self._file, *self._place(start.line, start.column), *self._place(end.line, end.column))

    def _place(self, line: int, column: int) -> tuple[int, int]:
        """Counted from 1. The parser ends a last line that has no line break, and so may be one line too far."""
        if line < len(self._lines):
            return line + 1, column + 1
        return self._end[0], self._end[1] + 1

    def report_syntax(self, error: yaml.MarkedYAMLError) -> None:
        mark, problem = error.problem_mark, str(error.problem or "cannot be parsed")
        if error.context_mark and (mark is None or (mark.line + 1, mark.column) >= self._end):
            # What is not closed is wrong where it begins, not at the end of the file.
            mark = error.context_mark
        line, column = (mark.line, mark.column) if mark else (0, 0)
        written = self._lines[line] if line < len(self._lines) else ""
        hint = "check the indentation and the quotes on this line and the one before"
        if written[column : column + 1] == "\t":
            problem, hint = "a tab cannot indent YAML", "use spaces"
        elif written[column : column + 1] in {"@", "`", "%", "*", ">"} and "cannot start" in problem:
            problem, hint = f"a value cannot begin with {written[column]!r}", "put the value in quotes"
        elif "expected comment or line break" in problem:
            problem, hint = "a value cannot begin with '>' or '|', unless its lines follow", "put the value in quotes"
        elif "mapping values are not allowed" in problem:
            hint = "a value that contains `: ` needs quotes; a key needs the indentation of its neighbours"
        else:
            problem = _describe_problem(problem, error)
        self.report("VS001", problem, Span.point(self._file, *self._place(line, column)), hint)


_EXPECTED = {
    "key": "a key",
    "'-' indicator": "an item that begins with `- `",
    "<document start>": "the end of the file",
}


def _describe_problem(problem: str, error: yaml.MarkedYAMLError) -> str:
    """*problem* in words of those who write YAML, where the parser has its own."""
    context, start = error.context or "", error.context_mark
    expected = problem.removeprefix("did not find expected ")
    if context.startswith("while parsing a flow") and start:
        return f"expected {expected}: the bracket of line {start.line + 1} is not closed"
    if expected != problem:
        return f"expected {_EXPECTED.get(expected, expected)} here"
    if context == "while scanning a quoted scalar":
        return "the quote is not closed"
    return f"{problem} ({context})" if context else problem
