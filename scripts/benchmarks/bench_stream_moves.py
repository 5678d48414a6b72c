"""
What regions notice when a write stream moves to another server, is scaled up, and down.

Two regions of three servers, 200 publishes a second in each. Both write streams change at once, and everything is done with
`vstream apply`. In the end the read streams are read: what was acknowledged has to be in them, once; and the times that they
stored it say for how long nothing arrived of the other region.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.command import vstream
from tests.support.publish_load import Load, compare, under_load
from vstream.jetstream.message_reader import read_messages
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "bench-stream-moves"
VERSIONS = ("2.12.8", "2.15.1")
REGIONS = ("west", "east")
RATE = 200
BETWEEN = 20
"""Seconds for which clients publish after a change: a reader that was not resynced is back by then."""
_NS = 1e9
FIRST = {"replicas": 1, "placement_tags": ["az:a"]}
STEPS: tuple[tuple[str, dict[str, object]], ...] = (
    ("moved", {"replicas": 1, "placement_tags": ["az:b"]}),
    ("placed freely", {"replicas": 1}),
    ("scaled to 3", {"replicas": 3}),
    ("scaled to 1", {"replicas": 1}),
)


def topology(write: dict[str, object]) -> str:
    """One virtual stream, whose write streams are as *write* says."""
    return json.dumps(
        {
            "version": 1,
            "name": NAME,
            "server_version": "2.12",
            "regions": {region: {"servers": 3, "tags": ["az:a", "az:b", "az:c"]} for region in REGIONS},
            "streams": {"foo": {"subjects": ["foo.>"], "write": {"max_age": "1h", **write}}},
        }
    )


async def _run_vstream(*arguments: str | Path) -> None:
    ran = await asyncio.to_thread(vstream, *arguments, timeout=300)
    if ran.code:
        raise RuntimeError(f"vstream {' '.join(map(str, arguments))}: {ran.code}\n{ran.out}\n{ran.err}")


async def _arrivals(region: str) -> list[int]:
    """When each message of the other region was stored in the read stream of *region*, in nanoseconds since 1970."""
    connection = await open_reconnecting(
        list_endpoints(NAME)[region], region, name="bench", accepts_server=lambda _name, _id: True, within=60
    )
    try:
        messages = read_messages(connection, f"foo-read-{region}", patience=60)
        return [message.time async for message in messages if not message.data.startswith(region.encode())]
    finally:
        await connection.close()


async def _measure(version: str, file: Path) -> bool:
    await asyncio.to_thread(file.write_text, topology(FIRST))
    try:
        await _run_vstream("lab", "up", file, "--server-version", version)
        await _run_vstream("apply", file, "--yes")
        load = Load(RATE)
        began: list[tuple[int, float]] = []
        async with under_load(load, list_client_endpoints(NAME)):
            for _, write in STEPS:
                await load.wait_for_acknowledged(RATE * 3)
                await asyncio.to_thread(file.write_text, topology(write))
                start = time.time_ns()
                await _run_vstream("apply", file, "--yes", "--allow-destructive", "--allow-many")
                began.append((start, (time.time_ns() - start) / _NS))
                await asyncio.sleep(BETWEEN)
        lost = doubled = 0
        arrivals = {}
        for region in REGIONS:
            missing, twice, _ = await compare(NAME, region, f"foo-read-{region}", load)
            lost, doubled = lost + len(missing), doubled + len(twice)
            arrivals[region] = await _arrivals(region)
    finally:
        await _run_vstream("lab", "down", NAME, "--purge")
    ends = [start for start, _ in began[1:]] + [time.time_ns()]
    for (title, _), (start, took), end in zip(STEPS, began, ends, strict=True):
        gaps = [_longest_gap(times, start, end) for times in arrivals.values()]
        shown = "".join(f"{gap:9.1f} s" for gap in gaps)
        print(f"{version:9}{title:15}{shown}{took:9.1f} s", flush=True)
    print(f"{version:9}{len(load.everything):,} acknowledged, {lost} lost, {doubled} doubled", flush=True)
    return not (lost or doubled)


def _longest_gap(times: Sequence[int], start: int, end: int) -> float:
    return max((after - before) / _NS for before, after in pairwise(times) if start <= after < end)


def main(versions: Sequence[str] = VERSIONS) -> int:
    """Print a line for each version and change; 1 if anything was lost or doubled."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"server   change         {''.join(f'{region:>11}' for region in REGIONS)}      apply")
    is_well = True
    for version in versions:
        with tempfile.TemporaryDirectory(prefix="vstream-bench-") as scratch:
            os.environ["VSTREAM_STATE_DIR"] = f"{scratch}/state"
            is_well &= asyncio.run(_measure(version, Path(scratch) / "topology.yaml"))
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or VERSIONS))
