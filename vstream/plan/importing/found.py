"""What was found on servers, before anybody knows which topology it is of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.topology.consumer_config import ObservedConsumer
    from vstream.topology.model import Endpoint, ServerVersion
    from vstream.topology.stream_config import ObservedStream


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveredServer:
    """One server that was asked itself."""

    name: str
    cluster: str | None
    version: ServerVersion
    tags: tuple[str, ...] = ()
    monitor: str | None = None
    """Its monitoring address, if it was asked there: else a client is connected to it."""
    beside: str | None = None
    """The cluster whose clients' way in its monitoring address was named with: its region, if it is in another cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEndpoint:
    """How the servers of a cluster are reached."""

    cluster: str
    endpoint: Endpoint
    region: str | None = None
    """What a lab calls the region."""
    servers: int = 0
    """How many servers the cluster says that it has; 0 if it does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovered:
    """Everything that one account has on servers of one super-cluster."""

    streams: Mapping[str, ObservedStream]
    endpoints: tuple[ClusterEndpoint, ...]
    """At least one, and one for each cluster."""
    servers: tuple[DiscoveredServer, ...] = ()
    consumers: Mapping[str, Mapping[str, ObservedConsumer]] = field(default_factory=dict)
    """Durables by their stream and name, of the streams that clients may read from."""
    rules: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """Server → mapping source → destinations, spelled as a plan does."""
    clusters: tuple[str, ...] = ()
    """Of all servers that were heard of."""
    unread: tuple[str, ...] = ()
    """Monitoring addresses that do not answer."""
    lab: str | None = None
    """The lab whose servers they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """Something that runs, and that the topology does not say."""

    kind: str
    """`stream`, `consumer`, `mapping`, `field`, `region`, `server`, `subjects` or `topology`."""
    name: str
    what: str
    do: str | None = None
    """What a human can do about it, if there is anything."""

    def as_dict(self) -> dict[str, str | None]:
        """As plain JSON data."""
        return {"kind": self.kind, "name": self.name, "what": self.what, "do": self.do}
