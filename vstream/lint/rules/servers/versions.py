"""Options that older servers do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.servers.values import whole
from vstream.lint.rules.streams.values import stated_version
from vstream.lint.rules.wording import format_version
from vstream.syntax.natsconf import ConfArray, ConfMap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.diagnostics import Span
    from vstream.lint.workspace import Workspace
    from vstream.syntax.natsconf import ConfEntry
    from vstream.topology.model import ServerVersion

_DEADLINES: Mapping[str, ServerVersion] = {"write_deadline": (2, 11), "write_timeout": (2, 11)}
_SINCE: Mapping[str, Mapping[str, ServerVersion]] = {
    "": {
        "default_sentinel": (2, 11),
        "feature_flags": (2, 14),
        "proxies": (2, 12),
        "proxy_protocol": (2, 12),
        "server_metadata": (2, 12),
        "trace_headers": (2, 11),
        "write_timeout": (2, 11),
    },
    "account": {"msg_trace": (2, 11), "trace_dest": (2, 11)},
    "cluster": {**_DEADLINES, "connect_backoff": (2, 12)},
    "gateway": {**_DEADLINES, "connect_backoff": (2, 12)},
    "jetstream": {
        "info_queue_limit": (2, 14),
        "max_buffered_msgs": (2, 11),
        "max_buffered_size": (2, 11),
        "max_concurrent_io": (2, 14),
        "meta_compact": (2, 11),
        "meta_compact_size": (2, 11),
        "meta_compact_sync": (2, 12),
        "strict": (2, 11),
        "tpm": (2, 11),
    },
    "leafnodes": {
        **_DEADLINES,
        "dial_timeout": (2, 14),
        "isolate": (2, 12),
        "isolate_leafnode_interest": (2, 12),
    },
    "mqtt": {"api_timeout": (2, 11), "js_api_timeout": (2, 11)},
    "remote": {
        "dial_timeout": (2, 14),
        "disabled": (2, 12),
        "ignore_discovered_servers": (2, 14),
        "isolate": (2, 12),
        "isolate_leafnode_interest": (2, 12),
        "proxy": (2, 12),
        "request_isolation": (2, 12),
    },
    "websocket": {"headers": (2, 11), "ping_interval": (2, 11)},
}
"""By the block they stand in: what servers of 2.10 do not know, with the version that does."""
_BLOCKS = {
    "cluster": "cluster",
    "gateway": "gateway",
    "jetstream": "jetstream",
    "leaf": "leafnodes",
    "mqtt": "mqtt",
} | {
    "leafnodes": "leafnodes",
    "websocket": "websocket",
    "ws": "websocket",
}


@rule("VS420", "option-needs-newer-server", Severity.ERROR)
def needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    An option is newer than the oldest server that has to read the file.

    ## Why is this bad?
    A server does not start with an option that it does not know (`unknown field`), and
    refuses to reload. Looked at only where the oldest version is stated. The options
    are those that `server/opts.go` of 2.11, 2.12 and 2.14 has and that of 2.10 has not
    (compared with `nats-server -t` of 2.10.26, 2.11.11 and 2.12.8).
    """
    oldest = stated_version(workspace)
    if oldest is None:
        return
    seen: set[Span] = set()
    for server in whole(workspace):
        # Servers say nothing of an unknown option that some reference uses as a variable.
        variables = {reference.definition for reference in server.document.references}
        for block, one in _options(server.root):
            since = _SINCE[block].get(one.key.lower())
            if since is None or oldest >= since or one.key_span in seen or one.key_span in variables:
                continue
            seen.add(one.key_span)
            yield Violation(
                at=one.key_span,
                message=f"`{one.key}` needs nats-server {format_version(since)}, the oldest is {format_version(oldest)}",
                hint=f"remove it until all servers are {format_version(since)}: an older one does not start with it",
            )


def _options(root: ConfMap) -> Iterator[tuple[str, ConfEntry]]:
    """Every option, with the block that it stands in."""
    for one in root.effective():
        name = one.key.lower()
        yield "", one
        if not isinstance(one.value, ConfMap):
            continue
        if name == "accounts":
            for account in one.value.effective():
                if isinstance(account.value, ConfMap):
                    yield from (("account", inner) for inner in account.value.effective())
        elif name in _BLOCKS:
            block = _BLOCKS[name]
            yield from ((block, inner) for inner in one.value.effective())
            remotes = one.value.get_folded("remotes") if block == "leafnodes" else None
            for remote in remotes.items if isinstance(remotes, ConfArray) else ():
                if isinstance(remote, ConfMap):
                    yield from (("remote", inner) for inner in remote.effective())
