"""
What a fault will take away: the write quorum of each region, the majority of the stretch cluster and of the meta group.

Pure: from a topology, the servers and links that are lost already, and those that the fault would take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import Enum

from vstream.lab.links.state import Direction
from vstream.topology.model import Region, Role, Topology
from vstream.topology.replication import physical_streams
from vstream.value_class import value_class


class Quorum(Enum):
    """Whether the write streams of a region can still store messages."""

    KEPT = "kept"
    PERHAPS = "perhaps"
    """It depends on which servers hold the replicas: a region may have more servers than a stream has replicas."""
    LOST = "lost"


@value_class
class RegionEffect:
    """A region while the fault lasts. *streams* are its write streams, *without* those that may lose their quorum."""

    region: str
    servers: int
    left: int
    streams: int
    without: int
    quorum: Quorum
    is_new: bool
    """Whether this fault takes something away, rather than an earlier one."""


@value_class
class GroupEffect:
    """A group that elects a leader, while the fault lasts. *left* is its largest part that is still connected."""

    peers: int
    left: int

    @property
    def has_majority(self) -> bool:
        """Whether it could elect a leader."""
        return self.left > self.peers // 2


@value_class
class PartitionSide:
    """Regions that reach each other and no others, and how many servers run in them."""

    regions: tuple[str, ...]
    servers: int
    has_meta_majority: bool


@value_class
class Impact:
    """Everything that the fault takes away, and why that would be more than was asked for."""

    missing: frozenset[str]
    """Servers that are lost already."""
    regions: tuple[RegionEffect, ...]
    meta: GroupEffect | None
    """
    All servers; None if each region has a meta group of its own.
    Without a meta leader, streams cannot be created, changed or moved.
    """
    stretch: GroupEffect | None
    """The stretch cluster; its streams have replicas on most of its members."""
    sides: tuple[PartitionSide, ...]
    """One side, unless links are cut."""
    apart: tuple[str, ...]
    """Regions that run without their hub: nothing is copied from or to them."""
    permanent_losses: tuple[str, ...]
    """What will be lost for good."""
    refusals: tuple[str, ...]


def assess_impact(
    topology: Topology,
    *,
    missing_servers: Collection[str],
    taken_servers: Collection[str],
    missing_links: Collection[Direction] = (),
    taken_links: Collection[Direction] = (),
    permanent_losses: Sequence[str] = (),
) -> Impact:
    """
    The effect of taking servers and links from *topology*, where others are missing already.

    Asked for are the regions whose servers are taken. A fault that also costs other regions their write quorum, or the
    meta group its majority, takes more than that. So does a fault while a majority is already missing. Permanent loss
    is always more than was asked for.
    """
    effects = tuple(_assess_region(topology, region, missing_servers, taken_servers) for region in topology.regions)
    parts = find_connected_sides([region.name for region in topology.regions], {*missing_links, *taken_links})
    away = {*missing_servers, *taken_servers}
    present = {seat.server.name: seat.region for seat in topology.seats if seat.server.name not in away}
    everyone = [seat.server.name for seat in topology.seats]
    members = [seat.server.name for seat in topology.seats if seat.is_stretch]
    meta = None if topology.hubs else _assess_group(everyone, present, parts)
    stretch = _assess_group(members, present, parts) if members else None
    asked = {seat.region for seat in topology.seats if seat.server.name in taken_servers}
    refusals = []
    if (taken_servers or taken_links) and meta is not None and not meta.has_majority:
        refusals.append(
            f"the JetStream meta group would have {meta.left} of its {meta.peers} servers: "
            "no majority, so no leader anywhere"
        )
    if stretch is not None and not stretch.has_majority and (taken_links or not set(taken_servers).isdisjoint(members)):
        refusals.append(f"the stretch cluster would have {stretch.left} of its {stretch.peers} servers: no majority")
    elsewhere = [effect.region for effect in effects if effect.quorum is not Quorum.KEPT and effect.region not in asked]
    if elsewhere and any(effect.is_new for effect in effects):
        refusals.append(
            f"{_format_regions([*sorted(asked), *elsewhere])} would be without a write quorum at the same time"
        )
    refusals += permanent_losses
    hubs = topology.hubs.members if topology.hubs else {}
    hubless = {region for region, hub in hubs.items() if hub.name in away}
    counted = [(side, sum(region in side for region in present.values())) for side in parts]
    majority = 0 if meta is None else meta.peers // 2 + 1
    sides = [PartitionSide(regions=side, servers=count, has_meta_majority=count >= majority) for side, count in counted]
    return Impact(
        missing=frozenset(missing_servers),
        regions=effects,
        meta=meta,
        stretch=stretch,
        sides=tuple(sides),
        apart=tuple(effect.region for effect in effects if effect.left and effect.region in hubless),
        permanent_losses=tuple(permanent_losses),
        refusals=tuple(refusals),
    )


def _assess_group(names: Collection[str], present: Mapping[str, str], parts: Sequence[Collection[str]]) -> GroupEffect:
    """Of *names*, those that are *present* (with their regions) on the best of *parts*."""
    return GroupEffect(peers=len(names), left=max(sum(present.get(name) in side for name in names) for side in parts))


def find_connected_sides(regions: Sequence[str], cut: Collection[Direction]) -> tuple[tuple[str, ...], ...]:
    """*regions* in groups that reach each other, perhaps through other regions. A one-way link does not count."""
    sides: list[tuple[str, ...]] = []
    left = list(regions)
    while left:
        side = [left.pop(0)]
        for region in side:
            near = [
                neighbour for neighbour in left if (region, neighbour) not in cut and (neighbour, region) not in cut
            ]
            side += near
            left = [name for name in left if name not in near]
        sides.append(tuple(region for region in regions if region in side))
    return tuple(sides)


def _assess_region(topology: Topology, region: Region, lost: Collection[str], servers: Collection[str]) -> RegionEffect:
    names = [server.name for server in region.servers]
    before = sum(name not in lost for name in names)
    left = sum(name not in lost and name not in servers for name in names)
    replicas = []
    for stream in topology.streams:
        for part in physical_streams(stream):
            if part.place == region.name and part.role in {Role.WRITE, Role.ORIGIN}:
                number = part.fields.get("num_replicas")
                replicas.append(number if isinstance(number, int) else 1)
    after = [_assess_quorum(number, len(names), left) for number in replicas]
    earlier = [_assess_quorum(number, len(names), before) for number in replicas]
    worst = list(Quorum)
    return RegionEffect(
        region=region.name,
        servers=len(names),
        left=left,
        streams=len(replicas),
        without=sum(quorum is not Quorum.KEPT for quorum in after),
        quorum=max(after, key=worst.index, default=Quorum.KEPT),
        is_new=any(worst.index(now) > worst.index(then) for now, then in zip(after, earlier, strict=True)),
    )


def _assess_quorum(replicas: int, servers: int, left: int) -> Quorum:
    """Of a stream that has *replicas* on some of *servers*, of which *left* are left."""
    missing = servers - left
    needed = replicas // 2 + 1
    if replicas - min(replicas, missing) >= needed:
        return Quorum.KEPT
    at_best = min(replicas, left)
    return Quorum.PERHAPS if at_best >= needed else Quorum.LOST


def _format_regions(names: list[str]) -> str:
    shown = [f"`{name}`" for name in names]
    return f"regions {', '.join(shown[:-1])} and {shown[-1]}" if len(shown) > 1 else f"region {shown[0]}"
