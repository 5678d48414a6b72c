"""Faults on a real lab of three regions with one server each: they bite, they are refused, and they are always undone."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.chaos_lab import LAB, background, chaos, open_faults, publish, says
from tests.support.command import require_success, vstream
from tests.support.labs import eventually, give_pid_away, pids, states
from vstream.chaos import journal
from vstream.chaos.faults.restart import Restart
from vstream.jetstream.connection import connect
from vstream.lab import server_records
from vstream.lab.endpoints import list_endpoints
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory

pytestmark = pytest.mark.lab

ALL_UP = {"west-1": "running", "central-1": "running", "east-1": "running"}


@pytest.fixture
def file(small_lab: Path) -> Iterator[Path]:
    """The topology of a lab that is whole, and that is left whole whatever the test did."""
    yield small_lab
    vstream("chaos", "heal", "--lab", LAB)
    assert states(LAB) == ALL_UP


def is_stopped(pid: int) -> bool:
    return psutil.Process(pid).status() == psutil.STATUS_STOPPED


async def test_a_killed_region_stops_only_its_own_writes_and_heal_brings_all_back(file: Path) -> None:
    killed = require_success(chaos(file, "kill-region", "west"))
    assert "west: 0 of 1 servers left, 1 of 1 write stream cannot store" in killed.err
    assert "meta group: 2 of 3 servers left, keeps its majority" in killed.err
    assert killed.out.endswith(": west-1 is gone, and silent on the monitoring port\n")
    assert await publish("central", "while west is gone", within=60)
    assert not await publish("west", "never", within=1)

    refused = chaos(file, "kill-region", "east")
    assert refused.code == 1
    assert "meta group would have 1 of its 3 servers: no majority" in refused.err
    assert "regions `east` and `west` would be without a write quorum" in refused.err
    assert states(LAB)["east-1"] == "running"
    assert [fault["command"] for fault in open_faults(file)] == ["kill-region west"]

    require_success(chaos(file, "kill-region", "east", "--yes-really"))
    assert states(LAB) == {"west-1": "crashed", "central-1": "running", "east-1": "crashed"}
    assert [fault["command"] for fault in open_faults(file)] == ["kill-region west", "kill-region east"]

    healed = require_success(chaos(file, "heal"))
    assert "healthy after" in healed.out
    assert open_faults(file) == []
    assert states(LAB) == ALL_UP
    require_success(vstream("repair", "sources", file))
    probed = vstream("probe", file, "--timeout", "60")
    assert probed.code == 0, probed.out + probed.err


def test_killing_the_tool_leaves_a_journal_that_the_next_one_heals(file: Path) -> None:
    with background(file, "kill-region", "east", "--for", "60s") as tool:
        says(tool, "east-1 is gone")
        tool.kill()
        tool.wait()
    (fault,) = open_faults(file)
    assert (fault["command"], fault["confirmed"], fault["over"]) == ("kill-region east", True, False)
    assert f"`vstream chaos heal --lab {LAB}` undoes what a fault did" in vstream("lab", "status", LAB).err
    healed = require_success(chaos(file, "heal", fault["id"], "--format", "json")).json()
    assert [fault["id"] for fault in healed["healed"]] == [fault["id"]]
    assert states(LAB) == ALL_UP
    assert require_success(chaos(file, "heal")).out == "no open faults\n"


def test_ctrl_c_heals(file: Path) -> None:
    with background(file, "pause", "central", "--for", "60s") as tool:
        says(tool, "central-1 is stopped")
        pid = pids(LAB)["central-1"]
        assert pid is not None
        assert is_stopped(pid)
        tool.send_signal(signal.SIGINT)
        says(tool, "healed")
        assert tool.wait(60) == 130
    assert not is_stopped(pid)
    assert open_faults(file) == []


async def test_a_paused_server_is_resumed_by_name(file: Path) -> None:
    require_success(chaos(file, "pause", "east-1"))
    assert "`east` is paused already" in chaos(file, "pause", "east").err
    assert not await publish("east", "never", within=1)
    assert "`west-1` is not paused" in chaos(file, "resume", "west-1").err
    require_success(chaos(file, "resume", "east-1"))
    assert await publish("east", "again", within=60)
    assert open_faults(file) == []


def test_what_was_paused_together_is_resumed_by_any_of_its_names(file: Path) -> None:
    require_success(chaos(file, "pause", "west-1", "east-1", "--yes-really"))
    assert "(pause west-1 east-1)" in require_success(chaos(file, "resume", "east")).out
    assert open_faults(file) == []
    require_success(chaos(file, "pause", "west-1", "east-1", "--yes-really"))
    assert "paused: west-1, east-1" in chaos(file, "resume", "west-1", "central-1").err
    assert len(open_faults(file)) == 1
    require_success(chaos(file, "resume", "west-1", "east-1"))
    assert open_faults(file) == []


def test_a_fault_for_some_time_is_over_after_it(file: Path) -> None:
    before = pids(LAB)
    answer = require_success(chaos(file, "kill-server", "west-1", "--for", "1s", "--format", "json")).json()
    assert answer["fault"]["servers"] == ["west-1"]
    assert answer["healthy_after_seconds"] > 0
    assert answer["effects"]["meta"] == {"peers": 3, "remaining": 2, "majority": True}
    after = pids(LAB)
    assert {name for name in after if after[name] != before[name]} == {"west-1"}


def test_what_the_lab_did_not_start_is_never_signalled(file: Path) -> None:
    """A record that points to another process, as after a process id was given away, is not believed."""
    directory = lab_directory(LAB)
    require_success(chaos(file, "kill-server", "west-1"))
    record = server_records.read(directory, "west-1")
    assert record is not None
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        give_pid_away(directory, record, stranger)
        for command in ("kill-server", "pause"):
            refused = chaos(file, command, "west-1")
            assert refused.code == 3
            assert "server `west-1` does not run" in refused.err
        require_success(chaos(file, "heal"))
        assert stranger.poll() is None
        assert not is_stopped(stranger.pid)
        assert pids(LAB)["west-1"] != stranger.pid
    finally:
        stranger.kill()
        stranger.communicate()


def test_servers_that_are_not_the_lab_lose_no_process(file: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.yaml"
    client = {
        server["region"]: server["url"]
        for server in vstream("lab", "status", LAB, "--format", "json").json()["labs"][0]["servers"]
    }
    connect = ", ".join(f"{region}: {{urls: [{url}]}}" for region, url in client.items())
    real.write_text(f"{file.read_text()}connect: {{{connect}}}\n")
    for arguments in (
        ("kill-region", "west"),
        ("kill-server", "west-1"),
        ("kill-leader", "foo", "--region", "west"),
        ("kill-meta-leader",),
        ("pause", "west"),
        ("rolling-restart",),
    ):
        refused = chaos(file, *arguments, "--topology", str(real))
        assert refused.code == 3
        assert "were not started by vstream" in refused.err
        assert "chaos step-down" in refused.err
    alone = chaos(file, "step-down", "foo", "--region", "west", "--topology", str(real))
    assert alone.code == 1
    assert "`foo-write-west` has one replica" in alone.err
    blind = chaos(file, "step-down-meta", "--topology", str(real))
    assert blind.code == 3
    assert "add the servers' monitoring addresses to `connect`" in blind.err
    assert states(LAB) == ALL_UP


def test_wrong_names_are_answered_with_the_right_ones(file: Path) -> None:
    assert "regions: west, central, east" in chaos(file, "kill-region", "wset").err
    assert "servers: west-1, central-1, east-1" in chaos(file, "kill-server", "west").err
    assert "which one?" in chaos(file, "step-down", "foo").err
    assert "there is no stream `bar`" in chaos(file, "kill-leader", "bar").err
    assert chaos(file, "kill-server", "west-1", "--for", "soon").code == 2
    assert states(LAB) == ALL_UP


@pytest.mark.parametrize("is_lame_duck", [False, True], ids=["before the signal", "while clients are sent away"])
async def test_a_restart_that_was_cut_off_is_finished(file: Path, is_lame_duck: bool) -> None:
    """Killed while the server still runs: it must not be taken for one that is well, nor waited for in vain."""
    directory, before = lab_directory(LAB), pids(LAB)
    book = journal.read_journal(directory)
    journal.write_journal(directory, book.add("rolling-restart: west-1", Restart(servers=("west-1",)))[0])
    async with connect(list_endpoints(LAB)["west"], "west"):
        if is_lame_duck:
            server = NatsServer(directory, "west-1")
            mark = server.mark_log()
            server.signal(signal.SIGUSR2)
            await eventually(lambda: any("Entering lame duck mode" in line for line in server.read_lines_since(mark)))
        assert [fault["over"] for fault in open_faults(file)] == [False]
        require_success(await asyncio.to_thread(chaos, file, "heal"))
    after = pids(LAB)
    assert {name for name in after if after[name] != before[name]} == {"west-1"}
    assert open_faults(file) == []


async def test_a_lab_is_taken_down_with_its_faults_open_and_comes_up_without(file: Path) -> None:
    require_success(chaos(file, "pause", "west"))
    require_success(vstream("lab", "down", LAB))
    await eventually(lambda: set(states(LAB).values()) == {"stopped"})
    assert [fault["over"] for fault in open_faults(file)] == [True]
    healed = require_success(chaos(file, "heal")).out
    assert "undone" in healed
    assert "no server of the lab runs" in healed
    assert set(states(LAB).values()) == {"stopped"}
    require_success(vstream("lab", "up", file))
    assert open_faults(file) == []
