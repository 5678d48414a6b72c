"""JetStream of a server: enabled, limited, on durable storage, and with a majority of the meta group."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping

from vstream.findings import Severity, Span
from vstream.formatting import format_count, quote_names
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.server_values import (
    cluster_of,
    count_peers_by_cluster,
    directory_of,
    find_superclusters,
    has_any,
    has_jetstream,
    known_cluster_sizes,
    list_whole,
    locate_server,
)
from vstream.lint.workspace import ConfValue, ServerConf, Workspace


@rule("VS413", "jetstream-off", Severity.WARNING)
def jetstream_off(workspace: Workspace) -> Iterator[Violation]:
    """
    No server of a cluster has JetStream, although other clusters have it.

    ## Why is this bad?
    Neither a write nor a read stream can be placed in the region (`no suitable peers for placement`, 10005; all
    versions). It is a note, unless a topology has the region or a stream is placed there: some regions only have
    clients, and `-js` on the command line enables JetStream too. Nothing is reported where a file disables it.
    """
    servers = list_whole(workspace)
    equipped = {
        cluster_name.text for server in servers if has_jetstream(server) and (cluster_name := cluster_of(server))
    }
    needed = set(workspace.topology.clusters if workspace.topology else ())
    beside = {posixpath.dirname(stream.file) for stream in workspace.streams}
    needed.update(stream.config.placement_cluster or "" for stream in workspace.streams)
    joined = {name for names in find_superclusters(workspace) if equipped.intersection(names) for name in names}
    lacking: dict[str, list[tuple[Span, ServerConf]]] = {}
    for server in servers:
        written = cluster_of(server)
        if written is not None and written.text is not None and written.text not in equipped:
            lacking.setdefault(written.text, []).append((written.span, server))
    for name, members in lacking.items():
        at, first = members[0]
        is_on_purpose = any(server.jetstream for _, server in members)
        may_be_needed = name in joined or (directory_of(first) in beside and not equipped)
        if name not in needed and (is_on_purpose or not may_be_needed):
            continue
        if any(listener.block == "leafnodes" for listener in first.listeners):
            continue  # a hub: it joins domains, and stores nothing
        yield Violation(
            at=first.jetstream.span if first.jetstream else at,
            message=f"no server of cluster `{name}` has JetStream: no stream can be placed there",
            hint="add `jetstream { store_dir: …, max_file: …, max_mem: … }`",
            severity=None if name in needed else Severity.NOTE,
        )


@rule("VS414", "unlimited-storage", Severity.WARNING)
def unlimited_storage(workspace: Workspace) -> Iterator[Violation]:
    """
    JetStream has no limit for its disk or its memory.

    ## Why is this bad?
    Without limits, a server takes what is available when it starts: three quarters of the memory, and all free space of
    the disk (server/jetstream.go, dynJetStreamConfig; all versions). Several servers on one host each take all of it.
    If a disk is full, the server disables JetStream and does not enable it again.
    """
    for server in list_whole(workspace):
        jetstream = server.jetstream
        if jetstream is None or not has_jetstream(server):
            continue
        limits = {"max_file": jetstream.max_file, "max_mem": jetstream.max_memory}
        missing = [name for name, written in limits.items() if _is_unlimited(written)]
        if missing:
            yield Violation(
                at=jetstream.key_span,
                message=f"JetStream has no {' and no '.join(f'`{name}`' for name in missing)}: "
                f"it takes {_describe_default_shares(missing)} that is available when it starts",
                hint="set how much this server may use",
            )


@rule("VS415", "temporary-store", Severity.WARNING)
def temporary_store(workspace: Workspace) -> Iterator[Violation]:
    """
    JetStream has no storage directory.

    ## Why is this bad?
    The server uses a directory for temporary files: `Temporary storage directory used, data
    could be lost on system reboot` (all versions; server/jetstream.go). Two such servers
    on one host share it. The command line can also set a directory, with `-sd`.
    """
    for server in list_whole(workspace):
        jetstream = server.jetstream
        if jetstream is None or not has_jetstream(server) or jetstream.store_dir is not None:
            continue
        if not has_any(server.root, "store_dir", "storedir"):
            yield Violation(
                at=jetstream.key_span,
                message="JetStream has no `store_dir`: it stores in the directory for temporary files",
                hint="add `store_dir`, unless the command line sets `-sd`",
            )


@rule("VS416", "sync-interval-not-stated", Severity.NOTE)
def sync_interval_not_stated(workspace: Workspace) -> Iterator[Violation]:
    """
    No server sets how often JetStream syncs to disk.

    ## Why is this bad?
    By default servers sync every 2 minutes. An acknowledged message is on most replicas, but perhaps only in memory. If
    one server dies, nothing is lost. If most servers of a region lose power, messages are lost and their sequence
    numbers are reused, so other regions skip the new messages (484 messages in an experiment on 2.15.1;
    server/filestore.go, all versions). `sync_interval: always` costs about two thirds of the throughput. Any explicit
    value counts as a decision. Reported once for all servers.
    """
    blocks = [server.jetstream for server in list_whole(workspace) if server.jetstream and has_jetstream(server)]
    silent = [block.key_span for block in blocks if not has_any(block.conf, "sync_interval", "sync")]
    if silent:
        yield Violation(
            at=silent[0],
            message=f"{format_count(len(silent), 'server')} with the default of 2 minutes: if a whole region loses power, it loses what it acknowledged since the last sync",
            hint="write `sync_interval: always`, or another value if each rack has its own power supply",
        )


def _is_unlimited(written: ConfValue | None) -> bool:
    return written is None or (isinstance(written.value, int) and written.value < 0)


def _describe_default_shares(missing: list[str]) -> str:
    shares = {"max_file": "all of the disk", "max_mem": "three quarters of the memory"}
    return " and ".join(shares[name] for name in missing)


_PAIR_SIZE = 2
_MAX_REGIONS = 40
"""Regions: so many halves can be formed of more that looking for one takes too long."""


@rule("VS409", "region-holds-majority", Severity.WARNING)
def region_holds_majority(workspace: Workspace) -> Iterator[Violation]:
    """
    One region has more than half of the servers with JetStream.

    ## Why is this bad?
    All servers with JetStream of a super-cluster elect one meta leader. Without that region there is no majority: no
    stream or consumer can be created, changed or listed anywhere (10008). Checked if the files contain the
    configurations of all servers. All versions (server/jetstream_cluster.go).
    """
    for names, voters in _list_meta_groups(workspace):
        total = sum(voters.values())
        for name, number in voters.items():
            if len(voters) > _PAIR_SIZE and number * 2 > total:
                yield Violation(
                    at=_find_first(workspace, names, name),
                    message=f"cluster `{name}` has {number} of {total} servers with JetStream: without this cluster the API stops",
                    hint="give every region the same number of servers",
                )


@rule("VS410", "no-majority", Severity.WARNING)
def no_majority(workspace: Workspace) -> Iterator[Violation]:
    """
    A super-cluster has two regions with JetStream, or regions that can split into two equal halves.

    ## Why is this bad?
    The servers with JetStream elect one meta leader, which needs more than half of them. With two regions of equal
    size, the loss of either stops the JetStream API in the other: no stream or consumer can be created, changed or
    listed (10008). Publishing, Direct Get and existing consumers continue to work. Checked if the files contain the
    configurations of all servers. All versions (server/jetstream_cluster.go).
    """
    for names, voters in _list_meta_groups(workspace):
        total = sum(voters.values())
        half = _find_half(voters)
        if len(voters) == _PAIR_SIZE:
            yield _find_two_regions(workspace, names, voters)
        elif len(voters) > _PAIR_SIZE and half:
            yield Violation(
                at=_find_first(workspace, names, next(iter(voters))),
                message=f"{quote_names(half[:10])} have {total // 2} of {total} servers with JetStream: "
                "if they are cut off from the rest, neither half has the API",
                hint="add or remove a server with JetStream, to make the number odd",
                severity=Severity.NOTE,
            )


def _find_two_regions(workspace: Workspace, names: tuple[str, ...], voters: Mapping[str, int]) -> Violation:
    (first, first_size), (second, second_size) = voters.items()
    lost = f"`{first if first_size > second_size else second}`"
    if first_size == second_size:
        lost = f"either of `{first}` and `{second}`"
    return Violation(
        at=_find_first(workspace, names, first),
        message=f"two regions: the loss of {lost} stops the JetStream API everywhere",
        hint="add a third region; one server with JetStream is enough for the vote",
    )


def _find_half(voters: Mapping[str, int]) -> list[str]:
    """Clusters that together have exactly half of the servers; empty if there are none."""
    total = sum(voters.values())
    if len(voters) > _MAX_REGIONS:
        return []
    reached: dict[int, list[str]] = {0: []}
    for name, number in voters.items():
        reached = {already + number: [*names, name] for already, names in reached.items()} | reached
    return reached.get(total // 2, []) if total % 2 == 0 else []


def _list_meta_groups(workspace: Workspace) -> Iterator[tuple[tuple[str, ...], Mapping[str, int]]]:
    """Super-clusters of which all servers are known: their clusters, and how many servers with JetStream each has."""
    sizes = known_cluster_sizes(workspace)
    for names in find_superclusters(workspace):
        voters = count_peers_by_cluster(workspace, names, sizes)
        if voters:
            yield names, _count_by_region(workspace, voters)


def _count_by_region(workspace: Workspace, voters: Mapping[str, int]) -> Mapping[str, int]:
    """*voters* with the members of the stretch cluster counted where they stand, as far as a topology says so."""
    topology = workspace.topology
    stretch = topology.stretch if topology else None
    if topology is None or stretch is None or voters.get(stretch.cluster) != len(stretch.members):
        return voters
    counted = {cluster: number for cluster, number in voters.items() if cluster != stretch.cluster}
    for region in stretch.members:
        cluster = topology.region(region).cluster
        counted[cluster] = counted.get(cluster, 0) + 1
    return counted


def _find_first(workspace: Workspace, names: tuple[str, ...], name: str) -> Span:
    """Where the first server of the cluster *name* is configured."""
    members = (
        server for server in list_whole(workspace) if (cluster_name := cluster_of(server)) and cluster_name.text == name
    )
    server = next(members, None) or list_whole(workspace)[0]
    cluster_name = cluster_of(server)
    return cluster_name.span if cluster_name and cluster_name.text in names else locate_server(server)
