"""Hidden accounts, accounts of regions, and domains, audited as the user that may read them and nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from pyspark.sql import SparkSession

from tests.support.command import vstream
from tests.support.labs import processes_in
from tests.support.night import with_night
from vstream.audit.extract.extract_plan import plan_extraction
from vstream.audit.report import AuditVerdict, Report
from vstream.audit.stages import StageRunner
from vstream.audit.tables import audit_tables
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.table_store import TableStore
from vstream.findings import Severity
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lint.check_topology import check_topology
from vstream.render.pipeline import render_bundle
from vstream.topology import naming, physical
from vstream.topology.accounts import APP_USER, AUDIT_USER, VSTREAM_USER
from vstream.topology.model import Consistency, Routing, Topology

pytestmark = [
    pytest.mark.server,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

TOPOLOGY = """\
version: 1
name: audited
server_version: "2.12"
routing: {routing}
roots: [v.>]
regions: {{{regions}}}
defaults: {{write: {{max_age: 1h}}}}
streams:
  foo: {{subjects: [v.foo.>]}}
  prices: {{subjects: [prices.>]{homed}}}
"""
HOMED = ", consistency: homed, home: east"
REGIONS = "west: {servers: 1}, east: {servers: 1}"
ALL_MODELS = """  ledger: {subjects: [ledger.>], consistency: ordered}
  stock: {subjects: [stock.>], consistency: stretch}
  hits: {subjects: [v.hits.>], counters: true, write: {max_age: unlimited}}
stretch: {members: all}
"""
"""With these, a lab has a stretch cluster, a region in which nothing is at home, and a counter that all regions add to."""
COUNTER = "hits"
EACH = 20


OTHERS = [routing for routing in Routing if routing not in {Routing.MAPPED, Routing.ACCOUNTS}]
"""In the suite, what differs in them is seen on their labs, without Spark: render/accounts/test_*_live.py. All other audits read `mapped`."""


@pytest.fixture(params=with_night([Routing.ACCOUNTS], OTHERS), ids=lambda one: one.value)
def topology(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A lab whose streams hold what clients of each region published."""
    routing: Routing = request.param
    state = tmp_path / "state"
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(state))
    file = tmp_path / "audited.yaml"
    text = TOPOLOGY.format(
        routing=routing.value,
        regions=f"{REGIONS}, central: {{servers: 1}}" if routing is Routing.ACCOUNTS else REGIONS,
        homed="" if routing is Routing.DOMAINS else HOMED,
    )
    file.write_text(text + ALL_MODELS if routing is Routing.ACCOUNTS else text)
    try:
        up = vstream("lab", "up", file)
        assert up.code == 0, up.err
        applied = vstream("apply", file, "--yes")
        assert applied.code == 0, applied.out + applied.err
        asyncio.run(everybody_publishes(check_topology(file.read_bytes(), file.name).require()))
        yield file
    finally:
        down = vstream("lab", "down", "audited", "--purge")
    assert down.code == 0, down.err
    assert processes_in(state) == []


async def as_user(region: str, user: str) -> Any:
    endpoint = list_endpoints("audited", user)[region]
    return await nats.connect(
        list(endpoint.urls),
        user=endpoint.user,
        password=endpoint.password,
        inbox_prefix=endpoint.inbox,
        connect_timeout=30,
    )


async def everybody_publishes(wanted: Topology) -> None:
    regions = [region.name for region in wanted.regions]
    subjects = [stream.subjects[0].removesuffix(".>") for stream in wanted.streams if stream.name != COUNTER]
    for region in regions:
        connection = await as_user(region, APP_USER)
        js = connection.jetstream(timeout=30)
        for subject in subjects:
            await asyncio.gather(*(js.publish(f"{subject}.{region}.{n}", b"%d" % n) for n in range(EACH)))
        if COUNTER in {stream.name for stream in wanted.streams}:
            await asyncio.gather(*(js.publish(f"v.{COUNTER}.all", headers={"Nats-Incr": "+1"}) for _ in range(EACH)))
        await connection.close()
    deadline = time.monotonic() + 60
    for region in regions:
        connection = await as_user(region, APP_USER)
        js = connection.jetstream(timeout=30)
        for stream in wanted.streams:
            while (await js.stream_info(stream.name)).state.messages < len(regions) * EACH:
                assert time.monotonic() < deadline
                await asyncio.sleep(0.1)
        await connection.close()


async def delete(name: str, seq: int) -> None:
    connection = await as_user("west", VSTREAM_USER)
    asked = naming.api_subject("STREAM.MSG.DELETE", name)
    answer = json.loads((await connection.request(asked, json.dumps({"seq": seq}).encode(), timeout=30)).data)
    await connection.close()
    assert answer["success"], answer


def audit_streams(spark: SparkSession, file: Path, scratch: Path, **how: Any) -> Report:
    topology = check_topology(file.read_bytes(), file.name).require()
    streams = render_bundle(topology, addresses=list_addresses("audited")).streams
    scratch.mkdir()
    frames_ = audit_tables.extract_tables(
        spark, plan_extraction(streams, list_endpoints("audited", AUDIT_USER), scratch, **how), scratch
    )
    models = {stream.name: stream.consistency.value for stream in topology.streams}
    return (
        StageRunner(store=TableStore(spark), context=AuditContext(subject="test", models=models))
        .run(frames_.messages, frames_.streams)
        .report
    )


@pytest.mark.night
def test_what_is_missing_in_a_region_is_found_whatever_accounts_its_streams_are_in(
    spark: SparkSession, topology: Path, tmp_path: Path
) -> None:
    desired = check_topology(topology.read_bytes(), topology.name).require()
    report = audit_streams(spark, topology, tmp_path / "direct", path="direct")
    # Not even pending: streams that hold nothing lack nothing either.
    assert (report.verdict(), report.findings) == (AuditVerdict.PASS, ()), report.as_dict()
    regions = {region.name for region in desired.regions}
    held = defaultdict[tuple[str, str], dict[str, int]](dict)
    for row in report.streams:
        held[row.virtual, row.role][row.region] = row.rows
    all_of = dict.fromkeys(regions, EACH * len(regions))
    copies = {"write": dict.fromkeys(regions, EACH), "read": all_of}
    expected: dict[tuple[str, str], dict[str, int]] = {}
    for stream in desired.streams:
        match stream.consistency:
            case Consistency.VIRTUAL:
                roles = copies
            case Consistency.ORDERED:
                roles = {**copies, "order": {"stretch": EACH * len(regions)}}
            case Consistency.STRETCH:
                roles = {"origin": {"stretch": EACH * len(regions)}, "read": all_of}
            case Consistency.HOMED:
                roles = {
                    "origin": {"east": all_of["east"]},
                    "read": {name: all_of[name] for name in regions - {"east"}},
                }
        expected |= {(stream.name, role): rows for role, rows in roles.items()}
    assert held == expected
    removed = [physical.read_stream_in(stream, "west") for stream in desired.streams]
    for name in removed:
        asyncio.run(delete(name, 11))
    report = audit_streams(spark, topology, tmp_path / "consumer", path="consumer")
    assert {stream.name: report.verdict(stream.name) for stream in desired.streams} == dict.fromkeys(
        (stream.name for stream in desired.streams), AuditVerdict.FAIL
    )
    lost = [(each.stream, each.count) for each in report.findings if each.severity is Severity.ERROR]
    assert sorted(lost, key=str) == sorted((name, 1) for name in removed)
