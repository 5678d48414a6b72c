"""Links between regions of a real lab: cut so that exactly those feel it who shall, and given back one by one."""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.support import connectivity
from tests.support.chaos_lab import (
    LAB,
    REGIONS,
    background,
    chaos,
    kill_once_it_says,
    open_faults,
    publish,
    running_lab,
    says,
)
from tests.support.command import require_success, vstream
from vstream.lab.links import control
from vstream.lab.links.state import Direction
from vstream.lab.status import is_running

pytestmark = pytest.mark.lab

EVERYBODY = {(region, peer) for region in REGIONS for peer in REGIONS}


def between(*sides: tuple[str, ...]) -> set[Direction]:
    return {(region, peer) for side in sides for far in sides if far != side for region in side for peer in far}


WEST_ALONE = between(("west",), ("central", "east"))
WEST_EAST = between(("west",), ("east",))


@pytest.fixture
def file(small_lab: Path) -> Iterator[Path]:
    """The topology of a lab that is whole, and that is left whole whatever the test did."""
    yield small_lab
    vstream("chaos", "heal", "--lab", LAB)
    assert control.read_links(LAB).overlays == {}


async def hears(expected: Collection[Direction]) -> None:
    """Who hears whom, by clients that `vstream chaos` knows nothing of."""
    async with connectivity.ears(LAB) as ears:
        await ears.require(expected, within=60)


@pytest.mark.parametrize("how", ["reset", "drop"])
async def test_a_partition_is_felt_by_its_sides_alone_and_heals(file: Path, how: str) -> None:
    async with connectivity.ears(LAB) as ears:
        await ears.require(EVERYBODY, within=60)
        cut = require_success(chaos(file, "partition", "west | central,east", "--how", how))
        assert "on one side: west, 1 server, no meta leader" in cut.err
        assert "messages went over central ↔ west, east ↔ west and do not any more, and still over" in cut.out
        await ears.require(EVERYBODY - WEST_ALONE)
        for region in REGIONS:
            assert await publish(region, f"{how} in {region}", within=60)
        require_success(chaos(file, "heal"))
        await ears.require(EVERYBODY, within=60)
    assert open_faults(file) == []


async def test_two_open_faults_compose_and_each_is_undone_by_name(file: Path) -> None:
    async with connectivity.ears(LAB) as ears:
        await ears.require(EVERYBODY, within=60)
        require_success(chaos(file, "partition", "west", "east"))
        require_success(chaos(file, "link", "central", "east", "--rtt", "80ms"))
        await ears.require(EVERYBODY - WEST_EAST)
        assert await ears.round_trip("central", "east") >= 0.08
        first, second = open_faults(file)
        assert (first["where"], second["where"]) == ("east ↔ west", "central ↔ east")
        require_success(chaos(file, "heal", first["id"]))
        await ears.require(EVERYBODY, within=60)
        assert await ears.round_trip("central", "east") >= 0.08
        assert [fault["id"] for fault in open_faults(file)] == [second["id"]]
        require_success(chaos(file, "heal"))
    assert control.read_links(LAB).state(("central", "east")).is_ideal


@pytest.mark.night
async def test_an_uneven_narrow_lossy_link_is_what_it_was_asked_to_be(file: Path) -> None:
    async with connectivity.ears(LAB) as ears:
        await ears.require(EVERYBODY, within=60)
        uneven = require_success(chaos(file, "link", "west", "east", "--jitter", "200ms"))
        assert uneven.out.count(" apart over ") == 2
        took = await ears.round_trips("west", "east", 20)
        assert max(took) - min(took) >= 0.05
        require_success(chaos(file, "heal"))

        narrow = require_success(chaos(file, "link", "west", "east", "--rate", "1mbit"))
        assert narrow.out.count(" bytes take ") == 2
        assert min(await ears.round_trips("west", "east", 2, size=100_000)) >= 0.4
        require_success(chaos(file, "heal"))

        lossy = require_success(chaos(file, "link", "west", "east", "--loss", "10%"))
        assert lossy.out.count(" came late over ") == 2
        took = await ears.round_trips("west", "east", 40)
        assert max(took) >= min(took) + 0.15
        rare = require_success(chaos(file, "link", "west", "central", "--loss", "0.001%"))
        assert "too rare to be seen" in rare.out
        require_success(chaos(file, "heal"))


def test_what_lies_over_a_link_that_is_cut_is_not_said_to_be_felt(file: Path) -> None:
    require_success(chaos(file, "isolate", "west"))
    shaped = require_success(chaos(file, "link", "west", "east", "--rtt", "20ms"))
    assert "no message gets through now" in shaped.out
    require_success(chaos(file, "heal", open_faults(file)[0]["id"]))
    assert control.read_links(LAB).state(("west", "east")).delay == pytest.approx(0.01)


async def test_one_direction_is_cut_alone(file: Path) -> None:
    async with connectivity.ears(LAB) as ears:
        await ears.require(EVERYBODY, within=60)
        require_success(chaos(file, "partition", "west | east", "--one-way", "--how", "drop"))
        await ears.require(EVERYBODY - {("west", "east")})
        require_success(chaos(file, "heal"))
        await ears.require(EVERYBODY, within=60)


async def test_an_isolated_region_is_given_back_by_ctrl_c(file: Path) -> None:
    with background(file, "isolate", "central", "--for", "60s") as tool:
        says(tool, "do not any more")
        await hears(EVERYBODY - between(("central",), ("west", "east")))
        tool.send_signal(signal.SIGINT)
        says(tool, "healed")
        assert tool.wait(100) == 130
    await hears(EVERYBODY)
    assert open_faults(file) == []


async def test_what_a_killed_tool_has_cut_is_healed_by_the_next(file: Path) -> None:
    kill_once_it_says("do not any more", file, "partition", "east | west,central", "--for", "60s")
    await hears(EVERYBODY - between(("east",), ("west", "central")))
    (fault,) = open_faults(file)
    assert (fault["kind"], fault["confirmed"], fault["over"]) == ("partition", True, False)
    require_success(chaos(file, "heal", fault["id"]))
    await hears(EVERYBODY)


def test_what_takes_more_or_bites_nobody_is_not_done(file: Path) -> None:
    split = chaos(file, "partition", "west | central | east")
    assert split.code == 1
    assert "meta group would have 1 of its 3 servers: no majority" in split.err
    assert open_faults(file) == []
    require_success(chaos(file, "isolate", "west"))
    again = chaos(file, "partition", "west | east")
    assert again.code == 1
    assert "nothing is left to cut: east ↔ west is cut already" in again.err
    assert [fault["command"] for fault in open_faults(file)] == ["isolate west"]
    for sides, problem in (
        ("west | wset", "no region `wset`"),
        ("west | west", "cannot be on two sides"),
        ("west", "two sides or more"),
        ("west |", "two sides or more"),
    ):
        wrong = chaos(file, "partition", sides)
        assert wrong.code == 2
        assert problem in wrong.err
    assert "regions: west, central, east; servers: west-1, " in chaos(file, "pause", "wst").err
    assert chaos(file, "link", "west", "east").code == 2
    assert "no link to itself" in chaos(file, "link", "west", "west", "--loss", "5%").err


async def test_a_lab_that_is_taken_down_has_no_cut_links_when_it_comes_back(file: Path) -> None:
    require_success(chaos(file, "isolate", "east"))
    require_success(chaos(file, "kill-server", "west-1", "--yes-really"))
    require_success(vstream("lab", "down", LAB))
    nothing_well = require_success(chaos(file, "heal", open_faults(file)[1]["id"])).out
    assert "no server of the lab runs" in nothing_well
    assert "healthy" not in nothing_well
    assert [fault["over"] for fault in open_faults(file)] == [True]
    require_success(vstream("lab", "up", file))
    await hears(EVERYBODY)
    assert is_running(LAB)
    require_success(chaos(file, "kill-server", "west-1", "--for", "0s"))
    assert open_faults(file) == []


def test_without_links_a_cut_is_unsupported(tmp_path: Path) -> None:
    with running_lab(tmp_path, 1, "--links", "none") as file:
        refused = chaos(file, "isolate", "west")
        assert refused.code == 3
        assert "has no links that could be changed" in refused.err
        assert "vstream lab up --links proxy" in refused.err
        assert require_success(chaos(file, "status", "--format", "json")).json()["faults"] == []
