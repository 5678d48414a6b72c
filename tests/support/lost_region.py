"""A region that dies under load and is given up by `vstream region failover`: what was lost, doubled and refused."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from asyncio.subprocess import DEVNULL
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.backups import killed_after
from tests.support.command import environment, vstream
from tests.support.labs import pids
from tests.support.publish_load import Load, identities, under_load
from vstream.apply.meta_group import wait_for_members
from vstream.lab.endpoints import list_client_endpoints, list_endpoints
from vstream.lab.status import read_lab_status

REGIONS = ("west", "central", "east")
LIVING = ("central", "east")


def document(name: str, servers: int) -> str:
    """A `virtual` and a `homed` stream, which is at home in the west, with consumers."""
    settings = "write: {max_age: 1h}, consumers: {reader: {}}"
    homed = "consistency: homed, home: west, write: {max_age: unlimited}, consumers: {reader: {}}"
    regions = "".join(f"  {region}:\n    servers: {servers}\n" for region in REGIONS)
    return (
        f'version: 1\nname: {name}\nserver_version: "2.12"\nregions:\n{regions}streams:\n'
        f"  foo: {{subjects: [foo.>], {settings}}}\n  prices: {{subjects: [prices.>], {homed}}}\n"
    )


@dataclass(frozen=True, kw_only=True)
class Aftermath:
    """What publishers and readers had of it."""

    acknowledged: int
    lost: int
    """Acknowledged messages that a living region's stream lacks, and of which that was not said before."""
    said_lost: int
    """Those of which it was."""
    doubled: int
    availability: float
    """Of `foo`, in the living regions."""
    closed: float
    """The longest time in seconds that nobody could publish into the `homed` stream."""
    killed: int
    """Runs of the command that were killed before they ended."""


async def command(*arguments: str | Path, code: int = 0) -> str:
    """A `vstream` that ends with *code*, while publishers go on."""
    ran = await asyncio.to_thread(vstream, *arguments, timeout=590)
    assert ran.code == code, f"{arguments}: {ran.code}\n{ran.out}\n{ran.err}"
    return ran.out


async def run_killed(arguments: Sequence[str | Path], delays: Sequence[float]) -> int:
    """The command, killed after each of *delays* seconds unless it ends before, and then to its end. How many were killed."""
    killed = [await killed_after(delay, *arguments) for delay in delays]
    await command(*arguments)
    return sum(killed)


async def killed_once_it_has_started(name: str, region: str, arguments: Sequence[str | Path]) -> None:
    """The command, killed as soon as all servers of *region* run, which it starts."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vstream", *arguments, env=environment(), stdout=DEVNULL, stderr=DEVNULL
    )
    async with asyncio.timeout(120):
        while not all(pids(name).get(f"{region}-{number}") for number in (1, 2, 3)):
            assert process.returncode is None, "it ended before"
            await asyncio.sleep(0.1)
    process.kill()
    await process.wait()


def said_losses(text: str) -> dict[str, int]:
    """By stream: the sequence after which what it acknowledged is lost, as the command said."""
    joined = re.sub(r"\s+", " ", text)
    losses = re.findall(r"after sequence ([\d,]+) of `([^`]+)`", joined)
    return {stream: int(seq.replace(",", "")) for seq, stream in losses}


async def dies_for_good(file: Path, name: str, rate: float, delays: Sequence[float]) -> Aftermath:
    """The west of the running lab *name* dies under load, and is given up by a command that is killed after *delays* seconds."""
    foo, prices = Load(rate, patience=10), Load(rate / 2, prefix="prices", tag="p", patience=10)
    endpoints = list_client_endpoints(name)
    async with under_load(foo, endpoints), under_load(prices, {region: endpoints[region] for region in LIVING}):
        await foo.wait_for_acknowledged(round(rate))
        refused = await command("region", "failover", "west", file, "--yes", code=1)
        assert "is not dead" in refused
        await command("chaos", "kill-region", "west", "-t", file, "--yes-really")
        prices.before |= prices.everything
        before = await asyncio.to_thread(file.read_text)
        text = await command("region", "failover", "west", file)
        assert await asyncio.to_thread(file.read_text) == before
        losses = said_losses(text)
        assert losses.keys() == {"foo-write-west", "prices"}, text
        killed = await run_killed(["region", "failover", "west", file, "--yes"], delays)
        await prices.wait_for_acknowledged(20)
        await foo_in_living(foo, 20)
    await command("plan", file, "--detailed-exitcode")
    await command("status", file)
    lost, announced, doubled = 0, 0, 0
    for load, write, streams in (
        (foo, "foo-write-west", {region: f"foo-read-{region}" for region in LIVING}),
        (prices, "prices", await prices_streams(file)),
    ):
        expected = {identity for region, all_of in load.acked.items() for identity in all_of}
        gone = {identity for identity in expected if is_said_lost(load, identity, write, losses)}
        announced += len(gone)
        for region, stream in streams.items():
            held = await wait_for(name, region, stream, expected - gone)
            lost += len(expected - gone - held.keys())
            doubled += sum(number > 1 for number in held.values())
    return Aftermath(
        acknowledged=sum(len(load.everything) for load in (foo, prices)),
        lost=lost,
        said_lost=announced,
        doubled=doubled,
        availability=foo.availability(LIVING),
        closed=max(prices.gap.values()),
        killed=killed,
    )


async def comes_back(file: Path, name: str, rate: float, delays: Sequence[float]) -> Aftermath:
    """The west, which `dies_for_good` gave up, is taken in again under load by a command that is killed again and again."""
    foo, prices, west = Load(rate, tag="b"), Load(rate / 2, prefix="prices", tag="q"), Load(rate, tag="w")
    endpoints = {region: list_client_endpoints(name)[region] for region in LIVING}
    async with under_load(foo, endpoints), under_load(prices, endpoints):
        await foo.wait_for_acknowledged(round(rate))
        arguments: list[str | Path] = ["region", "failback", "west", file, "--yes"]
        await killed_once_it_has_started(name, "west", arguments)
        # For five minutes servers let nobody in whose name was removed: that stage is not where it is killed most.
        monitors = [url for endpoint in list_endpoints(name).values() for url in endpoint.monitor]
        await wait_for_members([f"west-{number}" for number in (1, 2, 3)], monitors)
        killed = 1 + await run_killed(arguments, delays)
        async with under_load(west, {"west": list_client_endpoints(name)["west"]}):
            await west.wait_for_acknowledged(round(rate))
        await foo.wait_for_acknowledged(20)
        await prices.wait_for_acknowledged(20)
    await command("plan", file, "--detailed-exitcode")
    await command("status", file)
    assert len({server.version for server in read_lab_status(name).servers}) == 1
    assert "lost:" not in await asyncio.to_thread(file.read_text)
    lost = doubled = 0
    # What others had before is in the new west, too.
    old_foo, old_prices = await identities(name, "east", "foo-read-east"), await identities(name, "west", "prices")
    for old, loads, streams in (
        (old_foo, (foo, west), {region: f"foo-read-{region}" for region in REGIONS}),
        (old_prices, (prices,), {"west": "prices", **{region: f"prices-read-{region}" for region in LIVING}}),
    ):
        expected = set(old).union(*(load.everything for load in loads))
        for region, stream in streams.items():
            held = await wait_for(name, region, stream, expected)
            lost += len(expected - held.keys())
            doubled += sum(number > 1 for number in held.values())
    return Aftermath(
        acknowledged=sum(len(load.everything) for load in (foo, prices, west)),
        lost=lost,
        said_lost=0,
        doubled=doubled,
        availability=foo.availability(LIVING),
        closed=max(prices.gap.values()),
        killed=killed,
    )


async def prices_streams(file: Path) -> dict[str, str]:
    """Where the `homed` stream is read now."""
    (home,) = re.findall(r"lost: \{prices: (\w+)\}", await asyncio.to_thread(file.read_text))
    return {region: "prices" if region == home else f"prices-read-{region}" for region in LIVING}


async def foo_in_living(load: Load, number: int) -> None:
    """Return once *number* more of *load* are acknowledged in each living region."""
    goals = {region: len(load.acked[region]) + number for region in LIVING}
    deadline = time.monotonic() + 60
    while any(len(load.acked[region]) < goal for region, goal in goals.items()):
        assert time.monotonic() < deadline, goals
        await asyncio.sleep(0.05)


def is_said_lost(load: Load, identity: str, write: str, said: dict[str, int]) -> bool:
    """Whether the command said of this message that it is lost: of what went into *write* before the region died."""
    region = identity.partition("-")[0]
    if write == "prices":
        return identity in load.before and load.seqs[identity] > said["prices"]
    return region == "west" and load.seqs[identity] > said[write]


async def wait_for(name: str, region: str, stream: str, expected: set[str]) -> dict[str, int]:
    """How often *stream* holds each identity, once it holds all that are *expected*, or after a minute."""
    deadline = time.monotonic() + 60
    while True:
        held = await identities(name, region, stream)
        if expected <= held.keys() or time.monotonic() > deadline:
            return dict(held)
        await asyncio.sleep(0.5)
