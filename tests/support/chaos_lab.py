"""Labs that faults are tried on, by the command line as people use it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import Ran, require_success, start_vstream, vstream
from tests.support.labs import states
from tests.support.shared_lab import shared_lab
from tests.support.topologies import begin_topology
from vstream.errors import VstreamError
from vstream.jetstream.connection import Connection, Reply, connect
from vstream.lab.endpoints import list_endpoints
from vstream.lab.state import lab_directory

LAB = "rehearsal"
REGIONS = ("west", "central", "east")


def topology(servers: int) -> str:
    streams = "streams:\n  foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}}\n"
    return begin_topology(LAB, **dict.fromkeys(REGIONS, servers)) + streams


@contextmanager
def running_lab(directory: Path, servers: int, *options: str) -> Iterator[Path]:
    """A running lab with its streams, started with *options*, in a state directory of its own that nothing runs in afterwards: its topology."""
    with shared_lab(directory, topology(servers), *options) as file:
        require_success(vstream("apply", file, "--yes"))
        yield file


@contextmanager
def left_whole() -> Iterator[None]:
    """What is broken in the lab meanwhile is healed afterwards, and all servers run then."""
    yield
    vstream("chaos", "heal", "--lab", LAB)
    assert set(states(LAB).values()) == {"running"}


def chaos(file: Path, *arguments: str) -> Ran:
    """`vstream chaos` on the lab of the topology *file*."""
    return vstream("chaos", *_about(file, arguments))


def _about(file: Path, arguments: Sequence[str]) -> Sequence[str]:
    """*arguments* with the topology, for those commands that need one."""
    if arguments[0] in {"status", "heal", "resume"} or "--topology" in arguments:
        return arguments
    return (*arguments, "--topology", str(file))


def open_faults(file: Path) -> list[dict[str, Any]]:
    faults: list[dict[str, Any]] = require_success(chaos(file, "status", "--format", "json")).json()["faults"]
    return faults


@contextmanager
def background(file: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`vstream chaos` in a process that the test can end as it likes."""
    unbuffered = {"PYTHONUNBUFFERED": "1"}
    started = start_vstream("chaos", *_about(file, arguments), variables=unbuffered, stderr=subprocess.STDOUT)
    try:
        yield started
    finally:
        if started.poll() is None:
            started.kill()
        started.communicate()


def says(process: subprocess.Popen[str], text: str) -> None:
    """Return once *process* has printed *text*."""
    assert process.stdout is not None
    seen = []
    for line in process.stdout:
        seen.append(line)
        if text in line:
            return
    pytest.fail("".join(seen))


def kill_once_it_says(text: str, file: Path, *arguments: str) -> None:
    """Start `vstream chaos`, and kill it as soon as it has printed *text*."""
    with background(file, *arguments) as tool:
        says(tool, text)
        tool.kill()
        tool.wait()


async def publish(region: str, number: str, *, within: float, connection: Connection | None = None) -> bool:
    """Whether a publish in *region* was acknowledged by its own write stream in time; repeated with one id until then."""
    deadline = time.monotonic() + within
    while (left := deadline - time.monotonic()) > 0:
        try:
            if connection is not None and connection.is_connected:
                return await _publish_acknowledged(connection, region, number)
            async with connect(list_endpoints(LAB)[region], region, timeout=min(2.0, left)) as fresh:
                return await _publish_acknowledged(fresh, region, number)
        except (VstreamError, ValueError):
            connection = None
            await asyncio.sleep(0.05)
    return False


async def _publish_acknowledged(connection: Connection, region: str, number: str) -> bool:
    reply = await connection.request(f"foo.{region}", number.encode(), headers={"Nats-Msg-Id": number}, timeout=1.0)
    answer = json.loads(reply.data)
    if "error" in answer:
        raise ValueError(answer["error"])
    assert answer["stream"] == f"foo-write-{region}"
    ACKNOWLEDGED[number] = answer
    return True


ACKNOWLEDGED: dict[str, dict[str, Any]] = {}
"""What the servers answered to each message: for the failure that names one of them."""


async def read_stored(region: str, role: str = "read") -> list[str]:
    """Every payload of the read (or write) stream of *region*, in order. It must answer."""
    stream = f"foo-{role}-{region}"
    async with connect(list_endpoints(LAB)[region], region) as connection:
        info = await connection.request_json(f"$JS.API.STREAM.INFO.{stream}", timeout=30.0)
        if "error" in info:
            raise VstreamError(str(info["error"]))
        first, last = info["state"]["first_seq"], info["state"]["last_seq"]
        slots = asyncio.Semaphore(64)

        async def get(sequence: int) -> Reply:
            async with slots:
                return await connection.request(f"$JS.API.DIRECT.GET.{stream}", json.dumps({"seq": sequence}).encode())

        replies = await asyncio.gather(*(get(sequence) for sequence in range(first, last + 1)))
        # A sequence that was deleted, as canaries are, answers 404.
        return [reply.data.decode() for reply in replies if reply.status is None]


async def until_stored(wanted: int, *, within: float) -> dict[str, float]:
    """After how many seconds each read stream held *wanted* messages; without those that did not in time."""
    began = time.monotonic()
    seen: dict[str, float] = {}
    counts: dict[str, Any] = {}
    while len(seen) < len(REGIONS):
        for region in REGIONS:
            try:
                async with connect(list_endpoints(LAB)[region], region) as connection:
                    info = await connection.request_json(f"$JS.API.STREAM.INFO.foo-read-{region}", timeout=2.0)
            except VstreamError as error:
                counts[region] = error.message
                continue
            counts[region] = info.get("state", {}).get("messages")
            if counts[region] is not None and counts[region] >= wanted:
                seen.setdefault(region, round(time.monotonic() - began, 1))
        if time.monotonic() - began > within:
            break  # what is missing is for the caller to say
        await asyncio.sleep(0.1)
    return seen


async def wait_until_copied(tool: subprocess.Popen[str], name: str = LAB) -> None:
    """Return once *tool*, a loss of power in lab *name*, has copied the stores and the servers go on."""
    deadline = time.monotonic() + 60
    while not any(lab_directory(name).faults.glob("*/copied")):
        assert tool.poll() is None
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
