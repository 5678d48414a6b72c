"""Settings that `nats-server -t` accepts but that prevent the start: server/server.go, validateOptions."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from vstream.findings import Related, Severity, Span
from vstream.lint.reading.accounts import imports_of
from vstream.lint.reading.nodes import entry, option, table, values_in
from vstream.lint.rule import Violation, make_refusal, rule, suggest_closest
from vstream.lint.rules.server_values import (
    cluster_of,
    find_system_account,
    has_any,
    has_jetstream,
    has_operator,
    is_clustered,
    is_on,
    list_whole,
    read_duration,
)
from vstream.lint.rules.servers.options import BLOCKS
from vstream.lint.rules.servers.trust import (
    check_beside_operator,
    check_leaf_accounts,
    check_operator,
    check_operator_needs,
    check_single_guest,
    check_system_key,
)
from vstream.lint.workspace import ConfValue, ServerConf, Workspace
from vstream.subjects.algebra import is_valid
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap

_MAX_PORT: Final = 65535
_COMPRESSIONS: Final = ["accept", "off", "on", "s2_auto", "s2_best", "s2_better", "s2_fast"]
_OTHER_COMPRESSIONS: Final = frozenset(
    {"auto", "best", "better", "disabled", "enabled", "false", "fast", "not supported", "not_supported", "true"}
)
DISK: Final = ("max_store", "max_file", "max_disk", "store", "disk")
MEMORY: Final = ("max_memory", "max_mem", "mem", "memory")
_DEFAULT_PENDING_BYTES: Final = 64 << 20
_DEFAULT_PAYLOAD_BYTES: Final = 1 << 20
_LAME_DUCK_SECONDS: Final = 120
_BUILT_IN: Final = ("$SYS", "$G")
_ON: Final = frozenset({"enabled", "enable"})


@rule("VS426", "does-not-start", Severity.ERROR)
def does_not_start(workspace: Workspace) -> Iterator[Violation]:
    """
    `nats-server -t` accepts the file, but the server does not start with it.

    ## Why is this bad?
    `nats-server -t` checks options one by one. Only the start checks them together: unknown accounts and users, a
    gateway without a name, ports out of range, limits that contradict each other. Otherwise you find out when a server
    that ran for months restarts (all versions; server/server.go, validateOptions).
    """
    # What a server includes may be read beside it instead of with it: a rendered bundle is read so.
    files = {posixpath.normpath(part.file): part for part in workspace.servers}
    for server in list_whole(workspace):
        included = map(posixpath.normpath, server.included)
        parts = [server, *(files[file] for file in included if file in files)]
        names = {account.name for part in parts for account in part.accounts}
        if not any(map(has_operator, parts)):
            yield from _check_accounts(server, names)
            yield from check_leaf_accounts(server, names)
            yield from _check_logins(server)
            yield from _check_default_domains(server, names)
            yield from check_operator(server)
            yield from _check_leaves_beside_gateways(server, parts)
        for check in _CHECKS:
            yield from check(server)


def _check_accounts(server: ServerConf, names: set[str]) -> Iterator[Violation]:
    system = server.system_account
    if system is not None and system.text and system.text not in {*names, "$G"}:
        # The built-in one is there only if `system_account` names none.
        is_to_add = system.text == "$SYS" or not names
        yield make_refusal(
            system.span,
            f"unknown account `{system.text}` in `system_account`",
            "add it to `accounts`, or remove `system_account`"
            if is_to_add
            else suggest_closest(system.text, sorted(names), "accounts"),
        )
    for remote in server.leaf_remotes:
        account = remote.account
        if account is not None and account.text:
            message = f"unknown account `{account.text}` of this leaf node"
            yield from _check_account(account.text, names, account.span, message)


def _check_account(account: str, names: set[str], at: Span, message: str) -> Iterator[Violation]:
    if account not in {*names, *_BUILT_IN}:
        yield make_refusal(at, message, suggest_closest(account, sorted(names), "accounts"))


def _check_gateway(server: ServerConf) -> Iterator[Violation]:
    gateway = server.gateway
    if gateway is None or not gateway.conf.entries or _is_misspelt(gateway.conf, "gateway"):
        return
    if gateway.name is None:
        yield make_refusal(
            gateway.key_span, "the gateway has no `name`", "add `name`: the name of this server's cluster"
        )
    if not any(listener.block == "gateway" for listener in server.listeners):
        yield make_refusal(gateway.key_span, "the gateway has no port", "add `port: 7222`")
    listed = entry(gateway.conf, "gateways")
    items = listed.value.items if listed is not None and isinstance(listed.value, ConfArray) else ()
    misspelt = {item.span for item in items if isinstance(item, ConfMap) and _is_misspelt(item, "remote_gateway")}
    for remote in gateway.remotes:
        if remote.span in misspelt:
            continue
        if remote.name is None:
            yield make_refusal(remote.span, "this gateway has no `name`", "add `name`: the name of that cluster")
        elif not remote.urls:
            yield make_refusal(remote.span, "this gateway has no `url`", 'add `url: "nats://HOST:7222"`')


def _is_misspelt(conf: ConfMap, block: str) -> bool:
    """Whether a block has an unknown option, which VS421 reports: it may be the missing one, misspelt."""
    return any(written.key.lower() not in BLOCKS[block].options for written in conf.entries)


def _check_ports(server: ServerConf) -> Iterator[Violation]:
    for listener in server.listeners:
        if listener.port is not None and listener.port > _MAX_PORT:
            yield make_refusal(listener.span, f"{listener.port} is not a port", f"write a port of at most {_MAX_PORT}")


def _check_limits(server: ServerConf) -> Iterator[Violation]:
    payload, pending = option(server.root, "max_payload"), option(server.root, "max_pending")
    most = pending.value if pending is not None else _DEFAULT_PENDING_BYTES
    size = payload.value if payload is not None else _DEFAULT_PAYLOAD_BYTES
    at = payload or pending
    if at is not None and isinstance(size, int) and isinstance(most, int) and size > most > 0:
        yield make_refusal(
            at.span,
            f"`max_payload` is {size:,}, more than the {most:,} of `max_pending`",
            f"write at most {most} for `max_payload`, or more for `max_pending`",
        )


def _check_lame_duck(server: ServerConf) -> Iterator[Violation]:
    duration, grace = option(server.root, "lame_duck_duration"), option(server.root, "lame_duck_grace_period")
    lasts = _read_seconds(duration) if duration else _LAME_DUCK_SECONDS
    waits = _read_seconds(grace) if grace else None
    if grace is not None and lasts is not None and waits is not None and waits >= lasts:
        yield make_refusal(
            grace.span,
            "`lame_duck_grace_period` is not less than `lame_duck_duration`",
            'write a shorter time, such as "10s"',
        )


def _read_seconds(value: ConfValue) -> float | None:
    if isinstance(value.value, int | float):
        return float(value.value)
    nanoseconds = read_duration(value)
    return None if nanoseconds is None else nanoseconds / 1e9


def _check_websocket(server: ServerConf) -> Iterator[Violation]:
    websocket = entry(server.root, "websocket", "ws")
    if websocket is None or not isinstance(websocket.value, ConfMap) or _is_misspelt(websocket.value, "websocket"):
        return
    has_port = any(listener.block == "websocket" for listener in server.listeners)
    if has_port and not has_any(websocket.value, "tls") and not is_on(websocket.value, "no_tls"):
        yield make_refusal(
            websocket.key_span,
            "the websocket listener has no TLS",
            "add `tls {…}`, or `no_tls: true` behind a proxy that terminates TLS",
        )
    elif not has_port:
        yield Violation(
            at=websocket.key_span,
            message="the websocket listener has no port: the server does not accept websockets",
            hint="add `port: 8080`",
            severity=Severity.WARNING,
        )


def _check_domain(server: ServerConf) -> Iterator[Violation]:
    domain = server.jetstream.domain if server.jetstream else None
    if domain is None or not domain.text:
        return
    if any(char in domain.text for char in ".*>") or not is_valid(f"$JS.{domain.text}.API"):
        yield make_refusal(
            domain.span, f"`{domain.text}` is not a valid domain name", "use letters, digits, `-` and `_`"
        )


def _check_compression(server: ServerConf) -> Iterator[Violation]:
    blocks = [server.cluster, server.leafnodes]
    for conf in (*blocks, *(remote.conf for remote in server.leaf_remotes)):
        mode = option(conf, "compression")
        if mode is not None and mode.text and mode.text.lower() not in {*_COMPRESSIONS, *_OTHER_COMPRESSIONS}:
            yield make_refusal(
                mode.span,
                f"`{mode.text}` is not a compression mode",
                suggest_closest(mode.text.lower(), _COMPRESSIONS, "modes"),
            )


def _is_enabled(switch: object) -> bool:
    return isinstance(switch, dict) or switch in (True, "enabled", "enable")


def _check_default_domains(server: ServerConf, names: set[str]) -> Iterator[Violation]:
    domains = table(server.root, "default_js_domain")
    switches = {account.name: option(account.conf, "jetstream") for account in server.accounts}
    enabled = {name for name, switch in switches.items() if switch and _is_enabled(switch.value)}
    system = find_system_account(server)
    for domain in domains.effective_entries() if domains is not None else ():
        if domain.key in enabled:
            message = f"account `{domain.key}` has JetStream here, and `default_js_domain` sends it elsewhere"
            yield make_refusal(domain.key_span, message, f"remove it, or the `jetstream` of account `{domain.key}`")
        if domain.key == system:
            yield make_refusal(domain.key_span, "the system account cannot use another domain", "remove it")
        else:
            message = f"there is no account `{domain.key}` for `default_js_domain`"
            yield from _check_account(domain.key, names, domain.key_span, message)


def _check_account_storage(server: ServerConf) -> Iterator[Violation]:
    """What accounts reserve, compared with what the server has: `insufficient storage resources available` (10047)."""
    jetstream = server.jetstream
    if jetstream is None or not jetstream.is_enabled:
        return
    for names, limit in ((DISK, jetstream.max_file), (MEMORY, jetstream.max_memory)):
        reserved = []
        for account in server.accounts:
            size = option(table(account.conf, "jetstream"), *names)
            if size is not None and isinstance(size.value, int) and size.value > 0:
                reserved.append(size)
        total = sum(int(str(size.value)) for size in reserved)
        if limit is not None and isinstance(limit.value, int) and total > limit.value > 0:
            yield make_refusal(
                reserved[-1].span,
                f"accounts reserve {total:,} bytes, and JetStream has {limit.value:,}",
                "give the accounts less, or JetStream more",
                Related(span=limit.span, message="what JetStream has"),
            )


def _check_cluster_without_routes(server: ServerConf) -> Iterator[Violation]:
    routes = entry(server.cluster, "routes")
    is_alone = is_clustered(server) and not values_in(server.cluster, "routes")
    # What VS404 and VS422 report keeps the server from starting first.
    is_named = server.server_name is not None and cluster_of(server) is not None
    at = routes.key_span if routes else next((item.span for item in server.listeners if item.block == "cluster"), None)
    if at and is_alone and is_named and has_jetstream(server) and not server.leaf_remotes:
        yield Violation(
            at=at,
            message="JetStream in a cluster needs `routes`: without any the server does not start",
            hint='add `routes: ["nats://HOST:6222"]`, or start it with `--routes`',
            # The command line often has them.
            severity=Severity.NOTE,
        )


def _check_system_jetstream(server: ServerConf) -> Iterator[Violation]:
    system = server.system_account.text if server.system_account else None
    if server.system_account and system == "$G" and has_jetstream(server):
        yield make_refusal(
            server.system_account.span,
            "`$G`, the account of users that have none, cannot be the system account beside JetStream",
            "write `SYS`, and add it to `accounts`",
        )
    for account in server.accounts:
        jetstream = entry(account.conf, "jetstream")
        is_on = jetstream is not None and getattr(jetstream.value, "value", True) in {True, *_ON}
        if jetstream is not None and is_on and account.name == system and has_jetstream(server):
            yield make_refusal(
                jetstream.key_span,
                "the system account cannot have JetStream",
                "remove it here, and give another account JetStream",
            )


def _check_logins(server: ServerConf) -> Iterator[Violation]:
    """The users of whoever gives no login, and logins of websockets and MQTT beside users; for a server without an operator."""
    listening = {listener.block for listener in server.listeners}
    users = sorted({user.name for user in server.users})
    has_single = has_any(server.authorization, "user", "username")
    for block, conf in (("client", server.root), ("websocket", server.websocket), ("mqtt", server.mqtt)):
        if block not in listening:
            continue
        guest = option(conf, "no_auth_user")
        if guest is not None and guest.text and guest.text not in users:
            yield make_refusal(
                guest.span,
                f"unknown user `{guest.text}` in `no_auth_user`",
                suggest_closest(guest.text, users, "users") if users else "add the user, or remove `no_auth_user`",
            )
        login = entry(table(conf, "authorization"), "user", "username", "token") if block != "client" else None
        if login is not None and users and not has_single:
            yield Violation(
                at=login.key_span,
                message=f"`{block}` has a `{login.key}` of its own, and the server has users: it does not start",
                hint="remove it: the users may connect here too; `no_auth_user` names one for whoever gives no login",
            )


def _check_https(server: ServerConf) -> Iterator[Violation]:
    https, http = entry(server.root, "https", "https_port"), entry(server.root, "http", "http_port", "monitor_port")
    if https is not None and http is not None:
        yield make_refusal(
            https.key_span,
            f"`{http.key}` and `{https.key}`, and monitoring has one port",
            f"remove `{https.key}` or `{http.key}`",
        )
    elif https is not None and not has_any(server.root, "tls"):
        yield make_refusal(
            https.key_span,
            "monitoring over HTTPS needs `tls`",
            "add `tls { cert_file: …, key_file: … }`, or write `http`",
        )


def _check_leaves_beside_gateways(server: ServerConf, parts: Iterable[ServerConf]) -> Iterator[Violation]:
    """The built-in system account is not enough (server/leafnode.go, validateLeafNode). *parts* are it and what it includes."""
    has_leaves = any(listener.block == "leafnodes" for listener in server.listeners)
    if has_leaves and server.gateway is not None and all(part.system_account is None for part in parts):
        yield make_refusal(
            server.gateway.key_span,
            "leaf nodes beside a gateway need a `system_account`",
            "add `system_account: SYS`, and `SYS` to `accounts`",
        )


def _check_prefixed_imports(server: ServerConf) -> Iterator[Violation]:
    """A server reads the options of an import in any order, and sees the contradiction in some of them only (server/opts.go)."""
    for account in server.accounts:
        for account_import in imports_of(account):
            prefix = account_import.prefix
            if account_import.kind == "stream" and prefix is not None and account_import.to is not None:
                yield Violation(
                    at=prefix.span,
                    message="an import has both `prefix` and `to`: the server refuses it at one start, and takes it at another",
                    hint="remove one of them",
                )


def _check_advertised(server: ServerConf) -> Iterator[Violation]:
    places = (
        option(server.root, "client_advertise"),
        option(server.cluster, "cluster_advertise", "advertise"),
        option(server.gateway_conf, "advertise"),
        option(server.leafnodes, "leafnode_advertise", "advertise"),
    )
    for address in places:
        if address is not None and address.text and "://" in address.text:
            yield make_refusal(
                address.span,
                f"`{address.text}` is a URL, not an address",
                f"write `{address.text.partition('://')[2]}`",
            )


_CHECKS: Final[tuple[Callable[[ServerConf], Iterator[Violation]], ...]] = (
    _check_gateway,
    _check_ports,
    _check_limits,
    _check_lame_duck,
    _check_websocket,
    _check_domain,
    _check_compression,
    _check_account_storage,
    _check_cluster_without_routes,
    _check_system_jetstream,
    _check_https,
    _check_prefixed_imports,
    _check_advertised,
    check_single_guest,
    check_beside_operator,
    check_operator_needs,
    check_system_key,
)
