"""A region that is cut off leads to an old replica of what is in the stretch cluster: nobody takes that for the stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.support.chaos_lab import chaos
from tests.support.command import require_success, vstream
from tests.support.probe_lab import until
from tests.support.shared_lab import shared_lab
from tests.support.topologies import begin_topology
from vstream.audit.connector.stream_snapshots import ask_for_period
from vstream.audit.connector.values import CONSUMER
from vstream.audit.extract.extract_plan import plan_extraction
from vstream.errors import VstreamError
from vstream.jetstream.answers import is_from_leader
from vstream.jetstream.connection import Connection, connect
from vstream.lab.endpoints import list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_streams

pytestmark = pytest.mark.lab

LAB = "rehearsal"
TOPOLOGY = (
    begin_topology(LAB, west=1, central=1, east=1)
    + "stretch: {members: all}\nstreams: {stock: {subjects: [stock.>], consistency: stretch}}\n"
)
BEFORE, AFTER = 20, 5
HOUR_NS = 3600 * 10**9


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with shared_lab(tmp_path, TOPOLOGY) as topology:
        require_success(vstream("apply", topology, "--yes"))
        yield topology


async def store(connection: Connection, number: int) -> None:
    for _ in range(number):

        async def publish() -> str | None:
            try:
                answer = json.loads((await connection.client.request("stock.item", b"one", timeout=2)).data)
                return None if "seq" in answer else str(answer)
            except Exception as error:  # noqa: BLE001 - whoever elects a leader may not be asked yet
                return repr(error)

        await until(publish)


async def lacks(connection: Connection, number: int) -> str | None:
    """What the region's read stream has, while that is fewer messages than *number*."""
    info = await connection.request_json(f"$JS.API.STREAM.INFO.stock-read-{connection.region}")
    return None if info["state"]["last_seq"] >= number else str(info)


async def test_a_region_that_is_cut_off_does_not_speak_for_the_stretch_cluster(file: Path, tmp_path: Path) -> None:
    endpoints = list_endpoints(LAB)
    async with connect(endpoints["west"], "west") as west, connect(endpoints["central"], "central") as central:
        await store(central, BEFORE)
        await until(partial(lacks, west, BEFORE))
        require_success(chaos(file, "partition", "west | central,east"))
        await store(central, AFTER)

        async def is_taken_for_it() -> str | None:
            try:
                info = await west.request_json("$JS.API.STREAM.INFO.stock")
                return None if not is_from_leader(info) and info["state"]["last_seq"] < BEFORE + AFTER else str(info)
            except (VstreamError, KeyError) as error:
                return repr(error)

        await until(partial(lacks, central, BEFORE + AFTER))
        await until(is_taken_for_it)
    topology = check_topology(TOPOLOGY.encode(), file.name).require()
    plan = plan_extraction(render_streams(topology, None), endpoints, tmp_path)
    snapshots = {item.stream_ref.stream: item for item in plan.snapshots}
    assert snapshots["stock"].error is None
    assert snapshots["stock"].last_seq == snapshots["stock-read-central"].last_seq
    # Without a meta leader no consumer can say where the last hour begins.
    recent = plan_extraction(render_streams(topology, None), endpoints, tmp_path, since_ns=time.time_ns() - HOUR_NS)
    assert {(item.first_seq, item.messages) for item in recent.snapshots if item.stream_ref.region == "west"} == {
        (1, BEFORE)
    }
    # The snapshot may have been taken while the region still had one.
    reader = replace(snapshots["stock-read-west"], path=CONSUMER)
    narrow = ask_for_period(reader, plan.access["west"], since_ns=time.time_ns() - HOUR_NS)
    assert (narrow.first_seq, narrow.messages) == (1, BEFORE)
    pairs = {pair["reader_place"]: pair for pair in vstream("status", file, "--format", "json").json()["pairs"]}
    assert {pair["last_seq"] for pair in pairs.values()} == {snapshots["stock"].last_seq}
    assert (pairs["central"]["state"], pairs["west"]["pending"] > 0) == ("ok", True)
