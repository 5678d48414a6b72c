"""From a snapshot to a status of each region and stream. `pairs` decides who is behind, and `problems` what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from vstream.errors import VstreamError
from vstream.health.doctor.check import LiveSystem, make_live_system
from vstream.health.loaded_mappings import MappedOperation, list_serving
from vstream.health.problems import find_problems, find_unknown
from vstream.health.snapshot import RegionSnapshot, Snapshot
from vstream.health.status import ConsumerStatus, RegionStatus, Share, Status, StreamStatus
from vstream.topology import physical
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology, VirtualStream
from vstream.topology.replication import Durable, PhysicalStream, list_durables, list_physical_streams

_NOT_RENDERED = VstreamError("the expected rules were not rendered")


def assess(topology: Topology, snapshot: Snapshot, bundle: Bundle | VstreamError = _NOT_RENDERED) -> Status:
    """
    The status of *topology* that *snapshot* shows.

    *bundle* says what servers are to have loaded; or an error, why that is not known.
    """
    streams = list_physical_streams(topology)
    system = make_live_system(topology, snapshot, bundle, files={})
    regions = tuple(_assess_region(system, region) for region in snapshot.regions)
    places = [region.name for region in topology.regions]
    if topology.stretch:
        places.append(topology.stretch.cluster)
    return Status(
        topology=topology.name,
        at=snapshot.at,
        took=snapshot.took,
        places=tuple(places),
        servers=snapshot.servers,
        meta_leader=_find_meta_leader(snapshot) if topology.hubs is None else None,
        has_one_meta_group=topology.hubs is None,
        regions=regions,
        streams=tuple(_assess_streams(streams, snapshot)),
        pairs=tuple(system.pairs),
        problems=tuple(find_problems(system, regions)),
        unknown=tuple(find_unknown(system, regions)),
        mappings_ok={server.name: system.loaded.is_ok(server.name) for server in snapshot.servers},
        consumers=tuple(_assess_consumer(durable, snapshot) for durable in list_durables(topology)),
        beacons=snapshot.beacons,
    )


def _assess_consumer(durable: Durable, snapshot: Snapshot) -> ConsumerStatus:
    observed = snapshot.consumers.get((durable.stream, durable.name))
    return ConsumerStatus(
        virtual=durable.virtual,
        name=durable.name,
        region=durable.region,
        stream=durable.stream,
        exists=_exists(durable, snapshot),
        pending=observed.pending if observed else None,
        unacknowledged=observed.unacknowledged if observed else None,
        redelivered=observed.redelivered if observed else None,
        waiting=observed.waiting if observed else None,
        ack_floor=observed.ack_floor if observed else None,
    )


def _exists(durable: Durable, snapshot: Snapshot) -> bool | None:
    """Whether the consumer exists; None where nobody answered for it."""
    key = durable.stream, durable.name
    if key in snapshot.consumers:
        return snapshot.consumers[key] is not None
    return False if durable.stream in snapshot.absent else None


def _find_meta_leader(snapshot: Snapshot) -> str | None:
    """The meta leader that most servers name. One that does not answer is none: they name a dead one for seconds."""
    silent = {server.name for server in snapshot.servers if not server.may_serve}
    names = [server.meta_leader for server in snapshot.servers if server.meta_leader]
    named = Counter(name for name in names if name not in silent)
    return max(sorted(named), key=lambda leader: named[leader], default=None)


def _assess_streams(streams: Sequence[PhysicalStream], snapshot: Snapshot) -> Iterator[StreamStatus]:
    for stream in streams:
        observed = snapshot.streams.get(stream.name)
        yield StreamStatus(
            virtual=stream.virtual,
            name=stream.name,
            place=stream.place,
            role=stream.role.value,
            leader=observed.leader if observed else None,
            current=observed.current if observed else 0,
            replicas=observed.replicas if observed else 0,
            messages=observed.messages if observed else None,
            bytes=observed.bytes if observed else None,
            last=observed.last_seq if observed else None,
        )


def _assess_region(system: LiveSystem, region: RegionSnapshot) -> RegionStatus:
    topology, snapshot, loaded, faults = system.topology, system.snapshot, system.loaded, system.stream_faults
    servers = [server for server in snapshot.servers if server.region == region.name]
    streams = [stream for stream in topology.streams if region.name in stream.regions]
    refusing = {fault.stream for fault in faults if fault.stops_storing}
    readable = snapshot.streams.keys() - {fault.stream for fault in faults if fault.stops_direct_get}

    led = {name for name, observed in snapshot.streams.items() if observed.leader is not None}

    def takes_publishes(stream: VirtualStream) -> bool:
        name = physical.write_stream_in(stream, region.name)
        # An origin is elsewhere: it must be reached from here, too.
        is_reached = not stream.origin_settings or region.origins.get(name, "not asked") is None
        return name in led - refusing and is_reached

    serving_servers = list_serving(topology, region.name, snapshot.servers)
    broken = loaded.broken_on(server.name for server in serving_servers)
    # A server that does not answer has no clients. One that nobody asked, or that did not say it, may have any rules.
    is_seen = any(loaded.is_ok(server.name) is not None for server in serving_servers)
    is_seen = is_seen and not any(server.may_serve and loaded.is_ok(server.name) is None for server in serving_servers)

    # Where servers answer, or nobody could ask them, that vstream cannot connect says nothing about their clients.
    is_unknown = region.problem is not None and any(server.may_serve for server in serving_servers)

    def count(operation: MappedOperation, served: Sequence[VirtualStream]) -> Share:
        if is_unknown and not snapshot.was_connected:
            return Share(works=0, of=len(streams), unknown=len(streams))
        mapped = [stream for stream in served if not broken.break_for(stream, operation)]
        works = len(mapped) if is_seen else 0
        return Share(works=works, of=len(streams), unknown=len(mapped) - works)

    taking = [stream for stream in streams if takes_publishes(stream)]
    read_streams = [(stream, physical.read_stream_in(stream, region.name)) for stream in streams]
    return RegionStatus(
        name=region.name,
        servers=len(servers),
        reached=sum(server.is_reached for server in servers),
        unknown=sum(server.url is None and not server.is_reached for server in servers),
        problem=region.problem,
        publish=count(MappedOperation.PUBLISH, taking),
        direct_get=count(MappedOperation.DIRECT_GET, [stream for stream, name in read_streams if name in readable]),
        consumers=count(MappedOperation.CONSUME, [stream for stream, name in read_streams if name in led]),
        led=len(taking),
        control=None if is_unknown else region.problem is None and region.control is None,
    )
