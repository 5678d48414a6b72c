"""Servers, audited in part and again and again; and tables that somebody has changed."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from threading import Event
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.support.captures import Shape, clean
from tests.support.jetstream import JetStreamServer, fill
from tests.support.night import with_night
from vstream.audit import follow
from vstream.audit.connector import stream_snapshots
from vstream.audit.connector.values import ReadSnapshot, SourceCursor, StreamRef
from vstream.audit.extract import extract_plan
from vstream.audit.extract.extract_plan import plan_extraction, take_complete_snapshots
from vstream.audit.extract.extraction import read_in_process, read_plan
from vstream.audit.extract.from_capture import extract_capture
from vstream.audit.extract.stream_rows import make_stream_row
from vstream.audit.follow import Follower
from vstream.audit.report import AuditVerdict, Report
from vstream.audit.request import uri_of
from vstream.audit.spark.spark_errors import convert_spark_errors
from vstream.audit.stages import StageRunner
from vstream.audit.tables import audit_tables
from vstream.audit.tables.context import AuditContext
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.audit.tables.stream_facts import build_stream_facts
from vstream.audit.tables.table_store import TableStore
from vstream.errors import NotReachableError, VstreamError
from vstream.findings import Severity
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint, Role
from vstream.topology.stream_config import StreamConfig

pytestmark = [
    pytest.mark.server,
    pytest.mark.spark,
    pytest.mark.xdist_group("spark"),
    pytest.mark.usefixtures("small_tables"),
]

REGIONS = ("east", "west")
MESSAGES_EACH = 30
CANARIES = MappingProxyType({"foo": ("foo._canary",)})


def sources() -> list[dict[str, Any]]:
    return [
        {"name": f"w-{region}", "subject_transforms": [{"src": f"w-{region}.>", "dest": "foo.>"}]} for region in REGIONS
    ]


def streams() -> list[RenderedStream]:
    result = []
    for region in REGIONS:
        result += [make_stream(region, Role.WRITE), make_stream(region, Role.READ, sources=sources())]
    return result


def make_stream(region: str, role: Role, **fields: Any) -> RenderedStream:
    name = f"{role.value[0]}-{region}"
    config = StreamConfig(name=name, fields={"name": name, **fields})
    return RenderedStream(config=config, virtual="foo", region=region, role=role, path="")


def wait_for(server: JetStreamServer, messages: int) -> None:
    deadline = time.monotonic() + 60
    for region in REGIONS:
        while server.api(f"STREAM.INFO.r-{region}")["state"]["messages"] < messages:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def filled_server(server: JetStreamServer) -> JetStreamServer:
    make_streams(server)
    return server


def make_streams(server: JetStreamServer) -> None:
    for region in REGIONS:
        fill(server, f"w-{region}", [(f"w-{region}.k{n % 5}", b"%d" % n, None) for n in range(MESSAGES_EACH)])
    make_readers(server)
    wait_for(server, 2 * MESSAGES_EACH)


def make_readers(server: JetStreamServer, **fields: Any) -> None:
    for region in REGIONS:
        config = {"name": f"r-{region}", "storage": "memory", "allow_direct": True, "sources": sources()}
        server.api(f"STREAM.CREATE.r-{region}", config | fields)


def endpoints(server: JetStreamServer) -> dict[str, Endpoint]:
    return dict.fromkeys(REGIONS, Endpoint(urls=(server.url,)))


def audit_server(
    spark: SparkSession,
    server: JetStreamServer,
    scratch: Path,
    *,
    canaries: Mapping[str, tuple[str, ...]] = MappingProxyType({}),
    physical: Sequence[RenderedStream] | None = None,
    **how: Any,
) -> Report:
    planned = plan_extraction(streams() if physical is None else physical, endpoints(server), scratch, **how)
    frames_ = audit_tables.extract_tables(spark, planned, scratch)
    context = AuditContext(
        subject="test",
        models={"foo": "virtual"},
        canaries=canaries,
        is_sampled="sample" in how,
        is_narrow="since_ns" in how,
    )
    return StageRunner(store=TableStore(spark), context=context).run(frames_.messages, frames_.streams).report


def errors(report: Report) -> list[tuple[str, str | None, int]]:
    """Two regions write the same keys here, which is a warning: it is not asked about."""
    return [
        (finding.name, finding.stream, finding.count)
        for finding in report.findings
        if finding.severity is Severity.ERROR
    ]


@pytest.mark.night
def test_of_some_subjects_every_message_is_looked_at(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path
) -> None:
    report = audit_server(spark, filled_server, tmp_path, sample=2)
    assert report.verdict() is AuditVerdict.PASS
    # Two of five subjects, in two write streams and two read streams.
    assert report.messages == 2 * 6 * 2 + 2 * 2 * 6 * 2
    filled_server.api("STREAM.MSG.DELETE.r-east", {"seq": 11})
    every = audit_server(spark, filled_server, tmp_path, sample=500)
    assert errors(every) == [("lost-middle", "r-east", 1)]


def test_what_probes_delete_is_told_from_what_was_lost_before_it_was_copied(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "w-east", [])
    fill(server, "w-west", [(f"w-west.k{n}", b"%d" % n, None) for n in range(7)])
    server.api("STREAM.MSG.DELETE.w-west", {"seq": 3})
    make_readers(server)
    wait_for(server, 6)
    # Canaries: one between others, and the last message.
    for origin_seq, copied_as in ((5, 4), (7, 6)):
        server.api("STREAM.MSG.DELETE.w-west", {"seq": origin_seq})
        for region in REGIONS:
            server.api(f"STREAM.MSG.DELETE.r-{region}", {"seq": copied_as})
    gone = {
        finding.code: [item.first for item in finding.ranges]
        for finding in audit_server(spark, server, tmp_path, canaries=CANARIES).findings
    }
    assert gone == {"VA110": [3], "VA112": [5, 7]}
    # Without a canary in the topology, nobody deletes any.
    assert errors(audit_server(spark, server, tmp_path)) == [("deleted-everywhere", "w-west", 3)]


@pytest.mark.parametrize("is_one_lost", [False, True])
def test_canaries_of_another_region_do_not_explain_what_was_lost(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path, *, is_one_lost: bool
) -> None:
    fill(server, "w-west", [(f"w-west.k{n}", b"%d" % n, None) for n in range(3 if is_one_lost else 2)])
    if is_one_lost:
        server.api("STREAM.MSG.DELETE.w-west", {"seq": 3})
    fill(server, "w-east", [])
    make_readers(server)
    wait_for(server, 2)
    # A region without clients sends nothing but canaries: its stream is empty when they are deleted.
    for last, stream in enumerate(("w-east", "w-west"), 3):
        fill(server, stream, [(f"{stream}.k{last}", b"%d" % last, None)])
        wait_for(server, last)
    for stream, seqs in {"w-west": (2,), "w-east": (1,), "r-west": (2, 3), "r-east": (2, 3)}.items():
        for seq in seqs:
            server.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
    report = audit_server(spark, server, tmp_path, canaries=CANARIES)
    assert [(finding.code, finding.stream, finding.count) for finding in report.findings] == [
        ("VA114", "w-west", 2) if is_one_lost else ("VA112", "w-west", 1)
    ]
    assert report.verdict() is (AuditVerdict.UNKNOWN if is_one_lost else AuditVerdict.PASS)
    # Of a region that was given up, nobody knows what is gone.
    without_east = [stream for stream in streams() if stream.config.name != "w-east"]
    partial_report = audit_server(spark, server, tmp_path, canaries=CANARIES, physical=without_east)
    assert "VA112" not in {finding.code for finding in partial_report.findings}
    assert [finding.count for finding in partial_report.findings if finding.code == "VA114"] == [
        2 if is_one_lost else 1
    ]


def test_canaries_of_a_write_stream_that_was_made_again_do_not_explain_what_was_lost(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "w-west", [(f"w-west.k{n}", b"%d" % n, None) for n in range(3)])
    server.api("STREAM.MSG.DELETE.w-west", {"seq": 3})
    fill(server, "w-east", [("w-east.only-here", b"former", None)])
    make_readers(server)
    wait_for(server, 3)
    # Between the neighbours of what was lost, the former write stream of another region sends a canary.
    fill(server, "w-east", [("w-east._canary", b"", None)])
    wait_for(server, 4)
    for stream, seq in {"w-east": 2, "r-west": 4, "r-east": 4}.items():
        server.api(f"STREAM.MSG.DELETE.{stream}", {"seq": seq})
    server.api("STREAM.DELETE.w-east")
    for stream, last in {"w-east": 5, "w-west": 6}.items():
        fill(server, stream, [(f"{stream}.k{last}", b"%d" % last, None)])
        for region in REGIONS:
            wait_for_last(server, region, last)
    report = audit_server(spark, server, tmp_path, canaries=CANARIES)
    assert [(finding.code, finding.stream, finding.count) for finding in report.findings] == [("VA114", "w-west", 1)]
    assert report.verdict() is AuditVerdict.UNKNOWN


def test_a_reader_that_removes_messages_itself_does_not_show_that_a_canary_was_deleted(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "w-east", [])
    fill(server, "w-west", [(f"w-west.k{n}", b"%d" % n, None) for n in range(3)])
    server.api("STREAM.MSG.DELETE.w-west", {"seq": 3})
    limits = {"max_msgs_per_subject": 1}
    make_readers(server, **limits)
    wait_for(server, 2)
    # Between the neighbours of what was lost, each reader stores a message that the next one of its subject replaces.
    for number, stream in enumerate(("w-east", "w-west", "w-east"), 3):
        fill(server, stream, [(f"{stream}.again", b"%d" % number, None)])
        for region in REGIONS:
            wait_for_last(server, region, number)
    physical = [make_stream(region, Role.WRITE) for region in REGIONS]
    physical += [make_stream(region, Role.READ, sources=sources(), **limits) for region in REGIONS]
    report = audit_server(spark, server, tmp_path, canaries=CANARIES, physical=physical)
    assert errors(report) == [("canaries-or-lost", "w-west", 1)]
    assert report.verdict() is AuditVerdict.UNKNOWN


def test_a_mirror_does_not_show_that_a_canary_was_deleted(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "w-west", [(f"w-west.k{n}", b"%d" % n, None) for n in range(3)])
    server.api("STREAM.MSG.DELETE.w-west", {"seq": 2})
    mirror = {"mirror": {"name": "w-west"}}
    server.api("STREAM.CREATE.r-east", {"name": "r-east", "storage": "memory", "allow_direct": True, **mirror})
    wait_for_last(server, "east", 3)
    physical = [make_stream("west", Role.WRITE), make_stream("east", Role.READ, **mirror)]
    report = audit_server(spark, server, tmp_path, canaries=CANARIES, physical=physical)
    assert errors(report) == [("canaries-or-lost", "w-west", 1)]
    assert report.verdict() is AuditVerdict.UNKNOWN


def test_a_canary_that_comes_after_it_was_deleted_elsewhere_is_no_loss(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "w-east", [])
    fill(server, "w-west", [(f"w-west.{key}", key.encode(), None) for key in ("k0", "_canary", "k1", "k2")])
    make_readers(server)
    wait_for(server, 4)
    for name in ("w-west", "r-west"):
        server.api(f"STREAM.MSG.DELETE.{name}", {"seq": 2})
    report = audit_server(spark, server, tmp_path, canaries=CANARIES)
    assert {(finding.code, finding.stream, finding.count) for finding in report.findings} == {
        ("VA113", "w-west", 1),
        ("VA113", "r-west", 1),
    }
    assert report.verdict() is AuditVerdict.PASS
    # Any other message is missed.
    server.api("STREAM.MSG.DELETE.r-west", {"seq": 3})
    assert errors(audit_server(spark, server, tmp_path, canaries=CANARIES)) == [("lost-middle", "r-west", 1)]


@pytest.mark.night
def test_a_message_is_only_deduplicated_where_its_reader_does_that(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    for region in REGIONS:
        fill(server, f"w-{region}", [(f"w-{region}.k", b"the same", {"Nats-Msg-Id": "one"})])
    for region, window in zip(REGIONS, (120 * 10**9, 0), strict=True):
        config = {"name": f"r-{region}", "allow_direct": True, "sources": sources(), "duplicate_window": window}
        server.api(f"STREAM.CREATE.r-{region}", config)
    wait_for(server, 1)
    deadline = time.monotonic() + 60
    while server.api(f"STREAM.INFO.r-{REGIONS[1]}")["state"]["messages"] < len(REGIONS):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    report = audit_server(spark, server, tmp_path)
    assert (errors(report), [finding.stream for finding in report.findings if finding.name == "deduplicated"]) == (
        [],
        [f"r-{REGIONS[0]}"],
    )
    server.api(f"STREAM.MSG.DELETE.r-{REGIONS[1]}", {"seq": 1})
    assert [(name[:4], stream) for name, stream, _ in errors(audit_server(spark, server, tmp_path))] == [
        ("lost", f"r-{REGIONS[1]}")
    ]


Limits = dict[str, int | bool]
LIMITS: dict[str, tuple[Limits, Limits]] = {
    "last": ({}, {"max_msgs_per_subject": 1}),
    "three": ({}, {"max_msgs_per_subject": 3}),
    "aged": ({}, {"max_age": 2 * 10**9}),
    "passed": ({"max_age": 2 * 10**9}, {}),
    "full": ({"max_msgs": MESSAGES_EACH}, {}),
    "fills": ({"max_msgs": MESSAGES_EACH + 5}, {"max_msgs": 2 * MESSAGES_EACH + 5}),
    "seven": ({}, {"max_msgs_per_subject": 7}),
    "short": ({"allow_msg_ttl": True}, {"allow_msg_ttl": True, "max_msgs_per_subject": 1}),
}
"""By virtual stream, the limits of its write streams and of its read streams."""


def make_limited(server: JetStreamServer) -> list[RenderedStream]:
    """The streams of LIMITS, filled; those called *fills* and *seven* have not reached their limits."""
    physical = []
    for virtual, (write, read) in LIMITS.items():
        names = [f"{virtual}-w-{region}" for region in REGIONS]
        sourced = [
            {"name": name, "subject_transforms": [{"src": f"{name}.>", "dest": f"{virtual}.>"}]} for name in names
        ]
        for region, name in zip(REGIONS, names, strict=True):
            fields = {"name": f"{virtual}-r-{region}", "storage": "memory", "allow_direct": True, "sources": sourced}
            server.api(f"STREAM.CREATE.{virtual}-r-{region}", fields | read)
            for role, stream, limits in ((Role.WRITE, name, write), (Role.READ, f"{virtual}-r-{region}", read)):
                config = StreamConfig(name=stream, fields={"name": stream, **limits})
                physical.append(RenderedStream(config=config, virtual=virtual, region=region, role=role, path=""))
        for name in names:
            fill(server, name, [(f"{name}.quiet-{name[-4:]}", b"", None), *_rounds(name, MESSAGES_EACH - 1)], **write)
    for virtual in LIMITS:
        _wait_until(server, virtual, "r", "last_seq", 2 * MESSAGES_EACH)
    return physical


def test_what_limits_remove_while_streams_are_read_is_not_lost(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    """Clients go on publishing, to the same subjects, between the snapshot and the end of reading."""
    physical = make_limited(server)
    for region in REGIONS:
        fill(server, f"full-w-{region}", _rounds(f"full-w-{region}", 1))
    _wait_until(server, "full", "r", "last_seq", 2 * MESSAGES_EACH + len(REGIONS))
    # What replaces this message is gone from everywhere when streams are read.
    replaced = "short-w-west.replaced"
    fill(server, "short-w-west", [(replaced, b"", None), (replaced, b"", {"Nats-TTL": "1s"})])
    _wait_until(server, "short", "r", "last_seq", 2 * MESSAGES_EACH + 2)
    _wait_until(server, "short", "w", "num_deleted", 1, regions=["west"])
    server.api("STREAM.MSG.DELETE.fills-r-east", {"seq": 2 * MESSAGES_EACH - 1})
    quiet = server.api("STREAM.MSG.GET.three-r-east", {"last_by_subj": "three.quiet-west"})["message"]["seq"]
    server.api("STREAM.MSG.DELETE.three-r-east", {"seq": quiet})
    at_servers = dict.fromkeys(REGIONS, Endpoint(urls=(server.url,)))
    extraction = plan_extraction(physical, at_servers, tmp_path)
    for virtual in LIMITS:
        for name in (f"{virtual}-w-{region}" for region in REGIONS):
            fill(server, name, _rounds(name, MESSAGES_EACH))
        _wait_until(server, virtual, "r", "last_seq", 4 * MESSAGES_EACH)
    _wait_until(server, "aged", "r", "first_seq", 2 * MESSAGES_EACH + 1)
    _wait_until(server, "passed", "w", "first_seq", MESSAGES_EACH + 1)
    uri = uri_of(f"{tmp_path}/tables")
    tables = audit_tables.extract_tables(spark, extraction, tmp_path, uri)
    messages = sorted(tables.messages.collect())
    cached = read_plan(extraction, audit_tables.ExecutorMemory(spark=spark, scratch=tmp_path))
    for same_messages in (
        audit_tables.to_spark(spark, read_in_process(extraction)).messages,
        audit_tables.extract_tables(spark, extraction, tmp_path).messages,
        audit_tables.add_arrivals(cached.messages, cached.arrivals),
    ):
        assert sorted(same_messages.collect()) == messages
    runner = StageRunner(store=TableStore(spark), context=AuditContext(subject="test"))
    report = runner.run(tables.messages, tables.streams).report
    assert sorted((name[:4], *place) for name, *place in errors(report)) == [
        ("lost", "fills-r-east", 1),
        ("lost", "three-r-east", 1),
    ]
    assert not [finding for finding in report.findings if finding.leaves_open]


def _rounds(stream: str, count: int) -> list[tuple[str, bytes, dict[str, str] | None]]:
    return [(f"{stream}.{stream[-4:]}{number % 5}", b"%d" % number, None) for number in range(count)]


def _wait_until(
    server: JetStreamServer, virtual: str, role: str, name: str, least: int, regions: Sequence[str] = REGIONS
) -> None:
    deadline = time.monotonic() + 60
    for region in regions:
        while server.api(f"STREAM.INFO.{virtual}-{role}-{region}")["state"].get(name, 0) < least:
            assert time.monotonic() < deadline
            time.sleep(0.05)


@pytest.fixture
def rolled_up(server: JetStreamServer) -> JetStreamServer:
    """East has rolled up the subject of a message of west, after it in one region, and before it in the other."""
    fill(server, "w-west", [("w-west.k", b"replaced", None), ("w-west.other", b"", None)], allow_rollup_hdrs=True)
    fill(server, "w-east", [("w-east.k", b"new", {"Nats-Rollup": "sub"})], allow_rollup_hdrs=True)
    east, west = sources()
    for region, first, number in (("east", west, 2), ("west", east, 1)):
        config = {"name": f"r-{region}", "allow_direct": True, "allow_rollup_hdrs": True}
        server.api(f"STREAM.CREATE.r-{region}", {**config, "sources": [first]})
        wait_for_last(server, region, number)
        server.api(f"STREAM.UPDATE.r-{region}", {**config, "sources": [east, west]})
        wait_for_last(server, region, 3)
    return server


def wait_for_last(server: JetStreamServer, region: str, seq: int) -> None:
    deadline = time.monotonic() + 60
    while server.api(f"STREAM.INFO.r-{region}")["state"]["last_seq"] < seq:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def age_of_last(info: dict[str, Any]) -> float:
    return (datetime.fromisoformat(info["ts"]) - datetime.fromisoformat(info["state"]["last_ts"])).total_seconds()


def test_what_a_roll_up_removed_in_the_region_that_it_came_to_later_is_not_lost(
    spark: SparkSession, rolled_up: JetStreamServer, tmp_path: Path
) -> None:
    assert [rolled_up.api(f"STREAM.INFO.r-{region}")["state"]["messages"] for region in REGIONS] == [2, 3]
    deadline = time.monotonic() + 60
    # What is so new that it came after the snapshot, if clocks differ, would excuse it, too.
    while age_of_last(rolled_up.api("STREAM.INFO.r-east")) <= stream_snapshots.SKEW_NS / 1e9:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert errors(audit_server(spark, rolled_up, tmp_path)) == []


def test_a_newer_message_of_its_subject_that_is_no_roll_up_does_not_excuse_a_loss(
    spark: SparkSession, rolled_up: JetStreamServer, tmp_path: Path
) -> None:
    rolled_up.api("STREAM.MSG.DELETE.r-west", {"seq": 1})
    fill(rolled_up, "w-east", [("w-east.k", b"newer", None)], allow_rollup_hdrs=True)
    for region in REGIONS:
        wait_for_last(rolled_up, region, 4)
    assert errors(audit_server(spark, rolled_up, tmp_path)) == [("lost-prefix", "r-west", 1)]


def set_clock(monkeypatch: pytest.MonkeyPatch, module: ModuleType, hours: int) -> None:
    """What *module* takes for the time is so many hours ahead of the servers' clocks."""
    monkeypatch.setattr(
        module, "time", SimpleNamespace(time_ns=lambda: time.time_ns() + hours * 3600 * 10**9, monotonic=time.monotonic)
    )


def test_only_what_is_new_is_read_without_a_meta_leader_too(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in ("consumer", "direct"):
        for hours, messages in ((1, 0), (-1, 6 * MESSAGES_EACH)):
            since_ns = time.time_ns() + hours * 3600 * 10**9
            extraction = plan_extraction(streams(), endpoints(filled_server), tmp_path, since_ns=since_ns, path=path)
            scratch = tmp_path / "für tasks"
            rows = sorted(audit_tables.extract_tables(spark, extraction, scratch).messages.collect())
            assert len(rows) == messages
            assert rows == sorted(audit_tables.ExecutorMemory(spark=spark, scratch=scratch).load(extraction).collect())
    # The clock here is wrong, and those of servers are not.
    for wrong in (2, -2):
        set_clock(monkeypatch, extract_plan, wrong)
        since_ns = time.time_ns() + (wrong - 1) * 3600 * 10**9
        extraction = plan_extraction(streams(), endpoints(filled_server), tmp_path, since_ns=since_ns)
        assert audit_tables.extract_tables(spark, extraction, tmp_path).messages.count() == 6 * MESSAGES_EACH


def test_of_a_part_nothing_is_made_up_and_no_limit_explains_what_it_has_not_done(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since_ns = time.time_ns()
    config = {"name": "r-east", "storage": "memory", "allow_direct": True, "sources": sources()}
    # Everything arrives in one region once more, long after it was written.
    filled_server.api("STREAM.DELETE.r-east")
    filled_server.api("STREAM.CREATE.r-east", config)
    wait_for(filled_server, 2 * MESSAGES_EACH)
    # Readers are read from further before the moment on, for their clocks may be behind those of write streams.
    monkeypatch.setattr(stream_snapshots, "MAX_SKEW_NS", 40 * 60 * 10**9)
    in_an_hour_ns = time.time_ns() + 60 * 60 * 10**9
    extraction = plan_extraction(streams(), endpoints(filled_server), tmp_path, since_ns=in_an_hour_ns)
    assert audit_tables.extract_tables(spark, extraction, tmp_path).messages.count() == 2 * 2 * MESSAGES_EACH
    monkeypatch.setattr(stream_snapshots, "MAX_SKEW_NS", 0)
    report = audit_server(spark, filled_server, tmp_path, since_ns=since_ns)
    assert (errors(report), report.messages) == ([], 2 * MESSAGES_EACH)
    # There are older messages: its limit has not taken the first of these.
    filled_server.api("STREAM.UPDATE.r-east", config | {"max_msgs": 1000})
    since_ns = time.time_ns()
    fill_more(filled_server, "west", 7)
    wait_for(filled_server, 2 * MESSAGES_EACH + 7)
    filled_server.api("STREAM.MSG.DELETE.r-east", {"seq": 2 * MESSAGES_EACH + 1})
    assert errors(audit_server(spark, filled_server, tmp_path, since_ns=since_ns)) == [("lost-prefix", "r-east", 1)]


@pytest.fixture(params=with_night([1], [-1]), ids=lambda hours: f"clock {hours} h wrong")
def follower(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    filled_server: JetStreamServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Follower:
    for module in (follow, extract_plan):
        set_clock(monkeypatch, module, request.param)
    context = AuditContext(subject="test", models={"foo": "virtual"})
    return Follower(
        spark=spark, streams=streams(), endpoints=endpoints(filled_server), scratch=tmp_path, context=context
    )


def test_following_reads_what_is_new_and_judges_the_last_minutes(
    filled_server: JetStreamServer, follower: Follower
) -> None:
    first = follower.run_round()
    assert (first.verdict(), first.messages) == (AuditVerdict.PASS, 6 * MESSAGES_EACH)
    fill_more(filled_server, "west", 7)
    wait_for(filled_server, 2 * MESSAGES_EACH + 7)
    filled_server.api("STREAM.MSG.DELETE.r-east", {"seq": 2 * MESSAGES_EACH + 3})
    second = follower.run_round()
    assert second.messages == first.messages + 3 * 7 - 1
    assert errors(second) == [("lost-middle", "r-east", 1)]
    filled_server.api("STREAM.MSG.DELETE.r-west", {"seq": 5})
    assert errors(follower.run_round()) == [("lost-middle", "r-east", 1), ("lost-middle", "r-west", 1)]
    filled_server.stop()
    with pytest.raises(NotReachableError, match="no stream can be read"):
        follower.run_round()


@pytest.mark.night
def test_a_stream_that_is_made_anew_is_followed_from_its_beginning(
    filled_server: JetStreamServer, follower: Follower
) -> None:
    follower.run_round()
    filled_server.api("STREAM.DELETE.r-east")
    with_error = follower.run_round()
    assert (with_error.verdict(), errors(with_error)) == (AuditVerdict.FAIL, [("no-such-stream", "r-east", 1)])
    config = {"name": "r-east", "storage": "memory", "allow_direct": True, "sources": sources()}
    filled_server.api("STREAM.CREATE.r-east", config)
    wait_for(filled_server, 2 * MESSAGES_EACH)
    again = follower.run_round()
    assert (again.verdict(), again.messages) == (AuditVerdict.PASS, 6 * MESSAGES_EACH)


def test_what_a_write_stream_stores_under_sequences_that_it_had_lost_is_read_again(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    """It loses power and its end, and readers skip what it stores next: it is past that end when the next round begins."""
    for name in ("w-east", "w-west"):
        fill(server, name, [(f"{name}.k", b"%d" % n, None) for n in range(MESSAGES_EACH)], storage="file")
    make_readers(server, storage="file")
    wait_for(server, 2 * MESSAGES_EACH)
    store, saved = server.directory / "store" / "jetstream" / "$G" / "streams" / "w-west", tmp_path / "saved"
    server.stop()
    shutil.copytree(store, saved)
    server.start()
    fill_more(server, "west", 7)
    wait_for(server, 2 * MESSAGES_EACH + 7)
    context = AuditContext(subject="test", models={"foo": "virtual"})
    follower = Follower(spark=spark, streams=streams(), endpoints=endpoints(server), scratch=tmp_path, context=context)
    assert errors(follower.run_round()) == []
    server.stop()
    shutil.rmtree(store)
    shutil.copytree(saved, store)
    server.start()
    follower.endpoints = endpoints(server)
    fill(server, "w-west", [("w-west.k", b"other %d" % n, None) for n in range(9)])
    wait_for(server, 2 * MESSAGES_EACH + 9)
    assert errors(follower.run_round()) == errors(audit_server(spark, server, tmp_path)) != []


def test_following_does_not_call_lost_what_newer_messages_replaced(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What earlier rounds have read is gone by now, and more comes and goes between the snapshot and the end of reading."""
    physical = [stream for stream in make_limited(server) if stream.virtual in {"last", "seven", "full", "fills"}]
    virtuals = sorted({stream.virtual for stream in physical})
    number = 2 * MESSAGES_EACH

    def publish() -> None:
        nonlocal number
        number += 2 * MESSAGES_EACH
        for virtual in virtuals:
            for name in (f"{virtual}-w-{region}" for region in REGIONS):
                fill(server, name, _rounds(name, MESSAGES_EACH))
            _wait_until(server, virtual, "r", "last_seq", number)

    def take_snapshots(*args: Any) -> list[ReadSnapshot]:
        snapshots = take_complete_snapshots(*args)
        publish()
        return snapshots

    monkeypatch.setattr(follow, "take_complete_snapshots", take_snapshots)
    at_servers = dict.fromkeys(REGIONS, Endpoint(urls=(server.url,)))
    context = AuditContext(subject="test", models=dict.fromkeys(virtuals, "virtual"))
    follower = Follower(spark=spark, streams=physical, endpoints=at_servers, scratch=tmp_path, context=context)
    for _ in range(2):
        publish()
        assert errors(follower.run_round()) == []
    for virtual in ("last", "fills"):
        reader = f"{virtual}-r-east"
        fill(server, f"{virtual}-w-west", [(f"{virtual}-w-west.{subject}", b"", None) for subject in ("cold", "k")])
        _wait_until(server, virtual, "r", "last_seq", number + 2)
        cold = server.api(f"STREAM.MSG.GET.{reader}", {"last_by_subj": f"{virtual}.cold"})["message"]["seq"]
        server.api(f"STREAM.MSG.DELETE.{reader}", {"seq": cold})
    lost = sorted((name[:4], *place) for name, *place in errors(follower.run_round()))
    assert lost == [("lost", "fills-r-east", 1), ("lost", "last-r-east", 1)]


def fill_more(server: JetStreamServer, region: str, number: int) -> None:
    async def work(_: Any, js: Any) -> None:
        for index in range(number):
            await js.publish(f"w-{region}.k{index % 5}", b"more %d" % index)

    server.run(work)


def judge_tables(spark: SparkSession, uri: str) -> Report:
    with convert_spark_errors():
        tables = audit_tables.read_tables(spark, uri)
        return (
            StageRunner(store=TableStore(spark), context=AuditContext(subject="test"))
            .run(tables.messages, tables.streams)
            .report
        )


def test_a_mirror_has_come_as_far_as_its_last_sequence_whatever_it_holds(spark: SparkSession) -> None:
    """Else what is missing at its end, or all that its limits have removed, is said to be on its way for ever."""

    def stream(name: str, role: str, last_seq: int, **more: Any) -> tuple[Any, ...]:
        stream_ref = StreamRef(stream=name, region=name, virtual="log", role=role)
        return make_stream_row(ReadSnapshot(stream_ref=stream_ref, snapshot_ns=1, last_seq=last_seq, **more))

    rows = [
        stream("w", "write", 9),
        stream("order", "order", 20, sources=(SourceCursor(origin="w", last_seq=8),)),
        stream("there", "read", 20, mirror="order"),
        stream("behind", "read", 19, mirror="order"),
        stream("home", "origin", 30),
        stream("copy", "read", 7, mirror="home"),
        stream("new", "read", 0, mirror="home"),
    ]
    cursor_rows = build_stream_facts(spark.createDataFrame(rows, STREAMS)).expected.collect()
    cursors = {(row.origin, row.stream): row.cursor for row in cursor_rows}
    assert {pair: seq for pair, seq in cursors.items() if seq is not None} == {
        ("w", "order"): 8,
        ("w", "there"): 8,
        ("home", "copy"): 7,
    }
    assert {("w", "behind"), ("home", "new")} < cursors.keys()


@pytest.mark.parametrize(("position", "of_east"), [(4, 4), (None, 4), (5, 5), (None, 5)])
def test_who_has_stored_all_that_came_has_left_nothing_out(
    spark: SparkSession, position: int | None, of_east: int
) -> None:
    """What such a reader lacks was there, and was removed: another message with its id is not why."""

    def stream(name: str, role: str, last_seq: int, **more: Any) -> tuple[Any, ...]:
        stream_ref = StreamRef(stream=name, region=name, virtual="log", role=role)
        return make_stream_row(ReadSnapshot(stream_ref=stream_ref, snapshot_ns=1, last_seq=last_seq, **more))

    # Servers 2.15 do not say of what they dropped last that they came past it.
    sources = (SourceCursor(origin="west", last_seq=position and 5), SourceCursor(origin="east", last_seq=position))
    limits = {"duplicate_window": 100}
    rows = [
        stream("west", "write", 5),
        stream("east", "write", 5),
        stream("reader", "read", 5 + of_east, sources=sources, limits=limits, path="capture"),
    ]
    cursor_rows = build_stream_facts(spark.createDataFrame(rows, STREAMS)).expected.collect()
    assert {(row.origin, row.window) for row in cursor_rows} == {
        (origin, 0 if of_east == 5 else 100) for origin in ("west", "east")
    }


def test_who_has_as_many_messages_as_there_were_may_lack_some(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before 2.15 a server does not say how far a reader is: newer messages make up for one that is on its way."""
    server = JetStreamServer(tmp_path, version="2.12.8")
    server.start()
    take_snapshots = stream_snapshots.take_snapshots
    is_asked = Event()

    def publish_between(refs: Sequence[StreamRef], *args: Any, **more: Any) -> list[ReadSnapshot]:
        snapshots = take_snapshots(refs, *args, **more)
        if refs and is_asked.is_set():
            fill(server, "w-east", [("w-east.more", b"", None)])
        return snapshots

    try:
        make_streams(server)
        # In place of a message that is on its way.
        server.api("STREAM.MSG.DELETE.r-east", {"seq": 2 * MESSAGES_EACH})
        assert [name for name, *_ in errors(audit_server(spark, server, tmp_path))] == ["lost-tail"]
        monkeypatch.setattr(stream_snapshots, "take_snapshots", publish_between)
        is_asked.set()
        report = audit_server(spark, server, tmp_path)
    finally:
        server.stop()
    assert errors(report) == []


def test_what_an_origin_replaced_before_a_reader_came_is_not_expired(spark: SparkSession) -> None:
    """The reader would have removed it for the same newer message; what had no newer one it has missed."""

    def stream(name: str, first: int, last: int, sources: tuple[SourceCursor, ...] = ()) -> tuple[Any, ...]:
        ref = StreamRef(stream=name, region=name, virtual="log", role="read" if sources else "write")
        span: Any = {"first_seq": first, "last_seq": last, "messages": last - first + 1}
        limits = {"max_msgs_per_subject": 1}
        return make_stream_row(ReadSnapshot(stream_ref=ref, snapshot_ns=10**9, **span, limits=limits, sources=sources))

    def message(stream: str, seq: int, subject: str, origin: int | None = None) -> tuple[Any, ...]:
        source = None if origin is None else f"w {origin} w.> log.>"
        role = "write" if origin is None else "read"
        return ("log", stream, stream, role, seq, seq, subject, None, source, None, None, 1, hash(subject))

    streams = [
        stream("w", 4, 4),
        stream("west", 2, 3, (SourceCursor(origin="w", last_seq=3),)),
        stream("east", 1, 1, (SourceCursor(origin="w", last_seq=1),)),
    ]
    # Of all regions, the origin has replaced 3 by 4, and somebody has deleted 2 there.
    messages = [
        message("w", 4, "w.k"),
        message("west", 2, "log.other", 2),
        message("west", 3, "log.k", 3),
        message("east", 1, "log.k", 1),
    ]
    runner = StageRunner(store=TableStore(spark), context=AuditContext(subject="test"))
    tables = spark.createDataFrame(messages, MESSAGES), spark.createDataFrame(streams, STREAMS)
    assert errors(runner.run(*tables).report) == [("expired", "east", 1)]


def without_a_column(messages: DataFrame, streams: DataFrame) -> tuple[DataFrame, DataFrame]:
    return messages.drop("digest"), streams


def of_another_type(messages: DataFrame, streams: DataFrame) -> tuple[DataFrame, DataFrame]:
    return messages.withColumn("seq", F.col("seq").cast("string")), streams


def without_a_value(messages: DataFrame, streams: DataFrame) -> tuple[DataFrame, DataFrame]:
    return messages.withColumn("digest", F.when(F.col("seq") != 3, F.col("digest"))), streams


def without_a_stream(messages: DataFrame, streams: DataFrame) -> tuple[DataFrame, DataFrame]:
    return messages, streams.where("stream != 'foo-read-east'")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without_a_column, "has no column `digest`"),
        (of_another_type, "column `seq` of the table .* is string, not bigint"),
        (without_a_value, "`messages` has a row without `digest`"),
        (without_a_stream, "`messages` has rows of `foo-read-east`, and `streams` does not know it"),
    ],
)
def test_tables_that_somebody_has_changed_are_refused(
    spark: SparkSession,
    tmp_path: Path,
    change: Callable[[DataFrame, DataFrame], tuple[DataFrame, DataFrame]],
    said: str,
) -> None:
    frames_ = audit_tables.to_spark(spark, extract_capture(clean(Shape(messages=5)).write(tmp_path / "capture")))
    uri = (tmp_path / "tables").as_uri()
    audit_tables.write_tables(frames_, uri)
    messages, streams = change(frames_.messages, frames_.streams)
    messages.write.mode("overwrite").parquet(f"{uri}/messages")
    streams.write.mode("overwrite").parquet(f"{uri}/streams")
    with pytest.raises(VstreamError, match=said) as raised:
        judge_tables(spark, uri)
    assert "\n" not in raised.value.message


def test_a_column_more_does_no_harm(spark: SparkSession, tmp_path: Path) -> None:
    frames_ = audit_tables.to_spark(spark, extract_capture(clean(Shape(messages=5)).write(tmp_path / "capture")))
    uri = (tmp_path / "tables").as_uri()
    audit_tables.write_tables(frames_, uri)
    frames_.messages.withColumn("note", F.lit(1)).write.mode("overwrite").parquet(f"{uri}/messages")
    tables = audit_tables.read_tables(spark, uri)
    assert (tables.messages.columns, tables.streams.columns) == (MESSAGES.names, STREAMS.names)
    # One file that ends too early, then all of them: of the last, not even the columns are known.
    files = sorted((tmp_path / "tables" / "messages").glob("part-*.parquet"))
    assert len(files) > 1
    for picked in (files[-1:], files):
        for file in picked:
            with file.open("r+b") as content:
                content.truncate(file.stat().st_size // 2)
            (file.parent / f".{file.name}.crc").unlink(missing_ok=True)
        with pytest.raises(VstreamError, match=r"part-.*\.parquet") as raised:
            judge_tables(spark, uri)
        assert "damaged: extract" in str(raised.value.hint)
        assert "\n" not in raised.value.message


def make_capped(server: JetStreamServer, most: int, planned: int) -> list[RenderedStream]:
    """The streams of `make_streams`, whose read streams keep *most* messages, and should keep so many as *planned*."""
    for region in REGIONS:
        fill(server, f"w-{region}", [(f"w-{region}.k{n % 5}", b"%d" % n, None) for n in range(MESSAGES_EACH)])
    physical = []
    for item in streams():
        fields = dict(item.config.fields)
        if item.role is Role.READ:
            server.api(f"STREAM.CREATE.{item.config.name}", fields | {"storage": "memory", "max_msgs": most})
            fields["max_msgs"] = planned
        physical.append(replace(item, config=StreamConfig(name=item.config.name, fields=fields)))
    for region in REGIONS:
        wait_for_last(server, region, 2 * MESSAGES_EACH)
        if most != planned:
            raised = {"name": f"r-{region}", "storage": "memory", "sources": sources(), "max_msgs": planned}
            server.api(f"STREAM.UPDATE.r-{region}", raised)
    return physical


def judge_capped(
    spark: SparkSession, server: JetStreamServer, physical: list[RenderedStream], scratch: Path
) -> tuple[AuditVerdict, dict[tuple[str, str | None], int]]:
    live = audit_tables.extract_tables(spark, plan_extraction(physical, endpoints(server), scratch), scratch)
    runner = StageRunner(store=TableStore(spark), context=AuditContext(subject="test", models={"foo": "virtual"}))
    report = runner.run(live.messages, live.streams).report
    counts = Counter[tuple[str, str | None]]()
    for finding in report.findings:
        if finding.stream is not None:
            counts[finding.name, finding.stream] += finding.count
    return report.verdict(), dict(counts)


@pytest.mark.parametrize(
    ("purge", "verdict", "lost", "unclear", "removed"),
    [
        (None, AuditVerdict.PASS, 0, 0, 20),
        # Its limit may have been raised from this.
        ({"keep": 10}, AuditVerdict.UNKNOWN, 0, 30, 20),
        ({"seq": 46}, AuditVerdict.UNKNOWN, 0, 25, 20),
        # Every limit leaves one.
        ({}, AuditVerdict.FAIL, 40, 0, 20),
    ],
)
def test_a_limit_of_messages_explains_only_what_is_beyond_it(
    spark: SparkSession,
    server: JetStreamServer,
    tmp_path: Path,
    purge: dict[str, int] | None,
    verdict: AuditVerdict,
    lost: int,
    unclear: int,
    removed: int,
) -> None:
    physical = make_capped(server, 40, 40)
    if purge is not None:
        server.api("STREAM.PURGE.r-east", purge)
    expected = Counter({("removed", f"r-{region}"): removed for region in REGIONS})
    expected += Counter({("lost-prefix", "r-east"): lost, ("removed-early", "r-east"): unclear})
    assert judge_capped(spark, server, physical, tmp_path) == (verdict, dict(expected))


@pytest.mark.parametrize(("raised", "removed"), [(40, 20), (100, 0)])
def test_what_a_smaller_limit_removed_before_it_was_raised_is_not_called_lost(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path, raised: int, removed: int
) -> None:
    physical = make_capped(server, MESSAGES_EACH, raised)
    expected = {("removed-early", f"r-{region}"): MESSAGES_EACH - removed for region in REGIONS}
    expected |= {("removed", f"r-{region}"): removed for region in REGIONS if removed}
    assert judge_capped(spark, server, physical, tmp_path) == (AuditVerdict.UNKNOWN, expected)


def test_who_purges_a_stream_that_never_reached_its_limit_is_found_by_what_another_region_has(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    physical = make_capped(server, 100, 100)
    server.api("STREAM.PURGE.r-east", {"seq": 2})
    assert judge_capped(spark, server, physical, tmp_path) == (AuditVerdict.FAIL, {("lost-prefix", "r-east"): 1})


def test_a_write_stream_that_lacks_what_its_limit_leaves_does_not_pass(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path
) -> None:
    config = filled_server.api("STREAM.INFO.w-east")["config"]
    filled_server.api("STREAM.UPDATE.w-east", config | {"max_msgs": 20})
    filled_server.api("STREAM.PURGE.w-east", {"keep": 5})
    assert judge_capped(spark, filled_server, streams(), tmp_path) == (
        AuditVerdict.UNKNOWN,
        {("removed-early", "w-east"): 15},
    )


def test_a_mirror_made_late_never_had_what_its_stream_had_removed(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    last = 2 * MESSAGES_EACH
    fill(server, "w-east", [("w-east.k", b"%d" % n, None) for n in range(last)])
    mirror = {"storage": "memory", "allow_direct": True, "max_msgs": 50, "mirror": {"name": "w-east"}}
    server.api("STREAM.CREATE.r-east", mirror | {"name": "r-east"})
    wait_for_last(server, "east", last)
    config = server.api("STREAM.INFO.w-east")["config"]
    server.api("STREAM.UPDATE.w-east", config | {"max_msgs": 30})
    server.api("STREAM.CREATE.r-west", mirror | {"name": "r-west"})
    wait_for_last(server, "west", last)
    physical = []
    for role, name, region in ((Role.ORIGIN, "w-east", "east"), *((Role.READ, f"r-{name}", name) for name in REGIONS)):
        fields = server.api(f"STREAM.INFO.{name}")["config"]
        stream = StreamConfig(name=name, fields=fields)
        physical.append(RenderedStream(config=stream, virtual="foo", region=region, role=role, path=""))
    older = {("removed", "r-west"): 20}
    assert judge_capped(spark, server, physical, tmp_path) == (AuditVerdict.PASS, older)
    server.api("STREAM.PURGE.r-west", {"keep": 10})
    assert judge_capped(spark, server, physical, tmp_path) == (
        AuditVerdict.UNKNOWN,
        older | {("removed-early", "r-west"): 20},
    )
