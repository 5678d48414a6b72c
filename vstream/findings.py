"""Findings: what is wrong in files and on running systems, as values that are collected and shown, never raised."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from vstream.value_class import value_class

SHAPES = (
    re.compile(r"-----BEGIN[^-\"]*(?:PRIVATE KEY|SEED|JWT)-----(?:(?!-----BEGIN)[^\"])*?-----+END[^-\"]*-----+"),
    # Seeds of nkeys, and signed tokens. An escape of JSON ends in a letter that belongs to no word.
    re.compile(r"S(?:(?<!\wS)|(?<=\\[bfnrt]S)|(?<=\\u[\da-f]{4}S))[ACNOUX][A-Z2-7]{50,}\b"),
    re.compile(r"eyJ(?:(?<![\w-]eyJ)|(?<=\\[bfnrt]eyJ)|(?<=\\u[\da-f]{4}eyJ))[\w-]+\.[\w-]+\.[\w-]+"),
    re.compile(r"\$2[abxy]\$\d\d\$[./A-Za-z0-9]{53}"),  # hashes of passwords
)
"""What is a secret wherever it stands."""
_LOGIN = re.compile(r"(//)(?!USER:PASSWORD@)[^/\s\"'`]+(?=@)")
_WORD = r"(?:password|passwd|passphrase|token|secret|api[_-]?key|private[_-]?key|credentials)"
_ASSIGNED = re.compile(r"((?:password|token|secret)=)[^\s\"'`,;&\\$<…]+")
_NAMED = re.compile(
    rf"""({_WORD}(?:"|",\s*"before"(?::\s*(?:null|"\**"),\s*"after")?):\s*")(?:[^"\\]|\\.)+""", re.IGNORECASE
)
"""A text of JSON below a key that says what it is, or in a changed field: first what was, then what will be."""
_BARE_LOGIN = re.compile(r"(?<![^\s\"'\[,])[^\s\"'\[,/@:]+:[^\s\"'\[,/]+(?=@)")
_PASSWORD = re.compile(
    r"""((?:pass?w(?:or)?d|pass(?:phrase)?|pwd|token|secret|seed|\b(?:prev_)?(?:encryption_)?key|\bek)(_env)?"""
    r"""["']?[\s:=]\s*)"""
    r"""(?(2)(?!["']?(?-i:[A-Z][A-Z0-9_]*)\b))("[^"]*"|'[^']*'|(?!\$[A-Za-z_])[^\s,}\]#]+)""",
    re.IGNORECASE,
)
"""What follows such a key in a file; not a variable, nor the name of one."""


def mask_secrets(text: str) -> str:
    """
    *text* with a star for each character of what has the form of a secret: keys, tokens, and logins in addresses.

    Of JSON it leaves JSON: no form goes beyond a string.
    """
    for shape in (*SHAPES, _LOGIN, _ASSIGNED, _NAMED, _NAMED):
        text = shape.sub(_mask, text)
    return text


def mask_value(name: str, text: str) -> str:
    """*text*, or a star for each of its characters if *name* ends like that of a secret, as `metadata.api_token` does."""
    return "*" * len(text) if re.search(rf"{_WORD}$", name, re.IGNORECASE) else text


def mask_line(line: str) -> str:
    """`mask_secrets` for a line of a file, where passwords stand behind their keys, and logins without a scheme."""
    line = _BARE_LOGIN.sub(_mask, mask_secrets(line))
    return _PASSWORD.sub(_mask, line)


def _mask(match: re.Match[str]) -> str:
    key = match[1] if match.re.groups else ""
    return key + "*" * (len(match[0]) - len(key))


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
    """The weight of a finding: errors stop a command, warnings do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@value_class
class Related:
    """Another place that a finding is about, and what is there."""

    span: Span
    message: str


@value_class
class Edit:
    """A replacement of the text at *span*."""

    span: Span
    text: str


@value_class
class Finding:
    """
    A problem in a file, on the servers, in an audit or in a scenario's run.

    *code* is stable and never used again for another meaning. *where* is a place in a file, or the name of a stream,
    region or server. *hint* is one sentence that says what to do. *evidence* is what was observed. *fix* is
    a set of edits that can be made without asking.
    """

    code: str
    severity: Severity
    message: str
    where: Span | str | None = None
    hint: str | None = None
    evidence: str = ""
    related: tuple[Related, ...] = ()
    fix: tuple[Edit, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether this finding stops the command."""
        return self.severity is Severity.ERROR

    @property
    def span(self) -> Span | None:
        """The place in a file, if it is about a file."""
        return self.where if isinstance(self.where, Span) else None

    @property
    def about(self) -> str:
        """What it is about: `file:line:column`, or the name of a stream, region or server."""
        if isinstance(self.where, Span):
            return f"{self.where.file}:{self.where.line}:{self.where.column}"
        return self.where or ""

    def sort_key(self) -> tuple[str, int, int, str, str]:
        """Order by file, line, column, code, message, so that two runs print the same."""
        if isinstance(self.where, Span):
            return (self.where.file, self.where.line, self.where.column, self.code, self.message)
        return (self.where or "", 0, 0, self.code, self.message)
