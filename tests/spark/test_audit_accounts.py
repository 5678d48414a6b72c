"""Hidden accounts, accounts of regions, and domains, audited as the user that may read them and nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from pyspark.sql import SparkSession

from tests.support.command import vstream
from tests.support.labs import running_in
from vstream.audit import frames
from vstream.audit.context import Context
from vstream.audit.extract import extent
from vstream.audit.report import Report, Verdict
from vstream.audit.shelf import Shelf
from vstream.audit.stages import Run
from vstream.diagnostics import Severity
from vstream.lab import lab
from vstream.load import bundle, load
from vstream.model.accounts import APP_USER, AUDIT_USER, VSTREAM_USER
from vstream.model.topology import Consistency, Routing
from vstream.topology import naming

pytestmark = [
    pytest.mark.server,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("small"),
]

TOPOLOGY = """\
version: 1
name: audited
server_version: "2.12"
routing: {routing}
roots: [v.>]
regions: {{west: {{servers: 1}}, east: {{servers: 1}}}}
defaults: {{write: {{max_age: 1h}}}}
streams:
  foo: {{subjects: [v.foo.>]}}
  prices: {{subjects: [prices.>]{homed}}}
"""
EACH = 20


@pytest.fixture(params=[Routing.ACCOUNTS, Routing.DOMAINS, Routing.REGIONAL], ids=lambda one: one.value)
def topology(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A lab whose streams hold what clients of each region published."""
    routing: Routing = request.param
    homed = "" if routing is Routing.DOMAINS else ", consistency: homed, home: east"
    state = tmp_path / "state"
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(state))
    file = tmp_path / "audited.yaml"
    file.write_text(TOPOLOGY.format(routing=routing.value, homed=homed))
    try:
        up = vstream("lab", "up", file)
        assert up.code == 0, up.err
        applied = vstream("apply", file, "--yes")
        assert applied.code == 0, applied.out + applied.err
        asyncio.run(everybody_publishes())
        yield file
    finally:
        down = vstream("lab", "down", "audited", "--purge")
    assert down.code == 0, down.err
    assert running_in(state) == []


async def as_user(region: str, user: str) -> Any:
    endpoint = lab.endpoints("audited", user)[region]
    return await nats.connect(list(endpoint.urls), user=endpoint.user, password=endpoint.password)


async def everybody_publishes() -> None:
    for region in ("west", "east"):
        connection = await as_user(region, APP_USER)
        js = connection.jetstream(timeout=30)
        for subject in ("v.foo", "prices"):
            await asyncio.gather(*(js.publish(f"{subject}.{region}.{n}", b"%d" % n) for n in range(EACH)))
        await connection.close()
    deadline = time.monotonic() + 60
    for region in ("west", "east"):
        connection = await as_user(region, APP_USER)
        js = connection.jetstream(timeout=30)
        for stream in ("foo", "prices"):
            while (await js.stream_info(stream)).state.messages < 2 * EACH:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        await connection.close()


async def delete(name: str, seq: int) -> None:
    connection = await as_user("east", VSTREAM_USER)
    asked = naming.asked("STREAM.MSG.DELETE", name)
    answer = json.loads((await connection.request(asked, json.dumps({"seq": seq}).encode(), timeout=30)).data)
    await connection.close()
    assert answer["success"], answer


def audited(spark: SparkSession, file: Path, scratch: Path, **how: Any) -> Report:
    wanted = load(file.read_bytes(), file.name).require()
    streams = bundle(wanted, addresses=lab.addresses("audited")).streams
    scratch.mkdir()
    found = frames.live(spark, extent(streams, lab.endpoints("audited", AUDIT_USER), scratch, **how), scratch)
    models = {one.name: one.consistency.value for one in wanted.streams}
    return Run(shelf=Shelf(spark), context=Context(subject="test", models=models))(found.messages, found.streams)


def errors(report: Report) -> list[tuple[str, str | None, int]]:
    return sorted((one.name, one.stream, one.count) for one in report.findings if one.severity is Severity.ERROR)


def test_what_is_missing_in_a_region_is_found_whatever_accounts_its_streams_are_in(
    spark: SparkSession, topology: Path, tmp_path: Path
) -> None:
    wanted = load(topology.read_bytes(), topology.name).require()
    report = audited(spark, topology, tmp_path / "direct", path="direct")
    # Not even pending: streams that hold nothing lack nothing either.
    assert (report.verdict(), report.findings) == (Verdict.PASS, ()), report.as_dict()
    # Two write streams and two read streams of each virtual one, or the origin and its mirror.
    per_stream = [6 if one.consistency is Consistency.VIRTUAL else 4 for one in wanted.streams]
    assert len(report.streams) == sum(4 if one.consistency is Consistency.VIRTUAL else 2 for one in wanted.streams)
    assert report.messages == EACH * sum(per_stream)
    read = naming.read_in(wanted.streams[0], "east")
    asyncio.run(delete(read, 11))
    report = audited(spark, topology, tmp_path / "consumer", path="consumer")
    assert report.verdict() is Verdict.FAIL
    assert [(stream, count) for _, stream, count in errors(report)] == [(read, 1)], errors(report)
