"""
Durable sources (ADR-60, nats-server 2.14) beside the sources that vstream renders, under the same faults.

    scripts/bench_durable.py [--version 2.15.1] [--rounds 4] [--down 15] [--fault kill-region|isolate]

Three regions of one server. In each, a second reader takes from the same write streams through durable consumers that
acknowledge by flow control. A region is killed or cut off for some seconds, again and again, under load. Printed: how long
each reader then lacks something, and in the end what it has lost or holds twice of what was acknowledged.
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

sys.path.insert(0, str(Path(__file__).parent.parent))

import nats

from tests.support.command import vstream
from tests.support.publish_load import Load, compare, under_load
from vstream.lab import lab

NAME = "bench-durable"
REGIONS = ("west", "central", "east")
RATE = 50
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
    parser.add_argument("--fault", choices=["kill-region", "isolate"], default="kill-region")
    options = parser.parse_args()
    print(
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {options.version}, {options.fault} {options.down:g} s"
    )
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as scratch:
        os.environ.update(VSTREAM_STATE_DIR=f"{scratch}/state", VSTREAM_KEYS=f"{scratch}/keys")
        file = Path(scratch) / "topology.yaml"
        file.write_text(json.dumps(_TOPOLOGY), encoding="utf-8")
        try:
            _run("lab", "up", file, "--server-version", options.version)
            _run("apply", file, "--yes")
            return asyncio.run(_measure(options, file))
        finally:
            _run("lab", "down", NAME, "--purge")


async def _measure(options: argparse.Namespace, file: Path) -> int:
    for region in REGIONS:
        await _make_durable_reader(region)
    readers = [(kind, region) for kind in ("plain", "durable") for region in REGIONS]
    print(f"{'':8}" + "".join(f"{f'{kind} {region}':>17}" for kind, region in readers))
    load = Load(RATE)
    async with under_load(load, lab.client_endpoints(NAME)):
        await load.wait_for_acknowledged(RATE * 5)
        for number in range(1, options.rounds + 1):
            await asyncio.to_thread(_run, "chaos", options.fault, REGIONS[0], "--topology", file, "--lab", NAME)
            await asyncio.sleep(options.down)
            await asyncio.to_thread(_run, "chaos", "heal", "--lab", NAME)
            written = sum([(await _state(region, _write(region)))["messages"] for region in REGIONS])
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
    placement = {"cluster": (await _info(region, _reader("plain", region)))["cluster"]["name"]}
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
    client = await nats.connect(list(lab.client_endpoints(NAME)[region].urls), connect_timeout=30)
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
