"""Where a single value of the language ends, and what shape it has."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, TypeAlias

from vstream.syntax.natsconf import values


class Shape(Enum):
    """What the first look at a value says; numbers and dates are still text that may turn out wrong."""

    STRING = "string"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    FLOAT = "float"
    DATETIME = "datetime"
    VARIABLE = "variable"


Scanned: TypeAlias = tuple[Shape, str, int]

_ESCAPE: Final = r"\\(?:x[0-9a-fA-F]{2}|[tnr\"\\])"
_DOUBLE_QUOTED: Final = re.compile(rf'"((?:[^"\\\0]++|{_ESCAPE})*)')
_SINGLE_QUOTED: Final = re.compile(r"'([^'\0]*+)")
_WORD: Final = re.compile(rf"(?:[^\n\r\0;,\]}}\t '\\]++|{_ESCAPE})*")
_END_OF_RAW: Final = re.compile(r"\n\)(?=[\n\0]|\Z)|\0")
_DIGITS: Final = re.compile(r"\d++")
_UNIT: Final = re.compile(r"[kKmMgGtTpPeE][bBiI]*+")
_ADDRESS: Final = re.compile(r"[\d.:-]*+")
_AFTER_YEAR: Final = re.compile(r"-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_YEAR_BYTES: Final = 4
_ENDS_NUMBER: Final = frozenset({"", "\0", "\n", "\r", "}", ";", ",", " ", "\t"})
_BOOLEANS: Final = frozenset({"true", "yes", "on", "false", "no", "off"})

QUOTE_IT: Final = "put the value in double quotes if it is text"
ISO_DATE: Final = "write a date in full, as in `2026-01-31T09:30:00Z`, or put the value in double quotes if it is text"


class SyntaxFault(Exception):  # noqa: N818 - not an error of this program: the lexer turns it into a finding
    """The server's parser would stop here."""

    def __init__(self, message: str, hint: str, start: int, end: int) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.start = start
        self.end = end


class EndOfInputFault(SyntaxFault):
    """The text ends right after an opening quote or an escape: in some places the server does not mind."""


def quote_char(text: str, pos: int) -> str:
    """The character at *pos*, for a message."""
    names = {"": "the end of the file", "\0": "a NUL byte", "\n": "the end of the line", "\r": "a carriage return"}
    character = text[pos : pos + 1]
    return names.get(character) or (f"`{character}`" if character.isprintable() else f"U+{ord(character):04X}")


def scan(text: str, start: int) -> Scanned:
    """The value that begins at *start*, and where it ends. It may be the empty string, and end where it begins."""
    first = text[start : start + 1]
    if first.isdecimal() or first == "-":
        return _scan_number(text, start)
    match first:
        case '"':
            return _scan_double_quoted(text, start)
        case "'":
            return _scan_single_quoted(text, start)
        case "(":
            return _scan_raw(text, start)
        case ".":
            raise SyntaxFault(
                "a number begins with a digit, not with `.`", f"write `0.5`, or {QUOTE_IT}", start, start + 1
            )
        case "\n" | "\r":
            hint = "begin the value on the line of its key, or leave out the separator before the line break"
            raise SyntaxFault("a value is missing before the end of the line", hint, start, start + 1)
        case _:
            return _scan_word(text, start, start)


def _scan_double_quoted(text: str, start: int) -> Scanned:
    match = _DOUBLE_QUOTED.match(text, start)
    assert match is not None
    end = match.end()
    if text[end : end + 1] == '"':
        return Shape.STRING, values.unescape(match[1]), end + 1
    _refuse_escape(text, end)
    after_escape = end == len(text) and values.ends_with_escape(match[1])
    raise _make_unclosed_error("string", start, ends_with_input=after_escape)


def _scan_single_quoted(text: str, start: int) -> Scanned:
    match = _SINGLE_QUOTED.match(text, start)
    assert match is not None
    end = match.end()
    if text[end : end + 1] == "'":
        return Shape.STRING, match[1], end + 1
    raise _make_unclosed_error("string", start, ends_with_input=end == len(text) and not match[1])


def _make_unclosed_error(literal: str, start: int, *, ends_with_input: bool) -> SyntaxFault:
    kind = EndOfInputFault if ends_with_input else SyntaxFault
    return kind(f"this {literal} is never closed", "add the closing quote", start, start + 1)


def _scan_raw(text: str, start: int) -> Scanned:
    match = _END_OF_RAW.search(text, start + 1)
    if match is None or match[0] == "\0":
        hint = "end the block with `)` alone on its line; the line must not end in a carriage return"
        raise SyntaxFault("this block is never closed", hint, start, start + 1)
    bracket = match.end() - 1
    # A bracket that is the very last character of the file stays part of the server's value.
    end_of_value = match.end() if match.end() == len(text) else bracket
    return Shape.STRING, text[start + 1 : end_of_value], match.end()


def _scan_word(text: str, start: int, pos: int) -> Scanned:
    """A value without quotes that begins at *start* and is known to be text up to *pos*."""
    match = _WORD.match(text, pos)
    assert match is not None
    end = match.end()
    _refuse_escape(text, end)
    quote_follows = text[end : end + 1] == "'"
    if quote_follows or "\\" in match[0]:
        return Shape.STRING, text[start:pos] + values.unescape(match[0]), end + quote_follows
    word = text[start:end]
    if word.lower() in _BOOLEANS:
        return Shape.BOOLEAN, word, end
    if word.startswith("$"):
        return Shape.VARIABLE, word[1:], end
    return Shape.STRING, word, end


def _refuse_escape(text: str, pos: int) -> None:
    if text[pos : pos + 1] != "\\":
        return
    hint = r"write `\\` for a backslash; the escapes are `\n`, `\r`, `\t`, `\"`, `\\` and `\xHH` with two hexadecimal digits"
    raise SyntaxFault(
        f"`\\` followed by {quote_char(text, pos + 1)} is not an escape", hint, pos, min(pos + 2, len(text))
    )


def _scan_number(text: str, start: int) -> Scanned:
    negative = text[start] == "-"
    digits = _DIGITS.match(text, start + negative)
    if digits is None:
        message = f"a digit is expected after `-`, not {quote_char(text, start + 1)}"
        raise SyntaxFault(message, QUOTE_IT, start, start + 1)
    end = digits.end()
    follower = text[end : end + 1]
    if follower == ".":
        return _scan_fraction(text, start, end + 1)
    if unit := _UNIT.match(text, end):
        end = unit.end()
        follower = text[end : end + 1]
        if follower in _ENDS_NUMBER:
            return Shape.INTEGER, text[start:end], end
        return _scan_word(text, start, end)
    if negative or follower in _ENDS_NUMBER:
        return Shape.INTEGER, text[start:end], end
    if follower == "-":
        return _scan_date(text, start, end)
    # Whatever ended the digits is part of the word, even a bracket or a backslash.
    return _scan_word(text, start, end + 1)


def _scan_fraction(text: str, start: int, pos: int) -> Scanned:
    digits = _DIGITS.match(text, pos)
    if digits is None:
        raise SyntaxFault(f"a digit is expected after `.`, not {quote_char(text, pos)}", QUOTE_IT, start, pos)
    end = digits.end()
    if text[end : end + 1] != ".":
        return Shape.FLOAT, text[start:end], end
    address = _ADDRESS.match(text, end)
    assert address is not None
    return Shape.STRING, text[start : address.end()], address.end()


def _scan_date(text: str, start: int, dash: int) -> Scanned:
    rest = _AFTER_YEAR.match(text, dash)
    if rest is None or len(text[start:dash].encode()) != _YEAR_BYTES:
        raise SyntaxFault("a number followed by `-` must be a date in UTC", ISO_DATE, start, dash + 1)
    return Shape.DATETIME, text[start : rest.end()], rest.end()
