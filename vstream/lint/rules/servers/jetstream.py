"""JetStream of a server: enabled, limited, and on durable storage."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from vstream.diagnostics import Severity, Span
from vstream.formatting import format_count
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.server_values import cluster, directory, has_any, has_jetstream, super_clusters, whole
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
    servers = whole(workspace)
    equipped = {cluster_name.text for server in servers if has_jetstream(server) and (cluster_name := cluster(server))}
    needed = set(workspace.topology.clusters if workspace.topology else ())
    beside = {posixpath.dirname(stream.file) for stream in workspace.streams}
    for stream in workspace.streams:
        placement = stream.config.fields.get("placement")
        needed.update([str(placement.get("cluster"))] if isinstance(placement, dict) else ())
    joined = {name for names in super_clusters(workspace) if equipped.intersection(names) for name in names}
    lacking: dict[str, list[tuple[Span, ServerConf]]] = {}
    for server in servers:
        written = cluster(server)
        if written is not None and written.text is not None and written.text not in equipped:
            lacking.setdefault(written.text, []).append((written.span, server))
    for name, members in lacking.items():
        at, first = members[0]
        is_on_purpose = any(server.jetstream for _, server in members)
        may_be_needed = name in joined or (directory(first) in beside and not equipped)
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
                f"it takes {_default_shares(missing)} that is available when it starts",
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
    for server in whole(workspace):
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
    blocks = [server.jetstream for server in whole(workspace) if server.jetstream and has_jetstream(server)]
    silent = [block.key_span for block in blocks if not has_any(block.conf, "sync_interval", "sync")]
    if silent:
        yield Violation(
            at=silent[0],
            message=f"{format_count(len(silent), 'server')} with the default of 2 minutes: if a whole region loses power, it loses what it acknowledged since the last sync",
            hint="write `sync_interval: always`, or another value if each rack has its own power supply",
        )


def _is_unlimited(written: ConfValue | None) -> bool:
    return written is None or (isinstance(written.value, int) and written.value < 0)


def _default_shares(missing: list[str]) -> str:
    shares = {"max_file": "all of the disk", "max_mem": "three quarters of the memory"}
    return " and ".join(shares[name] for name in missing)
