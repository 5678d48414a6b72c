"""What runs on servers, before its topology is known; and which regions and clusters there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import NamedTuple

from vstream.plan.rules import LoadedEntries
from vstream.topology import naming
from vstream.topology.consumer_config import ObservedConsumer
from vstream.topology.model import Endpoint, Role, ServerVersion
from vstream.topology.stream_config import ObservedStream
from vstream.value_class import value_class

AT_ITS_CLUSTER = ""
"""The place of an unmarked stream with such a name: only its cluster says where it is."""


@value_class
class DiscoveredServer:
    """A server that answered itself."""

    name: str
    cluster: str | None
    version: ServerVersion
    tags: tuple[str, ...] = ()
    monitor: str | None = None
    """Its monitoring address, if it was asked there; otherwise a client is connected to it."""
    beside: str | None = None
    """
    The cluster whose endpoint listed this monitoring address.
    This is its region if the server is in another cluster.
    """


@value_class
class ClusterEndpoint:
    """How the servers of a cluster are reached."""

    cluster: str
    endpoint: Endpoint
    region: str | None = None
    """The region's name in the lab."""
    servers: int = 0
    """Number of servers that the cluster reports; 0 if it does not."""


@value_class
class Discovered:
    """Everything that one account has on the servers of a super-cluster."""

    streams: Mapping[str, ObservedStream]
    endpoints: tuple[ClusterEndpoint, ...]
    """At least one, and one for each cluster."""
    servers: tuple[DiscoveredServer, ...] = ()
    consumers: Mapping[str, Mapping[str, ObservedConsumer]] = field(default_factory=dict)
    """Durable consumers by stream and name, for streams that clients may read."""
    rules: Mapping[str, LoadedEntries] = field(default_factory=dict)
    """Server → mapping source → destinations, spelled as a plan does."""
    clusters: tuple[str, ...] = ()
    """Clusters of all servers that were seen or mentioned."""
    unread: tuple[str, ...] = ()
    """Monitoring addresses without an answer."""
    lab: str | None = None
    """The lab whose servers they are."""


@value_class
class UndescribedItem:
    """Something that runs and that the topology does not describe."""

    kind: str
    """`stream`, `consumer`, `mapping`, `field`, `region`, `server`, `subjects` or `topology`."""
    name: str
    text: str
    hint: str | None = None
    """What to do about it, if anything."""

    def as_dict(self) -> dict[str, str | None]:
        """As plain JSON data."""
        return {"kind": self.kind, "name": self.name, "message": self.text, "hint": self.hint}


@value_class
class MatchedStream:
    """One physical stream of a virtual one. *place* is a region, the stretch cluster, or `AT_ITS_CLUSTER`."""

    virtual: str
    role: Role
    place: str
    stream: ObservedStream


@value_class
class RegionLayout:
    """The regions by name, each with its cluster; and the stretch cluster with the regions of its members."""

    regions: Mapping[str, str]
    stretch: str | None
    members: tuple[str, ...]

    def region_at(self, cluster: str | None) -> str | None:
        """The region of *cluster*."""
        return next((region for region, name in self.regions.items() if name == cluster), None)


def cluster_of(stream: ObservedStream) -> str | None:
    """The cluster that a stream should be in, else the one that it is in."""
    return stream.config.placement_cluster or stream.cluster


class ServerCount(NamedTuple):
    """How many servers of a cluster were asked, and how many it has at least."""

    asked: int
    at_least: int


def count_servers(cluster: str, system: Discovered) -> ServerCount:
    """How many servers *cluster* has, by those that were asked and by what they say."""
    asked = sum(server.cluster == cluster for server in system.servers)
    heard = [endpoint.servers for endpoint in system.endpoints if endpoint.cluster == cluster]
    placed = [stream.config for stream in system.streams.values() if cluster_of(stream) == cluster]
    replicas = [int(str(config.fields.get("num_replicas") or 1)) for config in placed]
    return ServerCount(asked, max(asked, *heard, *replicas, 1))


def locate_regions(system: Discovered, parts: Sequence[MatchedStream]) -> tuple[RegionLayout, list[UndescribedItem]]:
    """The regions and the stretch cluster of *parts* and of the servers that were found."""
    votes: dict[str, Counter[str]] = {}
    for part in parts:
        # A server on its own says nothing of clusters.
        cluster = cluster_of(part.stream) or system.endpoints[0].cluster
        if part.role in {Role.WRITE, Role.READ}:
            votes.setdefault(part.place, Counter())[cluster] += 1
    regions = {region: seen.most_common(1)[0][0] for region, seen in votes.items()}
    stretch, unsure = _find_stretch(system, parts, regions)
    lab_regions = {endpoint.cluster: endpoint.region for endpoint in system.endpoints if endpoint.region}
    clusters = [
        *(endpoint.cluster for endpoint in system.endpoints),
        *(str(cluster_of(part.stream)) for part in parts),
        *system.clusters,
    ]
    for cluster in dict.fromkeys(clusters):
        if cluster not in {*regions.values(), stretch, "None"}:
            regions[lab_regions.get(cluster, cluster)] = cluster
    order = [endpoint.cluster for endpoint in system.endpoints]
    ordered = sorted(
        regions.items(), key=lambda pair: (order.index(pair[1]) if pair[1] in order else len(order), pair[0])
    )
    layout = RegionLayout(regions=dict(ordered), stretch=stretch, members=())
    undescribed = []
    if unsure:
        hint = "if it is one cluster across regions, make it `stretch`, and the streams `consistency: stretch`"
        undescribed.append(UndescribedItem(kind="region", name=unsure, text="is taken for a region", hint=hint))
    members = [
        region for server in system.servers if server.cluster == stretch and (region := _stands_in(server, layout))
    ]
    return replace(layout, members=tuple(name for name in layout.regions if name in members)), undescribed


def with_place(part: MatchedStream, where: RegionLayout) -> MatchedStream:
    """*part* with its place: an unmarked origin or order is in the region, or the stretch cluster, whose cluster it is in."""
    if part.place != AT_ITS_CLUSTER:
        return part
    cluster = cluster_of(part.stream)
    return replace(part, place=where.region_at(cluster) or cluster or "")


def _find_stretch(
    system: Discovered, parts: Sequence[MatchedStream], regions: Mapping[str, str]
) -> tuple[str | None, str | None]:
    """The cluster that spans regions, and one of which it cannot be told whether it does."""
    region_clusters = set(regions.values())
    for role in (Role.ORDER, Role.ORIGIN):
        for part in parts:
            cluster = cluster_of(part.stream)
            if part.role is not role or cluster is None or cluster in region_clusters:
                continue
            # An origin in a cluster without a copy: is that the region that it is at home in, or the stretch cluster?
            if role is Role.ORDER or _is_stretch(system, cluster, regions):
                return cluster, None
            # Clients were told to connect there, or vstream has marked it.
            is_told = cluster in {endpoint.cluster for endpoint in system.endpoints}
            if not is_told and part.place in {AT_ITS_CLUSTER, cluster}:
                return None, cluster
    named = {*regions, *(endpoint.cluster for endpoint in system.endpoints)}
    other_clusters = sorted({server.cluster for server in system.servers if server.cluster} - region_clusters - named)
    return next((candidate for candidate in other_clusters if _is_stretch(system, candidate, named)), None), None


def _is_stretch(system: Discovered, cluster: str, regions: Iterable[str]) -> bool:
    """Whether its servers are named as vstream names members, or stand beside those of regions."""
    members = {naming.stretch_server_name(cluster, region) for region in regions}
    beside = {server.beside for server in system.servers if server.cluster == cluster}
    return any(server.name in members for server in system.servers if server.cluster == cluster) or bool(
        beside - {None, cluster}
    )


def _stands_in(server: DiscoveredServer, where: RegionLayout) -> str | None:
    """The region that a member of the stretch cluster stands in."""
    by_name = {naming.stretch_server_name(where.stretch or "", region): region for region in where.regions}
    return by_name.get(server.name) or where.region_at(server.beside)
