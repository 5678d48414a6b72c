"""
The topology language as it is written: pydantic models, and from them the JSON Schema.

Shape only. What spans several places of a document (unknown regions, names that
collide, features that the stated server version lacks) is checked by the rules in
`vstream.lint.rules.topology`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from vstream.topology import units

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
STREAM_PATTERN = r"^[A-Za-z0-9_-]+$"

_VERSION = re.compile(r"2\.([0-9]{1,2})(?:\.[0-9]+)?")


def _duration(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise PydanticCustomError("duration", f"a duration needs a unit: `{value}s`, `{value}m`, `{value}h` or `{value}d`?")
    if not isinstance(value, str):
        raise PydanticCustomError("duration", "a duration is a text such as `90s`, `1h30m` or `30d`")
    try:
        return units.parse_duration(value)
    except ValueError as error:
        raise PydanticCustomError("duration", "{reason}", {"reason": str(error)}) from None


def _size(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise PydanticCustomError("size", "a size is a number of bytes or a text such as `512MiB`")
    try:
        return units.parse_size(value)
    except ValueError as error:
        raise PydanticCustomError("size", "{reason}", {"reason": str(error)}) from None


def _count(value: object) -> int:
    if value == units.UNLIMITED:
        return -1
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise PydanticCustomError("count", "a count is a number above 0, or `unlimited`")


def _version(value: object) -> tuple[int, int]:
    match = _VERSION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        hint = "in quotes, since YAML reads 2.10 as 2.1" if isinstance(value, float) else "2.10 is the oldest that can run virtual streams"
        raise PydanticCustomError("version", 'a server version is written `"2.12"`: {why}', {"why": hint})
    if int(match[1]) < 10:  # noqa: PLR2004
        raise PydanticCustomError("version", "cluster-scoped mappings and source transforms need nats-server 2.10 or newer")
    return (2, int(match[1]))


def _servers(value: object) -> tuple[str | None, ...]:
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= 99:  # noqa: PLR2004
            raise PydanticCustomError("servers", "a region has 1 to 99 servers")
        return (None,) * value
    if isinstance(value, list) and value and all(isinstance(host, str) and host for host in value):
        for host in value:
            if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host):
                raise PydanticCustomError(
                    "servers", "`{host}` is no host name: ports are given once per region, under `ports`", {"host": host}
                )
        if len(set(value)) != len(value):
            raise PydanticCustomError("servers", "a host is listed twice")
        return tuple(value)
    raise PydanticCustomError("servers", "servers are a number (`3`) or a list of host names")


def _regions(value: object) -> tuple[str, ...] | Literal["all"]:
    if value == "all":
        return "all"
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise PydanticCustomError("regions", "regions are `all` or a list of region names")


def _names(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise PydanticCustomError("names", "a name or a list of names")


def _tags(value: object) -> tuple[tuple[str, ...], ...]:
    if isinstance(value, list):
        rows = [(tag,) if isinstance(tag, str) else tuple(tag) if isinstance(tag, list) else () for tag in value]
        if all(row and all(isinstance(tag, str) and tag for tag in row) for row in rows):
            return tuple(rows)
    raise PydanticCustomError("tags", "one entry for each server: a tag (`az:a`) or a list of tags")


_TEXT_OR_INT = [{"type": "string"}, {"type": "integer", "minimum": 0}]
Duration = Annotated[
    int, BeforeValidator(_duration), WithJsonSchema({"type": "string", "pattern": units.DURATION_PATTERN})
]
Size = Annotated[
    int,
    BeforeValidator(_size),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": units.SIZE_PATTERN}, {"type": "integer", "minimum": 0}]}),
]
Count = Annotated[
    int,
    BeforeValidator(_count),
    WithJsonSchema({"anyOf": [{"const": "unlimited"}, {"type": "integer", "minimum": 1}]}),
]
Version = Annotated[
    tuple[int, int],
    BeforeValidator(_version),
    WithJsonSchema({"type": "string", "pattern": r"^2\.[1-9][0-9](\.[0-9]+)?$"}),
]
Servers = Annotated[
    tuple[str | None, ...],
    BeforeValidator(_servers),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 1, "maximum": 99},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]
RegionNames = Annotated[
    tuple[str, ...] | Literal["all"],
    BeforeValidator(_regions),
    WithJsonSchema(
        {"anyOf": [{"const": "all"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}]}
    ),
]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(_names),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
Tags = Annotated[
    tuple[tuple[str, ...], ...],
    BeforeValidator(_tags),
    WithJsonSchema(
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        }
    ),
]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN, max_length=64)]
StreamName = Annotated[str, StringConstraints(pattern=STREAM_PATTERN, max_length=128)]
Port = Annotated[int, Field(ge=1, le=65535)]
Text = Annotated[str, StringConstraints(min_length=1)]


class _Closed(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True)


class TlsDocument(_Closed):
    """Files for TLS, as paths."""

    ca: Text | None = None
    """The authority that signed the servers' certificates."""
    cert: Text | None = None
    """The client certificate."""
    key: Text | None = None
    """The client certificate's key."""


class ConnectDocument(_Closed):
    """How vstream reaches a region. Secrets stay in files and environment variables, never in the topology."""

    context: Text | None = None
    """A nats CLI context (`nats context ls`)."""
    urls: Names = ()
    """Server addresses: `nats://host:4222`, `tls://…`."""
    creds: Text | None = None
    """A credentials file (operator mode)."""
    nkey: Text | None = None
    """A file with an nkey seed."""
    user: Text | None = None
    """A user name; its password is read from `password_env`."""
    password_env: Text | None = None
    """The environment variable that holds the password."""
    token_env: Text | None = None
    """The environment variable that holds a token."""
    tls: TlsDocument | None = None
    monitor: Names = ()
    """HTTP monitoring addresses (`http://host:8222`) of every server, where loaded mappings are read back."""


class PortsDocument(_Closed):
    """TCP ports, the same on every server of a region that has host names."""

    client: Port = 4222
    monitor: Port = 8222
    cluster: Port = 6222
    gateway: Port = 7222


class JetStreamDocument(_Closed):
    """What each server may store."""

    max_file: Size = 10 * 2**30
    """Bytes on disk, per server."""
    max_memory: Size = 2**30
    """Bytes in memory, per server."""
    store_dir: Text | None = None
    """The directory that streams are stored in; each server uses a folder of its own in it."""
    sync_interval: Text | None = None
    """How often a server flushes to disk: `always` survives power loss of a region, the server's default is 2 minutes."""


class RegionDocument(_Closed):
    """One cluster of the super-cluster."""

    servers: Servers
    """Host names, or how many servers there are (the lab gives them addresses)."""
    cluster: Name | None = None
    """The NATS cluster name, if it is not the region's."""
    tags: Tags = ()
    """Server tags, one entry per server in order."""
    ports: PortsDocument = PortsDocument()
    jetstream: JetStreamDocument | None = None
    """Overrides the topology's `jetstream` for this region, as a whole."""


class StretchDocument(_Closed):
    """A cluster with one server in each of several regions."""

    members: Names
    """The regions that have a server in it."""
    cluster: Name = "stretch"


class SettingsDocument(_Closed):
    """Settings of physical streams. What is not set here has vstream's default."""

    replicas: Annotated[int, Field(ge=1, le=5)] | None = None
    """Copies in the region, 1 to 5. Default: 3 where every region has three servers, else 1."""
    storage: Literal["file", "memory"] | None = None
    max_age: Duration | None = None
    """How long messages are kept. On the write stream: the longest outage that loses nothing."""
    max_bytes: Size | None = None
    max_msgs: Count | None = None
    max_msgs_per_subject: Count | None = None
    max_msg_size: Size | None = None
    max_consumers: Count | None = None
    discard: Literal["old", "new"] | None = None
    compression: Literal["none", "s2"] | None = None
    duplicate_window: Duration | None = None
    """In which time a `Nats-Msg-Id` may not come twice. Default: 2m on the write stream, as good as off on the read stream."""
    allow_rollup: bool | None = None
    allow_msg_ttl: bool | None = None
    """Per-message TTL (2.11)."""
    deny_delete: bool | None = None
    deny_purge: bool | None = None
    placement_tags: Names | None = None
    """Servers must have all these tags to hold a replica."""
    description: str | None = None
    metadata: dict[str, str] | None = None
    config: dict[str, Any] | None = None
    """Any other field of the JetStream stream configuration, in the server's spelling and units (nanoseconds, bytes)."""


class LevelDocument(SettingsDocument):
    """Settings for both physical streams, and for each."""

    write: SettingsDocument = SettingsDocument()
    """Settings of the write streams only."""
    read: SettingsDocument = SettingsDocument()
    """Settings of the read streams only."""


class StreamDocument(LevelDocument):
    """One virtual stream."""

    subjects: Names
    """What clients publish on: literals and wildcards."""
    consistency: Literal["virtual", "ordered", "stretch", "homed"] = "virtual"
    """virtual: local writes and reads, eventual consistency between regions."""
    regions: RegionNames = "all"
    """Where the stream exists."""
    canary: Text | None = None
    """The subject that `vstream probe` may publish on; `*` stands for the region of origin."""
    extends: Names = ()
    """Presets to start from; later ones win."""
    overrides: dict[Name, LevelDocument] = {}
    """Settings that differ in one region."""


class TopologyDocument(_Closed):
    """Regions, and the virtual streams that span them."""

    version: Literal[1]
    """The version of this language."""
    name: Name
    """Who owns the streams: written into their metadata."""
    server_version: Version
    """The oldest nats-server that must be able to run this, such as `"2.12"`."""
    naming: Literal["isolated", "blog"] = "isolated"
    """isolated: physical subjects `_vs.<stream>.<region>.…`; blog: `foo.<region>.…`, for those who already run it."""
    regions: Annotated[dict[Name, RegionDocument], Field(min_length=1)]
    stretch: StretchDocument | None = None
    jetstream: JetStreamDocument = JetStreamDocument()
    connect: dict[Name, ConnectDocument] = {}
    """How plan, apply and probe reach each region. Not needed for a lab."""
    defaults: LevelDocument = LevelDocument()
    """Settings for every stream that does not say otherwise."""
    presets: dict[Name, LevelDocument] = {}
    """Named settings that streams can extend."""
    streams: dict[StreamName, StreamDocument] = {}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a topology file, for editors."""
    schema = TopologyDocument.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "vstream topology",
        **{key: value for key, value in schema.items() if key != "title"},
    }
