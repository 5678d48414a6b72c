"""`routing: accounts` on real servers: clients that know nothing of vstream use virtual streams, and reach nothing else."""

from __future__ import annotations

import asyncio
import json
import stat
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.js import JetStreamContext

from tests.support import access_attempts, labs
from tests.support.command import vstream
from tests.support.labs import fetch_all
from tests.support.night import with_night
from tests.support.outages import goes_on_alone
from tests.support.probe_lab import until
from tests.support.profile_checks import check_apply_makes_everything, read_in_every_form
from tests.support.topologies import begin_topology
from vstream.lab.state import lab_directory

pytestmark = pytest.mark.lab

VERSIONS = with_night(["2.15.1"], ["2.12.8"])
REGIONS = ("west", "central", "east")
OWN_TOPOLOGY = (
    begin_topology("accounts", west=1, central=1, east=1)
    + """\
routing: accounts
roots: [v.>]
defaults: {write: {max_age: 1h}}
streams:
  foo: {subjects: [foo.>], canary: foo._canary.*, consumers: {settled: {}}}
  one: {subjects: [v.one.>], canary: v.one._canary.*}
  two: {subjects: [v.two.>], canary: v.two._canary.*}
  prices: {subjects: [prices.>], consistency: homed, home: east, canary: prices._canary.*, consumers: {settled: {}}}
  KV_settings:
    subjects: ["$KV.settings.>"] # vstream: ignore[VS125] one writer for each key
    allow_rollup: true
    read: {max_msgs_per_subject: 5}
"""
)
MESSAGES = 40
PATIENCE = 60.0


client = partial(labs.client, "accounts")


async def ill(file: Path) -> str | None:
    runs = [await asyncio.to_thread(vstream, *command, file) for command in (("status",), ("repair", "messages"))]
    return None if all(ran.code == 0 for ran in runs) else "\n".join(ran.out for ran in runs)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.asyncio
async def test_unmodified_clients_use_virtual_streams_and_reach_nothing_else(
    own_file: Path, tmp_path: Path, version: str
) -> None:
    up = vstream("lab", "up", own_file, "--server-version", version)
    assert up.code == 0, up.err
    applied, planned = check_apply_makes_everything(own_file)
    drift = vstream("plan", "--drift", own_file)
    assert drift.code == 0, drift.out + drift.err
    # Catalogs are streams as well.
    made = next(line for line in applied.out.splitlines() if line.startswith("Applied: ")).split()[1]
    assert f"NO DRIFT: {made} streams and the rules of" in drift.out
    probed = vstream("probe", own_file, "--forms")
    assert probed.code == 0, probed.out + probed.err
    # STREAM.INFO, and the forms and pulls that find a message.
    assert probed.out.count("✓ R_west/foo") == 1 + 12 + 4, probed.out
    secrets = nobody_else_reads_the_passwords()
    assert not any(secret in text for secret in secrets for text in (up.out, up.err, applied.out, planned.out))

    for region in REGIONS:
        async with client(region, "app") as connection:
            await everybody_publishes(connection, region)
    for region in REGIONS:
        async with client(region, "app") as connection:
            js = connection.jetstream(timeout=PATIENCE)
            await until(partial(lacking, js))
            await uses_everything(js, region)
            for stream in ("foo", "prices"):
                info = await js.consumer_info(stream, "settled")
                assert (info.stream_name, info.config.ack_wait) == (stream, 30)
        await nothing_physical_is_reached(region)

    await access_attempts.the_rest_is_permitted("accounts", "west", access_attempts.in_accounts("west", REGIONS))
    # Streams that are at home elsewhere are reached by the name that they have there, too.
    await until(partial(ill, own_file), within=90, pause=1)
    the_profile_stays(own_file)
    await goes_on_alone("accounts", own_file, "west", "foo.west.alone")


def the_profile_stays(file: Path) -> None:
    """A live topology in another profile is blocked, and nothing is planned."""
    file.write_text(OWN_TOPOLOGY.replace("routing: accounts\nroots: [v.>]\n", ""))
    moved = vstream("plan", file, "--format", "json")
    assert moved.code == 1
    plan = moved.json()
    assert plan["changes"] == []
    assert (plan["routing"]["profile"], plan["routing"]["rules"] > 0) == ("mapped", True)
    assert {blocker["reason"] for blocker in plan["blocked"]} == {
        "it was made with `routing: accounts`, the topology says `mapped`"
    }
    file.write_text(OWN_TOPOLOGY)


def nobody_else_reads_the_passwords() -> list[str]:
    path = lab_directory("accounts").conf / "passwords.cfg"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    return [line.split('"')[1] for line in path.read_text().splitlines()]


async def everybody_publishes(connection: Client, region: str) -> None:
    js = connection.jetstream(timeout=PATIENCE)
    for subject in ("foo", "v.one", "prices"):
        acks = await asyncio.gather(*(js.publish(f"{subject}.{region}.{n}", b"x") for n in range(MESSAGES)))
        assert {ack.stream for ack in acks} == {subject.removeprefix("v.")}
    await js.publish(f"foo.{region}.named", b"", stream="foo")
    kv = await js.key_value("settings")
    await kv.put(region, b"1")


async def lacking(js: JetStreamContext) -> str | None:
    expected = {"foo": 3 * (MESSAGES + 1), "one": 3 * MESSAGES, "prices": 3 * MESSAGES, "KV_settings": 3}
    held = {name: (await js.stream_info(name)).state.messages for name in expected}
    return None if held == expected else f"{held} of {expected}"


async def uses_everything(js: JetStreamContext, region: str) -> None:
    """Every way of reading that the library has, by the virtual name."""
    assert (await js.stream_info("foo")).config.placement.cluster == region  # type: ignore[union-attr]
    fetched = await read_in_every_form(js, "foo", "foo.>", 3 * (MESSAGES + 1))
    by_subject = await js.pull_subscribe("v.one.>", durable="by-subject")  # the library looks up whose subject it is
    assert len(await fetch_all(by_subject, 3 * MESSAGES)) == 3 * MESSAGES
    copy = await js.pull_subscribe("prices.>", durable="copy", stream="prices")
    assert len(await fetch_all(copy, 3 * MESSAGES)) == 3 * MESSAGES
    late = await js.pull_subscribe(f"v.two.late.{region}", durable="late", stream="two")
    waiting = asyncio.create_task(late.fetch(1, timeout=PATIENCE))
    await until_waiting(late)
    await js.publish(f"v.two.late.{region}", b"late")
    assert [message.data for message in await waiting] == [b"late"]
    assert (await js.get_last_msg("foo", f"foo.{region}.7", direct=True)).subject == f"foo.{region}.7"
    first = fetched[0].metadata.sequence.stream
    assert (await js.get_msg("foo", seq=first)).subject == fetched[0].subject
    kv = await js.key_value("settings")
    assert sorted(entry.key for entry in await labs.watch_entries(kv, ">", len(REGIONS))) == sorted(REGIONS)
    assert (await kv.get("west")).value == b"1"
    assert [entry.value for entry in await labs.watch_entries(kv, "east", 1)] == [b"1"]


async def until_waiting(subscription: Any) -> None:
    async def idle() -> str | None:
        return None if (await subscription.consumer_info()).num_waiting else "no pull waits"

    await until(idle, within=PATIENCE)


async def nothing_physical_is_reached(region: str) -> None:
    tried = access_attempts.in_accounts(region, REGIONS)
    assert len(await access_attempts.streams("accounts", region, tried)) == 2 * 3 * 4 + 3 + 3
    await access_attempts.nothing_physical_is_reached("accounts", region, tried)
    async with client(region, "app") as connection:
        await no_consumer_asks_for_it(connection)
    async with client(region, "audit") as connection:
        answer = json.loads((await connection.request("_vs.api.W_west.STREAM.INFO.foo", timeout=PATIENCE)).data)
        assert answer["config"]["name"] == "foo"
        for subject in ("_vs.api.W_west.STREAM.PURGE.foo", "_vs.api.R_west.STREAM.MSG.DELETE.foo", "foo.audit"):
            await connection.publish(subject, b"")
        await until(partial(lines, connection.refused, "publish", 3), within=PATIENCE)  # type: ignore[attr-defined]


async def no_consumer_asks_for_it(connection: Client) -> None:
    """A consumer may push to any subject of its account, where the API listens: servers count no such listener."""
    config = {"name": "evil", "deliver_subject": "$JS.API.STREAM.PURGE.foo", "ack_policy": "none"}
    body = json.dumps({"stream_name": "foo", "config": config}).encode()
    created = json.loads((await connection.request("$JS.API.CONSUMER.CREATE.foo.evil", body, timeout=PATIENCE)).data)
    assert created["name"] == "evil", created
    told = json.loads((await connection.request("$JS.API.CONSUMER.INFO.foo.evil", timeout=PATIENCE)).data)
    assert told["delivered"]["consumer_seq"] == 0
    assert told["num_pending"] >= MESSAGES
    await connection.request("$JS.API.CONSUMER.DELETE.foo.evil", timeout=PATIENCE)


async def lines(refused: list[str], what: str, wanted: int) -> str | None:
    count = sum(f"permissions violation for {what}" in text.lower() for text in refused)
    return None if count >= wanted else f"{count} of {wanted}: {refused}"
