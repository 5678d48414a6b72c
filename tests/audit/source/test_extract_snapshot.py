"""Reading snapshots of real servers: the same rows as by a consumer, or an error."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.audit.source.test_extract import SCHEMA, cut_of, reference, rows, rows_of, some, wanted
from tests.support.jetstream import JetStreamServer, fill
from tests.support.ports import free_port
from vstream.audit.source import bysnapshot, cut, datasource, reading
from vstream.audit.source.client import Client
from vstream.audit.source.datasource import narrow_cut
from vstream.audit.source.pushdown import Bounds
from vstream.audit.source.reading import read_range
from vstream.audit.source.s2 import DamagedError
from vstream.audit.source.values import CONSUMER, SNAPSHOT, Access, ReadTask, split_tasks
from vstream.errors import NotReachableError, VstreamError

pytestmark = [pytest.mark.server]


def job_of(server: JetStreamServer, stream: str) -> ReadTask:
    return split_tasks([cut_of(server, stream, SNAPSHOT)], {"": Access(servers=(server.url,), timeout=30)}, rows=10**6)[
        0
    ]


def test_every_kind_of_deletion_and_of_stream_gives_the_rows_that_a_consumer_has(server: JetStreamServer) -> None:
    kept = {"storage": "file", "compression": "s2", "max_msgs_per_subject": 150, "allow_msg_ttl": True}
    fill(server, "foo", some(900), **kept)
    fill(server, "foo", [("foo.ttl", b"x", {"Nats-TTL": "1s"})] * 20 + some(300, seed=1), **kept)
    # More than the server sends ahead of acknowledgements, in messages that are larger than its pieces.
    choose = random.Random(2)
    fill(server, "foo", [("foo.big", choose.randbytes(300_000), None)] * 40, **kept)
    server.api("STREAM.PURGE.foo", {"filter": "foo.3.x"})
    server.api("STREAM.PURGE.foo", {"filter": "foo.4.x", "keep": 3})
    last = server.api("STREAM.INFO.foo")["state"]["last_seq"]
    server.api("STREAM.MSG.DELETE.foo", {"seq": last - 20})
    server.api("STREAM.MSG.DELETE.foo", {"seq": last - 22, "no_erase": True})
    server.api("STREAM.MSG.DELETE.foo", {"seq": last})
    deadline = time.monotonic() + 60
    while "foo.ttl" in server.api("STREAM.INFO.foo", {"subjects_filter": ">"})["state"]["subjects"]:
        assert time.monotonic() < deadline
    server.api("STREAM.CREATE.bar", {"name": "bar", "storage": "memory", "sources": [{"name": "foo"}]})
    expected = reference(server, "foo")
    assert 700 < len(expected) < 1260 - 20
    while server.api("STREAM.INFO.bar")["state"]["messages"] < len(expected):
        assert time.monotonic() < deadline
    assert rows(server, "foo", SNAPSHOT) == expected
    assert rows(server, "bar", SNAPSHOT) == reference(server, "bar") == rows(server, "bar", CONSUMER)
    # Neither a consumer nor Direct Get can read this one.
    fill(server, "work", [], retention="workqueue", allow_direct=False)
    fill(server, "work", [("work.a", b"x", None)] * 30)
    found = cut.take_cuts(wanted("work"), {"": Access(servers=(server.url,))})[0]
    assert found.error is not None
    assert found.path is None
    assert [row["seq"] for row in rows(server, "work", SNAPSHOT)] == list(range(1, 31))
    assert server.api("STREAM.INFO.work")["state"]["messages"] == 30


def test_a_part_of_a_stream(server: JetStreamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource, "_CLOCKS", 0)
    fill(server, "foo", some(100), storage="file")
    fill(server, "foo", some(100, seed=1))
    expected = reference(server, "foo")
    access = Access(servers=(server.url,))
    # Another connection has published what comes behind it, later.
    bounds = Bounds(last=150, since_ns=(expected[99]["time_ns"] + expected[100]["time_ns"]) // 2)
    jobs = split_tasks([narrow_cut(cut_of(server, "foo", SNAPSHOT), access, bounds)], {"": access}, rows=10)
    assert [rows_of(job) for job in jobs] == [expected[100:150]]


def test_a_stream_that_is_written_to_and_emptied_meanwhile_is_read_up_to_its_cut(server: JetStreamServer) -> None:
    fill(
        server, "foo", [("foo.a", b"%d" % count * 60, None) for count in range(20_000)], storage="file", max_msgs=20_000
    )
    job = job_of(server, "foo")
    with ThreadPoolExecutor() as other:
        writing = other.submit(fill, server, "foo", [("foo.b", b"x", None)] * 5_000)
        seqs = [seq for batch in read_range(job, SCHEMA) for seq in batch["seq"].to_pylist()]
        writing.result()
    # Each new message has removed the oldest one, whether that was read by then or not.
    assert seqs == sorted(set(seqs))
    assert [seq for seq in seqs if seq > 5_000] == list(range(5_001, 20_001))


def test_copies_of_a_stream_on_three_servers(tmp_path: Path) -> None:
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = []
    try:
        for number, port in enumerate(ports):
            (tmp_path / str(number)).mkdir()
            more = f'server_name: n{number}\ncluster {{ name: c, listen: "127.0.0.1:{port}", routes: [{routes}] }}'
            servers.append(JetStreamServer(tmp_path / str(number), more=more))
            servers[-1].start()
        deadline = time.monotonic() + 90
        while True:
            try:
                servers[0].api("STREAM.CREATE.foo", {"name": "foo", "subjects": ["foo.>"], "num_replicas": 3})
                break
            except Exception:  # noqa: BLE001 - there is no leader yet: no answer, nobody listens, or an error
                assert time.monotonic() < deadline
        fill(servers[0], "foo", some(500))
        for one in servers:
            assert rows(one, "foo", SNAPSHOT) == reference(servers[0], "foo")
    finally:
        for one in servers:
            one.stop()


def test_what_is_damaged_or_cut_short_ends_in_an_error(
    server: JetStreamServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(server, "foo", [("foo.a", random.Random(count).randbytes(1000), None) for count in range(3000)])
    job, real = job_of(server, "foo"), bysnapshot._chunks
    monkeypatch.setattr(reading, "ATTEMPTS", 1)

    def changed(change: Callable[[list[bytes]], list[bytes]]) -> None:
        def chunks(client: Client, job: ReadTask) -> Iterator[bytes]:
            return iter(change(list(real(client, job))))

        monkeypatch.setattr(bysnapshot, "_chunks", chunks)

    changed(lambda all_: all_)
    assert len(rows_of(job)) == 3000
    changed(lambda all_: [*all_[:5], bytes([all_[5][0] ^ 1]) + all_[5][1:], *all_[6:]])
    with pytest.raises(DamagedError, match="checksum"):
        rows_of(job)
    changed(lambda all_: all_[:-1])
    with pytest.raises(NotReachableError, match="the snapshot ends too early"):
        rows_of(job)
    changed(lambda all_: [*all_[:5], *all_[6:]])
    with pytest.raises(VstreamError):
        rows_of(job)


def test_who_may_not_ask_or_acknowledge_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = '"$JS.API.INFO", "$JS.API.STREAM.INFO.*", "$JS.API.STREAM.MSG.GET.*"'
    users = {
        "nothing": "",
        "half": ', "$JS.API.STREAM.SNAPSHOT.*"',
        "both": ', "$JS.API.STREAM.SNAPSHOT.*", "$JS.SNAPSHOT.ACK.>"',
    }
    lines = "\n".join(
        f'{{ user: {name}, password: x, permissions: {{ publish: [{reads}{more}], subscribe: "_INBOX.>" }} }}'
        for name, more in users.items()
    )
    (tmp_path / "secret").write_text("x")
    access = Access(user="all", password_file=str(tmp_path / "secret"))
    server = JetStreamServer(
        tmp_path,
        more=f"authorization {{ users: [{{ user: all, password: x }}\n{lines}] }}",
        connection={"user": "all", "password": "x"},
        access=access,
    )
    server.start()
    monkeypatch.setattr(reading, "ATTEMPTS", 1)
    try:
        # More than the server sends to one who does not acknowledge.
        fill(server, "foo", [("foo.a", random.Random(count).randbytes(300_000), None) for count in range(40)])
        found: dict[str, object] = {}
        for name in users:
            mine = Access(servers=(server.url,), user=name, password_file=str(tmp_path / "secret"), timeout=5)
            one = cut.take_cuts(wanted("foo"), {"": mine}, path=SNAPSHOT)
            try:
                found[name] = len(rows_of(split_tasks(one, {"": mine}, rows=10**6)[0]))
            except NotReachableError as error:
                found[name] = error.message
        assert found["both"] == 40
        assert 'Permissions Violation for Publish to "$JS.API.STREAM.SNAPSHOT.foo"' in str(found["nothing"])
        assert 'Permissions Violation for Publish to "$JS.SNAPSHOT.ACK.foo.' in str(found["half"])
    finally:
        server.stop()
