"""
How fast nats.py and nats.js, unmodified, pull from a virtual stream in `routing: accounts`, beside a plain stream in a plain account.

One region of one server for each, both up at once and asked in turns, so that what else the machine does is in both. Messages a
second, and CPU microseconds of the server and of the client for each, at 64 bytes and 1 KiB, not acknowledged. Needs node and npm.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bench_goals
import bench_routing
import nats
import psutil
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.conformance import javascript
from vstream.lab import lifecycle
from vstream.lab.endpoints import list_endpoints
from vstream.lab.status import read_lab_status
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Role

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.aio.client import Client

    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Endpoint

    Puller = Callable[["Place", str, int, int], Awaitable[tuple[float, float]]]
    """Pulls in a place, that way, so many at a time and in all: seconds, and those of the client's CPU."""

LAYOUTS = ("plain", "accounts")
ROUNDS = 7
STREAM, NAME = "s0", "fetch"
WAYS = (
    ("fetch", 1, 2_000),
    ("fetch", 100, 20_000),
    ("fetch", 500, 20_000),
    ("fetch", 1_000, 20_000),
    ("consume", 100, 20_000),
    ("consume", 500, 20_000),
)
"""How, how many at a time and how many in all. nats.py has no `consume`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One layout's server."""

    number: int
    endpoint: Endpoint
    process: psutil.Process
    client: Client


@dataclass(frozen=True, slots=True)
class Round:
    """Messages a second; microseconds of the server and of the client for each."""

    speed: float
    server: float
    client: float


@asynccontextmanager
async def running(number: int, layout: str) -> AsyncIterator[Place]:
    """A server with what is pulled, in the layout."""
    topology = check_topology.check_topology(
        bench_routing.topology(layout, int(layout != "plain")).encode(), "bench.yaml"
    ).require()

    def render(addresses: Any) -> Bundle:
        return render_bundle(topology, addresses=addresses)

    name = f"bench-fetch-{layout}"
    await lifecycle.up(name, topology, render, on_progress=lambda _: None, timeout=120)
    try:
        endpoint = list_endpoints(name)["west"]
        client = await nats.connect(
            list(endpoint.urls), user=endpoint.user, password=endpoint.password, inbox_prefix=endpoint.inbox
        )
        if layout == "plain":
            await client.jetstream().add_stream(name=STREAM, subjects=[f"v.{STREAM}.>"], storage="memory")
        for role in (Role.WRITE, Role.READ):
            await bench_routing.create(endpoint, render_bundle(topology), role)
        await asyncio.to_thread(bench_routing.fill, endpoint)
        await bench_routing.wait_until_sourced(client, len(bench_routing.SIZES) * bench_routing.FILLED)
        process = psutil.Process(read_lab_status(name).servers[0].pid)
        yield Place(number=number, endpoint=endpoint, process=process, client=client)
        await client.close()
    finally:
        await lifecycle.down(name, purge=True)


async def python(place: Place, how: str, batch: int, count: int) -> tuple[float, float]:
    """As nats.py does."""
    assert how == "fetch"
    subscription = await place.client.jetstream(timeout=60).pull_subscribe_bind(NAME, STREAM)
    spent, began = time.process_time(), time.perf_counter()
    result = 0
    while result < count:
        result += len(await subscription.fetch(batch, timeout=30))
    times = time.perf_counter() - began, time.process_time() - spent
    await subscription.unsubscribe()
    return times


@asynccontextmanager
async def node(places: list[Place]) -> AsyncIterator[Puller]:
    """As nats.js does, in a process of its own that is connected to all of *places*."""
    process = await asyncio.create_subprocess_exec(
        "node",
        "fetch.mjs",
        cwd=javascript.DIRECTORY,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    rounds, answers = process.stdin, process.stdout
    assert rounds is not None
    assert answers is not None
    where = [
        {"url": place.endpoint.urls[0], "user": place.endpoint.user, "password": place.endpoint.password}
        for place in places
    ]
    rounds.write(json.dumps(where).encode() + b"\n")

    async def pull(place: Place, how: str, batch: int, count: int) -> tuple[float, float]:
        asked = {"at": place.number, "how": how, "batch": batch, "count": count, "stream": STREAM, "name": NAME}
        rounds.write(json.dumps(asked).encode() + b"\n")
        answer = json.loads(await answers.readline())
        return answer["took"] / 1e3, answer["cpu"] / 1e3

    try:
        yield pull
    finally:
        rounds.close()
        await process.wait()


async def once(place: Place, pull: Puller, first: int, way: tuple[str, int, int]) -> Round:
    """One round, by a consumer of its own from the message *first* on."""
    js = place.client.jetstream(timeout=60)
    config = ConsumerConfig(
        durable_name=NAME,
        ack_policy=AckPolicy.NONE,
        deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
        opt_start_seq=first,
    )
    await js.add_consumer(STREAM, config)
    before = bench_routing.cpu(place.process)
    seconds, spent = await pull(place, *way)
    server = bench_routing.cpu(place.process) - before
    await js.delete_consumer(STREAM, NAME)
    count = way[2]
    return Round(count / seconds, server * 1e6 / count, spent * 1e6 / count)


async def _table() -> None:
    version = javascript.install()
    async with AsyncExitStack() as stack:
        places = [await stack.enter_async_context(running(number, layout)) for number, layout in enumerate(LAYOUTS)]
        pullers = {"nats.py": python, f"nats.js {version}": await stack.enter_async_context(node(places))}
        print(
            "messages a second, the best of some rounds, of `plain` and of `accounts`; least and most in a round; "
            "microseconds of the server and of the client",
            flush=True,
        )
        slowest: dict[tuple[str, int], float] = {}
        for (client, pull), (number, size), method in itertools.product(
            pullers.items(), enumerate(bench_routing.SIZES), WAYS
        ):
            if client == "nats.py" and method[0] != "fetch":
                continue
            first = 1 + number * bench_routing.FILLED
            rounds = [[await once(place, pull, first, method) for place in places] for _ in range(ROUNDS)]
            ratio = _show(f"{client}, {size:5,} bytes, {method[0]} {method[1]}", rounds)
            if method[0] == "fetch":
                slowest[client.split()[0], method[1]] = min(ratio, slowest.get((client.split()[0], method[1]), ratio))
        for (client, batch), ratio in slowest.items():
            bench_goals.record(f"{client}, fetch {batch}, accounts ÷ plain", ratio)


def _show(title: str, rounds: list[list[Round]]) -> float:
    """Print a line; the median of what `accounts` has of the speed of `plain`."""
    plain, ours = zip(*rounds, strict=True)
    fastest = [max(run.speed for run in runs) for runs in (plain, ours)]
    ratios = sorted(mine.speed / theirs.speed for theirs, mine in rounds)
    least = [[min(getattr(run, side) for run in runs) for runs in (plain, ours)] for side in ("server", "client")]
    print(
        f"  {title:38} {fastest[0]:9,.0f} {fastest[1]:9,.0f}: {fastest[1] / fastest[0]:5.0%}; "
        f"{ratios[0]:4.0%} to {ratios[-1]:4.0%}, median {statistics.median(ratios):4.0%}; "
        + "; ".join(f"{theirs:6.2f} {mine:6.2f}" for theirs, mine in least),
        flush=True,
    )
    return statistics.median(ratios)


def main() -> None:
    """Print a line for each client, size and way."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["VSTREAM_STATE_DIR"] = str(Path(scratch) / "state")
        asyncio.run(_table())
