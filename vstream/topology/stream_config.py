"""Stream configurations as the JetStream API speaks them: an open mapping of fields with typed views."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.syntax.json_types import Json

TOPOLOGY_KEY = "vstream.topology"
STREAM_KEY = "vstream.stream"
REGION_KEY = "vstream.region"
ROLE_KEY = "vstream.role"
ROUTING_KEY = "vstream.routing"

REGIONAL = "APP_"
"""How the names of accounts begin that hold the clients and the streams of one region."""
IN_ACCOUNT = "/"
"""
Between the account, or the domain, and the name of a stream: `R_west/foo`, `west/foo`.

Servers refuse it in names of streams, so it means one thing.
"""
FORMER = "M_"
"""How the account of clients is called where a topology moves away from the streams of `routing: mapped` in it."""
TAKEN_FROM = "_vs.from"
"""In an account with streams, where the API of another is that it takes messages from: `_vs.from.<account>`."""
HIDDEN = ("W_", "R_", "S_", FORMER, REGIONAL)
"""How the names of accounts begin that hold streams and that others ask through imports. No domain is called so."""


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
        return tuple(
            taken_from(source, self.name) for source in sources if isinstance(source, dict) and "name" in source
        )

    @property
    def mirror_name(self) -> str | None:
        """The name of the stream that this one mirrors, None if it is no mirror."""
        mirror = self.fields.get("mirror")
        return taken_from(mirror, self.name) if isinstance(mirror, dict) and "name" in mirror else None

    @property
    def owner(self) -> str | None:
        """The topology that created this stream, None if vstream did not."""
        return self.metadata.get(TOPOLOGY_KEY)


def account_in(name: str) -> str | None:
    """The account, or the domain, in the *name* of a stream: `R_west` of `R_west/foo`."""
    return name.rpartition(IN_ACCOUNT)[0] or None


def is_in_domain(name: str) -> bool:
    """Whether the stream called *name* is in a JetStream domain."""
    account = account_in(name)
    return account is not None and not account.startswith(HIDDEN)


def is_written_aside(name: str) -> bool:
    """Whether the stream called *name* is where write streams stand beside read streams: in a domain, or a region's account."""
    return is_in_domain(name) or (account_in(name) or "").startswith(REGIONAL)


def api_of(account: str) -> str:
    """Where whoever takes messages from *account* reaches its API: a domain's is reached as servers have it."""
    return f"{TAKEN_FROM}.{account}" if account.startswith(HIDDEN) else f"$JS.{account}.API"


def taken_from(source: Mapping[str, Json], taker: str) -> str:
    """
    The stream that a source or a mirror, as the API spells it, takes from: `foo`, or `W_west/foo`.

    *taker* is the stream that it belongs to: without `external` it takes from a stream beside it.
    """
    name, external = str(source["name"]), source.get("external")
    api = str(external.get("api") or "") if isinstance(external, dict) else ""
    account = account_in(taker) if not api else _ACCOUNT.sub(r"\1\2", api)
    return name if account in {None, api} else f"{account}{IN_ACCOUNT}{name}"


REPLAYS = ":Rpl[0-9A-Za-z]{5}$"
"""
How names end from which a repair has put messages in again that a stream lacked: `foo-write-west:RplXXXXX`.

As servers write a stream of another account: an audit takes one for `foo-write-west` itself, and a server that looks
for where to go on with that does not.
"""
_ACCOUNT = re.compile(rf"(?:{re.escape(TAKEN_FROM)}\.([^.]+)|\$JS\.([^.]+)\.API)")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def as_source(stream: str, taker: str | None = None) -> str:
    """
    How servers call *stream* in `Nats-Stream-Source`: by its name, and of another account with a hash of its API prefix.

    *taker* is the stream that took it. server/stream.go, composeIName, and getHash in server/raft.go: the first eight
    bytes of SHA-256, each as a digit of base 62.
    """
    account, name = account_in(stream), stream.rpartition(IN_ACCOUNT)[2]
    if account is None or (taker is not None and account == account_in(taker)):
        return name
    digest = hashlib.sha256(api_of(account).encode()).digest()
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
