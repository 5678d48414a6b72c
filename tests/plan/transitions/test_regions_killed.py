"""A region comes and goes while every run of `apply` dies after a few requests: each next run goes on."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.killed_apply import apply_until_done, plan_lab, run
from tests.support.labs import ignore_progress
from tests.support.night import repetitions, with_night
from tests.support.publish_load import Load, check_contents, under_load
from vstream.errors import RefusedError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab import binaries, lifecycle
from vstream.lab.endpoints import list_endpoints
from vstream.lab.start import LabSetup
from vstream.lab.state import lab_directory
from vstream.lint.check_topology import check_topology
from vstream.plan.live import reader_positions
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Topology
from vstream.topology.stream_config import UNTIL_KEY

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state")]

TWO = ["west", "central"]
ALL = ["west", "central", "east"]
RATE = repetitions(20, night=60)


def document(regions: list[str], known: list[str]) -> str:
    streams = {
        "foo": {"subjects": ["foo.>"], "regions": regions, "write": {"max_age": "1h"}, "consumers": {"reader": {}}}
    }
    return json.dumps(
        {
            "version": 1,
            "name": "killed",
            "server_version": "2.12",
            "regions": {name: {"servers": 1} for name in known},
            "streams": streams,
        }
    )


def topology(regions: list[str], known: list[str] = ALL) -> Topology:
    return check_topology(document(regions, known).encode(), "topology.yaml").require()


@pytest.mark.night
@pytest.mark.parametrize("version", with_night(["2.15.1"], ["2.12.8"]))
async def test_a_region_comes_and_goes_while_apply_dies_again_and_again(version: str, tmp_path: Path) -> None:
    small = topology(TWO)
    await lifecycle.up(
        "killed",
        small,
        lambda addresses: render_bundle(small, addresses=addresses),
        LabSetup(binary=binaries.find_or_fetch(version)),
        on_progress=ignore_progress,
        timeout=120,
    )
    await run(small, "killed")
    sent, later = Load(RATE), Load(RATE, tag="b")
    endpoints = list_endpoints("killed")
    async with under_load(sent, {region: endpoints[region] for region in TWO}):
        await sent.wait_for_acknowledged(RATE)
        added = await apply_until_done(topology(ALL), "killed")
        east_load = Load(RATE)
        async with under_load(east_load, {"east": endpoints["east"]}):
            await east_load.wait_for_acknowledged(RATE)
    both = replace(sent, acked={**sent.acked, **east_load.acked}, unknown=sent.unknown | east_load.unknown)
    await check_contents("killed", {region: f"foo-read-{region}" for region in ALL}, both)
    async with under_load(later, {region: endpoints[region] for region in TWO}):
        removed = await apply_until_done(small, "killed")
    assert sorted(added) == sorted(
        [
            "create foo-write-east",
            "create foo-read-east",
            "update foo-read-west",
            "update foo-read-central",
            "update foo-read-east",
            "update foo-read-east",
            "create foo-read-east > reader",
            "load mappings",
        ]
    )
    assert sorted(removed) == sorted(
        [
            "load mappings",
            "update foo-read-west",
            "update foo-read-central",
            "delete foo-read-east",
            "delete foo-write-east",
        ]
    )
    for west_load in (sent, later):
        assert (west_load.refused, west_load.unknown) == ({"west": 0, "central": 0}, set())
    assert east_load.acked["east"]
    acked = {region: both.acked[region] | later.acked.get(region, set()) for region in ALL}
    await check_contents("killed", {region: f"foo-read-{region}" for region in TWO}, replace(both, acked=acked))
    await run(topology(ALL), "killed")
    # What comes from a region that was gone arrives everywhere: servers before 2.15 do not notice that its stream is new.
    heard = Load(RATE, tag="h")
    async with under_load(heard, {"east": endpoints["east"]}):
        await heard.wait_for_acknowledged(20)
    everything = merge_loads(replace(both, acked=acked), heard)
    await check_contents("killed", {region: f"foo-read-{region}" for region in TWO}, everything)
    if version == "2.15.1":
        await dies_for_good(tmp_path / "whole.yaml", everything)
    await lifecycle.down("killed", purge=True)


async def dies_for_good(whole: Path, before: Load) -> None:
    """A region dies while one of the others could not hear it: it is given up, and what is lost is said before."""
    gone = topology(TWO, TWO)
    await asyncio.to_thread(whole.write_text, document(ALL, ALL))
    endpoints = list_endpoints("killed")
    cut = await asyncio.to_thread(vstream, "chaos", "partition", "central | east", "-t", whole, "--yes-really")
    assert cut.code == 0, cut.err
    unheard = Load(RATE, tag="u")
    async with under_load(unheard, {"east": endpoints["east"]}):
        await unheard.wait_for_acknowledged(50)
    await check_contents("killed", {"west": "foo-read-west"}, merge_loads(before, unheard))
    with pytest.raises(RefusedError, match="is not dead"):
        await plan_lab(gone, "killed", lost=("east",))
    async with connect(endpoints["west"], "west") as connection:
        last = int((await JetStreamAdmin(connection).info("foo-write-east"))["state"]["last_seq"])
    assert (await asyncio.to_thread(vstream, "chaos", "kill-region", "east", "-t", whole, "--yes-really")).code == 0

    with pytest.raises(RefusedError, match="still has `foo` in region `west`"):
        await plan_lab(gone, "killed", lost=("west",))
    with pytest.MonkeyPatch.context() as patch:
        # Servers of 2.15 say how far each reader has come: nobody reads what was published since.
        patch.setattr(reader_positions, "read_headers", None)
        (loss,) = (await plan_lab(gone, "killed", lost=("east",))).losses
    sentence = str(loss)
    later = Load(RATE, tag="l")
    async with under_load(later, {region: endpoints[region] for region in TWO}):
        done = await apply_until_done(gone, "killed", lost=("east",))
    # Each reader is updated twice: it drops the source, and notes how far it was there.
    assert sorted({*done}) == sorted(
        [
            "load mappings",
            "update foo-read-west",
            "update foo-read-central",
            "forget foo-read-east",
            "forget foo-write-east",
            "retire east-1",
        ]
    )
    async with connect(endpoints["west"], "west") as connection:
        config = (await JetStreamAdmin(connection).info("foo-read-west"))["config"]
    # A run that was killed before it made the note leaves none.
    assert config["metadata"].get(f"{UNTIL_KEY}foo-write-east", str(last)) == str(last)
    record = lab_directory("killed").read()
    assert record is not None
    # It comes back at these ports, as the same nats-server.
    assert [address.server.name for address in record.removed] == ["east-1"]
    assert record.programs["east-1"].version == "2.15.1"
    assert later.refused == {"west": 0, "central": 0}
    assert "`foo-read-central` will not get the rest by itself" in sentence
    assert f"after sequence {last:,} of `foo-write-east` is lost" in sentence
    await check_contents("killed", {"west": "foo-read-west"}, merge_loads(before, unheard, later))
    await check_contents("killed", {"central": "foo-read-central"}, merge_loads(before, later))
    assert (await plan_lab(gone, "killed")).is_empty
    # What the other one has of it comes back, and can be taken for nothing else.
    await asyncio.to_thread(whole.write_text, document(TWO, TWO))
    arguments = ("repair", "messages", whole, "--lab", "killed", "--kind", "clear", "--kind", "replay")
    repaired = await asyncio.to_thread(vstream, *arguments, "--yes")
    assert repaired.code == 0, repaired.out + repaired.err
    await check_contents(
        "killed", {region: f"foo-read-{region}" for region in TWO}, merge_loads(before, unheard, later)
    )
    again = await asyncio.to_thread(vstream, *arguments)
    assert (again.code, again.out) == (0, "Nothing to repair (checked: clear, replay).\n"), again.err


def merge_loads(*loads: Load) -> Load:
    """What all of *loads* were told."""
    acked = {region: set().union(*(load.acked.get(region, set()) for load in loads)) for region in ALL}
    return replace(loads[0], acked=acked, unknown=set().union(*(load.unknown for load in loads)))
