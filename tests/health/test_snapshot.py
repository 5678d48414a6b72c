"""What a server says of a stream is read once, with the types that everything after it relies on."""

from __future__ import annotations

import json
import threading
import time
from contextlib import nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.ports import free_port
from vstream.errors import MalformedAnswerError, NotReachableError
from vstream.health.live.collect import collect_snapshot
from vstream.health.live.reachability import observe_region
from vstream.health.snapshot import parse_stream
from vstream.jetstream.connection import Connection
from vstream.lint.check_topology import check_topology
from vstream.timing import SECOND_NS
from vstream.topology.model import Endpoint, Topology

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


@pytest.mark.parametrize(
    ("says", "following"),
    [
        ({"lag": 2, "active": SECOND_NS // 2}, 1),
        ({"lag": 2, "active": 60 * SECOND_NS}, 0),
        ({"lag": 2, "offline": True}, 0),
        ({"lag": 10**6}, 0),
        ({"current": True}, 0),
    ],
)
def test_a_replica_that_is_a_little_behind_follows(says: dict[str, object], following: int) -> None:
    replicas = [{"name": "west-2", "current": False, "active": 0} | says]
    stream = parse_stream({"name": "foo", "state": STATE, "cluster": {"leader": "west-1", "replicas": replicas}})
    assert (stream.replicas, stream.current, stream.following) == (2, 2 if "current" in says else 1, following)


def make_topology(count: int) -> Topology:
    streams = ", ".join(f"s{number}: {{subjects: [s{number}.>]}}" for number in range(count))
    text = (
        "version: 1\nname: t\nserver_version: '2.12'\nregions: {west: {servers: 1}}\n"
        f"defaults: {{write: {{max_age: 1h}}}}\nstreams: {{{streams}}}\n"
    )
    return check_topology(text.encode(), "t.yaml").require()


@pytest.mark.parametrize(("count", "is_reached"), [(1, False), (2_000, True)])
async def test_servers_with_many_streams_have_more_time_to_list_them(count: int, is_reached: bool) -> None:
    """One more second for each 1,000 streams: these may be listed slowly, and are not silent then."""
    varz = {"server_name": "west-1", "version": "2.12.8", "config_load_time": "", "cluster": {"name": "west"}}

    class SlowMonitor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            time.sleep(0.4)
            self.send_response(200)
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(json.dumps(varz if self.path == "/varz" else {}).encode())

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", free_port()), SlowMonitor) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        monitor = f"http://127.0.0.1:{server.server_port}"
        endpoint = Endpoint(urls=(f"nats://127.0.0.1:{free_port()}",), monitor=(monitor,))
        try:
            with nullcontext() if is_reached else pytest.raises(NotReachableError):
                await collect_snapshot(make_topology(count), {"west": endpoint}, timeout=0.5)
        finally:
            server.shutdown()
            thread.join()


async def test_an_error_of_another_type_is_why_the_meta_leader_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: object, **__: object) -> dict[str, Any]:
        return {"error": "no"}

    monkeypatch.setattr(Connection, "request_json", answer)
    region = await observe_region(make_topology(1), "west", Connection.__new__(Connection), None, 0)
    assert region.control is not None
    assert "cannot be used" in region.control
