"""
JSON with positions.

JSON is nearly YAML, but not quite: tabs, escaped surrogates and numbers differ, and of a key that is
written twice Go's reader, and so the server and the nats command, takes the last value.

`parse` takes time and memory in proportion to the text; nesting and the number of values are bounded.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_right
from collections import UserDict
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

from vstream.findings import Finding, Severity, Span
from vstream.formatting import quote_value
from vstream.syntax.document import Document, Json, Path, SourceMap

MAX_VALUES: Final = 500_000
MAX_DEPTH: Final = 200

_SPACE: Final = re.compile(r"[ \t\n\r]*+")
_BEGINNING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+')
"""A string as far as it is one, without its closing quote."""
_STRING: Final = re.compile(_BEGINNING.pattern + '"')
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*+)((?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?)")
_WORD: Final = re.compile(r"true|false|null")
_LITERALS: Final[dict[str, Json]] = {"true": True, "false": False, "null": None}
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_NUMBER_LENGTH: Final = 40
_SAFE_DIGITS: Final = 18
"""Of numbers that fit into 64 bits, whatever their digits are."""
_CONTROL_LIMIT: Final = 0x20


def parse(text: str, file: str) -> Document:
    """
    Parse one JSON value. Never raises: what is wrong is VS001 (not JSON), VS002 (a key twice) or VS003 (too much).

    After VS001 and VS003, data is None.
    """
    reader = _JsonReader(text, file)
    if (data := _read_plain(text)) is not None:
        places = SourceMap(file, _Places(reader, reader.values), _Places(reader, reader.keys))
        return Document(data=data, source=places, text=text, findings=())
    try:
        data = reader.document()
    except _StopError as stop:
        reader.findings.append(stop.finding)
        data = None
    problems = tuple(sorted(reader.findings, key=Finding.sort_key))
    return Document(data=data, source=SourceMap(file, reader.values, reader.keys), text=text, findings=problems)


def _read_plain(text: str) -> Json:
    """The value of a text with which nothing can be wrong; None where `_JsonReader` has to say what is meant."""
    if "\\" in text or len(text) >= MAX_VALUES or text.count("[") + text.count("{") > MAX_DEPTH:
        return None
    with suppress(ValueError):
        return _PLAIN.decode(text)  # type: ignore[no-any-return]
    return None


def _reject_repeated_keys(pairs: list[tuple[str, Json]]) -> Json:
    fields = {sys.intern(name): value for name, value in pairs}
    return fields if len(fields) == len(pairs) else _refuse("twice")


def _refuse(_text: str) -> Json:
    raise ValueError


_PLAIN: Final = json.JSONDecoder(
    object_pairs_hook=_reject_repeated_keys,
    parse_int=lambda digits: int(digits) if len(digits) <= _SAFE_DIGITS else _refuse(digits),
    parse_constant=_refuse,
)


class _Places(UserDict[Path, Span]):
    """Where the values or keys of a text are, which *reader* reads once somebody asks: Python's own takes a tenth of the time."""

    def __init__(self, reader: _JsonReader, places: dict[Path, Span]) -> None:
        self._reader, self._places = reader, places

    @property
    def data(self) -> dict[Path, Span]:  # type: ignore[override]
        if not self._reader.values:
            self._reader.document()
        return self._places


class _StopError(Exception):
    """The rest is not worth reading."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _JsonReader:
    def __init__(self, text: str, file: str) -> None:
        self.findings: list[Finding] = []
        self.values: dict[Path, Span] = {}
        self.keys: dict[Path, Span] = {}
        self._text = text
        self._file = file

    @cached_property
    def _lines(self) -> list[int]:
        return [0, *(line_end.end() for line_end in re.finditer("\n", self._text))]

    def document(self) -> Json:
        """The value of the whole text."""
        root: list[Any] = []
        # Each open array or object, the path of its next value, and where it began.
        stack: list[tuple[Any, Path, int]] = [(root, (), 0)]
        pos = self._skip(0)
        while True:
            container, path, start = stack[-1]
            if container is root and root:
                if pos < len(self._text):
                    raise self._stop(pos, "something follows the JSON value", "keep one value in the file")
                return root[0]  # type: ignore[no-any-return]
            closing = "}" if isinstance(container, dict) else "]"
            if container is not root and self._text.startswith(closing, pos):
                stack.pop()
                self.values[path] = self._span(start, pos + 1)
                pos = self._skip_comma(pos + 1, stack)
                continue
            value_path, pos = self._place(container, path, pos) if container is not root else ((), pos)
            value, end = self._value(pos)
            if len(self.values) >= MAX_VALUES:
                raise self._stop(pos, f"more than {MAX_VALUES:,} values", "is this the right file?", code="VS003")
            self.values[value_path] = self._span(pos, end)
            if isinstance(container, dict):
                container[str(value_path[-1])] = value
            else:
                container.append(value)
            if isinstance(value, (dict, list)):
                if len(stack) > MAX_DEPTH:
                    raise self._stop(pos, f"nested more than {MAX_DEPTH} levels deep", "flatten it", code="VS003")
                stack.append((value, value_path, pos))
                pos = self._skip(end)
            else:
                pos = self._skip_comma(end, stack)

    def _place(self, container: Any, path: Path, pos: int) -> tuple[Path, int]:
        """The path of the value that comes next, and where it begins: behind its key, if it has one."""
        if isinstance(container, list):
            return (*path, len(container)), pos
        match = _STRING.match(self._text, pos)
        if match is None:
            raise self._stop(
                pos, f"a key in double quotes is expected, not {self._text_at(pos)}", _hint(self._text, pos)
            )
        key = _unquote(match[0])
        key_path = (*path, key)
        span = self._span(pos, match.end())
        if key_path in self.keys:
            message = (
                f"{quote_value(key)} is written twice, first on line {self.keys[key_path].line}; the last one counts"
            )
            hint = "remove one of the two"
            self.findings.append(self._finding("VS002", message, span, hint))
        self.keys[key_path] = span
        pos = self._skip(match.end())
        if not self._text.startswith(":", pos):
            raise self._stop(pos, f"`:` is expected after the key, not {self._text_at(pos)}", 'write `"key": value`')
        return key_path, self._skip(pos + 1)

    def _value(self, pos: int) -> tuple[Json, int]:
        """The value at *pos* and where it ends; of an array or object only the bracket."""
        text = self._text
        match text[pos : pos + 1]:
            case "{":
                return {}, pos + 1
            case "[":
                return [], pos + 1
            case '"':
                if match := _STRING.match(text, pos):
                    return _unquote(match[0]), match.end()
                raise self._explain_broken_string(pos)
        if match := _NUMBER.match(text, pos):
            return self._number(match), match.end()
        if match := _WORD.match(text, pos):
            return _LITERALS[match[0]], match.end()
        raise self._stop(pos, f"a value is expected, not {self._text_at(pos)}", _hint(text, pos))

    def _number(self, match: re.Match[str]) -> Json:
        text = match[0]
        if match[1]:
            return float(text)
        if len(text) <= _MAX_NUMBER_LENGTH and -(2**63) <= (number := int(text)) < 2**64:
            return number
        message = f"the number {quote_value(text)} does not fit into 64 bits"
        hint = "use a smaller one, or quotes if it is text"
        self.findings.append(self._finding("VS001", message, self._span(match.start(), match.end()), hint))
        return None

    def _explain_broken_string(self, pos: int) -> _StopError:
        """Why the string that begins at *pos* is none."""
        good = _BEGINNING.match(self._text, pos)
        end = good.end() if good else pos
        character = self._text[end : end + 1]
        if character == "\\":
            return self._stop(end, "this escape does not exist in JSON", "write `\\\\` for a backslash")
        if character and ord(character) < _CONTROL_LIMIT and character not in "\r\n":
            return self._stop(end, f"the control character U+{ord(character):04X} in a string", "write it as an escape")
        return self._stop(pos, "the string is not closed", 'close it with `"` on the same line')

    def _skip_comma(self, pos: int, stack: list[tuple[Any, Path, int]]) -> int:
        """Where to go on after a value: behind the comma, or at the closing bracket."""
        pos = self._skip(pos)
        if len(stack) == 1:
            return pos
        closing = "}" if isinstance(stack[-1][0], dict) else "]"
        if self._text.startswith(",", pos):
            after = self._skip(pos + 1)
            if self._text.startswith(closing, after):
                raise self._stop(pos, f"a comma before `{closing}`", "remove the comma")
            return after
        if not self._text.startswith(closing, pos):
            raise self._stop(pos, f"`,` or `{closing}` is expected, not {self._text_at(pos)}", _hint(self._text, pos))
        return pos

    def _skip(self, pos: int) -> int:
        match = _SPACE.match(self._text, pos)
        return match.end() if match else pos

    def _text_at(self, pos: int) -> str:
        return quote_value(self._text[pos]) if pos < len(self._text) else "the end of the file"

    def _span(self, start: int, end: int) -> Span:
        line, end_line = bisect_right(self._lines, start), bisect_right(self._lines, end)
        return Span(self._file, line, start - self._lines[line - 1] + 1, end_line, end - self._lines[end_line - 1] + 1)

    def _finding(self, code: str, message: str, span: Span, hint: str) -> Finding:
        return Finding(code=code, severity=Severity.ERROR, message=message, where=span, hint=hint)

    def _stop(self, pos: int, message: str, hint: str, code: str = "VS001") -> _StopError:
        start = self._span(pos, pos)
        span = Span.point(self._file, start.line, start.column)
        return _StopError(self._finding(code, message, span, hint))


def _hint(text: str, pos: int) -> str:
    character = text[pos : pos + 1]
    if character in {"#", "/"}:
        return "JSON has no comments"
    if character == "'":
        return "JSON has double quotes only"
    return "check the commas and quotes on this line and the one before"


def _unquote(quoted: str) -> str:
    """The text of a JSON string; surrogates without their other half become U+FFFD, as in the server."""
    if "\\" not in quoted:
        return quoted[1:-1]
    return _LONE_SURROGATE.sub("\ufffd", str(json.loads(quoted)))
