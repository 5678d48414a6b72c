"""Who may connect, where, and with which credentials; and what VS432 says of logins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from vstream.findings import Related, Severity, Span
from vstream.lint.reading.leafnodes import list_leaf_passwords
from vstream.lint.reading.nodes import entry, option, split_url, table
from vstream.lint.rule import Violation, once_per_place, rule
from vstream.lint.rules.server_values import (
    OPERATORS,
    TRUSTED,
    find_system_account,
    has_any,
    is_alone,
    is_on,
    list_whole,
    locate_server,
    may_share_a_host,
    read_claims,
    split_systems,
)
from vstream.lint.workspace import ConfValue, LeafRemote, Listener, ServerConf, Workspace
from vstream.syntax.natsconf.nodes import ConfMap, ConfScalar

_BCRYPT = re.compile(r"\$2[abxy]\$[0-9]{2}\$.*", re.DOTALL)
_CLIENT_PORT = 4222


@rule("VS412", "port-taken-twice", Severity.ERROR)
def port_taken_twice(workspace: Workspace) -> Iterator[Violation]:
    """
    Two listeners use the same port of the same host.

    ## Why is this bad?
    The second cannot start: `address already in use`. Clients, routes, gateways and
    monitoring need ports of their own, and so do two servers on one host (all versions).
    Servers without a link to others are not compared, nor those of two directories that name no common cluster.
    """
    for system in split_systems(workspace):
        yield from _find_clashes(list_whole(system))


def _find_clashes(servers: list[ServerConf]) -> Iterator[Violation]:
    listening: dict[tuple[str, int], list[tuple[ServerConf, Listener]]] = {}
    for server in servers:
        listeners: dict[int, Listener] = {}
        for listener in server.listeners:
            port = _CLIENT_PORT if listener.block == "client" and listener.port is None else listener.port
            if port is None or port <= 0:
                continue
            own_listener = listeners.get(port)
            if own_listener is not None and (
                own_listener.is_everywhere or listener.is_everywhere or own_listener.host == listener.host
            ):
                yield _find_clash(listener, port, f"the `{own_listener.block}` port", own_listener.span)
                continue
            listeners.setdefault(port, listener)
            if listener.is_everywhere:
                continue
            earlier = listening.setdefault((listener.host.lower(), port), [])
            clash = next(
                ((earlier_server, at) for earlier_server, at in earlier[:20] if _may_clash(earlier_server, server)),
                None,
            )
            if clash is not None:
                yield _find_clash(listener, port, f"a port of another server, in `{clash[0].file}`", clash[1].span)
            earlier.append((server, listener))


def _may_clash(first: ServerConf, second: ServerConf) -> bool:
    return may_share_a_host(first, second) and not is_alone(first) and not is_alone(second)


@rule("VS417", "no-system-account", Severity.WARNING)
def no_system_account(workspace: Workspace) -> Iterator[Violation]:
    """
    Nobody can use the system account.

    ## Why is this bad?
    If accounts are configured without a system account, the server creates a `$SYS` account without users. Then nobody
    can move the meta leader, remove a lost server, reload over NATS, or ask all servers for their state, which you need
    in an outage. In operator mode, there is no system account unless the operator or `system_account` names one; an
    operator in a separate file is not read. With `no_system_account`, JetStream has none of its services (all versions;
    server/server.go).
    """
    for server in list_whole(workspace):
        root = server.root
        disabled = is_on(root, "no_system_account", "no_system", "no_sys_acc")
        if server.system_account is not None and not disabled:
            continue
        operator = entry(root, *OPERATORS)
        accounts = entry(root, "accounts")
        if disabled:
            option = next(written for written in root.entries if written.key.lower().startswith("no_sys"))
            at, message = option.span, "the system account is disabled"
        elif operator is not None and (claims := read_claims(operator.value)) and not claims.get("system_account"):
            at, message = operator.value.span, "neither the operator nor `system_account` names a system account"
        elif has_any(root, *TRUSTED) and operator is None:
            at, message = root.span, "trusted keys, but no `system_account`"
        elif server.accounts and accounts is not None and "$SYS" not in {account.name for account in server.accounts}:
            at, message = accounts.key_span, "no system account is configured: nobody can log in to it"
        else:
            continue
        yield Violation(at=at, message=message, hint="add an account with a user, and set `system_account` to its name")


@rule("VS418", "open-to-everyone", Severity.WARNING)
def open_to_everyone(workspace: Workspace) -> Iterator[Violation]:
    """
    A server listens on every interface without authentication.

    ## Why is this bad?
    Anyone who reaches the port can publish and read everything; at the port of the cluster or the gateway, anyone can
    join as a server. Without a host, a server listens on all interfaces (all versions; server/opts.go).
    `authorization`, users, an operator, or TLS with `verify` count as authentication; between servers, `authorization`
    or `tls` do.
    """
    for server in list_whole(workspace):
        blocks = {"cluster": server.cluster, "gateway": server.gateway_conf}
        for listener in server.listeners:
            if not listener.is_everywhere:
                continue
            if listener.block == "client" and not _authenticates_clients(server):
                yield Violation(
                    at=listener.span,
                    message="clients may connect from anywhere without authorization",
                    hint="add `authorization` or `accounts`, or `listen` on a private address",
                )
            elif listener.block in blocks and not has_any(blocks[listener.block], "authorization", "tls"):
                yield Violation(
                    at=listener.span,
                    message=f"any server may join from anywhere at the `{listener.block}` port",
                    hint=f"add `authorization` or `tls` to `{listener.block}`, or `listen` on a private address",
                )


@rule("VS419", "plain-text-password", Severity.WARNING)
@once_per_place
def plain_text_password(workspace: Workspace) -> Iterator[Violation]:
    """
    A configuration contains a password in plain text.

    ## Why is this bad?
    Anyone who can read the file, its backups or its history can log in. The server warns when it starts: `Plaintext
    passwords detected, use nkeys or bcrypt` (all versions; server/server.go). A bcrypt hash begins with `$2a$`; an
    environment variable keeps the password out of the file.
    """
    for server in workspace.servers:
        outside = {reference.span for reference in server.document.references if reference.definition is None}
        passwords = [
            (f"user `{user.name}`", user.password.span, user.password.value) for user in server.users if user.password
        ]
        token = server.authorization.get_folded("token") if server.authorization else None
        if isinstance(token, ConfScalar) and isinstance(token.value, str):
            passwords.append(("the token", token.span, token.value))
        for whose, span, value in passwords:
            if span in outside or _BCRYPT.fullmatch(str(value)):
                continue
            yield Violation(
                at=span,
                message=f"the password of {whose} is plain text" if whose != "the token" else "the token is plain text",
                hint="use an nkey, the output of `nats server passwd`, or an environment variable",
            )


def _find_clash(listener: Listener, port: int, whose: str, place: Span) -> Violation:
    return Violation(
        at=listener.span,
        message=f"port {port} of `{listener.host or '0.0.0.0'}` is also {whose}",  # noqa: S104 - a text
        hint="give each its own port; the defaults are 4222, 6222, 7222 and 8222",
        related=(Related(span=place, message="the other one"),),
    )


def _authenticates_clients(server: ServerConf) -> bool:
    root = server.root
    tls = root.get_folded("tls")
    return bool(
        server.users
        or server.accounts
        or has_any(root, *OPERATORS, *TRUSTED)
        or (server.authorization is not None and server.authorization.entries)
        or (isinstance(tls, ConfMap) and is_on(tls, "verify", "verify_and_map"))
    )


def compare_secrets(group: list[ServerConf]) -> Iterator[Violation]:
    """Users and tokens whose secret depends on the server. Secrets are not printed."""
    seen_secrets: dict[tuple[str | None, str], ConfValue] = {}
    for server in group:
        secrets = [((user.account, user.name), f"user `{user.name}`", user.password) for user in server.users]
        token = option(server.authorization, "token")
        for key, title, secret in (*secrets, ((None, ""), "`authorization`", token)):
            if secret is None or not _is_plain(secret.text):
                continue
            earlier = seen_secrets.setdefault(key, secret)
            if earlier.text != secret.text:
                word = "token" if secret is token else "password"
                yield Violation(
                    at=secret.span,
                    message=f"{title} has another {word} than in `{earlier.span.file}`: "
                    "clients that reconnect to another server of the cluster are refused",
                    hint="make it the same on all servers that connect to each other, with a variable",
                    related=(Related(span=earlier.span, message="the other server"),),
                )


def find_open_servers(group: list[ServerConf]) -> Iterator[Violation]:
    """Servers that let in everybody, in a cluster where others ask for a login."""
    guarded = [server for server in group if _asks_for_login(server)]
    has_guests = any(has_any(server.root, "no_auth_user") for server in group)
    for server in group if guarded and not has_guests else ():
        # Who may log in can also be in a file that is included, and in certificates.
        is_known = not server.included and not has_any(table(server.root, "tls"), "verify", "verify_and_map")
        asks = has_any(server.root, "authorization", *OPERATORS, *TRUSTED) or _asks_for_login(server)
        if is_known and not asks:
            yield Violation(
                at=locate_server(server),
                message=f"`{guarded[0].file}` asks for a login, and this server of the same cluster lets in everybody",
                hint="give it the same `accounts` and `authorization`, from a file that all servers include",
            )


def _asks_for_login(server: ServerConf) -> bool:
    # Users of the system account alone leave everybody else without a login.
    system = find_system_account(server)
    return has_any(server.authorization, "token") or any(user.account != system for user in server.users)


def compare_leaf_passwords(remote: LeafRemote, hub: ServerConf) -> Iterator[Violation]:
    """Leaf nodes that log in as a user of the hub with another password."""
    passwords = list_leaf_passwords(hub)
    for url in remote.urls:
        if not split_url(url)[2]:
            continue
        parts = urlsplit(str(url.value))
        expected = passwords.get(unquote(parts.username or ""))
        secret = unquote(parts.password or "")
        if expected and _is_plain(expected.text) and _is_plain(secret) and secret != expected.text:
            yield Violation(
                at=url.span,
                message=f"`{hub.file}` has another password for user `{parts.username}`: it refuses this leaf node",
                hint="write the password that the hub has, or one variable in both files",
                related=(Related(span=expected.span, message="the password of the hub"),),
            )


def _is_plain(secret: str | None) -> bool:
    """Whether a secret can be compared: variables cannot, and one password has many bcrypt hashes."""
    return bool(secret) and not str(secret).startswith("$")
