"""What a server says of a stream is read once, with the types that everything after it relies on."""

from __future__ import annotations

from typing import Any

import pytest

from vstream.errors import MalformedAnswerError
from vstream.health.live.reachability import check_region
from vstream.health.snapshot import parse_stream
from vstream.jetstream.connection import Connection
from vstream.lint.load_topology import load

STATE = {"messages": 0, "first_seq": 1, "last_seq": 0}


@pytest.mark.parametrize("config", [["x"], {"subjects": "foo.>"}, {"sources": [7]}])
def test_a_configuration_of_another_type_is_an_error_of_whoever_sent_it(config: object) -> None:
    with pytest.raises(MalformedAnswerError):
        parse_stream({"name": "foo", "state": STATE, "config": config})
    assert parse_stream({"name": "foo", "state": STATE}).config is None


@pytest.mark.parametrize(("leader", "listed"), [("west-1", ("west-2", "west-3")), ("", ("west-1", "west-2", "west-3"))])
def test_replicas_are_counted_once_whether_a_leader_or_another_lists_them(leader: str, listed: tuple[str, ...]) -> None:
    replicas = [{"name": name, "current": name == listed[0], "offline": name != listed[0]} for name in listed]
    stream = parse_stream(
        {"name": "foo", "state": STATE, "cluster": {"name": "west", "leader": leader, "replicas": replicas}}
    )
    assert (stream.replicas, stream.current) == (3, 2 if leader else 1)


async def test_an_error_of_another_type_is_why_the_meta_leader_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object, **__: object) -> dict[str, Any]:
        return {"error": "no"}

    monkeypatch.setattr(Connection, "request_json", answer)
    topology = load(
        b"version: 1\nname: t\nserver_version: '2.12'\nregions: {west: {servers: 1}}\n"
        b"streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n",
        "t.yaml",
    ).require()
    region = await check_region(topology, "west", Connection.__new__(Connection), None, 0)
    assert region.control is not None
    assert "cannot be used" in region.control
