"""Power loss on a real lab: what was acknowledged last is gone, and only with --yes-really."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.support.chaos_lab import LAB, background, chaos, open_faults, publish, read_stored, wait_until_copied
from tests.support.command import require_success
from tests.support.labs import pids, states
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_endpoints
from vstream.lab.state import lab_directory

pytestmark = pytest.mark.lab


async def has(region: str, text: str) -> None:
    deadline = time.monotonic() + 60
    while text not in await read_stored(region):
        assert time.monotonic() < deadline, f"{text} is not in {region}"
        await asyncio.sleep(0.1)


async def test_what_was_acknowledged_last_is_lost_where_the_power_was(healed_file: Path) -> None:
    assert await publish("west", "long ago", within=60)
    await has("east", "long ago")
    # Connected before: that alone takes a busy machine seconds of the eight.
    async with connect(list_endpoints(LAB)["west"], "west") as west:
        with background(healed_file, "power-loss", "west", "--lose", "8s", "--yes-really") as tool:
            await wait_until_copied(tool)
            assert await publish("west", "just now", within=5, connection=west)
            assert "just now" in await read_stored("west", "write")
            assert tool.wait(120) == 0
            output = tool.stdout.read() if tool.stdout else ""
    assert "what west-1 stored and acknowledged in the last 8 s will be lost" in output
    assert "west-1 is gone" in output
    assert "files that had changed in the last 8 s are as they were" in output
    assert states(LAB)["west-1"] == "crashed"
    assert [(fault["command"], fault["over"]) for fault in open_faults(healed_file)] == [
        ("power-loss west --lose 8s", False)
    ]
    require_success(chaos(healed_file, "heal"))
    assert await read_stored("west", "write") == ["long ago"]
    assert open_faults(healed_file) == []
    assert not any(lab_directory(LAB).faults.iterdir())


def test_power_loss_needs_confirmation_because_it_loses_data(healed_file: Path) -> None:
    before = pids(LAB)
    refused = chaos(healed_file, "power-loss", "west-1", "--lose", "5s")
    assert refused.code == 1
    assert "will be lost" in refused.err
    assert "--yes-really" in refused.err
    assert pids(LAB) == before
    assert open_faults(healed_file) == []
    assert chaos(healed_file, "power-loss", "west-1", "--lose", "soon", "--yes-really").code == 2


async def test_a_tool_that_is_killed_before_it_kills_takes_nothing(healed_file: Path) -> None:
    before = pids(LAB)
    with background(healed_file, "power-loss", "central", "--lose", "60s", "--yes-really") as tool:
        await wait_until_copied(tool)
        assert await publish("central", "stays", within=60)
        tool.kill()
        tool.wait()
    healed = require_success(chaos(healed_file, "heal", "--format", "json")).json()
    assert [fault["kind"] for fault in healed["healed"]] == ["power-loss"]
    assert pids(LAB) == before
    assert "stays" in await read_stored("central", "write")
    assert not any(lab_directory(LAB).faults.iterdir())
