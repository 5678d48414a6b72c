"""A topology, decoded: every default filled in, every preset resolved, every value in JetStream's own units."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.model.json import Json

ServerVersion = tuple[int, int]
DEDUPE_OFF_SINCE: ServerVersion = (2, 14)
"""From here on a `duplicate_window` of 0 turns deduplication of sourced messages off; before, it meant 2 minutes."""
"""Major and minor, such as (2, 12): features arrive with minor versions."""


class Role(Enum):
    """What a physical stream does for its virtual stream."""

    WRITE = "write"
    READ = "read"


class Naming(Enum):
    """Where physical subjects live."""

    ISOLATED = "isolated"
    """`_vs.<stream>.<region>.<subject>`: outside the virtual space, so that nothing is mapped twice."""
    BLOG = "blog"
    """`<first token>.<region>.<rest>`: for those who already run the published recipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """How a client reaches a region: a nats CLI context, or addresses with credentials. Holds no secret itself."""

    context: str | None = None
    urls: tuple[str, ...] = ()
    creds: str | None = None
    nkey: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_env: str | None = None
    token: str | None = field(default=None, repr=False)
    token_env: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    monitor: tuple[str, ...] = ()
    """HTTP monitoring addresses of every server of the region: where loaded mappings are read back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """TCP ports of one server."""

    client: int
    monitor: int
    cluster: int
    gateway: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JetStreamLimits:
    """What one server may store, in bytes, and where."""

    max_file: int
    max_memory: int
    store_dir: str | None
    sync_interval: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """One nats-server. *host* is None where the topology gives only a number of servers."""

    name: str
    host: str | None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One cluster of the super-cluster."""

    name: str
    cluster: str
    servers: tuple[Server, ...]
    ports: Ports
    jetstream: JetStreamLimits
    endpoint: Endpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """What the topology says of one physical stream: fields of the JetStream API, in its spelling and units."""

    fields: Mapping[str, Json]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualStream:
    """A stream that clients know by *name* in every region of *regions*."""

    name: str
    subjects: tuple[str, ...]
    regions: tuple[str, ...]
    write: Mapping[str, StreamSettings]
    """By region."""
    read: Mapping[str, StreamSettings]
    """By region."""
    canary: str | None = None
    """The subject that probes may publish on; a `*` in it stands for the region of origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The whole declaration."""

    name: str
    server_version: ServerVersion
    naming: Naming
    regions: tuple[Region, ...]
    streams: tuple[VirtualStream, ...]

    def region(self, name: str) -> Region:
        """The region called *name*. Raises KeyError if there is none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)
