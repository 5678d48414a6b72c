"""Mappings blocks in the wrong place: missing, of an account that nobody is in, or written twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.diagnostics import Span
    from vstream.lint.workspace import ServerConf, Workspace
    from vstream.syntax.natsconf import ConfEntry

_SYSTEM = "$SYS"
_MAPPINGS = ("mappings", "maps")


@rule("VS353", "mappings-block-missing", Severity.WARNING)
def mappings_block_missing(workspace: Workspace) -> Iterator[Violation]:
    """
    A server has accounts and no `mappings` at the top, while another server of the same set has.

    ## Why is this bad?
    Its clients are not mapped. And if the block was taken out to switch rules off,
    a reload does not do that: with `accounts` in the file, the rules of the global
    account stay in force until the server restarts (server/reload.go,
    reloadAuthorization; seen with 2.10 to 2.15). Only an empty block removes them.

    One file alone cannot show what it once contained: the finding needs a second
    server, or an included file whose name says mappings and that has none.
    """
    servers = [server for server in workspace.servers if not server.is_fragment]
    with_block = [server for server in servers if any(block.account is None for block in server.mappings)]
    for server in servers:
        if not server.accounts or server.mappings:
            continue
        named = next((name for name in server.included if "mapping" in name.rpartition("/")[2].lower()), None)
        if with_block or named:
            other_file = with_block[0].file if with_block else None
            because = f"`{other_file}` has one" if other_file else f"`{named}` is included and has none"
            yield Violation(
                at=_accounts_key(server),
                message=f"there is no `mappings` block here, and {because}: a reload without it keeps the old rules",
                hint="keep `mappings {}` at the top of the file where there are no rules",
            )


def _accounts_key(server: ServerConf) -> Span:
    return next(entry.key_span for entry in server.root.entries if entry.key.lower() == "accounts")


@rule("VS354", "mappings-of-nobody", Severity.WARNING)
def mappings_of_nobody(workspace: Workspace) -> Iterator[Violation]:
    """
    Rules stand at the top of the file, and all clients belong to other accounts.

    ## Why is this bad?
    A `mappings` block at the top is that of the global account `$G`. Once accounts
    have users, or an operator signs them, clients are not in `$G`, and no rule
    applies to them (server/opts.go, "mappings"; server/auth.go,
    configureAuthorization; all versions).
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
                yield Violation(
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
def second_mappings_block(workspace: Workspace) -> Iterator[Violation]:
    """
    An account has two `mappings` blocks.

    ## Why is this bad?
    The later one replaces the earlier one as a whole, and `nats-server -t` says
    nothing: blocks are not merged, not even those of two included files
    (conf/parse.go keeps a map; all versions).
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        for conf in (server.root, *(account.conf for account in server.accounts)):
            written: dict[str, ConfEntry] = {}
            for entry in conf.entries:
                if entry.key.lower() not in _MAPPINGS:
                    continue
                earlier = written.get(entry.key)
                written[entry.key] = entry
                if earlier is not None and entry.key_span not in seen:
                    seen.add(entry.key_span)
                    yield Violation(
                        at=entry.key_span,
                        message="this block replaces an earlier one: blocks are not merged",
                        hint="put all rules of an account into one block",
                        related=(Related(span=earlier.key_span, message="this block has no effect"),),
                    )
