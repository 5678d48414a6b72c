"""For VS243 and VS244: streams and consumers that none of the servers in the same files would take."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vstream.formatting import format_count, quote_names
from vstream.lint.api_fields import FieldPath
from vstream.lint.reading.nodes import entry, option, table
from vstream.lint.rules.server_values import cluster_of, has_jetstream, is_clustered, list_whole, read_duration
from vstream.lint.rules.streams.values import count_replicas, read_number
from vstream.lint.workspace import ServerConf, StreamFile, Workspace
from vstream.syntax.natsconf.nodes import ConfMap

Refusal = tuple[FieldPath, str, str]
Misfit = tuple[StreamFile, FieldPath, str, str]

_ON = (True, "enabled", "enable")
_REQUIRED = ("max_bytes_required", "max_stream_bytes", "max_bytes")
_BYTES = {
    "file": (
        ("max_store", "max_file", "max_disk", "store", "disk"),
        ("disk_max_stream_bytes", "store_max_stream_bytes"),
    ),
    "memory": (("max_memory", "max_mem", "mem", "memory"), ("mem_max_stream_bytes", "memory_max_stream_bytes")),
}
"""Of an account: what all its streams may have in bytes, and what one may."""


def find_misfits(workspace: Workspace) -> Iterator[Misfit]:
    """
    Streams that no server of the files can hold, or no account of them may.

    Replicas where no server is in a cluster (10074), more bytes than any server has (10047, 10028), and what accounts
    (10113, 10122, 10047, 10028, 10027, 10026) and servers limit (10052).
    """
    servers = _list_storing(workspace)
    if not servers:
        return
    accounts = _list_limited_accounts(servers)
    limits = [conf for _, conf in accounts]
    for stream in workspace.streams:
        refusals = (*_check_servers(servers, stream), *_check_account(limits, stream))
        yield from ((stream, *refusal) for refusal in refusals)
    is_one_system = len({str(name.text) if (name := cluster_of(server)) else server.file for server in servers}) == 1
    if is_one_system:
        directories = defaultdict(list)
        for stream in workspace.streams:
            directories[posixpath.dirname(stream.file)].append(stream)
        for streams in directories.values():
            # Streams of one name are said to be two by VS235.
            apart = list({stream.config.name: stream for stream in streams}.values())
            yield from _check_bytes(servers, limits if _is_same_account(accounts) else [], apart)
            most = _find_largest(limits, "max_streams", "streams") if _is_same_account(accounts) else None
            for stream in apart[most : most + 1] if most is not None else ():
                message = f"{format_count(len(apart), 'stream')}, and the account may have {most}"
                yield stream, ("name",), message, f"raise its `max_streams` to {len(apart)}, or remove a stream"


def find_consumer_misfits(workspace: Workspace, fields: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Pending messages and requests beyond what each server or account allows (10121, 10125)."""
    servers = _list_storing(workspace)
    blocks = [table(server.jetstream.conf, "limits") if server.jetstream else None for server in servers]
    accounts = [conf for _, conf in _list_limited_accounts(servers)]
    for name, option_name, confs, who in (
        ("max_ack_pending", "max_ack_pending", blocks, "server"),
        ("max_ack_pending", "max_ack_pending", accounts, "account"),
        ("max_batch", "max_request_batch", blocks, "server"),
    ):
        most, value = _find_largest(confs, option_name), fields.get(name)
        if most is not None and isinstance(value, int) and value > most:
            yield name, f"`{name}` is {value}, and no {who} allows more than {most}", f"write {most} or less"


def _list_storing(workspace: Workspace) -> list[ServerConf]:
    # Beside a topology, what servers it has is known from there.
    servers = list_whole(workspace) if workspace.topology is None else []
    return [server for server in servers if has_jetstream(server)]


def _list_limited_accounts(servers: list[ServerConf]) -> list[tuple[str, ConfMap]]:
    """The accounts that may have streams and what they are limited to; empty where one of them has no limits."""
    limited: list[tuple[str, ConfMap]] = []
    for server in servers:
        written = ((account.name, entry(account.conf, "jetstream")) for account in server.accounts)
        switched = [(name, jetstream.value) for name, jetstream in written if jetstream is not None]
        is_open = not switched or any(getattr(node, "value", None) in _ON for _, node in switched)
        # Through a leaf node, streams are stored elsewhere.
        if is_open or server.leaf_remotes:
            return []
        limited += [(name, node) for name, node in switched if isinstance(node, ConfMap)]
    return limited


def _is_same_account(accounts: list[tuple[str, ConfMap]]) -> bool:
    return len({name for name, _ in accounts}) == 1


def _find_largest(confs: Iterable[ConfMap | None], *names: str) -> int | None:
    """The largest limit of the option *names*; None where one of *confs* has no limit, or there are none."""
    limits = [option(conf, *names) for conf in confs]
    numbers = [limit.value for limit in limits if limit and isinstance(limit.value, int) and limit.value > 0]
    return max(numbers) if numbers and len(numbers) == len(limits) else None


def _check_servers(servers: list[ServerConf], stream: StreamFile) -> Iterator[Refusal]:
    copies, size, window = (
        count_replicas(stream),
        read_number(stream, "max_bytes"),
        read_number(stream, "duplicate_window"),
    )
    if copies > 1 and not any(map(_may_be_clustered, servers)):
        names = quote_names(server.file for server in servers[:3])
        yield (
            ("num_replicas",),
            f"{copies} replicas, and the servers of {names} are in no cluster",
            "write 1, or give the servers a `cluster`",
        )
    sizes = _read_sizes(servers, stream)
    if sizes and size > max(sizes):
        yield (
            ("max_bytes",),
            f"{size:,} bytes, and no server has more than {max(sizes):,}",
            f"write {max(sizes)} or less",
        )
    blocks = [table(server.jetstream.conf, "limits") if server.jetstream else None for server in servers]
    longest = [read_duration(option(block, "duplicate_window")) or window for block in blocks]
    if window > max(longest):
        hint = f"write {max(longest)} or less"
        yield ("duplicate_window",), "the window is longer than every server's `duplicate_window`", hint


def _check_account(limits: list[ConfMap], stream: StreamFile) -> Iterator[Refusal]:
    size, (in_all, in_one) = read_number(stream, "max_bytes"), _BYTES[_storage(stream)]
    is_required = [option(conf, *_REQUIRED) for conf in limits]
    if size <= 0 and limits and all(required and required.value is True for required in is_required):
        yield ("max_bytes",), "every account must state `max_bytes`", 'add `"max_bytes": …`, in bytes'
    for names, scope in ((in_one, "in one stream"), (in_all, "in all")):
        most = _find_largest(limits, *names)
        if most is not None and size > most:
            message = f"{size:,} bytes, and no account may have more than {most:,} {scope}"
            yield ("max_bytes",), message, f"write {most} or less"
            return
    most, consumers = _find_largest(limits, "max_consumers", "consumers"), read_number(stream, "max_consumers")
    if most is not None and consumers > most:
        message = f"{consumers} consumers, and no account may have more than {most}"
        yield ("max_consumers",), message, f"write {most} or less"


def _check_bytes(servers: list[ServerConf], limits: list[ConfMap], streams: list[StreamFile]) -> Iterator[Misfit]:
    """What all streams together reserve: each copy on a server, and each stream once for the account."""
    for storage, (in_all, _) in _BYTES.items():
        reserving = [
            stream for stream in streams if _storage(stream) == storage and read_number(stream, "max_bytes") > 0
        ]
        room, most = sum(_read_sizes(servers, reserving[0])) if reserving else 0, _find_largest(limits, *in_all)
        used = used_once = 0
        for stream in reserving:
            size = read_number(stream, "max_bytes")
            used, used_once = used + size * count_replicas(stream), used_once + size
            for total, limit, whose in ((used, room, "the servers have"), (used_once, most, "the account may have")):
                if limit and size <= limit < total <= limit + size:
                    message = f"with the streams before it, {total:,} bytes are reserved, and {whose} {limit:,}"
                    yield stream, ("max_bytes",), message, "write less here, or give them more"


def _storage(stream: StreamFile) -> str:
    return "memory" if stream.config.fields.get("storage") in {"memory", 1} else "file"


def _may_be_clustered(server: ServerConf) -> bool:
    # Gateways and leaf nodes may make it part of a JetStream of many servers, without a port for routes.
    has_links = server.gateway is not None or bool(server.leaf_remotes)
    return is_clustered(server) or server.cluster is not None or has_links


def _read_sizes(servers: list[ServerConf], stream: StreamFile) -> list[int]:
    """How many bytes each server has for streams stored like *stream*; empty where one does not say."""
    blocks = [server.jetstream for server in servers if server.jetstream]
    limits = [block.max_memory if _storage(stream) == "memory" else block.max_file for block in blocks]
    sizes = [limit.value for limit in limits if limit is not None and isinstance(limit.value, int) and limit.value > 0]
    return sizes if len(sizes) == len(servers) else []
