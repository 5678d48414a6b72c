"""
Mapping functions: how one destination token is read, and what it becomes.

Source: `server/subject_transform.go` (indexPlaceHolders, TransformTokenizedSubject).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from vstream.value_class import value_class

Version = tuple[int, int, int]

_INT32 = 1 << 31
_INT64 = 1 << 63
_UINT32 = 1 << 32
_SHORTEST_CALL = len("{{}}")
FUNCTION = re.compile(r"\{\{[^{}]*\}\}|\$[0-9]+")
"""What stands for a token in the destination of a transform."""
_COMMA = re.compile(r",[\t\n\f\r ]*")
_INTEGER = re.compile(r"[+-]?[0-9]+")


class ErrorKind(Enum):
    """Why a server refuses a transform."""

    INVALID_SUBJECT = "invalid-subject"
    INVALID_DESTINATION = "invalid-destination"
    EMPTY_DESTINATION = "empty-destination"
    UNKNOWN_FUNCTION = "unknown-function"
    INDEX_OUT_OF_RANGE = "index-out-of-range"
    NOT_ENOUGH_ARGUMENTS = "not-enough-arguments"
    TOO_MANY_ARGUMENTS = "too-many-arguments"
    INVALID_ARGUMENT = "invalid-argument"
    NOT_REVERSIBLE = "not-reversible"
    UNUSED_WILDCARDS = "unused-wildcards"


_WORDING = {
    ErrorKind.INVALID_DESTINATION: "invalid transform",
    ErrorKind.UNKNOWN_FUNCTION: "unknown function",
    ErrorKind.INDEX_OUT_OF_RANGE: "wildcard index out of range",
    ErrorKind.NOT_ENOUGH_ARGUMENTS: "not enough arguments passed to the function",
    ErrorKind.TOO_MANY_ARGUMENTS: "too many arguments passed to the function",
    ErrorKind.INVALID_ARGUMENT: "function argument is invalid or in the wrong format",
    ErrorKind.NOT_REVERSIBLE: "the only mapping function allowed for import transforms is {{Wildcard()}}",
    ErrorKind.UNUSED_WILDCARDS: "not using all of the token wildcard(s)",
}


@value_class
class TransformError:
    """
    A transform that cannot be made.

    *message* is ours; *server_message* is the server's own reason, word for
    word, and empty where the server says nothing.
    """

    kind: ErrorKind
    message: str
    server_message: str


def destination_error(kind: ErrorKind, message: str, token: str = "") -> TransformError:
    """An error about a destination *token*, worded as the server's mappingDestinationErr (`server/errors.go`)."""
    wording = f"invalid mapping destination: {_WORDING[kind]}"
    return TransformError(kind=kind, message=message, server_message=f"{wording} in {token}" if token else wording)


class Function(Enum):
    """A mapping function, by its usual spelling."""

    WILDCARD = "wildcard"
    PARTITION = "partition"
    SPLIT_FROM_LEFT = "splitFromLeft"
    SPLIT_FROM_RIGHT = "splitFromRight"
    SLICE_FROM_LEFT = "sliceFromLeft"
    SLICE_FROM_RIGHT = "sliceFromRight"
    RIGHT = "right"
    LEFT = "left"
    SPLIT = "split"
    RANDOM = "random"

    @property
    def since(self) -> Version:
        """
        The first release whose mappings and stream transforms accept the function.

        `republish` takes left and right from 2.10.16 on (nats-server#8568).
        """
        match self:
            case Function.LEFT | Function.RIGHT:
                return (2, 15, 0)
            case Function.RANDOM:
                return (2, 12, 0)
            case _:
                return (2, 9, 0)


def _pattern(function: Function) -> re.Pattern[str]:
    r"""The server's expression for *function*: each word's first letter in either case, spaces as Go's `\s`."""
    name = re.sub("[A-Z]|^[a-z]", lambda match: f"[{match[0].lower()}{match[0].upper()}]", function.value)
    space = r"[\t\n\f\r ]*"
    return re.compile(rf"\{{\{{{space}{name}{space}\((.*)\){space}\}}\}}")


_CALLS = tuple((function, _pattern(function)) for function in Function)  # in the server's order


@value_class
class Call:
    """
    A mapping function with its arguments.

    *positions* are wildcard numbers as written (from 1) until
    `SubjectTransform.parse` turns them into source token positions (from 0).
    *number* is the count, size or bound, *delimiter* that of `split`.
    """

    function: Function
    positions: tuple[int, ...] = ()
    number: int = 0
    delimiter: str = ""

    @property
    def since(self) -> Version:
        """The first release that accepts the call in this form."""
        is_short = self.function is Function.PARTITION and not self.positions
        return (2, 12, 0) if is_short else self.function.since


def looks_like_call(token: str) -> bool:
    """Whether the server reads *token* as a function call: `{{…}}` and nothing around it."""
    return len(token) > _SHORTEST_CALL and token.startswith("{{") and token.endswith("}}")


def calls_known_function(token: str) -> bool:
    """Whether a call contains a function that the server knows, whatever its arguments."""
    return any(pattern.search(token) for _, pattern in _CALLS)


@lru_cache(maxsize=4096)
def parse_token(token: str) -> Call | TransformError | None:
    """What a destination token says: None for a literal one (`indexPlaceHolders`)."""
    if token.startswith("$"):
        number = _parse_integer(token[1:], _INT64)
        return None if number is None else Call(function=Function.WILDCARD, positions=(number,))
    if not looks_like_call(token):
        return None
    for function, pattern in _CALLS:
        match = pattern.search(token)
        if match:
            return _parse_call(function, _COMMA.split(match[1]), token)
    return destination_error(ErrorKind.UNKNOWN_FUNCTION, f"`{token}` calls no known function", token)


def _parse_call(function: Function, arguments: list[str], token: str) -> Call | TransformError:
    wrong_count = _find_argument_count_error(function, arguments, token)
    if wrong_count:
        return wrong_count
    match function:
        case Function.WILDCARD:
            call = _make_positional_call(function, arguments)
        case Function.PARTITION | Function.RANDOM:
            number = _parse_integer(arguments[0].strip(" "), _INT64)
            too_large = number is None or number >= _INT32
            call = None if too_large else _make_positional_call(function, arguments[1:], _as_int32(number or 0))
        case Function.SPLIT:
            delimiter = arguments[1]
            call = None if " " in delimiter else _make_positional_call(function, arguments[:1], delimiter=delimiter)
        case _:
            number = _parse_integer(arguments[1].strip(" "), _INT32)
            call = None if number is None else _make_positional_call(function, arguments[:1], number)
    return call or destination_error(
        ErrorKind.INVALID_ARGUMENT, f"an argument of `{token}` is not what the function takes", token
    )


def _find_argument_count_error(function: Function, arguments: list[str], token: str) -> TransformError | None:
    """The error of a call with too few or too many arguments, in the server's words."""
    too_few = destination_error(ErrorKind.NOT_ENOUGH_ARGUMENTS, f"`{token}` has too few arguments", token)
    match function:
        case Function.PARTITION:
            return None
        case Function.RANDOM:  # the server says "not enough" in both cases
            wrong_count = destination_error(ErrorKind.NOT_ENOUGH_ARGUMENTS, f"`{token}` takes one argument", token)
            return None if len(arguments) == 1 else wrong_count
        case Function.WILDCARD:
            expected = 1
            if arguments == [""]:
                return too_few
        case _:
            expected = 2
            if len(arguments) < expected:
                return too_few
    too_many = destination_error(ErrorKind.TOO_MANY_ARGUMENTS, f"`{token}` has too many arguments", token)
    return too_many if len(arguments) > expected else None


def _make_positional_call(
    function: Function, arguments: Sequence[str], number: int = 0, delimiter: str = ""
) -> Call | None:
    positions = [_parse_integer(argument.strip(" "), _INT64) for argument in arguments]
    numbers = tuple(position for position in positions if position is not None)
    if len(numbers) < len(positions):
        return None
    return Call(function=function, positions=numbers, number=number, delimiter=delimiter)


def _parse_integer(text: str, limit: int) -> int | None:
    """*text* as Go's strconv reads a signed decimal in [-limit, limit)."""
    if not _INTEGER.fullmatch(text) or len(text.lstrip("+-0")) > len(str(limit)):
        return None
    number = int(text)
    return number if -limit <= number < limit else None


def _as_int32(number: int) -> int:
    return (number + _INT32) % _UINT32 - _INT32


def evaluate(call: Call, source: Sequence[str]) -> str:
    """
    The text of *call* for the tokens of a published subject.

    Sizes count bytes, as the server does: a character may be cut in two, its
    bytes then come back as surrogate escapes. `random` is not for this function.
    """
    if call.function is Function.PARTITION:
        key = "".join(source[position] for position in call.positions) if call.positions else ".".join(source)
        return str(_fnv1a(to_bytes(key)) % (call.number % _UINT32)) if call.number else "0"
    token = source[call.positions[0]]
    if call.function is Function.WILDCARD:
        return token
    if call.function is Function.SPLIT:
        return _split(token, call.delimiter)
    return _cut(call, to_bytes(token)).decode("utf-8", "surrogateescape")


def _cut(call: Call, token: bytes) -> bytes:
    """The functions that cut at byte positions; a size that is not inside the token leaves it whole."""
    size = call.number
    if not 0 < size < len(token):
        return token
    match call.function:
        case Function.LEFT:
            return token[:size]
        case Function.RIGHT:
            return token[-size:]
        case Function.SPLIT_FROM_LEFT:
            return token[:size] + b"." + token[size:]
        case Function.SPLIT_FROM_RIGHT:
            return token[:-size] + b"." + token[-size:]
        case Function.SLICE_FROM_LEFT:
            cuts = [*range(0, len(token), size), len(token)]
        case _:
            rest = len(token) % size
            cuts = [0] * (rest > 0) + list(range(rest, len(token) + 1, size))
    return b".".join(token[start:end] for start, end in pairwise(cuts))


def _split(token: str, delimiter: str) -> str:
    """The parts between delimiters; an empty delimiter parts all characters (Go's strings.Split)."""
    parts = token.split(delimiter) if delimiter else list(token)
    text = ""
    for position, part in enumerate(parts):
        text += part
        starts_empty = position == 0 and not part
        if position + 1 < len(parts) and parts[position + 1] and not starts_empty:
            text += "."
    return text


def to_bytes(text: str) -> bytes:
    """*text* as the server holds it: surrogate escapes are raw bytes, other lone surrogates U+FFFD (as Go's JSON)."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udc7f\udd00-\udfff]", "\ufffd", text).encode("utf-8", "surrogateescape")


def _fnv1a(key: bytes) -> int:
    """FNV-1a, 32 bits."""
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 % _UINT32
    return value
