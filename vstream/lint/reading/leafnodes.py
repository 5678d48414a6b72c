"""Leaf node connections between the servers of the files (server/opts.go, parseRemoteLeafNodes, parseLeafAuthorization)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from vstream.findings import Span
from vstream.lint.reading.accounts import read_server_flow
from vstream.lint.reading.nodes import entry, maps_in, option, split_url, table, values_in
from vstream.lint.workspace import ConfValue, LeafRemote, Permission, ServerConf, UserConf, Workspace
from vstream.subjects.account_flow import GLOBAL_ACCOUNT
from vstream.subjects.leaf_flow import JETSTREAM_SUBJECTS, LeafLink, LeafSide, SubjectFilter
from vstream.syntax.natsconf.nodes import ConfMap

_Denied = tuple[str, Span | None]

_DEFAULT_PORT: Final = 7422
LOGINS: Final = ("credentials", "creds", "nkey", "seed")
"""The options of a remote that log in without a user in its addresses."""


def read_leaf_links(workspace: Workspace) -> tuple[LeafLink, ...]:
    """
    The leaf node connections whose two sides are in the files.

    A connection to several servers of one system is one. One whose account at the hub only its credentials say is left
    out.
    """
    links: dict[tuple[str, str, str, str], LeafLink] = {}
    for leaf in workspace.servers:
        for remote in leaf.leaf_remotes:
            for hub in hubs_of(workspace, remote):
                link = _read_link(leaf, remote, hub)
                if link is not None and system_of(hub) != system_of(leaf):
                    key = (link.hub.system, link.hub.account, link.leaf.system, link.leaf.account)
                    links.setdefault(key, link)
    return tuple(links.values())


def read_leaf_side(server: ServerConf, account: str) -> LeafSide:
    """One end of leaf node connections: *account* on *server*."""
    return LeafSide(
        server=(server.server_name.text if server.server_name else None) or server.file,
        system=system_of(server),
        account=account,
        cluster=server.cluster_name.text if server.cluster_name else None,
        flow=read_server_flow(server),
    )


def system_of(server: ServerConf) -> str:
    """What servers have in common that share messages: the names of all gateways, else of the cluster, else the file."""
    remotes = server.gateway.remotes if server.gateway else ()
    gateways = sorted(str(remote.name.value) for remote in remotes if remote.name)
    if gateways:
        local = [str(server.gateway.name.value)] if server.gateway and server.gateway.name else []
        return " ".join(sorted({*gateways, *local}))
    return str(server.cluster_name.value) if server.cluster_name else server.file


def list_leaf_users(hub: ServerConf) -> frozenset[str] | None:
    """The users that leaf nodes may log in to *hub* as; None where the file does not say all of them."""
    if entry(hub.root, "operator") or hub.has_callout:
        return None
    authorization = table(hub.leafnodes, "authorization")
    if authorization is None:
        return frozenset(user.name for user in hub.users) or None
    written = [option(item, "user", "username") for item in (*maps_in(authorization, "users"), authorization)]
    # With an account alone, users are those of the account.
    names = frozenset(str(user.value) for user in written if user is not None)
    return names or frozenset(user.name for user in hub.users) or None


def list_leaf_passwords(hub: ServerConf) -> Mapping[str, ConfValue]:
    """The passwords of the users that leaf nodes may log in to *hub* as, by user; empty where the file does not say."""
    if list_leaf_users(hub) is None:
        return {}
    authorization = table(hub.leafnodes, "authorization")
    passwords = {user.name: user.password for user in hub.users if user.password}
    for conf in (*maps_in(authorization, "users"), authorization):
        user, password = option(conf, "user", "username"), option(conf, "password", "pass")
        if user is not None and password is not None:
            passwords[str(user.value)] = password
    return passwords


def hubs_of(workspace: Workspace, remote: LeafRemote) -> Iterator[ServerConf]:
    """The servers of the files that *remote* leads to."""
    addresses = [_read_address(url) for url in remote.urls]
    for server in workspace.servers:
        listener = next((listener for listener in server.listeners if listener.block == "leafnodes"), None)
        if listener is None:
            continue
        name = server.server_name.text if server.server_name else None
        for host, port in addresses:
            is_here = listener.is_everywhere or host == listener.host or host.partition(".")[0] == name
            if port == (listener.port or _DEFAULT_PORT) and is_here:
                yield server
                break


def _read_address(url: ConfValue) -> tuple[str, int]:
    host, port, _ = split_url(url)
    return host, (port or _DEFAULT_PORT) if host else 0


def _read_user(remote: LeafRemote) -> str | None:
    users = (split_url(url)[2] for url in remote.urls)
    return next((user for user in users if user), None)


def _read_link(leaf: ServerConf, remote: LeafRemote, hub: ServerConf) -> LeafLink | None:
    bound = _bind(hub, remote)
    if bound is None:
        return None
    account, user = bound
    denies_in, denies_out = (_list_denied(remote, *names) for names in (_IMPORTS, _EXPORTS))
    jetstream: tuple[_Denied, ...] = tuple((subject, None) for subject in JETSTREAM_SUBJECTS)
    publish, subscribe = (user.publish, user.subscribe) if user else (None, None)
    local = str(remote.account.value) if remote.account else GLOBAL_ACCOUNT
    return LeafLink(
        hub=read_leaf_side(hub, account),
        leaf=read_leaf_side(leaf, local),
        to_hub=_make_subject_filter(
            publish, (*denies_out, *jetstream), opposite=(*denies_in, *_deny_list_of(subscribe))
        ),
        to_leaf=_make_subject_filter(subscribe, (*denies_in, *jetstream)),
        span=remote.span,
    )


_IMPORTS: Final = ("deny_imports", "deny_import")
_EXPORTS: Final = ("deny_exports", "deny_export")


def _list_denied(remote: LeafRemote, *names: str) -> list[_Denied]:
    return [(str(value.value), value.span) for value in values_in(remote.conf, *names)]


def _make_subject_filter(
    permission: Permission | None, denied: tuple[_Denied, ...], opposite: tuple[_Denied, ...] = ()
) -> SubjectFilter:
    allow = permission.allow if permission else None
    return SubjectFilter(
        allow=None if allow is None else tuple(str(value.value) for value in allow),
        deny=(*denied, *_deny_list_of(permission)),
        opposite=opposite,
    )


def _deny_list_of(permission: Permission | None) -> tuple[_Denied, ...]:
    return tuple((str(value.value), value.span) for value in permission.deny) if permission else ()


def _bind(hub: ServerConf, remote: LeafRemote) -> tuple[str, UserConf | None] | None:
    """The account of *hub* that *remote* comes to, and the user that it comes as; None where the files do not say."""
    if any(entry(remote.conf, name) for name in LOGINS):
        return None
    name = _read_user(remote)
    authorization = table(hub.leafnodes, "authorization")
    if authorization is not None:
        return _bind_in(authorization, name)
    name = name or (str(default.value) if (default := option(hub.root, "no_auth_user")) else None)
    if name is None:
        return (GLOBAL_ACCOUNT, None) if not hub.users else None
    user = next((user for user in hub.users if user.name == name), None)
    return (user.account or GLOBAL_ACCOUNT, user) if user else None


def _bind_in(authorization: ConfMap, name: str | None) -> tuple[str, None] | None:
    """The same for the users of `leafnodes`."""
    for item in (*maps_in(authorization, "users"), authorization):
        user = option(item, "user", "username")
        if (str(user.value) if user else None) == name:
            account = option(item, "account")
            return (str(account.value) if account else GLOBAL_ACCOUNT), None
    return None
