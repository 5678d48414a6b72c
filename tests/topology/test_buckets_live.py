"""Buckets, counters and core subscribers on real servers, by a client that knows nothing of vstream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import nats
import nats.errors
import nats.js.errors
import pytest
from nats.aio.client import Client

from tests.support.command import vstream
from tests.support.core_subscribers import everybody_hears_everything_once
from tests.support.probe_lab import until
from vstream.lab.endpoints import list_endpoints

pytestmark = pytest.mark.lab

REGIONS = ("west", "central", "east")
MODELS = ("virtual", "ordered", "stretch", "homed")
LAB = "buckets"
OWN_TOPOLOGY = """\
version: 1
name: buckets
server_version: "2.12"
routing: accounts
regions: {west: {servers: 1}, central: {servers: 1}, east: {servers: 1}}
stretch: {members: all}
defaults: {write: {max_age: 1h}, storage: memory}
kv:
  virtual: {writers: one-per-key}
  ordered: {consistency: ordered, writers: one-per-key}
  stretch: {consistency: stretch}
  homed: {consistency: homed, home: east}
objects:
  virtual: {writers: one-per-key}
  ordered: {consistency: ordered, writers: one-per-key}
  stretch: {consistency: stretch}
  homed: {consistency: homed, home: east}
streams:
  virtual: {subjects: [virtual.>], core_subscribers: true}
  ordered: {subjects: [ordered.>], consistency: ordered, core_subscribers: true}
  stretch: {subjects: [stretch.>], consistency: stretch, core_subscribers: true}
  homed: {subjects: [homed.>], consistency: homed, home: east, core_subscribers: true}
  vhits: {subjects: [vhits.>], counters: true, max_age: unlimited, max_msgs_per_subject: 1}
  ohits: {subjects: [ohits.>], consistency: ordered, counters: true, max_age: unlimited, max_msgs_per_subject: 1}
  shits: {subjects: [shits.>], consistency: stretch, counters: true, max_age: unlimited, max_msgs_per_subject: 1}
  hhits: {subjects: [hhits.>], consistency: homed, home: east, counters: true, max_age: unlimited}
"""
PATIENCE = 60.0
LARGE = 300_000
"""Bytes: more than one chunk."""


@asynccontextmanager
async def clients(user: str) -> AsyncIterator[dict[str, Client]]:
    """One in each region, as the library is."""

    async def ignore_refusal(_: Exception) -> None:
        """What a user may not do is a request without an answer, and seen as one."""

    async with AsyncExitStack() as stack:
        result = {}
        for region, endpoint in list_endpoints(LAB, user).items():
            result[region] = await nats.connect(
                list(endpoint.urls),
                user=endpoint.user,
                password=endpoint.password,
                inbox_prefix=endpoint.inbox,
                error_cb=ignore_refusal,
                connect_timeout=30,
            )
            stack.push_async_callback(result[region].close)
        yield result


@pytest.mark.asyncio
async def test_unmodified_clients_use_buckets_counters_and_subscriptions_in_every_model(own_file: Path) -> None:
    for command in (("lab", "up", own_file, "--server-version", "2.15.1"), ("apply", own_file, "--yes")):
        ran = vstream(*command, timeout=300)
        assert ran.code == 0, ran.out + ran.err
    planned = vstream("plan", own_file, "--detailed-exitcode")
    assert planned.code == 0, planned.out
    async with clients("app") as app, clients("vstream") as operators:
        for model in MODELS:
            await everybody_hears_everything_once(app, model)
            await keys_are_written_and_read(app, model)
            await objects_are_stored_and_deleted_everywhere(app, operators["west"], model)
        for stream in ("vhits", "ohits", "shits", "hhits"):
            await counters_add_up(app, stream)
        await nothing_but_buckets_is_purged(app["west"])
    probed = vstream("probe", own_file)
    assert probed.code == 0, probed.out


async def keys_are_written_and_read(app: dict[str, Client], model: str) -> None:
    buckets = {region: await app[region].jetstream(timeout=PATIENCE).key_value(model) for region in REGIONS}

    async def lacks(key: str, value: bytes | None) -> str | None:
        for region, bucket in buckets.items():
            try:
                value_there = (await bucket.get(key)).value
            except nats.js.errors.KeyNotFoundError:
                value_there = None
            if value_there != value:
                return f"{region} has {value_there!r} at {key}"
        return None

    for region, bucket in buckets.items():
        revision = await bucket.create(f"{region}.a", b"1")
        await bucket.update(f"{region}.a", b"2", last=revision)
        await until(partial(lacks, f"{region}.a", b"2"))
        with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
            await bucket.create(f"{region}.a", b"3")
    if model in {"stretch", "homed"}:
        with pytest.raises(nats.js.errors.KeyWrongLastSequenceError):
            await buckets["west"].create("east.a", b"3")
        read = await buckets["west"].get("east.a")
        await buckets["west"].update("east.a", b"3", last=read.revision or 0)
        await until(partial(lacks, "east.a", b"3"))
    await buckets["central"].purge("central.a")
    await until(partial(lacks, "central.a", None))
    await buckets["central"].purge_deletes(olderthan=-1)


async def objects_are_stored_and_deleted_everywhere(app: dict[str, Client], own: Client, model: str) -> None:
    stores = {region: await app[region].jetstream(timeout=PATIENCE).object_store(model) for region in REGIONS}
    await stores["west"].put("one", b"x" * LARGE)

    async def lacks() -> str | None:
        for region, store in stores.items():
            try:
                if (await store.get("one")).data != b"x" * LARGE:
                    return f"{region} has other bytes"
            except (nats.js.errors.NotFoundError, nats.errors.TimeoutError, nats.js.errors.ObjectNotFoundError):
                return f"{region} has no object"
            if [entry.name for entry in await store.list()] != ["one"]:
                return f"{region} does not list it"
        return None

    async def is_left() -> str | None:
        held = {account: await bytes_of(own, account, f"OBJ_{model}") for account in ACCOUNTS}
        return f"bytes are left: {held}" if any(held[account] > LARGE for account in ACCOUNTS) else None

    async def is_known() -> str | None:
        """Chunks are purged everywhere at once, and the marker comes by the streams: in between, `get` waits for ever."""
        for region, store in stores.items():
            with suppress(nats.js.errors.ObjectNotFoundError):
                await store.get_info("one")
                return f"{region} has the object"
        return None

    await until(lacks)
    # What is on its way to a region when it is purged there stays.
    assert await is_left() is not None
    await stores["west"].delete("one")
    await until(is_left)
    await until(is_known)
    for store in stores.values():
        with pytest.raises(nats.js.errors.ObjectNotFoundError):
            await store.get("one")


ACCOUNTS = ("W_west", "W_central", "W_east", "R_west", "R_central", "R_east", "S_stretch")


async def bytes_of(own: Client, account: str, stream: str) -> int:
    answer = await own.request(f"_vs.api.{account}.STREAM.INFO.{stream}", b"", timeout=PATIENCE)
    return int(json.loads(answer.data).get("state", {}).get("bytes", 0))


async def counters_add_up(app: dict[str, Client], stream: str) -> None:
    for number, region in enumerate(REGIONS, start=1):
        for _ in range(number):
            answer = await app[region].request(f"{stream}.a", headers={"Nats-Incr": "+5"}, timeout=PATIENCE)
            assert "error" not in json.loads(answer.data), answer.data

    async def differs() -> str | None:
        for region in REGIONS:
            js = app[region].jetstream(timeout=PATIENCE)
            try:
                stored = (await js.get_last_msg(stream, f"{stream}.a", direct=True)).data
            except nats.js.errors.NotFoundError:
                return f"{region} has none"
            if stored is None or json.loads(stored)["val"] != "30":
                return f"{region} has {stored!r}"
        return None

    await until(differs)


async def nothing_but_buckets_is_purged(app: Client) -> None:
    for stream in ("virtual", "stretch", "vhits"):
        with pytest.raises((nats.errors.TimeoutError, TimeoutError)):
            await app.request(f"$JS.API.STREAM.PURGE.{stream}", b"", timeout=0.5)
