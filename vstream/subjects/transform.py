"""
Subject transforms: a source pattern, a destination, and what a subject becomes.

Source: `server/subject_transform.go` (NewSubjectTransformWithStrict,
TransformTokenizedSubject) and `server/sublist.go` (ValidateMapping), as of
2.15. Releases since 2.12 differ only in what `since` says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD, SEPARATOR, WHITESPACE, matches
from vstream.subjects.functions import (
    Call,
    ErrorKind,
    Function,
    TransformError,
    Version,
    calls_known_function,
    destination_error,
    evaluate,
    looks_like_call,
    parse_token,
)
from vstream.value_class import value_class

_OLDEST: Version = (2, 9, 0)
_LITERAL_CALLS: Version = (2, 12, 0)
_CALL_STARTS = "${"
_NO_SPACE = re.compile(f"[^{WHITESPACE}]*").fullmatch
_CALLS_WITHOUT_WILDCARD = frozenset({Function.RANDOM, Function.PARTITION})


@value_class
class Expansion:
    """
    What a subject becomes, except for the numbers that the server draws.

    In *subject* each token that `random` draws is a `*`; *draws* names these
    tokens: (position in *subject*, how many numbers from 0 upwards are possible).
    """

    subject: str
    draws: tuple[tuple[int, int], ...] = ()

    def admits(self, subject: str) -> bool:
        """Whether the server can have made *subject*."""
        if not self.draws:
            return subject == self.subject
        parts = subject.split(SEPARATOR)
        expected = self.subject.split(SEPARATOR)
        if len(parts) != len(expected):
            return False
        for position, bound in self.draws:
            drawn = parts[position]
            if not (drawn.isascii() and drawn.isdecimal() and str(int(drawn)) == drawn and int(drawn) < bound):
                return False
            parts[position] = expected[position]
        return parts == expected


@value_class
class SubjectTransform:
    """A transform that the server accepts. *steps* has one entry per destination token: its text, or a call."""

    source: str
    destination: str
    steps: tuple[str | Call, ...]

    @classmethod
    def parse(cls, source: str, destination: str, *, strict: bool = False) -> SubjectTransform | TransformError:
        """
        The transform from *source* to *destination*, or why there is none.

        An empty *source* means `>`. *strict* is the form for imports, which must
        be reversible. Of mappings, servers refuse more: see `parse_mapping_transform`.
        """
        if not destination:
            return TransformError(
                kind=ErrorKind.EMPTY_DESTINATION, message="there is no destination", server_message=""
            )
        source = source or FULL_WILDCARD
        pattern = _parse_source_pattern(source)
        tokens = destination.split(SEPARATOR)
        shape = _find_shape_error(pattern, destination, tokens)
        if shape:
            return shape
        steps: list[str | Call] = [*tokens]
        for position, token in enumerate(tokens):
            if token[0] in _CALL_STARTS:
                step = _make_step(token, pattern.wildcards, is_literal=pattern.is_literal, strict=strict)
                if isinstance(step, TransformError):
                    return step
                steps[position] = step
        used = sum(len(step.positions) for step in steps if isinstance(step, Call)) if strict else 0
        if strict and used < len(pattern.wildcards):
            message = f"`{destination}` does not use every wildcard of `{source}`"
            return destination_error(ErrorKind.UNUSED_WILDCARDS, message, destination)
        return cls(source=source, destination=destination, steps=tuple(steps))

    @property
    def since(self) -> Version:
        """The first release that accepts the transform."""
        calls = [step for step in self.steps if isinstance(step, Call)]
        oldest = max((call.since for call in calls), default=_OLDEST)
        return max(oldest, _LITERAL_CALLS) if calls and PARTIAL_WILDCARD not in self.source.split(SEPARATOR) else oldest

    def apply(self, subject: str) -> str | None:
        """What the literal *subject* becomes, tokens drawn by `random` as `*`; None where the source does not match."""
        if not matches(subject, effective_source(self.source)):
            return None
        return self.expand(subject.split(SEPARATOR)).subject

    def expand(self, tokens: Sequence[str]) -> Expansion:
        """What a subject of these *tokens*, which must match the source, becomes (`TransformTokenizedSubject`)."""
        parts: list[str] = []
        draws: list[tuple[int, int]] = []
        for step in self.steps:
            if isinstance(step, str):
                parts.append(step)
            elif step.function is not Function.RANDOM:
                parts.extend(evaluate(step, tokens).split(SEPARATOR))
            elif abs(step.number) > 1:
                draws.append((len(parts), abs(step.number)))
                parts.append(PARTIAL_WILDCARD)
            else:
                parts.append("0")
        if self.steps[-1] == FULL_WILDCARD:
            parts[-1:] = tokens[self.source.count(SEPARATOR) :]
        return Expansion(subject=SEPARATOR.join(parts), draws=tuple(draws))


def parse_mapping_transform(source: str, destination: str) -> SubjectTransform | TransformError:
    """
    The transform of the destination of a mapping, or of a stream's transform, as servers check it (`ValidateMapping`).

    An empty destination has none, though the server does not refuse it.
    """
    return (_find_call_error(destination) if destination else None) or SubjectTransform.parse(source, destination)


def _find_call_error(destination: str) -> TransformError | None:
    """What ValidateMapping refuses before it looks at the source."""
    tokens = destination.split(SEPARATOR)
    if "{{" not in destination and _NO_SPACE(destination) and not _is_broken(tokens):
        return None
    is_complete = False
    for token in tokens:
        if not token or is_complete:
            return destination_error(ErrorKind.INVALID_DESTINATION, _explain_broken(destination), token)
        if looks_like_call(token):
            if not calls_known_function(token):
                message = f"`{token}` calls no known function"
                return destination_error(ErrorKind.UNKNOWN_FUNCTION, message, token)
        elif token == FULL_WILDCARD:
            is_complete = True
        elif not _NO_SPACE(token):
            return destination_error(ErrorKind.INVALID_DESTINATION, f"`{destination}` contains white space")
    return None


def effective_source(source: str) -> str:
    """
    The pattern that a mapping's *source* matches in practice.

    Where rules are chosen, any token that begins with `*` matches any one token
    (`isSubsetMatchTokenized`), though only `*` itself counts as a wildcard elsewhere.
    """
    if "*" not in source:
        return source
    return SEPARATOR.join(PARTIAL_WILDCARD if token[:1] == "*" else token for token in source.split(SEPARATOR))


def numbered_wildcards(source: str) -> str:
    """The destination that gives *source* back: its wildcards as `$1`, `$2`, … (`transformTokenize`)."""
    number = count(1)
    return SEPARATOR.join(
        f"${next(number)}" if token == PARTIAL_WILDCARD else token for token in source.split(SEPARATOR)
    )


def _explain_broken(destination: str) -> str:
    return f"`{destination}` has an empty token, or goes on after `>`"


def _is_broken(tokens: Sequence[str]) -> bool:
    return "" in tokens or FULL_WILDCARD in tokens[:-1]


@dataclass(frozen=True, slots=True)
class _SourcePattern:
    """A source pattern, taken apart."""

    source: str
    is_broken: bool
    has_full_wildcard: bool
    wildcards: tuple[int, ...]

    @property
    def is_literal(self) -> bool:
        return not self.wildcards and not self.has_full_wildcard


@lru_cache(maxsize=64)
def _parse_source_pattern(source: str) -> _SourcePattern:
    tokens = source.split(SEPARATOR)
    wildcards = tuple(position for position, token in enumerate(tokens) if token == PARTIAL_WILDCARD)
    return _SourcePattern(source, _is_broken(tokens), tokens[-1] == FULL_WILDCARD, wildcards)


def _find_shape_error(pattern: _SourcePattern, destination: str, tokens: Sequence[str]) -> TransformError | None:
    """What is wrong with the two subjects as such; the server says no more than "invalid subject"."""
    if pattern.is_broken:
        reason = _explain_broken(pattern.source)
    elif _is_broken(tokens):
        reason = _explain_broken(destination)
    elif PARTIAL_WILDCARD in tokens:
        reason = f"`{destination}` contains `*`: write `{{{{wildcard(1)}}}}` for the first wildcard of the source"
    elif pattern.has_full_wildcard != (tokens[-1] == FULL_WILDCARD):
        reason = f"`{pattern.source}` and `{destination}` must both end in `>`, or neither"
    else:
        return None
    return TransformError(kind=ErrorKind.INVALID_SUBJECT, message=reason, server_message="invalid subject")


def _make_step(
    token: str, wildcards: tuple[int, ...], *, is_literal: bool, strict: bool
) -> str | Call | TransformError:
    """One destination token, its wildcard numbers turned into positions in the source."""
    call = parse_token(token)
    if call is None or isinstance(call, TransformError):
        return call or token
    return _bind(call, token, wildcards, is_literal=is_literal, strict=strict)


@lru_cache(maxsize=4096)
def _bind(
    call: Call, token: str, wildcards: tuple[int, ...], *, is_literal: bool, strict: bool
) -> Call | TransformError:
    if is_literal:
        if call.function in _CALLS_WITHOUT_WILDCARD:
            return replace(call, positions=())
        message = f"`{token}` refers to a wildcard, the source has none"
        return destination_error(ErrorKind.INDEX_OUT_OF_RANGE, message, token)
    if strict and call.function is not Function.WILDCARD:
        return destination_error(ErrorKind.NOT_REVERSIBLE, f"`{token}` cannot be reversed, only wildcard can", token)
    beyond = next((number for number in call.positions if number > len(wildcards)), None)
    if beyond is not None:
        message = f"`{token}` refers to wildcard {beyond}, the source has {len(wildcards)}"
        return destination_error(ErrorKind.INDEX_OUT_OF_RANGE, message, f"{token}: [{beyond}]")
    # Numbers below 1 are not refused: they stand for the first token, wildcard or not.
    return replace(call, positions=tuple(wildcards[number - 1] if number > 0 else 0 for number in call.positions))
