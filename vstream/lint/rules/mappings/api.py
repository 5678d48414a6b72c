"""
The requests of the JetStream API, and which of them a subject pattern matches.

Source: `server/jetstream_api.go` of 2.9 to 2.15 (the JSApi… constants), and the strings of the 2.15.1 binary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache
from typing import NamedTuple

from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD, SEPARATOR, overlaps
from vstream.subjects.functions import Call, Function, parse_token

PREFIX = "$JS.API."
_STREAM = "<stream>"
_ANY_TOKEN = "x"
_OPEN = frozenset({PARTIAL_WILDCARD, FULL_WILDCARD})
_CUTOFF = 0.7
_ONE_TOKEN = frozenset({Function.WILDCARD, Function.PARTITION, Function.RANDOM, Function.LEFT, Function.RIGHT})


@dataclass(frozen=True, slots=True)
class Operation:
    """A request: its name, and the pattern after `$JS.API.` that servers subscribe to, in any version."""

    name: str
    pattern: str
    stream: int | None
    """Which token after `$JS.API.` names the stream; None if none does."""

    @property
    def verbs(self) -> list[str]:
        """The fixed tokens of the pattern."""
        return self.name.split(SEPARATOR)


def _declare(spelled: str) -> Operation:
    parts = spelled.split(SEPARATOR)
    verbs = [part for part in parts if part not in (_STREAM, PARTIAL_WILDCARD, FULL_WILDCARD)]
    return Operation(
        name=SEPARATOR.join(verbs),
        pattern=spelled.replace(_STREAM, PARTIAL_WILDCARD),
        stream=parts.index(_STREAM) if _STREAM in parts else None,
    )


OPERATIONS: tuple[Operation, ...] = (
    _declare("INFO"),
    *(_declare(f"STREAM.{verb}.<stream>") for verb in ("CREATE", "UPDATE", "DELETE", "INFO", "PURGE")),
    *(_declare(f"STREAM.{verb}.<stream>") for verb in ("SNAPSHOT", "RESTORE", "LEADER.STEPDOWN", "PEER.REMOVE")),
    *(_declare(f"STREAM.{verb}.<stream>") for verb in ("MSG.GET", "MSG.DELETE", "CANCEL_MOVE", "PEER.EVACUATE")),
    _declare("STREAM.NAMES"),
    _declare("STREAM.LIST"),
    *(_declare(f"STREAM.TEMPLATE.{verb}.*") for verb in ("CREATE", "DELETE", "INFO")),
    _declare("STREAM.TEMPLATE.NAMES"),
    _declare("DIRECT.GET.<stream>"),
    _declare("DIRECT.GET.<stream>.>"),
    *(_declare(f"CONSUMER.{verb}.<stream>") for verb in ("CREATE", "NAMES", "LIST")),
    _declare("CONSUMER.CREATE.<stream>.>"),
    *(_declare(f"CONSUMER.{verb}.<stream>.*") for verb in ("DURABLE.CREATE", "INFO", "DELETE", "LEADER.STEPDOWN")),
    *(_declare(f"CONSUMER.{verb}.<stream>.*") for verb in ("MSG.NEXT", "PAUSE", "UNPIN", "RESET")),
    *(_declare(f"CONSUMER.PEER.{verb}.<stream>.*") for verb in ("REMOVE", "EVACUATE")),
    *(_declare(operation) for operation in ("META.LEADER.STEPDOWN", "META.RESCUE", "SERVER.REMOVE", "SERVER.EVACUATE")),
    _declare("ACCOUNT.PURGE.*"),
    *(_declare(f"ACCOUNT.STREAM.{verb}.*.<stream>") for verb in ("MOVE", "CANCEL_MOVE")),
)
_VERBS = frozenset(verb for operation in OPERATIONS for verb in operation.verbs)
_WEIGHT = {verb: 1 / len({operation.name for operation in OPERATIONS if verb in operation.verbs}) for verb in _VERBS}


@dataclass(frozen=True, slots=True)
class Meaning:
    """What subjects of one shape can mean: operations, their names, and the tokens that name the stream in any of them."""

    operations: tuple[Operation, ...]
    names: frozenset[str]
    slots: tuple[int, ...]


class Request(NamedTuple):
    """
    A source or destination within the API: its tokens after `$JS.API.`, and what it can mean.

    *streams* are those that it names literally.
    """

    subject: str
    tokens: tuple[str, ...]
    meaning: Meaning
    streams: frozenset[str]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that it can request; empty if no server answers."""
        return self.meaning.operations

    @property
    def names(self) -> frozenset[str]:
        """The names of the operations."""
        return self.meaning.names

    @property
    def catches_all_streams(self) -> tuple[Operation, ...]:
        """The operations whose stream it leaves open."""
        count = len(self.tokens)
        return tuple(operation for operation in self.operations if self._leaves_open(operation, count))

    def _leaves_open(self, operation: Operation, count: int) -> bool:
        slot = operation.stream
        return slot is not None and (slot >= count or _is_open(self.tokens[slot]))


def is_api(subject: str) -> bool:
    """Whether *subject* is of the JetStream API, of this domain or another one."""
    if not subject.startswith("$JS."):
        return False
    return subject.startswith(PREFIX) or subject.split(SEPARATOR)[2:3] == ["API"]


def parse_request(subject: str) -> Request | None:
    """
    The API request in *subject*; None if it is no API subject, or functions in it may return several tokens.

    Wildcards and functions stand for any token.
    """
    if not is_api(subject):
        return None
    parts = subject.split(SEPARATOR)
    tokens = tuple(parts[2:] if parts[1] == "API" else parts[3:])
    if "{{" in subject and any(_splits(token) for token in tokens):
        return None
    shape = tuple([token if token in _VERBS else _mask(token) for token in tokens])
    meaning = _find_meaning(shape)
    streams = frozenset([tokens[slot] for slot in meaning.slots if slot < len(tokens) and shape[slot] not in _OPEN])
    return Request(subject=subject, tokens=tokens, meaning=meaning, streams=streams)


def suggest(request: Request) -> str:
    """The subject of an existing request that *request* most likely means."""
    words, parameters = _split(request.tokens)
    best = _find_likeliest(tuple(words), len(parameters))
    filled = list(parameters)
    parts: list[str] = []
    for part in best.pattern.split(SEPARATOR):
        if part == FULL_WILDCARD:
            parts.extend(filled or [FULL_WILDCARD])
        elif part == PARTIAL_WILDCARD:
            parts.append(filled.pop(0) if filled and filled[0] != FULL_WILDCARD else PARTIAL_WILDCARD)
        else:
            parts.append(part)
    start = request.subject.split(".API.", 1)[0]
    return f"{start}.API.{SEPARATOR.join(parts)}"


def _is_open(token: str) -> bool:
    first = token[:1]
    if first in _OPEN:
        return True
    return first in {"{", "$"} and parse_token(token) is not None


def _mask(token: str) -> str:
    if not _is_open(token):
        return _ANY_TOKEN
    return FULL_WILDCARD if token == FULL_WILDCARD else PARTIAL_WILDCARD


def splits(call: Call) -> bool:
    """Whether what *call* makes of a token can be several tokens."""
    return call.function not in _ONE_TOKEN


def _splits(token: str) -> bool:
    call = parse_token(token) if token[:1] == "{" else None
    return isinstance(call, Call) and splits(call)


@lru_cache(maxsize=4096)
def _find_meaning(shape: tuple[str, ...]) -> Meaning:
    subject = SEPARATOR.join(shape)
    is_broken = "" in shape or FULL_WILDCARD in shape[:-1]
    operations = (
        () if is_broken else tuple(operation for operation in OPERATIONS if overlaps(subject, operation.pattern))
    )
    return Meaning(
        operations=operations,
        names=frozenset(operation.name for operation in operations),
        slots=tuple(sorted({operation.stream for operation in operations if operation.stream is not None})),
    )


def _split(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """The tokens that are meant as words of the API, misspelt ones put right, and those after them."""
    words: list[str] = []
    for token in tokens:
        word = _find_verb(token, may_be_misspelt=token == token.upper() or not words)
        if word is None:
            break
        words.append(word)
    return words, list(tokens[len(words) :])


def _find_verb(token: str, *, may_be_misspelt: bool) -> str | None:
    """The word of the API that *token* is, or was meant to be."""
    if token.upper() in _VERBS:
        return token.upper()
    return _find_closest(token) if may_be_misspelt else None


@lru_cache(maxsize=4096)
def _find_closest(token: str) -> str | None:
    return next(iter(get_close_matches(token.upper(), _VERBS, n=1, cutoff=_CUTOFF)), None)


@lru_cache(maxsize=4096)
def _find_likeliest(words: tuple[str, ...], parameters: int) -> Operation:
    return max(OPERATIONS, key=lambda operation: _measure_likeness(operation, words, parameters))


def _measure_likeness(operation: Operation, words: Sequence[str], parameters: int) -> tuple[float, float, int]:
    """How well *operation* fits: rare words weigh most, then their order, then the number of tokens after them."""
    shared = sum(_WEIGHT[word] for word in set(words) & set(operation.verbs))
    missing = sum(_WEIGHT[verb] for verb in set(operation.verbs) - set(words))
    order = SequenceMatcher(None, SEPARATOR.join(words), operation.name).ratio()
    slots = operation.pattern.split(SEPARATOR)[len(operation.verbs) :]
    return shared - missing / 10, order, -abs(len(slots) - parameters)
