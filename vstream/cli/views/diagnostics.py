"""Diagnostics as text with snippets, as one line each, or as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from vstream.diagnostics import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.diagnostics import Finding, Span

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
_WIDEST = 160
"""Characters of a line that are shown: JSON may have everything on one."""
_BEFORE = 60
_RELATED = 5


class DiagnosticFormat(StrEnum):
    """How diagnostics are written."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"


def clean(text: str) -> str:
    """*text* on one line: what cannot be printed, or would move the cursor, is escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def place(span: Span) -> str:
    """`file:line:column`."""
    return f"{clean(span.file)}:{span.line}:{span.column}"


def headline(diagnostic: Finding) -> Text:
    """`file:line:column: error VS101: message`."""
    return Text.assemble(
        (f"{place(diagnostic.span)}: " if diagnostic.span else "", "bold"),
        (f"{diagnostic.severity.value} {diagnostic.code}", _STYLE[diagnostic.severity]),
        f": {clean(diagnostic.message)}",
    )


def full(diagnostics: Sequence[Finding], sources: Mapping[str, str]) -> Iterator[Text]:
    """Each finding with the line that caused it and a caret. *sources* are the texts of the files."""
    snippets = _Snippets(sources)
    for diagnostic in diagnostics:
        yield headline(diagnostic)
        if diagnostic.span:
            yield from snippets.of(diagnostic.span, _STYLE[diagnostic.severity])
        for related in diagnostic.related[:_RELATED]:
            yield Text.assemble(("  = ", "bold cyan"), f"{place(related.span)}: {clean(related.message)}")
            yield from snippets.of(related.span, "bold cyan")
        if len(diagnostic.related) > _RELATED:
            yield Text.assemble(("  = ", "bold cyan"), f"and {len(diagnostic.related) - _RELATED:,} more places")
        if diagnostic.hint:
            yield Text.assemble(("hint: ", "bold cyan"), clean(diagnostic.hint))
        yield Text("")


class _Snippets:
    """Lines of the files, each file cut into lines when the first one is asked for."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._lines: dict[str, list[str]] = {}

    def of(self, span: Span, style: str) -> Iterator[Text]:
        """The line where *span* begins, with carets under it; nothing if there is no such line."""
        if span.file not in self._lines:
            self._lines[span.file] = self._sources.get(span.file, "").split("\n")
        lines = self._lines[span.file]
        if span.file not in self._sources or not 0 < span.line <= len(lines):
            return
        line = lines[span.line - 1].rstrip("\r")
        start = span.column - 1
        end = span.end_column - 1 if span.end_line == span.line else len(line)
        width = max(1, min(end, len(line)) - start)
        dropped = max(0, start - _BEFORE) if len(line) > _WIDEST else 0
        shown = line[dropped : dropped + _WIDEST]
        before, after = ("…" if dropped else ""), ("…" if dropped + _WIDEST < len(line) else "")
        column = start - dropped + len(before)
        # One column for each character, so that the carets stand where they should.
        shown = "".join(char if char.isprintable() else "�" if char != "\t" else " " for char in shown)
        gutter = " " * len(str(span.line))
        yield Text(f"{gutter} |")
        yield Text(f"{span.line} | {before}{shown}{after}")
        yield Text.assemble(f"{gutter} | {' ' * column}", ("^" * min(width, _WIDEST - column + 1), style))


def concise(diagnostics: Sequence[Finding]) -> Iterator[Text]:
    """One line each."""
    for diagnostic in diagnostics:
        hint = f" ({clean(diagnostic.hint)})" if diagnostic.hint else ""
        yield Text.assemble(headline(diagnostic), hint)


def as_json(diagnostics: Sequence[Finding]) -> list[dict[str, Any]]:
    """A JSON array of findings."""
    return [
        {
            "code": diagnostic.code,
            "severity": diagnostic.severity.value,
            "message": diagnostic.message,
            "hint": diagnostic.hint,
            **_span(diagnostic.span),
            "related": [{"message": one.message, **_span(one.span)} for one in diagnostic.related],
            "fixable": bool(diagnostic.fix),
        }
        for diagnostic in diagnostics
    ]


def _span(span: Span | None) -> dict[str, Any]:
    return {
        "file": span.file if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": span.end_line if span else None,
        "end_column": span.end_column if span else None,
    }
