"""Three servers in each region: leaders that move or die, and restarts under load. The times are printed, not asserted."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.chaos_lab import (
    ACKNOWLEDGED,
    LAB,
    REGIONS,
    chaos,
    left_whole,
    open_faults,
    publish,
    read_stored,
    running_lab,
    until_stored,
)
from tests.support.command import environment, require_success, vstream
from tests.support.labs import pids, states
from vstream.errors import VstreamError
from vstream.jetstream.connection import Connection, open_connection
from vstream.lab.endpoints import list_endpoints
from vstream.servers import leaders

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_lab(tmp_path_factory.mktemp("chaos"), 3) as file:
        yield file


@pytest.fixture
def file(large: Path) -> Iterator[Path]:
    """The topology of a lab that is whole, and that is left whole whatever the test did."""
    with left_whole():
        yield large


async def leader(stream: str) -> str:
    """Who leads *stream*, as soon as somebody does: right after a heal nobody may."""
    deadline = time.monotonic() + 60
    while (elected := await _leader(stream)) is None:
        assert time.monotonic() < deadline, f"nobody leads {stream}"
        await asyncio.sleep(0.1)
    return elected


async def _leader(stream: str) -> str | None:
    region = next(region for region in REGIONS if any(region in name for name, pid in pids(LAB).items() if pid))
    connection = await open_connection(list_endpoints(LAB)[region], region)
    try:
        return await leaders.find_stream_leader(connection, stream)
    finally:
        await connection.close()


async def meta_leader() -> str | None:
    return await leaders.find_meta_leader(url for endpoint in list_endpoints(LAB).values() for url in endpoint.monitor)


async def test_the_leader_is_who_is_killed(file: Path) -> None:
    before = await leader("foo-write-west")
    killed = require_success(chaos(file, "kill-leader", "foo", "--region", "west", "--format", "json")).json()
    assert killed["fault"]["servers"] == [before]
    assert killed["fault"]["command"] == "kill-leader foo --region west"
    assert f"instead of {before}" in killed["evidence"]
    assert states(LAB)[before] == "crashed"
    after = await leader("foo-write-west")
    assert after != before
    assert await publish("west", "by the next leader", within=60)
    require_success(chaos(file, "heal"))
    assert open_faults(file) == []


async def test_the_meta_leader_is_who_is_killed(file: Path) -> None:
    before = await meta_leader()
    assert before is not None
    killed = require_success(chaos(file, "kill-meta-leader", "--for", "0s", "--format", "json")).json()
    assert killed["fault"]["servers"] == [before]
    assert f"instead of {before}" in killed["evidence"]


async def test_leaders_hand_over(file: Path) -> None:
    before = await leader("foo-read-east")
    assert f"instead of {before}" in require_success(chaos(file, "step-down", "foo-read-east")).out
    assert await leader("foo-read-east") != before
    meta = await meta_leader()
    assert f"instead of {meta}" in require_success(chaos(file, "step-down-meta")).out
    assert await meta_leader() != meta


class Load:
    """One publisher in each region, each with one message at a time, repeated with its id until it is acknowledged."""

    def __init__(self) -> None:
        self.acked: list[str] = []
        self.given_up: list[str] = []
        self._enough = asyncio.Event()

    async def run(self, label: str) -> None:
        async with asyncio.TaskGroup() as group:
            for region in REGIONS:
                group.create_task(self._publisher(region, label))

    def stop(self) -> None:
        self._enough.set()

    async def _publisher(self, region: str, label: str) -> None:
        connection: Connection | None = None
        number = 0
        try:
            while not self._enough.is_set():
                number += 1
                text = f"{label}-{region}-{number}"
                if connection is None or not connection.is_connected:
                    connection = await self._connection(region, connection)
                # Within the duplicate window, so that a repetition is recognised.
                acked = await publish(region, text, within=60, connection=connection)
                (self.acked if acked else self.given_up).append(text)
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await self._enough.wait()
        finally:
            if connection is not None:
                await connection.close()

    async def _connection(self, region: str, old: Connection | None) -> Connection | None:
        if old is not None:
            await old.close()
        try:
            return await open_connection(list_endpoints(LAB)[region], region, timeout=2.0)
        except VstreamError:
            return None


@pytest.mark.parametrize(
    "is_resynced", [pytest.param(False, id="left alone", marks=pytest.mark.night), pytest.param(True, id="resync")]
)
async def test_a_rolling_restart_loses_and_doubles_nothing(file: Path, is_resynced: bool) -> None:
    """Also how long it takes until every read stream has everything: with a resync it need not wait for retries."""
    label = "resync" if is_resynced else "alone"
    load = Load()
    publishing = asyncio.create_task(load.run(label))
    began = time.monotonic()
    rolled = await asyncio.to_thread(chaos, file, "rolling-restart", "--format", "json")
    load.stop()
    await publishing
    restarted = [restart["server"] for restart in require_success(rolled).json()["restarted"]]
    assert restarted == list(pids(LAB))
    print(f"\nnine servers in {time.monotonic() - began:.1f} s, {len(load.acked)} messages acknowledged")  # noqa: T201
    assert load.given_up == []
    assert len(load.acked) > 2 * len(REGIONS)

    # Every read stream must come to hold all that the write streams hold, of earlier tests too.
    written = [text for region in REGIONS for text in await read_stored(region, "write")]
    acked = Counter(load.acked)
    mine = Counter(text for text in written if text.startswith(f"{label}-"))
    lost = [(text, ACKNOWLEDGED.get(text)) for text in sorted((acked - mine).elements())]
    assert lost == [], "acknowledged, and in no write stream"
    assert mine == acked
    count = len(written)
    waiting = asyncio.create_task(until_stored(count, within=90))
    if is_resynced:
        report = await asyncio.to_thread(vstream, "repair", "sources", file, "--format", "json", timeout=300)
        streams = require_success(report).json()["streams"]
        assert [stream["stepped_down"] for stream in streams] == [True, True, True]
        print({stream["stream"]: stream["caught_up_seconds"] for stream in streams})  # noqa: T201
    print(f"everything everywhere after: {await waiting}")  # noqa: T201
    for region in REGIONS:
        assert Counter(await read_stored(region)) == Counter(written)


@contextmanager
def _watching(file: Path, out: Path) -> Iterator[None]:
    """`vstream repair sources --watch` in a process of its own, which says in *out* what it does."""
    command = [sys.executable, "-m", "vstream", "repair", "sources", str(file), "--watch", "--format", "json"]
    with out.open("w") as stream, subprocess.Popen(command, env=environment(), stdout=stream) as started:
        try:
            yield
        finally:
            started.terminate()
    assert started.returncode == -signal.SIGTERM


@pytest.mark.night
@pytest.mark.parametrize("number", range(10))
async def test_a_region_that_comes_back_is_everywhere_without_anyone(file: Path, tmp_path: Path, number: int) -> None:
    out = tmp_path / "watch.jsonl"
    region = REGIONS[number % len(REGIONS)]
    with _watching(file, out):
        injected = await asyncio.to_thread(chaos, file, "kill-region", region)
        require_success(injected)
        other_names = [name for name in REGIONS if name != region]
        assert all([await publish(name, f"away-{number}-{name}", within=30) for name in other_names])
        while_away = out.read_text()
        require_success(await asyncio.to_thread(chaos, file, "heal"))
        assert all([await publish(name, f"back-{number}-{name}", within=30) for name in REGIONS])
        texts = [text for name in REGIONS for text in await read_stored(name, "write")]
        written = Counter(texts)
        seconds = await until_stored(len(texts), within=60)
    print(f"everything of {region} everywhere after: {seconds}")  # noqa: T201
    assert set(seconds) == set(REGIONS)
    for name in REGIONS:
        assert Counter(await read_stored(name)) == written
    # Whoever takes from a region that is gone would only be refused: nobody is disturbed for it.
    looks = [json.loads(line) for line in while_away.splitlines()]
    assert [item for look in looks for item in look["streams"] if item["action"] == "resync"] == []
