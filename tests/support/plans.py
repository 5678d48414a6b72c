"""Topologies and a fake server for tests of plans."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from vstream.apply.execute import execute_plan
from vstream.apply.interfaces import LEFT_TO_OTHERS, Administration, LeftToOthers, ServerAdmin
from vstream.errors import NotReachableError, ServerError
from vstream.lint.check_topology import check_topology
from vstream.plan.canonical import to_canonical_stream
from vstream.plan.context import Observed
from vstream.plan.diff import diff
from vstream.plan.model import Gate, Plan
from vstream.plan.pipeline import PlanRequest
from vstream.plan.rules import spell_destinations
from vstream.plan.saved import SavedPlan, dump, parse, to_dict
from vstream.render.pipeline import render_bundle
from vstream.servers.find_servers import Servers
from vstream.servers.server_plan import ServerPlan
from vstream.topology.bundle import Bundle
from vstream.topology.consumer_config import ConsumerConfig, ObservedConsumer
from vstream.topology.model import Routing, Topology
from vstream.topology.stream_config import ObservedStream, StreamConfig, parse_positions


def unused_consumer(config: ConsumerConfig, *, created: str) -> ObservedConsumer:
    """A durable that has delivered nothing yet."""
    return ObservedConsumer(
        config=config,
        created=created,
        leader=None,
        delivered=0,
        ack_floor=0,
        unacknowledged=0,
        redelivered=0,
        waiting=0,
        pending=0,
    )


def topology(streams: Mapping[str, Any] | None = None, **over: Any) -> Topology:
    """A checked topology of three small regions."""
    document = {
        "version": 1,
        "name": "acme",
        "server_version": "2.10",
        "regions": {"west": {"servers": 1}, "central": {"servers": 1}, "east": {"servers": 1}},
        "defaults": {"write": {"max_age": "1h"}},
        "streams": {"foo": {"subjects": ["foo.>"]}} if streams is None else streams,
        **over,
    }
    loaded: Topology = pickle.loads(_pickled_topology(json.dumps(document)))
    return loaded


def make_plan(
    name: str,
    bundle: Bundle,
    observed: Observed,
    *,
    adopt: frozenset[str] = frozenset(),
    server_version: tuple[int, int] = (2, 12),
    domains: Sequence[str] = (),
) -> Plan:
    """
    The plan of a topology called *name* that renders to *bundle*, with servers of *server_version* or later.

    *domains* are its regions where each is a JetStream domain.
    """
    of = replace(topology(), name=name, server_version=server_version)
    if domains:
        regions = tuple(region for region in of.regions if region.name in domains)
        of = replace(of, routing=Routing.DOMAINS, regions=regions)
    return diff(of, bundle, observed, adopt=adopt)


def as_server_plan(plan: Plan, of: Topology) -> ServerPlan:
    """*plan* of *of*, as if it had been made for servers that nobody can reach."""
    request = PlanRequest(topology=of, bundle=render_bundle(of), endpoints={})
    return ServerPlan(servers=Servers(endpoints={}, lab=None, description=""), request=request, plan=plan)


def render_streams(streams: Mapping[str, Any] | None = None, **over: Any) -> Bundle:
    bundle: Bundle = pickle.loads(_pickled_bundle(pickle.dumps(topology(streams, **over))))
    return bundle


# Many tests want the same ones. Each has a copy of its own, which takes a twentieth of the time.
@cache
def _pickled_topology(document: str) -> bytes:
    return pickle.dumps(check_topology(document.encode(), "topology.yaml").require())


@cache
def _pickled_bundle(pickled: bytes) -> bytes:
    return pickle.dumps(render_bundle(pickle.loads(pickled)))


def read_back(plan: Plan) -> Mapping[str, Any]:
    """*plan* as a file has it."""
    file = SavedPlan(plan=to_dict(plan), topology_file="t.yaml", topology_text="", lab=None)
    return parse(dump(file), "plan.json").plan


class FakeServers:
    """Streams in memory. Answers as the servers do: defaults filled in, its own metadata added."""

    def __init__(self) -> None:
        self.streams_by_name: dict[str, ObservedStream] = {}
        self.consumers: dict[str, dict[str, ObservedConsumer]] = {}
        self.rules: dict[str, Mapping[str, tuple[str, ...]]] = {}
        self.calls: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self.gate_timeouts: dict[str, list[str]] = {}
        self.positions: dict[str, dict[str, int]] = {}
        self.taken_later: dict[str, int] = {}
        """By reader: the last sequence that it took of a stream that was given up, if that was after the plan was made."""
        self.versions: dict[str, Mapping[str, str]] = {}
        """By cluster and server."""
        self.moves = True
        """Whether a stream has another leader after an update."""
        self._clock = 0

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        self._fail(call)

    def _fail(self, call: str) -> None:
        pending = self.failures.get(call)
        if pending:
            raise pending.pop(0)

    def hold(self, name: str, messages: int) -> None:
        """Let stream *name* hold so many messages."""
        self.streams_by_name[name] = replace(self.streams_by_name[name], messages=messages)

    def _store(self, config: StreamConfig, created: str | None) -> None:
        self._clock += 1
        fields = to_canonical_stream(config.fields)
        metadata = {**config.metadata, "_nats.ver": "2.15.1", "_nats.level": "0"}
        before = self.streams_by_name.get(config.name)
        self.streams_by_name[config.name] = ObservedStream(
            config=StreamConfig(name=config.name, fields={**fields, "metadata": metadata}),
            created=created or f"t{self._clock}",
            cluster=None if before is None else before.cluster,
            messages=0 if before is None else before.messages,
            last_seq=0 if before is None else before.last_seq,
        )

    async def create(self, config: StreamConfig) -> None:
        existing = self.streams_by_name.get(config.name)
        self._answer(f"create {config.name}")
        if existing is None:
            self._store(config, None)
        elif to_canonical_stream(existing.config.fields) != to_canonical_stream(config.fields):
            raise ServerError(
                code=400,
                err_code=10058,
                description="stream name already in use",
                subject=f"$JS.API.STREAM.CREATE.{config.name}",
            )

    async def update(self, config: StreamConfig) -> None:
        self._answer(f"update {config.name}")
        self._store(config, self.streams_by_name[config.name].created)

    async def read(self, name: str) -> StreamConfig:
        return self.streams_by_name[name].config

    async def delete(self, name: str) -> None:
        self._answer(f"delete {name}")
        del self.streams_by_name[name]

    def _consume(self, config: ConsumerConfig, created: str | None) -> None:
        self._clock += 1
        metadata = {**config.metadata, "_nats.ver": "2.15.1"}
        stored = ConsumerConfig(
            stream=config.stream, durable=config.durable, fields={**config.fields, "metadata": metadata}
        )
        observed = unused_consumer(stored, created=created or f"t{self._clock}")
        self.consumers.setdefault(config.stream, {})[config.durable] = observed

    async def forget(self, name: str) -> None:
        self._answer(f"forget {name}")

    async def create_consumer(self, config: ConsumerConfig) -> None:
        self._answer(f"create {config.name}")
        self._consume(config, None)

    async def update_consumer(self, config: ConsumerConfig) -> None:
        self._answer(f"update {config.name}")
        self._consume(config, self.consumers[config.stream][config.durable].created)

    async def note_before_move(self, stream: str) -> Mapping[int, str]:
        self.calls.append(f"note {stream}")
        return {1: "t1", 7: "t7"}

    async def ack_floor(self, stream: str, durable: str) -> int:
        return self.consumers[stream][durable].ack_floor

    async def delete_consumer(self, config: ConsumerConfig) -> None:
        self._answer(f"delete {config.name}")
        del self.consumers[config.stream][config.durable]

    async def find_missing(self, gate: Gate) -> str | None:
        """Gauges: a gate holds unless `shut` has something left to say of it."""
        self._answer(f"gate {gate.kind.value} {gate.stream}")
        answers = self.gate_timeouts.get(f"{gate.kind.value} {gate.stream}")
        return answers.pop(0) if answers else None

    async def push(self, gate: Gate) -> None:
        self._answer(f"push {gate.kind.value} {gate.stream}")

    async def leader(self, stream: str) -> str | None:
        """Whichever there was, until the stream is updated."""
        return f"leader {self.calls.count(f'update {stream}') if self.moves else 0}"

    async def resync(self, readers: Sequence[str]) -> tuple[str, ...]:
        self._answer(f"resync {' '.join(readers)}")
        return ()

    async def start_sequences(self, reader: str) -> Mapping[str, int]:
        return parse_positions(self.streams_by_name[reader].config.metadata)

    async def sequence_after(self, origin: str, readers: Sequence[str]) -> int:
        return max((self.positions.get(reader, {}).get(origin, 1) for reader in readers), default=1)

    async def sequences_after_mirrors(self, origins: Sequence[str], mirrors: Sequence[str]) -> Mapping[str, int]:
        return {origin: self.positions[mirrors[0]][origin] for origin in origins}

    async def last_taken(self, reader: str, ends: Mapping[str, tuple[int, int]]) -> Mapping[str, int]:
        self._answer(f"measure {reader}")
        return {origin: self.taken_later.get(reader, seq) for origin, (seq, _) in ends.items()}

    async def end_sequences(self, reader: str) -> Mapping[str, int]:
        self._fail(f"positions {reader}")
        return dict(self.positions[reader])

    def observe(self) -> Observed:
        consumers = {stream: dict(consumer) for stream, consumer in self.consumers.items()}
        return Observed(
            streams=dict(self.streams_by_name),
            rules=dict(self.rules),
            consumers=consumers,
            versions=dict(self.versions),
        )

    def loader(self, bundle: Bundle) -> FakeMappings:
        return FakeMappings(self, bundle)

    def administer(
        self, bundle: Bundle | None, *, servers: ServerAdmin | LeftToOthers = LEFT_TO_OTHERS, does_resync: bool = False
    ) -> Administration:
        """Everything by these servers; mappings only where they can load those of *bundle*."""
        return Administration(
            streams=self,
            checker=self,
            positions=self,
            mappings=LEFT_TO_OTHERS if bundle is None else self.loader(bundle),
            servers=servers,
            readers=self if does_resync else LEFT_TO_OTHERS,
        )


class FakeMappings:
    def __init__(self, servers: FakeServers, bundle: Bundle) -> None:
        self._servers = servers
        self._bundle = bundle

    async def ensure_loaded(self) -> None:
        self._servers._answer("load mappings")
        for server in self._bundle.servers:
            self._servers.rules[server.server.name] = {
                mapping.source: spell_destinations(mapping) for mapping in self._bundle.mappings
            }


def no_answer() -> NotReachableError:
    return NotReachableError("no answer within 10 s")


def make_refusal(err_code: int = 10052, code: int = 400) -> ServerError:
    return ServerError(code=code, err_code=err_code, description="no", subject="$JS.API.STREAM.CREATE.x")


async def servers_with(bundle: Bundle) -> FakeServers:
    """Servers that have all streams and rules of *bundle*, and were asked for nothing since."""
    servers = FakeServers()
    for server in bundle.servers:
        servers.rules[server.server.name] = {}
    plan = make_plan("acme", bundle, servers.observe())
    assert (await execute_plan(plan, servers.administer(bundle))).is_complete
    servers.calls.clear()
    return servers
