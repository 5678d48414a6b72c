"""Valid values of server options: types, durations, sizes and keywords, from server/opts.go."""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, Final

from vstream.diagnostics import Related, Severity
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.servers.options import BLOCKS, blocks_of, judged_options
from vstream.syntax.natsconf import ConfArray, ConfMap, ConfScalar, ScalarKind, to_python
from vstream.syntax.quoting import quote_value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.diagnostics import Span
    from vstream.lint.rules.servers.options import WrittenOption
    from vstream.lint.workspace import Workspace
    from vstream.syntax.natsconf import ConfEntry, ConfNode


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


Words = tuple[str, ...]
"""The words that an option may be; a value that is no text is looked at by nothing."""

_DURATION: Final = re.compile(r"[-+]?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+)")
_SIZE: Final = re.compile(r"|[-+]?\d+[KMGT]")
_NUMBER_WITH_UNIT: Final = re.compile(r"(\d+)\s*([a-zA-Z]+)")
_WORDS_FOR_UNITS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("k", "kb", "kib"), "K"),
    **dict.fromkeys(("m", "mb", "mib"), "M"),
    **dict.fromkeys(("g", "gb", "gib"), "G"),
    **dict.fromkeys(("t", "tb", "tib"), "T"),
}
_MAPPINGS: Final = ("mappings", "maps")
_SWITCHES: Final = frozenset({"enabled", "enable", "disabled", "disable"})
_TRUE: Final = frozenset({"true", "yes", "on", "yess", "enabled", "enable", "1"})


def _kinds(kind: ValueKind | Words, names: str) -> dict[str, ValueKind | Words]:
    return dict.fromkeys(names.split(), kind)


_TLS_VERSIONS: Final[Words] = ("1.2", "1.3")
_CURVES: Final[Words] = ("X25519", "CurveP256", "CurveP384", "CurveP521")
_OCSP: Final[Words] = ("auto", "always", "must", "never")
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

KINDS: Final[Mapping[str, Mapping[str, ValueKind | Words]]] = {
    "server": {
        **_kinds(ValueKind.INTEGER, "port max_control_line max_payload max_pending max_connections max_conn"),
        **_kinds(ValueKind.INTEGER, "max_traced_msg_len max_subscriptions max_subs max_sub_tokens ping_max prof_port"),
        **_kinds(ValueKind.INTEGER, "logfile_size_limit log_size_limit logfile_max_num log_max_num max_closed_clients"),
        **_kinds(ValueKind.INTEGER, "connect_error_reports reconnect_error_reports"),
        **_kinds(ValueKind.BOOLEAN, "debug trace trace_verbose logtime logtime_utc disable_sublist_cache syslog"),
        **_kinds(ValueKind.BOOLEAN, "allow_non_tls no_system_account no_system no_sys_acc no_header_support"),
        **_kinds(ValueKind.INTEGER, "http_port https_port monitor_port max_subscription_tokens"),
        **_kinds(ValueKind.DURATION, "ping_interval write_deadline"),
        **_kinds(ValueKind.DURATION_TEXT, "lame_duck_duration lame_duck_grace_period"),
        **_kinds(ValueKind.TEXT, "server_name store_dir storedir system_account system no_auth_user"),
        **_kinds(ValueKind.MAP, "cluster gateway leafnodes leaf tls websocket ws mqtt authorization"),
        **_kinds(ValueKind.SWITCH, "jetstream"),
    },
    "account": {
        **_kinds(ValueKind.ARRAY, "users imports exports"),
        **_kinds(ValueKind.MAP, "limits default_permissions"),
        **_kinds(ValueKind.SWITCH, "jetstream"),
    },
    "authorization": {
        **_kinds(ValueKind.TEXT, "user username pass password token"),
        **_kinds(ValueKind.SECONDS, "timeout"),
        **_kinds(ValueKind.ARRAY, "users"),
    },
    "responses": _kinds(ValueKind.DURATION_TEXT, "expires expiration ttl"),
    "jetstream_limits": _kinds(ValueKind.DURATION_TEXT, "duplicate_window"),
    "cluster": {
        **_kinds(ValueKind.TEXT, "name"),
        **_kinds(ValueKind.ARRAY, "routes"),
        **_kinds(ValueKind.MAP, "tls authorization"),
        **_kinds(ValueKind.INTEGER, "port connect_retries pool_size ping_max"),
        **_kinds(ValueKind.BOOLEAN, "no_advertise"),
        **_kinds(ValueKind.DURATION, "ping_interval write_deadline"),
    },
    "gateway": {
        **_kinds(ValueKind.TEXT, "name"),
        **_kinds(ValueKind.ARRAY, "gateways"),
        **_kinds(ValueKind.MAP, "tls authorization"),
        **_kinds(ValueKind.INTEGER, "port connect_retries"),
        **_kinds(ValueKind.BOOLEAN, "reject_unknown reject_unknown_cluster"),
        **_kinds(ValueKind.DURATION, "write_deadline"),
    },
    "remote_gateway": {**_kinds(ValueKind.TEXT, "name"), **_kinds(ValueKind.ARRAY, "urls")},
    "leafnodes": {
        **_kinds(ValueKind.ARRAY, "remotes"),
        **_kinds(ValueKind.MAP, "tls authorization"),
        **_kinds(ValueKind.INTEGER, "port"),
        **_kinds(ValueKind.BOOLEAN, "no_advertise"),
        **_kinds(ValueKind.DURATION, "write_deadline reconnect reconnect_delay reconnect_interval"),
    },
    "remote": {
        **_kinds(ValueKind.BOOLEAN, "no_randomize dont_randomize hub ws_compress ws_compression ws_no_masking"),
        **_kinds(ValueKind.DURATION, "first_info_timeout"),
    },
    "jetstream": {
        **_kinds(ValueKind.SIZE, "max_memory_store max_mem_store max_mem max_file_store max_file"),
        **_kinds(ValueKind.INTEGER, "request_queue_limit"),
        **_kinds(ValueKind.TEXT, "store_dir storedir store domain unique_tag"),
        **_kinds(ValueKind.SYNC, "sync sync_interval"),
        "cipher": ("chacha", "chachapoly", "aes"),
    },
    "websocket": {
        **_kinds(ValueKind.INTEGER, "port"),
        **_kinds(ValueKind.BOOLEAN, "no_tls same_origin compress compression"),
        **_kinds(ValueKind.SECONDS, "handshake_timeout"),
    },
    "mqtt": {
        **_kinds(ValueKind.INTEGER, "port max_ack_pending max_pending max_inflight stream_replicas"),
        **_kinds(ValueKind.BOOLEAN, "reject_qos2_publish downgrade_qos2_subscribe"),
        **_kinds(ValueKind.DURATION, "ack_wait ackwait"),
    },
    "tls": {
        **_kinds(ValueKind.BOOLEAN, "insecure verify verify_and_map"),
        **_kinds(ValueKind.SECONDS, "timeout"),
        "min_version": _TLS_VERSIONS,
        "cipher_suites": _CIPHERS,
        "curve_preferences": _CURVES,
    },
    "export": {
        "response_type": ("singleton", "stream", "chunked"),
        "response": ("singleton", "stream", "chunked"),
        **_kinds(ValueKind.DURATION_TEXT, "threshold response_threshold response_time response_max_time"),
    },
    "user": {
        **_kinds(ValueKind.TEXT, "user username pass password"),
        "allowed_connection_types": _CONNECTIONS,
        "connection_types": _CONNECTIONS,
    },
    "account_limits": _kinds(ValueKind.INTEGER, "max_connections max_conn max_subscriptions max_subs max_leafnodes"),
}
"""By block and option, as `nats-server -t` takes them (a test asks 2.15.1 about each)."""
RANGES: Final[Mapping[tuple[str, str], tuple[int, int]]] = {
    ("server", "max_sub_tokens"): (0, 255),
    ("server", "max_subscription_tokens"): (0, 255),
    **{("mqtt", name): (0, 65535) for name in ("max_ack_pending", "max_pending", "max_inflight")},
}
"""Numbers that the server takes, by block and option."""
_NAMES: Final = {id(block): name for name, block in BLOCKS.items()}


@rule("VS424", "wrong-option-value", Severity.ERROR)
def wrong_value(workspace: Workspace) -> Iterator[Violation]:
    """
    An option has a value of the wrong type, or a keyword that the server does not know.

    ## Why is this bad?
    The server does not start, and refuses to reload; for a wrong type it only prints `interface conversion`. Write
    numbers without quotes, durations as strings with a unit, such as `"2m"`, and sizes in `jetstream` with one letter,
    as in `10G`. The types are those of `server/opts.go` in 2.15; older servers accept no others.
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        for option in judged_options(server, seen):
            block, name = _NAMES[id(option.block)], option.entry.key.lower()
            kind = KINDS.get(block, {}).get(name)
            if kind is not None:
                yield from _wrong_values(option, kind)
            yield from _out_of_range(option, RANGES.get((block, name)))


@rule("VS427", "option-written-twice", Severity.WARNING)
def written_twice(workspace: Workspace) -> Iterator[Violation]:
    """
    An option is written twice in one block of one file.

    ## Why is this bad?
    The last one is used, and the first one is silently ignored: of two `accounts` blocks, the users of the first cannot
    log in (all versions; conf/parse.go). Replacing an option of an included file is not reported. Two equal values are
    a note.
    """
    seen: set[Span] = set()
    for server in workspace.servers:
        for conf in blocks_of(server.root):
            first: dict[str, ConfEntry] = {}
            for entry in conf.entries:
                earlier = first.setdefault(entry.key, entry)
                span = entry.key_span
                if earlier is entry or earlier.key_span.file != span.file or span in seen:
                    continue
                seen.add(span)
                # VS355 knows more of mappings; `jetstream: enabled` before its block says nothing else.
                is_switch = isinstance(earlier.value, ConfScalar) and isinstance(entry.value, ConfMap)
                if is_switch or entry.key.lower() in _MAPPINGS:
                    continue
                is_same = to_python(earlier.value) == to_python(entry.value)
                yield Violation(
                    at=span,
                    message=f"`{entry.key}` is already in line {earlier.key_span.line}: its value there is ignored",
                    hint="merge both, or remove one of them",
                    related=(Related(span=earlier.key_span, message="the first one"),),
                    severity=Severity.NOTE if is_same else None,
                )


def _wrong_values(option: WrittenOption, kind: ValueKind | Words) -> Iterator[Violation]:
    value = option.entry.value
    listed = value.items if isinstance(value, ConfArray) and not isinstance(kind, ValueKind) else (value,)
    for node in listed:
        if isinstance(node, ConfScalar) and node.kind is ScalarKind.UNRESOLVED:
            continue
        hint = _hint_for_kind(node, kind) if isinstance(kind, ValueKind) else _hint_for_word(node, kind)
        if hint is not None:
            wants = (
                kind.value if isinstance(kind, ValueKind) else "one of " + ", ".join(f"`{word}`" for word in kind[:8])
            )
            # A running server takes seconds without a unit, with a warning; `nats-server -t` does not.
            is_taken = kind in _UNIT_MISSING and _is_integer(getattr(node, "value", None))
            effect = "`nats-server -t` refuses it" if is_taken else "the server does not start"
            yield Violation(
                at=node.span,
                message=f"`{option.entry.key}` must be {wants}, not {_describe(node)}: {effect}",
                hint=hint,
                severity=Severity.WARNING if is_taken else None,
            )


def _out_of_range(option: WrittenOption, limits: tuple[int, int] | None) -> Iterator[Violation]:
    value = option.entry.value.value if isinstance(option.entry.value, ConfScalar) else None
    if limits is not None and isinstance(value, int) and not limits[0] <= value <= limits[1]:
        yield Violation(
            at=option.entry.value.span,
            message=f"`{option.entry.key}` must be from {limits[0]} to {limits[1]}: the server does not start",
            hint=f"write {limits[1]} or less",
        )


def _describe(node: ConfNode) -> str:
    if isinstance(node, ConfScalar):
        return quote_value(node.raw)
    return "an array" if isinstance(node, ConfArray) else "a map"


def _hint_for_word(node: ConfNode, words: Words) -> str | None:
    value = node.value if isinstance(node, ConfScalar) else None
    if not isinstance(value, str):
        # A number may be the version 1.2 without its quotes.
        return f'write "{value}", in quotes' if str(value) in words else f"write `{words[0]}`"
    if value.casefold() in {word.casefold() for word in words}:
        return None
    folded = {word.casefold(): word for word in words}
    close = get_close_matches(value.casefold(), list(folded), n=1, cutoff=0.5)
    return f"did you mean `{folded[close[0]]}`?" if close else f"write `{words[0]}`"


_UNIT_MISSING: Final = frozenset({ValueKind.DURATION, ValueKind.SYNC})


def _hint_for_form(node: ConfNode, kind: ValueKind) -> str | None:
    """The same for what is more than a number or a word."""
    value = node.value if isinstance(node, ConfScalar) else None
    match kind:
        case ValueKind.TEXT:
            text = "write a text" if value is None else f'write "{value}", in quotes'
            return None if isinstance(value, str) else text
        case ValueKind.ARRAY:
            return None if isinstance(node, ConfArray) else "put `[` and `]` around it"
        case ValueKind.MAP:
            return None if isinstance(node, ConfMap) else "write `{ … }`"
        case _:
            is_right = isinstance(node, ConfMap) or isinstance(value, bool) or str(value).lower() in _SWITCHES
            return None if is_right else "write `enabled`"


def _hint_for_kind(node: ConfNode, kind: ValueKind) -> str | None:
    """What to write instead; None if the value is valid."""
    value = node.value if isinstance(node, ConfScalar) else None
    match kind:
        case ValueKind.BOOLEAN:
            return None if isinstance(value, bool) else f"write {str(str(value).lower() in _TRUE).lower()}"
        case ValueKind.INTEGER:
            return None if _is_integer(value) else _hint_for_integer(value)
        case ValueKind.SIZE:
            is_size = _is_integer(value) or (isinstance(value, str) and _SIZE.fullmatch(value))
            return None if is_size else f"write {_with_unit(value, '10G')}"
        case ValueKind.TEXT | ValueKind.ARRAY | ValueKind.MAP | ValueKind.SWITCH:
            return _hint_for_form(node, kind)
        case _:
            return _hint_for_duration(value, node.raw if isinstance(node, ConfScalar) else "", kind)


def _hint_for_duration(value: object, raw: str, kind: ValueKind) -> str | None:
    is_number = kind is ValueKind.SECONDS and isinstance(value, int | float)
    is_always = kind is ValueKind.SYNC and str(value).lower() == "always"
    if is_number or is_always or (isinstance(value, str) and _DURATION.fullmatch(value)):
        return None
    if _is_integer(value):
        # Without quotes, `2m` is two millions.
        return f'write "{raw}"' if _DURATION.fullmatch(raw) and raw != "0" else f'write "{value}s"'
    is_nearly = kind is ValueKind.SYNC and get_close_matches(str(value).lower(), ["always"])
    return "did you mean `always`?" if is_nearly else f'write "{_with_unit(value, "2m")}"'


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _hint_for_integer(value: object) -> str:
    text = str(value).strip()
    if text.isascii() and text.isdecimal():
        return f"write {text}, without quotes"
    written = _with_unit(value, "")
    return f"write {written}B, without quotes" if written[-1:] in {"K", "M", "G", "T"} else "write a number"


def _with_unit(value: object, otherwise: str) -> str:
    """A number with the unit that a text probably means: `10 minutes` becomes `10m`."""
    match = _NUMBER_WITH_UNIT.fullmatch(str(value).strip())
    unit = _WORDS_FOR_UNITS.get(match[2].lower()) if match else None
    return f"{match[1]}{unit}" if match and unit else otherwise
