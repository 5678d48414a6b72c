"""VS432: servers that connect to each other, and do not agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Final, NamedTuple

from vstream.findings import Related, Severity, Span
from vstream.formatting import quote_names
from vstream.lint.reading.leafnodes import LOGINS, hubs_of, list_leaf_users, read_leaf_links, system_of
from vstream.lint.reading.nodes import entry, maps_in, option, split_url, table
from vstream.lint.rule import Violation, choose_usual, rule, suggest_closest
from vstream.lint.rules.server_values import (
    are_links_resolved,
    cluster_of,
    directory_of,
    find_asked_user,
    find_jetstream_domain,
    find_system_account,
    group_connected,
    has_any,
    is_clustered,
    list_links,
    list_whole,
    locate_server,
)
from vstream.lint.rules.servers.access import compare_leaf_passwords, compare_secrets, find_open_servers
from vstream.lint.workspace import AccountConf, ConfValue, LeafRemote, ServerConf, UserConf, Workspace
from vstream.syntax.natsconf.nodes import ConfMap, to_python

Reading = tuple[str, Span] | None
"""What one server has, as text, and where."""
_Rights = dict[str, frozenset[str]]
"""What a user is allowed and denied, each with its subjects."""

_ANYTHING: Final = ">"
_SHOWN: Final = 3
"""Maximum number of names."""
_DEFAULT_PAYLOAD_BYTES: Final = 1 << 20
_HANDSHAKE_FIRST: Final = ("handshake_first", "first", "immediate")


class _Trait(NamedTuple):
    """Something in which servers must agree: what it is called, how one server has it, and where."""

    title: str
    effect: str
    read: Callable[[ServerConf], Reading]


@rule("VS432", "servers-disagree", Severity.ERROR)
def servers_disagree(workspace: Workspace) -> Iterator[Violation]:
    """
    Servers that connect to each other differ in a setting that must be the same on all of them.

    ## Why is this bad?
    A server is refused by the others and stays alone if its cluster name, its TLS or its password for routes differs
    (server/route.go, gateway.go). With another domain it does not belong to their JetStream, and with another system
    account nobody sees it. Users of an account that is missing on a server, or with another password there, cannot log
    in. A permission that only one server grants is open to everyone, as clients choose their server, and so is a
    cluster with one server that asks for no login. A leaf node and its hub must both begin with
    the TLS handshake or both without it, and their clusters and domains need different names. A hub with users demands
    a login, and two servers that are leaf nodes of each other form a loop (server/leafnode.go). With a smaller
    `max_payload`, a server refuses messages that its clients could publish before they reconnected. To gateways, two
    regions with one cluster name are one, and they reach only one of the two. Each file is valid by itself (all
    versions). Servers are compared if one lists an address of the other and their files are in the same directory. The
    value that most of them have counts as the right one.
    """
    servers = list_whole(workspace)
    for group in group_connected(servers, "cluster"):
        for trait in _TRAITS:
            yield from _compare(group, trait)
        yield from _compare_logins([server.cluster for server in group], "routes")
        yield from _compare_accounts(group)
        yield from _compare_shared_subjects(group)
        yield from _compare_users(group)
        yield from compare_secrets(group)
        yield from find_open_servers(group)
        yield from _compare_payloads(group)
    for group in group_connected(servers, "gateway"):
        for trait in _GATEWAY_TRAITS:
            yield from _compare(group, trait)
        gateways = [server.gateway_conf for server in group]
        yield from _compare_logins(gateways, "gateways")
        yield from _find_strangers(group)
    yield from _find_split_clusters(servers)
    for server in servers:
        yield from _compare_leaf_links(workspace, server)
        yield from _compare_leaf_domains(workspace, server)
    yield from _compare_domains_below_a_hub(workspace, servers)


def _find_split_clusters(servers: list[ServerConf]) -> Iterator[Violation]:
    """Servers with gateways and the same cluster name that no route connects: two regions that others take for one."""
    clusters: dict[tuple[str, str | None], list[ServerConf]] = {}
    # By name: where two servers differ, the first is taken for right.
    for server in sorted(servers, key=lambda server: server.file):
        name = cluster_of(server)
        if server.gateway is not None and is_clustered(server) and name is not None:
            clusters.setdefault((directory_of(server), name.text), []).append(server)
    for (_, cluster_name), members in clusters.items():
        connected = {server.file for server in (group_connected(members, "cluster") or [members[:1]])[0]}
        apart = [server for server in members if server.file not in connected]
        if not apart or _are_alternatives(members) or not are_links_resolved(members, "cluster"):
            continue
        name = cluster_of(apart[0])
        has_routes = all(list_links(server, "cluster") for server in members)
        yield Violation(
            at=name.span if name else locate_server(apart[0]),
            message=f"no route leads from here to `{min(connected)}`, which is in cluster `{cluster_name}` too: "
            "gateways take both for one region, and reach one of them",
            hint="add routes to each other, or give each region its own cluster name",
            severity=Severity.WARNING if has_routes else Severity.NOTE,
        )


def _are_alternatives(servers: list[ServerConf]) -> bool:
    """Whether two of the *servers* may be the same one: they have no names of their own, or listen at one address."""
    names = {server.server_name.text for server in servers if server.server_name}
    places = [listener for server in servers for listener in server.listeners if listener.block == "cluster"]
    hosts = [(listener.host, listener.port) for listener in places if not listener.is_everywhere]
    return len(names) < len(servers) or len(set(hosts)) < len(hosts)


def _compare_payloads(group: list[ServerConf]) -> Iterator[Violation]:
    """Who reconnects to a server that takes less cannot publish any more what another one took."""
    limits = [(option(server.root, "max_payload"), server) for server in group]
    sizes = [(limit.value if limit else _DEFAULT_PAYLOAD_BYTES, limit, server) for limit, server in limits]
    if any(not isinstance(size, int) for size, _, _ in sizes):
        return
    most, largest, largest_server = max(sizes, key=lambda item: int(str(item[0])))
    for size, limit, server in sizes:
        if size != most:
            at = largest.span if largest else locate_server(largest_server)
            yield Violation(
                at=limit.span if limit else locate_server(server),
                message=f"messages may have {size:,} bytes here, and {most:,} in `{largest_server.file}`: "
                "clients that reconnect to this server cannot publish larger ones",
                hint=f"write `max_payload: {most}` on all servers that connect to each other",
                related=(Related(span=at, message="the larger limit"),),
                severity=Severity.WARNING,
            )


def _find_hub(workspace: Workspace, leaf: ServerConf, remote: LeafRemote) -> ServerConf | None:
    """The server that *remote* leads to, if the files beside *leaf* leave no choice."""
    hubs = [hub for hub in hubs_of(workspace, remote) if directory_of(hub) == directory_of(leaf)]
    return hubs[0] if len(hubs) == 1 else None


def _compare_leaf_links(workspace: Workspace, leaf: ServerConf) -> Iterator[Violation]:
    for remote in leaf.leaf_remotes:
        hub = _find_hub(workspace, leaf, remote)
        if hub is not None and hub is not leaf:
            yield from _compare_leaf_tls(remote, hub)
            yield from _compare_leaf_logins(remote, hub)
            yield from compare_leaf_passwords(remote, hub)
            yield from _compare_leaf_clusters(leaf, hub)
            yield from _check_leads_both_ways(workspace, leaf, remote, hub)


def _compare_leaf_tls(remote: LeafRemote, hub: ServerConf) -> Iterator[Violation]:
    """Both sides must begin with the TLS handshake, or none."""
    hub_tls, leaf_tls = table(hub.leafnodes, "tls"), table(remote.conf, "tls")
    is_websocket = any(str(url.value).lower().startswith(("ws://", "wss://")) for url in remote.urls)
    if hub_tls is None and leaf_tls is not None and not is_websocket:
        yield Violation(
            at=leaf_tls.span,
            message=f"this leaf node has TLS, and `{hub.file}` has none for leaf nodes: they never connect",
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
            message=f"`{hub.file}` {'begins' if is_hub_first else 'does not begin'} with the TLS handshake, and this "
            f"leaf node {'does not' if is_hub_first else 'does'}: they never connect",
            hint=f"write `handshake_first: {str(is_hub_first).lower()}` in the `tls` of this remote",
            related=(Related(span=hub_tls.span, message="the other side"),),
        )


def _compare_leaf_logins(remote: LeafRemote, hub: ServerConf) -> Iterator[Violation]:
    """Leaf nodes that log in as a user whom the other server does not have, or not at all."""
    names, has_login = list_leaf_users(hub), any(has_any(remote.conf, name) for name in LOGINS)
    url = next((url for url in remote.urls if split_url(url)[2]), remote.urls[0])
    login = split_url(url)[2]
    if names is None or login in names or (login is None and has_login):
        return
    is_open = has_any(hub.root, "no_auth_user") or has_any(remote.conf, "tls")
    if login is not None:
        yield Violation(
            at=url.span,
            message=f"`{hub.file}` has no user `{login}` for leaf nodes: it refuses this one",
            hint=suggest_closest(login, sorted(names), "users"),
        )
    elif not is_open:
        yield Violation(
            at=url.span,
            message=f"`{hub.file}` asks leaf nodes for a login, and this one has none: it refuses this one",
            hint="write `nats-leaf://USER:PASSWORD@HOST:PORT`, with variables, or add `credentials`",
        )


def _compare_leaf_clusters(leaf: ServerConf, hub: ServerConf) -> Iterator[Violation]:
    """One name for two clusters (server/leafnode.go, processLeafNodeConnect): the messages of one would be the other's."""
    name, hub_name = leaf.cluster_name, hub.cluster_name
    if name is not None and name.text and hub_name is not None and name.text == hub_name.text:
        yield Violation(
            at=name.span,
            message=f"the cluster of `{hub.file}`, which this leaf node connects to, is called `{name.text}` too: "
            "it refuses this one",
            hint="give the cluster of the leaf node another name",
            related=(Related(span=hub_name.span, message="the other cluster"),),
        )


def _check_leads_both_ways(
    workspace: Workspace, leaf: ServerConf, remote: LeafRemote, hub: ServerConf
) -> Iterator[Violation]:
    """Each is a leaf node of the other, for the same accounts: a loop, which servers cut again and again."""
    for back in hub.leaf_remotes:
        is_back = back.span > remote.span and _find_hub(workspace, hub, back) is leaf
        if is_back and not any(has_any(side.conf, "account") or split_url(side.urls[0])[2] for side in (remote, back)):
            yield Violation(
                at=back.span,
                message=f"`{leaf.file}` is a leaf node of this server already: servers cut such a loop",
                hint="remove one of the two remotes: messages go both ways on one",
                related=(Related(span=remote.span, message="the way back"),),
            )


def _compare_leaf_domains(workspace: Workspace, leaf: ServerConf) -> Iterator[Violation]:
    """With one domain on both sides, and separate system accounts, requests for it reach the nearer server only."""
    system = find_system_account(leaf)
    domain = find_jetstream_domain(leaf)
    is_extended = any(remote.account and remote.account.text == system for remote in leaf.leaf_remotes)
    if domain is None or is_extended:
        return
    hubs = {hub.file: hub for remote in leaf.leaf_remotes for hub in hubs_of(workspace, remote)}
    nearby = [
        hub for hub in hubs.values() if directory_of(hub) == directory_of(leaf) and system_of(hub) != system_of(leaf)
    ]
    theirs = nearby[0].jetstream.domain if len(nearby) == 1 and nearby[0].jetstream else None
    if theirs is not None and theirs.text == domain.text:
        hub = f"`{nearby[0].file}`, which this leaf node connects to,"
        effect = "from there, the streams of this one cannot be reached"
        yield _report_same_domain(domain, theirs, hub, effect, ", or connect the system accounts too")


def _compare_domains_below_a_hub(workspace: Workspace, servers: list[ServerConf]) -> Iterator[Violation]:
    """Leaf nodes of one account of a hub: what asks for their domain there reaches whichever is nearer."""
    seen_domains: dict[tuple[str | None, ...], tuple[str, ConfValue]] = {}
    for link in read_leaf_links(workspace):
        for leaf in servers:
            domain = find_jetstream_domain(leaf)
            is_end = link.span is not None and link.span.file == leaf.file
            if domain is None or not is_end:
                continue
            key = (directory_of(leaf), link.hub.system, link.hub.account, domain.text)
            system, earlier = seen_domains.setdefault(key, (link.leaf.system, domain))
            if system != link.leaf.system:
                effect = "requests for it reach either of them"
                yield _report_same_domain(domain, earlier, "another leaf node of the same hub", effect)


def _report_same_domain(domain: ConfValue, theirs: ConfValue, holder: str, effect: str, way_out: str = "") -> Violation:
    """That *holder* has the same domain, *theirs*."""
    return Violation(
        at=domain.span,
        message=f"{holder} has the domain `{domain.text}` too: {effect}",
        hint=f"give each its own domain{way_out}",
        related=(Related(span=theirs.span, message="the same domain"),),
        severity=Severity.WARNING,
    )


def _compare(group: list[ServerConf], trait: _Trait) -> Iterator[Violation]:
    readings = [reading for server in group if (reading := trait.read(server)) is not None]
    if not readings:
        return
    usual, example = choose_usual(readings, itemgetter(0))
    for value, span in readings:
        if value != usual:
            message = f"{trait.title} {value} here, and {usual} in `{example.file}`: {trait.effect}"
            yield _make_difference(span, message, Related(span=example, message="the other server"))


def _make_difference(at: Span, message: str, example: Related, severity: Severity | None = None) -> Violation:
    hint = "make it the same on all servers that connect to each other"
    return Violation(at=at, message=message, hint=hint, related=(example,), severity=severity)


def _read_cluster_name(server: ServerConf) -> Reading:
    name = server.cluster_name
    return (f"`{name.text}`", name.span) if name is not None and name.text else None


def _read_domain(server: ServerConf) -> Reading:
    if server.jetstream is None or not server.jetstream.is_enabled:
        return None
    domain = find_jetstream_domain(server)
    return (f"`{domain.text}`", domain.span) if domain else ("none", server.jetstream.key_span)


def _read_system_account(server: ServerConf) -> Reading:
    if has_any(server.root, "operator", "operators"):
        return None
    account = server.system_account
    return (f"`{account.text}`", account.span) if account and account.text else ("`$SYS`", locate_server(server))


def _read_guest(server: ServerConf) -> Reading:
    guest = option(server.root, "no_auth_user")
    if guest is not None and guest.text:
        return f"`{guest.text}`", guest.span
    return ("refused", locate_server(server)) if server.users else None


def _read_gateway_tls(server: ServerConf) -> Reading:
    return _read_presence(server.gateway.conf) if server.gateway else None


def _read_presence(conf: ConfMap | None) -> Reading:
    if conf is None:
        return None
    tls = entry(conf, "tls")
    return ("TLS", tls.key_span) if tls is not None else ("no TLS", conf.span)


def _compare_logins(blocks: list[ConfMap | None], kind: str) -> Iterator[Violation]:
    """The login of routes or gateways. Passwords are not printed, and those of variables are not compared."""
    logins = []
    for block in blocks:
        login, conf = entry(block, "authorization"), table(block, "authorization")
        user, password = option(conf, "user", "username"), option(conf, "password", "pass")
        if login is not None and user is not None and password is not None and password.text:
            logins.append(((user.value, password.text), login.key_span))
    for secret, span in logins[1:]:
        if secret != logins[0][0]:
            message = f"{kind} log in with another user or password than in `{logins[0][1].file}`: they cannot connect"
            yield _make_difference(span, message, Related(span=logins[0][1], message="the other server"))


def _find_strangers(group: list[ServerConf]) -> Iterator[Violation]:
    """Gateways without the login that others ask for."""
    gateways = [server.gateway for server in group if server.gateway]
    logins = [find_asked_user(gateway.conf) for gateway in gateways]
    asked = next((login for login in logins if login is not None), None)
    for gateway, login in zip(gateways, logins, strict=True):
        urls = [url for remote in gateway.remotes for url in remote.urls]
        if asked is not None and login is None and not any(split_url(url)[2] for url in urls):
            yield Violation(
                at=gateway.key_span,
                message=f"`{asked.span.file}` asks gateways for a login, and this one has none: it refuses this one",
                hint="write the same `authorization` here, with variables",
                related=(Related(span=asked.span, message="who may connect"),),
            )


_DOMAIN: Final = _Trait("the domain is", "they are not one JetStream", _read_domain)
_SYSTEM: Final = _Trait("the system account is", "they do not see each other's events", _read_system_account)
_TRAITS: Final = (
    _Trait("the cluster is called", "they refuse each other", _read_cluster_name),
    _DOMAIN,
    _SYSTEM,
    _Trait("routes have", "they cannot connect", lambda server: _read_presence(server.cluster)),
    _Trait("clients without a login are", "what they may do depends on the server", _read_guest),
)
_GATEWAY_TRAITS: Final = (_Trait("the gateway has", "they cannot connect", _read_gateway_tls), _DOMAIN, _SYSTEM)


def _compare_accounts(group: list[ServerConf]) -> Iterator[Violation]:
    if any(has_any(server.root, "operator", "operators") for server in group):
        return
    having = [server for server in group if server.accounts]
    counted = Counter(account.name for server in having for account in server.accounts)
    for server in having if len(having) > 1 else ():
        peers = [peer for peer in having if peer is not server]
        for account in server.accounts:
            if counted[account.name] == 1:
                yield Violation(
                    at=account.key_span,
                    message=f"no other server of the cluster has account `{account.name}`: "
                    "its messages stay on this server",
                    hint=f"add it to the `accounts` of `{peers[0].file}`, or give it the same name everywhere",
                )
        lacking = counted.keys() - {account.name for account in server.accounts}
        if any(counted[account.name] == 1 for account in server.accounts):
            continue  # It probably has the account under another name.
        for name in sorted(name for name in lacking if counted[name] == len(peers) > 1):
            yield Violation(
                at=locate_server(server),
                message=f"all other servers of the cluster have account `{name}`, and this one does not: "
                "its users cannot log in here",
                hint=f"add it to the `accounts`, as in `{peers[0].file}`",
            )


def _compare_shared_subjects(group: list[ServerConf]) -> Iterator[Violation]:
    """What an account exports, imports and may store on each server."""
    holders: dict[tuple[str, str], list[tuple[ServerConf, AccountConf, list[str]]]] = {}
    for server in group:
        for account in server.accounts:
            limits = table(account.conf, "jetstream")
            sizes = sorted(str((key.lower(), to_python(node))) for key, node in limits.items()) if limits else []
            holders.setdefault((account.name, "limits"), []).append((server, account, sizes))
            for word in ("exports", "imports"):
                written = sorted(str(to_python(item)) for item in maps_in(account.conf, word))
                holders.setdefault((account.name, word), []).append((server, account, written))
    for (name, word), having in holders.items():
        example_server, example, usual = choose_usual(having, itemgetter(2))
        effect = "what it may store" if word == "limits" else "which messages pass"
        for _, account, written in having:
            if written != usual:
                yield _make_difference(
                    account.key_span,
                    f"the {word} of account `{name}` are others here than in `{example_server.file}`: "
                    f"{effect} depends on the server",
                    Related(span=example.key_span, message="the same account"),
                    Severity.WARNING,
                )


def _compare_users(group: list[ServerConf]) -> Iterator[Violation]:
    """What one user may do on each server, and who cannot log in on one of them."""
    holders: dict[tuple[str | None, str], list[tuple[ServerConf, UserConf, _Rights]]] = {}
    for server in group:
        for user in server.users:
            holders.setdefault((user.account, user.name), []).append((server, user, _list_rights(user)))
    for having in holders.values():
        example_server, example, usual = choose_usual(having, itemgetter(2))
        for _, user, rights in having:
            difference = next((word for word in usual if rights[word] != usual[word]), None)
            if difference is not None:
                yield _make_difference(
                    user.span,
                    f"`{difference}` of user `{user.name}` is {_format_subjects(rights[difference])} here, and "
                    f"{_format_subjects(usual[difference])} in `{example_server.file}`: its rights depend on the server",
                    Related(span=example.span, message="the same user"),
                    Severity.WARNING,
                )
        lacking = []
        for server in group:
            accounts = {account.name for account in server.accounts} | ({None} if server.users else set())
            if example.account in accounts and not any(server is holder for holder, _, _ in having):
                lacking.append(server)
        if len(lacking) == 1:
            yield Violation(
                at=locate_server(lacking[0]),
                message=f"{'all other servers' if len(having) > 1 else 'the other server'} of the cluster "
                f"{'have' if len(having) > 1 else 'has'} user `{example.name}`, and this one does not: it cannot log in here",
                hint=f"add it to the `users`, as in `{example_server.file}`",
                related=(Related(span=example.span, message="the user"),),
                severity=Severity.WARNING,
            )


def _list_rights(user: UserConf) -> _Rights:
    rights = {}
    for word, permission in (("publish", user.publish), ("subscribe", user.subscribe)):
        allow = permission.allow if permission else None
        rights[f"{word} allow"] = frozenset({_ANYTHING} if allow is None else (str(value.value) for value in allow))
        rights[f"{word} deny"] = frozenset(str(value.value) for value in permission.deny) if permission else frozenset()
    return rights


def _format_subjects(subjects: frozenset[str]) -> str:
    return quote_names(sorted(subjects)[:_SHOWN]) + ("" if len(subjects) <= _SHOWN else " …") if subjects else "nothing"
