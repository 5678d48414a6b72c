"""What the text of a single value stands for: the server's arithmetic, escapes and dates."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Final

# A suffix alone counts in thousands; followed by b, i or ib it counts in 1024s.
_DECIMAL: Final = {letter: 1000**power for power, letter in enumerate("kmgtpe", start=1)}
_BINARY: Final = {
    letter + ending: 1024**power for power, letter in enumerate("kmgtpe", start=1) for ending in ("b", "i", "ib")
}
_UNITS: Final = {"": 1} | _DECIMAL | _BINARY

_INTEGER: Final = re.compile(r"(-?[0-9]+)([a-zA-Z]*)")
_ESCAPE: Final = re.compile(r'((?:\\x[0-9a-fA-F]{2})+)|\\([tnr"\\])')
_NAMED_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", '"': '"', "\\": "\\"}
_MAX_DIGITS = 19
_INT64 = 1 << 63


class NotAValueError(ValueError):
    """The text has the shape of a value, but the server refuses to read it."""


class NoSuchUnitError(ValueError):
    """An integer with a suffix that the server drops together with the number."""


def parse_integer(text: str) -> tuple[int, bool]:
    """
    The integer that the server reads from *text*, and whether it is what *text* says.

    It is not where the size overflows 64 bits: the server multiplies and keeps what is left.
    """
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise NotAValueError(f"`{text}` is not a number in the digits 0 to 9")
    sign, digits = ("-", match[1][1:]) if match[1].startswith("-") else ("", match[1])
    digits = digits.lstrip("0") or "0"
    if len(digits) > _MAX_DIGITS or not -_INT64 <= (number := int(sign + digits)) < _INT64:
        raise NotAValueError(f"`{text}` does not fit into 64 bits")
    unit = _UNITS.get(match[2].lower())
    if unit is None:
        raise NoSuchUnitError(f"`{match[2]}` is not a unit of size")
    exact = number * unit
    wrapped = (exact + _INT64) % (2 * _INT64) - _INT64
    return wrapped, wrapped == exact


def parse_float(text: str) -> float:
    """The float that *text* stands for."""
    if not text.isascii():
        raise NotAValueError(f"`{text}` is not a number in the digits 0 to 9")
    number = float(text)
    if math.isinf(number):
        raise NotAValueError(f"`{text}` does not fit into a float")
    return number


def parse_timestamp(text: str) -> datetime | str:
    """The datetime that *text* stands for, or *text* itself in the year 0, which Python's calendar does not have."""
    if not text.isascii():
        raise NotAValueError(f"`{text}` is not a date in the digits 0 to 9")
    year, *rest = map(int, re.findall(r"[0-9]+", text))
    month, day, hour, minute, second = rest
    try:
        # To the server the year 0 is a leap year, as 2000 is.
        moment = datetime(year or 2000, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError as error:
        raise NotAValueError(f"`{text}` is not a date that exists") from error
    return moment if year else text


def unescape(text: str) -> str:
    """*text* with its escapes resolved; bytes that are not UTF-8 become U+FFFD."""
    return _ESCAPE.sub(_resolve_escape, text)


def _resolve_escape(match: re.Match[str]) -> str:
    if match[1]:
        return bytes.fromhex(match[1].replace("\\x", "")).decode("utf-8", errors="replace")
    return _NAMED_ESCAPES[match[2]]


def ends_with_escape(text: str) -> bool:
    """Whether nothing follows the last escape of *text*, or *text* is empty."""
    end = 0
    for match in _ESCAPE.finditer(text):
        end = match.end()
    return end == len(text)
