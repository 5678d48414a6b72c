"""Whether a region is dead: what its own server says, and what it is called if nobody could be asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.ports import free_port
from tests.support.single_server import SingleServer
from vstream.lint.check_topology import check_topology
from vstream.plan.live.dead_regions import DeathReport, DeathVerdict, ask_witnesses, is_listening
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server

TOPOLOGY = b"""\
version: 1
name: acme
server_version: "2.12"
regions: {west: {servers: 1}, east: {servers: 1}}
streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}
"""
SMALL = check_topology(TOPOLOGY, "topology.yaml").require()


class LoneMember(SingleServer):
    """The only server of a cluster: it takes connections, and its JetStream never finds a leader."""

    async def _answers(self) -> bool:
        return await is_listening(self.endpoint.urls[0])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[SingleServer]:
    west = SingleServer(tmp_path)
    await west.start()
    yield west
    west.kill()


async def hear(endpoint: Endpoint) -> DeathReport:
    silent = Endpoint(urls=(f"nats://127.0.0.1:{free_port()}",), monitor=(f"http://127.0.0.1:{free_port()}",))
    return await ask_witnesses(SMALL, ["west"], {"west": endpoint, "east": silent}, ["east"], {})


async def test_a_region_whose_server_takes_connections_is_not_dead(server: SingleServer) -> None:
    report = await hear(server.endpoint)
    assert report.verdict is DeathVerdict.ALIVE
    assert report.alive == ("server `west-1` takes connections",)


async def test_where_no_other_region_could_be_asked_it_is_not_known() -> None:
    report = await hear(Endpoint(urls=(f"nats://127.0.0.1:{free_port()}",)))
    assert report.verdict is DeathVerdict.UNKNOWN
    assert "no monitoring address answers, and the system account has no user" in report.unknown[0]
    assert len(report.silent) == 1


async def test_a_login_that_is_missing_says_nothing_about_the_servers() -> None:
    report = await hear(Endpoint(urls=(f"nats://127.0.0.1:{free_port()}",), user="me", password_env="NOT_SET_ANYWHERE"))
    assert report.silent == ()
    assert any("NOT_SET_ANYWHERE" in sentence for sentence in report.unknown)


async def test_a_server_that_refuses_vstream_may_serve_others() -> None:
    async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"INFO {\"auth_required\": true}\r\n-ERR 'Authorization Violation'\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        report = await hear(Endpoint(urls=(f"nats://127.0.0.1:{port}",)))
    assert report.silent == ()
    assert any("something listens there" in sentence for sentence in report.unknown)


async def test_a_witness_is_heard_whose_cluster_has_another_name_than_its_region(tmp_path: Path) -> None:
    topology = check_topology(
        TOPOLOGY.replace(b"west: {servers: 1}", b"west: {servers: 1, cluster: occident}"), "t.yaml"
    )
    more = f"""
        accounts {{ SYS {{users: [{{user: sys, password: pw}}]}}, A {{jetstream: on, users: [{{user: a, password: pw}}]}} }}
        system_account: SYS
        no_auth_user: a
        cluster {{ name: occident, listen: "127.0.0.1:{(port := free_port())}", routes: ["nats://127.0.0.1:{port}"] }}
    """
    west, dead = LoneMember(tmp_path, more=more), Endpoint(urls=(f"nats://127.0.0.1:{free_port()}",))
    try:
        await west.start()
        system = {"west": replace(west.endpoint, user="sys", password="pw")}
        report = await ask_witnesses(topology.require(), ["east"], {"west": dead, "east": dead}, ["west"], system)
    finally:
        west.kill()
    assert report.unknown == ()
    assert report.silent[1] == "`west`: 1 of its servers answer on the system account, and none of `east`"
    assert report.verdict is DeathVerdict.DEAD
