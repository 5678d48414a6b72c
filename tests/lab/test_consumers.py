"""Consumers of a topology on real servers: made in every region, used by the virtual name, compared, repaired."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from nats.js.api import ConsumerConfig

from tests.support.command import Ran, vstream
from vstream.lab import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]

NAME = "durable"
REGIONS = ("west", "central", "east")
ORDERS = [f"orders.new.{number}" for number in range(5)]


def document(consumers: dict[str, Any]) -> str:
    return json.dumps(
        {
            "version": 1,
            "name": NAME,
            "server_version": "2.12",
            "regions": {region: {"servers": 1} for region in REGIONS},
            "streams": {"orders": {"subjects": ["orders.>"], "write": {"max_age": "1h"}, "consumers": consumers}},
        }
    )


@asynccontextmanager
async def client_in(region: str) -> AsyncIterator[Client]:
    client = await nats.connect(lab.endpoints(NAME)[region].urls[0])
    try:
        yield client
    finally:
        await client.close()


async def run(*arguments: str | Path) -> Ran:
    return await asyncio.to_thread(vstream, *arguments)


async def fetched(region: str, durable: str, number: int) -> list[str]:
    """What an unmodified client gets that knows the virtual names only, and acknowledges."""
    async with client_in(region) as client:
        bound = await client.jetstream().pull_subscribe_bind(durable=durable, stream="orders")
        found: list[str] = []
        async with asyncio.timeout(60):
            while len(found) < number:
                try:
                    some = await bound.fetch(number - len(found), timeout=1)
                except TimeoutError:
                    continue
                for message in some:
                    await message.ack_sync()
                    found.append(message.subject)
        return found


async def test_consumers_from_their_first_apply_to_their_end(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "durable.yaml"
    consumers = {"billing": {"filter_subjects": ["orders.new.*"], "ack_wait": "1m"}, "audit": {"regions": ["east"]}}
    file.write_text(document(consumers))
    assert (await run("lab", "up", file)).code == 0
    applied = await run("apply", file, "--yes")
    assert applied.code == 0, applied.out + applied.err
    assert "4 consumers" in applied.out
    assert (await run("plan", file, "--detailed-exitcode")).code == 0

    # An unmodified client binds and fetches by the virtual name, in each region.
    async with client_in("west") as client:
        for subject in (*ORDERS, "orders.other"):
            await client.jetstream().publish(subject, b"")
    for region in REGIONS:
        assert await fetched(region, "billing", 5) == ORDERS
    assert await fetched("east", "audit", 2) == ORDERS[:2]

    seen = {
        (one["name"], one["region"]): one
        for one in json.loads((await run("status", file, "--format", "json")).out)["consumers"]
    }
    assert {key: (one["exists"], one["pending"], one["unacknowledged"]) for key, one in seen.items()} == {
        ("billing", "west"): (True, 0, 0),
        ("billing", "central"): (True, 0, 0),
        ("billing", "east"): (True, 0, 0),
        ("audit", "east"): (True, 4, 0),
    }
    assert "orders > audit" in (await run("status", file)).out

    # Somebody changes one and deletes another.
    async with client_in("west") as client:
        stream = client.jetstream()
        config = (await stream.consumer_info("orders-read-west", "billing")).config
        await stream.add_consumer("orders-read-west", config=config.evolve(ack_wait=5.0))
        await stream.add_consumer("orders-read-west", config=ConsumerConfig(durable_name="mine"))
    async with client_in("east") as client:
        await client.jetstream().delete_consumer("orders-read-east", "audit")
    drift = await run("drift", file)
    assert drift.code == 1
    assert "orders-read-west > billing" in drift.out
    assert "ack_wait: 5s → 1m" in drift.out
    findings = json.loads((await run("doctor", file, "--format", "json")).out)["findings"]
    assert [(one["code"], one["about"]) for one in findings] == [("VD505", "orders-read-east > audit")]
    assert (await run("status", file)).code == 1
    assert (await run("apply", file, "--yes")).code == 0
    assert (await run("drift", file)).code == 0

    # One goes: that loses how far it was, and has to be allowed. What is nobody's business stays.
    del consumers["audit"]
    file.write_text(document(consumers))
    assert "--allow-destructive" in (await run("apply", file, "--yes")).err
    assert (await run("apply", file, "--yes", "--allow-destructive")).code == 0
    async with client_in("west") as client:
        names = {one.name for one in await client.jetstream().consumers_info("orders-read-west")}
        assert names == {"billing", "mine"}
        assert await client.jetstream().consumers_info("orders-read-east")
    assert (await run("plan", file, "--detailed-exitcode")).code == 0
    assert vstream("lab", "down", NAME, "--purge").code == 0
