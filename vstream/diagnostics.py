"""What is wrong in the user's files: values that are collected and shown, never raised."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Span(NamedTuple):
    """
    A stretch of text in a file. Lines and columns count from 1, in characters; the end is exclusive.

    A tuple, since there are several for every value of a file, and tuples are made in half the time.
    """

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    @classmethod
    def point(cls, file: str, line: int, column: int) -> Span:
        """One character at *line*, *column*."""
        return cls(file, line, column, line, column + 1)


class Severity(Enum):
    """How much a diagnostic weighs: errors stop a command, warnings do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Related:
    """Another place that a finding is about, and what there is to see."""

    span: Span
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Edit:
    """A replacement of the text at *span*."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """
    One finding about a user's file: what, where, and the way out.

    *code* is stable and never used again for another meaning. *hint* is one
    sentence that says what to do. *span* is None only where no file is involved.
    *fix* is a set of edits that can be made without asking.
    """

    code: str
    severity: Severity
    message: str
    span: Span | None = None
    hint: str | None = None
    related: tuple[Related, ...] = ()
    fix: tuple[Edit, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether this finding stops the command."""
        return self.severity is Severity.ERROR

    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Order by file, line, column, code, message, so that two runs print the same."""
        if self.span is None:
            return ("", 0, 0, self.code, self.message)
        return (self.span.file, self.span.line, self.span.column, self.code, self.message)
