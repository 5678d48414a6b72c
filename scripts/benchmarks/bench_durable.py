"""
Durable sources (ADR-60, nats-server 2.14) beside the sources that vstream renders, under the same faults.

    scripts/benchmarks/bench_durable.py [--version 2.15.1] [--rounds 4] [--down 15] [--fault kill-region|isolate] [--rate 50]

Three regions of one server. First each kind of reader is there alone: printed is what a message costs servers and the links
between regions, less what it costs without readers. In a second lab, both kinds take from the same write streams, the durable
ones through consumers that acknowledge by flow control. A region is killed or cut off for some seconds, again and again,
under load. Printed: how long each reader then lacks something, and in the end what it has lost or holds twice of what was
acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import nats
import psutil

from tests.support.command import vstream
from tests.support.labs import pids
from tests.support.publish_load import Load, compare, under_load
from vstream.jetstream.monitoring import read_gateway_bytes
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

NAME = "bench-durable"
REGIONS = ("west", "central", "east")
COSTED = 20
"""Seconds of load in which the cost of each kind of reader is measured."""
PATIENCE = 150.0
"""Seconds: what a reader lacks then is lost."""
_TOPOLOGY = {
    "version": 1,
    "name": NAME,
    "server_version": "2.14",
    "regions": {region: {"servers": 1} for region in REGIONS},
    "streams": {"foo": {"subjects": ["foo.>"], "write": {"max_age": "1h"}}},
}


def main() -> int:
    """Measure once; 1 if either kind of reader lost or doubled anything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", default="2.15.1")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--down", type=float, default=15.0)
    parser.add_argument("--rate", type=int, default=50)
    parser.add_argument("--fault", choices=["kill-region", "isolate"], default="kill-region")
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.version}, {options.fault} {options.down:g} s"
    )
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as scratch:
        os.environ.update(VSTREAM_STATE_DIR=f"{scratch}/state", VSTREAM_KEYS=f"{scratch}/keys")
        file = Path(scratch) / "topology.yaml"
        file.write_text(json.dumps(_TOPOLOGY), encoding="utf-8")
        for measure in (_measure_costs, _measure_losses):
            try:
                _run("lab", "up", file, "--server-version", options.version)
                _run("apply", file, "--yes")
                code = asyncio.run(measure(options, file))
            finally:
                _run("lab", "down", NAME, "--purge")
        return code


async def _measure_costs(options: argparse.Namespace, _: Path) -> int:
    plain = await _cost_a_message(options.rate)
    for region in REGIONS:
        await _api(region, f"STREAM.DELETE.{_reader('plain', region)}")
    nothing = await _cost_a_message(options.rate)
    for region in REGIONS:
        await _make_durable_reader(region)
    written = await _count_written()
    for region in REGIONS:
        assert await _wait_until_held("durable", region, written), f"{region} does not catch up"
    durable = await _cost_a_message(options.rate)
    print(f"{'a message costs':17} {'µs of CPU':>10} {'bytes between regions':>22}")
    for kind, (cpu, sent) in (("without readers", nothing), ("plain", plain), ("durable", durable)):
        less = (0.0, 0.0) if kind == "without readers" else nothing
        print(f"{kind:17} {(cpu - less[0]) * 1e6:10.0f} {sent - less[1]:22.0f}", flush=True)
    return 0


async def _cost_a_message(rate: int) -> tuple[float, float]:
    """What servers spend for a message that is published: CPU seconds, and bytes between regions."""
    load = Load(rate)
    async with under_load(load, list_client_endpoints(NAME)):
        await load.wait_for_acknowledged(rate * 5)
        before, (cpu, sent) = len(load.everything), await _read_costs()
        await asyncio.sleep(COSTED)
        messages, (cpu_after, sent_after) = len(load.everything) - before, await _read_costs()
    return (cpu_after - cpu) / messages, (sent_after - sent) / messages


async def _read_costs() -> tuple[float, int]:
    """What all servers together have spent until now: CPU seconds, and bytes to other regions."""
    times = [psutil.Process(pid).cpu_times() for pid in pids(NAME).values()]
    gateways = [await read_gateway_bytes(url) for endpoint in list_endpoints(NAME).values() for url in endpoint.monitor]
    return sum(time.user + time.system for time in times), sum(sum(sent.values()) for sent in gateways)


async def _measure_losses(options: argparse.Namespace, file: Path) -> int:
    for region in REGIONS:
        await _make_durable_reader(region)
    readers = [(kind, region) for kind in ("plain", "durable") for region in REGIONS]
    print(f"{'':8}" + "".join(f"{f'{kind} {region}':>17}" for kind, region in readers))
    load = Load(options.rate)
    async with under_load(load, list_client_endpoints(NAME)):
        await load.wait_for_acknowledged(options.rate * 5)
        for number in range(1, options.rounds + 1):
            await asyncio.to_thread(_run, "chaos", options.fault, REGIONS[0], "--topology", file, "--lab", NAME)
            await asyncio.sleep(options.down)
            await asyncio.to_thread(_run, "chaos", "heal", "--lab", NAME)
            written = await _count_written()
            began = time.monotonic()
            waits = await asyncio.gather(*(_wait_until_held(kind, region, written) for kind, region in readers))
            shown = "".join(f"{f'{at - began:.1f} s' if at else '-':>17}" for at in waits)
            print(f"round {number:<2}{shown}", flush=True)
    is_well = True
    print(f"{len(load.everything):,} acknowledged")
    for kind, region in readers:
        lost, doubled, _ = await compare(NAME, region, _reader(kind, region), load, PATIENCE)
        print(f"{kind:8} {region:8} {len(lost):6} lost {len(doubled):6} doubled", flush=True)
        is_well &= not (lost or doubled)
    return 0 if is_well else 1


async def _count_written() -> int:
    return sum([(await _state(region, _write(region)))["messages"] for region in REGIONS])


def _write(region: str) -> str:
    return f"foo-write-{region}"


def _reader(kind: str, region: str) -> str:
    return f"foo-read-{region}" if kind == "plain" else f"durable-{region}"


async def _make_durable_reader(region: str) -> None:
    """A stream in *region* that sources every write stream through a durable consumer of its own."""
    sources = []
    for origin in REGIONS:
        consumer = {"name": f"to-{region}", "deliver_subject": f"deliver.{origin}.{region}"}
        config = {
            **consumer,
            "durable_name": consumer["name"],
            "ack_policy": "flow_control",
            "flow_control": True,
            "idle_heartbeat": 1_000_000_000,
            "max_ack_pending": 10_000,
            "deliver_policy": "all",
        }
        stream = _write(origin)
        await _api(origin, f"CONSUMER.CREATE.{stream}.to-{region}", {"stream_name": stream, "config": config})
        sources.append({"name": stream, "consumer": consumer})
    name = _reader("durable", region)
    placement = {"cluster": (await _info(region, _write(region)))["cluster"]["name"]}
    await _api(region, f"STREAM.CREATE.{name}", {"name": name, "sources": sources, "placement": placement})


async def _wait_until_held(kind: str, region: str, messages: int) -> float | None:
    """When the reader in *region* held that many *messages*; None if it never did."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if (await _state(region, _reader(kind, region)))["messages"] >= messages:
            return time.monotonic()
        await asyncio.sleep(0.2)
    return None


async def _state(region: str, stream: str) -> dict[str, Any]:
    state: dict[str, Any] = (await _info(region, stream))["state"]
    return state


async def _info(region: str, stream: str) -> dict[str, Any]:
    return await _api(region, f"STREAM.INFO.{stream}")


async def _api(region: str, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    client = await nats.connect(list(list_client_endpoints(NAME)[region].urls), connect_timeout=30)
    try:
        payload = b"" if body is None else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads((await client.request(f"$JS.API.{subject}", payload, timeout=60)).data)
    finally:
        await client.close()
    if "error" in answer:
        raise RuntimeError(f"{subject}: {answer['error']}")
    return answer


def _run(*arguments: str | Path) -> None:
    ran = vstream(*arguments, timeout=300)
    if ran.code:
        raise RuntimeError(f"vstream {' '.join(map(str, arguments))}: {ran.code}\n{ran.out}\n{ran.err}")


if __name__ == "__main__":
    sys.exit(main())
