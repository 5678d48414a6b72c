"""Rows into a stream, on a real server: each once, acknowledged, and refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tests.support.jetstream import JetStreamServer, fill
from tests.support.relay import relay
from vstream.audit.connector.options import WriteOptions, parse_write_options
from vstream.audit.connector.writing import OutgoingMessage, convert_rows, publish_messages, require_columns
from vstream.errors import VstreamError

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def read_stored(spark: SparkSession, server: JetStreamServer) -> list[Any]:
    reader = spark.read.format("jetstream").options(servers=server.url, stream="foo", headers=True, payload=True)
    return reader.load().orderBy("seq").collect()


def options(server: JetStreamServer, **more: str) -> WriteOptions:
    return parse_write_options({"servers": server.url, "stream": "foo", "timeout": "2", **more})


def write(rows: DataFrame, server: JetStreamServer, **more: str) -> None:
    rows.write.format("jetstream").options(servers=server.url, stream="foo", **more).mode("append").save()


@pytest.mark.night
def test_rows_become_messages_with_headers_and_ids(spark: SparkSession, server: JetStreamServer) -> None:
    fill(server, "foo", [])
    rows = spark.range(700).selectExpr(
        "concat('foo.', id % 3) as subject",
        "concat('payload ', id) as payload",
        "if(id % 2 = 0, concat('id-', id), null) as msg_id",
        "map('Kind', 'even') as headers",
    )
    write(rows, server)
    messages = read_stored(spark, server)
    assert sorted(bytes(row.payload) for row in messages) == sorted(b"payload %d" % number for number in range(700))
    assert {row.subject for row in messages} == {"foo.0", "foo.1", "foo.2"}
    assert len({row.msg_id for row in messages}) == 700
    assert sum(row.msg_id.startswith("id-") for row in messages) == 350
    assert all(b"Kind: even\r\n" in bytes(row.headers) for row in messages)
    # Those with ids of their own are dropped when they come again; the others are another write.
    write(rows, server)
    assert len(read_stored(spark, server)) == 700 + 350
    with pytest.raises(PySparkException, match="rows are appended to a stream, and replace nothing"):
        rows.write.format("jetstream").options(servers=server.url, stream="foo").mode("overwrite").save()


def test_a_batch_of_a_query_that_comes_again_is_stored_once(
    spark: SparkSession, server: JetStreamServer, tmp_path: Path
) -> None:
    fill(server, "foo", [])
    server.api("STREAM.CREATE.bar", {"name": "bar", "subjects": ["bar"], "storage": "memory"})
    publish_messages(
        parse_write_options({"servers": server.url, "stream": "bar"}),
        convert_rows(iter([pa.record_batch({"payload": [b"%d" % n for n in range(40)]})]), bar_options(server), "x"),
    )
    source = spark.readStream.format("jetstream").options(servers=server.url, stream="bar", payload=True)
    rows = source.load().select("payload")

    def run() -> None:
        query = rows.writeStream.format("jetstream").options(servers=server.url, stream="foo", subject="foo.copy")
        started = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        assert started.awaitTermination(120)
        assert started.exception() is None

    run()
    # As if it was killed after its last batch was acknowledged, and before Spark wrote that down.
    for commit in (tmp_path / "commits").glob("*0*"):
        commit.unlink()
    run()
    assert sorted(bytes(row.payload) for row in read_stored(spark, server)) == sorted(b"%d" % n for n in range(40))


def bar_options(server: JetStreamServer) -> WriteOptions:
    return parse_write_options({"servers": server.url, "stream": "bar", "subject": "bar"})


def outgoing(count: int, subject: str = "foo.a") -> list[OutgoingMessage]:
    return [
        OutgoingMessage(
            f"row {n}", subject, b"NATS/1.0\r\nNats-Msg-Id: %d\r\nNats-Expected-Stream: foo\r\n\r\n" % n, b"x" * 2_000
        )
        for n in range(count)
    ]


def test_what_was_not_acknowledged_is_published_again_and_stored_once(server: JetStreamServer) -> None:
    fill(server, "foo", [])
    broken: list[int] = []

    def snapshot(port: int) -> None:
        if len(broken) < 2 and port not in broken:
            broken.append(port)
            raise OSError

    with relay(server.port, snapshot, much=20_000) as port:
        publish_messages(options(server, servers=f"127.0.0.1:{port}"), iter(outgoing(2_000)))
    assert len(broken) == 2
    assert server.api("STREAM.INFO.foo")["state"]["messages"] == 2_000


def test_a_row_that_the_stream_does_not_store_fails_the_task_with_its_place(server: JetStreamServer) -> None:
    fill(server, "foo", [])
    server.api("STREAM.CREATE.bar", {"name": "bar", "subjects": ["bar"], "storage": "memory"})
    with pytest.raises(VstreamError, match=r"row 0, on `bar`: stream `foo` did not store it"):
        publish_messages(options(server), iter(outgoing(3, "bar")))
    with pytest.raises(VstreamError, match=r"row 0: .* bytes, but the server takes"):
        publish_messages(options(server), iter([OutgoingMessage("row 0", "foo.a", b"", b"x" * 2_000_000)]))


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"subject": "string"}, "there is no column `payload`"),
        ({"payload": "string"}, "set either the column"),
        ({"subject": "string", "payload": "integer"}, "`payload` is binary or string, not int"),
        ({"subject": "string", "payload": "binary", "seq": "long"}, "messages have no column `seq`"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused_on_the_driver(schema: dict[str, str], said: str) -> None:
    columns = StructType()
    for name, kind in schema.items():
        columns.add(name, kind)
    with pytest.raises(VstreamError, match=said):
        require_columns(columns, None)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"subject": "foo.*"}, "is not a subject to publish on"),
        ({"subject": "foo. a"}, "is not a subject to publish on"),
        ({"subject": "foo.a", "msg_id": "a\r\nNats-Rollup: all"}, "has a line break"),
        ({"subject": "foo.a", "headers": b"nonsense"}, "not a block as streams store it"),
    ],
)
def test_a_row_that_is_no_message_is_named(row: dict[str, Any], said: str) -> None:
    batch = pa.RecordBatch.from_pylist([{"payload": b"x", **row}])
    with pytest.raises(VstreamError, match=f"row 0 of q/1/2: .*{said}"):
        list(convert_rows(iter([batch]), parse_write_options({"servers": "x", "stream": "foo"}), "q/1/2"))


def test_options_of_reading_are_refused_where_rows_are_written() -> None:
    with pytest.raises(VstreamError, match="option `start` is only for reading"):
        parse_write_options({"servers": "x", "stream": "foo", "start": "latest"})
    with pytest.raises(VstreamError, match="rows can only be written to one stream"):
        parse_write_options({"servers": "x", "stream": "foo, bar"})
