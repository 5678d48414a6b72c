"""
What a thousand virtual streams cost: vstream beside a bare pipelined script, on the same servers, in one run.

Rendering and validating: CPU seconds for 1, 10, 100 and N virtual streams in three regions.
Apply: streams created per second by `vstream apply`, and by a script that only sends the
same requests, 32 at a time, write streams before read streams.
Plan: seconds of `vstream plan` on the matching world, and of one full STREAM.LIST sweep.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nats

from vstream import load
from vstream.lab import binaries, lab
from vstream.model.topology import Role, Topology

if TYPE_CHECKING:
    from vstream.model.artifacts import Bundle

VSTREAM = [sys.executable, "-m", "vstream"]


def document(streams: int) -> str:
    lines = [
        "version: 1",
        "name: bench",
        'server_version: "2.12"',
        "jetstream: {max_file: 100GiB}",
        "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}",
        "defaults: {write: {max_age: 1h}}",
        "streams:",
        *(f"  s{number:04}: {{subjects: [s{number:04}.>]}}" for number in range(streams)),
    ]
    return "\n".join(lines) + "\n"


def rendering(sizes: list[int]) -> None:
    print("\nvalidate and render (CPU seconds, three regions)")
    for size in sizes:
        content = document(size).encode()
        start = time.process_time()
        bundle = load.bundle(load.load(content, "bench.yaml").require())
        seconds = time.process_time() - start
        print(
            f"  {size:>6,} virtual streams  {seconds:8.3f} s  {1e6 * seconds / len(bundle.streams):8.0f} µs per stream"
        )


async def bare_create(url: str, bundle: Bundle) -> float:
    """Seconds to create every stream with nothing but a client and 32 requests in flight."""
    client = await nats.connect(url)
    start = time.perf_counter()
    for role in Role:
        waiting = iter([stream for stream in bundle.streams if stream.role is role])

        async def worker(waiting: object = waiting) -> None:
            for stream in waiting:  # type: ignore[attr-defined]
                answer = await client.request(
                    f"$JS.API.STREAM.CREATE.{stream.config.name}", json.dumps(stream.config.fields).encode(), timeout=30
                )
                assert b'"error"' not in answer.data, answer.data

        await asyncio.gather(*(worker() for _ in range(32)))
    seconds = time.perf_counter() - start
    await client.close()
    return seconds


async def sweep(url: str) -> float:
    """Seconds to read every page of STREAM.LIST, one after another."""
    client = await nats.connect(url)
    start = time.perf_counter()
    offset, total = 0, 1
    while offset < total:
        page = json.loads((await client.request("$JS.API.STREAM.LIST", b'{"offset":%d}' % offset, timeout=30)).data)
        total, offset = page["total"], offset + page["limit"]
    seconds = time.perf_counter() - start
    await client.close()
    return seconds


def command(*arguments: str) -> float:
    start = time.perf_counter()
    subprocess.run([*VSTREAM, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.perf_counter() - start


async def up(topology: Topology) -> str:
    """A fresh lab; returns the address of its first server."""
    await lab.down("bench", purge=True)
    await lab.up(
        "bench",
        topology,
        lambda addresses: load.bundle(topology, addresses=addresses),
        binary=binaries.locate(),
        on_progress=lambda _step: None,
    )
    return lab.endpoints("bench")["west"].urls[0]


async def servers(size: int, rounds: int, directory: Path) -> None:
    file = directory / "bench.yaml"
    file.write_text(document(size))
    topology = load.load(file.read_bytes(), str(file)).require()
    bundle = load.bundle(topology)
    count = len(bundle.streams)
    print(f"\n{size:,} virtual streams, {count:,} physical streams, R1 on disk, one server per region")
    ratios, plans = [], []
    for number in range(rounds):
        bare = await bare_create(await up(topology), bundle)
        url = await up(topology)
        mine = await asyncio.to_thread(command, "apply", str(file), "--yes")
        ratios.append(bare / mine)
        print(
            f"  round {number + 1}: bare {count / bare:6.0f}/s ({bare:5.1f} s)   vstream apply {count / mine:6.0f}/s "
            f"({mine:5.1f} s, with planning before and after)   ratio {bare / mine:.2f}"
        )
        for _ in range(3):
            listed = await sweep(url)
            planned = await asyncio.to_thread(command, "plan", str(file), "--detailed-exitcode")
            plans.append(planned / listed)
            print(
                f"           STREAM.LIST sweep {listed:6.3f} s   vstream plan {planned:6.3f} s   ratio {planned / listed:.1f}"
            )
    print(f"  median: apply/bare {statistics.median(ratios):.2f}, plan/sweep {statistics.median(plans):.1f}")
    await lab.down("bench", purge=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=1000, help="virtual streams (default 1000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds on fresh servers (default 3)")
    parser.add_argument("--only-render", action="store_true", help="no servers")
    options = parser.parse_args()
    print(f"python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    rendering(sorted({1, 10, 100, options.streams}))
    if options.only_render:
        return
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
        os.environ["VSTREAM_STATE_DIR"] = directory
        try:
            asyncio.run(servers(options.streams, options.rounds, Path(directory)))
        finally:
            asyncio.run(lab.down("bench", purge=True))


if __name__ == "__main__":
    main()
