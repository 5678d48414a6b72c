"""Every option that servers know, by the block it belongs to (server/opts.go), and rules about options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, NamedTuple

from vstream.diagnostics import Severity, Span
from vstream.formatting import quote_value
from vstream.lint.detect import nearest_option
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.server_values import whole
from vstream.lint.workspace import ServerConf, Workspace
from vstream.syntax.natsconf.nodes import ConfArray, ConfEntry, ConfMap, ConfNode
from vstream.topology.versions import format_version

if TYPE_CHECKING:
    from vstream.topology.model import ServerVersion


FIRST: Final[ServerVersion] = (0, 0)


@dataclass(frozen=True, slots=True)
class Block:
    """
    One kind of block. *title* says which, *options* are the names it may hold.

    *since* has those that 2.10 does not know (compared with `nats-server -t` of 2.10.26, 2.11.11 and 2.12.8), *inner*
    the blocks below it, and *items* the block that each entry with a name of one's own is, as under `accounts`.
    """

    title: str
    options: frozenset[str] = frozenset()
    since: Mapping[str, ServerVersion] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    items: str | None = None


def _block(
    title: str,
    options: str,
    *,
    since: Mapping[str, ServerVersion] | None = None,
    inner: Mapping[str, str] | None = None,
) -> Block:
    names = frozenset(options.split())
    return Block(title=title, options=names | frozenset(since or ()), since=since or {}, inner=inner or {})


_ADDRESS = "listen port host net"
_LOGIN = "user username pass password"
_TRIPLE = f"{_LOGIN} token timeout"
_DEADLINES: Final[Mapping[str, ServerVersion]] = {"write_deadline": (2, 11), "write_timeout": (2, 11)}
_ISOLATE: Final[Mapping[str, ServerVersion]] = {"isolate": (2, 12), "isolate_leafnode_interest": (2, 12)}
_PROXY_REQUIRED: Final[Mapping[str, ServerVersion]] = {"proxy_required": (2, 12)}
_PERMISSIONS = dict.fromkeys(("permission", "permissions", "default_permission", "default_permissions"), "permissions")
_COMPRESSION = {"compression": "compression"}
_TLS = {"tls": "tls"}

BLOCKS: Final[Mapping[str, Block]] = {
    "server": _block(
        "a server",
        f"{_ADDRESS} client_advertise server_name debug trace trace_verbose logtime logtime_utc mappings maps "
        "disable_sublist_cache no_sublist_cache accounts authorization http https http_port monitor_port https_port "
        "http_base_path cluster gateway leaf leafnodes store_dir storedir jetstream logfile log_file logfile_size_limit "
        "log_size_limit logfile_max_num log_max_num syslog remote_syslog pidfile pid_file ports_file_dir prof_port "
        "prof_block_rate max_control_line max_payload max_pending max_connections max_conn max_traced_msg_len "
        "max_subscriptions max_subs max_sub_tokens max_subscription_tokens ping_interval ping_max tls ocsp allow_non_tls "
        "write_deadline lame_duck_duration lame_duck_grace_period operator operators roots root root_operators "
        "root_operator resolver account_resolver accounts_resolver resolver_tls resolver_preload "
        "resolver_pinned_accounts no_auth_user system_account system no_system_account no_system no_sys_acc "
        "no_header_support trusted trusted_keys connect_error_reports reconnect_error_reports websocket ws mqtt "
        "server_tags default_js_domain ocsp_cache no_fast_producer_stall max_closed_clients",
        since={
            "default_sentinel": (2, 11),
            "feature_flags": (2, 14),
            "proxies": (2, 12),
            "proxy_protocol": (2, 12),
            "server_metadata": (2, 12),
            "trace_headers": (2, 11),
            "write_timeout": (2, 11),
        },
        inner={
            "accounts": "accounts",
            "authorization": "authorization",
            "cluster": "cluster",
            "gateway": "gateway",
            "jetstream": "jetstream",
            "leaf": "leafnodes",
            "leafnodes": "leafnodes",
            "mqtt": "mqtt",
            "ocsp": "ocsp",
            "ocsp_cache": "ocsp_cache",
            "proxies": "proxies",
            "resolver_tls": "tls",
            "websocket": "websocket",
            "ws": "websocket",
            **_TLS,
        },
    ),
    "accounts": Block(title="`accounts`", items="account"),
    "account": _block(
        "an account",
        "nkey imports exports jetstream users default_permissions mappings maps limits",
        since={"msg_trace": (2, 11), "trace_dest": (2, 11)},
        inner={
            "default_permissions": "permissions",
            "exports": "export",
            "imports": "import",
            "jetstream": "account_jetstream",
            "limits": "account_limits",
            "msg_trace": "msg_trace",
            "trace_dest": "msg_trace",
            "users": "user",
        },
    ),
    "account_jetstream": _block(
        "the `jetstream` of an account",
        "enabled enable disabled disable max_memory max_mem mem memory max_store max_file max_disk store disk max_streams "
        "streams max_consumers consumers max_bytes_required max_stream_bytes max_bytes mem_max_stream_bytes "
        "memory_max_stream_bytes disk_max_stream_bytes store_max_stream_bytes max_ack_pending cluster_traffic",
    ),
    "account_limits": _block(
        "the `limits` of an account",
        "max_connections max_conn max_subscriptions max_subs max_payload max_pay max_leafnodes max_leafs",
    ),
    "msg_trace": _block("`msg_trace`", "dest sampling"),
    "export": _block(
        "an export",
        "stream service response response_type threshold response_threshold response_max_time response_time accounts "
        "latency account_token_position allow_trace",
    ),
    "import": _block(
        "an import",
        "stream service prefix to share allow_trace",
        inner={"stream": "import_source", "service": "import_source"},
    ),
    "import_source": _block("what is imported", "account subject"),
    "authorization": _block(
        "`authorization`",
        f"{_TRIPLE} users permissions default_permission default_permissions auth_callout auth_hook",
        since=_PROXY_REQUIRED,
        inner={**_PERMISSIONS, "auth_callout": "auth_callout", "auth_hook": "auth_callout", "users": "user"},
    ),
    "auth_callout": _block("`auth_callout`", "issuer account acc auth_users users xkey key allowed_accounts"),
    "user": _block(
        "a user",
        f"nkey {_LOGIN} permission permissions authorization allowed_connection_types connection_types clients",
        since=_PROXY_REQUIRED,
        inner={**_PERMISSIONS, "authorization": "permissions"},
    ),
    "permissions": _block(
        "permissions",
        "pub publish import sub subscribe export publish_allow_responses allow_responses",
        inner={
            **dict.fromkeys(("pub", "publish", "import", "sub", "subscribe", "export"), "subjects"),
            **dict.fromkeys(("publish_allow_responses", "allow_responses"), "responses"),
        },
    ),
    "subjects": _block("the subjects of a permission", "allow deny"),
    "responses": _block("`allow_responses`", "max max_msgs max_messages max_responses expires expiration ttl"),
    "cluster": _block(
        "`cluster`",
        f"name {_ADDRESS} authorization routes tls cluster_advertise advertise no_advertise connect_retries permissions "
        "pool_size accounts compression ping_interval ping_max",
        since={**_DEADLINES, "connect_backoff": (2, 12)},
        inner={"authorization": "link_login", "permissions": "permissions", **_COMPRESSION, **_TLS},
    ),
    "login": _block("this `authorization`", _TRIPLE),
    "link_login": _block("the `authorization` between servers", f"{_LOGIN} timeout"),
    "compression": _block("`compression`", "mode rtt_thresholds thresholds rtts rtt"),
    "gateway": _block(
        "`gateway`",
        f"name {_ADDRESS} authorization tls advertise connect_retries gateways reject_unknown reject_unknown_cluster",
        since={**_DEADLINES, "connect_backoff": (2, 12)},
        inner={"authorization": "link_login", "gateways": "remote_gateway", **_TLS},
    ),
    "remote_gateway": _block("a remote gateway", "name tls url urls", inner=_TLS),
    "jetstream": _block(
        "`jetstream`",
        "enabled enable disabled disable store store_dir storedir sync sync_interval max_memory_store max_mem_store "
        "max_mem max_file_store max_file domain key ek encryption_key prev_key prev_ek prev_encryption_key cipher "
        "extension_hint limits unique_tag max_outstanding_catchup request_queue_limit",
        since={
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
        inner={"limits": "jetstream_limits", "tpm": "tpm"},
    ),
    "jetstream_limits": _block(
        "the `limits` of `jetstream`",
        "max_ack_pending max_ha_assets max_request_batch duplicate_window batch",
        inner={"batch": "batch_limits"},
    ),
    "batch_limits": _block("`batch`", "max_inflight_per_stream max_inflight_total max_msgs timeout"),
    "tpm": _block("`tpm`", "keys_file encryption_password srk_password pcr cipher"),
    "leafnodes": _block(
        "`leafnodes`",
        f"{_ADDRESS} authorization remotes reconnect reconnect_delay reconnect_interval tls leafnode_advertise advertise "
        "no_advertise min_version minimum_version compression",
        since={**_DEADLINES, **_ISOLATE, "dial_timeout": (2, 14)},
        inner={"authorization": "leaf_authorization", "remotes": "remote", **_COMPRESSION, **_TLS},
    ),
    "leaf_authorization": _block(
        "the `authorization` of leaf nodes",
        f"{_LOGIN} nkey timeout users account",
        since=_PROXY_REQUIRED,
        inner={"users": "leaf_user"},
    ),
    "leaf_user": _block("a user of leaf nodes", f"{_LOGIN} account", since=_PROXY_REQUIRED),
    "remote": _block(
        "a remote of `leafnodes`",
        "no_randomize dont_randomize url urls account local creds credentials nkey seed tls hub deny_imports deny_import "
        "deny_exports deny_export ws_compress ws_compression websocket_compress websocket_compression ws_no_masking "
        "websocket_no_masking jetstream_cluster_migrate js_cluster_migrate compression first_info_timeout",
        since={
            **_ISOLATE,
            "dial_timeout": (2, 14),
            "disabled": (2, 12),
            "ignore_discovered_servers": (2, 14),
            "proxy": (2, 12),
            "request_isolation": (2, 12),
        },
        inner={"proxy": "remote_proxy", **_COMPRESSION, **_TLS},
    ),
    "remote_proxy": _block("the proxy of a remote", "url username password timeout"),
    "tls": _block(
        "`tls`",
        "cert_file key_file ca_file insecure verify verify_and_map verify_cert_and_check_known_urls "
        "allow_insecure_cipher_suites cipher_suites curve_preferences timeout connection_rate_limit pinned_certs "
        "cert_store cert_match_by cert_match ca_certs_match handshake_first first immediate cert_match_skip_invalid "
        "ocsp_peer certs certificates min_version",
    ),
    "websocket": _block(
        "`websocket`",
        f"{_ADDRESS} advertise no_tls tls same_origin allowed_origins allowed_origin allow_origins allow_origin origins "
        "origin handshake_timeout compress compression authorization authentication jwt_cookie user_cookie pass_cookie "
        "token_cookie no_auth_user",
        since={"headers": (2, 11), "ping_interval": (2, 11)},
        inner={"authorization": "login", "authentication": "login", **_TLS},
    ),
    "mqtt": _block(
        "`mqtt`",
        f"{_ADDRESS} tls authorization authentication no_auth_user ack_wait ackwait max_ack_pending max_pending "
        "max_inflight js_domain stream_replicas consumer_replicas consumer_memory_storage consumer_inactive_threshold "
        "consumer_auto_cleanup reject_qos2_publish downgrade_qos2_subscribe",
        since={"api_timeout": (2, 11), "js_api_timeout": (2, 11)},
        inner={"authorization": "login", "authentication": "login", **_TLS},
    ),
    "ocsp": _block("`ocsp`", "mode url urls"),
    "ocsp_cache": _block("`ocsp_cache`", "type local_store preserve_revoked save_interval"),
    "proxies": _block("`proxies`", "trusted", inner={"trusted": "trusted_proxy"}),
    "trusted_proxy": _block("a trusted proxy", "key public_key"),
}


class WrittenOption(NamedTuple):
    """An option as written, and the block it is in."""

    block: Block
    entry: ConfEntry

    @property
    def is_known(self) -> bool:
        """Whether any server knows it there."""
        return self.block.items is not None or self.entry.key.lower() in self.block.options


def options_of(root: ConfMap) -> Iterator[WrittenOption]:
    """Every option of a configuration, at any depth that servers have names for."""
    yield from _options_in(root, BLOCKS["server"])


def _options_in(conf: ConfMap, block: Block) -> Iterator[WrittenOption]:
    for entry in conf.effective():
        yield WrittenOption(block, entry)
        name = block.items or block.inner.get(entry.key.lower())
        if name is not None:
            for inner in _maps_of(entry.value):
                yield from _options_in(inner, BLOCKS[name])


def blocks_of(root: ConfMap) -> Iterator[tuple[ConfMap, Block]]:
    """Every block of a configuration whose options servers have names for, and its kind; the whole of it first."""
    yield from _blocks_in(root, BLOCKS["server"])


def _blocks_in(conf: ConfMap, block: Block) -> Iterator[tuple[ConfMap, Block]]:
    yield conf, block
    for entry in conf.effective():
        name = block.items or block.inner.get(entry.key.lower())
        if name is not None:
            for inner in _maps_of(entry.value):
                yield from _blocks_in(inner, BLOCKS[name])


def _maps_of(node: ConfNode) -> Iterator[ConfMap]:
    """The maps that a value is, or holds as an array."""
    if isinstance(node, ConfMap):
        yield node
    elif isinstance(node, ConfArray):
        yield from (item for item in node.items if isinstance(item, ConfMap))


_ALIKE: Final = 0.8
_MOST_PLACES: Final = 3


@rule("VS420", "option-needs-newer-server", Severity.ERROR)
def option_needs_newer_server(workspace: Workspace) -> Iterator[Violation]:
    """
    An option is newer than the oldest server that has to read the file.

    ## Why is this bad?
    A server does not start with an option that it does not know (`unknown field`), and refuses to reload. Only checked
    if the oldest version is known. The options are those that `server/opts.go` has in 2.11, 2.12 and 2.14 but not in
    2.10 (compared with `nats-server -t` of 2.10.26, 2.11.11 and 2.12.8).
    """
    oldest = workspace.stated_version
    if oldest is None:
        return
    seen: set[Span] = set()
    for server in whole(workspace):
        for option in judged_options(server, seen):
            since = option.block.since.get(option.entry.key.lower(), FIRST)
            if oldest < since:
                yield Violation(
                    at=option.entry.key_span,
                    message=f"`{option.entry.key}` needs nats-server {format_version(since)}, "
                    f"the oldest is {format_version(oldest)}",
                    hint=f"remove it until all servers are {format_version(since)}: older servers do not start with it",
                )


@rule("VS421", "unknown-option", Severity.ERROR)
def unknown_option(workspace: Workspace) -> Iterator[Violation]:
    """
    A configuration has an option that no server knows at that place.

    ## Why is this bad?
    The server does not start (`unknown field`), and refuses to reload. A misspelt `mappings` also hides its rules from
    all checks. The options are those that `server/opts.go` of 2.15 knows in each block. An option that defines a
    variable may have any name.
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        for option in judged_options(server, seen):
            hint = None if option.is_known else _hint(server, option)
            if hint is not None:
                yield Violation(
                    at=option.entry.key_span,
                    message=f"{quote_value(option.entry.key)} is not an option of {option.block.title}: the server does not start",
                    hint=hint,
                )


def judged_options(server: ServerConf, seen: set[Span]) -> Iterator[WrittenOption]:
    """The options of *server*, each place once: not those that define variables, which may be called anything."""
    variables = {reference.definition for reference in server.document.references}
    for option in options_of(server.root):
        if option.entry.key_span not in seen and option.entry.key_span not in variables:
            seen.add(option.entry.key_span)
            yield option


def _hint(server: ServerConf, option: WrittenOption) -> str | None:
    """What was meant; None where it may be right after all, as nobody knows what includes the file."""
    name = option.entry.key.lower()
    places = [block for block in BLOCKS.values() if name in block.options]
    if server.is_fragment and option.block is BLOCKS["server"]:
        meant = None if places else nearest_option(name)
        return f"did you mean `{meant}`?" if meant else None
    close = get_close_matches(name, sorted(option.block.options), n=1, cutoff=_ALIKE if places else 0.6)
    if close:
        return f"did you mean `{close[0]}`?"
    if not places:
        return "remove it"
    return f"move it: `{name}` belongs to {' or '.join(block.title for block in places[:_MOST_PLACES])}"
