"""Full disks on a real lab: one region cannot store, the others go on, and a restart is what heals."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from tests.support.chaos_lab import LAB, chaos, kill_once_it_says, open_faults, publish, read_stored
from tests.support.command import require_success
from tests.support.labs import pids, states
from vstream.chaos.faults import disk_full
from vstream.lab.links import control
from vstream.servers import target_servers

pytestmark = pytest.mark.lab


def limit(server: str) -> int:
    pid = pids(LAB)[server]
    assert pid is not None
    return psutil.Process(pid).rlimit(psutil.RLIMIT_FSIZE)[0]


async def test_a_region_without_room_stores_nothing_until_it_is_healed(healed_file: Path) -> None:
    before = pids(LAB)
    assert await publish("west", "before", within=60)
    full = require_success(chaos(healed_file, "disk-full", "west"))
    assert "west: 0 of 1 servers left, 1 of 1 write stream cannot store" in full.err
    assert "west-1 is not able to write" in full.out
    assert not await publish("west", "no room", within=3)
    assert await publish("central", "elsewhere", within=60)
    assert pids(LAB) == before
    assert [(fault["kind"], fault["over"]) for fault in open_faults(healed_file)] == [("disk-full", False)]

    # Another fault can be healed meanwhile, and the disk stays full.
    require_success(chaos(healed_file, "link", "central", "east", "--rtt", "20ms", "--for", "0s"))
    assert control.read_links(LAB).overlays == {}
    assert limit("west-1") == 0

    require_success(chaos(healed_file, "heal"))
    after = pids(LAB)
    assert {name for name in after if after[name] != before[name]} == {"west-1"}
    assert limit("west-1") == psutil.RLIM_INFINITY
    assert await publish("west", "room again", within=60)
    assert "before" in await read_stored("west", "write")
    assert open_faults(healed_file) == []


async def test_a_heal_that_was_cut_off_before_the_restart_is_ended(healed_file: Path) -> None:
    """The limit is lifted, and the server still refuses what it could not write: only another process is well."""
    kill_once_it_says("not able to write", healed_file, "disk-full", "east-1", "--for", "60s")
    sick = pids(LAB)["east-1"]
    assert sick is not None
    assert not await publish("east", "no room", within=3)
    psutil.Process(sick).rlimit(psutil.RLIMIT_FSIZE, (psutil.RLIM_INFINITY, psutil.RLIM_INFINITY))
    assert [fault["over"] for fault in open_faults(healed_file)] == [False]
    require_success(chaos(healed_file, "heal"))
    assert pids(LAB)["east-1"] != sick
    assert await publish("east", "well", within=60)


def test_a_full_disk_is_healed_although_its_server_was_paused_since(healed_file: Path) -> None:
    require_success(chaos(healed_file, "disk-full", "west-1"))
    require_success(chaos(healed_file, "pause", "west-1"))
    full, _ = open_faults(healed_file)
    alone = chaos(healed_file, "heal", full["id"])
    assert alone.code == 3
    assert "`west-1` is paused" in alone.err
    assert limit("west-1") == 0, "a heal that cannot be has begun"
    require_success(chaos(healed_file, "heal"))
    assert open_faults(healed_file) == []
    assert limit("west-1") == psutil.RLIM_INFINITY


def test_a_server_that_was_killed_since_stays_down_when_its_disk_has_room_again(healed_file: Path) -> None:
    require_success(chaos(healed_file, "disk-full", "west-1"))
    require_success(chaos(healed_file, "kill-server", "west-1"))
    full, killed = open_faults(healed_file)
    require_success(chaos(healed_file, "heal", full["id"]))
    assert states(LAB)["west-1"] != "running"
    assert [(fault["id"], fault["over"]) for fault in open_faults(healed_file)] == [(killed["id"], False)]
    require_success(chaos(healed_file, "heal"))
    assert states(LAB)["west-1"] == "running"
    assert limit("west-1") == psutil.RLIM_INFINITY


async def test_regions_with_a_full_disk_are_told_from_those_that_can_write(healed_file: Path) -> None:
    """What confirms the fault would deny one that does not bite."""
    assert await disk_full._can_write(target_servers.load_and_trust_lab(LAB), "central-1")
