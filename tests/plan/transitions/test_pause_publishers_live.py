"""A stream with one replica moves while clients publish, and `apply` is killed after each of its requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import killed_apply
from tests.support.plans import topology
from vstream.errors import VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, connect
from vstream.lab.status import list_endpoints
from vstream.plan.live import gate_checks
from vstream.plan.pipeline import PlanRequest, make_plan
from vstream.plan.plan import GateKind
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Topology

pytestmark = pytest.mark.lab

LAB, WRITE = "paused", "foo-write-west"


def place(tag: str) -> Topology:
    write: dict[str, Any] = {"max_age": "1h", "replicas": 1, "placement_tags": [tag]}
    foo = {"subjects": ["foo.>"], "write": write, "read": {"replicas": 1, "placement_tags": ["az:c"]}}
    west = {"servers": 3, "tags": ["az:a", "az:b", "az:c"]}
    return topology({"foo": foo}, name=LAB, server_version="2.12", regions={"west": west})


async def publish(connection: Connection, acknowledged: list[int], stopped: asyncio.Event) -> None:
    while not stopped.is_set():
        with suppress(VstreamError):
            acknowledged.append(int((await connection.request_json("foo.x", timeout=2))["seq"]))
        await asyncio.sleep(0.005)


async def test_a_move_that_is_killed_after_each_request_loses_nothing(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(killed_apply, "REQUESTS", 1)
    monkeypatch.setattr(gate_checks, "MOVE_START_SECONDS", 4.0)
    async with killed_apply.running_lab(LAB, place("az:a"), "2.12.8"):
        await killed_apply.run(place("az:a"), LAB)
        async with connect(list_endpoints(LAB)["west"], "west") as connection:
            acknowledged: list[int] = []
            stopped = asyncio.Event()
            publishing = asyncio.create_task(publish(connection, acknowledged, stopped))
            async with asyncio.timeout(120):
                while len(acknowledged) < 100:
                    await asyncio.sleep(0.01)
                done = await killed_apply.apply_until_done(place("az:b"), LAB)
                # If that took 15 seconds, a fourth one forgets the note of the move.
                assert done in ([f"update {WRITE}"] * 3, [f"update {WRITE}"] * 4)
                resumed = len(acknowledged)
                while len(acknowledged) == resumed:
                    await asyncio.sleep(0.01)
            stopped.set()
            await publishing
            info = await JetStreamAdmin(connection).info(WRITE)
            assert info["cluster"]["leader"] == "west-2"
            assert (info["state"]["first_seq"], info["state"].get("num_deleted", 0)) == (1, 0)
            assert info["state"]["last_seq"] >= max(acknowledged)
            async with asyncio.timeout(30):  # its reader goes on by itself
                while (await JetStreamAdmin(connection).info("foo-read-west"))["state"]["messages"] < len(acknowledged):
                    await asyncio.sleep(0.1)


async def test_while_servers_are_upgraded_any_older_one_may_hold_the_stream(state: Path) -> None:
    """It is another that answers the requests, and the topology says that all are new."""
    async with killed_apply.running_lab(LAB, place("az:b"), "2.15.1", west="2.14.6"):
        await killed_apply.run(place("az:b"), LAB)
        endpoints, moved = list_endpoints(LAB), replace(place("az:c"), server_version=(2, 15))
        async with connect(endpoints["west"], "west") as connection:
            acknowledged: list[int] = []
            stopped = asyncio.Event()
            publishing = asyncio.create_task(publish(connection, acknowledged, stopped))
            async with asyncio.timeout(30):  # until this server has heard who listens
                while not acknowledged:
                    await asyncio.sleep(0.01)
            stopped.set()
            await publishing
        for url in endpoints["west"].urls[1:]:
            west = replace(endpoints["west"], urls=(url,))
            request = PlanRequest(topology=moved, bundle=render_bundle(moved), endpoints={"west": west})
            assert GateKind.QUORUM_IS_CURRENT in {gate.kind for gate in (await make_plan(request)).gates}
