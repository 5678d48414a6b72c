"""The published layout becomes the safe one while clients publish: nothing is sourced again, nothing is left out."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream
from tests.support.night import repetitions, with_night
from tests.support.publish_load import Load, check_contents, under_load
from tests.support.recipe import DOCUMENT, run_recipe
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_endpoints
from vstream.topology.stream_config import StreamConfig

pytestmark = pytest.mark.lab

RATE = repetitions(50, night=200)
"""Messages a second in each region."""


@pytest.mark.parametrize("version", with_night(["2.15.1"], ["2.12.8"]))
async def test_the_published_layout_is_imported_and_becomes_the_safe_one(
    state: Path, tmp_path: Path, version: str
) -> None:
    file = tmp_path / "imported.yaml"
    await run_recipe(tmp_path / "recipe.yaml", version)
    sent = Load(RATE)
    async with under_load(sent, list_endpoints("blog")):
        await sent.wait_for_acknowledged(2 * RATE)
        imported = await asyncio.to_thread(vstream, "init", file, "--lab", "blog", "--format", "json")
        assert imported.code == 0, imported.out + imported.err
        answer = imported.json()
        assert (answer["topology"], answer["naming"], answer["streams"]) == ("blog", "blog", {"foo": "virtual"})
        assert (answer["adopts"], answer["leftovers"]) == (True, [])
        planned = (await asyncio.to_thread(vstream, "plan", file, "--adopt", "all", "--format", "json")).json()
        assert [change["name"] for change in planned["changes"]] == [
            change["name"] for change in answer["plan"]["changes"]
        ]
        assert not {change["risk"] for change in planned["changes"]} & {"re-sourcing", "data loss"}
        applied = await asyncio.to_thread(vstream, "apply", file, "--adopt", "all", "--yes", timeout=240)
        assert applied.code == 0, applied.out + applied.err
        await sent.wait_for_acknowledged(RATE)
    assert (sent.refused, sent.unknown) == ({"west": 0, "east": 0}, set())
    await check_contents("blog", {region: f"foo-read-{region}" for region in ("west", "east")}, sent)
    assert vstream("plan", file, "--detailed-exitcode").code == 0
    again = vstream("init", tmp_path / "again.yaml", "--lab", "blog", "--format", "json").json()
    assert (again["adopts"], again["leftovers"], again["plan"]["changes"]) == (False, [], [])
    assert vstream("lab", "down", "blog", "--purge").code == 0


@pytest.mark.night
@pytest.mark.parametrize("version", with_night(["2.15.1"], ["2.12.8"]))
async def test_a_write_stream_that_somebody_deleted_is_made_again_and_its_readers_go_on(
    state: Path, tmp_path: Path, version: str
) -> None:
    file = tmp_path / "gone.yaml"
    file.write_text(json.dumps({**DOCUMENT, "name": "gone", "naming": "isolated"}))
    assert (await asyncio.to_thread(vstream, "lab", "up", file, "--server-version", version)).code == 0
    assert (await asyncio.to_thread(vstream, "apply", file, "--yes")).code == 0
    reads = {region: f"foo-read-{region}" for region in ("west", "east")}
    before, after = Load(RATE), Load(RATE, tag="b")
    async with under_load(before, list_endpoints("gone")):
        await before.wait_for_acknowledged(RATE)
    await check_contents("gone", reads, before)
    async with connect(list_endpoints("gone")["west"], "west") as connection:
        await JetStreamAdmin(connection).delete("foo-write-west")
    applied = await asyncio.to_thread(vstream, "apply", file, "--yes", timeout=240)
    assert applied.code == 0, applied.out + applied.err
    async with under_load(after, list_endpoints("gone")):
        await after.wait_for_acknowledged(RATE // 2)
    # Fewer than before: from sequence 1 on, none of them would arrive.
    assert 0 < len(after.acked["west"]) < len(before.acked["west"])
    both = {region: before.acked[region] | after.acked[region] for region in reads}
    await check_contents("gone", reads, Load(0, acked=both), within=180)
    assert vstream("plan", file, "--detailed-exitcode").code == 0
    assert vstream("lab", "down", "gone", "--purge").code == 0


@pytest.mark.night
@pytest.mark.parametrize("version", ["2.15.1", "2.12.8"])
async def test_a_plain_stream_becomes_a_virtual_one(state: Path, tmp_path: Path, version: str) -> None:
    """Under load: nothing is refused, lost or doubled."""
    small = {**DOCUMENT, "name": "plain", "naming": "isolated"}
    over = {**small, "streams": {"foo": {**DOCUMENT["streams"]["foo"], "takes_over": "foo"}}}
    file = tmp_path / "plain.yaml"
    file.write_text(json.dumps({**small, "streams": {}}))
    assert (await asyncio.to_thread(vstream, "lab", "up", file, "--server-version", version)).code == 0
    file.write_text(json.dumps(over))
    blocked = await asyncio.to_thread(vstream, "plan", file)
    assert (blocked.code, "takes over `foo`, which does not exist" in blocked.out) == (1, True), blocked.out
    plain: dict[str, Any] = {"name": "foo", "subjects": ["foo.>"], "placement": {"cluster": "west"}}
    async with connect(list_endpoints("plain")["west"], "west") as connection:
        await JetStreamAdmin(connection).create(StreamConfig(name="foo", fields=plain))
    reads = {region: f"foo-read-{region}" for region in ("west", "east")}
    first, sent = Load(50, tag="f"), Load(RATE)
    async with under_load(first, list_endpoints("plain")):
        await first.wait_for_acknowledged(20)  # so that the other region has heard of the new stream
    async with under_load(sent, list_endpoints("plain")):
        await sent.wait_for_acknowledged(RATE)
        planned = (await asyncio.to_thread(vstream, "plan", file, "--format", "json")).json()
        (mappings,) = [stage for stage in planned["stages"] if stage["stage"] == "load_mappings"]
        assert {(gate["stream"], *gate["others"]) for gate in mappings["gates"]} == {
            ("foo-read-west", "foo"),
            ("foo-read-east", "foo"),
        }
        applied = await asyncio.to_thread(vstream, "apply", file, "--yes", timeout=240)
        assert applied.code == 0, applied.out + applied.err
        await sent.wait_for_acknowledged(RATE)
        # Nothing comes into the plain stream any more, and nobody needs to source it.
        file.write_text(json.dumps(small))
        ended = await asyncio.to_thread(vstream, "apply", file, "--yes", "--allow-destructive", timeout=240)
        assert ended.code == 0, ended.out + ended.err
        assert "have everything of `foo`" in ended.out
        await sent.wait_for_acknowledged(RATE // 2)
    assert (sent.refused, sent.unknown) == ({"west": 0, "east": 0}, set())
    async with connect(list_endpoints("plain")["west"], "west") as connection:
        admin = JetStreamAdmin(connection)
        left = int((await admin.info_from_list("foo"))["state"]["messages"])
        assert 0 < left < len(sent.everything)
        await admin.delete("foo")  # which no mapping leads elsewhere
    both = {region: first.acked[region] | sent.acked[region] for region in reads}
    await check_contents("plain", reads, Load(0, acked=both, unknown=first.unknown))
    assert vstream("plan", file, "--detailed-exitcode").code == 0
    assert vstream("lab", "down", "plain", "--purge").code == 0
