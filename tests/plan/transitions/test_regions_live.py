"""Regions that go and come while clients publish: nothing is lost, nothing is doubled, nothing restarts."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import nats
import pytest

from tests.support.command import Ran, vstream
from tests.support.moving_region import comes_and_goes, starts
from tests.support.night import IS_NIGHT, repetitions, with_night
from tests.support.publish_load import Load, check_contents, under_load
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

pytestmark = pytest.mark.lab

RATE = repetitions(30, night=100)


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
    return await asyncio.to_thread(vstream, *arguments)


@pytest.mark.night
async def test_a_region_leaves_under_load(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "moving.yaml"
    file.write_text(document(["west", "central", "east"]))
    assert (await command("lab", "up", file)).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    load = Load(RATE)
    async with under_load(load, list_endpoints("moving")) as tasks:
        await load.wait_for_acknowledged(RATE)
        file.write_text(document(["west", "central", "east"], ["west", "central"]))
        planned = await command("plan", file, "--format", "json")
        stages = planned.json()["stages"]
        assert [stage["stage"] for stage in stages] == [
            "load_mappings",
            "remove_sources",
            "delete_read_streams",
            "delete_write_streams",
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
        tasks["east"].cancel()
        # Its servers go, once it is not in the topology any more.
        first_starts = starts("moving")
        file.write_text(document(["west", "central"]))
        shrunk = await command("apply", file, "--yes", "--allow-destructive")
        assert shrunk.code == 0, shrunk.out + shrunk.err
        assert starts("moving") == {server: first_starts[server] for server in ("west-1", "central-1")}
        assert {(await monitoring.read_meta(url)).cluster_size for url in monitors()} == {2}  # type: ignore[union-attr]
    # Clients of a region without streams are told so: nobody listens there. They lose nothing that was acknowledged.
    assert load.refused["east"] > 0
    assert (load.refused["west"], load.refused["central"]) == (0, 0)
    assert not [text for text in load.unknown if not text.startswith("east")]
    await check_contents("moving", {"west": "foo-read-west", "central": "foo-read-central"}, load)
    assert (await command("plan", file, "--detailed-exitcode")).code == 0
    assert (await command("lab", "up", file)).code == 0
    assert (await command("lab", "down", "moving", "--purge")).code == 0


@pytest.mark.parametrize("routing", ["domains", pytest.param("accounts", marks=pytest.mark.night)])
async def test_a_fourth_region_comes_and_goes(state: Path, tmp_path: Path, routing: str) -> None:
    """
    As `scripts/bench --regions` measures it. What clients publish on is below a root, which stays mapped.

    So the write stream closes while they publish into it, and they are told that nobody takes it.
    """
    moved = await comes_and_goes(tmp_path / "moving.yaml", routing, version="2.15.1", rate=RATE)
    assert (moved.lost, moved.doubled, moved.strange, moved.restarted) == (0, 0, 0, 0)
    # A server that takes in a new account's imports may refuse a publish at that moment. By day that is a thousandth already.
    assert moved.availability >= (0.999 if IS_NIGHT else 0.99), moved
    assert moved.publishes > 4 * RATE
    assert (moved.refused > 0, moved.unknown) == (True, 0)
    assert (await command("lab", "down", "moving", "--purge")).code == 0


@pytest.mark.parametrize("version", with_night(["2.15.1"], ["2.12.8"]))
async def test_a_region_joins_with_the_whole_history_and_no_restart(state: Path, tmp_path: Path, version: str) -> None:
    file = tmp_path / "moving.yaml"
    file.write_text(document(["west", "central"]))
    assert (await command("lab", "up", file, "--server-version", version)).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    load = Load(RATE)
    async with under_load(load, list_endpoints("moving")):
        await load.wait_for_acknowledged(2 * RATE)
        # Long ago: the write streams have forgotten it, the read streams have not.
        forgotten = await purge_stream("foo-write-west")
        before = starts("moving")
        file.write_text(document(["west", "central", "east"]))
        grown = await command("lab", "up", file)
        assert grown.code == 0, grown.err
        now = starts("moving")
        assert {server: now[server] for server in before} == before
        assert now.keys() == {"west-1", "central-1", "east-1"}
        assert {(await monitoring.read_meta(url)).cluster_size for url in monitors()} == {3}  # type: ignore[union-attr]
        applied = await command("apply", file, "--yes")
        assert applied.code == 0, applied.out + applied.err
        east = {"east": list_endpoints("moving")["east"]}
        east_load = Load(RATE)
        async with under_load(east_load, east):
            await east_load.wait_for_acknowledged(RATE)
        load.acked |= east_load.acked
    assert forgotten
    assert (load.refused, load.unknown, east_load.unknown) == ({"west": 0, "central": 0}, set(), set())
    assert east_load.acked["east"]
    await check_contents("moving", {region: f"foo-read-{region}" for region in ("west", "central", "east")}, load)
    assert starts("moving") == now
    assert (await command("plan", file, "--detailed-exitcode")).code == 0
    assert (await command("lab", "down", "moving", "--purge")).code == 0


async def test_a_region_takes_the_place_of_another_in_two_plans(state: Path, tmp_path: Path) -> None:
    """In one, the region that comes would lack what is published in the other until nobody is led there any more."""
    all_regions, file = ["west", "central", "east"], tmp_path / "moving.yaml"
    file.write_text(document(all_regions, ["west", "central"]))
    assert (await command("lab", "up", file)).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    load, endpoints = Load(RATE), list_endpoints("moving")
    async with under_load(load, {region: endpoints[region] for region in ("west", "central")}):
        await load.wait_for_acknowledged(RATE)
        for streams, code in ((["west", "east"], 1), (all_regions, 0), (["west", "east"], 0)):
            file.write_text(document(all_regions, streams))
            applied = await command("apply", file, "--yes", "--allow-destructive")
            assert applied.code == code, applied.out + applied.err
            assert ("foo-read-east is blocked" in applied.out) == (code == 1)
    await check_contents("moving", {region: f"foo-read-{region}" for region in ("west", "east")}, load)
    assert (await command("lab", "down", "moving", "--purge")).code == 0


async def test_a_consumers_position_does_not_cover_what_comes_from_a_region_that_was_gone(
    state: Path, tmp_path: Path
) -> None:
    """Its write stream is another one, in which no message has the sequence of one that was acknowledged before."""
    all_regions, file = ["west", "central", "east"], tmp_path / "moving.yaml"

    async def publish(tag: str, number: int) -> None:
        async with connect(list_client_endpoints("moving")["central"], "central") as client:
            for index in range(number):
                answer = await client.request_json(f"foo.{tag}.{index}")
                assert answer["stream"] == "foo-write-central", answer

    async def deliver(region: str, number: int) -> list[str]:
        endpoint = list_client_endpoints("moving")[region]
        client = await nats.connect(list(endpoint.urls))
        reader = await client.jetstream().pull_subscribe_bind(durable="reader", stream=f"foo-read-{region}")
        subjects: list[str] = []
        while len(subjects) < number:
            for message in await reader.fetch(number - len(subjects), timeout=20):
                await message.ack_sync()
                subjects.append(message.subject)
        await client.close()
        return subjects

    def declare(streams: list[str]) -> None:
        text = document(all_regions, streams, version="2.15")
        file.write_text(text.replace("max_age: 1h}", "max_age: 1h}, consumers: {reader: {}}"))

    declare(all_regions)
    assert (await command("lab", "up", file, "--server-version", "2.15.1")).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    await publish("old", 20)
    assert len(await deliver("west", 20)) == 20
    for streams in (["west", "east"], all_regions):
        declare(streams)
        assert (await command("apply", file, "--yes", "--allow-destructive")).code == 0
    await publish("new", 10)
    await wait_until_stored("foo-read-east", 30)
    failover = ("consumer", "failover", "foo", "reader", "--from", "west", "--to", "east")
    moved = await command(*failover, "--topology", file, "--yes")
    assert moved.code == 0, moved.err
    assert await deliver("east", 10) == [f"foo.new.{index}" for index in range(10)]
    assert (await command("lab", "down", "moving", "--purge")).code == 0


async def wait_until_stored(stream: str, number: int) -> None:
    deadline = time.monotonic() + 60
    async with connect(list_endpoints("moving")["west"], "west") as connection:
        while (await JetStreamAdmin(connection).info(stream))["state"]["messages"] != number:
            assert time.monotonic() < deadline, stream
            await asyncio.sleep(0.2)


async def test_a_home_that_leaves_stays_until_its_stream_has_moved(state: Path, tmp_path: Path) -> None:
    """Nothing else holds all of it: the copy in its new home goes, too."""
    file = tmp_path / "moving.yaml"

    def write(regions: list[str], home: str, places: list[str]) -> None:
        document_of_homed = {
            "version": 1,
            "name": "moving",
            "server_version": "2.12",
            "regions": {region: {"servers": 1} for region in regions},
            "defaults": {"write": {"max_age": "unlimited"}},
            "streams": {"foo": {"subjects": ["foo.>"], "consistency": "homed", "home": home, "regions": places}},
        }
        file.write_text(json.dumps(document_of_homed))

    write(["west", "central", "east"], "east", ["west", "east"])
    assert (await command("lab", "up", file)).code == 0
    assert (await command("apply", file, "--yes")).code == 0
    load, endpoints = Load(500), list_endpoints("moving")
    async with under_load(load, {"east": endpoints["east"]}):
        await load.wait_for_acknowledged(1000)
    write(["west", "central"], "west", ["west"])
    applied = await command("apply", file, "--yes", "--allow-destructive")
    assert applied.code == 0, applied.out + applied.err
    assert "east-1 stopped" in applied.out
    await check_contents("moving", {"west": "foo"}, load)
    assert (await command("lab", "down", "moving", "--purge")).code == 0


def monitors() -> list[str]:
    return [url for endpoint in list_endpoints("moving").values() for url in endpoint.monitor]


async def purge_stream(stream: str) -> int:
    """Purge *stream*, but for what its readers may not have: how many messages have gone."""
    client = await nats.connect(list(list_endpoints("moving")["west"].urls), connect_timeout=30)
    try:
        info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=60)).data)
        body = json.dumps({"seq": info["state"]["last_seq"] - RATE}).encode()
        answer = json.loads((await client.request(f"$JS.API.STREAM.PURGE.{stream}", body, timeout=60)).data)
    finally:
        await client.close()
    return int(answer["purged"])
