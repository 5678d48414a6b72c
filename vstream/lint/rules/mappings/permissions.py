"""Accounts and permissions that do not fit the rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from vstream.findings import Related, Severity, Span
from vstream.lint.rule import Violation, once_per_place, rule
from vstream.lint.rules.mappings.entries import index_sources, pattern
from vstream.lint.rules.server_values import OPERATORS, TRUSTED, has_any, may_share_a_system
from vstream.lint.workspace import (
    ConfValue,
    MappingDestination,
    MappingEntry,
    MappingsBlock,
    Permission,
    UserConf,
    Workspace,
)
from vstream.subjects.algebra import SubjectTrie, is_subset, is_valid, overlaps
from vstream.subjects.transform import effective_source
from vstream.syntax.natsconf.nodes import ConfEntry
from vstream.topology.naming import OWN_API

Refusal: TypeAlias = tuple[MappingEntry, MappingDestination]


_MAX_CACHED = 256
_GLOBAL = "$G"


@rule("VS352", "permission-misses-mapped-subject", Severity.ERROR)
def permission_misses_mapped_subject(workspace: Workspace) -> Iterator[Violation]:
    """
    A user may publish to a subject, but not to the subject that it is mapped to.

    ## Why is this bad?
    The server maps first and checks permissions of the mapped subject: every
    publish ends in a permissions violation, for a subject that the client never
    wrote (server/parser.go, then processInboundClientMsg in server/client.go; all
    versions). A deny that protects physical subjects also blocks the virtual stream.
    """
    block_at = {block.key_span: block for block in workspace.blocks}
    seen: set[Span] = set()
    for server in workspace.servers:
        blocks = {mapping.account or _GLOBAL: block_at.get(mapping.key_span, mapping) for mapping in server.mappings}
        cluster = server.cluster_name.text if server.cluster_name else None
        for user in server.users:
            block = blocks.get(user.account or _GLOBAL)
            if block is None or user.publish is None:
                continue
            for finding, span in _list_refusals(user, user.publish, block, cluster):
                if span not in seen:
                    seen.add(span)
                    yield finding


def _list_refusals(
    user: UserConf, publish: Permission, block: MappingsBlock, cluster: str | None
) -> Iterator[tuple[Violation, Span]]:
    """A finding for each `allow` whose mapped subjects are not allowed, and each `deny` that covers mapped subjects."""
    allowed = None if publish.allow is None else _find_patterns(publish.allow)
    denied = _find_patterns(publish.deny)
    lost = _find_not_allowed(block, cluster, allowed) if allowed else {}
    refused = _refusals_of_deny(block, cluster, allowed, denied) if denied else {}
    for allowed_value in publish.allow or ():
        if allowed_value.text and allowed_value.text in lost:
            why = f"user `{user.name}` may publish to `{allowed_value.text}`, but not to the subject it is mapped to"
            hint = f"also allow `{pattern(lost[allowed_value.text][1].model.subject)}`"
            yield _make_finding(allowed_value, lost[allowed_value.text], why, hint), allowed_value.span
    for denied_value in publish.deny:
        if denied_value.text and denied_value.text in refused:
            why = f"`deny` of `{denied_value.text}` forbids user `{user.name}` to publish to `{refused[denied_value.text][0].source}`"
            hint = "remove it: the server cannot distinguish a mapped publish from a direct publish to the physical subject"
            yield _make_finding(denied_value, refused[denied_value.text], why, hint), denied_value.span


def _make_finding(at: ConfValue, refusal: Refusal, why: str, hint: str) -> Violation:
    _, target = refusal
    return Violation(
        at=at.span,
        message=f"{why}: permissions are checked after mapping, for `{target.model.subject}`",
        hint=hint,
        related=(Related(span=target.locate(), message="the mapped subject"),),
    )


def _find_patterns(written: tuple[ConfValue, ...]) -> tuple[str, ...]:
    return tuple(value.text for value in written if value.text and is_valid(value.text))


# Many users have the same permissions, and each set of them may cost a walk over all rules.
@lru_cache(maxsize=_MAX_CACHED)
def _find_not_allowed(block: MappingsBlock, cluster: str | None, allowed: tuple[str, ...]) -> Mapping[str, Refusal]:
    """The allowed patterns with a publish that is mapped to a forbidden subject, each with the first such rule."""
    trie, entries = index_sources(block)
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


@lru_cache(maxsize=_MAX_CACHED)
def _refusals_of_deny(
    block: MappingsBlock, cluster: str | None, allowed: tuple[str, ...] | None, denied: tuple[str, ...]
) -> Mapping[str, Refusal]:
    """The denied patterns that match the mapped subject of a permitted publish, each with the first such rule."""
    index, targets = _find_targets(block)
    refusals: dict[str, Refusal] = {}
    for subject in dict.fromkeys(denied):
        for number in index.overlapping(subject):
            entry, target = targets[number]
            source, result = effective_source(entry.source), pattern(target.model.subject)
            may_publish = allowed is None or any(overlaps(source, permitted) for permitted in allowed)
            is_meant = any(is_subset(source, forbidden) for forbidden in denied)
            if may_publish and not is_meant and result and is_subset(result, subject) and _applies(target, cluster):
                refusals[subject] = (entry, target)
                break
    return refusals


def _applies(destination: MappingDestination, cluster: str | None) -> bool:
    """Whether the destination can be chosen on a server of *cluster*, None if that is not known."""
    return destination.model.cluster is None or cluster is None or destination.model.cluster == cluster


@lru_cache(maxsize=_MAX_CACHED)
def _find_targets(block: MappingsBlock) -> tuple[SubjectTrie, tuple[Refusal, ...]]:
    """The destinations of a block that are patterns, and an index of them."""
    _, entries = index_sources(block)
    targets = []
    for entry in entries:
        for destination in entry.destinations:
            targets.append((entry, destination, pattern(destination.model.subject)))
    usable = [(entry, destination, subject) for entry, destination, subject in targets if subject is not None]
    return SubjectTrie(subject for _, _, subject in usable), tuple(
        (entry, destination) for entry, destination, _ in usable
    )


_SYSTEM = "$SYS"
_MAPPINGS = ("mappings", "maps")


@rule("VS353", "mappings-block-missing", Severity.WARNING)
def mappings_block_missing(workspace: Workspace) -> Iterator[Violation]:
    """
    A server has accounts but no `mappings` at the top, while another server of the same set has both.

    ## Why is this bad?
    The publishes of its clients are not mapped. If the block was removed to disable rules, a reload does not do that:
    with `accounts` in the file, the rules of the global account stay in force until the server restarts
    (server/reload.go, reloadAuthorization; seen with 2.10 to 2.15). Only an empty block removes them.

    One file cannot show what it once contained: the finding needs a second server, or an included file with "mappings"
    in its name but no rules in it.
    """
    servers = [server for server in workspace.servers if not server.is_fragment]
    with_block = [server for server in servers if any(block.account is None for block in server.mappings)]
    for server in servers:
        if not server.accounts or server.mappings:
            continue
        named = next((name for name in server.included if "mapping" in name.rpartition("/")[2].lower()), None)
        beside = [peer for peer in with_block if may_share_a_system(peer, server)]
        if beside or named:
            other_file = beside[0].file if beside else None
            because = f"`{other_file}` has one" if other_file else f"the included `{named}` has none"
            yield Violation(
                at=next(entry.key_span for entry in server.root.entries if entry.key.lower() == "accounts"),
                message=f"there is no `mappings` block here, and {because}: a reload without it keeps the old rules",
                hint="without rules, keep `mappings {}` at the top of the file",
            )


@rule("VS354", "mappings-of-nobody", Severity.WARNING)
@once_per_place
def mappings_of_nobody(workspace: Workspace) -> Iterator[Violation]:
    """
    Rules are at the top of the file, but all clients belong to other accounts.

    ## Why is this bad?
    A `mappings` block at the top belongs to the global account `$G`. Once accounts
    have users, or an operator signs them, clients are not in `$G`, and no rule
    applies to them (server/opts.go, "mappings"; server/auth.go,
    configureAuthorization; all versions).
    """
    for server in workspace.servers:
        if server.is_fragment or server.authorization is not None or server.root.get_folded("no_auth_user") is not None:
            continue
        system = (server.system_account.text if server.system_account else None) or _SYSTEM
        owner = next((user.account for user in server.users if user.account not in (None, system)), None)
        # Beside an operator, the server does not start with them: VS426.
        signed = has_any(server.root, "resolver", *TRUSTED) and not has_any(server.root, *OPERATORS)
        for block in server.mappings:
            if block.account is None and block.entries and (owner or signed):
                yield Violation(
                    at=block.key_span,
                    message="these are the rules of the global account, which no client uses: "
                    + (
                        f"users belong to accounts such as `{owner}`" if owner else "accounts are signed by an operator"
                    ),
                    hint="put them into the claims of the account"
                    if signed
                    else f"move the block into account `{owner}`",
                )


@rule("VS355", "second-mappings-block", Severity.ERROR)
@once_per_place
def second_mappings_block(workspace: Workspace) -> Iterator[Violation]:
    """
    An account has two `mappings` blocks.

    ## Why is this bad?
    The later block replaces the earlier one completely, and `nats-server -t` does not complain: blocks are not merged,
    not even those of two included files (conf/parse.go keeps a map; all versions).
    """
    for server in workspace.servers:
        for conf in (server.root, *(account.conf for account in server.accounts)):
            written: dict[str, ConfEntry] = {}
            for entry in conf.entries:
                if entry.key.lower() not in _MAPPINGS:
                    continue
                earlier = written.get(entry.key)
                written[entry.key] = entry
                if earlier is not None:
                    yield Violation(
                        at=entry.key_span,
                        message="this block replaces an earlier one: blocks are not merged",
                        hint="write all rules of an account in one block",
                        related=(Related(span=earlier.key_span, message="this block has no effect"),),
                    )
