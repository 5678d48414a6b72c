"""A plain stream that is taken over: what a plan waits for, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.support.plans import FakeServers, make_plan, render_streams
from vstream.plan.context import Observed
from vstream.plan.model import GateKind, Plan
from vstream.plan.stages import Stage, stage_after
from vstream.topology.bundle import Bundle
from vstream.topology.stream_config import ObservedStream, StreamConfig

OVER = {"foo": {"subjects": ["foo.>"], "takes_over": "foo"}}


def plain(**fields: Any) -> ObservedStream:
    config = StreamConfig(name="foo", fields={"name": "foo", "subjects": ["foo.>"], **fields})
    return ObservedStream(config=config, created="t0", cluster="west", messages=7)


def plan(of: Bundle, observed: Observed) -> Plan:
    return make_plan("acme", of, observed)


async def test_read_streams_have_everything_of_a_plain_stream_before_clients_are_sent_to_them() -> None:
    bundle = render_streams(OVER)
    names = {stream.config.name: stream.config.source_names for stream in bundle.streams}
    assert all(("foo" in sources) == ("-read-" in name) for name, sources in names.items())
    rules = {server.server.name: {"a": ("b",)} for server in bundle.servers}
    made = plan(bundle, Observed(streams={"foo": plain()}, rules=rules))
    assert not made.blocked
    fed = [gate for gate in made.gates if gate.kind is GateKind.HAS_ALL_OF_SOURCES]
    assert {(gate.stream, gate.counterparts, stage_after(gate)) for gate in fed} == {
        (f"foo-read-{region}", ("foo",), Stage.LOAD_MAPPINGS) for region in ("west", "central", "east")
    }


@pytest.mark.parametrize(
    ("streams", "reason"),
    [
        ({}, "which does not exist"),
        ({"foo": plain(subjects=["foo.>", "bar"])}, "which listens on `bar`, too"),
        ({"foo": plain(metadata={"vstream.topology": "other"})}, "which belongs to the topology `other`"),
    ],
)
def test_what_cannot_be_taken_over_is_blocked_with_the_reason(streams: dict[str, ObservedStream], reason: str) -> None:
    blocked = plan(render_streams(OVER), Observed(streams=streams)).blocked
    assert len(blocked) == 3
    assert all(reason in blocker.reason for blocker in blocked)


async def test_once_it_is_over_the_source_goes_when_nothing_more_comes() -> None:
    servers = FakeServers()
    for stream in render_streams(OVER).streams:
        await servers.create(stream.config)
    observed = servers.observe()
    with_plain = replace(observed, streams={**observed.streams, "foo": plain()})
    (gate,) = plan(render_streams(), with_plain).gates
    assert (gate.kind, gate.stream) == (GateKind.READERS_HAVE_ALL, "foo")
    # Of a stream that somebody has deleted, nothing is to come.
    assert plan(render_streams(), observed).gates == ()
