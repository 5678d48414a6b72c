"""`vstream doctor` on two clusters of three, which run different versions: what takes several replicas to go wrong."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.command import require_success, vstream
from tests.support.labs import states
from tests.support.shared_lab import shared_lab
from tests.support.topologies import begin_topology
from vstream.errors import VstreamError
from vstream.findings import Finding
from vstream.health.doctor.examine import examine
from vstream.health.live.collect import collect_snapshot
from vstream.jetstream.connection import Connection, connect
from vstream.lab.endpoints import list_endpoints
from vstream.lint import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology.model import Topology

pytestmark = pytest.mark.lab

LAB = "crowd"
TEXT = (
    begin_topology(LAB, west=3, east=3)
    + """\
streams:
  foo: {subjects: [foo.>], canary: foo._canary.*, write: {max_age: 1h}, consumers: {reader: {}}}
"""
)
ALWAYS = ("VD407", "VD408")
"""Each region alone is half of the servers, and east runs an older version: this lab is made so."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with shared_lab(tmp_path_factory.mktemp("crowd"), TEXT, "--server-version", "east=2.12.8") as path:
        require_success(vstream("apply", path, "--yes"))
        yield path


@pytest_asyncio.fixture
async def west(file: Path) -> AsyncIterator[Connection]:
    """A connection to west, where all is well but for what is always so; faults are undone afterwards."""
    await until_found()
    async with connect(list_endpoints(LAB)["west"], "west") as connection:
        yield connection
    healed = vstream("chaos", "heal", "--lab", LAB)
    assert healed.code == 0, healed.err
    assert set(states(LAB).values()) == {"running"}


def topology(text: str = TEXT) -> Topology:
    return check_topology.check_topology(text.encode(), "crowd.yaml").require()


async def look(wanted: Topology) -> dict[str, list[Finding]]:
    facts = await collect_snapshot(wanted, list_endpoints(LAB), timeout=15, is_deep=True)
    result: dict[str, list[Finding]] = {}
    for finding in examine(wanted, render_bundle(wanted), facts).findings:
        result.setdefault(finding.code, []).append(finding)
    return result


async def until_found(
    *codes: str, perhaps: frozenset[str] = frozenset(), within: float = 150
) -> dict[str, list[Finding]]:
    """The findings by code, once they are of *codes* and of what is always found."""
    deadline = time.monotonic() + within
    while True:
        findings = await look(topology())
        if set(findings) - perhaps == {*codes, *ALWAYS} - perhaps:
            return findings
        assert time.monotonic() < deadline, findings
        await asyncio.sleep(0.5)


async def test_doctor_reports_two_server_versions(west: Connection) -> None:
    """Mixed is a note. Older than what the topology promises is an error, whoever is connected to which."""
    facts = await collect_snapshot(topology(), list_endpoints(LAB), timeout=15, is_deep=True)
    assert {server.storage_limit for server in facts.servers} == {10 << 30}
    assert {bool(server.config_digest) for server in facts.servers} == {True}
    assert {bool(server.flags) for server in facts.servers if server.region == "east"} == {False}
    findings = await until_found()
    (mixed,) = findings["VD408"]
    assert mixed.evidence == "3 run 2.12.8, 3 run 2.15.1"
    (old,) = (await look(topology(TEXT.replace('"2.12"', '"2.14"'))))["VD412"]
    assert old.about == "`east-1`, `east-2`, `east-3`"
    assert '`server_version: "2.14"`' in old.evidence


async def test_doctor_finds_a_consumer_that_is_gone(west: Connection, file: Path) -> None:
    answer = await west.request_json("$JS.API.CONSUMER.DELETE.foo-read-west.reader", {})
    assert "error" not in answer, answer
    (finding,) = (await until_found("VD505"))["VD505"]
    assert finding.about == "foo-read-west > reader"
    assert vstream("apply", file, "--yes").code == 0
    await until_found()


async def test_doctor_with_one_and_two_servers_of_three_away(west: Connection, file: Path) -> None:
    """With one, its cluster goes on with two of three replicas; with two, there is no leader of anything in west."""
    killed = vstream("chaos", "kill-server", "west-3", "--topology", file)
    assert killed.code == 0, killed.err
    findings = await until_found("VD404", "VD504")
    assert [finding.about for finding in findings["VD404"]] == ["west-3"]
    # Which of them has noticed by now is a matter of a second.
    assert {finding.about for finding in findings["VD504"]} <= {"foo-write-west", "foo-read-west"}
    killed = vstream("chaos", "kill-server", "west-2", "--topology", file, "--yes-really")
    assert killed.code == 0, killed.err
    # The meta group has lost two of six, and may have to elect another leader.
    findings = await until_found("VD404", "VD503", perhaps=frozenset({"VD201", "VD406", "VD504"}))
    assert "-west`" in findings["VD503"][0].about
    assert "east" not in findings["VD503"][0].about
    healed = vstream("chaos", "heal", "--lab", LAB)
    assert healed.code == 0, healed.err
    await until_found()


async def test_doctor_finds_a_disk_that_is_full(west: Connection, file: Path) -> None:
    """JetStream stays on there, and neither `/jsz` nor STREAM.INFO says anything."""
    full = vstream("chaos", "disk-full", "west-2", "--topology", file)
    assert full.code == 0, full.err
    deadline = time.monotonic() + 90
    while True:
        await try_publish(west, "full")
        findings = await look(topology())
        # Which of its Raft groups meets the full disk first is chance: a stream's, or that of JetStream itself.
        named = [
            finding
            for finding in findings.get("VD508", ())
            if finding.evidence.startswith("`west-2` cannot write to it: ")
        ]
        if named:
            break
        assert time.monotonic() < deadline, findings
    assert "VD405" not in findings
    full_disk = named[0]
    assert "file too large" in full_disk.evidence
    assert "free disk space" in str(full_disk.hint)
    healed = vstream("chaos", "heal", "--lab", LAB)
    assert healed.code == 0, healed.err
    await until_found()


@pytest.mark.night
async def test_doctor_finds_a_stream_that_one_header_stopped_for_good(west: Connection, file: Path) -> None:
    """`Nats-Expected-Last-Msg-Id` beside the publishes of others, and the way out that the manual names."""
    assert await try_publish(west, "before")
    deadline = time.monotonic() + 90
    number = 0
    while not (findings := await look(topology())).get("VD508"):
        assert time.monotonic() < deadline, findings
        number += 20
        await asyncio.gather(*(publish_numbered(west, index) for index in range(number, number + 20)))
    assert {finding.about for finding in findings["VD508"]} == {"foo-write-west"}
    assert "last msgid mismatch" in findings["VD508"][0].evidence
    assert "`Nats-Expected-Last-Msg-Id`" in str(findings["VD508"][0].hint)
    assert not await try_publish(west, "nobody stores this")
    shown = vstream("doctor", file, "--format", "json")
    assert shown.code == 1, shown.err
    assert {finding["about"] for finding in shown.json()["findings"] if finding["code"] == "VD508"} == {
        "foo-write-west"
    }

    # A new one begins behind what its readers have taken: they go on, those of 2.12 too, which do not notice.
    before = await count_stored(west, "foo-read-east")
    answer = await west.request_json("$JS.API.STREAM.DELETE.foo-write-west", {}, timeout=20)
    assert "error" not in answer, answer
    applied = vstream("apply", file, "--yes")
    assert applied.code == 0, applied.out + applied.err
    deadline = time.monotonic() + 90
    while await count_stored(west, "foo-read-east") == before:
        assert time.monotonic() < deadline
        await try_publish(west, "after")
    await until_found()


async def try_publish(connection: Connection, text: str) -> bool:
    try:
        reply = await connection.request("foo.x", text.encode(), timeout=3)
    except VstreamError:
        return False
    return "error" not in json.loads(reply.data)


async def count_stored(connection: Connection, stream: str) -> int:
    answer = await connection.request_json(f"$JS.API.STREAM.INFO.{stream}", {})
    messages: int = answer["state"]["messages"]
    return messages


async def publish_numbered(connection: Connection, number: int) -> None:
    headers = {"Nats-Msg-Id": f"id-{number}"}
    if number % 2 == 0:
        headers["Nats-Expected-Last-Msg-Id"] = f"id-{number - 1}"
    try:
        await connection.request("foo.x", b"tried", headers=headers, timeout=2)
    except VstreamError:
        return
