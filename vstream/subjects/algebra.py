"""
Subject algebra on plain strings, as nats-server defines it.

Subjects are dot-separated tokens; a token `*` stands for exactly one token, a
last token `>` for one or more. *literal* subjects have neither. Functions that
take patterns expect valid ones (`is_valid`); none of them raises.

Source: `server/sublist.go` (IsValidSubject, isSubsetMatchTokenized, Sublist).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, product

SEPARATOR = "."
PARTIAL_WILDCARD = "*"
FULL_WILDCARD = ">"
WHITESPACE = "\t\n\f\r "
"""What no token may contain."""

_EXAMPLE = "x"


def is_valid(subject: str) -> bool:
    """Whether the server takes *subject*, wildcards allowed (`IsValidSubject`)."""
    parts = subject.split(SEPARATOR)
    return "" not in parts and FULL_WILDCARD not in parts[:-1] and not any(space in subject for space in WHITESPACE)


def has_wildcards(subject: str) -> bool:
    """Whether any token of *subject* is a wildcard (`subjectHasWildcard`)."""
    parts = subject.split(SEPARATOR)
    return PARTIAL_WILDCARD in parts or FULL_WILDCARD in parts


def is_literal(subject: str) -> bool:
    """Whether *subject* is valid and without wildcards, so that a client can publish to it."""
    return is_valid(subject) and not has_wildcards(subject)


def is_deliverable(subject: str) -> bool:
    """
    Whether the server looks for subscribers of a message with this *subject*.

    Less than `is_valid`: only an empty token stops the server (`Sublist.match`).
    """
    return "" not in subject.split(SEPARATOR)


def matches(subject: str, pattern: str) -> bool:
    """Whether a subscription to *pattern* receives a message on the literal *subject*."""
    return is_subset(subject, pattern)


def is_subset(narrow: str, wide: str) -> bool:
    """Whether every literal subject that matches *narrow* also matches *wide*."""
    return _is_subset(narrow.split(SEPARATOR), wide.split(SEPARATOR))


def _is_subset(narrow: Sequence[str], wide: Sequence[str]) -> bool:
    for position, token in enumerate(wide):
        if position == len(narrow):
            return False
        if token == FULL_WILDCARD:
            return True
        mine = narrow[position]
        if mine == FULL_WILDCARD or token not in (PARTIAL_WILDCARD, mine):
            return False
    return len(narrow) == len(wide)


def overlaps(first: str, second: str) -> bool:
    """Whether some literal subject matches both patterns."""
    return example_of_overlap(first, second) is not None


def example_of_overlap(first: str, second: str) -> str | None:
    """A literal subject that matches both patterns, or None; wildcards that nothing fixes become `x`."""
    left, right = first.split(SEPARATOR), second.split(SEPARATOR)
    example: list[str] = []
    for position, (mine, theirs) in enumerate(zip(left, right, strict=False)):
        if FULL_WILDCARD in (mine, theirs):
            tail = (right if mine == FULL_WILDCARD else left)[position:]
            return SEPARATOR.join(
                example + [_EXAMPLE if token in (PARTIAL_WILDCARD, FULL_WILDCARD) else token for token in tail]
            )
        if mine == PARTIAL_WILDCARD:
            example.append(_EXAMPLE if theirs == PARTIAL_WILDCARD else theirs)
        elif theirs in (PARTIAL_WILDCARD, mine):
            example.append(mine)
        else:
            return None
    return SEPARATOR.join(example) if len(left) == len(right) else None


class _Node:
    """The patterns that share a prefix: those that end here, those that end in `>` here, and the longer ones."""

    __slots__ = ("children", "ends", "tails")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.ends: list[int] = []
        self.tails: list[int] = []

    def list_below(self) -> Iterator[int]:
        """All patterns that `>` at this node overlaps: at least one token longer than the node's prefix."""
        yield from self.tails
        stack = list(self.children.values())
        while stack:
            node = stack.pop()
            yield from node.ends
            yield from node.tails
            stack.extend(node.children.values())


class SubjectTrie:
    """
    An index of patterns, which are known by their position in the input.

    Finding all overlapping pairs takes time in proportion to the input and the
    number of pairs found, not to the square of the input.
    """

    __slots__ = ("_root",)

    def __init__(self, patterns: Iterable[str]) -> None:
        self._root = _Node()
        for number, pattern in enumerate(patterns):
            self._add(number, pattern)

    def _add(self, number: int, pattern: str) -> None:
        node = self._root
        parts = pattern.split(SEPARATOR)
        is_tail = parts[-1] == FULL_WILDCARD
        for token in parts[:-1] if is_tail else parts:
            child = node.children.get(token)
            if child is None:
                child = node.children[token] = _Node()
            node = child
        (node.tails if is_tail else node.ends).append(number)

    def matching(self, subject: str) -> list[int]:
        """The patterns that match the literal *subject*, in input order."""
        indices: list[int] = []
        level = [self._root]
        for token in subject.split(SEPARATOR):
            following: list[_Node] = []
            for node in level:
                indices.extend(node.tails)
                for key in (token, PARTIAL_WILDCARD):
                    child = node.children.get(key)
                    if child is not None:
                        following.append(child)
            level = following
        for node in level:
            indices.extend(node.ends)
        return sorted(indices)

    def overlapping(self, pattern: str) -> list[int]:
        """The patterns that overlap *pattern*, in input order."""
        indices: list[int] = []
        level = [self._root]
        for token in pattern.split(SEPARATOR):
            if not level:
                break
            if token == FULL_WILDCARD:
                return sorted(indices + [number for node in level for number in node.list_below()])
            following: list[_Node] = []
            for node in level:
                indices.extend(node.tails)
                if token == PARTIAL_WILDCARD:
                    following.extend(node.children.values())
                else:
                    following += [node.children[key] for key in (token, PARTIAL_WILDCARD) if key in node.children]
            level = following
        for node in level:
            indices.extend(node.ends)
        return sorted(indices)

    def overlapping_pairs(self) -> Iterator[tuple[int, int]]:
        """
        Each pair of patterns that overlap, smaller position first, once, in no particular order.

        Equal patterns overlap. It is a generator since there may be as many
        pairs as the square of the input: stop when you have seen enough.
        """
        stack = [(self._root, self._root)]
        while stack:
            left, right = stack.pop()
            if left is right:
                yield from _list_pairs_within(left)
                stack.extend((child, child) for child in left.children.values())
                wild = left.children.get(PARTIAL_WILDCARD)
                if wild is not None:
                    stack.extend((wild, child) for child in left.children.values() if child is not wild)
            else:
                yield from _list_pairs_between(left, right)
                stack.extend(_list_compatible_children(left, right))


def _list_pairs_within(node: _Node) -> Iterator[tuple[int, int]]:
    """Pairs of patterns that both have this node's prefix and of which one ends here."""
    yield from combinations(node.ends, 2)
    yield from combinations(node.tails, 2)
    if node.tails:
        longer = [number for child in node.children.values() for number in (*child.ends, *child.list_below())]
        yield from (_ordered_pair(pair) for pair in product(node.tails, longer))


def _list_pairs_between(left: _Node, right: _Node) -> Iterator[tuple[int, int]]:
    """Pairs across two different prefixes of equal length that overlap, of which one pattern ends here."""
    yield from (_ordered_pair(pair) for pair in product(left.ends, right.ends))
    if left.tails:
        yield from (_ordered_pair(pair) for pair in product(left.tails, right.list_below()))
    if right.tails:
        longer = [number for child in left.children.values() for number in (*child.ends, *child.list_below())]
        yield from (_ordered_pair(pair) for pair in product(right.tails, longer))


def _list_compatible_children(left: _Node, right: _Node) -> Iterator[tuple[_Node, _Node]]:
    """Pairs of children whose tokens can stand for the same token."""
    few, many = sorted((left, right), key=lambda node: len(node.children))
    for token, child in few.children.items():
        if token != PARTIAL_WILDCARD and token in many.children:
            yield child, many.children[token]
    for wild_side, side in ((left, right), (right, left)):
        wild = wild_side.children.get(PARTIAL_WILDCARD)
        if wild is not None:
            for token, child in side.children.items():
                if token != PARTIAL_WILDCARD or wild_side is left:
                    yield wild, child


def _ordered_pair(pair: tuple[int, int]) -> tuple[int, int]:
    return pair if pair[0] < pair[1] else (pair[1], pair[0])
