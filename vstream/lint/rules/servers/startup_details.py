"""What VS426 says of access, listeners and links: settings that only the start of the server refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from vstream.findings import Severity
from vstream.lint.reading.nodes import entry, list_values, option, table
from vstream.lint.rule import Violation, make_refusal, suggest_closest
from vstream.lint.rules.server_values import (
    cluster_of,
    has_any,
    has_jetstream,
    has_operator,
    is_clustered,
    read_duration,
)
from vstream.lint.workspace import ServerConf

_ON: Final = frozenset({"enabled", "enable"})
_ORIGINS: Final = ("allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin")
_MAX_THRESHOLDS: Final = 4
_EXTENSION: Final = ["no_extend", "will_extend"]
_THRESHOLDS: Final = ("rtt_thresholds", "thresholds", "rtts", "rtt")


def _check_cluster_without_routes(server: ServerConf) -> Iterator[Violation]:
    routes = entry(server.cluster, "routes")
    is_alone = is_clustered(server) and (routes is None or not list_values(routes.value))
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


def check_logins(server: ServerConf) -> Iterator[Violation]:
    """The users of whoever gives no login, and logins of websockets and MQTT beside users; for a server without an operator."""
    listening = {listener.block for listener in server.listeners}
    users = sorted({user.name for user in server.users})
    has_single = has_any(server.authorization, "user", "username")
    for block in (None, "websocket", "ws", "mqtt"):
        conf = table(server.root, block) if block in listening and block else None
        guest = option(server.root if block is None else conf, "no_auth_user")
        if guest is not None and guest.text and guest.text not in users:
            yield make_refusal(
                guest.span,
                f"unknown user `{guest.text}` in `no_auth_user`",
                suggest_closest(guest.text, users, "users") if users else "add the user, or remove `no_auth_user`",
            )
        login = entry(table(conf, "authorization"), "user", "username", "token")
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


def _check_mixed_urls(server: ServerConf) -> Iterator[Violation]:
    for remote in server.leaf_remotes:
        schemes = [str(url.value).partition("://")[0].lower() in {"ws", "wss"} for url in remote.urls]
        if any(schemes) and not all(schemes):
            yield make_refusal(
                remote.urls[schemes.index(not schemes[0])].span,
                "a remote has addresses of websockets and others",
                "write all addresses with `ws://` or `wss://`, or none",
            )


def _check_mqtt_access(server: ServerConf) -> Iterator[Violation]:
    mqtt = entry(server.root, "mqtt")
    if mqtt is None or not any(listener.block == "mqtt" for listener in server.listeners):
        return
    # With JetStream, VS422 says so.
    is_linked = is_clustered(server) or server.gateway is not None
    if server.server_name is None and is_linked and not has_jetstream(server):
        yield Violation(
            at=mqtt.key_span,
            message="MQTT in a cluster needs a `server_name`: the server does not start",
            hint="add `server_name`, or start it with `--name`",
            # The command line may have it.
            severity=Severity.NOTE,
        )


def check_leaves_beside_gateways(server: ServerConf, parts: Iterable[ServerConf]) -> Iterator[Violation]:
    """The built-in system account is not enough (server/leafnode.go, validateLeafNode). *parts* are it and what it includes."""
    has_leaves = any(listener.block in {"leafnodes", "leaf"} for listener in server.listeners)
    if has_leaves and server.gateway is not None and all(part.system_account is None for part in parts):
        yield make_refusal(
            server.gateway.key_span,
            "leaf nodes beside a gateway need a `system_account`",
            "add `system_account: SYS`, and `SYS` to `accounts`",
        )


def _check_remote_log(server: ServerConf) -> Iterator[Violation]:
    address = option(server.root, "remote_syslog")
    if address is None or not address.text or has_any(server.root, "log_file", "logfile"):
        return  # Beside a file, VS430 says that it does nothing.
    if not address.text.startswith(("udp://", "tcp://", "unix://", "$")):
        yield Violation(
            at=address.span,
            message=f"`{address.text}` is not the address of a log: the server stops without a message",
            hint="write `udp://HOST:514`, `tcp://HOST:514` or `unix:///PATH`",
        )


def _check_websocket_access(server: ServerConf) -> Iterator[Violation]:
    websocket = table(server.root, "websocket", "ws")
    if not any(listener.block in {"websocket", "ws"} for listener in server.listeners):
        return
    origins = entry(websocket, *_ORIGINS)
    for origin in list_values(origins.value) if origins else ():
        if origin.text and not origin.text.startswith(("http://", "https://", "$")):
            yield make_refusal(
                origin.span,
                f"`{origin.text}` is not an origin",
                "write `https://HOST`, or remove `allowed_origins` to allow all",
            )
    cookie = entry(websocket, "jwt_cookie")
    if cookie is not None and not has_operator(server):
        yield make_refusal(cookie.key_span, "`jwt_cookie` needs an operator", "add `operator`, or remove `jwt_cookie`")


def _check_advertised(server: ServerConf) -> Iterator[Violation]:
    places = (
        option(server.root, "client_advertise"),
        option(server.cluster, "cluster_advertise", "advertise"),
        option(server.gateway.conf if server.gateway else None, "advertise"),
        option(table(server.root, "leafnodes", "leaf"), "leafnode_advertise", "advertise"),
    )
    for address in places:
        if address is not None and address.text and "://" in address.text:
            yield make_refusal(
                address.span,
                f"`{address.text}` is a URL, not an address",
                f"write `{address.text.partition('://')[2]}`",
            )


def _check_pool(server: ServerConf) -> Iterator[Violation]:
    size = option(server.cluster, "pool_size")
    if size is not None and isinstance(size.value, int) and size.value < 0 and has_any(server.cluster, "accounts"):
        yield make_refusal(
            size.span,
            "`pool_size` is negative, and accounts have routes of their own",
            "remove `pool_size`, or `accounts`",
        )


def _check_thresholds(server: ServerConf) -> Iterator[Violation]:
    for conf in (server.cluster, table(server.root, "leafnodes", "leaf")):
        listed = entry(table(conf, "compression"), *_THRESHOLDS)
        values = [read_duration(value) for value in list_values(listed.value)] if listed else []
        numbers = [value for value in values if value]
        if listed is not None and numbers != sorted(numbers):
            yield make_refusal(
                listed.key_span, "the thresholds are not in ascending order", "write the shortest time first"
            )
        elif len(values) > _MAX_THRESHOLDS:
            yield make_refusal(
                listed.key_span if listed else server.root.span,
                f"{len(values)} thresholds, for {_MAX_THRESHOLDS} levels",
                f"write {_MAX_THRESHOLDS} or less",
            )


def _check_jetstream_options(server: ServerConf) -> Iterator[Violation]:
    """What JetStream refuses at its start, or only in a cluster (server/jetstream.go, validateJetStreamOptions)."""
    conf = server.jetstream.conf if server.jetstream and has_jetstream(server) else None
    key = entry(conf, "key", "ek", "encryption_key")
    if key is not None and has_any(conf, "tpm"):
        message = f"the key is in `{key.key}` or in the `tpm`: with both the server does not start"
        yield Violation(at=key.key_span, message=message, hint="remove one of them")
    hint, catchup = option(conf, "extension_hint"), option(conf, "max_outstanding_catchup")
    if not is_clustered(server):
        return
    if hint is not None and hint.text and hint.text.lower() not in _EXTENSION:
        message = f"`{hint.text}` is not a hint that the server knows: it does not start"
        yield Violation(at=hint.span, message=message, hint=suggest_closest(hint.text, _EXTENSION, "hints"))
    if catchup is not None and isinstance(catchup.value, int) and catchup.value < 0:
        message = f"`max_outstanding_catchup` is {catchup.value}: below zero the server does not start"
        yield Violation(at=catchup.span, message=message, hint="remove it: the default is 64MB")


CHECKS: Final[tuple[Callable[[ServerConf], Iterator[Violation]], ...]] = (
    _check_cluster_without_routes,
    _check_jetstream_options,
    _check_system_jetstream,
    _check_https,
    _check_mixed_urls,
    _check_mqtt_access,
    _check_remote_log,
    _check_websocket_access,
    _check_advertised,
    _check_pool,
    _check_thresholds,
)
