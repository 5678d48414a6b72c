"""`vstream region failover` and `failback` on a lab, killed again and again. By day, tests/plan/transitions/test_promote_home.py walks its steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.lost_region import (
    LIVING,
    comes_back,
    command,
    dies_for_good,
    document,
    said_losses,
    wait_for,
)
from tests.support.publish_load import Load, identities, under_load
from vstream.lab.endpoints import list_client_endpoints

pytestmark = [pytest.mark.lab, pytest.mark.night, pytest.mark.usefixtures("state")]

AVAILABLE = 0.999


@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
async def test_a_region_dies_and_comes_back_by_commands_that_are_killed(
    version: str, tmp_path: Path, record_property: Callable[[str, str], None]
) -> None:
    file = tmp_path / "lost.yaml"
    file.write_text(document("lost", 3))
    up = vstream("lab", "up", file, "--server-version", version)
    assert up.code == 0, up.err
    assert vstream("apply", file, "--yes").code == 0
    try:
        for step, killed in ((dies_for_good, (4, 6, 8, 11, 14)), (comes_back, (4, 6, 8, 11, 14))):
            result = await step(file, "lost", 200, killed)
            record_property(step.__name__, str(result))  # objects cannot leave a worker of xdist
            assert (result.lost, result.doubled) == (0, 0), result
            assert result.killed, result
            assert result.availability >= AVAILABLE, result
    finally:
        vstream("lab", "down", "lost", "--purge")


async def test_what_is_said_to_be_lost_is_what_is_lost(tmp_path: Path) -> None:
    file = tmp_path / "announced.yaml"
    file.write_text(document("announced", 1))
    try:
        assert vstream("lab", "up", file).code == 0
        assert vstream("apply", file, "--yes").code == 0
        await command("consumer", "sync", "-t", file)
        load = Load(200, patience=10)
        async with under_load(load, {"west": list_client_endpoints("announced")["west"]}):
            await load.wait_for_acknowledged(200)
            await command("chaos", "isolate", "west", "-t", file)
            await load.wait_for_acknowledged(200)
        await command("chaos", "kill-region", "west", "-t", file, "--yes-really")
        last_seq = said_losses(await command("region", "failover", "west", file))["foo-write-west"]
        announced = {identity for identity in load.acked["west"] if load.seqs[identity] > last_seq}
        assert len(announced) >= 200
        await command("region", "failover", "west", file, "--yes")
        for region in LIVING:
            stream = f"foo-read-{region}"
            await wait_for("announced", region, stream, load.acked["west"] - announced)
            held = await identities("announced", region, stream)
            assert load.acked["west"] - held.keys() == announced
            assert set(held.values()) == {1}
            moved = await command(
                "consumer", "failover", "prices", "reader", "-t", file, "--from", "west", "--to", region
            )
            assert "reader" in moved
    finally:
        vstream("lab", "down", "announced", "--purge")
