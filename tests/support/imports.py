"""What `vstream init` would find on servers that run a topology, without any."""

from __future__ import annotations

from typing import Any

from tests.support.plans import unused_consumer
from vstream.plan.canonical import to_canonical_stream
from vstream.plan.importing.discovered import ClusterEndpoint, Discovered, DiscoveredServer
from vstream.plan.rules import spell_destinations
from vstream.render.pipeline import render_bundle
from vstream.topology.bundle import Bundle
from vstream.topology.consumer_config import ConsumerConfig, ObservedConsumer
from vstream.topology.model import Endpoint, Topology
from vstream.topology.stream_config import ObservedStream, StreamConfig


def report_fields(fields: Any) -> dict[str, Any]:
    """A stream's configuration as servers answer it: with their defaults, and metadata of their own."""
    form: dict[str, Any] = to_canonical_stream(fields)
    form["metadata"] = {**form["metadata"], "_nats.level": "1", "_nats.ver": "2.15.1"}
    return {key: value for key, value in form.items() if value not in (None, "", [], {}, False)}


def running(topology: Topology, *, lab: str | None = None, has_monitors: bool = True) -> Discovered:
    """Everything that servers would say that run *topology*."""
    bundle: Bundle = render_bundle(topology)
    streams = {stream.config.name: make_observed(stream.config.fields) for stream in bundle.streams}
    consumers: dict[str, dict[str, ObservedConsumer]] = {}
    for rendered_consumer in bundle.consumers:
        consumers.setdefault(rendered_consumer.config.stream, {})[rendered_consumer.config.durable] = consumer(
            rendered_consumer.config.stream, rendered_consumer.config.fields
        )
    rules = {mapping.source: spell_destinations(mapping) for mapping in bundle.mappings}
    clusters = {region.name: region.cluster for region in topology.regions}
    servers = tuple(
        DiscoveredServer(
            name=seat.server.name,
            cluster=seat.cluster,
            version=topology.server_version,
            tags=seat.server.tags,
            monitor=f"http://{seat.server.name}.example.net:8222",
            beside=clusters[seat.region],
        )
        for seat in topology.seats
    )
    return Discovered(
        streams=streams,
        consumers=consumers,
        rules={server.name: rules for server in servers} if has_monitors else {},
        servers=servers if has_monitors else (),
        endpoints=tuple(
            ClusterEndpoint(
                cluster=region.cluster,
                endpoint=Endpoint(urls=(f"nats://{region.name}.example.net:4222",)),
                region=region.name if lab else None,
            )
            for region in topology.regions
        ),
        lab=lab,
    )


def make_observed(fields: Any, cluster: str | None = None) -> ObservedStream:
    """A stream with these *fields* that runs where it shall, or in *cluster*."""
    name = str(fields["name"])
    placed = (fields.get("placement") or {}).get("cluster")
    config = StreamConfig(name=name, fields=report_fields(fields))
    return ObservedStream(config=config, created="2026-11-22T00:00:00Z", cluster=cluster or placed, messages=7)


def consumer(stream: str, fields: Any) -> ObservedConsumer:
    """A durable with these *fields* on *stream*."""
    config = ConsumerConfig(stream=stream, durable=str(fields["durable_name"]), fields=dict(fields))
    return unused_consumer(config, created="2026-11-22T00:00:00Z")
