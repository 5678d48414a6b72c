"""The quorum of the meta group, without which the JetStream API stops."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vstream.diagnostics import Severity, Span
from vstream.formatting import join_names
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.server_values import cluster, peers, place, servers_by_cluster, super_clusters, whole
from vstream.lint.workspace import Workspace

_TWO = 2
_COUNTABLE = 40
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
    for names, voters in _meta_groups(workspace):
        total = sum(voters.values())
        for name, number in voters.items():
            if len(voters) > _TWO and number * 2 > total:
                yield Violation(
                    at=_first(workspace, names, name),
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
    for names, voters in _meta_groups(workspace):
        total = sum(voters.values())
        half = _half(voters)
        if len(voters) == _TWO:
            yield _two_regions(workspace, names, voters)
        elif len(voters) > _TWO and half:
            yield Violation(
                at=_first(workspace, names, next(iter(voters))),
                message=f"{join_names(half[:10])} have {total // 2} of {total} servers with JetStream: "
                "if they are cut off from the rest, neither half has the API",
                hint="add or remove a server with JetStream, to make the number odd",
                severity=Severity.NOTE,
            )


def _two_regions(workspace: Workspace, names: tuple[str, ...], voters: Mapping[str, int]) -> Violation:
    (first, first_size), (second, second_size) = voters.items()
    lost = f"`{first if first_size > second_size else second}`"
    if first_size == second_size:
        lost = f"either of `{first}` and `{second}`"
    return Violation(
        at=_first(workspace, names, first),
        message=f"two regions: the loss of {lost} stops the JetStream API everywhere",
        hint="add a third region; one server with JetStream is enough for the vote",
    )


def _half(voters: Mapping[str, int]) -> list[str]:
    """Clusters that together have exactly half of the servers; empty if there are none."""
    total = sum(voters.values())
    if len(voters) > _COUNTABLE:
        return []
    reached: dict[int, list[str]] = {0: []}
    for name, number in voters.items():
        reached = {already + number: [*names, name] for already, names in reached.items()} | reached
    return reached.get(total // 2, []) if total % 2 == 0 else []


def _meta_groups(workspace: Workspace) -> Iterator[tuple[tuple[str, ...], Mapping[str, int]]]:
    """Super-clusters of which all servers are known: their clusters, and how many servers with JetStream each has."""
    sizes = servers_by_cluster(workspace)
    for names in super_clusters(workspace):
        voters = peers(workspace, names, sizes)
        if voters:
            yield names, _by_region(workspace, voters)


def _by_region(workspace: Workspace, voters: Mapping[str, int]) -> Mapping[str, int]:
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


def _first(workspace: Workspace, names: tuple[str, ...], name: str) -> Span:
    """Where the first server of the cluster *name* is configured."""
    members = (server for server in whole(workspace) if (cluster_name := cluster(server)) and cluster_name.text == name)
    server = next(members, None) or whole(workspace)[0]
    cluster_name = cluster(server)
    return cluster_name.span if cluster_name and cluster_name.text in names else place(server)
