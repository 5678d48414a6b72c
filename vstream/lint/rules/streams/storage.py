"""What VS244 says of streams beside the servers of the same files: none of them can hold the stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.lint.rules.server_values import has_jetstream, is_clustered, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from vstream.lint.rules.streams.api_fields import FieldPath
    from vstream.lint.workspace import ConfValue, ServerConf, Workspace

    Refusal = tuple[FieldPath, str, str]


def find_misfits(workspace: Workspace, fields: Mapping[str, Any]) -> Iterator[Refusal]:
    """Replicas where no server is in a cluster (10074), and more bytes than any server has (10047, 10028)."""
    servers = [server for server in whole(workspace) if has_jetstream(server)]
    if not servers or workspace.topology is not None:
        return
    replicas, size = fields.get("num_replicas"), fields.get("max_bytes")
    if isinstance(replicas, int) and replicas > 1 and not any(map(_may_be_clustered, servers)):
        names = ", ".join(f"`{server.file}`" for server in servers[:3])
        yield (
            ("num_replicas",),
            f"{replicas} replicas, and the servers of {names} are in no cluster",
            "write 1, or give the servers a `cluster`",
        )
    limits = [_read_limit(server, fields.get("storage", "file")) for server in servers]
    sizes = [int(str(limit.value)) for limit in limits if limit is not None and isinstance(limit.value, int)]
    if isinstance(size, int) and len(sizes) == len(servers) and min(sizes) > 0 and size > max(sizes):
        yield (
            ("max_bytes",),
            f"{size:,} bytes, and no server has more than {max(sizes):,}",
            f"write {max(sizes)} or less",
        )


def _may_be_clustered(server: ServerConf) -> bool:
    # Gateways and leaf nodes may make it part of a JetStream of many servers, without a port for routes.
    has_links = server.gateway is not None or bool(server.leaf_remotes)
    return is_clustered(server) or server.cluster is not None or has_links


def _read_limit(server: ServerConf, storage: object) -> ConfValue | None:
    jetstream = server.jetstream
    if jetstream is None:
        return None
    return jetstream.max_memory if storage in {"memory", 1} else jetstream.max_file
