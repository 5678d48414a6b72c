"""Labs of real servers: what comes up is ready, and nothing is ever left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.support.lab_bundle import render, topology
from vstream.errors import LabError, ServerError
from vstream.jetstream import monitoring
from vstream.lab import binaries, lab, ports, records
from vstream.lab.lab import Progress, Stage
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory
from vstream.model.artifacts import Artifact, Bundle, ServerAddress

pytestmark = pytest.mark.lab

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory of this test's own. Whatever still runs in it afterwards is a failure, and ended."""
    directory = tmp_path / "state"
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(directory))
    yield directory
    left = _running_in(directory)
    for process in left:
        process.kill()
    assert left == []


@pytest.fixture(scope="session")
def binary() -> Path:
    return binaries.locate()


def _running_in(directory: Path) -> list[psutil.Process]:
    def names(process: psutil.Process) -> bool:
        try:
            return any(str(directory) in argument for argument in process.cmdline())
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if names(process)]


def silent(_: Progress) -> None:
    pass


def pids(name: str) -> dict[str, int | None]:
    return {server.name: server.pid for server in lab.status(name).servers}


def states(name: str) -> dict[str, str]:
    return {server.name: server.state.value for server in lab.status(name).servers}


async def test_three_regions_come_up_ready_and_go_down_within_a_second(state: Path, binary: Path) -> None:
    seen: list[Progress] = []
    status = await lab.up("a", topology(3, 1, name="acme"), render, binary=binary, on_progress=seen.append)

    assert [stage for stage in Stage if Progress(stage, 3, 3) in seen] == list(Stage)
    assert seen == sorted(seen, key=lambda progress: (list(Stage).index(progress.stage), progress.done))
    assert (status.name, status.topology, status.running) == ("a", "acme", 3)
    assert [(server.name, server.region) for server in status.servers] == [
        ("r0-0", "r0"),
        ("r1-0", "r1"),
        ("r2-0", "r2"),
    ]
    assert {server.version for server in status.servers} == {binaries.version_of(binary)}
    assert all(ports.FIRST <= port < ports.END for server in status.servers for port in ports.of(server.address))
    for region, endpoint in lab.endpoints("a").items():
        meta = await monitoring.meta(endpoint.monitor[0])
        assert meta is not None
        assert meta.leader is not None
        assert meta.cluster_size == 3
        assert (await monitoring.varz(endpoint.monitor[0])).server_name == f"{region}-0"
        assert len(await monitoring.outbound_gateways(endpoint.monitor[0])) == 2
        assert endpoint.urls[0].startswith("nats://127.0.0.1:")
    assert "Server is ready" in "\n".join(lab.logs("a", "r0-0", 500))
    assert len(lab.logs("a", "r0-0", 2)) == 2
    assert "Healthcheck failed" not in "".join(path.read_text() for path in (state / "labs/a/log").iterdir())

    before = time.monotonic()
    await lab.down("a")
    assert time.monotonic() - before < 1
    assert _running_in(state) == []
    assert states("a") == {"r0-0": "stopped", "r1-0": "stopped", "r2-0": "stopped"}
    await lab.down("a")


async def test_a_second_up_keeps_what_runs_and_starts_what_died(binary: Path) -> None:
    await lab.up("a", topology(3, 1), render, binary=binary, on_progress=silent)
    before = pids("a")
    await lab.up("a", topology(3, 1), render, binary=binary, on_progress=silent)
    assert pids("a") == before

    victim = NatsServer(lab_directory("a"), "r1-0")
    assert victim.signal(signal.SIGKILL)
    await _eventually(lambda: not victim.is_running())
    assert states("a") == {"r0-0": "running", "r1-0": "crashed", "r2-0": "running"}

    await lab.up("a", topology(3, 1), render, binary=binary, on_progress=silent)
    assert states("a") == {"r0-0": "running", "r1-0": "running", "r2-0": "running"}
    after = pids("a")
    assert after["r1-0"] != before["r1-0"]
    assert {name for name in after if after[name] == before[name]} == {"r0-0", "r2-0"}
    await lab.down("a")


async def test_routes_and_gateways_of_a_cluster_of_two_are_complete(binary: Path) -> None:
    await lab.up("a", topology(2, 2), render, binary=binary, on_progress=silent)
    for address in lab.addresses("a"):
        url = f"http://127.0.0.1:{address.monitor}"
        (sibling,) = await monitoring.routed_servers(url)
        assert sibling[:-1] == address.server.name[:-1]
        assert sibling != address.server.name
        assert len(await monitoring.outbound_gateways(url)) == 1
    await lab.down("a")


async def test_two_labs_live_side_by_side(state: Path, binary: Path) -> None:
    await asyncio.gather(
        lab.up("a", topology(2, 1), render, binary=binary, on_progress=silent),
        lab.up("b", topology(1, 1), render, binary=binary, on_progress=silent),
    )
    assert [(status.name, status.running) for status in lab.list_labs()] == [("a", 2), ("b", 1)]
    used = [port for name in ("a", "b") for address in lab.addresses(name) for port in ports.of(address)]
    assert len(used) == len(set(used)) == 12
    await lab.down("a")
    assert [(status.name, status.running) for status in lab.list_labs()] == [("a", 0), ("b", 1)]
    await lab.down("a", purge=True)
    await lab.down("b", purge=True)
    assert list((state / "labs").glob("*/")) == []


async def test_one_server_is_a_lab_that_keeps_its_ports_and_data(binary: Path) -> None:
    first = await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    address = first.servers[0].address
    (Path(address.store_dir) / "kept").touch()
    await lab.down("a")
    second = await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    assert second.servers[0].address == address
    assert (Path(address.store_dir) / "kept").exists()
    await lab.down("a", purge=True)
    with pytest.raises(LabError, match="there is no lab `a`") as caught:
        lab.status("a")
    assert "vstream lab up" in str(caught.value.hint)


async def test_a_taken_port_moves_the_lab_to_the_next_block(binary: Path) -> None:
    await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    (before,) = lab.addresses("a")
    await lab.down("a")
    with socket.create_server(("127.0.0.1", before.gateway)):
        await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    (after,) = lab.addresses("a")
    assert after.client >= before.client + ports.BLOCK
    await lab.down("a")


async def test_a_port_that_is_taken_after_it_was_chosen_costs_one_more_attempt(binary: Path) -> None:
    thieves: list[socket.socket] = []

    def render_and_steal(addresses: Sequence[ServerAddress]) -> Bundle:
        if not thieves:
            thieves.append(socket.create_server(("127.0.0.1", addresses[1].monitor)))
        return render(addresses)

    status = await lab.up("a", topology(2, 1), render_and_steal, binary=binary, on_progress=silent)
    stolen = thieves[0].getsockname()[1]
    thieves[0].close()
    assert status.running == 2
    assert stolen not in {port for address in lab.addresses("a") for port in ports.of(address)}
    await lab.down("a")


async def test_another_topology_under_the_same_name_is_refused_while_it_runs(binary: Path) -> None:
    await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    before = pids("a")
    with pytest.raises(LabError, match="runs with other servers than topology `other` has") as caught:
        await lab.up("a", topology(1, 2, name="other"), render, binary=binary, on_progress=silent)
    assert caught.value.hint == "`vstream lab down a` first"

    def debugging(addresses: Sequence[ServerAddress]) -> Bundle:
        return render(addresses, extra="debug: true")

    with pytest.raises(LabError, match=r"runs with another configuration: servers/r0-0\.conf"):
        await lab.up("a", topology(1, 1), debugging, binary=binary, on_progress=silent)
    assert pids("a") == before
    await lab.down("a")


async def test_data_of_servers_that_are_gone_is_not_mistaken_for_a_working_quorum(binary: Path) -> None:
    await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    await lab.down("a")
    (lab_directory("a").data / "gone-0").mkdir()
    with pytest.raises(LabError, match="holds data of servers that topology `test` does not have: gone-0") as caught:
        await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    assert "vstream lab down a --purge" in str(caught.value.hint)


async def test_a_configuration_that_the_server_refuses_starts_nothing(state: Path, binary: Path) -> None:
    def broken(addresses: Sequence[ServerAddress]) -> Bundle:
        return render(addresses, extra="no_such_option_: {")

    with pytest.raises(LabError, match="refuses the configuration of server `r0-0`"):
        await lab.up("a", topology(2, 1), broken, binary=binary, on_progress=silent)
    assert not list((state / "labs/a/log").iterdir())


async def test_a_server_that_dies_at_start_is_named_and_quoted_and_the_others_are_stopped(binary: Path) -> None:
    def storing_in_a_file(addresses: Sequence[ServerAddress]) -> Bundle:
        Path(addresses[1].store_dir).write_text("not a directory")
        return render(addresses)

    with pytest.raises(LabError, match=r"server `r1-0` died while it was starting(.|\n)*\[FTL\]"):
        await lab.up("a", topology(2, 1), storing_in_a_file, binary=binary, on_progress=silent)
    assert lab.status("a").running == 0


async def test_a_lab_that_never_gets_ready_says_what_is_missing_and_is_stopped(binary: Path) -> None:
    """A cluster of one waits for ever for somebody to elect a leader with."""

    def clustered(addresses: Sequence[ServerAddress]) -> Bundle:
        port = addresses[0].cluster
        routes = f'listen: "127.0.0.1:{port}", routes: ["nats://127.0.0.1:{port}"]'
        bundle = render(addresses)
        config = bundle.text("servers/r0-0.conf").replace("{name: c0}", f"{{name: c0, {routes}}}")
        artifacts = (Artifact(path="servers/r0-0.conf", text=config), Artifact(path="mappings.cfg", text=""))
        return replace(bundle, artifacts=artifacts)

    with pytest.raises(
        LabError, match="0 of 1 servers with a JetStream leader; server `r0-0`: no JetStream meta leader"
    ):
        await lab.up("a", topology(1, 1), clustered, binary=binary, on_progress=silent, timeout=1.5)
    assert lab.status("a").running == 0


@pytest.mark.parametrize("stage", [Stage.CONFIGS, Stage.ACCEPTING, Stage.LINKED, Stage.LED])
async def test_an_interrupted_up_stops_what_it_started(stage: Stage, state: Path, binary: Path) -> None:
    reached = asyncio.Event()

    def report(progress: Progress) -> None:
        if progress.stage is stage:
            reached.set()

    task = asyncio.create_task(lab.up("a", topology(3, 1), render, binary=binary, on_progress=report))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert _running_in(state) == []
    assert set(states("a").values()) == {"stopped"}


async def test_an_interrupted_second_up_leaves_what_ran_before(binary: Path) -> None:
    await lab.up("a", topology(1, 2), render, binary=binary, on_progress=silent)
    before = pids("a")
    await NatsServer(lab_directory("a"), "r0-1").stop()
    reached = asyncio.Event()
    task = asyncio.create_task(
        lab.up("a", topology(1, 2), render, binary=binary, on_progress=lambda p: reached.set() if p.done else None)
    )
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pids("a") == {"r0-0": before["r0-0"], "r0-1": None}
    await lab.down("a")


@pytest.mark.parametrize("point", ["CONFIGS 1", "CONFIGS 3", "ACCEPTING 0", "LINKED 0", "LED 0", "UP"])
async def test_down_finds_everything_after_a_kill_of_the_starting_process(point: str, state: Path) -> None:
    starter = _starter("3")
    assert starter.stdout is not None
    for line in starter.stdout:
        if line.strip() == point:
            break
    starter.kill()
    starter.communicate()
    await lab.down("killed")
    # At once all servers are gone. A `nats-server -t` that was under way needs a moment to end by itself.
    assert [process for process in _running_in(state) if "-t" not in process.cmdline()] == []
    await _eventually(lambda: not _running_in(state))


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_leaves_nothing_running_even_if_pressed_twice(times: int, state: Path) -> None:
    starter = _starter("3")
    assert starter.stdout is not None
    for line in starter.stdout:
        if line == "LINKED 0\n":
            break
    for _ in range(times):
        starter.send_signal(signal.SIGINT)
    starter.communicate()
    assert starter.returncode == -signal.SIGINT
    assert _running_in(state) == []
    assert set(states("killed").values()) == {"stopped"}


async def test_a_server_whose_record_was_never_completed_is_found_all_the_same(state: Path) -> None:
    starter = _starter("3", "die-before-record")
    starter.communicate()
    assert starter.returncode == -signal.SIGKILL
    intent = records.read(lab_directory("killed"), "r0-0")
    assert intent is not None
    assert (intent.state, intent.pid) == (records.STARTING, None)
    assert states("killed") == {"r0-0": "running", "r1-0": "stopped", "r2-0": "stopped"}
    await lab.down("killed")
    assert _running_in(state) == []


async def test_a_lab_outlives_the_process_group_that_started_it(state: Path) -> None:
    starter = _starter("1")
    assert starter.stdout is not None
    for line in starter.stdout:
        if line == "UP\n":
            break
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()
    assert lab.status("killed").running == 1
    await lab.down("killed")


async def test_a_recorded_pid_that_belongs_to_somebody_else_is_never_signalled(binary: Path) -> None:
    await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    directory = lab_directory("a")
    record = records.read(directory, "r0-0")
    assert record is not None
    await lab.down("a")
    stranger = _stranger()
    records.write(
        directory,
        records.ServerRecord(
            server="r0-0",
            state=records.RUNNING,
            argv=record.argv,
            config=record.config,
            version=record.version,
            pid=stranger.pid,
            create_time=psutil.Process(stranger.pid).create_time(),
        ),
    )
    server = NatsServer(directory, "r0-0")
    assert states("a") == {"r0-0": "crashed"}
    assert not server.signal(signal.SIGKILL)
    await server.stop()
    await lab.down("a")
    assert stranger.poll() is None
    stranger.communicate(b"\n")
    assert stranger.returncode == 0


async def test_a_paused_server_goes_down_too(binary: Path) -> None:
    await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    assert NatsServer(lab_directory("a"), "r0-0").signal(signal.SIGSTOP)
    before = time.monotonic()
    await lab.down("a")
    assert time.monotonic() - before < 1
    assert states("a") == {"r0-0": "stopped"}


async def test_down_during_up_says_who_is_at_work(binary: Path) -> None:
    reached = asyncio.Event()
    task = asyncio.create_task(lab.up("a", topology(2, 1), render, binary=binary, on_progress=lambda _: reached.set()))
    await reached.wait()
    with pytest.raises(LabError, match=f"lab `a` is being changed by process {os.getpid()}"):
        await lab.down("a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


GOOD = """mappings: {
  "foo.>": [{destination: "_vs.foo.r0.foo.>", weight: 100%, cluster: c0}]
  "bar.*": "baz.{{wildcard(1)}}"
}
"""


@pytest.mark.parametrize("version", [None, pytest.param("2.10.26", marks=pytest.mark.versions)])
async def test_new_mappings_are_loaded_and_bad_ones_leave_everything_as_it_was(version: str | None) -> None:
    await lab.up("a", topology(2, 1), render, binary=binaries.locate(version), on_progress=silent)
    urls = [url for endpoint in lab.endpoints("a").values() for url in endpoint.monitor]
    assert [await monitoring.account_mappings(url) for url in urls] == [{}, {}]

    reloaded = await lab.reload("a", render(lab.addresses("a"), mappings=GOOD))
    assert (reloaded.loaded, reloaded.refused) == (("r0-0", "r1-0"), {})
    loaded = await monitoring.account_mappings(urls[0])
    assert loaded["bar.*"] == [{"subject": "baz.{{wildcard(1)}}", "weight": 100}]
    assert {"subject": "_vs.foo.r0.foo.>", "weight": 100, "cluster": "c0"} in loaded["foo.>"]

    with pytest.raises(LabError, match=r"refuses the configuration of server `r0-0`: .*mappings\.cfg"):
        await lab.reload("a", render(lab.addresses("a"), mappings='mappings: { "x": '))
    assert (lab_directory("a").conf / "mappings.cfg").read_text() == GOOD
    assert [await monitoring.account_mappings(url) for url in urls] == [loaded, loaded]

    await NatsServer(lab_directory("a"), "r1-0").stop()
    reloaded = await lab.reload("a", render(lab.addresses("a"), mappings=GOOD))
    assert reloaded.loaded == ("r0-0",)
    assert reloaded.refused == {"r1-0": "server `r1-0` does not run"}
    with pytest.raises(ServerError, match="Account nope does not exist"):
        await monitoring.account_mappings(urls[0], "nope")
    await lab.down("a")


async def test_a_change_that_a_server_cannot_load_while_it_runs_is_reported_in_its_own_words(binary: Path) -> None:
    await lab.up("a", topology(1, 1), render, binary=binary, on_progress=silent)
    moved = render([replace(address, store_dir="/nowhere") for address in lab.addresses("a")])
    reloaded = await lab.reload("a", moved)
    assert reloaded.loaded == ()
    assert "refused to reload" in reloaded.refused["r0-0"]
    await lab.down("a")


def _starter(regions: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process that brings lab `killed` up, one server in each region."""
    command = [sys.executable, "-m", "tests.support.lab_bundle", regions, "1", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _stranger() -> subprocess.Popen[bytes]:
    """A process that ends when it is told to, or by a signal."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


async def _eventually(holds: Callable[[], bool], within: float = 5.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
