"""Diagnostics as text with snippets, as one line each, or as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from vstream.diagnostics import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from vstream.diagnostics import Diagnostic

_STYLE = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}


class DiagnosticFormat(StrEnum):
    """How diagnostics are written."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"


def headline(diagnostic: Diagnostic) -> Text:
    """`file:line:column: error VS101: message`."""
    span = diagnostic.span
    place = f"{span.file}:{span.line}:{span.column}: " if span else ""
    return Text.assemble(
        (place, "bold"),
        (f"{diagnostic.severity.value} {diagnostic.code}", _STYLE[diagnostic.severity]),
        f": {diagnostic.message}",
    )


def full(diagnostics: Sequence[Diagnostic], sources: Mapping[str, str]) -> Iterator[Text]:
    """Each finding with the line that caused it and a caret. *sources* are the texts of the files."""
    lines = {file: text.splitlines() for file, text in sources.items()}
    for diagnostic in diagnostics:
        yield headline(diagnostic)
        span = diagnostic.span
        written = lines.get(span.file, []) if span else []
        if span and 0 < span.line <= len(written):
            line = written[span.line - 1].replace("\t", " ")
            gutter = " " * len(str(span.line))
            end = span.end_column if span.end_line == span.line else len(line) + 1
            width = max(1, min(end, len(line) + 1) - span.column)
            yield Text(f"{gutter} |")
            yield Text(f"{span.line} | {line}")
            yield Text.assemble(f"{gutter} | {' ' * (span.column - 1)}", ("^" * width, _STYLE[diagnostic.severity]))
        if diagnostic.hint:
            yield Text.assemble(("hint: ", "bold cyan"), diagnostic.hint)
        yield Text("")


def concise(diagnostics: Sequence[Diagnostic]) -> Iterator[Text]:
    """One line each."""
    for diagnostic in diagnostics:
        hint = f" ({diagnostic.hint})" if diagnostic.hint else ""
        yield Text.assemble(headline(diagnostic), hint)


def as_json(diagnostics: Sequence[Diagnostic]) -> list[dict[str, Any]]:
    """A JSON array of findings."""
    return [
        {
            "code": diagnostic.code,
            "severity": diagnostic.severity.value,
            "message": diagnostic.message,
            "hint": diagnostic.hint,
            "file": diagnostic.span.file if diagnostic.span else None,
            "line": diagnostic.span.line if diagnostic.span else None,
            "column": diagnostic.span.column if diagnostic.span else None,
            "end_line": diagnostic.span.end_line if diagnostic.span else None,
            "end_column": diagnostic.span.end_column if diagnostic.span else None,
        }
        for diagnostic in diagnostics
    ]
