"""Connections to regions are checked in the same way, whether they come back after an outage or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.plans import topology
from tests.support.ports import free_port
from tests.support.single_server import run_configured
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream.region_connections import connect_all, connect_reconnecting, require_all_reached, select_reached
from vstream.servers.target_servers import make_api_target
from vstream.topology.model import Endpoint

pytestmark = pytest.mark.server

both = pytest.mark.parametrize("connect", [connect_all, connect_reconnecting])
NOBODY = Endpoint(urls=("nats://127.0.0.1:1",))


@pytest.fixture(scope="module")
def west(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A server of the cluster `west`."""
    directory, port = tmp_path_factory.mktemp("west"), free_port()
    configuration = f"listen: '127.0.0.1:{port}'\ncluster {{name: west, listen: '127.0.0.1:-1'}}\n"
    (directory / "server.conf").write_text(configuration)
    with run_configured(directory / "server.conf", directory / "log"):
        yield Endpoint(urls=(f"nats://127.0.0.1:{port}",))


@both
async def test_another_cluster_is_refused(connect: Any, west: Endpoint) -> None:
    with pytest.raises(VstreamError, match="for region `east` leads to cluster `west`"):
        async with connect(topology(), {"east": west}):
            raise AssertionError("nothing was checked")


async def test_whose_leaders_step_down_is_checked_as_well(west: Endpoint) -> None:
    target = make_api_target(topology(), {"central": NOBODY, "east": west}, None)
    with pytest.raises(VstreamError, match="for region `east` leads to cluster `west`"):
        async with target.connect("central"):
            raise AssertionError("nothing was checked")


@both
async def test_a_server_that_is_too_old_is_refused(connect: Any, west: Endpoint) -> None:
    with pytest.raises(VstreamError, match=r'runs .*, the topology says `server_version: "2.99"`'):
        async with connect(topology(server_version="2.99"), {"west": west}):
            raise AssertionError("nothing was checked")


@both
async def test_what_is_missing_is_said_before_anything_is_dialled(connect: Any, west: Endpoint, tmp_path: Path) -> None:
    missing = [Endpoint(urls=west.urls, creds=str(tmp_path / f"{number}.creds")) for number in range(2)]
    with pytest.raises(VstreamError, match=r"region `west`: .*; region `east`: .*"):
        async with connect(topology(), {"west": missing[0], "east": missing[1]}):
            raise AssertionError("nothing was checked")


@both
async def test_each_region_of_the_topology_is_reached_or_says_why_not(connect: Any, west: Endpoint) -> None:
    # Of a region that was given up, `connect` still says where it was.
    async with connect(topology(), {"west": west, "central": NOBODY, "lost": NOBODY}) as connections:
        assert [*select_reached(connections)] == ["west"]
        assert "no address is known for region `east`" in str(connections["east"])
        assert "lost" not in connections
        with pytest.raises(NotReachableError, match="region `central` cannot be reached") as failure:
            require_all_reached(connections)
        assert failure.value.hint == (
            "all regions are needed: are the servers running (`vstream lab up` starts those of a lab), and is `connect` right?"
        )
