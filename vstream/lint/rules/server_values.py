"""What several rules ask about server configurations."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from vstream.findings import Span
from vstream.lint import detect
from vstream.lint.reading.nodes import option, split_url, table, values_in
from vstream.lint.workspace import ConfValue, ServerConf, Workspace
from vstream.syntax.document import object_or_empty
from vstream.syntax.natsconf.nodes import ConfMap, ConfScalar
from vstream.topology.units import parse_duration

OPERATORS: Final = ("operator", "operators", "roots", "root", "root_operator", "root_operators")
"""The names of one option: the operators that a server trusts."""
TRUSTED: Final = ("trusted", "trusted_keys")
_UNKNOWN_COUNT: Final = 1 << 20


def list_whole(workspace: Workspace) -> list[ServerConf]:
    """The configurations of servers, without the files that others include."""
    included = {posixpath.normpath(name) for server in workspace.servers for name in server.included}
    servers = (server for server in workspace.servers if not server.is_fragment)
    return [server for server in servers if posixpath.normpath(server.file) not in included]


def cluster_of(server: ServerConf) -> ConfValue | None:
    """The name of the server's cluster: a gateway has the same, and gives it where the cluster has none."""
    cluster_name = server.cluster_name or (server.gateway.name if server.gateway else None)
    return cluster_name if cluster_name is not None and cluster_name.text else None


def has_jetstream(server: ServerConf) -> bool:
    """Whether JetStream is on."""
    return server.jetstream is not None and server.jetstream.is_enabled


def find_jetstream_domain(server: ServerConf) -> ConfValue | None:
    """The domain of the server, if JetStream is on."""
    domain = server.jetstream.domain if server.jetstream and server.jetstream.is_enabled else None
    return domain if domain is not None and domain.text else None


def find_system_account(server: ServerConf) -> str:
    """The name of the system account, which every server has."""
    return (server.system_account.text if server.system_account else None) or "$SYS"


def is_clustered(server: ServerConf) -> bool:
    """Whether the server listens for other servers of its cluster."""
    return any(listener.block == "cluster" for listener in server.listeners)


def locate_server(server: ServerConf) -> Span:
    """Where to point at a server as a whole: its name, or the beginning of its file."""
    return server.server_name.span if server.server_name else Span.point(server.file, 1, 1)


def is_alone(server: ServerConf) -> bool:
    """Whether nothing links the server to others: files of such servers beside one another say nothing of one system."""
    blocks = {listener.block for listener in server.listeners}
    return cluster_of(server) is None and not server.leaf_remotes and not blocks & {"cluster", "gateway", "leafnodes"}


def directory_of(server: ServerConf) -> str:
    """Where the server's file lies."""
    return posixpath.dirname(server.file)


def is_on(conf: ConfMap | None, *names: str) -> bool:
    """Whether one of the options *names* is true."""
    nodes = (conf.get_folded(name) for name in names) if conf is not None else ()
    return any(getattr(node, "value", None) is True for node in nodes)


def find_asked_user(conf: ConfMap | None) -> ConfValue | None:
    """The user whose password servers ask of routes or gateways; None where certificates decide (server/auth.go)."""
    if is_on(table(conf, "tls"), "verify_and_map", "verify_cert_and_check_known_urls"):
        return None
    return option(table(conf, "authorization"), "user", "username")


def has_any(conf: ConfMap | None, *names: str) -> bool:
    """Whether one of the options *names* was written."""
    return conf is not None and any(conf.get_folded(name) is not None for name in names)


def has_operator(server: ServerConf) -> bool:
    """Whether the file trusts an operator, whose tokens have the accounts."""
    return has_any(server.root, *OPERATORS, *TRUSTED)


def read_duration(value: ConfValue | None) -> int | None:
    """The nanoseconds of a duration such as `2m`; None where there is none, or none that can be read."""
    try:
        return parse_duration(value.text or "") if value is not None else None
    except ValueError:
        return None


def read_claims(operator: object) -> Mapping[str, object]:
    """What the token *operator* claims about NATS; empty if it cannot be read. A file's name says nothing."""
    text = operator.value if isinstance(operator, ConfScalar) else None
    token_claims = detect.find_claims(text) if isinstance(text, str) else None
    try:
        claims = json.loads(token_claims[0]) if token_claims is not None else None
    except (ValueError, RecursionError):
        return {}
    return object_or_empty(object_or_empty(claims).get("nats"))


def is_origin(first: ServerConf, second: ServerConf) -> bool:
    """
    Whether two files seem to be one server in two environments: `dev/west-1.conf` and `prod/west-1.conf`.

    Such servers never meet, and what they share is no mistake.
    """
    names = [(written.text if (written := cluster_of(server)) else None) for server in (first, second)]
    bases = {posixpath.basename(server.file) for server in (first, second)}
    return first.file != second.file and len(bases) == 1 and names[0] == names[1]


def may_share_a_system(first: ServerConf, second: ServerConf) -> bool:
    """Whether two servers can be of one system: their files are beside each other, or they name the same clusters."""
    names: list[set[str | None]] = []
    for server in (first, second):
        remotes = server.gateway.remotes if server.gateway else ()
        written = (cluster_of(server), *(remote.name for remote in remotes))
        names.append({name.text for name in written if name is not None})
    if directory_of(first) == directory_of(second):
        return not all(names) or bool(names[0] & names[1])
    return bool(names[0] & names[1])


def list_links(server: ServerConf, block: str) -> list[ConfValue]:
    """The addresses of the routes (`cluster`) or gateways (`gateway`) that *server* lists."""
    if block == "cluster":
        return [*values_in(server.cluster, "routes")]
    return [url for remote in (server.gateway.remotes if server.gateway else ()) for url in remote.urls]


def _addresses(server: ServerConf, block: str) -> list[tuple[str, int | None]]:
    return [split_url(url)[:2] for url in list_links(server, block)]


def _listeners(servers: list[ServerConf], block: str) -> dict[tuple[str, str, int | None], set[int]]:
    """Which of the *servers* listen where: by directory, host or server name, and port."""
    listening: dict[tuple[str, str, int | None], set[int]] = {}
    for index, server in enumerate(servers):
        names = [server.server_name.text] if server.server_name else []
        for listener in (listener for listener in server.listeners if listener.block == block):
            for host in (*names, *([] if listener.is_everywhere else [listener.host])):
                listening.setdefault((directory_of(server), str(host).lower(), listener.port), set()).add(index)
    return listening


def are_links_resolved(servers: list[ServerConf], block: str) -> bool:
    """Whether each address of the *servers* is that of one of them: else, the files do not say where it leads."""
    listening = _listeners(servers, block)
    places = [
        (directory_of(server), host.lower(), port) for server in servers for host, port in _addresses(server, block)
    ]
    return all(len(listening.get(place, ())) == 1 for place in places)


def group_connected(servers: list[ServerConf], block: str) -> list[list[ServerConf]]:
    """The servers of one directory that connect to each other, by `cluster` or `gateway`; those that are alone left out."""
    # Several servers at one address are alternatives: files do not say which of them is meant.
    listening = _listeners(servers, block)
    leader = list(range(len(servers)))
    for index, server in enumerate(servers):
        for host, port in _addresses(server, block):
            heard = listening.get((directory_of(server), host.lower(), port), set())
            if len(heard) == 1:
                first, second = sorted((leader[index], *(leader[peer] for peer in heard)))
                leader = [first if number == second else number for number in leader]
    groups: dict[int, list[ServerConf]] = {}
    for index, server in enumerate(servers):
        groups.setdefault(leader[index], []).append(server)
    # By name: where two servers differ, the first is taken for right.
    return [sorted(group, key=lambda server: server.file) for group in groups.values() if len(group) > 1]


def may_share_a_host(first: ServerConf, second: ServerConf) -> bool:
    """Whether two servers can run at one time on one host: not if they are copies, or far apart and of two systems."""
    is_near = directory_of(first) == directory_of(second)
    return (is_near or may_share_a_system(first, second)) and not is_origin(first, second)


def split_systems(workspace: Workspace) -> list[Workspace]:
    """*workspace* by system: without a topology, a directory with linked servers of several clusters is one of its own."""
    clusters: dict[str, set[str | None]] = {}
    for server in list_whole(workspace) if workspace.topology is None else ():
        name = cluster_of(server)
        if name is not None and server.gateway is not None and server.gateway.remotes:
            clusters.setdefault(directory_of(server), set()).add(name.text)
    several = [path for path, names in clusters.items() if len(names) > 1]
    if len(several) <= 1:
        return [workspace]
    parts = []
    for path in several:
        servers = tuple(server for server in workspace.servers if directory_of(server) == path)
        parts.append(replace(workspace, servers=servers))
    rest = tuple(server for server in workspace.servers if directory_of(server) not in several)
    return [*parts, replace(workspace, servers=rest)]


def find_superclusters(workspace: Workspace) -> list[tuple[str, ...]]:
    """The clusters that gateways connect, together with those of the topology; each set in the order of the files."""
    component: dict[str, list[str]] = {}

    def join(names: list[str]) -> None:
        merged = list(dict.fromkeys(member for name in names for member in component.get(name, [name])))
        for name in merged:
            component[name] = merged

    # In domains, each region is alone: what joins them are hubs.
    if workspace.topology is not None and workspace.topology.hubs is None:
        join(list(workspace.topology.clusters))
    for server in list_whole(workspace):
        cluster_name = cluster_of(server)
        remotes = server.gateway.remotes if server.gateway else ()
        names = [
            cluster_name.text if cluster_name else None,
            *(remote.name.text if remote.name else None for remote in remotes),
        ]
        cluster_names = [name for name in names if name]
        if len(set(cluster_names)) > 1:
            join(cluster_names)
    return list(dict.fromkeys(tuple(names) for names in component.values()))


def count_peers_by_cluster(
    workspace: Workspace, names: tuple[str, ...], sizes: Mapping[str, int]
) -> Mapping[str, int] | None:
    """How many servers with JetStream each of the clusters *names* has, None where files are missing to say it."""
    if workspace.is_rendered:
        return {name: sizes[name] for name in names} if set(names) <= sizes.keys() else None
    counted = dict.fromkeys(names, 0)
    files = dict.fromkeys(names, 0)
    for server in list_whole(workspace):
        cluster_name = cluster_of(server)
        if cluster_name and cluster_name.text in counted:
            files[cluster_name.text] += 1
            counted[cluster_name.text] += has_jetstream(server)
    is_complete = all(0 < files[name] == sizes.get(name) for name in names)
    return {name: number for name, number in counted.items() if number} if is_complete else None


def known_cluster_sizes(workspace: Workspace) -> Mapping[str, int]:
    """How many servers each cluster has, of those for which the topology or the server configurations say all of them."""
    if workspace.topology is not None:
        return Counter(seat.cluster for seat in workspace.topology.seats)
    configured: Counter[str] = Counter()
    promised: dict[str, int] = {}
    hosts = {host for _, host, _ in _listeners(list(workspace.servers), "cluster")}
    for server in workspace.servers:
        name = server.cluster_name or (server.gateway.name if server.gateway else None)
        if server.is_fragment or name is None or not name.text:
            continue
        configured[name.text] += 1
        is_alone = not any(listener.block == "cluster" for listener in server.listeners)
        routes = _addresses(server, "cluster")
        # The single name of a service stands for any number of servers.
        is_service = len(routes) == 1 and routes[0][0].lower() not in hosts and not routes[0][0][-1:].isdigit()
        addresses = [(name.text, _UNKNOWN_COUNT if is_service else len(routes) or int(is_alone))]
        remotes = server.gateway.remotes if server.gateway else ()
        addresses.extend((remote.name.text or "" if remote.name else "", len(remote.urls)) for remote in remotes)
        for cluster, number in addresses:
            promised[cluster] = max(promised.get(cluster, 0), number)
    # Fewer files than addresses: some were not given. No address: nobody says how many there are.
    return {name: number for name, number in configured.items() if number >= promised.get(name, 0) > 0}


def index_isolated_clusters(workspace: Workspace) -> dict[str, str]:
    """By directory, the only cluster of its servers, where nothing links it to others: streams can be nowhere else."""
    beside: dict[str, list[ServerConf]] = {}
    for server in list_whole(workspace) if workspace.topology is None else ():
        beside.setdefault(directory_of(server), []).append(server)
    alone = {}
    for path, servers in beside.items():
        names = {name.text if (name := cluster_of(server)) is not None else None for server in servers}
        is_linked = any(server.gateway or server.leafnodes for server in servers)
        # A route to the name of a service leads to servers that the files do not show.
        if len(names) == 1 and not is_linked and are_links_resolved(servers, "cluster"):
            alone[path] = str(names.pop())
    return alone
