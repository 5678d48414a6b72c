"""Links between regions: what is cut is cut, nothing else is, and it is felt by those who shall feel it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support import connectivity
from tests.support.lab_bundle import render, topology
from tests.support.labs import end_all_in, eventually, ignore_progress, processes_in
from vstream.errors import LabError, UnknownNameError, UnsupportedError
from vstream.lab import lifecycle, ports
from vstream.lab.endpoints import list_addresses
from vstream.lab.links import control
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import Backend, Cut, Direction, LinkState
from vstream.lab.readiness import ReadinessProgress, ReadinessStage
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory
from vstream.lab.status import read_lab_status

pytestmark = pytest.mark.lab

WEST, CENTRAL, EAST = "r0", "r1", "r2"
LINK = {(WEST, EAST), (EAST, WEST)}


def cut(pairs: Collection[Direction], how: Cut) -> dict[Direction, LinkState]:
    return {pair: LinkState(cut=how) for pair in pairs}


@pytest.fixture(scope="module")
def lab_a(binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    state = tmp_path_factory.mktemp("links") / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VSTREAM_STATE_DIR", str(state))
        asyncio.run(lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=ignore_progress))
        try:
            yield
        finally:
            asyncio.run(lifecycle.down("a", purge=True))
            left = end_all_in(state)
    assert left == []


@pytest_asyncio.fixture
async def up(lab_a: None, binary: Path) -> None:
    """Lab `a` runs, and all its links are as they were, whatever the last test did to them."""
    for fault in control.read_links("a").overlays:
        await control.remove_overlay("a", fault)
    await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
    await control.restore_started_shape("a", control.read_links("a").pairs)


@pytest.mark.usefixtures("up")
async def test_a_cut_is_felt_by_those_whom_it_cuts_off_and_by_nobody_else() -> None:
    every_link = control.read_links("a").pairs
    async with connectivity.ears("a") as ears:
        everybody = ears.everybody()
        await ears.require(everybody)
        for how in Cut:
            for gone in (LINK, set(every_link), {(WEST, CENTRAL), (CENTRAL, WEST), *LINK}):
                await control.put_overlay("a", "fault", cut(gone, how))
                await ears.require(everybody - gone)
                assert not set((await control.read_traffic("a")).connections) & (gone if how is Cut.RESET else set())
                await control.remove_overlay("a", "fault")
                await ears.require(everybody)
            # In one direction only: the other goes on.
            one_way = {(WEST, EAST)}
            await control.put_overlay("a", "one-way", cut(one_way, how))
            await ears.require(everybody - one_way)
            await control.remove_overlay("a", "one-way")
            await ears.require(everybody)
        assert connectivity.direct("a") == []


async def test_in_a_cluster_of_three_no_connection_goes_around_the_proxy(binary: Path, state: Path) -> None:
    await lifecycle.up("a", topology(3, 3), render, LabSetup(binary=binary), on_progress=ignore_progress)
    async with connectivity.ears("a") as ears:
        await ears.require(ears.everybody())
        assert connectivity.direct("a") == []
        assert (await control.read_traffic("a")).connections == dict.fromkeys(control.read_links("a").pairs, 3)
        # Servers tell each other where else they could connect: that must not help them.
        await control.put_overlay("a", "fault", cut(LINK, Cut.RESET))
        await ears.require(ears.everybody() - LINK)
        assert set((await control.read_traffic("a")).connections) == set(control.read_links("a").pairs) - LINK
        assert connectivity.direct("a") == []
        await control.remove_overlay("a", "fault")
        await ears.require(ears.everybody())
        assert connectivity.direct("a") == []
        assert (await control.read_traffic("a")).refused == 0
    await lifecycle.down("a")


@pytest.mark.usefixtures("up")
async def test_a_round_trip_takes_at_least_what_its_link_says() -> None:
    async with connectivity.ears("a") as ears:
        await ears.require(ears.everybody())
        round_trips = {(WEST, CENTRAL): 0.06, (CENTRAL, EAST): 0.08, (WEST, EAST): 0.14}
        await control.shape_links(
            "a",
            {
                pair: LinkState(delay=rtt / 2)
                for (near, far), rtt in round_trips.items()
                for pair in ((near, far), (far, near))
            },
        )
        await ears.until_quicker(WEST, WEST, min(round_trips.values()))
        for (near, far), rtt in round_trips.items():
            assert await ears.round_trip(near, far) >= rtt
            assert await ears.round_trip(far, near) >= rtt
        await control.shape_links("a", {(EAST, WEST): LinkState(delay=0.3)})
        assert await ears.round_trip(WEST, EAST) >= 0.07 + 0.3
        await control.restore_started_shape("a", control.read_links("a").pairs)
        await ears.until_quicker(WEST, EAST, 0.07)


@pytest.mark.usefixtures("up")
async def test_faults_undo_what_they_did_and_nothing_else() -> None:
    async with connectivity.ears("a") as ears:
        await ears.require(ears.everybody())
        await control.put_overlay("a", "one", cut(LINK, Cut.DROP))
        await control.put_overlay("a", "other", cut(LINK | {(WEST, CENTRAL), (CENTRAL, WEST)}, Cut.RESET))
        await control.shape_links("a", {(WEST, EAST): LinkState(delay=0.02)})
        await control.remove_overlay("a", "one")
        await control.remove_overlay("a", "one")
        alone = {(WEST, EAST), (EAST, WEST), (WEST, CENTRAL), (CENTRAL, WEST)}
        await ears.require(ears.everybody() - alone)
        await control.remove_overlay("a", "other")
        await ears.require(ears.everybody())
        assert control.read_links("a").state((WEST, EAST)) == LinkState(delay=0.02)


async def test_a_proxy_that_died_is_seen_and_started_again_with_what_it_did(binary: Path, up: None) -> None:
    proxy = ProxyProcess(lab_directory("a"))
    async with connectivity.ears("a") as ears:
        await ears.require(ears.everybody())
        await control.put_overlay("a", "fault", cut(LINK, Cut.DROP))
        process = proxy.process()
        assert process is not None
        process.send_signal(signal.SIGKILL)
        await eventually(lambda: proxy.process() is None)
        with pytest.raises(LabError, match="the link proxy of lab `a` is not running") as caught:
            await control.put_overlay("a", "another", cut(LINK, Cut.RESET))
        assert "vstream lab up" in str(caught.value.hint)
        assert set(control.read_links("a").overlays) == {"fault"}
        servers = {server.name: server.pid for server in read_lab_status("a").servers}

        await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=ignore_progress)
        assert {server.name: server.pid for server in read_lab_status("a").servers} == servers
        await ears.require(ears.everybody() - LINK)
        await control.remove_overlay("a", "fault")
        await ears.require(ears.everybody())


async def test_a_proxy_that_dies_while_the_lab_starts_is_named_and_nothing_is_left(binary: Path, state: Path) -> None:
    def kill(progress: ReadinessProgress) -> None:
        process = ProxyProcess(lab_directory("a")).process()
        if progress.stage is ReadinessStage.LINKED and process is not None:
            process.kill()

    with pytest.raises(LabError, match="the link proxy of lab `a` died: it said nothing"):
        await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary), on_progress=kill)
    assert processes_in(state) == []


async def test_a_fault_can_be_undone_while_the_lab_does_not_run(binary: Path, up: None) -> None:
    await control.put_overlay("a", "fault", cut(LINK, Cut.DROP))
    await lifecycle.down("a")
    after = await control.remove_overlay("a", "fault")
    assert after.overlays == {}
    with pytest.raises(LabError, match="is not running"):
        await control.put_overlay("a", "fault", cut(LINK, Cut.DROP))


async def test_a_lab_that_starts_has_the_shape_that_was_asked_for_and_no_faults(binary: Path, up: None) -> None:
    await control.put_overlay("a", "fault", cut(LINK, Cut.DROP))
    await lifecycle.down("a")
    shape = {(WEST, EAST): LinkState(delay=0.05), (EAST, WEST): LinkState(delay=0.05)}
    await lifecycle.up("a", topology(3, 1), render, LabSetup(binary=binary, shape=shape), on_progress=ignore_progress)
    assert control.read_links("a").overlays == {}
    async with connectivity.ears("a") as ears:
        await ears.require(ears.everybody())
        assert await ears.round_trip(WEST, EAST) >= 0.1
    # Another shape counts at once; what was changed since stays.
    await control.shape_links("a", {(WEST, CENTRAL): LinkState(delay=0.01)})
    await lifecycle.up(
        "a",
        topology(3, 1),
        render,
        LabSetup(binary=binary, shape={(WEST, EAST): LinkState(loss=0.01)}),
        on_progress=ignore_progress,
    )
    assert control.read_links("a").base == {
        (WEST, EAST): LinkState(loss=0.01),
        (EAST, WEST): LinkState(),
        (WEST, CENTRAL): LinkState(delay=0.01),
    }


async def test_what_a_lab_cannot_do_is_said_and_changes_nothing(binary: Path, up: None) -> None:
    with pytest.raises(UnknownNameError, match="lab `a` has no region `west`") as caught:
        await control.put_overlay("a", "fault", {("west", WEST): LinkState(cut=Cut.DROP)})
    assert caught.value.hint == "its regions: r0, r1, r2"
    with pytest.raises(UnknownNameError, match="`r0` has no link to itself"):
        await control.put_overlay("a", "fault", {(WEST, WEST): LinkState(cut=Cut.DROP)})
    with pytest.raises(LabError, match="runs with `--links proxy`"):
        await lifecycle.up(
            "a", topology(3, 1), render, LabSetup(binary=binary, links=Backend.NONE), on_progress=ignore_progress
        )
    assert control.read_links("a").overlays == {}

    await lifecycle.up(
        "b", topology(2, 1), render, LabSetup(binary=binary, links=Backend.NONE), on_progress=ignore_progress
    )
    assert ProxyProcess(lab_directory("b")).process() is None
    with pytest.raises(UnsupportedError, match="its servers dial each other"):
        await control.put_overlay("b", "fault", {("r0", "r1"): LinkState(cut=Cut.DROP)})
    await lifecycle.down("b")


async def test_labs_beside_each_other_have_fronts_of_their_own(binary: Path, state: Path) -> None:
    await asyncio.gather(
        lifecycle.up("a", topology(2, 1), render, LabSetup(binary=binary), on_progress=ignore_progress),
        lifecycle.up("b", topology(2, 1), render, LabSetup(binary=binary), on_progress=ignore_progress),
    )
    used = [
        port
        for name in ("a", "b")
        for address in list_addresses(name)
        for port in (*ports.server_ports(address), *ports.front_ports(address))
    ]
    assert len(used) == len(set(used)) == 20
    await control.put_overlay("a", "fault", cut({("r0", "r1"), ("r1", "r0")}, Cut.DROP))
    async with connectivity.ears("b") as ears:
        await ears.require(ears.everybody())
    await lifecycle.down("a")
    await lifecycle.down("b")


async def test_a_process_that_is_no_server_of_the_lab_is_not_let_through(up: None) -> None:
    front, before = list_addresses("a")[0].gateway_front, (await control.read_traffic("a")).refused
    reader, writer = await asyncio.open_connection("127.0.0.1", front)
    with pytest.raises(ConnectionResetError):
        await reader.read(1)
    writer.close()
    assert (await control.read_traffic("a")).refused == before + 1
