"""Names that are required, must match or must be unique; gateways that list each other."""

from __future__ import annotations

import posixpath
from collections.abc import Hashable, Iterable, Iterator

from vstream.findings import Related, Severity, Span
from vstream.formatting import quote_names
from vstream.lint.rule import Violation, make_refusal, rule
from vstream.lint.rules import server_values
from vstream.lint.workspace import ServerConf, Workspace
from vstream.syntax.natsconf.nodes import ConfScalar


@rule("VS403", "cluster-and-gateway-differ", Severity.ERROR)
def cluster_and_gateway_differ(workspace: Workspace) -> Iterator[Violation]:
    """
    A server's cluster and gateway have different names.

    ## Why is this bad?
    The server does not start: `cluster name conflicts between cluster and gateway definitions`, while `nats-server -t`
    does not complain (all versions; server/server.go, validateCluster). Names are compared exactly, including case.
    """
    for server in server_values.list_whole(workspace):
        cluster_name, gateway_name = server.cluster_name, server.gateway.name if server.gateway else None
        names = {name.text for name in (cluster_name, gateway_name) if name and name.text}
        if cluster_name and gateway_name and len(names) > 1:
            yield make_refusal(
                gateway_name.span,
                f"the gateway is called `{gateway_name.text}`, the cluster `{cluster_name.text}`",
                "give both the name of the region's cluster",
                Related(span=cluster_name.span, message="the cluster"),
            )


@rule("VS404", "unnamed-cluster", Severity.ERROR)
def unnamed_cluster(workspace: Workspace) -> Iterator[Violation]:
    """
    A server's cluster needs a name but has none.

    ## Why is this bad?
    With JetStream the server does not start (`jetstream cluster requires cluster.name to be set`; `nats-server -t` does
    not complain). Without JetStream, it uses a random name that changes with each restart, and a server without a
    cluster has no name: mappings for a `cluster` never match, and publishes are not mapped (all versions;
    server/server.go, accounts.go).
    """
    for server in server_values.list_whole(workspace):
        # As a leaf node without a cluster, a server is a cluster of its own name.
        if server_values.cluster_of(server) is not None or (
            server.leaf_remotes and not server_values.is_clustered(server)
        ):
            continue
        entries = [entry for block in server.mappings for entry in block.entries]
        scoped = any(destination.cluster is not None for entry in entries for destination in entry.destinations)
        if server_values.is_clustered(server) and server_values.has_jetstream(server):
            message = "the cluster has no name: with JetStream the server does not start"
        elif scoped:
            message = "the cluster has no name: mappings for a `cluster` never match here"
        else:
            continue
        yield Violation(
            at=server.cluster.span if server.cluster else server_values.locate_server(server),
            message=message,
            hint="add `name` to the `cluster` block",
        )


@rule("VS405", "duplicate-server-name", Severity.ERROR)
def duplicate_server_name(workspace: Workspace) -> Iterator[Violation]:
    """
    Two servers have the same `server_name`.

    ## Why is this bad?
    JetStream identifies peers by name: two servers with one name are one peer, which votes twice and loses data. Routes
    between them are refused (`Remote server has a duplicate name`, server/route.go), but gateways are not (all
    versions). Files with the same name in two directories count as one server in two environments.
    """
    pairs: list[tuple[ServerConf, ServerConf]] = []
    for system in server_values.split_systems(workspace):
        servers = server_values.list_whole(system)
        pairs += _pairs_with_same_key((each.server_name.text if each.server_name else None, each) for each in servers)
    for first, second in pairs:
        name = second.server_name
        yield Violation(
            at=server_values.locate_server(second),
            message=f"`{name.text if name else ''}` is also the name of the server in `{first.file}`",
            hint="give every server of the super-cluster a different name",
            related=(Related(span=server_values.locate_server(first), message="the other server"),),
        )


@rule("VS406", "shared-store", Severity.ERROR)
def shared_store(workspace: Workspace) -> Iterator[Violation]:
    """
    Two servers on one host store into the same directory.

    ## Why is this bad?
    Both write the same files, and neither can read them afterwards; the directory is not locked (all versions;
    server/jetstream.go). Hosts are compared by listen address; the host of a server that listens on all interfaces is
    unknown.
    """
    stores = [(_find_store_key(server), server) for server in server_values.list_whole(workspace)]
    for first, second in _pairs_with_same_key((store[0] if store else None, server) for store, server in stores):
        store = _find_store_key(second)
        if store is not None:
            yield Violation(
                at=store[1],
                message=f"the server in `{first.file}` uses the same directory",
                hint="give every server its own directory",
                related=(Related(span=first_store[1], message="the other server"),)
                if (first_store := _find_store_key(first))
                else (),
            )


def _find_store_key(server: ServerConf) -> tuple[tuple[str, str, str], Span] | None:
    """What tells the server's directory from others: the host, what a relative path begins at, and the path."""
    host = next(
        (listener.host for listener in server.listeners if listener.block == "client" and not listener.is_everywhere),
        None,
    )
    written = server.jetstream.store_dir if server.jetstream and server_values.has_jetstream(server) else None
    path, span = (written.text, written.span) if written else (None, None)
    if path is None:
        top = server.root.get_folded("store_dir") or server.root.get_folded("storedir")
        if isinstance(top, ConfScalar) and isinstance(top.value, str) and server_values.has_jetstream(server):
            path, span = top.value, top.span
    if host is None or path is None or span is None:
        return None
    start = "" if path.startswith("/") else posixpath.dirname(server.file)
    return (host.lower(), start, posixpath.normpath(path)), span


def _pairs_with_same_key(keyed: Iterable[tuple[Hashable, ServerConf]]) -> Iterator[tuple[ServerConf, ServerConf]]:
    """Each server whose key an earlier one has, with that one."""
    seen: dict[Hashable, list[ServerConf]] = {}
    for key, server in keyed:
        if not key:
            continue
        earlier = seen.setdefault(key, [])
        first = next(
            (candidate for candidate in earlier[:20] if server_values.may_share_a_host(candidate, server)), None
        )
        if first is not None:
            yield first, server
        earlier.append(server)


@rule("VS422", "server-name-missing", Severity.ERROR)
def server_name_missing(workspace: Workspace) -> Iterator[Violation]:
    """
    A server with JetStream in a cluster has no `server_name`.

    ## Why is this bad?
    The server does not start: `jetstream cluster requires server_name to be set`, while `nats-server -t` does not
    complain (server/server.go, all versions). The name is often set on the command line, with `--name`. So this is a
    note, unless the file of another server of the cluster in the same directory sets `server_name`.
    """
    servers = server_values.list_whole(workspace)
    named = {_group_key(server) for server in servers if server.server_name is not None}
    for server in servers:
        if server.server_name is None and server_values.has_jetstream(server) and server_values.is_clustered(server):
            yield Violation(
                at=server.jetstream.key_span if server.jetstream else server_values.locate_server(server),
                message="JetStream in a cluster needs a `server_name`: without one the server does not start",
                hint="add `server_name` with a unique name, or start it with `--name`",
                severity=None if _group_key(server) in named else Severity.NOTE,
            )


def _group_key(server: ServerConf) -> tuple[str | None, str]:
    """What servers share whose files are written in the same way: the cluster and the directory."""
    name = server_values.cluster_of(server)
    return name.text if name else None, server_values.directory_of(server)


_REJECT = ("reject_unknown_cluster", "reject_unknown")


@rule("VS407", "gateway-list-incomplete", Severity.WARNING)
def gateway_list_incomplete(workspace: Workspace) -> Iterator[Violation]:
    """
    A server's list of gateways lacks a region that belongs to the super-cluster.

    ## Why is this bad?
    The server learns of the region only from others that know it. If it starts while they cannot be reached, it does
    not connect to that region; with `reject_unknown_cluster` it refuses the region for ever, which is an error (all
    versions; server/gateway.go). Regions are those of the topology, or those that any of the servers lists. Do not
    change the list of running servers: this reload and all later ones would be refused.
    """
    for system in server_values.split_systems(workspace):
        yield from _check_incomplete_lists(system)


def _check_incomplete_lists(workspace: Workspace) -> Iterator[Violation]:
    belongs = {name: names for names in server_values.find_superclusters(workspace) for name in names}
    linked = {server_values.directory_of(server) for server in server_values.list_whole(workspace) if server.gateway}
    for server in server_values.list_whole(workspace):
        cluster_name = server_values.cluster_of(server)
        if cluster_name is None or cluster_name.text is None or cluster_name.text not in belongs:
            continue
        gateway = server.gateway
        if gateway is None and workspace.topology is None and server_values.directory_of(server) not in linked:
            continue  # a system of its own, whose cluster has the name of another one
        listed = {
            cluster_name.text,
            *(remote.name.text for remote in (gateway.remotes if gateway else ()) if remote.name),
        }
        lacking = [name for name in belongs[cluster_name.text] if name not in listed]
        if not lacking:
            continue
        rejects = gateway is not None and server_values.is_on(gateway.conf, *_REJECT)
        yield Violation(
            at=gateway.key_span if gateway else cluster_name.span,
            message=f"cluster `{cluster_name.text}` has no gateway to {quote_names(lacking[:10])}"
            + (", and refuses clusters that are not listed" if rejects else ""),
            hint="list all regions in the `gateways` of every server",
            severity=Severity.ERROR if rejects else None,
        )
