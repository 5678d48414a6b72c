"""`vstream region drain` on a lab under load: a region is emptied, stopped, started and brought back, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.lost_region import LIVING, REGIONS, command, document, foo_in_living, run_killed
from tests.support.publish_load import Load, compare, identities, under_load
from vstream.lab.endpoints import list_client_endpoints

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("state")]

AVAILABLE = 0.999


@dataclass(frozen=True, kw_only=True)
class Outcome:
    acknowledged: int
    lost: int
    doubled: int
    availability: float
    """Of `foo`, in the regions that stay."""
    closed: float
    """The longest time in seconds in which nothing went into the `homed` stream."""
    killed: int


async def drained_and_back(file: Path, name: str, rate: float, delays: tuple[float, ...]) -> Outcome:
    """The west of lab *name* is drained and brought back by commands that are killed after *delays* seconds, and stopped between."""
    foo, prices = Load(rate), Load(rate / 2, prefix="prices", tag="p")
    endpoints = list_client_endpoints(name)
    async with under_load(prices, {region: endpoints[region] for region in LIVING}):
        async with under_load(foo, endpoints):
            await foo.wait_for_acknowledged(round(rate))
            killed = await run_killed(["region", "drain", "west", file, "--yes"], delays)
            await foo.wait_for_acknowledged(round(rate / 2))
        safe = json.loads(await command("region", "drain", "west", file, "--format", "json"))
        assert (safe["safe"], safe["missing"], safe["unknown"]) == (True, [], [])
        elsewhere = Load(rate, tag="b")
        async with under_load(elsewhere, {region: endpoints[region] for region in LIVING}):
            await command("chaos", "kill-region", "west", "-t", file, "--yes-really")
            await foo_in_living(elsewhere, round(rate))
            await command("chaos", "heal", "--lab", name)
            killed += await run_killed(["region", "drain", "west", file, "--undo", "--yes"], delays)
            await foo_in_living(elsewhere, round(rate))
    await command("plan", file, "--detailed-exitcode")
    assert "drained:" not in await asyncio.to_thread(file.read_text)
    lost = doubled = 0
    for load, streams in (
        (foo, {region: f"foo-read-{region}" for region in REGIONS}),
        (elsewhere, {region: f"foo-read-{region}" for region in REGIONS}),
        (prices, {"west": "prices", **{region: f"prices-read-{region}" for region in LIVING}}),
    ):
        for region, stream in streams.items():
            missing, twice, _ = await compare(name, region, stream, load)
            lost, doubled = lost + len(missing), doubled + len(twice)
    return Outcome(
        acknowledged=sum(len(load.everything) for load in (foo, elsewhere, prices)),
        lost=lost,
        doubled=doubled,
        availability=min(foo.availability(REGIONS), elsewhere.availability(LIVING)),
        closed=max(prices.gap.values()),
        killed=killed,
    )


def start(file: Path, name: str, servers: int, *options: str, text: str | None = None) -> None:
    """*text*: the topology, if not that of `document`. Homes take half a minute to move."""
    file.write_text(text or document(name, servers))
    up = vstream("lab", "up", file, *options)
    assert up.code == 0, up.err
    assert vstream("apply", file, "--yes").code == 0


async def test_a_drained_region_is_empty_and_comes_back(tmp_path: Path) -> None:
    file = tmp_path / "drained.yaml"
    start(file, "drained", 1, text=document("drained", 1).partition("  prices:")[0])
    try:
        for waiting in ([], ["--yes", "--gate-timeout", "3600"]):  # nobody waits for what cannot come
            alone = vstream("region", "drain", "west-1", file, *waiting)
            assert alone.code == 1
            assert "`foo-write-west` has its only replica there" in alone.out
        asked = vstream("region", "drain", "west", file, "--format", "json")
        assert (asked.code, asked.json()["safe"]) == (1, False)
        unread = tmp_path / "unread.yaml"
        urls = {
            region: list(client_endpoint.urls) for region, client_endpoint in list_client_endpoints("drained").items()
        }
        connect = {region: {"urls": addresses} for region, addresses in urls.items()}
        unread.write_text(f"connect: {json.dumps(connect)}\n{file.read_text()}")
        for options in ((), ("--yes",)):
            unknown = vstream("region", "drain", "west", unread, *options)
            assert unknown.code == 3, unknown.out
            assert "are loaded on central-1, east-1, west-1" in unknown.out
        load = Load(50)
        async with under_load(load, list_client_endpoints("drained")):
            await load.wait_for_acknowledged(20)
            text = await command("region", "drain", "west", file, "--yes")
            assert "Safe to stop: west-1" in text
            west = len(await identities("drained", "west", "foo-write-west"))
            await load.wait_for_acknowledged(20)
            assert len(await identities("drained", "west", "foo-write-west")) == west
            await command("region", "drain", "west", file, "--undo", "--yes")
            await load.wait_for_acknowledged(20)
            assert len(await identities("drained", "west", "foo-write-west")) > west
        missing, twice, _ = await compare("drained", "east", "foo-read-east", load)
        assert (missing, twice) == ([], [])
        # Of so few publishes, one that is refused is a thousandth already: the night has the bar.
        assert load.availability(REGIONS) >= 0.99, (load.refused, load.unknown)
    finally:
        vstream("lab", "down", "drained", "--purge")


@pytest.mark.night
@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
async def test_drain_goes_on_where_it_was_killed(version: str, tmp_path: Path) -> None:
    file = tmp_path / "drained.yaml"
    start(file, "drained", 3, "--server-version", version)
    try:
        assert vstream("region", "drain", "east-1", file, "--yes").code == 0
        result = await drained_and_back(file, "drained", 200, (3, 5, 7, 10))
        assert (result.lost, result.doubled) == (0, 0), result
        assert result.killed, result
        assert result.availability >= AVAILABLE, result
    finally:
        vstream("lab", "down", "drained", "--purge")
