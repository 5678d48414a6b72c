"""
The lexer of the NATS configuration language: from text to events, one regular expression per event.

The language has contexts (a file, braces around a whole file, a map, an array), and a line
break, a brace, a slash or even a NUL byte means something else in each. What looks odd here is
what the server does; the docstring of the package lists the oddities worth knowing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from vstream.syntax.natsconf.scalars import EndOfInputFault, Scanned, Shape, SyntaxFault, quote_char, scan


class Sink(Protocol):
    """Takes the events of a text, in the order of the text; *start* and *end* are offsets in it."""

    def key(self, key: str, start: int, end: int) -> None:
        """Take a key; its value comes later, or never."""

    def string(self, value: str, start: int, end: int) -> None:
        """Take a string."""

    def scalar(self, scanned: Scanned, start: int) -> None:
        """Take any other value, or a variable."""

    def include(self, path: str, start: int, end: int) -> None:
        """Take an include directive; *start* and *end* are those of the path."""

    def open(self, start: int, *, is_map: bool) -> None:
        """Begin a map or an array."""

    def close(self, end: int) -> None:
        """End the innermost map or array."""

    def comment(self, text: str, start: int, end: int) -> None:
        """Take a comment; *text* is without its `#` or `//`."""

    def error(self, message: str, hint: str, start: int, end: int) -> None:
        """Take what makes the server refuse the text."""

    def warning(self, message: str, hint: str, start: int, end: int) -> None:
        """Take what the server accepts, but hardly as it was meant."""


MAX_DEPTH: Final = 200

_State: TypeAlias = "Callable[[], _State]"
_SPACE: Final = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


def _key_pattern(key: str, after_separator: str) -> re.Pattern[str]:
    """Group 1 is the key with its quotes, group 2 the separator; a match ends where the value begins."""
    return re.compile(rf"[{_SPACE}]*+({key})[{_SPACE}]*+(?:([=:])[{after_separator}]*+)?")


def _usual_key(not_first: str) -> str:
    return rf"\"[^\"\0]*+\"|'[^'\0]*+'|[^{_SPACE}=:\0\"'#/{not_first}][^{_SPACE}=:\0]*+"


@dataclass(frozen=True, slots=True, eq=False)
class _Context:
    """
    What surrounds the place where the lexer is.

    *after_value* matches what may follow a value. Group 1 is what separates it from the
    next one, group 2 the closing bracket; if neither is there, a comment is, or an error.
    """

    name: str
    key: re.Pattern[str]
    after_value: re.Pattern[str]


# A slash alone is a blank at the top, and a separator further in.
# No group is repeated possessively, here and in `scalars`: Python 3.11.2, which Debian 12 has, matches that wrong.
_FILE: Final = _Context(
    "file", _key_pattern(_usual_key(r"{"), r" \t"), re.compile(r"(?:[ \t]|/(?!/))*(?:([\n\r;,\0]|\Z)|(\}))?")
)
_BRACES: Final = _Context(
    "brace", _key_pattern(_usual_key(r"{}"), r" \t"), re.compile(r"(?:[ \t]|/(?!/))*(?:([\n\r;,])|(\}))?")
)
# After `key =` a line break is an error at the top, and nothing in a map.
_MAP: Final = _Context(
    "map", _key_pattern(_usual_key(r"\]}"), _SPACE), re.compile(r"[ \t]*+(?:([\n\r;,]|/(?!/))|(\}))?")
)
_ARRAY: Final = _Context("array", re.compile(r"(?!)"), re.compile(r"[ \t]*+(?:([\n\r,]|/(?!/))|(\]))?"))

# In a map, the character after a slash belongs to the key, whatever it is, even a space.
_KEY_AFTER_SLASH: Final = re.compile(rf"((?s:.)[^{_SPACE}=:\0]*+)[{_SPACE}]*+(?:([=:])[{_SPACE}]*+)?")
_AFTER_INNER_BRACES: Final = re.compile(r"(?:[ \t\n\r]|/(?!/))*(?:([;,])|(\}))?")
_SPACES: Final = re.compile(rf"[{_SPACE}]*+")
_ONE_SPACE: Final = re.compile(rf"[{_SPACE}]")
_BLANKS: Final = re.compile(r"[ \t]*+")
_COMMENT: Final = re.compile(r"(?:#|//)([^\n\r\0]*+)")
_PLAIN_STRING: Final = re.compile(r'"([^"\\\0]*+)"')
_QUOTED_PATH: Final = re.compile(r"\"([^\"\0]*+)\"|'([^'\0]*+)'")
_PATH: Final = re.compile(r"([^\n\r\0;}\t ']*+)'?")
_SIZE_AND_MORE: Final = re.compile(r"-?\d++[kKmMgGtTpPeE][bBiI]*+\d")
_QUOTES: Final = frozenset("\"'")
_NO_VALUE: Final = frozenset({"}", ","})
_NO_TEXT: Final = frozenset({"", "\0"})


class Lexer:
    """Reads a text once, from left to right, and stops at its end or at the first error."""

    __slots__ = ("_contexts", "_done", "_key", "_openers", "_pos", "_sink", "_text")

    def __init__(self, text: str, sink: Sink) -> None:
        self._text = text
        self._sink = sink
        self._pos = 0
        self._key = ""
        self._done = False
        self._contexts = [_FILE]
        self._openers = [0]

    def run(self) -> None:
        """Tell the sink everything there is in the text."""
        state: _State = self._entry
        try:
            while not self._done:
                state = state()
        except EndOfInputFault as fault:
            # The server takes this for a proper end, unless a key still waits for its value.
            if self._contexts[-1] is _ARRAY or self._key == "}":
                self._sink.warning(f"{fault.message}, and the server ignores it", fault.hint, fault.start, fault.end)
            else:
                self._sink.error(fault.message, fault.hint, fault.start, fault.end)
        except SyntaxFault as fault:
            self._sink.error(fault.message, fault.hint, fault.start, fault.end)

    # Keys

    def _entry(self) -> _State:
        match = self._contexts[-1].key.match(self._text, self._pos)
        if match is None:
            self._pos = _end(_SPACES, self._text, self._pos)
            return self._no_usual_key()
        return self._value_of_key(match, quoted=match[1][0] in _QUOTES)

    def _value_of_key(self, match: re.Match[str], *, quoted: bool) -> _State:
        start, end = match.span(1)
        if not quoted and _is_include(match[1]) and _ONE_SPACE.match(self._text, end):
            self._pos = end
            return self._include()
        self._key = match[1][1:-1] if quoted else match[1]
        self._sink.key(self._key, start, end)
        self._pos = match.end()
        first = self._text[self._pos : self._pos + 1]
        if self._contexts[-1] is _MAP:
            if first in _NO_VALUE:
                return self._no_value(first, start, end)
        elif match[2] is None and first in _NO_TEXT:
            return self._end_after_key(start, end)
        return self._value()

    def _no_value(self, first: str, start: int, end: int) -> _State:
        message, hint = f"the key `{self._key}` has no value", "give it a value, or remove it"
        if first == ",":
            raise SyntaxFault(message, hint, start, end)
        self._sink.warning(f"{message}: the server gives it the map it stands in", hint, start, end)
        self._pos += 1
        return self._closing_bracket()

    def _end_after_key(self, start: int, end: int) -> _State:
        if self._key != "}":
            raise SyntaxFault(f"the key `{self._key}` has no value", "give it a value, or remove it", start, end)
        self._sink.warning("this brace closes nothing", "remove it", start, end)
        return self._finish()

    def _no_usual_key(self) -> _State:
        pos = self._pos
        if self._comment():
            return self._entry
        self._pos += 1
        match self._text[pos : pos + 1]:
            case "":
                return self._end_of_file()
            case "}":
                return self._closing_bracket()
            case "{":
                return self._enter(_BRACES, pos)
            case '"' | "'":
                return self._unclosed_key(pos)
            case "/" if self._contexts[-1] is _MAP and (match := _KEY_AFTER_SLASH.match(self._text, pos + 1)):
                return self._value_of_key(match, quoted=False)
            case _:
                hint = "a key is a word or a text in quotes; comments begin with `#` or `//`"
                raise SyntaxFault(f"a key is expected, not {quote_char(self._text, pos)}", hint, pos, pos + 1)

    def _end_of_file(self) -> _State:
        if self._contexts[-1] is not _FILE:
            fault = self._never_closed()
            if self._contexts[-1] is _MAP:
                raise fault
            self._sink.warning(fault.message, fault.hint, fault.start, fault.end)
        return self._finish()

    def _unclosed_key(self, start: int) -> _State:
        fault = SyntaxFault("this key is never closed", "add the closing quote", start, start + 1)
        if self._contexts[-1] is _MAP or self._text[start + 1 : start + 2] not in _NO_TEXT:
            raise fault
        self._sink.warning(f"{fault.message}, and the server ignores it", fault.hint, fault.start, fault.end)
        return self._finish()

    # Values

    def _value(self) -> _State:
        start = self._pos
        first = self._text[start : start + 1]
        if first == '"' and (match := _PLAIN_STRING.match(self._text, start)):
            self._pos = match.end()
            self._sink.string(match[1], start, self._pos)
        elif first == "{":
            self._pos += 1
            self._sink.open(start, is_map=True)
            return self._enter(_MAP, start)
        elif first == "[":
            self._pos += 1
            self._sink.open(start, is_map=False)
            return self._enter(_ARRAY, start)
        else:
            scanned = scan(self._text, start)
            self._pos = scanned[2]
            self._sink.scalar(scanned, start)
            if scanned[0] is Shape.STRING and (first.isdecimal() or first == "-"):
                self._warn_of_almost_a_number(scanned, start)
        return self._read_after_value()

    def _warn_of_almost_a_number(self, scanned: Scanned, start: int) -> None:
        _, value, end = scanned
        if self._contexts[-1] is _ARRAY and "]" in value:
            hint = "put a space or a line break between the number and `]`"
            self._sink.warning(f"the server takes `{value}` for one text, and the array goes on", hint, start, end)
        elif _SIZE_AND_MORE.match(value):
            hint = "put the value in double quotes if servers of other versions are to read it"
            self._sink.warning(f"nats-server before 2.15.1 refuses `{value}` without quotes", hint, start, end)

    def _item(self) -> _State:
        self._pos = pos = _end(_SPACES, self._text, self._pos)
        if self._comment():
            return self._item
        match self._text[pos : pos + 1]:
            case "]":
                self._pos += 1
                return self._closing_bracket()
            case "" | "\0":
                raise self._never_closed()
            case "," | "/":
                message = f"a value is expected, not {quote_char(self._text, pos)}"
                raise SyntaxFault(message, "remove it, or put a value before it", pos, pos + 1)
            case _:
                return self._value()

    def _include(self) -> _State:
        self._pos = start = _end(_BLANKS, self._text, self._pos)
        first = self._text[start : start + 1]
        if first.isdecimal() or first in frozenset("\"'[{(-\\\n\r"):
            match = _QUOTED_PATH.match(self._text, start)
        else:
            match = _PATH.match(self._text, start)
        if match is None and first in _QUOTES:
            raise SyntaxFault("this path is never closed", "add the closing quote", start, start + 1)
        if match is None:
            message = f"the path of a file is expected after `include`, not {quote_char(self._text, start)}"
            raise SyntaxFault(message, "put the path in quotes, on the line of `include`", start, start + 1)
        self._pos = match.end()
        self._sink.include(match[match.lastindex or 0], start, self._pos)
        return self._read_after_value()

    # What follows a value

    def _read_after_value(self) -> _State:
        context = self._contexts[-1]
        match = context.after_value.match(self._text, self._pos)
        assert match is not None
        self._pos = match.end()
        if match.lastindex == 1:
            return self._item if context is _ARRAY else self._entry
        if match.lastindex:
            return self._closing_bracket()
        if self._comment():
            return self._entry if context is _FILE else self._read_after_value
        raise self._cannot_follow()

    def _read_after_inner_braces(self) -> _State:
        match = _AFTER_INNER_BRACES.match(self._text, self._pos)
        assert match is not None
        self._pos = match.end()
        if match[2]:
            return self._closing_bracket()
        if match[1] or self._comment():
            return self._entry
        raise self._cannot_follow()

    def _cannot_follow(self) -> SyntaxFault:
        if self._pos == len(self._text):
            return self._never_closed()
        hint = "put each entry on a line of its own, or put a value with spaces in double quotes"
        if self._contexts[-1] is _ARRAY:
            hint = "put a comma or a line break between values, or put a value with spaces in double quotes"
        message = f"{quote_char(self._text, self._pos)} cannot follow a value here"
        return SyntaxFault(message, hint, self._pos, self._pos + 1)

    # Contexts

    def _enter(self, context: _Context, opener: int) -> _State:
        if len(self._contexts) > MAX_DEPTH:
            message = f"maps and arrays are nested deeper than {MAX_DEPTH} levels"
            raise SyntaxFault(message, "flatten the configuration", opener, opener + 1)
        self._contexts.append(context)
        self._openers.append(opener)
        return self._item if context is _ARRAY else self._entry

    def _closing_bracket(self) -> _State:
        """Act on the bracket just before."""
        if self._contexts[-1] is _FILE:
            self._sink.warning("this brace closes nothing", "remove it", self._pos - 1, self._pos)
            return self._entry
        left = self._contexts.pop()
        self._openers.pop()
        if left is _BRACES:
            return self._entry if self._contexts[-1] is _FILE else self._read_after_inner_braces
        self._sink.close(self._pos)
        return self._read_after_value

    def _never_closed(self) -> SyntaxFault:
        bracket = "]" if self._contexts[-1] is _ARRAY else "}"
        opener = self._openers[-1]
        return SyntaxFault(f"this {self._contexts[-1].name} is never closed", f"add `{bracket}`", opener, opener + 1)

    def _comment(self) -> bool:
        """Whether a comment was here; it is behind us then."""
        match = _COMMENT.match(self._text, self._pos)
        if match is None:
            return False
        self._pos = match.end()
        self._sink.comment(match[1], match.start(), match.end())
        return True

    def _finish(self) -> _State:
        self._done = True
        return self._finish


def _end(pattern: re.Pattern[str], text: str, pos: int) -> int:
    """Where the match of a *pattern* that may match nothing ends."""
    match = pattern.match(text, pos)
    assert match is not None
    return match.end()


def _is_include(key: str) -> bool:
    # The server folds a dotted capital I to a plain i.
    return len(key) == len("include") and key.replace("\u0130", "i").lower() == "include"
