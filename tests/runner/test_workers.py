"""Who does what in a run: clients of each region, and their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.scenario_runs import HERE, NS, scenario
from vstream.plan.topology_edit import TopologyEdit
from vstream.render.pipeline import render_bundle
from vstream.runner import workers
from vstream.runner.environment import Environment
from vstream.runner.workload.spec import WorkerSpec
from vstream.scenario.model import Publishers, ReaderKind, Readers, Retry, Scenario, Workload
from vstream.topology.model import Endpoint

TOPOLOGY = """\
version: 1
name: cast
server_version: "2.10"
regions:
  west: {servers: 3}
  east: {servers: 3}
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}}
  one: {subjects: [one.>], consistency: homed, home: east}
"""


def publishers(stream: str, *regions: str) -> Publishers:
    return Publishers(
        stream=stream,
        subject=f"{stream}.{{region}}.{{key}}",
        regions=regions,
        rate=10,
        size=(1, 2),
        keys=3,
        retry=Retry.SAME_ID,
        timeout=NS,
        give_up=NS,
        span=HERE,
    )


def readers(stream: str, kind: ReaderKind, *regions: str) -> Readers:
    return Readers(stream=stream, kind=kind, regions=regions, rate=5, timeout=NS, span=HERE)


def make_environment(wanted: Scenario) -> Environment:
    topology = wanted.topology
    endpoints = {
        region.name: Endpoint(urls=(f"nats://{region.name}:4222",), monitor=(f"http://{region.name}:8222",))
        for region in topology.regions
    }
    return Environment(
        lab="cast",
        bundle=render_bundle(topology),
        endpoints=endpoints,
        clients=endpoints,
        logs=Path("log"),
        edit=TopologyEdit(
            file=wanted.topology_file, text=wanted.topology_text, original=wanted.topology_text, topology=topology
        ),
    )


def cast(*workload: Publishers | Readers) -> dict[str, WorkerSpec]:
    rehearsal = replace(
        scenario(topology=TOPOLOGY),
        workload=Workload(
            publishers=tuple(action for action in workload if isinstance(action, Publishers)),
            readers=tuple(action for action in workload if isinstance(action, Readers)),
        ),
    )
    return {
        worker.region: worker
        for worker in workers.specify_workers(rehearsal, make_environment(rehearsal), Path("capture"), 0)
    }


def test_clients_know_the_servers_of_their_region_alone() -> None:
    specs = cast(publishers("foo", "west", "east"))
    assert {region: worker.endpoint.urls for region, worker in specs.items()} == {
        "west": ("nats://west:4222",),
        "east": ("nats://east:4222",),
    }


def test_a_region_without_clients_has_no_worker() -> None:
    assert set(cast(publishers("foo", "east"))) == {"east"}


def test_no_two_clients_and_no_two_messages_are_called_the_same() -> None:
    specs = cast(publishers("foo", "west"), publishers("foo", "west", "east"), publishers("one", "west"))
    assert [(publisher.client, publisher.prefix) for publisher in specs["west"].publishers] == [
        ("west/publish-foo", "west/foo/"),
        ("west/publish-foo-2", "west/foo-2/"),
        ("west/publish-one", "west/one/"),
    ]
    assert [publisher.prefix for publisher in specs["east"].publishers] == ["east/foo/"]


def test_readers_read_what_publishers_of_all_regions_write() -> None:
    specs = cast(
        publishers("foo", "west", "east"), publishers("one", "east"), readers("foo", ReaderKind.DIRECT, "west")
    )
    (reader,) = specs["west"].readers
    assert reader.subjects == (("foo.west.{key}", 3, 10), ("foo.east.{key}", 3, 10))


def test_consumers_are_made_on_what_their_region_reads_from() -> None:
    specs = cast(
        readers("foo", ReaderKind.CONSUMER, "west", "east"), readers("one", ReaderKind.CONSUMER, "west", "east")
    )
    physical = {
        consumer.client: (consumer.physical, consumer.name) for spec in specs.values() for consumer in spec.consumers
    }
    assert physical == {
        "west/consumer-foo": ("foo-read-west", "vstream-west"),
        "west/consumer-one": ("one-read-west", "vstream-west"),
        "east/consumer-foo": ("foo-read-east", "vstream-east"),
        "east/consumer-one": ("one", "vstream-east"),
    }


def test_a_consumer_is_used_by_the_name_that_leads_to_it() -> None:
    """The virtual name is mapped to the read stream; but a stream that really bears it has no such consumer."""
    rehearsal = scenario(topology=TOPOLOGY)
    streams = workers.list_tried_streams(rehearsal, make_environment(rehearsal), 1, ("west", "east"))
    assert {(tried.region, tried.stream): tried.consumer_stream for tried in streams} == {
        ("west", "foo"): "foo",
        ("east", "foo"): "foo",
        ("west", "one"): "one-read-west",
        ("east", "one"): "one",
    }


def test_every_stream_is_sampled_where_it_lives() -> None:
    rehearsal = scenario(topology=TOPOLOGY)
    sampler = workers.specify_sampler(make_environment(rehearsal), Path("capture"), 0)
    assert {region.name: region.streams for region in sampler.regions} == {
        "west": ("foo-write-west", "foo-read-west", "one-read-west"),
        "east": ("foo-write-east", "foo-read-east", "one"),
    }
