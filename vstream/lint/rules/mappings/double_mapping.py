"""Messages that are mapped twice, because the destination of one rule matches the source of another."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.entries import MANY, pattern, place, sources
from vstream.lint.workspace import MappingDestination, MappingEntry, MappingsBlock, ServerConf, Workspace
from vstream.subjects.algebra import PARTIAL_WILDCARD
from vstream.topology.naming import OWN_API

_BLOCKS_AT_HAND = 256
_ENOUGH_OPEN = 1_000
"""How many destinations that begin with a wildcard are compared: each may cost a walk over all first tokens."""
_GLOBAL = "$G"


@rule("VS350", "mapped-twice", Severity.WARNING)
def mapped_twice(workspace: Workspace) -> Iterator[Violation]:
    """
    A rule also maps the destination of a rule.

    ## Why is this bad?
    A server maps each publish of a client once. But a client that publishes to the mapped subject itself, to repair or
    to replay, is mapped again: `foo.west.x` published in the east becomes `foo.east.west.x`, which looks like a new
    message (server/client.go, selectMappedSubject; all versions). Over leaf nodes it happens to every message: the hub
    maps what the leaf has mapped (server/parser.go, processInboundMsg for LEAF; server/leafnode.go, forceAddToSmap).
    That is an error if the files contain both sides with such a rule. A topology with `naming: blog` accepts this and
    is not warned.
    """
    over_leaves = _over_leaves(workspace)
    sides = frozenset[str]().union(*over_leaves.values())
    is_chosen = workspace.topology is not None and not workspace.topology.naming.is_isolated
    for block in workspace.blocks:
        crosses = block.key_span in over_leaves
        if is_chosen and not crosses:
            continue
        when = "it crosses a leaf node connection" if crosses else "a client publishes to it"
        for entry, destination, taker in _inside(block):
            yield Violation(
                at=place(destination),
                message=f"`{destination.model.subject}` is mapped again by `{taker.source}` if {when}",
                hint="use physical subjects that clients do not publish to, such as "
                f"`_vs.<stream>.{destination.model.cluster or '<region>'}.{entry.source}`",
                related=()
                if taker is entry
                else (Related(span=taker.key_span, message="the rule that maps it again"),),
                severity=Severity.ERROR if crosses and len(sides) > 1 else None,
            )


def _over_leaves(workspace: Workspace) -> dict[object, set[str]]:
    """Where blocks begin whose messages cross leaf nodes, each with the sides on which its servers are."""
    sides_of: dict[object, set[str]] = {}
    for server in workspace.servers:
        for block in server.mappings:
            sides = set(_sides(server, block.account))
            if sides:
                sides_of.setdefault(block.key_span, set()).update(sides)
    return sides_of


def _sides(server: ServerConf, account: str | None) -> Iterator[str]:
    if any(listener.block in {"leafnodes", "leaf"} for listener in server.listeners):
        yield "hub"
    bound = (remote.account.text if remote.account else None for remote in server.leaf_remotes)
    if any((name or _GLOBAL) == (account or _GLOBAL) for name in bound):
        yield "leaf"


@lru_cache(maxsize=_BLOCKS_AT_HAND)
def _inside(block: MappingsBlock) -> tuple[tuple[MappingEntry, MappingDestination, MappingEntry], ...]:
    """Destinations that rules take, each with its entry and the first rule that takes it and changes it."""
    inside: list[tuple[MappingEntry, MappingDestination, MappingEntry]] = []
    trie, entries = sources(block)
    takers: dict[str, MappingEntry | None] = {}
    open_ones = 0
    for entry in entries:
        for destination in entry.destinations:
            subject = pattern(destination.model.subject)
            if subject is None or subject == entry.source or not destination.model.weight or entry.source == OWN_API:
                continue
            if subject not in takers:
                open_ones += subject.startswith(PARTIAL_WILDCARD)
                numbers = trie.overlapping(subject) if open_ones <= _ENOUGH_OPEN else []
                takers[subject] = next((entries[number] for number in numbers if _changes(entries[number])), None)
            taker = takers[subject]
            if taker is not None:
                inside.append((entry, destination, taker))
                if len(inside) == MANY:
                    return tuple(inside)
                break
    return tuple(inside)


def _changes(entry: MappingEntry) -> bool:
    """Whether a message that *entry* takes can get another subject."""
    return any(destination.model.subject != entry.source for destination in entry.destinations)
