"""`vstream map --trace`: where servers take a publish, what is not as expected, and that nothing is stored."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command import require_success, vstream
from tests.support.night import with_night
from tests.support.shared_lab import shared_lab
from tests.support.single_server import SingleServer
from tests.support.topologies import begin_topology
from vstream.errors import MalformedAnswerError, VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Reply, connect
from vstream.lab import lifecycle
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.probe.trace import PublishExpectation, _Trace, trace_publish
from vstream.render.pipeline import render_bundle

NAME = "traced"
TOPOLOGY = (
    begin_topology(NAME, west=2, east=1)
    + """\
streams:
  foo: {subjects: [foo.>], write: {max_age: 1h}}
  prices: {subjects: [prices.>], consistency: homed, home: east, write: {max_age: unlimited}}
"""
)


@pytest.fixture(scope="module", params=with_night(["2.15.1"], ["2.12.8"]))
def file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with shared_lab(tmp_path_factory.mktemp("traced"), TOPOLOGY, "--server-version", request.param) as file:
        require_success(vstream("apply", file, "--yes"))
        yield file


async def count_messages() -> dict[str, tuple[int, int]]:
    """Messages and the last sequence of every stream."""
    async with connect(list_endpoints(NAME)["west"], "west") as connection:
        streams, missing = await JetStreamAdmin(connection).streams()
    assert not missing
    return {name: (stream.messages, stream.last_seq) for name, stream in streams.items()}


@pytest.mark.lab
@pytest.mark.parametrize(
    ("subject", "stream", "stored_as"),
    [("foo.a", "foo-write-west", "_vs.foo.west.foo.a"), ("prices.a", "prices", "prices.a")],
)
def test_each_server_takes_it_where_it_should_and_stores_nothing(
    file: Path, subject: str, stream: str, stored_as: str
) -> None:
    before = asyncio.run(count_messages())
    answer = require_success(vstream("map", subject, file, "--trace", "--region", "west", "--format", "json")).json()
    assert {(trace["server"], trace["verdict"]) for trace in answer["traces"]} == {
        ("west-1", "expected"),
        ("west-2", "expected"),
    }
    for trace in answer["traces"]:
        steps = [step for step in trace["steps"] if step["kind"] == "stream"]
        assert [(step["stream"], step["subject"]) for step in steps] == [(stream, stored_as)]
    assert asyncio.run(count_messages()) == before


@pytest.mark.lab
def test_a_server_whose_mapping_is_missing_is_named(file: Path) -> None:
    bundle = render_bundle(check_topology(file.read_bytes(), file.name).require(), addresses=list_addresses(NAME))
    bare = tuple(
        replace(artifact, text=artifact.text.replace('include "../mappings.cfg"', "mappings = {}"))
        if artifact.path == "servers/west-2.conf"
        else artifact
        for artifact in bundle.artifacts
    )
    assert bare != bundle.artifacts
    asyncio.run(lifecycle.reload(NAME, replace(bundle, artifacts=bare)))
    try:
        ran = vstream("map", "foo.a", file, "--trace", "--region", "west", "--format", "json")
    finally:
        asyncio.run(lifecycle.reload(NAME, bundle))
    assert ran.code == 1
    verdicts = {trace["server"]: trace["differs"] for trace in ran.json()["traces"]}
    assert verdicts.pop("west-1") == []
    assert verdicts == {
        "west-2": [
            "server `west-2` does not map it: `vstream map` expects `_vs.foo.west.foo.a`",
            "it does not come to stream `foo-write-west`",
        ]
    }


@pytest.mark.server
async def test_a_server_that_would_store_the_message_is_not_sent_any(tmp_path: Path) -> None:
    server = SingleServer(tmp_path, "2.10.26")
    await server.start()
    try:
        async with connect(server.endpoint, "west") as connection:
            await connection.request_json("$JS.API.STREAM.CREATE.foo", {"name": "foo", "subjects": ["foo.>"]})
            expected = PublishExpectation(region="west", subjects=("foo.a",), arrivals=frozenset(), stream="foo")
            with pytest.raises(VstreamError, match=r"`west-1` runs 2\.10\.26: servers trace since 2\.11"):
                await trace_publish("foo.a", [expected], {"west": server.endpoint}, timeout=1)
            info = await connection.request_json("$JS.API.STREAM.INFO.foo")
    finally:
        server.kill()
    assert info["state"]["messages"] == 0


@pytest.mark.parametrize("hops", [10**12, 2**63, "x", [1]])
def test_an_answer_that_announces_servers_without_end_is_refused(hops: object) -> None:
    event = {"server": {"name": "west-1"}, "request": {"header": {}}, "hops": hops, "events": []}
    trace = _Trace()
    with pytest.raises(MalformedAnswerError):
        trace.add(Reply(data=json.dumps(event).encode(), headers={}))
