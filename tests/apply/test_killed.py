"""`apply` killed at any moment: the next one finishes the job, and nothing is created twice."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import nats
import pytest

from tests.support.command import environment, vstream
from tests.support.night import repetitions
from vstream.lab.endpoints import list_endpoints

pytestmark = pytest.mark.lab

KILLS = repetitions(4, night=20)
STREAMS = 6


def document(round_: int) -> str:
    """Each round adds a stream and changes one, so that there is always something to create, update and load."""
    names = [f"s{number}" for number in range(STREAMS * (round_ + 1))]
    lines = [
        "version: 1",
        "name: killed",
        'server_version: "2.12"',
        "regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}",
        "defaults: {write: {max_age: 1h}}",
        "streams:",
        *(f"  {name}: {{subjects: [{name}.>], description: round {round_ if name == 's0' else 0}}}" for name in names),
    ]
    return "\n".join(lines) + "\n"


async def created_times() -> dict[str, str]:
    client = await nats.connect(list_endpoints("killed")["west"].urls[0], connect_timeout=30)
    result: dict[str, str] = {}
    offset, total = 0, 1
    while offset < total:
        page = json.loads((await client.request("$JS.API.STREAM.LIST", b'{"offset":%d}' % offset, timeout=10)).data)
        result.update({info["config"]["name"]: info["created"] for info in page["streams"] or ()})
        total, offset = page["total"], offset + page["limit"]
    await client.close()
    return result


def apply(file: Path) -> subprocess.Popen[bytes]:
    """`vstream apply` in a process that the test can kill."""
    return subprocess.Popen(
        [sys.executable, "-m", "vstream", "apply", file, "--yes"],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def test_apply_killed_at_random_points_is_finished_by_the_next(state: Path, tmp_path: Path) -> None:
    seed = int(os.environ.get("VSTREAM_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
    chance = random.Random(seed)
    file = tmp_path / "killed.yaml"
    file.write_text(document(0))
    assert vstream("lab", "up", file).code == 0
    began = time.monotonic()
    assert apply(file).wait() == 0
    whole = time.monotonic() - began
    cut_short = 0
    for number in range(1, KILLS + 1):
        file.write_text(document(number))
        before = asyncio.run(created_times())
        process = apply(file)
        # Each kill in a part of the time of its own: the first comes early even if the whole took unusually long.
        part = chance.uniform(number - 1, number) / KILLS
        try:
            process.wait(timeout=max(0.15, part * whole))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            cut_short += 1
        process.wait()
        between = asyncio.run(created_times())
        finished = vstream("apply", file, "--yes")
        assert finished.code == 0, f"seed {seed}, round {number}: {finished.out}{finished.err}"
        assert vstream("plan", file, "--detailed-exitcode").code == 0, f"seed {seed}, round {number}"
        after = asyncio.run(created_times())
        assert len(after) == 6 * STREAMS * (number + 1), f"seed {seed}, round {number}"
        for earlier in (before, between):
            assert {name: after[name] for name in earlier} == earlier, f"seed {seed}, round {number}"
    assert cut_short, f"seed {seed}: only {cut_short} of {KILLS} were killed before they ended"
    assert vstream("lab", "down", "killed", "--purge").code == 0
