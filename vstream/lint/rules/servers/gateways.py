"""Gateways: which regions a server knows of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.servers.values import cluster, is_on, super_clusters, whole
from vstream.lint.rules.wording import join_names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import Workspace

_REJECT = ("reject_unknown_cluster", "reject_unknown")


@rule("VS407", "gateway-list-incomplete", Severity.WARNING)
def incomplete_gateways(workspace: Workspace) -> Iterator[Violation]:
    """
    A server's list of gateways lacks a region that belongs to the super-cluster.

    ## Why is this bad?
    The server learns of the region only from others that know it. If it starts while
    they cannot be reached, it stays apart from that region; with
    `reject_unknown_cluster` it refuses the region for ever, which is an error (all
    versions; server/gateway.go). Regions are those of the topology, or those that
    any of the servers lists. Do not change the list of running servers: a reload
    refuses it, and all that come after.
    """
    belongs = {name: names for names in super_clusters(workspace) for name in names}
    for server in whole(workspace):
        own = cluster(server)
        if own is None or own.text is None or own.text not in belongs:
            continue
        gateway = server.gateway
        listed = {own.text, *(remote.name.text for remote in (gateway.remotes if gateway else ()) if remote.name)}
        lacking = [name for name in belongs[own.text] if name not in listed]
        if not lacking:
            continue
        rejects = gateway is not None and is_on(gateway.conf, *_REJECT)
        yield Violation(
            at=gateway.key_span if gateway else own.span,
            message=f"cluster `{own.text}` has no gateway to {join_names(lacking[:10])}"
            + (", and refuses clusters that it does not list" if rejects else ""),
            hint="list all regions in the `gateways` of every server",
            severity=Severity.ERROR if rejects else None,
        )


@rule("VS408", "unknown-clusters-rejected", Severity.NOTE)
def rejects_unknown(workspace: Workspace) -> Iterator[Violation]:
    """
    A super-cluster refuses regions that it does not list.

    ## Why is this bad?
    It is a good defence. But a region that you add is refused until every server lists
    it, and a gateway block cannot be reloaded: `config reload not supported for
    Gateway`. Each server has to be restarted (all versions; server/gateway.go,
    reload.go). Said once for all servers.
    """
    for server in whole(workspace):
        gateway = server.gateway
        if gateway is not None and is_on(gateway.conf, *_REJECT):
            yield Violation(
                at=gateway.key_span,
                message="clusters that are not listed are refused: to add a region, restart every server with a longer list",
                hint="keep it, and plan a rolling restart before you add a region",
            )
            return
