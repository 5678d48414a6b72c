"""The tables of an audit are the same from servers, from a capture, and from what was written down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import BinaryType, StructField, StructType

from tests.support.captures import make_manifest
from tests.support.jetstream import JetStreamServer, fill
from vstream.audit.connector.values import ABSENT, Access
from vstream.audit.extract.extract_plan import plan_extraction
from vstream.audit.extract.extraction import read_in_process
from vstream.audit.extract.from_capture import extract_capture
from vstream.audit.tables import audit_tables
from vstream.audit.tables.schema import MESSAGES, STREAMS
from vstream.capture.digest import digest, to_signed_int64
from vstream.capture.records import CapturedServer, CapturedStream, Sample, StoredRecord
from vstream.capture.store import Capture, RecordWriter
from vstream.errors import NotReachableError, VstreamError
from vstream.topology.bundle import RenderedStream
from vstream.topology.model import Endpoint, Role
from vstream.topology.stream_config import StreamConfig

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def physical(name: str, role: Role, region: str = "west") -> RenderedStream:
    return RenderedStream(
        config=StreamConfig(name=name, fields={"name": name}), virtual="foo", region=region, role=role, path=""
    )


STREAMS_WANTED = (physical("foo-write-west", Role.WRITE), physical("foo-read-west", Role.READ))


@pytest.fixture
def filled_server(server: JetStreamServer) -> JetStreamServer:
    messages: list[tuple[str, bytes, dict[str, str] | None]] = [
        ("foo-write-west.a", b"west-%d rest" % number, {"Nats-Msg-Id": f"i{number}"}) for number in range(60)
    ]
    fill(server, "foo-write-west", messages, max_age=3600 * 10**9)
    server.api(
        "STREAM.CREATE.foo-read-west",
        {
            "name": "foo-read-west",
            "storage": "memory",
            "allow_direct": True,
            "sources": [
                {"name": "foo-write-west", "subject_transforms": [{"src": "foo-write-west.>", "dest": "foo.>"}]}
            ],
        },
    )
    deadline = time.monotonic() + 60
    while server.api("STREAM.INFO.foo-read-west")["state"]["messages"] < 60:
        assert time.monotonic() < deadline
    server.api("STREAM.MSG.DELETE.foo-read-west", {"seq": 7})
    return server


def rows(table: Any) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in table.collect()]


def test_servers_and_what_was_written_down_are_the_same(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path
) -> None:
    stream_refs = (*STREAMS_WANTED, physical("foo-read-east", Role.READ, "east"), physical("gone", Role.READ))
    dead = Endpoint(urls=("nats://127.0.0.1:1",))
    plan = plan_extraction(stream_refs, {"west": Endpoint(urls=(filled_server.url,)), "east": dead}, tmp_path)
    tables = audit_tables.extract_tables(spark, plan, tmp_path)
    assert (tables.messages.schema.simpleString(), tables.streams.schema) == (MESSAGES.simpleString(), STREAMS)
    target = str(tmp_path / "tables")
    audit_tables.extract_tables(spark, plan, tmp_path, target)
    again = audit_tables.read_tables(spark, target)
    order = ["stream", "seq"]
    messages = rows(again.messages.orderBy(order))
    assert messages == rows(tables.messages.orderBy(order))
    assert [(row["stream"], row["seq"]) for row in messages] == [
        *(("foo-read-west", seq) for seq in range(1, 61) if seq != 7),
        *(("foo-write-west", seq) for seq in range(1, 61)),
    ]
    assert messages[0] | {"time_ns": 0, "source": ""} == {
        "virtual": "foo",
        "stream": "foo-read-west",
        "region": "west",
        "role": "read",
        "seq": 1,
        "time_ns": 0,
        "subject": "foo.a",
        "msg_id": "i0",
        "source": "",
        "ttl": None,
        "rollup": None,
        "size": 11,
        "digest": to_signed_int64(digest(b"west-0 rest")),
    }
    assert messages[0]["source"].startswith("foo-write-west 1 ")
    streams = {row["stream"]: row for row in rows(again.streams)}
    asked = {row["stream"]: row for row in rows(tables.streams)}
    assert all(row["snapshot_ns"] < asked[name]["read_at_ns"] < row["read_at_ns"] for name, row in streams.items())
    assert [*map(_without_end, streams.values())] == [_without_end(asked[name]) for name in streams]
    read = streams["foo-read-west"]
    assert (read["first_seq"], read["last_seq"], read["messages"], read["num_deleted"]) == (1, 60, 59, 1)
    assert read["sources"] == [{"origin": "foo-write-west", "last_seq": 60}]
    assert (read["path"], read["error"]) == ("consumer", None)
    assert streams["foo-write-west"]["limits"] == {"max_age": 3600 * 10**9, "duplicate_window": 120 * 10**9}
    assert "no server can be reached" in streams["foo-read-east"]["error"]
    assert streams["gone"]["error"] == ABSENT
    # Once more over the same place, and the half of it is refused.
    audit_tables.write_tables(tables, target)
    assert audit_tables.read_tables(spark, target).messages.count() == audit_tables.count_extracted(Path(target)) == 119
    assert audit_tables.count_extracted(tmp_path / "nothing") is None
    audit_tables._write_state(spark, target, "writing")
    assert audit_tables.count_extracted(Path(target)) is None
    with pytest.raises(VstreamError, match="are incomplete"):
        audit_tables.read_tables(spark, target)
    with pytest.raises(VstreamError, match="holds no tables of an audit"):
        audit_tables.read_tables(spark, str(tmp_path / "nothing"))
    with pytest.raises(NotReachableError, match="no stream can be read"):
        plan_extraction([physical("foo-read-east", Role.READ, "east")], {"east": dead}, tmp_path)
    # What is in the stretch cluster is in no region, and is reached by any that answers.
    wide, endpoints = (
        [physical("foo-read-west", Role.ORDER, "far")],
        {"east": dead, "west": Endpoint(urls=(filled_server.url,))},
    )
    extraction = plan_extraction(wide, endpoints, tmp_path)
    assert extraction.messages == 59
    assert [row["region"] for row in rows(audit_tables.extract_tables(spark, extraction, tmp_path).messages)] == [
        "far"
    ] * 59
    with pytest.raises(NotReachableError, match="no stream can be read"):
        plan_extraction(wide, {"east": dead}, tmp_path)


def test_since_reads_only_messages_stored_after_it(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path
) -> None:
    fill(filled_server, "foo-write-west", [("foo-write-west.a", b"x", None)] * 5)
    endpoints = {"west": Endpoint(urls=(filled_server.url,))}
    now = time.time_ns()
    later = plan_extraction(STREAMS_WANTED, endpoints, tmp_path, since_ns=now + 60 * 10**9)
    assert audit_tables.extract_tables(spark, later, tmp_path).messages.count() == 0
    assert read_in_process(later).messages.num_rows == 0
    earlier = plan_extraction(STREAMS_WANTED, endpoints, tmp_path, since_ns=now - 3600 * 10**9)
    assert audit_tables.extract_tables(spark, earlier, tmp_path).messages.where("role = 'write'").count() == 65


def test_what_is_read_without_spark_is_the_same(
    spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path
) -> None:
    dead = Endpoint(urls=("nats://127.0.0.1:1",))
    streams = [*STREAMS_WANTED, physical("foo-read-east", Role.READ, "east")]
    extraction = plan_extraction(streams, {"west": Endpoint(urls=(filled_server.url,)), "east": dead}, tmp_path)
    by_spark, without_spark = (
        audit_tables.extract_tables(spark, extraction, tmp_path),
        audit_tables.to_spark(spark, read_in_process(extraction)),
    )
    messages = sorted(without_spark.messages.collect())
    assert len(messages) == extraction.messages > 0
    assert messages == sorted(by_spark.messages.collect())
    assert without_spark.messages.schema.simpleString() == by_spark.messages.schema.simpleString()
    both = (without_spark, by_spark)
    first, second = (sorted(map(str, map(_without_end, rows(tables.streams)))) for tables in both)
    assert first == second


def _without_end(stream: dict[str, Any]) -> dict[str, Any]:
    """A row of `streams` without the moment when the messages had been read."""
    return {name: value for name, value in stream.items() if name != "read_at_ns"}


def test_a_capture_has_the_same_tables(spark: SparkSession, filled_server: JetStreamServer, tmp_path: Path) -> None:
    plan = plan_extraction(STREAMS_WANTED, {"west": Endpoint(urls=(filled_server.url,))}, tmp_path)
    with_payload = StructType([*MESSAGES.fields, StructField("payload", BinaryType(), nullable=False)])
    messages = audit_tables.read_live_messages(spark, plan.parts, plan.access, with_payload)
    capture = Capture(tmp_path / "capture")
    counts: dict[str, int] = {}
    for stream in ("foo-write-west", "foo-read-west"):
        lines = RecordWriter(capture.stream_file(stream), StoredRecord)
        for row in messages.where(f"stream = '{stream}'").orderBy("seq").collect():
            counts[stream] = counts.get(stream, 0) + 1
            lines.write(
                StoredRecord(
                    seq=row.seq,
                    time=row.time_ns,
                    subject=row.subject,
                    id=bytes(row.payload).partition(b" ")[0].decode(),
                    msg_id=row.msg_id,
                    source=row.source,
                    origin=None,
                    origin_seq=None,
                    size=row.size,
                    digest=digest(bytes(row.payload)),
                )
            )
        lines.close()
    samples = RecordWriter(capture.path / "samples.jsonl", Sample)
    sourced = {"foo-read-west": {"foo-write-west": 60}}
    samples.write(
        Sample(at=5, region="west", control_plane=1, error=None, last_seq={"foo-read-west": 61}, sourced=sourced)
    )
    samples.close()
    capture.write_manifest(
        make_manifest(
            wall=100,
            servers=(CapturedServer(name="west-1", region="west", cluster="west", version="2.15.1"),),
            streams=(
                CapturedStream(name="foo-write-west", virtual="foo", region="west", role="write", messages=60),
                CapturedStream(name="foo-read-west", virtual="foo", region="west", role="read", messages=59),
                CapturedStream(
                    name="foo-read-east", virtual="foo", region="east", role="read", messages=None, error="gone"
                ),
                CapturedStream(name="snapshot", virtual="foo", region="east", role="read", messages=3),
            ),
        )
    )
    frames_ = audit_tables.to_spark(spark, extract_capture(capture))
    assert rows(frames_.messages.orderBy("stream", "seq")) == rows(messages.drop("payload").orderBy("stream", "seq"))
    streams = {row["stream"]: row for row in rows(frames_.streams)}
    read = streams["foo-read-west"]
    assert (read["first_seq"], read["last_seq"], read["messages"], read["num_deleted"]) == (1, 61, 59, 2)
    assert (read["path"], read["server_version"], read["snapshot_ns"]) == ("capture", "2.15.1", 105)
    assert read["sources"] == [{"origin": "foo-write-west", "last_seq": 60}]
    assert streams["foo-read-east"]["error"] == "gone"
    assert streams["snapshot"]["error"] == "the capture has 0 of its 3 messages"


CLUSTER = """
import json, sys
from pathlib import Path
from tests.audit.tables.test_tables import STREAMS_WANTED
from vstream.audit.spark.session import SMALL_SETTINGS, open_session
from vstream.topology.model import Endpoint
url, scratch = sys.argv[1:]
conf = {**SMALL_SETTINGS, "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
with open_session(master="local-cluster[1,1,1024]", conf=conf) as spark:
    from vstream.audit.tables import audit_tables
    from vstream.audit.extract.extract_plan import plan_extraction
    endpoint = Endpoint(urls=(url,), user="reader", password_env="VSTREAM_READER_PASSWORD")
    tables = audit_tables.extract_tables(spark, plan_extraction(STREAMS_WANTED, {"west": endpoint}, Path(scratch)), Path(scratch))
    shown = tables.messages._jdf.queryExecution().toString()
    print(json.dumps({"count": tables.messages.count(), "shown": shown}))
"""


def test_a_cluster_is_sent_the_source_and_the_secrets(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret-word")
    with JetStreamServer(
        tmp_path,
        more='authorization { users: [{ user: reader, password: "s3cret-word" }] }',
        connection={"user": "reader", "password": "s3cret-word"},
        access=Access(user="reader", password_file=str(secret)),
    ) as server:
        for stream in ("foo-write-west", "foo-read-west"):
            fill(server, stream, [(f"{stream}.a", b"x", None)] * 40)
        scratch, temporary = tmp_path / "scratch", tmp_path / "für Spark"
        scratch.mkdir()
        temporary.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", CLUSTER, server.url, str(scratch)],
            env={
                **os.environ,
                "VSTREAM_READER_PASSWORD": "s3cret-word",
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                # Java reads no such name in this locale, and PySpark would wait for ever for a file below it.
                "LC_ALL": "C",
                "TMPDIR": str(temporary),
            },
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        output = json.loads(done.stdout.splitlines()[-1])
        assert output["count"] == 80
        assert "s3cret-word" not in done.stdout + done.stderr
        assert [file.name for file in scratch.iterdir()] == ["vstream-west-password"]
