"""JetStream of a server: on, bounded, and on a disk that lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.server_values import cluster, has_any, has_jetstream, super_clusters, whole
from vstream.lint.rules.wording import count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.lint.workspace import ConfValue, Workspace


@rule("VS413", "jetstream-off", Severity.WARNING)
def jetstream_off(workspace: Workspace) -> Iterator[Violation]:
    """
    No server of a cluster has JetStream, though others have.

    ## Why is this bad?
    The region can hold no stream: neither a write nor a read stream can be placed there
    (`no suitable peers for placement`, 10005; all versions). Reported where streams, a
    topology, or other clusters of its super-cluster among the files use JetStream, or where
    it is switched off here and on elsewhere, once for a cluster.
    """
    servers = whole(workspace)
    equipped = {cluster_name.text for server in servers if has_jetstream(server) and (cluster_name := cluster(server))}
    uses_streams = bool(workspace.streams or workspace.topology)
    joined = {name for names in super_clusters(workspace) if equipped.intersection(names) for name in names}
    seen: set[str] = set()
    for server in servers:
        cluster_name = cluster(server)
        if (
            cluster_name is None
            or cluster_name.text is None
            or cluster_name.text in equipped
            or cluster_name.text in seen
        ):
            continue
        is_switched_off = equipped and server.jetstream is not None
        if not (uses_streams or is_switched_off or cluster_name.text in joined):
            continue
        seen.add(cluster_name.text)
        if any(listener.block == "leafnodes" for listener in server.listeners):
            continue  # a hub: it joins domains, and stores nothing
        yield Violation(
            at=server.jetstream.span if server.jetstream else cluster_name.span,
            message=f"no server of cluster `{cluster_name.text}` has JetStream: no stream can be placed there",
            hint="add `jetstream { store_dir: …, max_file: …, max_mem: … }`",
        )


@rule("VS414", "unlimited-storage", Severity.WARNING)
def unlimited_storage(workspace: Workspace) -> Iterator[Violation]:
    """
    JetStream has no limit for its disk or its memory.

    ## Why is this bad?
    Without limits a server takes what it finds at its start: three quarters of the memory,
    and for files what is free on the disk (server/jetstream.go, dynJetStreamConfig;
    all versions). Several servers on one host each take all of it. When a disk is full,
    the server turns JetStream off and does not turn it on again.
    """
    for server in whole(workspace):
        jetstream = server.jetstream
        if jetstream is None or not has_jetstream(server):
            continue
        limits = {"max_file": jetstream.max_file, "max_mem": jetstream.max_memory}
        missing = [name for name, written in limits.items() if _is_unlimited(written)]
        if missing:
            yield Violation(
                at=jetstream.key_span,
                message=f"JetStream has no {' and no '.join(f'`{name}`' for name in missing)}: "
                f"it takes {_default_shares(missing)} that it finds at its start",
                hint="state how much this server may use",
            )


@rule("VS415", "temporary-store", Severity.WARNING)
def temporary_store(workspace: Workspace) -> Iterator[Violation]:
    """
    JetStream does not say where to store.

    ## Why is this bad?
    It takes a directory for temporary files: `Temporary storage directory used, data
    could be lost on system reboot` (all versions; server/jetstream.go). Two such servers
    on one host share it. A directory may also come from the command line, with `-sd`.
    """
    for server in whole(workspace):
        jetstream = server.jetstream
        if jetstream is None or not has_jetstream(server) or jetstream.store_dir is not None:
            continue
        if not has_any(server.root, "store_dir", "storedir"):
            yield Violation(
                at=jetstream.key_span,
                message="JetStream has no `store_dir`: it stores among temporary files",
                hint="add `store_dir`, unless the command line has `-sd`",
            )


@rule("VS416", "sync-interval-not-stated", Severity.NOTE)
def sync_interval(workspace: Workspace) -> Iterator[Violation]:
    """
    Nothing says how often JetStream writes to its disks for good.

    ## Why is this bad?
    By default servers sync every 2 minutes. An acknowledged message is on most replicas,
    but in memory: a server that dies loses nothing, a power failure of most servers of one
    region does, and the sequence numbers of what was lost are used again, which the
    other regions skip (484 messages in an experiment on 2.15.1; server/filestore.go,
    all versions). `sync_interval: always` costs about two thirds of the throughput. Any
    value that is written down counts as a decision. Said once for all servers.
    """
    blocks = [server.jetstream for server in whole(workspace) if server.jetstream and has_jetstream(server)]
    silent = [block.key_span for block in blocks if not has_any(block.conf, "sync_interval", "sync")]
    if silent:
        yield Violation(
            at=silent[0],
            message=f"{count(len(silent), 'server')} with the default of 2 minutes: "
            "a power failure of a whole region loses what it acknowledged since",
            hint="write `sync_interval: always`, or another value if racks have power of their own",
        )


def _is_unlimited(written: ConfValue | None) -> bool:
    return written is None or (isinstance(written.value, int) and written.value < 0)


def _default_shares(missing: list[str]) -> str:
    shares = {"max_file": "all of the disk", "max_mem": "three quarters of the memory"}
    return " and ".join(shares[name] for name in missing)
