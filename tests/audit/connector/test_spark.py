"""`spark.read.format("jetstream")`, on a real server: every message once, filters where they belong, secrets nowhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.support.jetstream import JetStreamServer, fill
from tests.support.relay import relay
from vstream.audit.connector import write_archive
from vstream.audit.connector.values import Access
from vstream.capture.digest import digest, to_signed_int64

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.xdist_group("spark")]
PASSWORD = "correct horse battery staple"


def make_messages(count: int, start: int = 0) -> list[tuple[str, bytes, dict[str, str] | None]]:
    return [
        (f"foo.{number % 5}.x", b"payload %d" % number, {"Nats-Msg-Id": f"id-{number}"} if number % 2 else None)
        for number in range(start, start + count)
    ]


def frame(spark: SparkSession, server: JetStreamServer, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("jetstream").options(servers=server.url, stream="foo", timeout=5, **options)
    return (reader.schema(schema) if schema else reader).load()


@pytest.mark.parametrize("read_by", ["auto", "direct"])
def test_a_stream_is_a_table(spark: SparkSession, server: JetStreamServer, read_by: str) -> None:
    fill(server, "foo", make_messages(300))
    table = frame(spark, server, read_by=read_by, region="west", payload=True, headers=True, rows_per_task=100)
    rows = table.orderBy("seq").collect()
    assert [row.payload for row in rows] == [payload for _, payload, _ in make_messages(300)]
    assert [row.msg_id for row in rows] == [f"id-{number}" if number % 2 else None for number in range(300)]
    assert [row.subject for row in rows] == [subject for subject, _, _ in make_messages(300)]
    assert [row.seq for row in rows] == list(range(1, 301))
    assert {(row.stream, row.region, row.source) for row in rows} == {("foo", "west", None)}
    assert bytes(rows[1].headers) == b"NATS/1.0\r\nNats-Msg-Id: id-1\r\n\r\n"
    assert rows[0].headers is None
    assert rows[7].size == 9
    assert all(abs(row.time.timestamp() - row.time_ns / 1e9) < 1e-5 for row in rows)
    assert table.rdd.getNumPartitions() == 3


ALONE = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
from vstream.audit.spark import java
from vstream.audit.spark.session import SMALL_SETTINGS
from vstream.audit.connector import register
java.set_java_home(Path(sys.argv[1]))
conf = SMALL_SETTINGS | {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
register(spark)
print(spark.read.format("jetstream").options(servers=sys.argv[2], stream="foo").load().count())
"""


@pytest.mark.night
def test_executors_use_this_python_whatever_is_on_the_path(server: JetStreamServer, tmp_path: Path) -> None:
    """As of a virtual environment that was not activated, in a session that anybody makes."""
    fill(server, "foo", make_messages(7))
    other_file = tmp_path / "bin" / "python3"
    other_file.parent.mkdir()
    other_file.write_text("#!/bin/sh\necho this one has no vstream >&2\nexit 1\n")
    other_file.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    done = subprocess.run(
        [sys.executable, "-c", ALONE, str(tmp_path), server.url],
        env=environment | {"PATH": f"{other_file.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout.split()) == (0, ["7"]), done.stderr[-3000:]


def test_a_stream_is_named_as_spark_names_what_it_loads(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(5))
    assert spark.read.format("jetstream").option("servers", server.url).load("foo").count() == 5
    spark.sql(f"CREATE TABLE of_foo USING jetstream OPTIONS (servers '{server.url}', stream 'foo')")
    try:
        assert spark.sql("SELECT max(seq) AS last FROM of_foo WHERE seq > 2").collect()[0].last == 5
    finally:
        spark.sql("DROP TABLE of_foo")
    spark.sql(f"CREATE TEMPORARY VIEW view_of_foo USING jetstream OPTIONS (servers '{server.url}', stream 'foo')")
    assert spark.table("view_of_foo").count() == 5


def test_sql_inserts_into_a_table_with_the_columns_of_a_message(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", [])
    options = f"servers '{server.url}', stream 'foo', columns 'subject, payload, msg_id'"
    spark.sql(f"CREATE TABLE into_foo USING jetstream OPTIONS ({options})")
    try:
        spark.sql("INSERT INTO into_foo (subject, payload) VALUES ('foo.a', CAST('one' AS BINARY))")
        spark.sql("INSERT INTO into_foo SELECT 'foo.b', CAST(CAST(id AS STRING) AS BINARY), 'id' FROM range(7, 8)")
        rows = {(row.subject, bytes(row.payload)): row.msg_id for row in spark.table("into_foo").collect()}
        assert "/0/" in rows.pop(("foo.a", b"one"))  # derived, as none is given
        assert rows == {("foo.b", b"7"): "id"}
        with pytest.raises(PySparkException, match="rows are appended to a stream, and replace nothing"):
            spark.sql("INSERT OVERWRITE into_foo SELECT 'foo.b', CAST('x' AS BINARY), 'other'")
    finally:
        spark.sql("DROP TABLE into_foo")


@pytest.mark.parametrize("read_by", ["consumer", "direct"])
def test_the_digest_is_the_one_that_spark_makes(spark: SparkSession, server: JetStreamServer, read_by: str) -> None:
    # Of all lengths that are hashed in another way: below 4, 8 and 32 bytes, and rests of these.
    payloads = [bytes(range(256))[:length] for length in range(100)] + [b"\xff" * 5_000]
    fill(server, "foo", [("foo.x", payload, None) for payload in payloads])
    table = frame(spark, server, read_by=read_by, payload=True).selectExpr(
        "seq", "digest", "xxhash64(payload) as theirs"
    )
    rows = sorted(tuple(row) for row in table.collect())
    assert rows == [
        (seq, payload, payload)
        for seq, payload in enumerate([to_signed_int64(digest(payload)) for payload in payloads], 1)
    ]
    assert len({stored_digest for _, stored_digest, _ in rows}) == len(payloads)


def test_only_columns_that_are_asked_for_are_read(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(10))
    assert [tuple(row) for row in frame(spark, server, "payload binary, seq bigint").limit(1).collect()] == [
        (b"payload 0", 1)
    ]
    with pytest.raises(PySparkException, match="there is no column `sequence` of type bigint"):
        frame(spark, server, "sequence bigint").collect()


def test_an_empty_stream_is_an_empty_table(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", [])
    assert frame(spark, server).collect() == []


def test_filters_narrow_what_is_asked_for(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(400))
    plain = {tuple(row) for row in frame(spark, server).collect()}
    middle = next(row for row in plain if row[2] == 200)[4]
    conditions = {
        "seq > 10 and seq <= 20": 10,
        "seq > 500": 0,
        "subject in ('foo.1.x', 'foo.2.x')": 160,
        "subject like 'foo.3.%' and seq < 100": 20,
        "subject like '%.3.x'": 80,
        f"time_ns < {middle}": 199,
        f"time_ns = {middle}": 1,
        "msg_id = 'id-3' and stream = 'foo'": 1,
        "stream = 'bar'": 0,
    }
    for condition, count in conditions.items():
        rows = {tuple(row) for row in frame(spark, server, pushdown=True).where(condition).collect()}
        assert len(rows) == count, condition
        assert rows <= plain
    # Sequences are exact, so that Spark does not filter once more; and tasks are as small as what is left.
    narrow = frame(spark, server, pushdown=True, rows_per_task=5).where("seq > 10 and seq <= 20")
    assert "Filter (" not in narrow._jdf.queryExecution().executedPlan().toString()
    assert narrow.rdd.getNumPartitions() == 2


def test_a_frame_that_is_used_twice_is_right_both_times(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(50))
    rows = frame(spark, server)
    assert rows.where("seq <= 10").count() == 10
    assert rows.count() == 50
    assert rows.where("seq <= 10").union(rows.where("seq > 45")).count() == 15


def test_spark_keeps_filters_of_earlier_uses(spark: SparkSession, server: JetStreamServer) -> None:
    """Why `pushdown` is off unless somebody asks for it. When this fails, Spark has been corrected: turn it on."""
    fill(server, "foo", make_messages(50))
    rows = frame(spark, server, pushdown=True)
    assert rows.where("seq <= 10").count() == 10
    assert rows.count() == 10


def test_a_reader_that_is_killed_is_replaced_and_no_row_comes_twice(
    spark: SparkSession, server: JetStreamServer
) -> None:
    fill(server, "foo", [("foo.a", b"%d" % number + b"x" * 400, None) for number in range(30_000)], storage="file")
    killed: list[int] = []

    def kill(port: int) -> None:
        if killed:
            return
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):
                if any(
                    net_connection.laddr.port == port
                    for net_connection in process.net_connections()
                    if net_connection.laddr
                ):
                    killed.append(process.pid)
                    process.kill()

    with relay(server.port, kill) as port:
        reader = spark.read.format("jetstream").options(servers=f"127.0.0.1:{port}", stream="foo", timeout=5)
        rows = reader.option("rows_per_task", 10_000).load().select("seq").collect()
    assert killed
    assert sorted(row.seq for row in rows) == list(range(1, 30_001))


def test_a_query_follows_a_stream_and_starts_again_where_it_was(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "foo", make_messages(100))
    # A batch whose end was not written down when the query stopped comes again, as the same batch.
    batches: dict[int, list[int]] = {}

    def take(batch: DataFrame, number: int) -> None:
        batches[number] = sorted(row.seq for row in batch.collect())

    def collect_seqs() -> list[int]:
        return [seq for _, rows in sorted(batches.items()) for seq in rows]

    def run() -> None:
        reader = spark.readStream.format("jetstream").options(servers=server.url, stream="foo", rows_per_batch=70)
        query = (
            reader.load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="0 seconds")
            .start()
        )
        try:
            deadline = time.monotonic() + 120
            while len(collect_seqs()) < expected:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        finally:
            query.stop()

    expected = 100
    run()
    fill(server, "foo", make_messages(50, 100))
    expected = 150
    run()
    assert collect_seqs() == list(range(1, 151))


def test_secrets_are_in_no_plan_no_event_and_no_log(
    spark: SparkSession, tmp_path: Path, event_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "password"
    secret.write_text(PASSWORD + "\n")
    with JetStreamServer(
        tmp_path,
        more=f'authorization {{ users: [{{ user: reader, password: "{PASSWORD}" }}] }}',
        connection={"user": "reader", "password": PASSWORD},
        access=Access(user="reader", password_file=str(secret)),
    ) as server:
        fill(server, "foo", make_messages(20))
        rows = frame(spark, server, user="reader", password_file=str(secret))
        assert rows.count() == 20
        shown = rows._jdf.queryExecution().toString()
        assert "jetstream" in shown
        assert PASSWORD not in shown
        with pytest.raises(PySparkException) as refused:
            frame(spark, server, user="reader", password_file=str(tmp_path / "server.conf")).count()
        assert "refuses the connection" in str(refused.value)
        assert PASSWORD not in str(refused.value)
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    events = "".join(file.read_text() for file in event_log.rglob("*") if file.is_file())
    assert "BatchScan jetstream" in events
    assert PASSWORD not in events
    logs = list(Path(spark.conf.get("spark.local.dir") or "").glob("spark.log"))
    assert logs
    assert PASSWORD not in logs[0].read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"password": PASSWORD}, "the secret in option `password` would appear in plans and logs"),
        ({"servers": f"nats://a:{PASSWORD}@127.0.0.1"}, "a password in an address would appear in plans"),
        ({"strem": "x"}, "there is no option `strem`"),
        ({"read_by": "snapshot"}, "option `read_by` must be one of auto, consumer, direct, not `snapshot`"),
        (
            {"path": "snapshot"},
            "To choose how streams are read, set `read_by` to consumer or direct (no longer snapshot)",
        ),
        ({"since": "yesterday"}, "option `since` must be a time such as"),
    ],
)
def test_options_that_are_wrong_are_refused_without_a_secret(
    spark: SparkSession, options: dict[str, str], said: str
) -> None:
    settings = {"servers": "nats://127.0.0.1:1", "stream": "foo", **options}
    with pytest.raises(PySparkException) as refused:
        spark.read.format("jetstream").options(**settings).load().count()
    assert said in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_executors_need_nothing_but_the_archive(tmp_path: Path) -> None:
    """The archive alone, without this checkout on the path, can be imported where pyspark and pyarrow are."""
    path = write_archive(tmp_path)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules.update(pydantic=None, nats=None, rich=None, typer=None);"
        "import importlib, pkgutil, vstream.audit.connector as one; print(one.__file__);"
        "[importlib.import_module(f'{one.__name__}.{module.name}') for module in pkgutil.iter_modules(one.__path__)]"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, str(path)], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(path))


def test_interrupting_a_read_leaves_no_worker(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", [("foo.a", b"x" * 200, None)] * 50_000)
    assert len(frame(spark, server).limit(5).collect()) == 5
    deadline = time.monotonic() + 60
    while server.api("CONSUMER.NAMES.foo")["consumers"]:
        assert time.monotonic() < deadline
