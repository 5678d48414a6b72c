"""`routing: domains` on real servers: unmodified clients in every region, also in one that is alone."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path

import pytest
from nats.js import JetStreamContext

from tests.support import access_attempts, labs
from tests.support.command import vstream
from tests.support.core_subscribers import everybody_hears_everything_once
from tests.support.labs import fetch_all
from tests.support.probe_lab import until
from tests.support.profile_checks import check_apply_makes_everything, check_audit_reads_everything, read_in_every_form
from tests.support.topologies import begin_topology

pytestmark = pytest.mark.lab

REGIONS = ("west", "central", "east")
OWN_TOPOLOGY = (
    begin_topology("domains", west=1, central=1, east=1)
    + """\
routing: domains
roots: [v.>]
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [foo.>], canary: foo._canary.*, consumers: {reader: {}}}
  one: {subjects: [v.one.>]}
  news: {subjects: [v.news.>], core_subscribers: true}
  # vstream: ignore[VS125] one writer for each key
  KV_settings: {subjects: ["$KV.settings.>"], allow_rollup: true, read: {max_msgs_per_subject: 5}}
"""
)
MESSAGES = 40
PATIENCE = 60.0
BACK = 120.0
"""Seconds for what was written during an outage: a source is asked for again after two minutes at the latest."""


client = partial(labs.client, "domains")


@pytest.mark.asyncio
async def test_unmodified_clients_use_virtual_streams_also_where_their_region_is_alone(
    own_file: Path, tmp_path: Path
) -> None:
    up = vstream("lab", "up", own_file)
    assert up.code == 0, up.err
    check_apply_makes_everything(own_file)
    probed = vstream("probe", own_file)
    assert probed.code == 0, probed.out + probed.err

    for region in REGIONS:
        async with client(region) as connection:
            await publishes(connection.jetstream(timeout=PATIENCE), region, "first")
    for region in REGIONS:
        async with client(region) as connection:
            js = connection.jetstream(timeout=PATIENCE)
            await until(partial(lacking, js, foo=3 * MESSAGES, one=3, KV_settings=3))
            await reads_everything(js, region)
    await asyncio.to_thread(check_audit_reads_everything, "domains", own_file, tmp_path)
    await a_region_answers_for_itself_alone()
    await acknowledgements_stay_at_home()
    async with client("west") as west, client("central") as central, client("east") as east:
        await everybody_hears_everything_once({"west": west, "central": central, "east": east}, "v.news")

    for region in ("central", "east"):
        assert vstream("chaos", "kill-region", region, "-t", own_file, "--yes-really").code == 0
    async with client("west") as connection:
        js = connection.jetstream(timeout=PATIENCE)
        await publishes(js, "west", "alone")
        existing = await js.pull_subscribe_bind("pull", "foo")
        assert len(await fetch_all(existing, MESSAGES)) == MESSAGES
        new = await js.pull_subscribe("foo.west.alone.>", durable="new", stream="foo")
        assert len(await fetch_all(new, MESSAGES)) == MESSAGES
    assert vstream("chaos", "heal", "--lab", "domains").code == 0

    for region in REGIONS:
        async with client(region) as connection:
            js = connection.jetstream(timeout=PATIENCE)
            await until(partial(lacking, js, foo=4 * MESSAGES, one=4, KV_settings=4), within=BACK)
            assert await subjects(js) == {
                f"foo.{origin}.{when}.{n}": 1
                for origin, when in (*((region, "first") for region in REGIONS), ("west", "alone"))
                for n in range(MESSAGES)
            }
    planned = vstream("plan", own_file, "--detailed-exitcode")
    assert planned.code == 0, planned.out
    await access_attempts.the_rest_is_permitted("domains", "west", access_attempts.in_domains("west", REGIONS))


async def publishes(js: JetStreamContext, region: str, when: str) -> None:
    acks = await asyncio.gather(*(js.publish(f"foo.{region}.{when}.{n}", b"x") for n in range(MESSAGES)))
    assert {(ack.stream, ack.domain) for ack in acks} == {("foo-write", region)}
    await js.publish(f"v.one.{region}.{when}", b"x")
    kv = await js.key_value("settings")
    await kv.put(f"{region}.{when}", b"1")


async def lacking(js: JetStreamContext, **wanted: int) -> str | None:
    held = {name: (await js.stream_info(name)).state.messages for name in wanted}
    return None if held == wanted else f"{held} of {wanted}"


async def reads_everything(js: JetStreamContext, region: str) -> None:
    """Every way of reading that the library has, by the virtual name."""
    assert (await js.stream_info("foo")).config.name == "foo"
    await read_in_every_form(js, "foo", "foo.>", 3 * MESSAGES)
    by_subject = await js.pull_subscribe("v.one.>", durable="by-subject")  # the library looks up whose subject it is
    assert len(await fetch_all(by_subject, 3)) == 3
    declared = await js.pull_subscribe_bind("reader", "foo")
    assert len(await fetch_all(declared, MESSAGES)) == MESSAGES
    assert (await js.get_last_msg("foo", f"foo.{region}.first.7", direct=True)).subject == f"foo.{region}.first.7"
    kv = await js.key_value("settings")
    entries = await labs.watch_entries(kv, ">", len(REGIONS))
    assert sorted(entry.key for entry in entries) == sorted(f"{region}.first" for region in REGIONS)
    assert (await kv.get("west.first")).value == b"1"


async def subjects(js: JetStreamContext) -> dict[str, int]:
    return (await js.stream_info("foo", subjects_filter=">")).state.subjects or {}


async def a_region_answers_for_itself_alone() -> None:
    """Nobody reaches the streams of another region, nor changes their own."""
    async with client("west", "vstream") as connection:
        answer = json.loads((await connection.request("$JS.west.API.STREAM.INFO.foo-write", timeout=PATIENCE)).data)
        assert answer["config"]["name"] == "foo-write"
    tried = access_attempts.in_domains("west", REGIONS)
    await access_attempts.nothing_physical_is_reached("domains", "west", tried)


async def acknowledgements_stay_at_home() -> None:
    """A consumer of the same name in another region is another: what is acknowledged here is not done there."""
    async with client("west") as west_client, client("east") as east_client:
        consumers = [
            await connection.jetstream(timeout=PATIENCE).pull_subscribe("v.one.>", durable="both", stream="one")
            for connection in (west_client, east_client)
        ]
        mine, theirs = [await fetch_all(consumer, 3) for consumer in consumers]
        for message in mine:
            await message.ack_sync(timeout=PATIENCE)
        await theirs[0].ack_sync(timeout=PATIENCE)
        assert [(await consumer.consumer_info()).num_ack_pending for consumer in consumers] == [0, 2]
