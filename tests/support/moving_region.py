"""A fourth region that comes and goes while clients publish in all of them, and what they notice of it."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

from tests.support.command import Ran, vstream
from tests.support.publish_load import Load, compare, under_load
from vstream.lab.endpoints import list_client_endpoints
from vstream.lab.status import read_lab_status
from vstream.lint.check_topology import check_topology
from vstream.topology import physical

OLD = ("west", "central", "east")
NEW = "south"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """What publishers had of it."""

    publishes: int
    """Those that were acknowledged, in all regions."""
    lost: int
    """Of those, how many a region's stream lacks in the end; of all regions together."""
    doubled: int
    strange: int
    """What a stream holds that nobody published."""
    restarted: int
    """How many of the servers that ran before did not run all the time."""
    availability: float
    """In the regions that stay."""
    gap: float
    """The longest time without an acknowledgement in one of those, in seconds."""
    refused: int
    """How many publishes in the new region nobody took, once it had left."""
    unknown: int
    """And how many of those there had no answer."""
    joined: float
    """Seconds from the start of the new region's servers until its clients publish."""
    left: float
    """Seconds until its servers are gone."""


def document(name: str, routing: str, regions: tuple[str, ...], streams: tuple[str, ...], servers: int) -> str:
    """A topology of *regions*, with a stream in those of *streams*."""
    has_root = routing != "mapped"
    document: dict[str, Any] = {
        "version": 1,
        "name": name,
        "server_version": "2.12",
        "routing": routing,
        "regions": {region: {"servers": servers} for region in regions},
        "streams": {
            "foo": {"subjects": [f"{prefix(routing)}.>"], "regions": list(streams), "write": {"max_age": "1h"}}
        },
    }
    return json.dumps({**document, "roots": ["v.>"]} if has_root else document)


def prefix(routing: str) -> str:
    """What clients publish below: where there are roots, one of them, which is mapped for good."""
    return "foo" if routing == "mapped" else "v.foo"


async def command(*arguments: str | Path) -> Ran:
    """A `vstream` that has to succeed, while publishers go on."""
    ran = await asyncio.to_thread(vstream, *arguments, timeout=300)
    assert ran.code == 0, ran.out + ran.err
    return ran


def starts(name: str) -> dict[str, float]:
    """When each server of lab *name* was started."""
    return {
        server.name: psutil.Process(server.pid).create_time() for server in read_lab_status(name).servers if server.pid
    }


async def comes_and_goes(
    file: Path, routing: str, *, version: str, rate: float, servers: int = 1, name: str = "moving", settled: int = 1
) -> Moved:
    """
    A lab of three regions, which a fourth joins and leaves at *rate* publishes per second and region.

    Between the two, its clients publish for *settled* seconds. The lab is left up.
    """
    four = (*OLD, NEW)

    async def wants(regions: tuple[str, ...], streams: tuple[str, ...]) -> None:
        await asyncio.to_thread(file.write_text, document(name, routing, regions, streams, servers))

    await wants(OLD, OLD)
    await command("lab", "up", file, "--server-version", version)
    await command("apply", file, "--yes")
    before = starts(name)
    load, new_load = (Load(rate, prefix=prefix(routing)) for _ in range(2))
    async with under_load(load, list_client_endpoints(name)):
        await load.wait_for_acknowledged(round(rate))
        began = time.monotonic()
        await wants(four, four)
        await command("lab", "up", file)
        await command("apply", file, "--yes")
        joined = time.monotonic() - began
        async with under_load(new_load, {NEW: list_client_endpoints(name)[NEW]}):
            await new_load.wait_for_acknowledged(round(rate * settled))
            began = time.monotonic()
            # First its streams, while its servers run and its clients still publish.
            await wants(four, OLD)
            await command("apply", file, "--yes", "--allow-destructive")
        await wants(OLD, OLD)
        await command("apply", file, "--yes", "--allow-destructive")
        left = time.monotonic() - began
        await load.wait_for_acknowledged(round(rate))
    after = starts(name)
    assert after.keys() == before.keys()
    everything = replace(load, acked={**load.acked, **new_load.acked}, unknown=load.unknown | new_load.unknown)
    (stream,) = check_topology(document(name, routing, OLD, OLD, servers).encode(), file.name).require().streams
    comparisons = [await compare(name, region, physical.read_stream_in(stream, region), everything) for region in OLD]
    return Moved(
        publishes=len(everything.everything),
        lost=sum(len(missing) for missing, _, _ in comparisons),
        doubled=sum(len(doubled) for _, doubled, _ in comparisons),
        strange=sum(len(strange) for _, _, strange in comparisons),
        restarted=sum(after[server] != before[server] for server in before),
        availability=load.availability(OLD),
        gap=max(load.gap.values()),
        refused=new_load.refused[NEW],
        unknown=len(new_load.unknown),
        joined=joined,
        left=left,
    )
