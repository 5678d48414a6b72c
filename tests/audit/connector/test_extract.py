"""Reading streams in bulk, on real servers: every stored message once, as an ordinary client sees it, whatever happens."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from nats.aio.client import Client
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.client import JetStreamContext

from tests.support.fuzzing_proxy import Change, FuzzingProxy
from tests.support.jetstream import JetStreamServer, fill, make_restricted_server
from tests.support.night import with_night
from tests.support.relay import relay
from vstream.audit.connector import direct_get, pull_consumer, stream_snapshots
from vstream.audit.connector import reading as source_reading
from vstream.audit.connector.client import connect
from vstream.audit.connector.columns import MessageColumns
from vstream.audit.connector.reading import read_range
from vstream.audit.connector.values import (
    ABSENT,
    CONSUMER,
    DIRECT,
    PATHS,
    Access,
    ReadSnapshot,
    ReadTask,
    SourceCursor,
    StreamRef,
    split_tasks,
)
from vstream.capture.digest import digest, to_signed_int64
from vstream.errors import MalformedAnswerError, NoRespondersError, NotPermittedError, NotReachableError, VstreamError

pytestmark = [pytest.mark.server]
VERSIONS = with_night(["2.10.26", "2.15.1"], ["2.11.11", "2.12.8", "2.14.6"])
SCHEMA = pa.schema(
    [
        pa.field("seq", pa.int64()),
        pa.field("time_ns", pa.int64()),
        pa.field("subject", pa.string()),
        pa.field("msg_id", pa.string()),
        pa.field("source", pa.string()),
        pa.field("size", pa.int32()),
        pa.field("digest", pa.int64()),
        pa.field("payload", pa.binary()),
    ]
)


def some(count: int, seed: int = 0) -> list[tuple[str, bytes, dict[str, str] | None]]:
    choose = random.Random(seed)
    return [
        (
            f"foo.{choose.randrange(9)}.x",
            choose.randbytes(choose.choice([0, 1, 10, 200, 3000])),
            choose.choice([None, {"Nats-Msg-Id": f"id-{number}"}, {"X": "y", "Nats-Msg-Id": f"id-{number}"}]),
        )
        for number in range(count)
    ]


def make_refs(*streams: str) -> list[StreamRef]:
    return [StreamRef(stream=stream, region="", virtual=stream, role="read") for stream in streams]


def snapshot_of(server: JetStreamServer, stream: str, path: str | None = None) -> ReadSnapshot:
    snapshot = stream_snapshots.take_snapshots(make_refs(stream), {"": Access(servers=(server.url,))}, path=path)[0]
    assert snapshot.error is None, snapshot.error
    return snapshot


def rows(
    server: JetStreamServer, stream: str, path: str | None = None, *, pieces: int = 3, subjects: tuple[str, ...] = ()
) -> list[dict[str, Any]]:
    snapshot = snapshot_of(server, stream, path)
    access = {"": Access(servers=(server.url,), timeout=30)}
    tasks = split_tasks([snapshot], access, rows=max(1, snapshot.messages // pieces), subjects=subjects)
    return [row for task in tasks for row in rows_of(task)]


def rows_of(task: ReadTask) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = []
    for batch in read_range(task, SCHEMA):
        result += batch.to_pylist()
    return result


def reference(server: JetStreamServer, stream: str) -> list[dict[str, Any]]:
    """What an ordinary client reads, message by message."""

    async def work(_: Client, context: JetStreamContext) -> list[dict[str, Any]]:
        info = await context.stream_info(stream)
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        subscription = await context.subscribe("", stream=stream, config=config)
        result = []
        for _number in range(info.state.messages):
            message = await subscription.next_msg(timeout=30)
            headers = message.headers or {}
            tokens = message.reply.split(".")
            result.append(
                {
                    "seq": message.metadata.sequence.stream,
                    "time_ns": int(tokens[-2]),
                    "subject": message.subject,
                    "msg_id": headers.get("Nats-Msg-Id"),
                    "source": headers.get("Nats-Stream-Source"),
                    "size": len(message.data),
                    "digest": to_signed_int64(digest(message.data)),
                    "payload": message.data,
                }
            )
        return result

    return server.run(work)


@pytest.mark.versions
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_gives_what_an_ordinary_client_reads(version: str, tmp_path: Path) -> None:
    with JetStreamServer(tmp_path, version=version) as server:
        fill(server, "foo", some(400))
        server.api(
            "STREAM.CREATE.bar",
            {
                "name": "bar",
                "storage": "memory",
                "allow_direct": True,
                "sources": [{"name": "foo", "subject_transforms": [{"src": "foo.>", "dest": ">"}]}],
            },
        )
        deadline = time.monotonic() + 60
        while server.api("STREAM.INFO.bar")["state"]["messages"] < 400:
            assert time.monotonic() < deadline
        for stream in ("foo", "bar"):
            expected = reference(server, stream)
            assert len(expected) == 400
            assert rows(server, stream, CONSUMER) == expected
            if version.startswith("2.10"):
                snapshot = stream_snapshots.take_snapshots(
                    make_refs(stream), {"": Access(servers=(server.url,))}, path=DIRECT
                )[0]
                assert snapshot.error == "Direct Get has no batches in nats-server 2.10.26"
            else:
                assert rows(server, stream, DIRECT) == expected
        sources = snapshot_of(server, "bar").sources
        assert [(source.origin, source.last_seq) for source in sources] == [
            ("foo", 400 if version == "2.15.1" else None)
        ]


@pytest.mark.parametrize("path", PATHS)
def test_deleted_purged_and_compacted_messages_are_absent_and_nothing_else(server: JetStreamServer, path: str) -> None:
    fill(server, "foo", some(600), max_msgs_per_subject=40)
    server.api("STREAM.PURGE.foo", {"filter": "foo.3.x"})
    state = server.api("STREAM.INFO.foo")["state"]
    for seq in range(state["last_seq"] - 20, state["last_seq"] + 1):
        server.api("STREAM.MSG.DELETE.foo", {"seq": seq}) if server_has(server, seq) else None
    expected = reference(server, "foo")
    assert 0 < len(expected) < 400
    assert expected[-1]["seq"] < server.api("STREAM.INFO.foo")["state"]["last_seq"]
    assert rows(server, "foo", path, pieces=7) == expected


def server_has(server: JetStreamServer, seq: int) -> bool:
    try:
        server.api("STREAM.MSG.GET.foo", {"seq": seq})
    except AssertionError:
        return False
    return True


@pytest.mark.parametrize("path", PATHS)
def test_empty_and_emptied_streams_have_no_rows(server: JetStreamServer, path: str) -> None:
    fill(server, "foo", [])
    assert rows(server, "foo", path) == []
    fill(server, "bar", [("bar.a", b"x", None)] * 5)
    before = snapshot_of(server, "bar", path)
    server.api("STREAM.PURGE.bar")
    assert rows(server, "bar", path) == []
    # What was there when the snapshot was made, and is not any more.
    tasks = split_tasks([before], {"": Access(servers=(server.url,), timeout=30)}, rows=2)
    assert len(tasks) == 3
    assert [rows_of(task) for task in tasks] == [[]] * len(tasks)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_behind_the_snapshot_is_read(server: JetStreamServer, path: str) -> None:
    fill(server, "foo", some(50))
    before = snapshot_of(server, "foo", path)
    fill(server, "foo", some(500, seed=1))
    tasks = split_tasks([before], {"": Access(servers=(server.url,))}, rows=20)
    assert [row["seq"] for task in tasks for row in rows_of(task)] == list(range(1, 51))


def test_a_limit_of_the_server_for_one_request_is_kept(tmp_path: Path) -> None:
    limited = f'jetstream {{ store_dir: "{tmp_path / "store"}", limits {{ max_request_batch: 7 }} }}'
    with JetStreamServer(tmp_path, more=limited) as server:
        fill(server, "foo", [("foo.x", b"%d" % number, None) for number in range(100)])
        assert [row["seq"] for row in rows(server, "foo", "consumer")] == list(range(1, 101))


@pytest.mark.parametrize("path", ["consumer", "direct"])
def test_servers_are_not_asked_for_what_is_behind_a_range(server: JetStreamServer, path: str) -> None:
    fill(server, "foo", [("foo.x", b"%0200d" % number, None) for number in range(30_000)])
    much: list[int] = []
    with relay(server.port, much.append) as port:
        access = Access(servers=(f"nats://127.0.0.1:{port}",), timeout=5)
        tasks = split_tasks([snapshot_of(server, "foo", path)], {"": access}, rows=1_000)
        assert [row["seq"] for row in rows_of(tasks[3])] == list(range(3_001, 4_001))
    assert not much, "more than a MiB for a thousand messages of 200 bytes"


@pytest.mark.parametrize("path", ["consumer", "direct"])
def test_a_connection_that_never_lasts_leads_on(server: JetStreamServer, path: str) -> None:
    fill(server, "foo", [("foo.x", b"%01000d" % number, None) for number in range(12_000)])

    def cut_it(_: int) -> None:
        raise ConnectionResetError

    with relay(server.port, cut_it) as port:
        access = Access(servers=(f"nats://127.0.0.1:{port}",), timeout=5)
        task = split_tasks([snapshot_of(server, "foo", path)], {"": access}, rows=10**6)[0]
        assert [row["seq"] for row in rows_of(task)] == list(range(1, 12_001))


def test_a_message_that_is_lost_in_an_answer_of_direct_get_is_read_again(server: JetStreamServer) -> None:
    """Also the first of an answer, before which no gap shows: the message that was asked for may not be stored any more."""
    fill(server, "foo", some(6))
    for seq in (1, 4):
        server.api("STREAM.MSG.DELETE.foo", {"seq": seq})
    snapshot, expected = snapshot_of(server, "foo", DIRECT), reference(server, "foo")
    with FuzzingProxy().running() as proxy:
        access = {"": Access(servers=(f"nats://127.0.0.1:{proxy.lead_to(server.port)}",), timeout=1)}
        for ordinal in range(1, 7):
            session = proxy.start_session(Change(kind="DIRECT.GET", ordinal=ordinal, damage="silent", seed=ordinal))
            result = [row for task in split_tasks([snapshot], access, rows=2) for row in rows_of(task)]
            assert session.changed
            assert [row["seq"] for row in result] == [row["seq"] for row in expected]


def test_a_stream_of_which_no_consumer_can_be_made_is_read_by_direct_get(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk of its servers is full: CONSUMER.CREATE gets no answer."""
    fill(server, "foo", some(300))

    def make_none(*_: object) -> Iterator[object]:
        raise NotReachableError("no answer within 10 s on `CONSUMER.CREATE`")
        yield

    monkeypatch.setitem(source_reading._PARTS, CONSUMER, make_none)
    assert rows(server, "foo", CONSUMER) == reference(server, "foo")


@pytest.mark.parametrize("path", PATHS)
def test_large_messages_are_read_and_handed_on_a_few_at_a_time(tmp_path: Path, path: str) -> None:
    with JetStreamServer(tmp_path, more="max_payload: 8MB") as server:
        payload = random.Random(0).randbytes(4_000_000)
        fill(server, "foo", [("foo.x", payload, None)] * 30, storage="file")
        (task,) = split_tasks(
            [snapshot_of(server, "foo", path)], {"": Access(servers=(server.url,), timeout=30)}, rows=10**6
        )
        batches = list(read_range(task, SCHEMA))
        assert [seq for batch in batches for seq in batch["seq"].to_pylist()] == list(range(1, 31))
        assert {stored_digest for batch in batches for stored_digest in batch["digest"].to_pylist()} == {
            to_signed_int64(digest(payload))
        }
        assert all(batch.num_rows < 20 for batch in batches)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("subjects", [("foo.1.*",), ("foo.2.x", "foo.5.>"), ("foo.77.>",)])
def test_only_the_subjects_that_are_wanted_are_read(
    server: JetStreamServer, path: str, subjects: tuple[str, ...]
) -> None:
    fill(server, "foo", some(300))
    selected = {subject.replace("*", "x").replace(">", "x") for subject in subjects}
    expected = [row for row in reference(server, "foo") if row["subject"] in selected]
    assert rows(server, "foo", path, subjects=subjects) == expected


def test_consumers_are_removed_also_when_nobody_reads_to_the_end(server: JetStreamServer) -> None:
    fill(server, "foo", [("foo.a", b"x" * 100, None)] * (2 * pull_consumer.PIECE_ROWS))
    snapshot = snapshot_of(server, "foo")
    reading = read_range(split_tasks([snapshot], {"": Access(servers=(server.url,))}, rows=10**6)[0], SCHEMA)
    assert next(reading).num_rows >= pull_consumer.PIECE_ROWS
    assert [
        name.startswith(pull_consumer.CONSUMER_PREFIX) for name in server.api("CONSUMER.NAMES.foo")["consumers"]
    ] == [True]
    reading.close()  # type: ignore[attr-defined]  # a generator
    # Well before the server would do it by itself.
    deadline = time.monotonic() + 60
    while server.api("CONSUMER.NAMES.foo")["consumers"]:
        assert time.monotonic() < deadline


def test_whoever_reads_no_further_is_not_told_that_consumers_may_not_be_removed(tmp_path: Path) -> None:
    """It came out of a generator that nobody holds any more, as a traceback."""
    with make_restricted_server(tmp_path, "$JS.API.CONSUMER.DELETE.>") as server:
        fill(server, "foo", [("foo.a", b"x" * 100, None)] * (2 * pull_consumer.PIECE_ROWS))
        task = split_tasks([snapshot_of(server, "foo")], {"": Access(servers=(server.url,))}, rows=10**6)[0]
        reading = read_range(task, SCHEMA)
        assert next(reading).num_rows >= pull_consumer.PIECE_ROWS
        reading.close()  # type: ignore[attr-defined]  # a generator
        with pytest.raises(NotPermittedError, match=r"CONSUMER\.DELETE"):
            list(read_range(task, SCHEMA))


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("number", [9, 15])
def test_a_server_that_dies_and_returns_costs_no_message_and_doubles_none(
    tmp_path: Path, path: str, number: int
) -> None:
    with JetStreamServer(tmp_path) as server:
        fill(server, "foo", [("foo.a", b"%d" % count + b"x" * 300, None) for count in range(40_000)], storage="file")
        (task,) = split_tasks(
            [snapshot_of(server, "foo", path)], {"": Access(servers=(server.url,), timeout=30)}, rows=10**6
        )
        reading = read_range(task, SCHEMA)
        seqs = next(reading)["seq"].to_pylist()
        server.stop(number)
        # The reader may have all it needs without the server, so its start is waited for here.
        with ThreadPoolExecutor() as executor:
            returned = executor.submit(server.start)
            for batch in reading:
                seqs += batch["seq"].to_pylist()
        returned.result()
        assert seqs == list(range(1, 40_001))


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_a_stream_that_reading_would_empty_is_read_without_a_consumer(server: JetStreamServer, retention: str) -> None:
    fill(server, "foo", [], retention=retention)
    if retention == "interest":
        server.api(
            "CONSUMER.DURABLE.CREATE.foo.keeper",
            {"stream_name": "foo", "config": {"durable_name": "keeper", "ack_policy": "explicit"}},
        )
    fill(server, "foo", some(30), retention=retention)
    assert snapshot_of(server, "foo").path == DIRECT
    assert len(rows(server, "foo")) == 30
    assert server.api("STREAM.INFO.foo")["state"]["messages"] == 30
    refused = stream_snapshots.take_snapshots(make_refs("foo"), {"": Access(servers=(server.url,))}, path=CONSUMER)[0]
    assert refused.error == f"reading by a consumer would remove messages: its retention is {retention}"


def test_a_mirror_that_answers_for_a_stream_does_not_stand_in_for_it(server: JetStreamServer) -> None:
    fill(server, "foo", some(100))
    mirror = {"name": "foo", "filter_subject": "foo.1.x"}
    body = {"name": "copy", "storage": "memory", "mirror": mirror, "mirror_direct": True, "allow_direct": True}
    server.api("STREAM.CREATE.copy", body)
    assert rows(server, "foo", DIRECT) == reference(server, "foo")


def test_what_cannot_be_read_says_why(server: JetStreamServer) -> None:
    fill(server, "foo", some(3), allow_direct=False, max_msgs_per_subject=-1)
    access = {"": Access(servers=(server.url,), timeout=2)}
    assert stream_snapshots.take_snapshots(make_refs("foo"), access, path=DIRECT)[0].error == "its allow_direct is off"
    assert stream_snapshots.take_snapshots(make_refs("missing"), access)[0].error == ABSENT
    task = replace(split_tasks([snapshot_of(server, "foo")], access, rows=10)[0], path=DIRECT)
    with pytest.raises(NoRespondersError, match="no copy of stream `foo` answers Direct Get"):
        rows_of(task)
    server.stop()
    gone = stream_snapshots.take_snapshots(make_refs("foo"), access)[0]
    assert gone.error is not None
    assert "no server can be reached" in gone.error
    with pytest.raises(NotReachableError, match="stream `foo` in region `` cannot be read beyond 0 up to 3"):
        rows_of(task)


def test_a_value_of_another_type_is_why_a_stream_cannot_be_read(server: JetStreamServer) -> None:
    fill(server, "foo", some(3))
    with FuzzingProxy().running() as proxy:
        access = {"": Access(servers=(f"nats://127.0.0.1:{proxy.lead_to(server.port)}",))}
        errors = set()
        for seed in range(40):
            proxy.start_session(Change(kind="STREAM.INFO", ordinal=1, damage="wrong type", seed=seed))
            errors.add(stream_snapshots.take_snapshots(make_refs("foo"), access)[0].error)
    assert len(errors) > 1
    assert all(error is None or "STREAM.INFO.foo" in error for error in errors), errors


def test_a_sequence_that_is_no_number_is_a_malformed_answer() -> None:
    columns = MessageColumns(wants_digest=False, subjects=[b"foo.x"], seqs=[b"x"], times=[b"1"], payloads=[b""])
    for name in ("msg_ids", "sources", "ttls", "headers"):
        getattr(columns, name).append(None)
    with pytest.raises(MalformedAnswerError):
        columns.block()


def test_the_snapshot_of_write_streams_comes_first(server: JetStreamServer) -> None:
    fill(server, "w", [])
    fill(server, "r", [])
    streams = [
        StreamRef(stream=name, region="", virtual="v", role=role) for name, role in (("r", "read"), ("w", "write"))
    ]
    read_snapshot, write_snapshot = stream_snapshots.take_snapshots(streams, {"": Access(servers=(server.url,))})
    assert (read_snapshot.stream_ref, write_snapshot.stream_ref) == tuple(streams)
    assert write_snapshot.snapshot_ns < read_snapshot.snapshot_ns


def test_the_snapshot_says_what_was_taken_from_a_stream_that_is_given_up_and_where_one_begins(
    server: JetStreamServer,
) -> None:
    fill(server, "foo", [])
    config = server.api("STREAM.INFO.foo")["config"]
    server.api("STREAM.UPDATE.foo", config | {"metadata": {"vstream.until.west": "20", "vstream.until.east": "?"}})
    server.api("STREAM.CREATE.later", {"name": "later", "subjects": ["later"], "first_seq": 21})
    reader, later = stream_snapshots.take_snapshots(make_refs("foo", "later"), {"": Access(servers=(server.url,))})
    assert reader.sources == (SourceCursor(origin="west", last_seq=20),)
    assert later.limits is not None
    assert later.limits["first_seq"] == 21


def test_a_moment_becomes_the_sequence_that_was_stored_then(server: JetStreamServer) -> None:
    fill(server, "foo", some(50))
    times = [row["time_ns"] for row in reference(server, "foo")]
    access = Access(servers=(server.url,))
    (whole,) = stream_snapshots.take_snapshots(make_refs("foo"), {"": access})
    moments = {times[19]: 20, times[19] + 1: 21, 0: 1, times[-1] + 1: 51}
    with connect(access) as client:
        for moment, seq in moments.items():
            assert stream_snapshots.find_sequence_by_consumer(client, access, "foo", moment) == seq
            assert direct_get.find_sequence_at(client, access, whole, moment) == seq
    assert not any(
        name.startswith(pull_consumer.CONSUMER_PREFIX) for name in server.api("CONSUMER.NAMES.foo")["consumers"] or []
    )


def test_a_snapshot_has_the_limits_and_the_transform(server: JetStreamServer) -> None:
    fill(server, "foo", some(5), subject_transform={"src": "foo.>", "dest": "bar.>"}, max_age=10**12)
    (snapshot,) = stream_snapshots.take_snapshots(make_refs("foo"), {"": Access(servers=(server.url,))})
    assert snapshot.limits == {"max_age": 10**12, "duplicate_window": 120 * 10**9}
    assert snapshot.transform == ("foo.>", "bar.>")


def test_an_unknown_path_of_a_secret_is_said(server: JetStreamServer) -> None:
    with pytest.raises(VstreamError, match="the environment variable VSTREAM_NOT_THERE is not set"):
        stream_snapshots.take_snapshots(
            make_refs("foo"), {"": Access(servers=(server.url,), user="a", password_env="VSTREAM_NOT_THERE")}
        )
    with pytest.raises(VstreamError, match="the file /not/there is not on the machine that reads"):
        stream_snapshots.take_snapshots(make_refs("foo"), {"": Access(servers=(server.url,), creds="/not/there")})
