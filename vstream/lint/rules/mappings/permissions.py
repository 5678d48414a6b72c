"""Permissions to publish, which are checked for the mapped subject."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.mappings.entries import pattern, place, sources
from vstream.subjects.algebra import SubjectTrie, is_subset, is_valid, overlaps
from vstream.subjects.transform import effective_source
from vstream.topology.naming import OWN_API

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.diagnostics import Span
    from vstream.lint.workspace import (
        ConfValue,
        MappingDestination,
        MappingEntry,
        MappingsBlock,
        Permission,
        UserConf,
        Workspace,
    )

    Refusal: TypeAlias = tuple[MappingEntry, MappingDestination]

_AT_HAND = 256
_GLOBAL = "$G"


@rule("VS352", "permission-misses-mapped-subject", Severity.ERROR)
def permission_misses_mapped_subject(workspace: Workspace) -> Iterator[Violation]:
    """
    A user may publish to a subject, and not to what the rules make of it.

    ## Why is this bad?
    The server maps first and checks permissions of the mapped subject: every
    publish ends in a permissions violation, for a subject that the client never
    wrote (server/parser.go, then processInboundClientMsg in server/client.go; all
    versions). A deny that keeps clients away from physical subjects forbids the
    virtual stream, too.
    """
    known = {block.key_span: block for block in workspace.blocks}
    seen: set[Span] = set()
    for server in workspace.servers:
        blocks = {one.account or _GLOBAL: known.get(one.key_span, one) for one in server.mappings}
        cluster = server.cluster_name.text if server.cluster_name else None
        for user in server.users:
            block = blocks.get(user.account or _GLOBAL)
            if block is None or user.publish is None:
                continue
            for finding, span in _refusals(user, user.publish, block, cluster):
                if span not in seen:
                    seen.add(span)
                    yield finding


def _refusals(
    user: UserConf, publish: Permission, block: MappingsBlock, cluster: str | None
) -> Iterator[tuple[Violation, Span]]:
    """A finding for each `allow` whose mapped subjects are not allowed, and each `deny` that covers mapped subjects."""
    allowed = None if publish.allow is None else _patterns(publish.allow)
    denied = _patterns(publish.deny)
    lost = _not_allowed(block, cluster, allowed) if allowed else {}
    refused = _denied(block, cluster, allowed, denied) if denied else {}
    for one in publish.allow or ():
        if one.text and one.text in lost:
            why = f"user `{user.name}` may publish to `{one.text}`, but not to what becomes of it"
            hint = f"allow `{pattern(lost[one.text][1].model.subject)}` too"
            yield _finding(one, lost[one.text], why, hint), one.span
    for one in publish.deny:
        if one.text and one.text in refused:
            why = f"`deny` of `{one.text}` forbids user `{user.name}` to publish to `{refused[one.text][0].source}`"
            hint = "remove it: the server cannot tell a mapped publish from one that names the physical subject"
            yield _finding(one, refused[one.text], why, hint), one.span


def _finding(at: ConfValue, refusal: Refusal, why: str, hint: str) -> Violation:
    _, target = refusal
    return Violation(
        at=at.span,
        message=f"{why}: permissions are checked after mapping, for `{target.model.subject}`",
        hint=hint,
        related=(Related(span=place(target), message="the mapped subject"),),
    )


def _patterns(written: tuple[ConfValue, ...]) -> tuple[str, ...]:
    return tuple(one.text for one in written if one.text and is_valid(one.text))


# Many users have the same permissions, and each set of them may cost a walk over all rules.
@lru_cache(maxsize=_AT_HAND)
def _not_allowed(block: MappingsBlock, cluster: str | None, allowed: tuple[str, ...]) -> Mapping[str, Refusal]:
    """The allowed patterns under which a publish is mapped to what no pattern allows, each with the first such rule."""
    trie, entries = sources(block)
    found: dict[str, Refusal] = {}
    for one in dict.fromkeys(allowed):
        for number in trie.overlapping(one):
            if entries[number].source == OWN_API:
                continue  # what a topology moves away from is asked for there, by vstream and nobody else
            target = next(
                (target for target in entries[number].destinations if _is_lost(target, cluster, allowed)), None
            )
            if target is not None:
                found[one] = (entries[number], target)
                break
    return found


def _is_lost(target: MappingDestination, cluster: str | None, allowed: tuple[str, ...]) -> bool:
    result = pattern(target.model.subject)
    if result is None or not target.model.weight or not _applies(target, cluster):
        return False
    return not any(overlaps(result, one) for one in allowed)


@lru_cache(maxsize=_AT_HAND)
def _denied(
    block: MappingsBlock, cluster: str | None, allowed: tuple[str, ...] | None, denied: tuple[str, ...]
) -> Mapping[str, Refusal]:
    """The denied patterns that cover what a permitted publish is mapped to, each with the first such rule."""
    index, targets = _targets(block)
    found: dict[str, Refusal] = {}
    for one in dict.fromkeys(denied):
        for number in index.overlapping(one):
            entry, target = targets[number]
            source, result = effective_source(entry.source), pattern(target.model.subject)
            may_publish = allowed is None or any(overlaps(source, other) for other in allowed)
            is_meant = any(is_subset(source, other) for other in denied)
            if may_publish and not is_meant and result and is_subset(result, one) and _applies(target, cluster):
                found[one] = (entry, target)
                break
    return found


def _applies(one: MappingDestination, cluster: str | None) -> bool:
    """Whether the destination can be chosen on a server of *cluster*, None if that is not known."""
    return one.model.cluster is None or cluster is None or one.model.cluster == cluster


@lru_cache(maxsize=_AT_HAND)
def _targets(block: MappingsBlock) -> tuple[SubjectTrie, tuple[Refusal, ...]]:
    """The destinations of a block that are patterns, and an index of them."""
    _, entries = sources(block)
    found = [(entry, one, pattern(one.model.subject)) for entry in entries for one in entry.destinations]
    usable = [(entry, one, subject) for entry, one, subject in found if subject is not None]
    return SubjectTrie(subject for _, _, subject in usable), tuple((entry, one) for entry, one, _ in usable)
