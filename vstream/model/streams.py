"""Stream configurations as the JetStream API speaks them: an open mapping of fields with typed views."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.model.json import Json

TOPOLOGY_KEY = "vstream.topology"
STREAM_KEY = "vstream.stream"
REGION_KEY = "vstream.region"
ROLE_KEY = "vstream.role"
ROUTING_KEY = "vstream.routing"

IN_ACCOUNT = "/"
"""Between the account and the name of a stream: `R_west/foo`. Servers refuse it in names of streams, so it means one thing."""
TAKEN_FROM = "_vs.from"
"""In a hidden account, where the API of another is that it takes messages from: `_vs.from.<account>`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """
    A stream configuration. *name* says the account too where streams have accounts of their own.

    The API is an open world, new fields arrive with each server release: a closed
    class would drop what it does not know. Durations are integer nanoseconds.
    """

    name: str
    fields: Mapping[str, Json]
    """Every field as sent or received, the name included."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata, empty if there is none."""
        metadata = self.fields.get("metadata")
        return {str(key): str(value) for key, value in metadata.items()} if isinstance(metadata, dict) else {}

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the streams that this one sources, as written."""
        sources = self.fields.get("sources")
        if not isinstance(sources, (list, tuple)):
            return ()
        return tuple(taken_from(source) for source in sources if isinstance(source, dict) and "name" in source)

    @property
    def mirror_name(self) -> str | None:
        """The name of the stream that this one mirrors, None if it is no mirror."""
        mirror = self.fields.get("mirror")
        return taken_from(mirror) if isinstance(mirror, dict) and "name" in mirror else None

    @property
    def owner(self) -> str | None:
        """The topology that created this stream, None if vstream did not."""
        return self.metadata.get(TOPOLOGY_KEY)


def taken_from(source: Mapping[str, Json]) -> str:
    """The stream that a source or a mirror, as the API spells it, takes from: `foo`, or `W_west/foo`."""
    name, external = str(source["name"]), source.get("external")
    api = str(external.get("api") or "") if isinstance(external, dict) else ""
    account = api.removeprefix(f"{TAKEN_FROM}.")
    return name if account == api else f"{account}{IN_ACCOUNT}{name}"


_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def as_source(stream: str) -> str:
    """
    How servers call *stream* in `Nats-Stream-Source`: by its name, and of another account with a hash of its API prefix.

    server/stream.go, composeIName, and getHash in server/raft.go: the first eight bytes of SHA-256, each as a digit of base 62.
    """
    account, _, name = stream.rpartition(IN_ACCOUNT)
    if not account:
        return name
    digest = hashlib.sha256(f"{TAKEN_FROM}.{account}".encode()).digest()
    return f"{name}:{''.join(_DIGITS[byte % 62] for byte in digest[:8])}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStream:
    """A stream as the servers report it."""

    config: StreamConfig
    created: str
    """RFC 3339, as the server wrote it. Changes only when a stream is created again."""
    cluster: str | None
    """Where it lives; None on a server that is not clustered."""
    messages: int = 0
    consumers: int = 0
    """How many consumers clients have made on it."""
