"""`vstream lab link` and `vstream lab links` as a user runs them, on a lab with a stretch cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support import connectivity
from tests.support.command import vstream
from tests.support.labs import processes_in
from tests.support.topologies import begin_topology
from vstream.jetstream import monitoring
from vstream.lab.endpoints import list_addresses
from vstream.lab.links import control
from vstream.lab.links.state import Cut, LinkState

pytestmark = pytest.mark.lab

TEXT = (
    begin_topology("wide", "2.10", west=1, central=1, east=1)
    + "stretch: {members: all}\nlinks: {default: {rtt: 20ms}, west-east: {rtt: 60ms, jitter: 2ms}}\n"
)
WEST_AWAY = [("west", "central"), ("central", "west"), ("west", "east"), ("east", "west")]
WITHOUT_WEST = {"west": set[str](), "central": {"stretch-east"}, "east": {"stretch-central"}}


@pytest.fixture
def file(state: Path, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "wide.yaml"
    path.write_text(TEXT)
    yield path
    down = vstream("lab", "down", "wide", "--purge")
    assert down.code == 0 or "there is no lab `wide`" in down.err
    assert processes_in(state) == []


def read_links() -> dict[tuple[str, str], Any]:
    ran = vstream("lab", "links", "--format", "json").json()
    return {(link["from"], link["to"]): link for link in ran["links"]}


def routes() -> dict[str, set[str]]:
    async def ask() -> dict[str, set[str]]:
        return {
            address.region: set(await monitoring.list_routed_servers(address.monitor_url))
            for address in list_addresses("wide")
            if address.is_stretch
        }

    return asyncio.run(ask())


def poll(holds: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_links_are_made_shown_changed_and_repaired(file: Path, state: Path) -> None:
    up = vstream("lab", "up", file, "--link", "central-east:rtt=40ms,loss=1%")
    assert up.code == 0, up.err
    before = read_links()
    assert {pair: (link["delay_seconds"], link["jitter_seconds"], link["loss"]) for pair, link in before.items()} == {
        ("west", "central"): (0.01, 0, 0),
        ("central", "west"): (0.01, 0, 0),
        ("west", "east"): (0.03, 0.001, 0),
        ("east", "west"): (0.03, 0.001, 0),
        ("central", "east"): (0.02, 0, 0.01),
        ("east", "central"): (0.02, 0, 0.01),
    }
    assert all(link["connections"] > 0 for link in before.values())
    assert connectivity.direct("wide") == []

    changed = vstream("lab", "link", "west", "east", "--rtt", "10ms", "--rate", "1gbit", "--one-way")
    assert (changed.code, changed.err) == (0, "west → east: 5 ms late, up to 1 ms more, 1gbit\n")
    assert (read_links()["west", "east"]["delay_seconds"], read_links()["east", "west"]["delay_seconds"]) == (
        0.005,
        0.03,
    )
    back = vstream("lab", "link", "west", "east", "--reset")
    assert back.err == "west → east: 30 ms late, up to 1 ms more\neast → west: 30 ms late, up to 1 ms more\n"

    # What dies is seen, and started again.
    status = vstream("lab", "status", "--format", "json").json()["labs"][0]["links"]
    assert (status["backend"], status["state"]) == ("proxy", "running")
    process = psutil.Process(status["pid"])
    process.kill()
    process.wait(10)
    crashed = vstream("lab", "status")
    assert crashed.code == 1
    assert "links: proxy crashed" in crashed.out
    assert crashed.err == "`vstream lab up --lab wide` starts what has crashed\n"
    refused = vstream("lab", "link", "west", "east", "--rtt", "10ms")
    assert refused.code == 3
    assert "is not running" in refused.err
    elsewhere = state / "elsewhere"
    elsewhere.mkdir()
    again = vstream("lab", "up", "--lab", "wide", "--link", "central-east:rtt=40ms,loss=1%", cwd=elsewhere)
    assert again.code == 0, again.err
    assert vstream("lab", "status").code == 0
    fault = vstream("chaos", "kill-server", "west-1", "--for", "1ms", "--lab", "wide", cwd=elsewhere)
    assert (fault.code, fault.err.splitlines()[0]) == (0, f"topology: {file}, from which lab wide was started")


def test_the_stretch_clusters_member_is_lost_with_its_region(file: Path) -> None:
    assert vstream("lab", "up", file).code == 0
    assert routes() == {
        "west": {"stretch-central", "stretch-east"},
        "central": {"stretch-west", "stretch-east"},
        "east": {"stretch-west", "stretch-central"},
    }
    for how in Cut:
        asyncio.run(control.put_overlay("wide", "isolate", dict.fromkeys(WEST_AWAY, LinkState(cut=how))))
        if how is Cut.RESET:
            poll(lambda: routes() == WITHOUT_WEST)
        table = vstream("lab", "links")
        assert f"cut ({how.value})" in table.out
        assert table.out.count("isolate") == len(WEST_AWAY)
        asyncio.run(control.remove_overlay("wide", "isolate"))
        poll(lambda: all(len(names) == 2 for names in routes().values()))
    assert connectivity.direct("wide") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["west", "east", "--rtt", "2m"], "no link is longer than 1m"),
        (["west", "east", "--rate", "fast"], "is not a valid rate"),
        (["west", "east", "--loss", "100%"], "is not a percentage"),
        (["west", "east"], "say what to change"),
    ],
)
def test_what_is_no_link_is_a_usage_error(arguments: list[str], said: str, state: Path) -> None:
    ran = vstream("lab", "link", *arguments)
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(
    "option", ["west-eats:rtt=1ms", "west-east", "west-east:rtt", "west-east:delay=1ms", "west-west:rtt=1ms"]
)
def test_a_link_option_that_means_nothing_starts_nothing(option: str, file: Path, state: Path) -> None:
    ran = vstream("lab", "up", file, "--link", option)
    assert ran.code == 2
    assert processes_in(state) == []
