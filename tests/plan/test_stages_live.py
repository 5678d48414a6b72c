"""A write stream that moves under load: its readers are made to take from it at once, and nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.backups import killed_after
from tests.support.command import vstream
from tests.support.publish_load import Load, check_contents, under_load
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.lab

NAME = "moving"
REGIONS = ("west", "east")


def document(zone: str) -> str:
    write = {"max_age": "1h", "replicas": 1, "placement_tags": [f"az:{zone}"]}
    return json.dumps(
        {
            "version": 1,
            "name": NAME,
            "server_version": "2.12",
            "regions": {region: {"servers": 2, "tags": ["az:a", "az:b"]} for region in REGIONS},
            "streams": {"foo": {"subjects": ["foo.>"], "write": write, "read": {"replicas": 2}}},
        }
    )


async def leaders(field: str = "leader") -> dict[str, str]:
    """The leader of each physical stream, or *field* of its cluster."""
    (region, endpoint), *_ = list_endpoints(NAME).items()
    async with connect(endpoint, region) as connection:
        answer = await connection.request_json("$JS.API.STREAM.LIST")
        return {info["config"]["name"]: info["cluster"].get(field, "") for info in answer["streams"]}


@pytest.mark.night
@pytest.mark.parametrize(
    ("version", "killed"),
    [("2.12.8", ()), ("2.15.1", ()), ("2.15.1", (0.8, 1.1, 1.4))],
    ids=["2.12.8", "2.15.1", "killed"],
)
async def test_readers_of_a_write_stream_that_moved_take_from_it_at_once(
    version: str, killed: Sequence[float], state: Path, tmp_path: Path
) -> None:
    """*killed*: after so many seconds `apply` is, again and again, before it is left to end."""
    file = tmp_path / "moving.yaml"
    file.write_text(document("a"))

    async def succeed(*arguments: str | Path) -> str:
        ran = await asyncio.to_thread(vstream, *arguments)
        assert ran.code == 0, ran.out + ran.err
        return ran.out

    await succeed("lab", "up", file, "--server-version", version)
    try:
        await succeed("apply", file, "--yes")
        before = await leaders()
        load = Load(50)
        async with under_load(load, list_client_endpoints(NAME)):
            await load.wait_for_acknowledged(20)
            file.write_text(document("b"))
            apply = ("apply", file, "--yes", "--allow-destructive", "--allow-many")
            cut_short = [seconds for seconds in killed if await killed_after(seconds, *apply)]
            printed = await succeed(*apply)
            await load.wait_for_acknowledged(20)
        after = await leaders()
        assert {name: after[name] for name in after if "write" in name} == {
            f"foo-write-{region}": f"{region}-2" for region in REGIONS
        }
        # Only a new leader asks at once. By itself, a reader keeps its leader, and asks 10 to 20 s later.
        if killed:
            assert cut_short, "apply was faster than it was killed"
        else:
            assert "2 readers resynced" in printed
            assert all(after[name] != before[name] for name in after if "read" in name), (before, after)
        await check_contents(NAME, {region: f"foo-read-{region}" for region in REGIONS}, load)
    finally:
        await succeed("lab", "down", NAME, "--purge")
