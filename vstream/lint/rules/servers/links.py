"""VS429 and VS430: connections between the servers of the files that lead elsewhere, and options that do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from vstream.findings import Related, Severity
from vstream.formatting import quote_names
from vstream.lint.reading.accounts import exports_of, imports_of
from vstream.lint.reading.nodes import entry, list_values, option, split_url, table, values_in
from vstream.lint.rule import Violation, rule, suggest_closest
from vstream.lint.rules.mappings.entries import index_sources
from vstream.lint.rules.server_values import (
    OPERATORS,
    TRUSTED,
    cluster_of,
    directory_of,
    find_asked_user,
    find_system_account,
    has_any,
    has_jetstream,
    has_operator,
    is_clustered,
    list_links,
    list_whole,
)
from vstream.lint.workspace import ConfValue, Listener, MappingEntry, ServerConf, Workspace
from vstream.subjects.algebra import is_subset, overlaps
from vstream.subjects.functions import FUNCTION
from vstream.subjects.transform import effective_source

Place = tuple[ServerConf, Listener]

_PORT_KINDS: Final = {
    "client": "of clients",
    "http": "of the monitoring",
    "https": "of the monitoring",
    "cluster": "of routes",
    "gateway": "of gateways",
    "leafnodes": "of leaf nodes",
    "websocket": "of websockets",
    "mqtt": "of MQTT",
}
_CLIENT_PORT: Final = 4222
_LEAF_PORT: Final = 7422
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_MAX_NAMED: Final = 3
_PERCENT: Final = 100
_OF_RESOLVERS: Final = ("type", "dir", "allow_delete", "hard_delete", "limit", "interval", "ttl", "timeout")
_OF_LATENCIES: Final = ("subject", "sampling")
_LEAVES: Final = frozenset({"leafnodes", "websocket"})


@rule("VS429", "wrong-port", Severity.ERROR)
def wrong_port(workspace: Workspace) -> Iterator[Violation]:
    """
    A route, gateway or leaf node connects to the wrong kind of port, or a gateway to the wrong cluster.

    ## Why is this bad?
    Each kind of connection has its own port. A route to a client port is closed by the other side again and again
    (`wrong port`), a gateway with another name is refused, and no message ever passes. `nats-server -t` reads a single
    file and cannot know this (server/route.go, gateway.go, leafnode.go; all versions). The rule checks addresses on
    which a server of the files listens, addresses without a port, those with 4222 (the default port of clients), and a
    port on this machine where no server of the files listens, if one that does listen is not linked to.
    """
    servers = list_whole(workspace)
    listening: dict[tuple[str, int], list[Place]] = {}
    for server in servers:
        for listener in server.listeners:
            port = listener.port or (_CLIENT_PORT if listener.block == "client" else None)
            for host in _list_hosts(server, listener) if port else ():
                listening.setdefault((host, port or 0), []).append((server, listener))
    for server in servers:
        nearby = {
            address: [place for place in places if _belong(server, place[0])] for address, places in listening.items()
        }
        yield from _check_wrong_links(server, nearby)
        yield from _check_nobody_listens(server, [peer for peer in servers if _belong(server, peer)])
        yield from _check_unlikely_ports(server, nearby)
        yield from _check_leads_back(server)


def _check_nobody_listens(server: ServerConf, nearby: list[ServerConf]) -> Iterator[Violation]:
    """A route or gateway on this machine to a port that no file has, where one that a file has is not linked to."""
    for kind in ("cluster", "gateway"):
        places = [(listener, peer) for peer in nearby for listener in peer.listeners if listener.block == kind]
        ports = {listener.port for listener, _ in places}
        local = {split_url(url)[1]: url for url in list_links(server, kind) if split_url(url)[0].lower() in _LOOPBACK}
        unknown = local.keys() - ports
        unlinked = {listener.port for listener, peer in places if peer is not server} - local.keys()
        if len(local) > 1 and len(unknown) == 1 and unlinked and not (ports | unknown) & {None, 0, -1}:
            (port,) = unknown
            yield Violation(
                at=local[port].span,
                message=f"no server of the files listens for {_PORT_KINDS[kind].removeprefix('of ')} on port {port}",
                hint=f"did you mean {', '.join(f'{peer}' for peer in sorted(filter(None, unlinked))[:_MAX_NAMED])}?",
                severity=Severity.WARNING,
            )


def _check_unlikely_ports(server: ServerConf, listening: dict[tuple[str, int], list[Place]]) -> Iterator[Violation]:
    """Ports that no file tells to be wrong, and that are: none, and the usual port of clients."""
    leaves = [url for remote in server.leaf_remotes for url in remote.urls]
    leaves = [url for url in leaves if not str(url.value).lower().startswith(("ws://", "wss://"))]
    for urls, name, port in (
        (list_links(server, "cluster"), "a route", 6222),
        (list_links(server, "gateway"), "a gateway", 7222),
        (leaves, "a leaf node", 7422),
    ):
        for url in urls:
            host, written, _ = split_url(url)
            if urls is not leaves and host and "://" not in str(url.value):
                message = f"{name} without `nats://`: it never connects"
                yield Violation(at=url.span, message=message, hint=f"write `nats://{url.value}`")
            elif host and written is None and urls is not leaves:
                message = f"{name} without a port: it never connects"
                yield Violation(at=url.span, message=message, hint=f"add the port, such as `:{port}`")
            elif host and written == _CLIENT_PORT and not listening.get(_read_address(url)):
                message = f"{name} leads to {_CLIENT_PORT}, which is the port of clients: it never connects"
                yield Violation(
                    at=url.span,
                    message=message,
                    hint=f"write the port that the other side has for this, such as {port}",
                    severity=Severity.WARNING,
                )


def _check_leads_back(server: ServerConf) -> Iterator[Violation]:
    """A leaf node of the server itself: `remote leafnode has same cluster name`, again and again."""
    addresses: set[tuple[str, int]] = set()
    for listener in server.listeners:
        if listener.block == "leafnodes":
            addresses.update((host, listener.port or _LEAF_PORT) for host in _list_hosts(server, listener))
    for remote in server.leaf_remotes:
        for url in remote.urls:
            host, port, _ = split_url(url)
            if (host.lower(), port or _LEAF_PORT) in addresses:
                yield Violation(
                    at=url.span,
                    message="this leaf node leads to its own server, which refuses it again and again",
                    hint="write the address of another server, or remove it",
                )


def _belong(server: ServerConf, second: ServerConf) -> bool:
    """Whether the files are of one system: side by side, of one cluster, or gateways that name each other."""
    if directory_of(server) == directory_of(second):
        return True
    name, other_name = cluster_of(server), cluster_of(second)
    if name is None or other_name is None:
        return False
    return name.text == other_name.text or (_lists_gateway(server, other_name) and _lists_gateway(second, name))


def _may_be_one_cluster(server: ServerConf, second: ServerConf) -> bool:
    name, other_name = cluster_of(server), cluster_of(second)
    return name is None or other_name is None or name.text == other_name.text


def _lists_gateway(server: ServerConf, name: ConfValue) -> bool:
    remotes = server.gateway.remotes if server.gateway else ()
    return any(remote.name is not None and remote.name.text == name.text for remote in remotes)


def _list_hosts(server: ServerConf, listener: Listener) -> Iterator[str]:
    if not listener.is_everywhere:
        yield listener.host.lower()
    if server.server_name and server.server_name.text:
        yield server.server_name.text.lower()


def _check_wrong_links(server: ServerConf, listening: dict[tuple[str, int], list[Place]]) -> Iterator[Violation]:
    same_cluster = {}
    for address, places in listening.items():
        same_cluster[address] = [place for place in places if _may_be_one_cluster(server, place[0])]
    for url in list_links(server, "cluster"):
        yield from _check_wrong_kind(url, same_cluster, frozenset({"cluster"}), "a route")
    for remote in server.leaf_remotes:
        for url in remote.urls:
            yield from _check_wrong_kind(url, listening, _LEAVES, "a leaf node")
    for gateway in server.gateway.remotes if server.gateway else ():
        for url in gateway.urls:
            yield from _check_wrong_kind(url, listening, frozenset({"gateway"}), "a gateway")
            yield from _check_wrong_cluster(url, gateway.name, listening)


def _check_wrong_kind(
    url: ConfValue, listening: dict[tuple[str, int], list[Place]], kinds: frozenset[str], name: str
) -> Iterator[Violation]:
    places = listening.get(_read_address(url), [])
    if not places or any(listener.block in kinds for _, listener in places):
        return
    server, listener = places[0]
    right = [listener.port for listener in server.listeners if listener.block in kinds and listener.port]
    yield Violation(
        at=url.span,
        message=f"{name} leads to the port {_PORT_KINDS[listener.block]} of `{server.file}`: it never connects",
        hint=f"write port {right[0]}" if right else f"give that server a port {_PORT_KINDS[min(kinds)]}",
        related=(Related(span=listener.span, message="what listens there"),),
    )


def _check_wrong_cluster(
    url: ConfValue, name: ConfValue | None, listening: dict[tuple[str, int], list[Place]]
) -> Iterator[Violation]:
    places = [place for place in listening.get(_read_address(url), []) if place[1].block == "gateway"]
    gateways = [server.gateway.name for server, _ in places if server.gateway and server.gateway.name]
    if name is None or not gateways or any(gateway.text == name.text for gateway in gateways):
        return
    yield Violation(
        at=url.span,
        message=f"the gateway to `{name.text}` leads to cluster `{gateways[0].text}`, which refuses the other name",
        hint=f"write an address of `{name.text}`, or the name `{gateways[0].text}`",
        related=(Related(span=gateways[0].span, message="the cluster that listens there"),),
    )


def _read_address(url: ConfValue) -> tuple[str, int]:
    host, port, _ = split_url(url)
    return host.lower(), port or 0


@rule("VS430", "without-effect", Severity.WARNING)
def without_effect(workspace: Workspace) -> Iterator[Violation]:
    """
    An option has no effect, mostly because another option is missing.

    ## Why is this bad?
    The server starts, but does not do what the file says: it stores streams unencrypted, connects to no other server,
    or gives an account no JetStream (all versions; server/server.go, jetstream.go, route.go). Only options that cannot
    work are reported.
    """
    for server in list_whole(workspace):
        yield from _check_cipher_without_key(server)
        yield from _check_routes_without_port(server)
        yield from _check_unknown_pinned(server)
        yield from _check_account_without_jetstream(server)
        yield from _check_jetstream_for_nobody(server)
        yield from _check_tag_kinds(server)
        yield from _check_users_without_inbox(server)
        yield from _check_routes_without_login(server)
        yield from _check_mappings_for_nobody(server)
        yield from _check_imports_mapped_away(server)
        yield from _check_logs_twice(server)
        yield from _check_tls_missing(server)
        yield from _check_websocket_routes(server)
        yield from _check_remotes_without_effect(server)
        yield from _check_defaults_for_nobody(server)
        yield from _check_passwords_beside_keys(server)
        yield from _check_ignored_keys(server)


def _check_defaults_for_nobody(server: ServerConf) -> Iterator[Violation]:
    """Default permissions are for the users that are listed beside them (server/opts.go, applyDefaultPermissions)."""
    defaults = entry(server.authorization, "default_permissions", "default_permission", "permissions")
    is_alone = not has_any(server.authorization, "users") and not server.has_callout and not has_operator(server)
    if defaults is not None and server.users and is_alone:
        in_account = any(user.account for user in server.users)
        yield Violation(
            at=defaults.key_span,
            message=f"`{defaults.key}` is for the `users` beside it, and there are none: nobody is restricted",
            hint="move it into the account" if in_account else "write the user into `users: [{…}]`",
        )


def _check_ignored_keys(server: ServerConf) -> Iterator[Violation]:
    """Two blocks of which the server reads what it knows, without a word about the rest (server/opts.go)."""
    latencies = [table(export.conf, "latency") for account in server.accounts for export in exports_of(account)]
    resolver = table(server.root, "resolver", "account_resolver", "accounts_resolver")
    for conf, options in ((resolver, _OF_RESOLVERS), *((latency, _OF_LATENCIES) for latency in latencies)):
        for written in conf.entries if conf is not None else ():
            if written.key.lower() not in options:
                yield Violation(
                    at=written.key_span,
                    message=f"the server does not know `{written.key}` here, and ignores it",
                    hint=suggest_closest(written.key.lower(), list(options), "options"),
                )


def _check_passwords_beside_keys(server: ServerConf) -> Iterator[Violation]:
    """With trusted operators, clients log in with their tokens (server/auth.go)."""
    trusted = entry(server.root, *TRUSTED)
    if trusted is not None and server.users and not server.has_callout and not has_any(server.root, *OPERATORS):
        yield Violation(
            at=trusted.key_span,
            message=f"beside `{trusted.key}`, the server takes tokens alone: it refuses user `{server.users[0].name}`",
            hint="remove it, or the users",
            related=(Related(span=server.users[0].span, message="who cannot log in"),),
        )
    login = entry(server.authorization, "user", "username", "token", "default_permissions", "default_permission")
    if login is not None and has_any(server.root, *OPERATORS) and not has_any(server.authorization, "users"):
        yield Violation(
            at=login.key_span,
            message=f"beside an operator, clients log in with their tokens alone: `{login.key}` does nothing",
            hint="remove it, and create a user with `nsc add user`",
        )


def _check_remotes_without_effect(server: ServerConf) -> Iterator[Violation]:
    """Of two gateways with one name the last counts (server/gateway.go, newGateway); a leaf node without a URL connects nowhere."""
    remotes = server.gateway.remotes if server.gateway else ()
    names = {remote.name.text: remote for remote in remotes if remote.name}
    for remote in remotes:
        if remote.name and names[remote.name.text] is not remote:
            yield Violation(
                at=remote.name.span,
                message=f"gateway `{remote.name.text}` is listed again further down: only that entry counts",
                hint="write all addresses into one entry: `urls: […]`",
            )
    for leaf_remote in server.leaf_remotes:
        if not leaf_remote.urls and not any(
            written.key.lower().startswith("ur") for written in leaf_remote.conf.entries
        ):
            yield Violation(
                at=leaf_remote.span,
                message="a remote without `urls` connects nowhere",
                hint="add `url: nats-leaf://HOST:7422`",
            )


def _check_routes_without_login(server: ServerConf) -> Iterator[Violation]:
    """A server asks for a login of routes, and gives none: gateways add it by themselves, routes do not."""
    for url in list_links(server, "cluster") if find_asked_user(server.cluster) is not None else ():
        host, _, login = split_url(url)
        if host and login is None:
            yield Violation(
                at=url.span,
                message="the cluster asks for a login, and this route has none: servers with the same "
                "`authorization` refuse it",
                hint=f"write `nats://USER:PASSWORD@{host}…`, with variables",
            )
            return


def _check_logs_twice(server: ServerConf) -> Iterator[Violation]:
    """A log file is written alone (server/log.go, ConfigureLogger)."""
    file = entry(server.root, "log_file", "logfile")
    for name in ("remote_syslog", "syslog"):
        unused = entry(server.root, name)
        if file is not None and unused is not None and getattr(unused.value, "value", False):
            yield Violation(
                at=unused.key_span,
                message=f"`{name}` does nothing beside `{file.key}`: the log goes to the file alone",
                hint=f"remove `{file.key}`, or `{name}`",
            )


def _check_tls_missing(server: ServerConf) -> Iterator[Violation]:
    """What is about certificates, on a server without any."""
    allowed, stapling = entry(server.root, "allow_non_tls"), entry(server.root, "ocsp")
    unused = allowed or stapling
    places = (server.root, server.cluster, server.gateway_conf)
    blocks = (server.leafnodes, server.websocket, server.mqtt)
    has_tls = any(has_any(conf, "tls") for conf in (*places, *blocks)) if not allowed else has_any(server.root, "tls")
    if unused is not None and not has_tls and getattr(unused.value, "value", True) is not False:
        yield Violation(
            at=unused.key_span,
            message=f"`{unused.key}` does nothing, as there is no `tls`",
            hint="add `tls { cert_file: …, key_file: … }`, or remove it",
        )


def _check_websocket_routes(server: ServerConf) -> Iterator[Violation]:
    """Only leaf nodes connect by websockets: elsewhere the scheme is passed over (server/route.go, gateway.go)."""
    for url in (*list_links(server, "cluster"), *list_links(server, "gateway")):
        scheme, mark, rest = str(url.value).partition("://")
        if mark and scheme.lower() in {"ws", "wss", "http", "https"}:
            yield Violation(
                at=url.span,
                message=f"`{scheme}://` does nothing: routes and gateways do not speak it, and connect without it",
                hint=f"write `nats://{rest}`",
            )
    for remote in server.leaf_remotes:
        for url in remote.urls:
            scheme, mark, rest = str(url.value).partition("://")
            if mark and scheme.lower() in {"http", "https"}:
                websocket = scheme.lower().replace("http", "ws")
                yield Violation(
                    at=url.span,
                    message=f"`{scheme}://` does nothing: leaf nodes connect to `{rest}` as if it were `nats://`",
                    hint=f"write `{websocket}://{rest}` for websockets, or `nats://{rest}`",
                )


def _check_mappings_for_nobody(server: ServerConf) -> Iterator[Violation]:
    """An account with mappings that nobody can log in to, and that nothing is imported from."""
    leaf_users = table(server.leafnodes, "authorization")
    is_open = has_any(server.root, "operator", "trusted_keys") or server.has_callout
    remotes = {remote.account.text for remote in server.leaf_remotes if remote.account}
    if is_open or leaf_users is not None or not server.users:
        return
    for account in server.accounts:
        is_used = has_any(account.conf, "users", "exports", "imports", "nkey") or account.name in remotes
        if account.mappings and not is_used:
            yield Violation(
                at=account.mappings[0].key_span,
                message=f"account `{account.name}` has no users, exports or imports: nothing is ever mapped here",
                hint="move the mappings to the account whose users publish",
            )


def _check_imports_mapped_away(server: ServerConf) -> Iterator[Violation]:
    """Rules come before imports: what they rename is never imported (server/client.go, selectMappedSubject)."""
    imports = [(block, imports_of(account)) for account in server.accounts for block in account.mappings]
    for block, account_import in ((block, account_import) for block, listed in imports for account_import in listed):
        subject = (account_import.to or account_import.subject).text or ""
        trie, entries = index_sources(block)
        taking = [entries[number] for number in trie.overlapping(subject)] if account_import.kind == "service" else []
        if len(taking) == 1 and _renames_all(taking[0], subject) and not _leads_to(entries, subject):
            yield Violation(
                at=account_import.subject.span,
                message=f"the rule `{taking[0].source}` renames all of `{subject}` before it can be imported",
                hint="import what it is renamed to, or remove the rule",
                related=(Related(span=taking[0].key_span, message="the rule"),),
            )


def _renames_all(taking: MappingEntry, subject: str) -> bool:
    weight = sum(destination.model.weight for destination in taking.destinations)
    return weight == _PERCENT and not taking.clusters and is_subset(subject, effective_source(taking.source))


def _leads_to(entries: Sequence[MappingEntry], subject: str) -> bool:
    targets = (FUNCTION.sub("*", destination.model.subject) for entry in entries for destination in entry.destinations)
    return any(overlaps(target, subject) for target in targets)


def _check_tag_kinds(server: ServerConf) -> Iterator[Violation]:
    prefix = option(server.jetstream_conf, "unique_tag")
    tags = [str(tag.value).lower() for tag in values_in(server.root, "server_tags")]
    if prefix is None or not prefix.text or not is_clustered(server):
        return
    if not any(tag.startswith(prefix.text.lower()) for tag in tags):
        yield Violation(
            at=prefix.span,
            message=f"no tag of the server begins with `{prefix.text}`: replicas are never placed on it",
            hint=f"add a tag such as `{prefix.text}1` to `server_tags`",
        )


def _check_users_without_inbox(server: ServerConf) -> Iterator[Violation]:
    """Users that may ask JetStream and may not hear the answer: clients listen at `_INBOX.>`, or an inbox with a name like it."""
    for user in server.users:
        allowed = (user.publish.allow if user.publish else None) or ()
        asked = [value for value in allowed if str(value.value).startswith("$JS.API.")]
        heard = user.subscribe.allow if user.subscribe else None
        if asked and heard is not None and not any(_may_be_inbox(str(value.value)) for value in heard):
            yield Violation(
                at=asked[0].span,
                message=f"user `{user.name}` may ask for `{asked[0].value}`, but may not subscribe to an inbox for the answer",
                hint="add `_INBOX.>` to what the user may subscribe to",
            )


def _may_be_inbox(subject: str) -> bool:
    return subject[:1] in {"_", "*", ">"} or "inbox" in subject.lower()


def _check_cipher_without_key(server: ServerConf) -> Iterator[Violation]:
    conf = server.jetstream_conf
    cipher = option(conf, "cipher")
    if cipher is not None and cipher.text and not has_any(conf, "key", "ek", "encryption_key", "tpm"):
        yield Violation(
            at=cipher.span,
            message="a `cipher` without a `key`: streams are stored in plain text",
            hint="add `key: $JS_KEY`, and set the variable for the server",
        )


def _check_routes_without_port(server: ServerConf) -> Iterator[Violation]:
    routes = entry(server.cluster, "routes")
    has_port = any(listener.block == "cluster" for listener in server.listeners)
    if routes is not None and list_values(routes.value) and not has_port:
        yield Violation(
            at=routes.key_span,
            message="the cluster has routes but no port: the server connects to none of them",
            hint="add `port: 6222`",
        )


def _check_unknown_pinned(server: ServerConf) -> Iterator[Violation]:
    names = {account.name for account in server.accounts}
    for account in values_in(server.cluster, "accounts") if names else ():
        if account.text and account.text not in {*names, "$SYS", "$G"}:
            yield Violation(
                at=account.span,
                message=f"there is no account `{account.text}`, which this route would be for",
                hint=suggest_closest(account.text, sorted(names), "accounts"),
            )


def _check_account_without_jetstream(server: ServerConf) -> Iterator[Violation]:
    if has_jetstream(server) or is_clustered(server) or server.leaf_remotes:
        return
    for account in server.accounts:
        jetstream = entry(account.conf, "jetstream")
        if jetstream is not None:
            yield Violation(
                at=jetstream.key_span,
                message=f"account `{account.name}` gets no JetStream, because the server has none",
                hint="add `jetstream { store_dir: …, max_file: …, max_mem: … }` to the server, or start it with `-js`",
                severity=Severity.NOTE,
            )
            return


def _check_jetstream_for_nobody(server: ServerConf) -> Iterator[Violation]:
    """Beside accounts with users, JetStream is only for accounts that have it (error 10039)."""
    system = find_system_account(server)
    places = {user.account for user in server.users} - {system}
    is_used = any(has_any(account.conf, "jetstream") for account in server.accounts) or has_operator(server)
    is_elsewhere = has_any(server.root, "default_js_domain") or server.has_callout
    is_elsewhere = is_elsewhere or bool(server.leaf_remotes)
    if server.jetstream and has_jetstream(server) and places and None not in places and not is_used | is_elsewhere:
        yield Violation(
            at=server.jetstream.key_span,
            message="no account has JetStream: every request gets `JetStream not enabled for account`",
            hint=f"add `jetstream: enabled` to {quote_names(sorted(filter(None, places))[:_MAX_NAMED])}",
        )
