"""`vstream status`, with `--watch` and without, on real servers: all well, one region dead, and what that endangers."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nats
import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.command import environment, vstream
from tests.support.ports import free_port
from tests.support.topologies import begin_topology
from vstream.errors import NoRespondersError
from vstream.jetstream.connection import connect
from vstream.lab.endpoints import list_endpoints

pytestmark = pytest.mark.lab

LAB = "pictured"
REGIONS = ("west", "central", "east")
TEXT = (
    begin_topology(LAB, "2.10", west=1, central=1, east=1)
    + """\
stretch: {members: all}
defaults: {write: {max_age: 1h}}
streams:
  sensors: {subjects: [sensors.>]}
  ledger: {subjects: [ledger.>], consistency: ordered}
  stock: {subjects: [stock.>], consistency: stretch}
  prices: {subjects: [prices.>], consistency: homed, home: east}
"""
)


@contextmanager
def running(directory: Path, *options: str) -> Iterator[Path]:
    path = directory / "topology.yaml"
    path.write_text(TEXT)
    try:
        assert vstream("lab", "up", path, *options).code == 0
        assert vstream("apply", path, "--yes").code == 0
        yield path
    finally:
        vstream("lab", "down", LAB, "--purge")


async def publish(region: str, subject: str, times: int = 1) -> None:
    async with connect(list_endpoints(LAB)[region], region) as connection:
        # At once after `apply`, servers of this region may not have heard yet that a stream elsewhere takes the subject.
        deadline, answer = time.monotonic() + 60, None
        while answer is None:
            try:
                answer = await connection.request_json(subject, {"number": 0})
            except NoRespondersError:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.05)
        answers = [answer] + [await connection.request_json(subject, {"number": number}) for number in range(1, times)]
        assert not any("error" in answer for answer in answers), answers


def until_seen(file: Path, holds: Callable[[dict[str, Any]], bool], within: float = 90) -> dict[str, Any]:
    """What `status` says once it *holds*. On a busy machine a server may not answer in time: unknown is code 3."""
    deadline = time.monotonic() + within
    while True:
        ran = vstream("status", file, "--timeout", "8", "--format", "json")
        assert ran.code in {0, 1, 3}, ran.err
        if ran.code != 3:
            picture = ran.json()
            assert ran.code == 0 or not picture["is_well"]
            if holds(picture):
                return dict(picture)
        assert time.monotonic() < deadline, ran.out + ran.err
        time.sleep(0.5)


def pairs(picture: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(pair["origin"], pair["reader"]): pair for pair in picture["pairs"]}


def region(picture: dict[str, Any], name: str) -> dict[str, Any]:
    return next(region for region in picture["regions"] if region["name"] == name)


def well(file: Path) -> None:
    """Every model, with five messages of west in each: each position is known, and nothing is missing."""
    for stream in ("sensors", "ledger", "stock", "prices"):
        asyncio.run(publish("west", f"{stream}.a", 5))
    # What is younger than 5 s may still be on its way where all is well.
    picture = until_seen(
        file, lambda picture: picture["is_well"] and not any(pair["pending"] for pair in picture["pairs"])
    )
    assert len(picture["servers"]) == 6
    assert picture["meta_leader"] in {server["name"] for server in picture["servers"]}
    by_pair = pairs(picture)
    # 9 of `sensors`; of `ledger` 3 to its order and 3 from there; 3 mirrors of `stock`, 2 of `prices`.
    assert len(by_pair) == 9 + 6 + 3 + 2
    for pair in (
        ("sensors-write-west", "sensors-read-east"),
        ("ledger-write-west", "ledger-order-stretch"),
        ("ledger-order-stretch", "ledger-read-central"),
        ("stock", "stock-read-west"),
        ("prices", "prices-read-west"),
    ):
        entry = by_pair[pair]
        assert (entry["cursor"], entry["last_seq"], entry["pending"], entry["state"]) == (5, 5, 0, "ok"), entry
    assert all(region["publish"] == {"works": 4, "of": 4, "unknown": 0} for region in picture["regions"])
    assert all(server["mapping_ok"] for server in picture["servers"])
    sent = {(flow["from"], flow["to"]): flow["sent_bytes"] for flow in picture["traffic"]}
    assert sent["west", "east"] > 5 * len(json.dumps({"number": 0}))
    assert len(sent) == 3 * 3  # to the other two, and to the stretch cluster
    text = vstream("status", file)
    assert "OK: all checks passed" in text.out
    assert "sensors-read-west" in text.out
    doctor = vstream("doctor", file, "--timeout", "20")
    assert doctor.code == 0, doctor.out
    assert "HEALTHY" in doctor.out
    drift = vstream("plan", "--drift", file)
    assert drift.code == 0, drift.out + drift.err


def test_status_where_servers_do_not_say_source_positions(state: Path, tmp_path: Path) -> None:
    with running(tmp_path, "--server-version", "2.12.8") as file:
        well(file)
        name_clients_of_other_regions(file)


@pytest.mark.night
def test_status_with_one_region_dead_says_what_that_endangers(state: Path, tmp_path: Path) -> None:
    with running(tmp_path) as file:
        well(file)
        scrape_export(file)
        name_clients_of_other_regions(file)
        dead(file)
        repeats(file)


def dead(file: Path) -> None:
    assert vstream("chaos", "kill-region", "west", "--topology", file, "--yes-really").code == 0
    asyncio.run(publish("east", "sensors.b", 3))
    picture = until_seen(
        file,
        lambda picture: bool(
            picture["meta_leader"] and pairs(picture)["sensors-write-east", "sensors-read-west"]["lossy_in_s"]
        ),
    )
    entry = pairs(picture)["sensors-write-east", "sensors-read-west"]
    assert entry["state"] == "unknown"
    assert 3000 < entry["lossy_in_s"] < 3600
    # Nothing was written in central since: nothing there can be lost.
    assert pairs(picture)["sensors-write-central", "sensors-read-west"]["lossy_in_s"] is None
    assert pairs(picture)["sensors-write-east", "sensors-read-central"]["state"] == "ok"
    west, east = region(picture, "west"), region(picture, "east")
    assert (west["servers"], west["servers_reached"]) == (2, 0)
    assert west["publish"]["works"] == 0
    assert west["new_consumers"] is False
    assert east["direct_get"] == {"works": 4, "of": 4, "unknown": 0}
    assert east["publish"] == {"works": 4, "of": 4, "unknown": 0}
    ran = vstream("status", file)
    assert ran.code == 1
    assert "messages are lost in" in ran.out
    assert "DEGRADED" in ran.out

    assert vstream("chaos", "heal", "--lab", LAB).code == 0
    picture = until_seen(file, lambda picture: bool(picture["is_well"]), within=180)
    assert pairs(picture)["sensors-write-east", "sensors-read-west"]["cursor"] == 3


def scrape(port: int) -> dict[str, list[Sample]]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return {family.name: family.samples for family in text_string_to_metric_families(answer.read().decode())}


def scrape_export(file: Path) -> None:
    """`export` serves what `status` says to whoever asks over HTTP."""
    port = free_port()
    tool = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "vstream",
            "export",
            str(file),
            "--listen",
            f"127.0.0.1:{port}",
            "--every",
            "0.5",
            "--resync",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"PYTHONUNBUFFERED": "1"}),
    )
    assert tool.stderr is not None
    assert tool.stdout is not None
    try:
        while f"http://127.0.0.1:{port}/metrics" not in (line := tool.stderr.readline()):
            assert line, "it ended"
        deadline = time.monotonic() + 120
        while (families := scrape(port))["vstream_up"][0].value != 1:
            assert time.monotonic() < deadline, "busy servers answer late, and these do not answer"
            time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as answer:
            assert 'href="/metrics"' in answer.read().decode()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/events", timeout=60) as answer:
            lines = [answer.readline().decode().strip() for _ in range(5)]
        assert (lines[0], lines[3]) == ("event: history", "event: status")
        shown = json.loads(lines[4].removeprefix("data: "))
        assert (shown["topology"], len(shown["regions"]), shown["faults"]) == (LAB, 3, [])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=30) as answer:
            assert answer.status == 200
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/elsewhere", timeout=30)
        while "nothing stands still" not in (line := tool.stdout.readline()):
            assert line, "it ended"
    finally:
        tool.terminate()
        _, stderr = tool.communicate(timeout=120)
    assert tool.returncode == -signal.SIGTERM, stderr
    assert [sample.value for sample in families["vstream_server_up"]] == [1] * 6
    assert len(families["vstream_pair_pending_messages"]) == 20
    stored = {sample.labels["physical"]: sample.value for sample in families["vstream_stream_last_sequence"]}
    assert stored["ledger-order-stretch"] == 5


async def ask_for_consumers() -> None:
    """One client in west asks for a consumer of its own region's stream, then another for one of east's."""
    (address,) = list_endpoints(LAB)["west"].urls
    for client, stream in (("at-home", "sensors-read-west"), ("orders", "sensors-read-east")):
        connection = await nats.connect(address, name=client)
        config = {"name": client, "durable_name": client, "ack_policy": "explicit"}
        body = json.dumps({"stream_name": stream, "config": config}).encode()
        answer = await connection.request(f"$JS.API.CONSUMER.CREATE.{stream}.{client}", body, timeout=60)
        assert json.loads(answer.data)["name"] == client, answer.data
        await connection.close()


def name_clients_of_other_regions(file: Path) -> None:
    """`export` hears who asks for a stream of another region than its own, and nobody else is named."""
    port = free_port()
    command = [sys.executable, "-m", "vstream", "export", str(file), "--listen", f"127.0.0.1:{port}", "--every", "0.5"]
    tool = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment({"PYTHONUNBUFFERED": "1"}))
    assert tool.stderr is not None
    try:
        while f"http://127.0.0.1:{port}/metrics" not in (line := tool.stderr.readline()):
            assert line, "it ended"
        deadline = time.monotonic() + 120
        while not (samples := scrape(port).get("vstream_client_of_other_region")):
            assert time.monotonic() < deadline, "it names nobody"
            asyncio.run(ask_for_consumers())
    finally:
        tool.terminate()
        _, stderr = tool.communicate(timeout=120)
    (sample,) = samples
    named = {"client": "orders", "host": "127.0.0.1", "stream": "sensors-read-east", "region": "east"}
    user = sample.labels["user"]
    assert sample.labels == {**named, "user": user, "topology": LAB, "from": "west"}
    assert 0 <= time.time() - sample.value < 120
    lines = [line for line in stderr.splitlines() if " uses " in line]
    assert lines == [f"client `orders` (user `{user}`, 127.0.0.1) in west uses `sensors-read-east` of east"]


def repeats(file: Path) -> None:
    """`status --watch` prints again and again, in as many columns as there are, and ends by SIGTERM."""
    shown = subprocess.Popen(
        [sys.executable, "-m", "vstream", "status", "--watch", str(file), "--every", "0.2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment({"COLUMNS": "40", "PYTHONUNBUFFERED": "1"}),
    )
    assert shown.stdout is not None
    times, longest = 0, 0
    for line in shown.stdout:
        if line.startswith(("✗", "OK")):
            times += 1
        else:
            # Tables are indented. Sentences are left to the terminal to wrap.
            longest = max(longest, len(line.rstrip()) if line.startswith(" ") else 0)
        if times == 2:
            break
    shown.terminate()
    _, stderr = shown.communicate(timeout=120)
    assert shown.returncode == -signal.SIGTERM, stderr
    assert "Traceback" not in stderr
    assert 20 < longest <= 40


def test_status_without_any_server_is_unknown(state: Path, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        TEXT.split("stretch:", maxsplit=1)[0] + "connect: {west: {urls: [nats://127.0.0.1:9]}}\nstreams: {}\n"
    )
    ran = vstream("status", path, "--timeout", "1")
    assert ran.code == 3
    assert "no region can be reached" in ran.err
    ran = vstream("repair", "sources", path)
    assert (ran.code, "no region can be reached" in ran.err) == (3, True)
    assert "is `connect` right?" in ran.err, "what undoes faults of labs is no help"
