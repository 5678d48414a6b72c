"""What a publish costs a server, by routing profile and number of virtual streams: user and system time, in microseconds."""

from __future__ import annotations

import asyncio
import os
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import nats
import psutil

from vstream import load
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab import lab

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client

    from vstream.model.artifacts import Bundle

COUNTS = (1, 10, 100, 1000)
CORE = 20_000
ACKED = 4_000
IN_FLIGHT = 50
ROUNDS = 2
OTHER = {"mapped": "_vs.api.none.x", "accounts": "_vs.api.none.x", "domains": "$JS.ACK.none.x"}


def topology(routing: str, count: int) -> str:
    """*count* virtual streams below one root, in one region of one server."""
    names = "".join(f"  s{n}: {{subjects: [v.s{n}.>], storage: memory}}\n" for n in range(count))
    how = "" if routing == "mapped" else f"routing: {routing}\nroots: [v.>]\n"
    return (
        f'version: 1\nname: bench-routing\nserver_version: "2.12"\n{how}'
        f"regions: {{west: {{servers: 1}}}}\ndefaults: {{write: {{max_age: 1h}}}}\nstreams:\n{names}"
    )


async def core(client: Client, subject: str) -> None:
    """Messages that nobody listens to, on a subject of no virtual stream that vstream's user may publish on."""
    for _ in range(CORE):
        await client.publish(subject, b"x" * 64)
    await client.flush(timeout=280)


async def acked(client: Client) -> None:
    """Acknowledged publishes to one virtual stream."""
    js = client.jetstream(timeout=120)
    for _ in range(ACKED // IN_FLIGHT):
        await asyncio.gather(*(js.publish("v.s0.x", b"x" * 64) for _ in range(IN_FLIGHT)))


async def cost(process: psutil.Process, work: Callable[[Client], Awaitable[None]], client: Client, count: int) -> float:
    """The least of some rounds."""
    found = []
    for _ in range(ROUNDS):
        before = process.cpu_times()
        await work(client)
        after = process.cpu_times()
        found.append((after.user + after.system - before.user - before.system) * 1e6 / count)
    return min(found)


async def measure(routing: str, count: int) -> tuple[float, float, int]:
    """Of other messages, of acknowledged ones; and how many rules there are."""
    text = topology(routing, count)
    wanted = load.load(text.encode(), "bench.yaml").require()
    bundles: list[Bundle] = []

    def render(addresses: object) -> Bundle:
        bundles.append(load.bundle(wanted, addresses=addresses))  # type: ignore[arg-type]
        return bundles[-1]

    await lab.up("bench-routing", wanted, render, on_progress=lambda _: None, timeout=120)
    try:
        endpoint = lab.endpoints("bench-routing")["west"]
        async with connect(endpoint, "west") as connection:
            for stream in bundles[-1].streams:
                if stream.virtual == "s0" and stream.role.value == "write":
                    fields = {**stream.config.fields, "storage": "memory"}
                    await JetStreamAdmin(connection).create(replace(stream.config, fields=fields))
        process = psutil.Process(lab.status("bench-routing").servers[0].pid)
        client = await nats.connect(list(endpoint.urls), user=endpoint.user, password=endpoint.password)
        other = await cost(process, partial(core, subject=OTHER[routing]), client, CORE)
        stored = await cost(process, acked, client, ACKED)
        await client.close()
        return other, stored, len(bundles[-1].mappings)
    finally:
        await lab.down("bench-routing", purge=True)


async def _table() -> None:
    print("routing    streams   rules   other µs   acknowledged µs")
    for routing in ("domains", "accounts", "mapped"):
        for count in COUNTS:
            other, stored, rules = await measure(routing, count)
            print(f"{routing:9} {count:8,} {rules:7,} {other:10.2f} {stored:17.1f}", flush=True)


def main() -> None:
    """Print one line for each profile and number of streams."""
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["VSTREAM_STATE_DIR"] = str(Path(scratch) / "state")
        asyncio.run(_table())
