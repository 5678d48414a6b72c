"""VS432: servers that connect to each other, and do not agree."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from vstream.diagnostics import Related, Severity, Span
from vstream.lint.reading.leafnodes import hubs_of, leaf_users
from vstream.lint.reading.nodes import entry, option, several, table, url_parts
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.server_values import directory, has_any, place, whole
from vstream.lint.rules.wording import closest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vstream.lint.workspace import ServerConf, Workspace
    from vstream.syntax.natsconf import ConfMap

    Reading = tuple[str, Span] | None
    """What one server has, as text, and where."""


_DEFAULT_PAYLOAD: Final = 1 << 20
_HANDSHAKE_FIRST: Final = ("handshake_first", "first", "immediate")


class _Trait(NamedTuple):
    """Something in which servers must agree: what it is called, how one server has it, and where."""

    title: str
    effect: str
    read: Callable[[ServerConf], Reading]


@rule("VS432", "servers-disagree", Severity.ERROR)
def servers_disagree(workspace: Workspace) -> Iterator[Violation]:
    """
    Servers that connect to each other differ in something that must be the same.

    ## Why is this bad?
    A server whose cluster has another name, whose routes alone have TLS or another password, is refused by the others
    and stays alone (server/route.go, gateway.go). With another domain it is not in their JetStream, with another system
    account nobody sees it, and an account that it lacks has no users there. Leaf nodes and their hub must both begin with the TLS handshake, or none. With
    a smaller `max_payload`, a server refuses what clients published elsewhere before they reconnected. Each file is valid by itself
    (all versions). Servers are compared if one lists an address of the other, and the files are side by side; what most
    of them have is taken for right.
    """
    servers = whole(workspace)
    for group in _group_connected(servers, _route_addresses, "cluster"):
        for trait in _TRAITS:
            yield from _compare(group, trait)
        yield from _compare_logins(group)
        yield from _compare_accounts(group)
        yield from _compare_payloads(group)
    for group in _group_connected(servers, _gateway_addresses, "gateway"):
        yield from _compare(group, _GATEWAY_TLS)
    for server in servers:
        yield from _unknown_leaf_users(workspace, server)
        yield from _compare_leaf_tls(workspace, server)


def _compare_payloads(group: list[ServerConf]) -> Iterator[Violation]:
    """Who reconnects to a server that takes less cannot publish any more what another one took."""
    limits = [(option(server.root, "max_payload"), server) for server in group]
    sizes = [(limit.value if limit else _DEFAULT_PAYLOAD, limit, server) for limit, server in limits]
    if any(not isinstance(size, int) for size, _, _ in sizes):
        return
    most, largest, largest_server = max(sizes, key=lambda item: int(str(item[0])))
    for size, limit, server in sizes:
        if size != most:
            at = largest.span if largest else place(largest_server)
            yield Violation(
                at=limit.span if limit else place(server),
                message=f"messages may have {size:,} bytes here, and {most:,} in `{largest_server.file}`: "
                "who reconnects to this server cannot publish the larger ones",
                hint=f"write `max_payload: {most}` on all servers that connect to each other",
                related=(Related(span=at, message="the larger limit"),),
                severity=Severity.WARNING,
            )


def _compare_leaf_tls(workspace: Workspace, leaf: ServerConf) -> Iterator[Violation]:
    """Both sides must begin with the TLS handshake, or none."""
    for remote in leaf.leaf_remotes:
        hubs = [hub for hub in hubs_of(workspace, remote) if directory(hub) == directory(leaf)]
        hub_tls = table(table(hubs[0].root, "leafnodes", "leaf"), "tls") if len(hubs) == 1 else None
        leaf_tls = table(remote.conf, "tls")
        is_websocket = any(str(url.value).lower().startswith(("ws://", "wss://")) for url in remote.urls)
        if len(hubs) == 1 and hub_tls is None and leaf_tls is not None and not is_websocket:
            yield Violation(
                at=leaf_tls.span,
                message=f"this leaf node has TLS, and `{hubs[0].file}` has none for leaf nodes: they never connect",
                hint="add `tls` to the `leafnodes` of that file, or remove it here",
            )
        first, hub_first = (entry(conf, *_HANDSHAKE_FIRST) for conf in (leaf_tls, hub_tls))
        # `auto` and a duration take both kinds.
        is_first, is_hub_first = (
            getattr(getattr(written, "value", None), "value", False) for written in (first, hub_first)
        )
        if hub_tls is not None and isinstance(is_hub_first, bool) and is_hub_first != (is_first is True):
            yield Violation(
                at=first.key_span if first else (leaf_tls or remote).span,
                message=f"`{hubs[0].file}` {'begins' if is_hub_first else 'does not begin'} with the TLS handshake, and this "
                f"leaf node {'does not' if is_hub_first else 'does'}: they never connect",
                hint=f"write `handshake_first: {str(is_hub_first).lower()}` in the `tls` of this remote",
                related=(Related(span=hub_tls.span, message="the other side"),),
            )


def _unknown_leaf_users(workspace: Workspace, leaf: ServerConf) -> Iterator[Violation]:
    """Leaf nodes that log in to a server of the files as a user that it does not have."""
    for remote in leaf.leaf_remotes:
        user = next((url for url in remote.urls if url_parts(url)[2]), None)
        hubs = [hub for hub in hubs_of(workspace, remote) if directory(hub) == directory(leaf)]
        names = [leaf_users(hub) for hub in hubs]
        if user is None or len(hubs) != 1 or names[0] is None:
            continue
        login = url_parts(user)[2]
        if login not in names[0]:
            yield Violation(
                at=user.span,
                message=f"`{hubs[0].file}` has no user `{login}` for leaf nodes: it refuses this one",
                hint=closest(str(login), sorted(names[0]), "users"),
            )


def _route_addresses(server: ServerConf) -> Iterator[tuple[str, int | None]]:
    routes = entry(server.cluster, "routes")
    for url in several(routes.value) if routes else ():
        yield url_parts(url)[:2]


def _gateway_addresses(server: ServerConf) -> Iterator[tuple[str, int | None]]:
    for remote in server.gateway.remotes if server.gateway else ():
        for url in remote.urls:
            yield url_parts(url)[:2]


def _group_connected(
    servers: list[ServerConf], addresses: Callable[[ServerConf], Iterator[tuple[str, int | None]]], block: str
) -> list[list[ServerConf]]:
    """The servers of one directory that connect to each other, those that are alone left out."""
    # Several servers at one address are alternatives: files do not say which of them is meant.
    listening: dict[tuple[str, str, int | None], set[int]] = {}
    for index, server in enumerate(servers):
        for listener in server.listeners:
            if listener.block == block:
                names = [server.server_name.text] if server.server_name else []
                hosts = [*names, *([] if listener.is_everywhere else [listener.host])]
                for host in hosts:
                    listening.setdefault((directory(server), str(host).lower(), listener.port), set()).add(index)
    leader = list(range(len(servers)))
    for index, server in enumerate(servers):
        for host, port in addresses(server):
            heard = listening.get((directory(server), host.lower(), port), set())
            if len(heard) == 1:
                first, second = sorted((leader[index], *(leader[peer] for peer in heard)))
                leader = [first if number == second else number for number in leader]
    groups: dict[int, list[ServerConf]] = {}
    for index, server in enumerate(servers):
        groups.setdefault(leader[index], []).append(server)
    return [group for group in groups.values() if len(group) > 1]


def _compare(group: list[ServerConf], trait: _Trait) -> Iterator[Violation]:
    values = [trait.read(server) for server in group]
    counted = Counter(value[0] for value in values if value is not None)
    if len(counted) <= 1:
        return
    usual = max(counted, key=lambda value: counted[value])
    example = next(value[1] for value in values if value is not None and value[0] == usual)
    for value in values:
        if value is not None and value[0] != usual:
            yield Violation(
                at=value[1],
                message=f"{trait.title} {value[0]} here, and {usual} in `{example.file}`: {trait.effect}",
                hint="make it the same on all servers that connect to each other",
                related=(Related(span=example, message="the other server"),),
            )


def _cluster_name(server: ServerConf) -> Reading:
    name = server.cluster_name
    return (f"`{name.text}`", name.span) if name is not None and name.text else None


def _domain(server: ServerConf) -> Reading:
    jetstream = server.jetstream
    if jetstream is None or not jetstream.is_enabled:
        return None
    domain = jetstream.domain
    return (f"`{domain.text}`", domain.span) if domain and domain.text else ("none", jetstream.key_span)


def _system_account(server: ServerConf) -> Reading:
    if has_any(server.root, "operator", "operators"):
        return None
    account = server.system_account
    return (f"`{account.text}`", account.span) if account and account.text else ("`$SYS`", place(server))


def _has_tls(server: ServerConf) -> Reading:
    return _presence(server.cluster)


def _has_gateway_tls(server: ServerConf) -> Reading:
    return _presence(server.gateway.conf) if server.gateway else None


def _presence(conf: ConfMap | None) -> Reading:
    if conf is None:
        return None
    tls = entry(conf, "tls")
    return ("TLS", tls.key_span) if tls is not None else ("no TLS", conf.span)


def _compare_logins(group: list[ServerConf]) -> Iterator[Violation]:
    """The login of routes. Passwords are not printed, and those of variables are not compared."""
    logins = []
    for server in group:
        login, conf = entry(server.cluster, "authorization"), table(server.cluster, "authorization")
        user, password = option(conf, "user", "username"), option(conf, "password", "pass")
        if login is not None and user is not None and password is not None and password.text:
            logins.append(((user.value, password.text), login.key_span))
    for secret, span in logins[1:]:
        if secret != logins[0][0]:
            yield Violation(
                at=span,
                message=f"routes log in with another user or password than in `{logins[0][1].file}`: they cannot connect",
                hint="make it the same on all servers that connect to each other",
                related=(Related(span=logins[0][1], message="the other server"),),
            )


_TRAITS: Final = (
    _Trait("the cluster is called", "they refuse each other", _cluster_name),
    _Trait("the domain is", "they are not one JetStream", _domain),
    _Trait("the system account is", "they do not see each other's events", _system_account),
    _Trait("routes have", "they cannot connect", _has_tls),
)
_GATEWAY_TLS: Final = _Trait("the gateway has", "they cannot connect", _has_gateway_tls)


def _compare_accounts(group: list[ServerConf]) -> Iterator[Violation]:
    if any(has_any(server.root, "operator", "operators") for server in group):
        return
    having = [server for server in group if server.accounts]
    counted = Counter(account.name for server in having for account in server.accounts)
    for server in having:
        for account in server.accounts:
            if counted[account.name] == 1 and len(having) > 1:
                peers = [peer for peer in having if peer is not server]
                yield Violation(
                    at=account.key_span,
                    message=f"no other server of the cluster has account `{account.name}`: "
                    "its messages stay on this server",
                    hint=f"add it to the `accounts` of `{peers[0].file}`, or give it the same name everywhere",
                )
