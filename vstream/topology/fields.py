"""
The single values of the topology language: what is accepted, and its JSON Schema.

An error in a list names the item by its index (`ctx["index"]`), so that it is shown there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv6Address
from typing import Annotated, Literal, LiteralString, TypeVar

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from vstream.formatting import quote_value
from vstream.timing import SECOND_NS
from vstream.topology import units

DEFAULT_GATEWAY_PORT = 7222
MAX_PORT = 65535
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
STREAM_PATTERN = r"^[A-Za-z0-9_-]+$"
VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
HOST_PATTERN = r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])$"
TAG_PATTERN = r"^[^\s,]+$"

MIN_AGE_NS = 100 * 10**6
"""100 ms: the shortest max_age and duplicate window that servers accept (server/stream.go, checkStreamCfg)."""
MAX_SERVERS = 99
_MIN_MINOR_VERSION = 10
_MAX_INT32 = 2**31 - 1

_VERSION = re.compile(r"2\.([0-9]{1,2})(?:\.[0-9]+)?")
_SYNC_INTERVAL = r"^(always|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+)$"


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_T = TypeVar("_T", int, float)


def _parse_with(kind: LiteralString, parse: Callable[[str], _T], text: str) -> _T:
    try:
        return parse(text)
    except ValueError as error:
        raise PydanticCustomError(kind, "{reason}", {"reason": str(error)}) from None


def _parse_duration(value: object) -> int:
    if _is_number(value):
        raise PydanticCustomError(
            "duration", "a duration needs a unit: `{n}s`, `{n}m`, `{n}h` or `{n}d`?", {"n": value}
        )
    if not isinstance(value, str):
        raise PydanticCustomError("duration", "a duration is a text such as `90s`, `1h30m` or `30d`")
    return _parse_with("duration", units.parse_duration, value)


def _parse_age(value: object) -> int:
    age = _parse_duration(value)
    if age == 0 and value != units.UNLIMITED:
        raise PydanticCustomError("duration", "to a server, 0 means no limit: write `unlimited` if you mean it")
    if 0 < age < MIN_AGE_NS:
        raise PydanticCustomError("duration", "servers accept no max_age below 100ms")
    return age


def _parse_window(value: object) -> int:
    if value == units.UNLIMITED:
        raise PydanticCustomError("duration", "a window must have an end: write it like `2m`, or `0s` for none")
    return _parse_duration(value)


def _parse_wait(value: object) -> int:
    if value == units.UNLIMITED:
        raise PydanticCustomError("duration", "a wait must have an end: write it like `30s`")
    wait = _parse_duration(value)
    if wait == 0:
        raise PydanticCustomError("duration", "to a server, 0 means its default: leave it out")
    return wait


def _parse_marker_time(value: object) -> int:
    time = _parse_wait(value)
    if time < SECOND_NS:
        raise PydanticCustomError("duration", "servers refuse a delete marker TTL below 1s")
    return time


def _parse_waits(value: object) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise PydanticCustomError("waits", "expected a list of durations, such as `[1s, 5s, 30s]`")
    return tuple(value)


def _parse_link_time(value: object) -> int:
    return _parse_with("duration", units.parse_link_time, value) if isinstance(value, str) else _parse_duration(value)


def _parse_rate(value: object) -> int:
    if not isinstance(value, str):
        raise PydanticCustomError("rate", "a rate needs a unit: write it like `200mbit`")
    return _parse_with("rate", units.parse_rate, value)


def _parse_share(value: object) -> float:
    if not isinstance(value, str):
        raise PydanticCustomError("share", "a loss is a percentage such as `1%`")
    return _parse_with("share", units.parse_share, value)


def _parse_size(value: object) -> int:
    if not isinstance(value, str) and not _is_number(value):
        raise PydanticCustomError("size", "a size is a number of bytes or a text such as `512MiB`")
    return _parse_with("size", units.parse_size, str(value))


def _parse_limit(value: object) -> int:
    size = _parse_size(value)
    if size == 0:
        raise PydanticCustomError("size", "to a server, 0 bytes means no limit: write `unlimited` if you mean it")
    return size


def _parse_message_size(value: object) -> int:
    size = _parse_limit(value)
    if size > _MAX_INT32:
        raise PydanticCustomError(
            "size", "at most 2GiB less one byte: a server counts the bytes of a message in 32 bits"
        )
    return size


def _parse_count(value: object) -> int:
    if value == units.UNLIMITED:
        return -1
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= units.MAX_INT64:
        return value
    raise PydanticCustomError("count", "a count is a whole number above 0, or `unlimited`")


def _parse_version(value: object) -> tuple[int, int]:
    match = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        shown, why = "2.12", "2.10 is the oldest that can run virtual streams"
        if isinstance(value, float):
            shown, why = {2.1: "2.10"}.get(value, str(value)), "in quotes, since YAML reads 2.10 as 2.1"
        raise PydanticCustomError(
            "version", 'a server version is written `"{shown}"`: {why}', {"shown": shown, "why": why}
        )
    if int(match[1]) < _MIN_MINOR_VERSION:
        raise PydanticCustomError(
            "version", "cluster-scoped mappings and source transforms need nats-server 2.10 or newer"
        )
    return (2, int(match[1]))


def _parse_servers(value: object) -> tuple[str | None, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MAX_SERVERS:
            raise PydanticCustomError("servers", "a region has 1 to {most} servers", {"most": MAX_SERVERS})
        return (None,) * value
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("servers", "servers are a number (`3`) or a list of host names")
    for index, host in enumerate(value):
        _check_host(index, host)
    if len(value) > MAX_SERVERS:
        raise PydanticCustomError("servers", "a region has 1 to {most} servers", {"most": MAX_SERVERS})
    _refuse_repeated([host.lower() for host in value], "host")
    return tuple(value)


def _check_host(index: int | str, host: object) -> None:
    if isinstance(host, str) and re.fullmatch(HOST_PATTERN, host) and (host[0] != "[" or _is_ipv6(host[1:-1])):
        return
    if isinstance(host, str) and _is_ipv6(host):
        raise PydanticCustomError(
            "servers", 'write an IPv6 address in brackets and quotes: `"[{host}]"`', {"host": host, "index": index}
        )
    raise PydanticCustomError(
        "servers",
        "{host} is not a host name; ports are given once per region, under `ports`",
        {"host": quote_value(host), "index": index},
    )


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True


def _refuse_repeated(values: Sequence[str], noun: str) -> None:
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            raise PydanticCustomError(
                "repeated",
                "the {noun} {value} is listed twice",
                {"noun": noun, "value": quote_value(value), "index": index},
            )
        seen.add(value)


def _make_list_check(kind: str, expected: str) -> Callable[[object], Sequence[str]]:
    """A check that a value is a list of texts; *kind* and *expected* name the value in its error."""

    def check(value: object) -> Sequence[str]:
        if not isinstance(value, list):
            raise PydanticCustomError(kind, "{what}", {"what": expected})
        for index, item in enumerate(value):
            if not isinstance(item, str):
                raise PydanticCustomError(
                    kind, "{item} is not text: put it in quotes", {"item": quote_value(item), "index": index}
                )
        return value

    return check


_check_regions = _make_list_check("regions", "regions are `all` or a list of region names")
_check_names = _make_list_check("names", "expected a text or a list of texts")


def _parse_regions(value: object) -> tuple[str, ...] | Literal["all"]:
    if value == "all":
        return "all"
    names = _check_regions(value)
    if not names:
        raise PydanticCustomError("regions", "name at least one region, or write `all`")
    _refuse_repeated(names, "region")
    return tuple(names)


def _parse_server_names(value: object) -> tuple[str, ...]:
    names = _check_names(value)
    for index, name in enumerate(names):
        if not re.fullmatch(NAME_PATTERN, name):
            raise PydanticCustomError(
                "names",
                "{name} is not a valid server name: use letters, digits, `-` and `_`",
                {"name": quote_value(name), "index": index},
            )
    _refuse_repeated(names, "name")
    return tuple(names)


def _parse_gateway_address(value: object) -> str:
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if isinstance(value, str) and (not host or value.endswith("]")):
        host, port = value, str(DEFAULT_GATEWAY_PORT)
    if "@" in str(value):
        raise PydanticCustomError("gateway", "a user or password has no place here: write `HOST` or `HOST:PORT`")
    if not port.isdecimal() or not 1 <= int(port) <= MAX_PORT or not re.fullmatch(HOST_PATTERN, host):
        raise PydanticCustomError(
            "gateway", "{value} is not a valid address: write `HOST` or `HOST:PORT`", {"value": quote_value(value)}
        )
    return f"{host}:{port}"


def _parse_members(value: object) -> dict[str, str | None] | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, dict) and value:
        hosts = list(value.values())
        for region, host in value.items():
            _check_host(region, host)
        for region, host in value.items():
            if [other_host.lower() for other_host in hosts].count(host.lower()) > 1:
                raise PydanticCustomError(
                    "repeated", "the host {value} is listed twice", {"value": quote_value(host), "index": region}
                )
        return dict(value)
    if not isinstance(value, list) or not value:
        raise PydanticCustomError(
            "members",
            "members are `all`, a list of regions, or a map of regions to host names (`west: w9.example.net`)",
        )
    names = _check_regions(value)
    _refuse_repeated(names, "region")
    return dict.fromkeys(names)


def _parse_names(value: object) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(_check_names(value))


def _parse_label(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        raise PydanticCustomError("label", "a key of metadata has no line breaks and no other control characters")
    return value


def _parse_tags(value: object) -> tuple[tuple[str, ...], ...]:
    if not isinstance(value, list):
        raise PydanticCustomError("tags", "one entry for each server: a tag (`az:a`) or a list of tags")
    return tuple(_parse_tag_row(index, row) for index, row in enumerate(value))


def _parse_tag_row(index: int, row: object) -> tuple[str, ...]:
    tags = tuple(row) if isinstance(row, list) else (row,)
    for tag in tags:
        # Servers trim tags, and placement compares them as text.
        if not isinstance(tag, str) or not re.fullmatch(TAG_PATTERN, tag) or not tag.isprintable():
            raise PydanticCustomError(
                "tags",
                "{tag} is not a valid tag: write a text without spaces and commas, such as `az:a`",
                {"tag": quote_value(tag), "index": index},
            )
    return tags


_TEXTS = {"type": "array", "items": {"type": "string"}}
_TAG = {"type": "string", "pattern": TAG_PATTERN}
_TIME = {"type": "string", "pattern": f"^{units.TIME_PATTERN}$"}
_INTEGER = {"type": "integer", "minimum": 1, "maximum": units.MAX_INT64}
_SMALL_INTEGER = {**_INTEGER, "maximum": _MAX_INT32}
_UNLIMITED = {"const": units.UNLIMITED}
_BYTES = [{"type": "string", "pattern": units.SIZE_PATTERN}, {**_INTEGER, "minimum": 0}]

Age = Annotated[int, BeforeValidator(_parse_age), WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN})]
Window = Annotated[int, BeforeValidator(_parse_window), WithJsonSchema(_TIME)]
Wait = Annotated[int, BeforeValidator(_parse_wait), WithJsonSchema(_TIME)]
MarkerTime = Annotated[int, BeforeValidator(_parse_marker_time), WithJsonSchema(_TIME)]
Label = Annotated[str, BeforeValidator(_parse_label)]
"""A key of metadata: plans and reports print it."""
Waits = Annotated[tuple[Wait, ...], BeforeValidator(_parse_waits)]
LinkTime = Annotated[int, BeforeValidator(_parse_link_time), WithJsonSchema(_TIME)]
Rate = Annotated[int, BeforeValidator(_parse_rate), WithJsonSchema({"type": "string", "pattern": units.RATE_PATTERN})]
Share = Annotated[
    float, BeforeValidator(_parse_share), WithJsonSchema({"type": "string", "pattern": units.SHARE_PATTERN})
]
Size = Annotated[int, BeforeValidator(_parse_size), WithJsonSchema({"anyOf": _BYTES})]
Limit = Annotated[int, BeforeValidator(_parse_limit), WithJsonSchema({"anyOf": [_BYTES[0], _INTEGER]})]
MessageSize = Annotated[
    int, BeforeValidator(_parse_message_size), WithJsonSchema({"anyOf": [_BYTES[0], _SMALL_INTEGER]})
]
Count = Annotated[int, BeforeValidator(_parse_count), WithJsonSchema({"anyOf": [_UNLIMITED, _INTEGER]})]
Version = Annotated[
    tuple[int, int],
    BeforeValidator(_parse_version),
    WithJsonSchema({"type": "string", "pattern": r"^2\.[1-9][0-9](\.[0-9]+)?$"}),
]
Servers = Annotated[
    tuple[str | None, ...],
    BeforeValidator(_parse_servers),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_SERVERS},
                {
                    "type": "array",
                    "items": {"type": "string", "pattern": HOST_PATTERN},
                    "minItems": 1,
                    "maxItems": MAX_SERVERS,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]
ServerNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_parse_server_names),
    WithJsonSchema(
        {"type": "array", "items": {"type": "string", "pattern": NAME_PATTERN}, "minItems": 1, "uniqueItems": True}
    ),
]
GatewayAddress = Annotated[
    str, BeforeValidator(_parse_gateway_address), WithJsonSchema({"type": "string", "minLength": 1})
]
Members = Annotated[
    dict[str, str | None] | Literal["all"],
    BeforeValidator(_parse_members),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": "all"},
                {**_TEXTS, "minItems": 1, "uniqueItems": True},
                {
                    "type": "object",
                    "patternProperties": {NAME_PATTERN: {"type": "string", "pattern": HOST_PATTERN}},
                    "minProperties": 1,
                },
            ]
        }
    ),
]
RegionNames = Annotated[
    tuple[str, ...] | Literal["all"],
    BeforeValidator(_parse_regions),
    WithJsonSchema({"anyOf": [{"const": "all"}, {**_TEXTS, "minItems": 1, "uniqueItems": True}]}),
]
Names = Annotated[
    tuple[str, ...], BeforeValidator(_parse_names), WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS]})
]
Tags = Annotated[
    tuple[tuple[str, ...], ...],
    BeforeValidator(_parse_tags),
    WithJsonSchema({"type": "array", "items": {"anyOf": [_TAG, {"type": "array", "items": _TAG}]}}),
]
SyncInterval = Annotated[str, StringConstraints(pattern=_SYNC_INTERVAL)]
Variable = Annotated[str, StringConstraints(pattern=VARIABLE_PATTERN)]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=64)]
StreamName = Annotated[str, StringConstraints(pattern=STREAM_PATTERN, max_length=128)]
BucketName = Annotated[str, StringConstraints(pattern=STREAM_PATTERN, max_length=124)]
"""Its stream is called so after `KV_` or `OBJ_`."""
Port = Annotated[int, Field(ge=1, le=MAX_PORT)]
Text = Annotated[str, StringConstraints(min_length=1)]
Inbox = Annotated[str, StringConstraints(pattern=r"^[^\s.*>]+(\.[^\s.*>]+)*$")]
