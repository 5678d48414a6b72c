"""Streaming queries on a real server: what is removed before it was read is never lost in silence."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery

from tests.support.jetstream import JetStreamServer, fill
from vstream.audit.connector import streaming
from vstream.audit.connector.options import parse_options
from vstream.audit.connector.spark_types import COLUMNS, ReadPartition
from vstream.audit.connector.streaming import JetStreamStreamReader
from vstream.errors import VstreamError

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.xdist_group("spark")]

Offset = dict[str, Any]


def make_messages(count: int) -> list[tuple[str, bytes, dict[str, str] | None]]:
    return [("foo.a", b"%d" % number, None) for number in range(count)]


def follow(server: JetStreamServer, **options: str) -> JetStreamStreamReader:
    return JetStreamStreamReader(COLUMNS, parse_options({"servers": server.url, "stream": "foo", **options}))


def read(reader: JetStreamStreamReader, start: Offset, end: Offset) -> list[int]:
    return [
        seq
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for seq in batch.column("seq").to_pylist()
    ]


def purge(server: JetStreamServer, up_to: int) -> None:
    server.api("STREAM.PURGE.foo", {"seq": up_to + 1})


def test_what_was_removed_between_two_batches_stops_a_query_unless_that_is_accepted(
    server: JetStreamServer, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, "foo", make_messages(30))
    reader, tolerant = follow(server), follow(server, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    assert start["foo"]["seq"] == 10
    purge(server, 10)
    # All of these were read.
    assert read(reader, start, reader.latestOffset(start, ReadAllAvailable())) == list(range(11, 31))
    purge(server, 25)
    end = follow(server).latestOffset(start, ReadAllAvailable())
    with pytest.raises(VstreamError, match="data loss: stream `foo`: 11 to 25 were removed before they were read: 15"):
        follow(server).partitions(start, end)
    # From checkpoints of before, too, whose offsets are numbers.
    with pytest.raises(VstreamError, match="11 to 25 were removed"):
        follow(server).partitions({"foo": 10}, end)
    assert read(tolerant, start, end) == list(range(26, 31))
    assert "messages of stream `foo` are lost to this query: 11 to 25" in caplog.text
    # Nothing is left at all, and nothing new came.
    purge(server, 30)
    with pytest.raises(VstreamError, match="11 to 30 were removed"):
        follow(server).partitions(start, follow(server).latestOffset(start, ReadAllAvailable()))


def test_a_batch_waits_until_enough_is_new_or_its_time_is_over(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, "foo", make_messages(30))
    reader = follow(server, startingOffsets='{"foo": 11}', minOffsetsPerTrigger="25", maxTriggerDelay="60s")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    fill(server, "foo", make_messages(5))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert read(reader, start, end) == list(range(11, 36))
    fill(server, "foo", make_messages(1))
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    later = time.monotonic() + 61
    monkeypatch.setattr(streaming, "time", SimpleNamespace(monotonic=lambda: later))
    assert read(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [36]
    # A query that ends waits for nothing.
    ending = follow(server, minOffsetsPerTrigger="1000")
    ending.prepareForTriggerAvailableNow()
    assert (
        read(ending, ending.initialOffset(), ending.latestOffset(ending.initialOffset(), ReadAllAvailable()))[-1] == 36
    )


def test_what_is_removed_while_a_task_reads_is_a_loss_too(server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(30))
    reader, tolerant = follow(server), follow(server, fail_on_data_loss="false")
    start = reader.initialOffset()
    (partition,) = reader.partitions(start, reader.latestOffset(start))
    (accepted,) = tolerant.partitions(start, tolerant.latestOffset(start))
    purge(server, 20)
    with pytest.raises(VstreamError, match="some of 1 to 20 were removed while they were read"):
        list(reader.read(partition))
    assert sum(batch.num_rows for batch in tolerant.read(accepted)) == 10
    # What was deleted by itself before is no row any more, and of some subjects there is one row in so many.
    server.api("STREAM.MSG.DELETE.foo", {"seq": 22})
    assert read(follow(server), {"foo": 20}, {"foo": 30}) == [21, *range(23, 31)]
    (partial,) = follow(server, subject="foo.b").partitions({"foo": 20}, {"foo": 30})
    assert isinstance(partial, ReadPartition)
    assert not partial.is_whole


def test_a_stream_that_was_made_again_is_another_one(server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(30))
    reader, tolerant = follow(server), follow(server, failOnDataLoss="false")
    start = reader.latestOffset(reader.initialOffset())
    assert tolerant.latestOffset(start) == start
    server.api("STREAM.DELETE.foo")
    with pytest.raises(VstreamError, match="data loss: stream `foo`: it was deleted; 30 was its last sequence"):
        reader.latestOffset(start)
    # Where that is accepted, the stream stays where it is until it is back.
    assert tolerant.latestOffset(start) == start
    fill(server, "foo", make_messages(12))
    end = tolerant.latestOffset(start, ReadMaxRows(5))
    with pytest.raises(
        VstreamError, match=r"deleted and created again at .* old stream after 30 are gone, and the new one has 1 to 12"
    ):
        reader.partitions(start, follow(server).latestOffset(start))
    assert read(tolerant, start, end) == [1, 2, 3, 4, 5]
    assert read(tolerant, end, tolerant.latestOffset(end, ReadMaxRows(50))) == list(range(6, 13))


def test_a_stream_that_went_back_is_noticed(server: JetStreamServer) -> None:
    fill(server, "foo", make_messages(12))
    created = follow(server).initialOffset()["foo"]["created"]
    start: dict[str, Any] = {"foo": {"seq": 30, "created": created}}
    reader = follow(server)
    with pytest.raises(VstreamError, match="it ends at 12, and 30 was read: 13 to 30 were taken back"):
        reader.partitions(start, reader.latestOffset(start))


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def run(
    spark: SparkSession, server: JetStreamServer, checkpoint: str, rows: list[list[int]], **options: Any
) -> StreamingQuery:
    """A query that takes what is there now, and ends."""

    def take(batch: DataFrame, _: int) -> None:
        rows.append(sorted(row.seq for row in batch.select("seq").collect()))

    reader = spark.readStream.format("jetstream").options(servers=server.url, stream="foo", **options)
    writer = reader.load().writeStream.foreachBatch(take).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(240)
    return query


def test_a_query_that_takes_what_is_there_takes_all_of_it_in_batches_and_goes_on_later(
    spark: SparkSession, server: JetStreamServer, checkpoint: str
) -> None:
    fill(server, "foo", make_messages(100))
    rows: list[list[int]] = []
    query = run(spark, server, checkpoint, rows, rows_per_batch=30)
    assert not query.isActive
    assert [len(batch) for batch in rows if batch] == [30, 30, 30, 10]
    assert [seq for batch in rows for seq in batch] == list(range(1, 101))
    progress = [source for entry in query.recentProgress for source in entry["sources"] if source["numInputRows"]]
    latest = [json.loads(source["latestOffset"])["foo"] for source in progress]
    assert [(offset["seq"], offset["behind"]) for offset in latest] == [(100, 70), (100, 40), (100, 10), (100, 0)]
    # Spark has no way for a source in Python to report metrics. Once it has one, lag belongs there.
    assert [dict(source["metrics"]) for source in progress] == [{}] * len(latest)
    # The same checkpoint goes on where it was; what was removed in the meantime stops it.
    fill(server, "foo", make_messages(20))
    rows.clear()
    run(spark, server, checkpoint, rows, rows_per_batch=30)
    assert [seq for batch in rows for seq in batch] == list(range(101, 121))
    fill(server, "foo", make_messages(20))
    purge(server, 130)
    with pytest.raises(StreamingQueryException, match="data loss: stream `foo`: 121 to 130 were removed"):
        run(spark, server, checkpoint, rows)
    rows.clear()
    run(spark, server, checkpoint, rows, failOnDataLoss=False)
    assert [seq for batch in rows for seq in batch] == list(range(131, 141))
