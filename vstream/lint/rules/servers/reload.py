"""VS428: what a running server does not take over when it reloads its file."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from vstream.findings import Related, Severity, Span
from vstream.lint.detect import split_words
from vstream.lint.reading.nodes import entry
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.server_values import has_jetstream, list_whole, locate_server
from vstream.lint.workspace import ConfValue, ServerConf, Workspace
from vstream.syntax.natsconf.nodes import ConfArray, ConfMap, ConfNode, to_python

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion

_LEAVES_SINCE: Final[ServerVersion] = (2, 14)
"""From here on, leaf nodes are added and removed by a reload."""
_GROWTH_SINCE: Final[ServerVersion] = (2, 12)
"""From here on, JetStream gets more memory and disk by a reload."""
_STRICT_SINCE: Final[ServerVersion] = (2, 12)
"""From here on, `strict` is the default of JetStream."""
_LIMITS_SINCE: Final[ServerVersion] = (2, 15)
"""From here on, the `limits` of JetStream are reloaded."""
_OPTIONS: Final[Mapping[tuple[str, ...], object]] = {
    ("allow_non_tls",): False,
    ("default_js_domain",): {},
    ("feature_flags",): {},
    ("http_base_path",): "",
    ("lame_duck_duration",): "2m",
    ("lame_duck_grace_period",): "10s",
    ("logfile_max_num", "log_max_num"): 0,
    ("logfile_size_limit", "log_size_limit"): 0,
    ("max_closed_clients",): 10_000,
    ("max_pending",): 64 << 20,
    ("max_sub_tokens", "max_subscription_tokens"): 0,
    ("max_subscriptions", "max_subs"): 0,
    ("no_header_support",): False,
    ("no_sublist_cache", "disable_sublist_cache"): False,
    ("no_system_account", "no_system", "no_sys_acc"): False,
    ("prof_port",): 0,
    ("proxy_protocol",): False,
    ("server_name",): None,
    ("system_account", "system"): None,
    ("trusted_keys", "trusted"): None,
}
"""Options of a server that `diffOptions` has no case for, with their defaults."""
_JETSTREAM: Final[Mapping[tuple[str, ...], object]] = {
    ("cipher",): None,
    ("domain",): "",
    ("extension_hint",): "",
    ("key", "ek", "encryption_key"): None,
    ("max_buffered_msgs",): 0,
    ("max_buffered_size",): 0,
    ("max_outstanding_catchup",): 0,
    ("request_queue_limit",): 0,
    ("sync_interval", "sync"): "2m",
    ("tpm",): {},
    ("unique_tag",): "",
}
_SIZES: Final = (("max_memory_store", "max_mem_store", "max_mem"), ("max_file_store", "max_file"))
"""What JetStream may have more of, and not less."""
_STORE: Final = ("store_dir", "storedir", "store")
_BLOCKS: Final[Mapping[tuple[str, ...], frozenset[str]]] = {
    ("gateway",): frozenset({"tls"}),
    ("leafnodes", "leaf"): frozenset({"compression", "remotes", "tls"}),
    ("mqtt",): split_words(
        "ack_wait consumer_inactive_threshold consumer_memory_storage consumer_replicas max_ack_pending stream_replicas tls"
    ),
    ("websocket", "ws"): frozenset({"tls"}),
}
"""Blocks that are compared as a whole, and what of each may change all the same."""
_FREE_REMOTE: Final = frozenset({"compression", "disabled", "tls"})
_DENIED: Final = frozenset({"deny_export", "deny_exports", "deny_import", "deny_imports"})
"""What of a remote changes nothing until a restart, and is no reason to refuse: before 2.14."""
_LOGINS: Final = (("creds", "credentials"), ("nkey", "seed"))
_ADDRESSES: Final = {"client": "listen", "http": "http", "https": "https", "cluster": "cluster.listen"}
_SIZE: Final = re.compile("([0-9]+)([KMGT])B?")


class _Frozen(NamedTuple):
    """Something that stays as it is until a restart."""

    value: object
    span: Span | None


@rule("VS428", "reload-refused", Severity.ERROR)
def reload_refused(workspace: Workspace) -> Iterator[Violation]:
    """
    A running server refuses to reload the file, because of an option that only a restart changes.

    ## Why is this bad?
    The server logs `config reload not supported for …` and keeps all of its old configuration: other changes in the
    file, such as mappings, are not loaded either. Only checked with `--against`, which names the files of the running
    servers. Servers are matched by `server_name`, or else by the name of the file. Addresses, gateways, websockets, and
    most of MQTT and JetStream cannot be reloaded. Leaf nodes can be added and removed from 2.14 on; a 2.12 server that
    reloads with fewer of them crashes (server/reload.go, diffOptions; each option tried with 2.10 to 2.15).
    """
    by_name = {server.server_name.text: server for server in workspace.running if server.server_name}
    by_file = {posixpath.basename(server.file): server for server in workspace.running}
    for server in list_whole(workspace):
        name = server.server_name.text if server.server_name else None
        running = by_name.get(name) or by_file.get(posixpath.basename(server.file))
        if running is not None:
            yield from _compare(running, server, workspace.server_version)


def _compare(running: ServerConf, server: ServerConf, version: ServerVersion) -> Iterator[Violation]:
    before, after = _list_frozen(running, version), _list_frozen(server, version)
    changed = [name for name in before if before[name].value != after[name].value]
    more = (*_list_changed_sizes(running, server, version), *_list_changed_leaves(running, server, version))
    changed += [name for name in more if name not in changed]
    is_fewer = len(server.leaf_remotes) < len(running.leaf_remotes) and version < _LEAVES_SINCE
    for name in changed:
        crash = "; a 2.12 server crashes" if is_fewer and name == "leafnodes" else ""
        old, new = before[name].span, after[name].span
        yield Violation(
            at=new or locate_server(server),
            message=f"a reload refuses the whole file, because `{name}` differs from the running server{crash}",
            hint="restart the server to change it, or restore the old value",
            related=(Related(span=old or locate_server(running), message="what runs"),),
        )


def _list_frozen(server: ServerConf, version: ServerVersion) -> dict[str, _Frozen]:
    """What a reload cannot change, by its name."""
    frozen = dict(_list_addresses(server))
    for names, default in _OPTIONS.items():
        frozen[names[0]] = _read(server.root, names, default)
    jetstream = server.jetstream_conf
    for names, default in _JETSTREAM.items():
        frozen[f"jetstream.{names[0]}"] = _read(jetstream, names, default)
    frozen["jetstream.strict"] = _read(jetstream, ("strict",), version >= _STRICT_SINCE)
    if version < _LIMITS_SINCE:
        frozen["jetstream.limits"] = _read(jetstream, ("limits",), {})
    for names in _SIZES:
        frozen[f"jetstream.{names[0]}"] = _Frozen(None, _read(jetstream, names, None).span)
    store = _read(jetstream, _STORE, None)
    is_kept = has_jetstream(server) or store.value
    frozen["jetstream.store_dir"] = store if is_kept else _Frozen(None, None)
    for names, free in _BLOCKS.items():
        written = entry(server.root, *names)
        value = _to_plain(written.value, free) if written else None
        frozen[names[0]] = _Frozen(value or None, written.key_span if written else None)
    return frozen


def _read(conf: ConfMap | None, names: tuple[str, ...], default: object) -> _Frozen:
    written = entry(conf, *names)
    if written is None:
        return _Frozen(default, None)
    return _Frozen(_to_plain(written.value), written.key_span)


def _to_plain(node: ConfNode, free: frozenset[str] = frozenset()) -> object:
    """The value, without the options *free*; names of options in lower case."""
    if isinstance(node, ConfArray):
        return [_to_plain(item, free) for item in node.items]
    if not isinstance(node, ConfMap):
        return to_python(node)
    counted = (written for written in node.effective_entries() if written.key.lower() not in free)
    return {written.key.lower(): _to_plain(written.value, free) for written in counted}


def _list_addresses(server: ServerConf) -> Iterator[tuple[str, _Frozen]]:
    by_block = {listener.block: listener for listener in server.listeners}
    for block, name in _ADDRESSES.items():
        listener = by_block.get(block)
        default = 4222 if block == "client" else None
        port = (listener.port or default) if listener else default
        host = "" if listener is None or listener.is_everywhere else listener.host
        is_written = listener is not None and listener.port is not None
        yield name, _Frozen((host, port) if port else None, listener.span if listener and is_written else None)


def _list_changed_sizes(running: ServerConf, server: ServerConf, version: ServerVersion) -> Iterator[str]:
    """The sizes of JetStream that became smaller, or had no limit before."""
    before, after = running.jetstream, server.jetstream
    if before is None or after is None or not before.is_enabled or not after.is_enabled:
        return
    sizes = {
        "max_memory_store": (before.max_memory, after.max_memory),
        "max_file_store": (before.max_file, after.max_file),
    }
    for name, (old, new) in sizes.items():
        old_bytes, new_bytes = _read_bytes(old), _read_bytes(new)
        has_grown = old_bytes is not None and new_bytes is not None and new_bytes > old_bytes
        if old_bytes != new_bytes and not (has_grown and version >= _GROWTH_SINCE):
            yield f"jetstream.{name}"


def _list_changed_leaves(running: ServerConf, server: ServerConf, version: ServerVersion) -> Iterator[str]:
    """`leafnodes`, if its remotes are not those that run: a server of before 2.14 adds and removes none."""
    has_free_leaves = version >= _LEAVES_SINCE
    before, after = (_index_remotes(conf, has_free_leaves=has_free_leaves) for conf in (running, server))
    names = before.keys() & after.keys() if has_free_leaves else before.keys() | after.keys()
    if any(before.get(name) != after.get(name) for name in names):
        yield "leafnodes"


def _index_remotes(server: ServerConf, *, has_free_leaves: bool) -> dict[tuple[object, ...], object]:
    """What of each remote stays as it is, by what makes it the same one (server/opts.go, generateRemoteLeafOptsName)."""
    remotes: dict[tuple[object, ...], object] = {}
    for remote in server.leaf_remotes:
        options = _to_plain(remote.conf, _FREE_REMOTE if has_free_leaves else _FREE_REMOTE | _DENIED)
        login = [_read(remote.conf, names, None).value for names in _LOGINS]
        account = remote.account.value if remote.account else None
        remotes[(*(url.value for url in remote.urls), account, *login)] = options
    return remotes


def _read_bytes(size: ConfValue | None) -> int | None:
    """A size as `getStorageSize` reads it; None where the server chooses one."""
    if size is None or size.value == -1:
        return None
    if isinstance(size.value, int):
        return size.value
    match = _SIZE.fullmatch(str(size.value))
    return int(match[1]) << 10 * (1 + "KMGT".index(match[2])) if match else None
