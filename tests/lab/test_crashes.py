"""Interrupted, killed, paused, confused: nothing is left behind, and nobody else is hurt."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.lab_bundle import render, topology
from tests.support.labs import eventually, give_pid_away, ignore_progress, pids, processes_in, states
from tests.support.night import with_night
from tests.support.paths import ROOT
from vstream.cli.exit_codes import INTERRUPTED
from vstream.errors import LabError
from vstream.lab import lifecycle, server_records
from vstream.lab.readiness import ReadinessProgress, ReadinessStage
from vstream.lab.server import NatsServer
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory
from vstream.lab.status import read_lab_status

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state")]


@pytest.mark.parametrize(
    "stage",
    with_night([ReadinessStage.ACCEPTING], [ReadinessStage.CONFIGS, ReadinessStage.LINKED, ReadinessStage.LED]),
)
async def test_an_interrupted_up_stops_what_it_started(stage: ReadinessStage, state: Path, binary: Path) -> None:
    reached = asyncio.Event()

    def report(progress: ReadinessProgress) -> None:
        if progress.stage is stage:
            reached.set()

    task = asyncio.create_task(lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=report))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert processes_in(state) == []
    assert set(states("a").values()) == {"stopped"}


async def test_an_interrupted_second_up_leaves_what_ran_before(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 2), render, LabSetup(binary=binary), on_progress=ignore_progress)
    before = pids("a")
    await NatsServer(lab_directory("a"), "r0-1").stop()
    reached = asyncio.Event()
    task = asyncio.create_task(
        lifecycle.up(
            "a",
            topology(1, 2),
            render,
            LabSetup(binary=binary),
            on_progress=lambda p: reached.set() if p.done else None,
        )
    )
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pids("a") == {"r0-0": before["r0-0"], "r0-1": None}
    await lifecycle.down("a")


@pytest.mark.parametrize("point", with_night(["CONFIGS 3", "ACCEPTING 0", "UP"], ["CONFIGS 1", "LINKED 0", "LED 0"]))
async def test_down_finds_everything_after_a_kill_of_the_starting_process(point: str, state: Path) -> None:
    starter = _starter("3")
    assert starter.stdout is not None
    for line in starter.stdout:
        if line.strip() == point:
            break
    starter.kill()
    starter.communicate()
    await lifecycle.down("killed")
    # At once all servers are gone. A `nats-server -t` that was under way needs a moment to end by itself.
    assert [process for process in processes_in(state) if "-t" not in process.cmdline()] == []
    await eventually(lambda: not processes_in(state))


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
    assert starter.returncode == INTERRUPTED
    assert processes_in(state) == []
    assert set(states("killed").values()) == {"stopped"}


async def test_a_server_whose_record_was_never_completed_is_found_all_the_same(state: Path) -> None:
    starter = _starter("3", "die-before-record")
    starter.communicate()
    assert starter.returncode == -signal.SIGKILL
    intent = server_records.read(lab_directory("killed"), "r0-0")
    assert intent is not None
    assert (intent.state, intent.pid) == (server_records.STARTING, None)
    assert states("killed") == {"r0-0": "running", "r1-0": "stopped", "r2-0": "stopped"}
    await lifecycle.down("killed")
    assert processes_in(state) == []


async def test_a_server_whose_starter_was_killed_before_it_had_its_own_arguments_goes_down_too(
    state: Path, binary: Path
) -> None:
    await lifecycle.up("killed", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    directory = lab_directory("killed")
    record = server_records.read(directory, "r0-0")
    assert record is not None
    await lifecycle.down("killed")
    server_records.write(
        directory, dataclasses.replace(record, state=server_records.STARTING, pid=None, create_time=None)
    )
    child = _before_exec(record, directory.path)
    down = asyncio.create_task(lifecycle.down("killed"))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(down), 0.5)
    await asyncio.gather(down, asyncio.to_thread(child.communicate, b"\n"))
    assert processes_in(state) == []


async def test_a_lab_outlives_the_process_group_that_started_it(state: Path) -> None:
    starter = _starter("1")
    assert starter.stdout is not None
    for line in starter.stdout:
        if line == "UP\n":
            break
    os.killpg(starter.pid, signal.SIGKILL)
    starter.communicate()
    assert read_lab_status("killed").running == 1
    await lifecycle.down("killed")


async def test_a_recorded_pid_that_belongs_to_somebody_else_is_never_signalled(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    directory = lab_directory("a")
    record = server_records.read(directory, "r0-0")
    assert record is not None
    await lifecycle.down("a")
    stranger = _stranger()
    give_pid_away(directory, record, stranger)
    server = NatsServer(directory, "r0-0")
    assert states("a") == {"r0-0": "crashed"}
    assert not server.signal(signal.SIGKILL)
    await server.stop()
    await lifecycle.down("a")
    assert stranger.poll() is None
    stranger.communicate(b"\n")
    assert stranger.returncode == 0


async def test_a_paused_server_goes_down_too(binary: Path) -> None:
    await lifecycle.up("a", topology(1, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    assert NatsServer(lab_directory("a"), "r0-0").signal(signal.SIGSTOP)
    await lifecycle.down("a")
    assert states("a") == {"r0-0": "stopped"}


async def test_down_during_up_says_who_is_at_work(binary: Path) -> None:
    reached = asyncio.Event()
    task = asyncio.create_task(
        lifecycle.up("a", topology(2, 1), render, LabSetup(binary=binary), on_progress=lambda _: reached.set())
    )
    await reached.wait()
    with pytest.raises(LabError, match=f"lab `a` is being changed by process {os.getpid()}"):
        await lifecycle.down("a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def _starter(regions: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process that brings lab `killed` up, one server in each region."""
    command = [sys.executable, "-m", "tests.support.lab_bundle", regions, "1", *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _before_exec(record: server_records.ServerRecord, cwd: Path) -> subprocess.Popen[bytes]:
    """A process that becomes the server of *record* when it is told to."""
    becomes = f"import os; input(); os.execv({record.argv[0]!r}, {list(record.argv)!r})"
    return subprocess.Popen([sys.executable, "-c", becomes], cwd=cwd, stdin=subprocess.PIPE)


def _stranger() -> subprocess.Popen[bytes]:
    """A process that ends when it is told to, or by a signal."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
