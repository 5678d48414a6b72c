"""Regions that go and come while clients publish: nothing is lost, nothing is doubled, nothing restarts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.support.command import Ran, vstream
from tests.support.publishing import Load, audited, under_load
from vstream.lab import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(400)]

RATE = 200


def document(regions: list[str], streams: list[str] | None = None, version: str = "2.12") -> str:
    return "\n".join(
        [
            "version: 1",
            "name: moving",
            f'server_version: "{version}"',
            f"regions: {{{', '.join(f'{name}: {{servers: 1}}' for name in regions)}}}",
            f"streams: {{foo: {{subjects: [foo.>], regions: [{', '.join(streams or regions)}], write: {{max_age: 1h}}}}}}",
            "",
        ]
    )


async def command(*arguments: str | Path) -> Ran:
    return await asyncio.to_thread(vstream, *arguments, timeout=240)


@pytest.mark.parametrize("version", ["2.15.1", pytest.param("2.12.8", marks=pytest.mark.versions)])
async def test_streams_leave_a_region_under_load(state: Path, tmp_path: Path, version: str) -> None:
    file = tmp_path / "moving.yaml"
    file.write_text(document(["west", "central", "east"]))
    assert (await command("lab", "up", file, "--server-version", version)).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    load = Load(RATE)
    async with under_load(load, lab.endpoints("moving")) as tasks:
        await asyncio.sleep(1)
        file.write_text(document(["west", "central", "east"], ["west", "central"]))
        planned = await command("plan", file, "--format", "json")
        stages = json.loads(planned.out)["stages"]
        assert [stage["stage"] for stage in stages] == [
            "mappings",
            "dropped_sources",
            "deleted_read_streams",
            "deleted_write_streams",
        ]
        # What east takes while nobody can hear it must not be forgotten.
        assert (await command("chaos", "isolate", "east", "--topology", file, "--yes-really")).code == 0
        stopped = await command("apply", file, "--yes", "--allow-destructive", "--gate-timeout", "2")
        assert stopped.code == 1, stopped.out + stopped.err
        assert "Stopped before a gate" in stopped.out
        assert "foo-write-east" in stopped.out
        assert (await command("chaos", "heal", "--lab", "moving")).code == 0
        applied = await command("apply", file, "--yes", "--allow-destructive")
        assert applied.code == 0, applied.out + applied.err
        assert not any(task.done() for task in tasks.values())
    # Clients of a region without streams are told so: nobody listens there. They lose nothing that was acknowledged.
    assert load.refused["east"] > 0
    assert (load.refused["west"], load.refused["central"], load.unknown) == (0, 0, set())
    await audited("moving", {"west": "foo-read-west", "central": "foo-read-central"}, load)
    assert (await command("plan", file, "--detailed-exitcode")).code == 0
    assert (await command("lab", "down", "moving", "--purge")).code == 0
