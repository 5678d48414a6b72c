"""
What it costs to be everywhere: a mesh of sources among 3, 7, 15 and 30 regions, beside a tree of plain streams made by hand.

Every region has one server, with streams in files: those in memory would be gone with the region that is killed. In a mesh, as vstream renders it, every region sources the write
stream of every region. In a tree, a stream in the first region sources all write streams, and the others source it. For both:
the consumers that sources are, what idle servers cost, how long a publish takes to be everywhere, and how long until everything
is everywhere after a region (never the hub) was killed for ten seconds under load.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import nats
import psutil

from tests.support.command import vstream
from vstream.jetstream.endpoints import make_connection_options
from vstream.lab.endpoints import list_endpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "bench-many-regions"
DOWN = 10.0
"""Seconds that a region is dead."""
PATIENCE = 150.0
IDLE = 10.0
"""Seconds in which idle servers are watched."""
RATE = 5.0
"""Publishes per second in each region while one is dead."""
PROBES = 5


@dataclass(kw_only=True)
class Layout:
    """Streams of one shape. *writes* and *reads*: names by region, of each virtual stream."""

    name: str
    writes: list[dict[str, str]]
    reads: list[dict[str, str]]
    sources: int


class Site:
    """A lab with a connection to each region."""

    def __init__(self, regions: Sequence[str]) -> None:
        self.regions = regions
        self.clients: dict[str, Any] = {}

    async def connect(self) -> None:
        """Connect to every region."""
        for region, endpoint in list_endpoints(NAME).items():
            self.clients[region] = await nats.connect(
                list(endpoint.urls),
                error_cb=_quiet,
                max_reconnect_attempts=-1,
                reconnect_time_wait=0.2,
                connect_timeout=30,
                **make_connection_options(endpoint, region),
            )

    async def ask(self, region: str, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The answer to an API request in *region*; None if there is none, or an error."""
        payload = json.dumps(body).encode() if body else b""
        try:
            answer = await self.clients[region].request(f"$JS.API.{subject}", payload, timeout=10)
        except (nats.errors.Error, OSError, TimeoutError):
            return None
        decoded: dict[str, Any] = json.loads(answer.data)
        return None if "error" in decoded else decoded

    async def count(self, region: str, stream: str) -> int | None:
        """How many messages *stream* has."""
        answer = await self.ask(region, f"STREAM.INFO.{stream}")
        return None if answer is None else answer["state"]["messages"]

    async def totals(self, names: Sequence[dict[str, str]]) -> list[int | None]:
        """The messages of all streams of *names*."""
        return list(
            await asyncio.gather(*(self.count(region, name) for group in names for region, name in group.items()))
        )

    async def wait_until_everywhere(self, layout: Layout) -> float | None:
        """Seconds until every reader has as much as all write streams have together; None if that takes too long."""
        began = time.monotonic()
        while time.monotonic() < began + PATIENCE:
            written, read = await self.totals(layout.writes), await self.totals(layout.reads)
            if None not in written and None not in read:
                size = len(self.regions)
                expected = [
                    sum(number or 0 for number in written[start : start + size])
                    for start in range(0, len(written), size)
                ]
                if all(number == expected[place // size] for place, number in enumerate(read)):
                    return time.monotonic() - began
            await asyncio.sleep(0.1)
        return None


async def _quiet(_: Exception) -> None:
    """The library logs tracebacks where nobody listens."""


def _topology(regions: Sequence[str], streams: int) -> bytes:
    settings = {"max_age": "1h"}
    document = {
        "version": 1,
        "name": NAME,
        "server_version": "2.12",
        "regions": {region: {"servers": 1} for region in regions},
        "streams": {
            f"s{number}": {"subjects": [f"s{number}.>"], "write": settings, "read": settings}
            for number in range(streams)
        },
    }
    return json.dumps(document).encode()


def _mesh(regions: Sequence[str], streams: int) -> Layout:
    return Layout(
        name="mesh",
        writes=[{region: f"s{number}-write-{region}" for region in regions} for number in range(streams)],
        reads=[{region: f"s{number}-read-{region}" for region in regions} for number in range(streams)],
        sources=streams * len(regions) ** 2,
    )


async def _make_tree(site: Site, streams: int) -> Layout:
    """Plain streams: write streams in each region, a hub in the first that sources them, and leafs that source the hub."""
    hub, *leafs = site.regions
    writes = [{region: f"t{number}-write-{region}" for region in site.regions} for number in range(streams)]
    reads = [{region: f"t{number}-read-{region}" for region in site.regions} for number in range(streams)]
    for number in range(streams):
        for region, name in writes[number].items():
            await _create(site, region, name, {"subjects": [f"t{number}.{region}.>"]})
        sources = [{"name": name} for name in writes[number].values()]
        await _create(site, hub, reads[number][hub], {"sources": sources})
        for region in leafs:
            await _create(site, region, reads[number][region], {"sources": [{"name": reads[number][hub]}]})
    return Layout(name="tree", writes=writes, reads=reads, sources=streams * (2 * len(site.regions) - 1))


async def _create(site: Site, region: str, name: str, config: dict[str, Any]) -> None:
    placed = {"name": name, "num_replicas": 1, "placement": {"cluster": region}, **config}
    deadline = time.monotonic() + 60
    while await site.ask(region, f"STREAM.CREATE.{name}", placed) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{name} cannot be created")
        await asyncio.sleep(0.5)


async def _publish(site: Site, layout: Layout, region: str, rate: float) -> None:
    """Publish for ever on every stream, while *region* lives."""
    while True:
        for number in range(len(layout.writes)):
            if site.clients[region].is_connected:
                await site.clients[region].publish(_subject(layout, number, region), b"x" * 100)
        await asyncio.sleep(1 / rate)


def _subject(layout: Layout, number: int, region: str) -> str:
    return f"s{number}.x" if layout.name == "mesh" else f"t{number}.{region}.x"


def _servers() -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if _is_ours(process.info["cmdline"] or [])]


def _is_ours(command: Sequence[str]) -> bool:
    return (
        bool(command)
        and "nats-server" in command[0]
        and any(os.environ["VSTREAM_STATE_DIR"] in part for part in command)
    )


async def _watch_idle() -> tuple[float, float, float]:
    """Percent of one core that each idle server takes, and the busiest of them; megabytes of memory of each."""
    processes = _servers()
    before = [sum(process.cpu_times()[:2]) for process in processes]
    began = time.monotonic()
    await asyncio.sleep(IDLE)
    lasted = time.monotonic() - began
    spent = [sum(process.cpu_times()[:2]) - start for process, start in zip(processes, before, strict=True)]
    memory = statistics.fmean(process.memory_info().rss for process in processes)
    return 100 * statistics.fmean(spent) / lasted, 100 * max(spent) / lasted, memory / 1e6


async def _watch_layout(site: Site, layout: Layout, file: Path) -> str:
    await site.wait_until_everywhere(layout)
    idle, busiest, memory = await _watch_idle()
    delays = []
    for _ in range(PROBES):
        for number in range(len(layout.writes)):
            await site.clients[site.regions[1]].request(_subject(layout, number, site.regions[1]), b"x", timeout=10)
        delays.append(await site.wait_until_everywhere(layout))
    times = [delay for delay in delays if delay is not None]
    load = [asyncio.create_task(_publish(site, layout, region, RATE)) for region in site.regions]
    await asyncio.sleep(3)
    away = site.regions[-1]
    await asyncio.to_thread(_run, "chaos", "kill-region", away, "--topology", file, "--lab", NAME, "--yes-really")
    await asyncio.sleep(DOWN)
    healing = time.monotonic()
    # 3: where servers cannot carry the load, not every region hears of the others in time.
    await asyncio.to_thread(_run, "chaos", "heal", "--lab", NAME, allowed=(0, 3))
    for task in load:
        task.cancel()
    converged = await site.wait_until_everywhere(layout)
    took = f"{time.monotonic() - healing:5.1f} s" if converged is not None else "  never"
    return (
        f"{len(site.regions):>3} {len(layout.writes):>4} {layout.name}  {layout.sources:>7,} {idle:>9.2f} % {busiest:>6.2f} % {memory:>7.1f} MB"
        f"  {statistics.median(times) if times else float('nan'):>8.2f} s  {took}   {os.getloadavg()[0]:>5.1f}"
    )


def measure(number: int, streams: int) -> None:
    """Print a line for a mesh, and one for a tree, of *number* regions."""
    regions = [f"r{place:02}" for place in range(number)]
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
        os.environ.update(VSTREAM_STATE_DIR=f"{directory}/state", VSTREAM_KEYS=f"{directory}/keys")
        file = Path(directory) / "topology.yaml"
        file.write_bytes(_topology(regions, streams))
        try:
            began = time.monotonic()
            _run("lab", "up", file, "--links", "none", "--timeout", "300")
            up = time.monotonic() - began
            # 3: on a busy machine, not every server says in time which rules it has loaded.
            _run("apply", file, "--yes", "--lab", NAME, allowed=(0, 3))
            applied = time.monotonic() - began - up
            print(f"{number} regions, {streams} streams: up {up:.1f} s, apply {applied:.1f} s", flush=True)
            asyncio.run(_measure(regions, streams, file))
        finally:
            _run("lab", "down", NAME, "--purge")


async def _measure(regions: Sequence[str], streams: int, file: Path) -> None:
    site = Site(regions)
    await site.connect()
    mesh = _mesh(regions, streams)
    print(await _watch_layout(site, mesh, file), flush=True)
    for group in mesh.reads:
        for region, name in group.items():
            await site.ask(region, f"STREAM.DELETE.{name}")
    tree = await _make_tree(site, streams)
    print(await _watch_layout(site, tree, file), flush=True)
    for client in site.clients.values():
        await client.close()


def _run(*arguments: str | Path, allowed: Sequence[int] = (0,)) -> None:
    ran = vstream(*arguments, timeout=600)
    if ran.code not in allowed:
        raise RuntimeError(f"vstream {' '.join(map(str, arguments))}: {ran.code}\n{ran.out}\n{ran.err}")


def main(sizes: Sequence[int] = (3, 7, 15, 30), streams: Sequence[int] = (1, 10)) -> int:
    """Print the table."""
    print("regions streams  sources  idle CPU: mean, busiest, memory  everywhere after   after a kill   load")
    for size in sizes:
        for number in streams:
            measure(size, number)
    return 0


if __name__ == "__main__":
    sys.exit(main([int(text) for text in sys.argv[1].split(",")], [int(text) for text in sys.argv[2].split(",")]))
