"""What VS424, VS425 and VS426 say of whom a server trusts: resolvers, callouts, headers and logins (server/opts.go)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from vstream.lint.detect import find_claims
from vstream.lint.reading.accounts import exports_of
from vstream.lint.reading.nodes import entry, list_values, maps_in, option, split_url, table
from vstream.lint.rule import Violation, make_refusal, suggest_closest
from vstream.lint.rules.server_values import OPERATORS, TRUSTED, has_any, has_operator, list_links, read_claims
from vstream.lint.workspace import ConfValue, ServerConf
from vstream.subjects.algebra import is_literal, is_valid
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode, ConfScalar, ScalarKind

_RESOLVERS: Final = ("resolver", "account_resolver", "accounts_resolver")
_IN_MEMORY: Final = frozenset({"MEM", "MEMORY"})
_URL: Final = re.compile(r"URL\(\s*(https?://[^\s()]+)\s*\)", re.IGNORECASE)
_RESOLVER_HINT: Final = "write `MEMORY`, `URL(https://HOST/jwt/v1/accounts/)` or `{type: full, dir: DIRECTORY}`"
_ONLY_CACHE: Final = ("ttl",)
_ONLY_FULL: Final = ("interval", "allow_delete", "hard_delete")
_KEY_HINT: Final = "write the key that begins with `A`, as `nsc` prints it"
_MIN_KEY_LENGTH: Final = 20
"""What is shorter is the name of an account, not a key and not a placeholder for one."""
_TIMES: Final = ("interval", "ttl", "timeout")
_TIME: Final = re.compile(r"(\d+(\.\d+)?(ns|us|µs|ms|s|m|h))+")
_HANDSHAKE: Final = "sec-websocket-"
_OWN_HEADERS: Final = frozenset({"host", "content-length", "connection", "upgrade", "nats-no-masking"})


def _check_resolver(server: ServerConf) -> Iterator[Violation]:
    resolver = entry(server.root, *_RESOLVERS)
    if resolver is None:
        return
    node = resolver.value
    if isinstance(node, ConfScalar):
        text = str(node.value)
        is_known = text.upper() in _IN_MEMORY or _URL.fullmatch(text) is not None
        if not is_known and node.kind is not ScalarKind.UNRESOLVED:
            yield make_refusal(node.span, f"`{text}` is not an account resolver", _RESOLVER_HINT)
    elif isinstance(node, ConfMap):
        yield from _resolver_of_files(node)


def _resolver_of_files(conf: ConfMap) -> Iterator[Violation]:
    kind, directory = option(conf, "type"), option(conf, "dir")
    name = str(kind.value).lower() if kind is not None else ""
    if kind is None or name not in {"full", "cache"}:
        at = kind.span if kind is not None else conf.span
        close = suggest_closest(name, ["cache", "full"], "types")
        hint = close if kind is not None else "add `type: full`"
        yield make_refusal(at, "the resolver's `type` is neither `full` nor `cache`", hint)
        return
    if directory is None or not directory.text:
        message = "the resolver has no `dir` to keep accounts in"
        yield make_refusal(conf.span, message, "add `dir`, a directory of this server alone")
    for refused in _ONLY_CACHE if name == "full" else _ONLY_FULL:
        written = entry(conf, refused)
        if written is not None:
            message = f"a resolver of type `{name}` has no `{refused}`"
            yield make_refusal(written.key_span, message, "remove it, or change the type")
    for time in (option(conf, name) for name in _TIMES):
        if time is not None and not _TIME.fullmatch(str(time.value)):
            yield make_refusal(time.span, f"`{time.value}` is not a duration", 'write a duration, such as "2m"')


def _check_listed_accounts(server: ServerConf) -> Iterator[Violation]:
    listed = entry(server.root, "accounts")
    for item in listed.value.items if listed is not None and isinstance(listed.value, ConfArray) else ():
        if not isinstance(item, ConfScalar):
            message = "a list of accounts has names alone"
            yield make_refusal(item.span, message, "write `accounts { NAME { users: […] } }`")


def _check_resolver_preload(server: ServerConf) -> Iterator[Violation]:
    tokens, resolver = table(server.root, "resolver_preload"), option(server.root, *_RESOLVERS)
    if tokens is not None and tokens.entries and resolver is not None and _URL.fullmatch(resolver.text or ""):
        message = "a resolver at a URL cannot be given tokens"
        yield make_refusal(tokens.span, message, "remove `resolver_preload`, or write `resolver: MEMORY`")
    for written in tokens.effective_entries() if tokens is not None else ():
        token = written.value.value if isinstance(written.value, ConfScalar) else None
        is_variable = isinstance(written.value, ConfScalar) and written.value.kind is ScalarKind.UNRESOLVED
        if isinstance(token, str) and not is_variable and find_claims(token) is None:
            message = "this is not the token of an account"
            yield make_refusal(written.value.span, message, "copy all of the JWT, as `nsc` prints it")


def _check_trace_destination(server: ServerConf) -> Iterator[Violation]:
    for account in server.accounts:
        subject = option(account.conf, "msg_trace", "trace_dest")
        if subject is not None and subject.text and not (is_valid(subject.text) and is_literal(subject.text)):
            yield make_refusal(
                subject.span, f"traces cannot be published to `{subject.text}`", "write a subject without wildcards"
            )


def _check_routes(server: ServerConf) -> Iterator[Violation]:
    for kind, port, urls in (
        ("route", 6222, list_links(server, "cluster")),
        ("gateway", 7222, list_links(server, "gateway")),
        ("leaf node", 7422, [url for remote in server.leaf_remotes for url in remote.urls]),
    ):
        for url in urls:
            if url.text and not split_url(url)[0]:
                message = f"`{url.text}` is not the address of a server: the {kind} never connects"
                yield Violation(
                    at=url.span, message=message, hint=f"write `nats://HOST:{port}`, each in quotes of its own"
                )


def _check_headers(server: ServerConf) -> Iterator[Violation]:
    headers = table(table(server.root, "websocket", "ws"), "headers")
    for header in headers.effective_entries() if headers is not None else ():
        if header.key.lower().startswith(_HANDSHAKE) or header.key.lower() in _OWN_HEADERS:
            yield make_refusal(header.key_span, f"`{header.key}` belongs to the handshake of websockets", "remove it")
        elif not isinstance(getattr(header.value, "value", None), str):
            yield make_refusal(header.value.span, f"the header `{header.key}` is not a text", "put it in quotes")


def _check_callout(server: ServerConf) -> Iterator[Violation]:
    callout = entry(server.authorization, "auth_callout", "auth_hook")
    if callout is None or not isinstance(callout.value, ConfMap):
        return
    for names, hint in (
        (("issuer",), "add `issuer`: the public key that signs the answers"),
        (("auth_users", "users"), "add `auth_users`: the users that answer"),
    ):
        if not has_any(callout.value, *names):
            yield make_refusal(callout.key_span, f"`{callout.key}` has no `{names[0]}`", hint)
    account = option(callout.value, "account", "acc")
    accounts = sorted(account.name for account in server.accounts)
    if account is not None and account.text and account.text not in {*accounts, "$G", "$SYS"}:
        yield Violation(
            at=account.span,
            message=f"there is no account `{account.text}`: nobody answers there, so nobody can log in",
            hint=suggest_closest(account.text, accounts, "accounts")
            if accounts
            else "remove it: the users are in `$G`",
        )


def _check_nameless_users(server: ServerConf) -> Iterator[Violation]:
    for conf in (server.authorization, *(account.conf for account in server.accounts)):
        for user in maps_in(conf, "users"):
            password = entry(user, "password", "pass")
            if password is not None and not has_any(user, "user", "username", "nkey"):
                yield make_refusal(password.key_span, "a password without a user", "add `user`")


def _check_single_user(server: ServerConf) -> Iterator[Violation]:
    """A user of `authorization` beside users of accounts."""
    single = entry(server.authorization, "user", "username", "token")
    has_users = any(has_any(account.conf, "users") for account in server.accounts)
    if single is not None and has_users and not has_any(server.authorization, "users"):
        yield make_refusal(
            single.key_span,
            f"`authorization` has a `{single.key}`, and accounts have users",
            "move the user into an account, and remove it here",
        )


def _check_latencies(server: ServerConf) -> Iterator[Violation]:
    for account in server.accounts:
        for export in exports_of(account):
            latency = entry(export.conf, "latency")
            if latency is None:
                continue
            subject = option(export.conf, "latency")
            conf = latency.value if isinstance(latency.value, ConfMap) else None
            if export.kind == "stream":
                message = f"only services have a latency, and `{export.subject.value}` is a stream"
                yield make_refusal(latency.key_span, message, "remove it, or export a `service`")
            elif subject is not None and subject.text and not is_literal(subject.text):
                message = f"latencies cannot be published to `{subject.text}`"
                yield make_refusal(subject.span, message, "write a subject without wildcards")
            elif conf is not None and not has_any(conf, "subject"):
                message = "`latency` has no `subject`"
                yield make_refusal(latency.key_span, message, "add `subject`, where it is published")


def _check_leaf_logins(server: ServerConf) -> Iterator[Violation]:
    """A single login beside a list, and one user twice, for leaf nodes that connect here."""
    authorization = table(table(server.root, "leafnodes", "leaf"), "authorization")
    single, listed = entry(authorization, "user", "username", "nkey"), entry(authorization, "users")
    if single is not None and listed is not None:
        message = f"leaf nodes have a single `{single.key}` and a list of users"
        yield make_refusal(single.key_span, message, f"move it into `users`, and remove `{single.key}` here")
    names = set()
    for user in maps_in(authorization, "users"):
        name = option(user, "user", "username")
        if name is not None and name.text and name.text in names:
            message = f"user `{name.text}` of leaf nodes is defined twice"
            yield make_refusal(name.span, message, "give each a name of its own")
        names.add(name.text if name else None)


def _refuse_both_logins(server: ServerConf) -> Iterator[Violation]:
    for remote in server.leaf_remotes:
        key = entry(remote.conf, "nkey", "seed")
        if key is not None and has_any(remote.conf, "credentials", "creds"):
            message = f"a leaf node has credentials or an `{key.key}`, not both"
            yield make_refusal(key.key_span, message, "remove one of them")


def check_leaf_accounts(server: ServerConf, names: set[str]) -> Iterator[Violation]:
    """Leaf nodes that log in to an account not in *names*, for a server without an operator."""
    authorization = table(table(server.root, "leafnodes", "leaf"), "authorization")
    accounts = {*names, "$G", "$SYS"}
    for conf in (authorization, *maps_in(authorization, "users")):
        account = option(conf, "account")
        if account is not None and account.text and account.text not in accounts:
            yield make_refusal(
                account.span,
                f"there is no account `{account.text}` for these leaf nodes",
                suggest_closest(account.text, sorted(accounts), "accounts"),
            )


def _check_negative_waits(server: ServerConf) -> Iterator[Violation]:
    mqtt = table(server.root, "mqtt")
    waits = (option(mqtt, *names) for names in (("ack_wait", "ackwait"), ("api_timeout", "js_api_timeout")))
    for wait in waits:
        if wait is not None and wait.text and wait.text.startswith("-"):
            yield make_refusal(wait.span, f"`{wait.text}` is negative", f'write "{wait.text.removeprefix("-")}"')


def check_operator(server: ServerConf) -> Iterator[Violation]:
    """What needs an operator, for a server without one."""
    resolver, sentinel = entry(server.root, *_RESOLVERS), entry(server.root, "default_sentinel")
    if resolver is not None and isinstance(resolver.value, ConfMap):
        message = "a resolver keeps the accounts of an operator, and none is trusted"
        yield make_refusal(resolver.key_span, message, "add `operator`, or remove the resolver")
    if sentinel is not None:
        message = "`default_sentinel` is a user of an operator, and none is trusted"
        yield make_refusal(sentinel.key_span, message, "add `operator`, or remove it")


def _check_what_operators_need(server: ServerConf) -> Iterator[Violation]:
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
    pinned = entry(server.root, "resolver_pinned_accounts")
    leaves = option(table(table(server.root, "leafnodes", "leaf"), "authorization"), "account")
    names = (*(list_values(pinned.value) if pinned else ()), *([leaves] if leaves else ()))
    for name in names if operator is not None else ():
        if name.text and len(name.text) < _MIN_KEY_LENGTH:
            yield make_refusal(name.span, f"`{name.text}` is not the public key of an account", _KEY_HINT)


def _check_beside_operator(server: ServerConf) -> Iterator[Violation]:
    """What an operator's tokens say, and a file must not."""
    operator = entry(server.root, *OPERATORS)
    if operator is None:
        return
    in_tokens = "remove it here, and put it into the token of the account"
    leaves = table(table(server.root, "leafnodes", "leaf"), "authorization")
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


def _name_for_key(server: ServerConf) -> Iterator[Violation]:
    """Operators know the system account by its key; accounts of the file are not theirs."""
    system = server.system_account
    if has_operator(server) and system is not None and system.text and len(system.text) < _MIN_KEY_LENGTH:
        yield make_refusal(system.span, f"`{system.text}` is not the public key of an account", _KEY_HINT)


def _is_empty(node: ConfNode) -> bool:
    contents = node.items if isinstance(node, ConfArray) else getattr(node, "entries", None)
    return contents is not None and not contents


def _check_pinned_twice(server: ServerConf) -> Iterator[Violation]:
    pinned = entry(server.cluster, "accounts")
    seen: set[object] = set()
    for account in list_values(pinned.value) if pinned else ():
        if account.value in seen:
            yield make_refusal(account.span, f"account `{account.value}` is listed twice", "remove one of them")
        seen.add(account.value)


def _check_guest_alone(server: ServerConf) -> Iterator[Violation]:
    guest = option(server.root, "no_auth_user")
    single: ConfValue | None = option(server.authorization, "user", "username")
    if guest is not None and single is not None and guest.text == single.text:
        message = f"`no_auth_user` must be one of `users`, and `{guest.text}` is a single user"
        yield make_refusal(guest.span, message, "move the user into `users: [{…}]`")


VALUE_CHECKS: Final[tuple[Callable[[ServerConf], Iterator[Violation]], ...]] = (
    _check_resolver,
    _check_listed_accounts,
    _check_resolver_preload,
    _check_trace_destination,
    _check_routes,
    _check_headers,
)
"""What VS424 asks besides the types of options."""
ACCOUNT_CHECKS: Final[tuple[Callable[[ServerConf], Iterator[Violation]], ...]] = (
    _check_callout,
    _check_nameless_users,
    _check_single_user,
    _check_latencies,
    _check_leaf_logins,
    _refuse_both_logins,
)
"""What VS425 asks."""
START_CHECKS: Final[tuple[Callable[[ServerConf], Iterator[Violation]], ...]] = (
    _check_negative_waits,
    _check_pinned_twice,
    _check_guest_alone,
    _check_beside_operator,
    _check_what_operators_need,
    _name_for_key,
)
"""What VS426 asks: `nats-server -t` accepts it."""
