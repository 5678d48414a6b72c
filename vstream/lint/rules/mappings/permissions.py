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
    block_at = {block.key_span: block for block in workspace.blocks}
    seen: set[Span] = set()
    for server in workspace.servers:
        blocks = {
            own_block.account or _GLOBAL: block_at.get(own_block.key_span, own_block) for own_block in server.mappings
        }
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
    refused = _refusals_of_deny(block, cluster, allowed, denied) if denied else {}
    for allowed_value in publish.allow or ():
        if allowed_value.text and allowed_value.text in lost:
            why = f"user `{user.name}` may publish to `{allowed_value.text}`, but not to what becomes of it"
            hint = f"allow `{pattern(lost[allowed_value.text][1].model.subject)}` too"
            yield _finding(allowed_value, lost[allowed_value.text], why, hint), allowed_value.span
    for allowed_value in publish.deny:
        if allowed_value.text and allowed_value.text in refused:
            why = f"`deny` of `{allowed_value.text}` forbids user `{user.name}` to publish to `{refused[allowed_value.text][0].source}`"
            hint = "remove it: the server cannot tell a mapped publish from one that names the physical subject"
            yield _finding(allowed_value, refused[allowed_value.text], why, hint), allowed_value.span


def _finding(at: ConfValue, refusal: Refusal, why: str, hint: str) -> Violation:
    _, target = refusal
    return Violation(
        at=at.span,
        message=f"{why}: permissions are checked after mapping, for `{target.model.subject}`",
        hint=hint,
        related=(Related(span=place(target), message="the mapped subject"),),
    )


def _patterns(written: tuple[ConfValue, ...]) -> tuple[str, ...]:
    return tuple(value.text for value in written if value.text and is_valid(value.text))


# Many users have the same permissions, and each set of them may cost a walk over all rules.
@lru_cache(maxsize=_AT_HAND)
def _not_allowed(block: MappingsBlock, cluster: str | None, allowed: tuple[str, ...]) -> Mapping[str, Refusal]:
    """The allowed patterns under which a publish is mapped to what no pattern allows, each with the first such rule."""
    trie, entries = sources(block)
    refusals: dict[str, Refusal] = {}
    for subject in dict.fromkeys(allowed):
        for number in trie.overlapping(subject):
            if entries[number].source == OWN_API:
                continue  # what a topology moves away from is asked for there, by vstream and nobody else
            target = next(
                (target for target in entries[number].destinations if _is_lost(target, cluster, allowed)), None
            )
            if target is not None:
                refusals[subject] = (entries[number], target)
                break
    return refusals


def _is_lost(target: MappingDestination, cluster: str | None, allowed: tuple[str, ...]) -> bool:
    result = pattern(target.model.subject)
    if result is None or not target.model.weight or not _applies(target, cluster):
        return False
    return not any(overlaps(result, allowed_subject) for allowed_subject in allowed)


@lru_cache(maxsize=_AT_HAND)
def _refusals_of_deny(
    block: MappingsBlock, cluster: str | None, allowed: tuple[str, ...] | None, denied: tuple[str, ...]
) -> Mapping[str, Refusal]:
    """The denied patterns that cover what a permitted publish is mapped to, each with the first such rule."""
    index, targets = _targets(block)
    refusals: dict[str, Refusal] = {}
    for subject in dict.fromkeys(denied):
        for number in index.overlapping(subject):
            entry, target = targets[number]
            source, result = effective_source(entry.source), pattern(target.model.subject)
            may_publish = allowed is None or any(overlaps(source, allowed_subject) for allowed_subject in allowed)
            is_meant = any(is_subset(source, allowed_subject) for allowed_subject in denied)
            if may_publish and not is_meant and result and is_subset(result, subject) and _applies(target, cluster):
                refusals[subject] = (entry, target)
                break
    return refusals


def _applies(one: MappingDestination, cluster: str | None) -> bool:
    """Whether the destination can be chosen on a server of *cluster*, None if that is not known."""
    return one.model.cluster is None or cluster is None or one.model.cluster == cluster


@lru_cache(maxsize=_AT_HAND)
def _targets(block: MappingsBlock) -> tuple[SubjectTrie, tuple[Refusal, ...]]:
    """The destinations of a block that are patterns, and an index of them."""
    _, entries = sources(block)
    targets = [
        (entry, destination, pattern(destination.model.subject))
        for entry in entries
        for destination in entry.destinations
    ]
    usable = [(entry, destination, subject) for entry, destination, subject in targets if subject is not None]
    return SubjectTrie(subject for _, _, subject in usable), tuple(
        (entry, destination) for entry, destination, _ in usable
    )
