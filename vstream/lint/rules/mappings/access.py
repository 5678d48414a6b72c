"""Rules and accounts: permissions that forget the mapped subject, and blocks in the wrong place."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Finding, rule
from vstream.lint.rules.mappings.view import pattern, place, sources
from vstream.mapping.transform import effective_source
from vstream.subjects import SubjectTrie, is_subset, is_valid, overlaps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.diagnostics import Span
    from vstream.lint.subject import (
        MappingDestination,
        MappingEntry,
        MappingsBlock,
        Permission,
        ServerConf,
        UserConf,
        Workspace,
        Written,
    )
    from vstream.syntax.natsconf import ConfEntry

_BLOCKS_AT_HAND = 256
_GLOBAL = "$G"
_SYSTEM = "$SYS"
_MAPPINGS = ("mappings", "maps")


@rule("VS352", "permission-misses-mapped-subject", Severity.ERROR)
def permission_misses_mapped_subject(workspace: Workspace) -> Iterator[Finding]:
    """
    A user may publish to a subject, and not to what the rules make of it.

    ## Why is this bad?
    The server maps first and checks permissions of the mapped subject: every
    publish ends in a permissions violation, for a subject that the client never
    wrote (server/parser.go, then processInboundClientMsg in server/client.go; all
    versions). A deny that keeps clients away from physical subjects forbids the
    virtual stream, too.

    ## Example
    ```conf
    accounts {
      APP {
        users: [{nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4, permissions: {publish: ["foo.>"]}}]
        mappings {
          "foo.>": "_vs.foo.west.foo.>"
        }
      }
    }
    ```
    ## Use instead
    ```conf
    accounts {
      APP {
        users: [{nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4, permissions: {publish: ["foo.>", "_vs.>"]}}]
        mappings {
          "foo.>": "_vs.foo.west.foo.>"
        }
      }
    }
    ```
    """
    known = {block.key_span: block for block in workspace.blocks}
    seen: set[tuple[Span, str]] = set()
    for server in workspace.servers:
        blocks = {one.account or _GLOBAL: known.get(one.key_span, one) for one in server.mappings}
        for user in server.users:
            block = blocks.get(user.account or _GLOBAL)
            if block is not None and user.publish is not None:
                for finding in _refused(server, user, user.publish, block):
                    if isinstance(finding.at, tuple) or (finding.at, finding.message) in seen:
                        continue
                    seen.add((finding.at, finding.message))
                    yield finding


def _refused(server: ServerConf, user: UserConf, publish: Permission, block: MappingsBlock) -> Iterator[Finding]:
    """One finding for each `allow` whose mapped subjects are not allowed, and each `deny` that covers mapped subjects."""
    allow = [one for one in publish.allow or () if one.text and is_valid(one.text)]
    deny = [one for one in publish.deny if one.text and is_valid(one.text)]
    allowed = None if publish.allow is None else [str(one.value) for one in allow]
    trie, entries = sources(block)
    for one in allow:
        wanted = str(one.value)
        for number in trie.overlapping(wanted):
            lost = _lost(entries[number], server, allowed or [])
            if lost is not None:
                yield _finding(user, one, entries[number], lost, is_deny=False)
                break
    for one in deny:
        denied = str(one.value)
        index, targets = _targets(block)
        for number in index.overlapping(denied):
            entry, target = targets[number]
            source, result = effective_source(entry.source), pattern(target.model.subject)
            may_publish = allowed is None or any(overlaps(source, other) for other in allowed)
            if (
                may_publish
                and result is not None
                and is_subset(result, denied)
                and _applies(target, server)
                and not any(is_subset(source, str(other.value)) for other in deny)
            ):
                yield _finding(user, one, entry, target, is_deny=True)
                break


def _lost(entry: MappingEntry, server: ServerConf, allowed: list[str]) -> MappingDestination | None:
    """The first destination that no permission reaches."""
    for one in entry.destinations:
        result = pattern(one.model.subject)
        if result is None or not one.model.weight or not _applies(one, server):
            continue
        if not any(overlaps(result, other) for other in allowed):
            return one
    return None


def _applies(one: MappingDestination, server: ServerConf) -> bool:
    """Whether the destination can be chosen on this server."""
    cluster = server.cluster_name.text if server.cluster_name else None
    return one.model.cluster is None or cluster is None or one.model.cluster == cluster


@lru_cache(maxsize=_BLOCKS_AT_HAND)
def _targets(block: MappingsBlock) -> tuple[SubjectTrie, tuple[tuple[MappingEntry, MappingDestination], ...]]:
    """The destinations of a block that are patterns, and an index of them."""
    _, entries = sources(block)
    found = [(entry, one, pattern(one.model.subject)) for entry in entries for one in entry.destinations]
    usable = [(entry, one, subject) for entry, one, subject in found if subject is not None]
    return SubjectTrie(subject for _, _, subject in usable), tuple((entry, one) for entry, one, _ in usable)


def _finding(user: UserConf, at: Written, entry: MappingEntry, target: MappingDestination, *, is_deny: bool) -> Finding:
    subject = target.model.subject
    why = (
        f"`deny` of `{at.value}` forbids user `{user.name}` to publish to `{entry.source}`"
        if is_deny
        else f"user `{user.name}` may publish to `{at.value}`, but not to what becomes of it"
    )
    return Finding(
        at=at.span,
        message=f"{why}: permissions are checked after mapping, for `{subject}`",
        hint="remove it: the server cannot tell a mapped publish from one that names the physical subject"
        if is_deny
        else f"allow `{pattern(subject)}` too",
        related=(Related(span=place(target), message="the mapped subject"),),
    )


@rule("VS353", "mappings-block-missing", Severity.WARNING)
def mappings_block_missing(workspace: Workspace) -> Iterator[Finding]:
    """
    A server has accounts and no `mappings` at the top, while another server of the same set has.

    ## Why is this bad?
    Its clients are not mapped. And if the block was taken out to switch rules off,
    a reload does not do that: with `accounts` in the file, the rules of the global
    account stay in force until the server restarts (server/reload.go,
    reloadAuthorization; seen with 2.10 to 2.15). Only an empty block removes them.

    One file alone cannot show what it once contained: the finding needs a second
    server, or an included file whose name says mappings and that has none.

    ## Example
    ```conf
    listen: 127.0.0.1:4222
    mappings {foo: bar}
    ```
    ```conf
    listen: 127.0.0.1:4223
    system_account: SYS
    accounts {SYS {}, APP {jetstream: enabled}}
    ```
    ## Use instead
    ```conf
    listen: 127.0.0.1:4222
    mappings {foo: bar}
    ```
    ```conf
    listen: 127.0.0.1:4223
    system_account: SYS
    accounts {SYS {}, APP {jetstream: enabled}}
    mappings {}
    ```
    """
    servers = [server for server in workspace.servers if not server.is_fragment]
    with_block = [server for server in servers if any(block.account is None for block in server.mappings)]
    for server in servers:
        if not server.accounts or server.mappings:
            continue
        named = next((name for name in server.included if "mapping" in name.rpartition("/")[2].lower()), None)
        if with_block or named:
            other = with_block[0].file if with_block else None
            because = f"`{other}` has one" if other else f"`{named}` is included and has none"
            yield Finding(
                at=_accounts_key(server),
                message=f"there is no `mappings` block here, and {because}: a reload without it keeps the old rules",
                hint="keep `mappings {}` at the top of the file where there are no rules",
            )


def _accounts_key(server: ServerConf) -> Span:
    return next(one.key_span for one in server.root.entries if one.key.lower() == "accounts")


@rule("VS354", "mappings-of-nobody", Severity.WARNING)
def mappings_of_nobody(workspace: Workspace) -> Iterator[Finding]:
    """
    Rules stand at the top of the file, and all clients belong to other accounts.

    ## Why is this bad?
    A `mappings` block at the top is that of the global account `$G`. Once accounts
    have users, or an operator signs them, clients are not in `$G`, and no rule
    applies to them (server/opts.go, "mappings"; server/auth.go,
    configureAuthorization; all versions).

    ## Example
    ```conf
    listen: 127.0.0.1:4222
    system_account: SYS
    accounts {
      SYS {}
      APP {users: [{nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4}]}
    }
    mappings {foo: bar}
    ```
    ## Use instead
    ```conf
    listen: 127.0.0.1:4222
    system_account: SYS
    accounts {
      SYS {}
      APP {
        users: [{nkey: UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4}]
        mappings {foo: bar}
      }
    }
    ```
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        if server.is_fragment or server.authorization is not None or server.root.get_folded("no_auth_user") is not None:
            continue
        system = (server.system_account.text if server.system_account else None) or _SYSTEM
        owner = next((user.account for user in server.users if user.account not in (None, system)), None)
        signed = any(server.root.get_folded(name) is not None for name in ("operator", "operators", "resolver"))
        for block in server.mappings:
            if block.account is None and block.entries and (owner or signed) and block.key_span not in seen:
                seen.add(block.key_span)
                yield Finding(
                    at=block.key_span,
                    message="these are the rules of the global account, and no client is in it: "
                    + (
                        f"users belong to accounts such as `{owner}`" if owner else "accounts are signed by an operator"
                    ),
                    hint="put them into the claims of the account"
                    if signed
                    else f"move the block into account `{owner}`",
                )


@rule("VS355", "second-mappings-block", Severity.ERROR)
def second_mappings_block(workspace: Workspace) -> Iterator[Finding]:
    """
    An account has two `mappings` blocks.

    ## Why is this bad?
    The later one replaces the earlier one as a whole, and `nats-server -t` says
    nothing: blocks are not merged, not even those of two included files
    (conf/parse.go keeps a map; all versions).

    ## Example
    ```conf
    mappings {foo: bar}
    mappings {fob: baz}
    ```
    ## Use instead
    ```conf
    mappings {
      foo: bar
      fob: baz
    }
    ```
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        for conf in (server.root, *(account.conf for account in server.accounts)):
            written: dict[str, ConfEntry] = {}
            for one in conf.entries:
                if one.key.lower() not in _MAPPINGS:
                    continue
                earlier = written.get(one.key)
                written[one.key] = one
                if earlier is not None and one.key_span not in seen:
                    seen.add(one.key_span)
                    yield Finding(
                        at=one.key_span,
                        message="this block replaces an earlier one: blocks are not merged",
                        hint="put all rules of an account into one block",
                        related=(Related(span=earlier.key_span, message="this block has no effect"),),
                    )
