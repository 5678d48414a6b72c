"""Labs of real servers: what comes up is ready, what goes down is gone, what cannot come up says why."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.lab_bundle import render, topology
from tests.support.labs import eventually, ignore_progress, pids, processes_in, states
from vstream.errors import LabError
from vstream.jetstream import monitoring
from vstream.lab import binaries, lifecycle, ports
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.readiness import ReadinessProgress, ReadinessStage, is_meta_group_complete
from vstream.lab.server import NatsServer
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory
from vstream.lab.status import list_labs, read_lab_status, read_log_tail
from vstream.topology.bundle import Artifact, Bundle
from vstream.topology.server_address import FIRST_PORT, LAST_PORT, ServerAddress

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state")]


async def test_three_regions_come_up_ready_and_go_down_within_a_second(state: Path, binary: Path) -> None:
    seen: list[ReadinessProgress] = []
    status = await lifecycle.up(
        "a", topology(3, 1, name="acme"), render, LabSetup(binary=binary), on_progress=seen.append
    )

    assert [stage for stage in ReadinessStage if ReadinessProgress(stage, 3, 3) in seen] == [
        ReadinessStage.CONFIGS,
        ReadinessStage.ACCEPTING,
        ReadinessStage.LINKED,
        ReadinessStage.LED,
    ]
    assert seen == sorted(seen, key=lambda progress: (list(ReadinessStage).index(progress.stage), progress.done))
    assert (status.name, status.topology, status.running) == ("a", "acme", 3)
    assert [(server.name, server.region) for server in status.servers] == [
        ("r0-0", "r0"),
        ("r1-0", "r1"),
        ("r2-0", "r2"),
    ]
    assert {server.version for server in status.servers} == {binaries.ask_version(binary)}
    assert all(
        FIRST_PORT <= port <= LAST_PORT for server in status.servers for port in ports.server_ports(server.address)
    )
    for region, endpoint in list_endpoints("a").items():
        # Where another leader was elected since, it has to hear the others first.
        deadline = time.monotonic() + 60
        while (meta := await monitoring.read_meta(endpoint.monitor[0])) is None or not (
            meta.leader and is_meta_group_complete(meta, 3, is_leader=meta.leader == f"{region}-0")
        ):
            assert time.monotonic() < deadline, meta
            await asyncio.sleep(0.1)
        assert (await monitoring.read_varz(endpoint.monitor[0])).server_name == f"{region}-0"
        assert len(await monitoring.read_gateway_bytes(endpoint.monitor[0])) == 2
        assert endpoint.urls[0].startswith("nats://127.0.0.1:")
    assert "Server is ready" in "\n".join(read_log_tail("a", "r0-0", 500))
    assert len(read_log_tail("a", "r0-0", 2)) == 2
    assert "Healthcheck failed" not in "".join(path.read_text() for path in (state / "labs/a/log").iterdir())

    await lifecycle.down("a")
    assert processes_in(state) == []
    assert states("a") == {"r0-0": "stopped", "r1-0": "stopped", "r2-0": "stopped"}
    await lifecycle.down("a")


async def test_a_second_up_keeps_what_runs_and_starts_what_died(binary: Path) -> None:
    await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    before = pids("a")
    await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    assert pids("a") == before

    victim = NatsServer(lab_directory("a"), "r1-0")
    assert victim.signal(signal.SIGKILL)
    await eventually(lambda: not victim.is_running())
    assert states("a") == {"r0-0": "running", "r1-0": "crashed", "r2-0": "running"}

    await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    assert states("a") == {"r0-0": "running", "r1-0": "running", "r2-0": "running"}
    after = pids("a")
    assert after["r1-0"] != before["r1-0"]
    assert {name for name in after if after[name] == before[name]} == {"r0-0", "r2-0"}
    await lifecycle.down("a")


async def test_routes_and_gateways_of_a_cluster_of_two_are_complete(binary: Path) -> None:
    await lifecycle.up("a", topology(2, 2), render, LabSetup(binary=binary), on_progress=ignore_progress)
    for address in list_addresses("a"):
        url = f"http://127.0.0.1:{address.monitor}"
        (sibling,) = await monitoring.list_routed_servers(url)
        assert sibling[:-1] == address.server.name[:-1]
        assert sibling != address.server.name
        assert len(await monitoring.read_gateway_bytes(url)) == 1
    await lifecycle.down("a")


async def test_two_labs_live_side_by_side(state: Path, binary: Path) -> None:
    await asyncio.gather(
        lifecycle.up("a", topology(2, 1), render, LabSetup(binary=binary), on_progress=ignore_progress),
        lifecycle.up("b", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress),
    )
    assert [(status.name, status.running) for status in list_labs()] == [("a", 2), ("b", 1)]
    used = [port for name in ("a", "b") for address in list_addresses(name) for port in ports.server_ports(address)]
    assert len(used) == len(set(used)) == 12
    await lifecycle.down("a")
    assert [(status.name, status.running) for status in list_labs()] == [("a", 0), ("b", 1)]
    await lifecycle.down("a", purge=True)
    await lifecycle.down("b", purge=True)
    assert list((state / "labs").glob("*/")) == []


async def test_the_ports_of_a_killed_server_stay_its_own_in_every_state_directory(
    binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    server = NatsServer(lab_directory("a"), "r0-0")
    first = list_addresses("a")[0].client
    assert server.signal(signal.SIGKILL)
    await eventually(lambda: not server.is_running())
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("VSTREAM_STATE_DIR", str(tmp_path / "elsewhere"))
        await lifecycle.up("b", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
        second = list_addresses("b")[0].client
    try:
        assert second != first
        await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
        assert list_addresses("a")[0].client == first
        await lifecycle.down("a")
    finally:
        with monkeypatch.context() as elsewhere:
            elsewhere.setenv("VSTREAM_STATE_DIR", str(tmp_path / "elsewhere"))
            await lifecycle.down("b")


@pytest.fixture
def quiet_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks where no other lab looks first: while this one is down, another test's would take its ports."""
    monkeypatch.setattr(ports, "FIRST_PORT", 20_000)


@pytest.mark.usefixtures("quiet_ports")
async def test_one_server_is_a_lab_that_keeps_its_ports_and_data(binary: Path) -> None:
    first = await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    address = first.servers[0].address
    (Path(address.store_dir) / "kept").touch()
    await lifecycle.down("a")
    second = await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    assert second.servers[0].address == address
    assert (Path(address.store_dir) / "kept").exists()
    await lifecycle.down("a", purge=True)
    with pytest.raises(LabError, match="there is no lab `a`") as caught:
        read_lab_status("a")
    assert "vstream lab up" in str(caught.value.hint)


async def test_a_taken_port_moves_the_lab_to_another_block(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    (before,) = list_addresses("a")
    await lifecycle.down("a")
    with socket.create_server(("127.0.0.1", before.gateway)):
        await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    (after,) = list_addresses("a")
    assert before.gateway not in ports.server_ports(after)
    await lifecycle.down("a")


async def test_a_port_that_is_taken_after_it_was_chosen_costs_one_more_attempt(binary: Path) -> None:
    thieves: list[socket.socket] = []

    def render_and_steal(addresses: Sequence[ServerAddress]) -> Bundle:
        if not thieves:
            thieves.append(socket.create_server(("127.0.0.1", addresses[1].monitor)))
        return render(addresses)

    status = await lifecycle.up(
        "a", topology(2, 1), render_and_steal, LabSetup(binary=binary), on_progress=ignore_progress
    )
    stolen = thieves[0].getsockname()[1]
    thieves[0].close()
    assert status.running == 2
    assert stolen not in {port for address in list_addresses("a") for port in ports.server_ports(address)}
    await lifecycle.down("a")


async def test_another_topology_under_the_same_name_is_refused_while_it_runs(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    before = pids("a")
    with pytest.raises(LabError, match="runs with other servers than topology `other` has") as caught:
        await lifecycle.up(
            "a", topology(1, 2, name="other"), render, LabSetup(binary=binary), on_progress=ignore_progress
        )
    assert caught.value.hint == "`vstream lab down a` first"

    def debugging(addresses: Sequence[ServerAddress]) -> Bundle:
        return render(addresses, extra="debug: true")

    with pytest.raises(LabError, match=r"runs with another configuration: servers/r0-0\.conf"):
        await lifecycle.up("a", topology(1, 1), debugging, LabSetup(binary=binary), on_progress=ignore_progress)
    assert pids("a") == before
    await lifecycle.down("a")


async def test_data_of_servers_that_are_gone_is_not_mistaken_for_a_working_quorum(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    await lifecycle.down("a")
    (lab_directory("a").data / "gone-0").mkdir()
    with pytest.raises(LabError, match="holds data of servers that topology `test` does not have: gone-0") as caught:
        await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    assert "vstream lab down a --purge" in str(caught.value.hint)


async def test_a_configuration_that_the_server_refuses_starts_nothing(state: Path, binary: Path) -> None:
    def broken(addresses: Sequence[ServerAddress]) -> Bundle:
        return render(addresses, extra="no_such_option_: {")

    with pytest.raises(LabError, match="refuses the configuration of server `r0-0`"):
        await lifecycle.up("a", topology(2, 1), broken, LabSetup(binary=binary), on_progress=ignore_progress)
    assert not list((state / "labs/a/log").iterdir())


async def test_a_server_that_dies_at_start_is_named_and_quoted_and_the_others_are_stopped(binary: Path) -> None:
    def storing_in_a_file(addresses: Sequence[ServerAddress]) -> Bundle:
        Path(addresses[1].store_dir).write_text("not a directory")
        return render(addresses)

    with pytest.raises(LabError, match=r"server `r1-0` died while it was starting(.|\n)*\[FTL\]"):
        await lifecycle.up("a", topology(2, 1), storing_in_a_file, LabSetup(binary=binary), on_progress=ignore_progress)
    assert read_lab_status("a").running == 0


async def test_a_lab_that_never_gets_ready_says_what_is_missing_and_is_stopped(binary: Path) -> None:
    """A cluster of one waits for ever for somebody to elect a leader with."""

    def render_clustered(addresses: Sequence[ServerAddress]) -> Bundle:
        port = addresses[0].cluster
        routes = f'listen: "127.0.0.1:{port}", routes: ["nats://127.0.0.1:{port}"]'
        bundle = render(addresses)
        config = bundle.text("servers/r0-0.conf").replace("{name: c0}", f"{{name: c0, {routes}}}")
        artifacts = (Artifact(path="servers/r0-0.conf", text=config), Artifact(path="mappings.cfg", text=""))
        return replace(bundle, artifacts=artifacts)

    with pytest.raises(
        LabError, match="0 of 1 servers with a JetStream leader; server `r0-0`: no JetStream meta leader"
    ):
        await lifecycle.up(
            "a", topology(1, 1), render_clustered, LabSetup(binary=binary), on_progress=ignore_progress, timeout=6
        )
    assert read_lab_status("a").running == 0
