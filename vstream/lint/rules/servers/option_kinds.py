"""The kinds of values that server options have, by block: from server/opts.go, and asked of `nats-server -t` one by one."""

from __future__ import annotations

import re
from base64 import b32decode
from binascii import crc_hqx
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from vstream.subjects.algebra import is_literal, is_valid


class ValueKind(Enum):
    """The kind of value that the server accepts for an option."""

    BOOLEAN = "true or false"
    INTEGER = "a whole number"
    DURATION = "a duration"
    DURATION_TEXT = "a duration in quotes"
    SECONDS = "a number of seconds, or a duration"
    SYNC = "a duration, or `always`"
    SIZE = "a size"
    TEXT = "a text"
    ARRAY = "an array"
    MAP = "a map"
    SWITCH = "`enabled`, `disabled` or a map"
    FLAG_OR_MAP = "true, false or a map"
    TEXTS = "a text, or an array of texts"
    TEXT_OR_MAP = "a text or a map"
    ADDRESS = "a port, or `host:port`"
    FIRST = "true, false, `auto` or a duration"


Words = tuple[str, ...]
"""The words that an option may be; a value that is no text is looked at by nothing."""


class TextForm(NamedTuple):
    """A text of a certain form: what it is called, an example, what to do instead, and whether a text has the form."""

    title: str
    example: str
    hint: str
    matches: Callable[[str], bool]
    is_secret: bool = False


def is_key(text: str, first: str, length: int = 56) -> bool:
    """Whether *text* is an nkey: its letter says whose, its last two bytes are a checksum of the others (nkeys, strkey.go)."""
    if len(text) != length or not text.startswith(first):
        return False
    try:
        decoded = b32decode(text + "=" * (-length % 8))
    except ValueError:
        return False
    return crc_hqx(decoded[:-2], 0) == int.from_bytes(decoded[-2:], "little")


def _public_key(letter: str, owner: str, example: str) -> TextForm:
    hint = f"write the 56 letters that begin with `{letter}`, as `nsc` or `nk -pubout` print them"
    return TextForm(f"the public key of {owner}", example, hint, lambda text: is_key(text, letter))


_TLS_VERSIONS: Final[Words] = ("1.2", "1.3")
_CURVES: Final[Words] = ("X25519", "CurveP256", "CurveP384", "CurveP521")
_OCSP_MODES: Final[Words] = ("auto", "always", "must", "never")
_CIPHERS: Final[Words] = (
    *(f"TLS_RSA_WITH_{cipher}" for cipher in ("3DES_EDE_CBC_SHA", "AES_128_CBC_SHA", "AES_256_CBC_SHA", "RC4_128_SHA")),
    *(f"TLS_RSA_WITH_AES_{cipher}" for cipher in ("128_CBC_SHA256", "128_GCM_SHA256", "256_GCM_SHA384")),
    *(f"TLS_ECDHE_ECDSA_WITH_AES_{cipher}" for cipher in ("128_CBC_SHA", "256_CBC_SHA", "128_CBC_SHA256")),
    *(f"TLS_ECDHE_{key}_WITH_AES_128_GCM_SHA256" for key in ("ECDSA", "RSA")),
    *(f"TLS_ECDHE_{key}_WITH_AES_256_GCM_SHA384" for key in ("ECDSA", "RSA")),
    *(f"TLS_ECDHE_RSA_WITH_{cipher}" for cipher in ("3DES_EDE_CBC_SHA", "AES_128_CBC_SHA", "AES_256_CBC_SHA")),
    *(f"TLS_ECDHE_{key}_WITH_RC4_128_SHA" for key in ("ECDSA", "RSA")),
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    *(f"TLS_ECDHE_{key}_WITH_CHACHA20_POLY1305_SHA256" for key in ("ECDSA", "RSA")),
    *(f"TLS_{cipher}" for cipher in ("AES_128_GCM_SHA256", "AES_256_GCM_SHA384", "CHACHA20_POLY1305_SHA256")),
)
"""Those that any version of Go knows: what one of them lacks, the server says itself."""
_CONNECTIONS: Final[Words] = ("STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS")

_WRITE_TIMEOUTS: Final[Words] = ("default", "retry", "close")
_WORDS: Final[Mapping[str, Mapping[str, Words]]] = {
    **{block: {"write_timeout": _WRITE_TIMEOUTS} for block in ("server", "cluster", "gateway", "leafnodes")},
    **{block: {"cipher": ("chacha", "chachapoly", "aes")} for block in ("jetstream", "tpm")},
    "account_jetstream": {"cluster_traffic": ("system", "owner")},
    "export": dict.fromkeys(("response_type", "response"), ("singleton", "stream", "chunked")),
    "ocsp": {"mode": _OCSP_MODES},
    "ocsp_cache": {"type": ("none", "local")},
    "tls": {"min_version": _TLS_VERSIONS, "cipher_suites": _CIPHERS, "curve_preferences": _CURVES},
    "user": dict.fromkeys(("allowed_connection_types", "connection_types", "clients"), _CONNECTIONS),
}
_ACCOUNT_KEY: Final = _public_key("A", "an account", "ABJHLOVMPA4CI6R5KLNGOB4GSLNIY7IOUPAJC4YFNDLQVIOBYQGUWVLA")
_OPERATOR_KEY: Final = _public_key("O", "an operator", "OAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QZVT")
_USER_KEY: Final = _public_key("U", "a user", "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK")
_CURVE_KEY: Final = _public_key("X", "a curve (xkey)", "XAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3QAJY")
_ANY_KEY: Final = TextForm(
    "the public key of a proxy",
    "UAB2CB576PHBBPQ5ODORRZ2LYCMWPZGWGCN2KDK7DXOIMZASKUY3RLKK",
    "write the 56 letters that `nk -pubout` prints",
    lambda text: is_key(text, ""),
)
_SEED: Final = TextForm(
    "the seed of an nkey",
    "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y",
    "write the 58 letters that begin with `SU`, from a variable, or name a file in `credentials`",
    lambda text: is_key(text, "S", 58),
    is_secret=True,
)
_FINGERPRINT: Final = TextForm(
    "the SHA-256 of a public key, in 64 hexadecimal digits",
    "0" * 64,
    "write what `openssl x509 -pubkey -noout -in CERT | openssl pkey -pubin -outform DER | sha256sum` prints",
    lambda text: re.fullmatch("[0-9a-fA-F]{64}", text) is not None,
)
_VERSION: Final = TextForm(
    "a version of servers from 2.8.0 on",
    "2.10.0",
    "write `2.10.0`, or a later one",
    lambda text: re.match(r"v?2\.([89]|\d\d+)\.\d+", text) is not None,
)
_LITERAL: Final = TextForm(
    "a subject without wildcards",
    "trace.here",
    "write tokens between single dots",
    lambda text: is_valid(text) and is_literal(text),
)
_FORMS: Final[Mapping[str, Mapping[str, TextForm]]] = {
    "server": dict.fromkeys(("trusted", "trusted_keys"), _OPERATOR_KEY),
    "account": {"nkey": _ACCOUNT_KEY},
    "auth_callout": {"issuer": _ACCOUNT_KEY, "xkey": _CURVE_KEY, "key": _CURVE_KEY},
    "leaf_authorization": {"nkey": _USER_KEY},
    "leafnodes": dict.fromkeys(("min_version", "minimum_version"), _VERSION),
    "msg_trace": {"dest": _LITERAL},
    "remote": dict.fromkeys(("nkey", "seed"), _SEED),
    "tls": {"pinned_certs": _FINGERPRINT},
    "trusted_proxy": dict.fromkeys(("key", "public_key"), _ANY_KEY),
}
"""Options that are texts of a certain form."""

_TABLE: Final[Mapping[str, Mapping[ValueKind, str]]] = {
    "server": {
        ValueKind.INTEGER: (
            "port max_control_line max_payload max_pending max_connections max_conn "
            "max_traced_msg_len max_subscriptions max_subs max_sub_tokens ping_max prof_port "
            "logfile_size_limit log_size_limit logfile_max_num log_max_num max_closed_clients "
            "connect_error_reports reconnect_error_reports http_port https_port monitor_port "
            "max_subscription_tokens prof_block_rate"
        ),
        ValueKind.BOOLEAN: (
            "debug trace trace_verbose logtime logtime_utc disable_sublist_cache syslog "
            "allow_non_tls no_system_account no_system no_sys_acc no_header_support "
            "no_fast_producer_stall no_sublist_cache proxy_protocol trace_headers"
        ),
        ValueKind.DURATION: "ping_interval write_deadline",
        ValueKind.DURATION_TEXT: "lame_duck_duration lame_duck_grace_period",
        ValueKind.TEXT: (
            "server_name store_dir storedir system_account system no_auth_user "
            "client_advertise default_sentinel host http_base_path log_file logfile net "
            "pid_file pidfile ports_file_dir remote_syslog"
        ),
        ValueKind.MAP: (
            "cluster gateway leafnodes leaf tls websocket ws mqtt authorization "
            "default_js_domain feature_flags proxies resolver_preload resolver_tls "
            "server_metadata"
        ),
        ValueKind.SWITCH: "jetstream",
        ValueKind.ADDRESS: "http https listen",
        ValueKind.FLAG_OR_MAP: "ocsp ocsp_cache",
        ValueKind.TEXTS: "resolver_pinned_accounts server_tags",
    },
    "account": {
        ValueKind.ARRAY: "users imports exports",
        ValueKind.MAP: "limits default_permissions",
        ValueKind.SWITCH: "jetstream",
        ValueKind.TEXT_OR_MAP: "msg_trace trace_dest",
    },
    "account_jetstream": {
        ValueKind.INTEGER: (
            "consumers disk disk_max_stream_bytes max_ack_pending max_consumers max_disk "
            "max_file max_mem max_memory max_store max_streams mem mem_max_stream_bytes "
            "memory memory_max_stream_bytes store store_max_stream_bytes streams"
        ),
        ValueKind.BOOLEAN: "max_bytes max_bytes_required max_stream_bytes",
    },
    "account_limits": {
        ValueKind.INTEGER: (
            "max_connections max_conn max_subscriptions max_subs max_leafnodes max_leafs max_pay max_payload"
        ),
    },
    "export": {
        ValueKind.DURATION_TEXT: "threshold response_threshold response_time response_max_time",
        ValueKind.ARRAY: "accounts",
        ValueKind.BOOLEAN: "allow_trace",
        ValueKind.TEXT: "service",
        ValueKind.TEXT_OR_MAP: "latency",
    },
    "import": {
        ValueKind.BOOLEAN: "allow_trace share",
        ValueKind.TEXT: "prefix to",
    },
    "authorization": {
        ValueKind.TEXT: "user username pass password token",
        ValueKind.SECONDS: "timeout",
        ValueKind.ARRAY: "users",
        ValueKind.MAP: "default_permission default_permissions permissions",
        ValueKind.BOOLEAN: "proxy_required",
    },
    "auth_callout": {
        ValueKind.TEXT: "acc account",
        ValueKind.ARRAY: "allowed_accounts",
    },
    "user": {
        ValueKind.TEXT: "user username pass password",
        ValueKind.MAP: "authorization permission permissions",
        ValueKind.BOOLEAN: "proxy_required",
    },
    "permissions": {
        ValueKind.FLAG_OR_MAP: "allow_responses publish_allow_responses",
    },
    "subjects": {
        ValueKind.TEXTS: "allow deny",
    },
    "responses": {
        ValueKind.DURATION_TEXT: "expires expiration ttl",
        ValueKind.INTEGER: "max max_messages max_msgs max_responses",
    },
    "cluster": {
        ValueKind.TEXT: "name advertise cluster_advertise host net",
        ValueKind.ARRAY: "routes",
        ValueKind.MAP: "tls authorization permissions",
        ValueKind.INTEGER: "port connect_retries pool_size ping_max",
        ValueKind.BOOLEAN: "no_advertise connect_backoff",
        ValueKind.DURATION: "ping_interval write_deadline",
        ValueKind.TEXTS: "accounts",
        ValueKind.ADDRESS: "listen",
    },
    "login": {
        ValueKind.TEXT: "pass password user username",
    },
    "link_login": {
        ValueKind.TEXT: "pass password user username",
        ValueKind.SECONDS: "timeout",
    },
    "compression": {
        ValueKind.ARRAY: "rtt rtt_thresholds rtts thresholds",
    },
    "gateway": {
        ValueKind.TEXT: "name advertise host net",
        ValueKind.ARRAY: "gateways",
        ValueKind.MAP: "tls authorization",
        ValueKind.INTEGER: "port connect_retries",
        ValueKind.BOOLEAN: "reject_unknown reject_unknown_cluster connect_backoff",
        ValueKind.DURATION: "write_deadline",
        ValueKind.ADDRESS: "listen",
    },
    "remote_gateway": {
        ValueKind.TEXT: "name url",
        ValueKind.ARRAY: "urls",
        ValueKind.MAP: "tls",
    },
    "jetstream": {
        ValueKind.SIZE: (
            "max_memory_store max_mem_store max_mem max_file_store max_file max_buffered_size "
            "max_outstanding_catchup meta_compact_size"
        ),
        ValueKind.INTEGER: "request_queue_limit info_queue_limit max_buffered_msgs meta_compact",
        ValueKind.TEXT: (
            "store_dir storedir store domain unique_tag ek encryption_key extension_hint key "
            "prev_ek prev_encryption_key prev_key"
        ),
        ValueKind.SYNC: "sync sync_interval",
        ValueKind.BOOLEAN: "enable enabled meta_compact_sync strict",
        ValueKind.MAP: "limits tpm",
    },
    "jetstream_limits": {
        ValueKind.DURATION_TEXT: "duplicate_window",
        ValueKind.MAP: "batch",
        ValueKind.INTEGER: "max_ack_pending max_ha_assets max_request_batch",
    },
    "batch_limits": {
        ValueKind.INTEGER: "max_inflight_per_stream max_inflight_total max_msgs",
        ValueKind.DURATION_TEXT: "timeout",
    },
    "tpm": {
        ValueKind.TEXT: "encryption_password keys_file srk_password",
        ValueKind.INTEGER: "pcr",
    },
    "leafnodes": {
        ValueKind.ARRAY: "remotes",
        ValueKind.MAP: "tls authorization",
        ValueKind.INTEGER: "port",
        ValueKind.BOOLEAN: "no_advertise isolate isolate_leafnode_interest",
        ValueKind.DURATION: "write_deadline reconnect reconnect_delay reconnect_interval dial_timeout",
        ValueKind.TEXT: "advertise host leafnode_advertise net",
        ValueKind.ADDRESS: "listen",
    },
    "leaf_authorization": {
        ValueKind.TEXT: "account pass password user username",
        ValueKind.BOOLEAN: "proxy_required",
        ValueKind.SECONDS: "timeout",
        ValueKind.ARRAY: "users",
    },
    "leaf_user": {
        ValueKind.TEXT: "account pass password user username",
        ValueKind.BOOLEAN: "proxy_required",
    },
    "remote": {
        ValueKind.BOOLEAN: (
            "no_randomize dont_randomize hub ws_compress ws_compression ws_no_masking "
            "disabled ignore_discovered_servers isolate isolate_leafnode_interest "
            "request_isolation websocket_compress websocket_compression websocket_no_masking"
        ),
        ValueKind.DURATION: "first_info_timeout dial_timeout",
        ValueKind.TEXT: "account credentials creds local",
        ValueKind.TEXTS: "deny_export deny_exports deny_import deny_imports url urls",
        ValueKind.FLAG_OR_MAP: "jetstream_cluster_migrate js_cluster_migrate",
        ValueKind.MAP: "proxy tls",
    },
    "remote_proxy": {
        ValueKind.DURATION: "timeout",
    },
    "tls": {
        ValueKind.BOOLEAN: ("insecure verify verify_and_map allow_insecure_cipher_suites cert_match_skip_invalid"),
        ValueKind.SECONDS: "timeout",
        ValueKind.INTEGER: "connection_rate_limit",
        ValueKind.ARRAY: "certs certificates",
        ValueKind.FLAG_OR_MAP: "ocsp_peer",
        ValueKind.FIRST: "handshake_first first immediate",
    },
    "websocket": {
        ValueKind.INTEGER: "port",
        ValueKind.BOOLEAN: "no_tls same_origin compress compression",
        ValueKind.SECONDS: "handshake_timeout",
        ValueKind.TEXT: "advertise host jwt_cookie net no_auth_user pass_cookie token_cookie user_cookie",
        ValueKind.TEXTS: "allow_origin allow_origins allowed_origin allowed_origins origin origins",
        ValueKind.MAP: "authentication authorization headers tls",
        ValueKind.ADDRESS: "listen",
        ValueKind.DURATION: "ping_interval",
    },
    "mqtt": {
        ValueKind.INTEGER: "port max_ack_pending max_pending max_inflight stream_replicas",
        ValueKind.BOOLEAN: "reject_qos2_publish downgrade_qos2_subscribe consumer_memory_storage",
        ValueKind.DURATION: (
            "ack_wait ackwait api_timeout consumer_auto_cleanup consumer_inactive_threshold js_api_timeout"
        ),
        ValueKind.MAP: "authentication authorization tls",
        ValueKind.TEXT: "host js_domain net no_auth_user",
        ValueKind.ADDRESS: "listen",
    },
    "proxies": {
        ValueKind.ARRAY: "trusted",
    },
    "ocsp": {
        ValueKind.TEXT: "url",
    },
    "ocsp_cache": {
        ValueKind.TEXT: "local_store",
        ValueKind.BOOLEAN: "preserve_revoked",
        ValueKind.SECONDS: "save_interval",
    },
}


def _kinds_of(block: str) -> dict[str, ValueKind | Words | TextForm]:
    listed = ((kind, options.split()) for kind, options in _TABLE.get(block, {}).items())
    types = {option: kind for kind, options in listed for option in options}
    return {**types, **_WORDS.get(block, {}), **_FORMS.get(block, {})}


KINDS: Final = {block: _kinds_of(block) for block in dict.fromkeys((*_TABLE, *_WORDS, *_FORMS))}
"""By block and option, as `nats-server -t` takes them (a test asks 2.15.1 about each)."""
RANGES: Final[Mapping[tuple[str, str], tuple[int, int]]] = {
    ("server", "max_sub_tokens"): (0, 255),
    ("server", "max_subscription_tokens"): (0, 255),
    ("msg_trace", "sampling"): (1, 100),
    ("jetstream", "max_concurrent_io"): (4, 8192),
    ("jetstream", "meta_compact"): (0, (1 << 63) - 1),
    **{("mqtt", name): (0, 65535) for name in ("max_ack_pending", "max_pending", "max_inflight")},
}
"""Numbers that the server takes, by block and option."""
