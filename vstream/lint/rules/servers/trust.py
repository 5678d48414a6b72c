"""What VS426 says of whom a server trusts: operators, their resolvers and keys, and logins (server/opts.go)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from vstream.lint.reading.nodes import entry, maps_in, option, table, values_in
from vstream.lint.rule import Violation, make_refusal, suggest_closest
from vstream.lint.rules.server_values import OPERATORS, TRUSTED, has_operator, read_claims
from vstream.lint.workspace import ConfValue, ServerConf
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode

_RESOLVERS: Final = ("resolver", "account_resolver", "accounts_resolver")
_RESOLVER_HINT: Final = "write `MEMORY`, `URL(https://HOST/jwt/v1/accounts/)` or `{type: full, dir: DIRECTORY}`"
_KEY_HINT: Final = "write the key that begins with `A`, as `nsc` prints it"
_MIN_KEY_LENGTH: Final = 20
"""What is shorter is the name of an account, not a key and not a placeholder for one."""


def check_leaf_accounts(server: ServerConf, names: set[str]) -> Iterator[Violation]:
    """Leaf nodes that log in to an account not in *names*, for a server without an operator."""
    authorization = table(server.leafnodes, "authorization")
    accounts = {*names, "$G", "$SYS"}
    for conf in (authorization, *maps_in(authorization, "users")):
        account = option(conf, "account")
        if account is not None and account.text and account.text not in accounts:
            yield make_refusal(
                account.span,
                f"there is no account `{account.text}` for these leaf nodes",
                suggest_closest(account.text, sorted(accounts), "accounts"),
            )


def check_operator(server: ServerConf) -> Iterator[Violation]:
    """What needs an operator, for a server without one."""
    resolver, sentinel = entry(server.root, *_RESOLVERS), entry(server.root, "default_sentinel")
    if resolver is not None and isinstance(resolver.value, ConfMap):
        message = "a resolver keeps the accounts of an operator, and none is trusted"
        yield make_refusal(resolver.key_span, message, "add `operator`, or remove the resolver")
    if sentinel is not None:
        message = "`default_sentinel` is a user of an operator, and none is trusted"
        yield make_refusal(sentinel.key_span, message, "add `operator`, or remove it")


def check_operator_needs(server: ServerConf) -> Iterator[Violation]:
    """A resolver, a system account for it, and public keys for names."""
    operator, resolver = entry(server.root, *OPERATORS), entry(server.root, *_RESOLVERS)
    # Of a token in a file of its own, nobody here knows what it claims.
    claims = read_claims(operator.value) if operator is not None else {}
    if operator is not None and claims and resolver is None and not claims.get("account_server_url"):
        message = "an operator needs a resolver, which knows its accounts"
        yield make_refusal(operator.key_span, message, f"add `resolver`: {_RESOLVER_HINT}")
    is_in_files = resolver is not None and isinstance(resolver.value, ConfMap)
    is_named = bool(claims.get("system_account") or server.system_account)
    if resolver is not None and is_in_files and claims and not is_named:
        message = "this resolver asks over the system account, and neither the file nor the operator names one"
        yield make_refusal(resolver.key_span, message, "add `system_account` with the key of that account")
    leaves = option(table(server.leafnodes, "authorization"), "account")
    names = (*values_in(server.root, "resolver_pinned_accounts"), *([leaves] if leaves else ()))
    for name in names if operator is not None else ():
        if name.text and len(name.text) < _MIN_KEY_LENGTH:
            yield make_refusal(name.span, f"`{name.text}` is not the public key of an account", _KEY_HINT)


def check_beside_operator(server: ServerConf) -> Iterator[Violation]:
    """What an operator's tokens say, and a file must not."""
    operator = entry(server.root, *OPERATORS)
    if operator is None:
        return
    in_tokens = "remove it here, and put it into the token of the account"
    leaves = table(server.leafnodes, "authorization")
    for conf, names, hint in (
        (server.root, ("accounts",), in_tokens),
        (server.root, ("mappings", "maps"), in_tokens),
        (server.authorization, ("users",), in_tokens),
        (server.authorization, ("auth_callout", "auth_hook"), in_tokens),
        (leaves, ("users",), "remove it: leaf nodes log in with the credentials of a user of the operator"),
        (server.root, TRUSTED, "remove it: the operator says who is trusted"),
        (server.root, ("no_auth_user",), "remove it: users come with the tokens of the operator"),
    ):
        written = entry(conf, *names)
        if written is not None and not _is_empty(written.value):
            yield make_refusal(written.key_span, f"`{written.key}` beside an operator", hint)
    for remote in server.leaf_remotes:
        account = remote.account
        if account is None or (account.text and len(account.text) < _MIN_KEY_LENGTH):
            message = "beside an operator, a leaf node is for the public key of an account"
            hint = "write `account` with the key that begins with `A`, as `nsc` prints it"
            yield make_refusal(account.span if account else remote.span, message, hint)
    system, named = server.system_account, read_claims(operator.value).get("system_account")
    if system is not None and system.text and len(system.text) >= _MIN_KEY_LENGTH and named and system.text != named:
        message = "the operator's system account is another one"
        yield make_refusal(system.span, message, f"write `{named}`, or remove it")


def check_system_key(server: ServerConf) -> Iterator[Violation]:
    """Operators know the system account by its key; accounts of the file are not theirs."""
    system = server.system_account
    if has_operator(server) and system is not None and system.text and len(system.text) < _MIN_KEY_LENGTH:
        yield make_refusal(system.span, f"`{system.text}` is not the public key of an account", _KEY_HINT)


def _is_empty(node: ConfNode) -> bool:
    contents = node.items if isinstance(node, ConfArray) else getattr(node, "entries", None)
    return contents is not None and not contents


def check_single_guest(server: ServerConf) -> Iterator[Violation]:
    """Whoever gives no login is one of several users."""
    guest = option(server.root, "no_auth_user")
    single: ConfValue | None = option(server.authorization, "user", "username")
    if guest is not None and single is not None and guest.text == single.text:
        message = f"`no_auth_user` must be one of `users`, and `{guest.text}` is a single user"
        yield make_refusal(guest.span, message, "move the user into `users: [{…}]`")
