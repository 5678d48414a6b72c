"""Many small streams over one connection, on a real server: every stored message once, also where answers are not whole."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.audit.connector.test_extract import SCHEMA, make_refs
from tests.support.fuzzing_proxy import Change, FuzzingProxy
from tests.support.jetstream import JetStreamServer, fill, make_restricted_server
from vstream.audit.connector import direct_get, stream_snapshots
from vstream.audit.connector.columns import RAW
from vstream.audit.connector.reading import read_range, read_ranges
from vstream.audit.connector.values import Access, ReadTask, group_tasks, split_tasks

pytestmark = [pytest.mark.server]
NAMES = [f"s{number}" for number in range(40)]
ROWS = 100_000
NAMED_SCHEMA = SCHEMA.append(RAW["headers"]).append(RAW["ttl"]).append(RAW["subject"].with_name("stream"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JetStreamServer]:
    """Forty small streams: of three the last message is gone, of two one before, and one allows no Direct Get."""
    with JetStreamServer(tmp_path_factory.mktemp("server")) as server:
        choose = random.Random(0)
        for number, name in enumerate(NAMES):
            messages: list[tuple[str, bytes, dict[str, str] | None]] = [
                (
                    f"{name}.{choose.randrange(3)}",
                    choose.randbytes(choose.choice([0, 5, 300])),
                    choose.choice([None, {"Nats-Msg-Id": f"id-{count}"}, {"X": "y"}]),
                )
                for count in range(1 + number * 3 % 70)
            ]
            fill(server, name, messages, allow_direct=name != "s7")
        for name in ("s10", "s11", "s12"):
            server.api(f"STREAM.MSG.DELETE.{name}", {"seq": server.api(f"STREAM.INFO.{name}")["state"]["last_seq"]})
        for name in ("s13", "s14"):
            server.api(f"STREAM.MSG.DELETE.{name}", {"seq": 3})
        yield server


def find_tasks(server: JetStreamServer, url: str | None = None, *, timeout: float = 10) -> list[ReadTask]:
    snapshots = stream_snapshots.take_snapshots(make_refs(*NAMES), {"": Access(servers=(server.url,))})
    return split_tasks(snapshots, {"": Access(servers=(url or server.url,), timeout=timeout)}, rows=ROWS)


def read_together(tasks: list[ReadTask]) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for group in group_tasks(tasks, rows=ROWS):
        for batch in read_ranges(group, NAMED_SCHEMA):
            for row in batch.to_pylist():
                rows.setdefault(row["stream"], []).append(row)
    return rows


def read_each(tasks: list[ReadTask]) -> dict[str, list[dict[str, Any]]]:
    return {
        task.stream_ref.name: [row for batch in read_range(task, NAMED_SCHEMA) for row in batch.to_pylist()]
        for task in tasks
    }


def test_together_they_have_what_each_has(server: JetStreamServer, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = find_tasks(server)
    groups = group_tasks(tasks, rows=ROWS)
    assert sorted(len(group) for group in groups) == [1, len(NAMES) - 1]
    expected = read_each(tasks)
    assert read_together(tasks) == expected
    # As many batches as are needed, and a stream in one of them.
    monkeypatch.setattr(direct_get, "BATCH_ROWS", 100)
    assert read_together(tasks) == expected


def test_only_what_did_not_come_whole_is_read_by_itself(server: JetStreamServer) -> None:
    (group,) = (group for group in group_tasks(find_tasks(server), rows=ROWS) if len(group) > 1)
    reading = direct_get.read_small(group, SCHEMA)
    left = None
    while left is None:
        try:
            next(reading)
        except StopIteration as end:
            left = [task.stream_ref.name for task in end.value]
    assert left == ["s10", "s11", "s12"]


@pytest.mark.parametrize("damage", ["silent", "repeated", "truncated", "protocol", "headers"])
def test_what_is_lost_or_damaged_on_its_way_is_read_again(server: JetStreamServer, damage: str) -> None:
    expected = read_each(find_tasks(server))
    numbers = random.Random(damage)
    with FuzzingProxy().running() as proxy:
        tasks = find_tasks(server, f"nats://127.0.0.1:{proxy.lead_to(server.port)}", timeout=1)
        for seed in range(10):
            session = proxy.start_session(
                Change(kind="DIRECT.GET", ordinal=numbers.randrange(1, 1_000), damage=damage, seed=seed)
            )
            result = read_together(tasks)
            assert session.changed
            # What a payload or a subject is, nothing but the answer says.
            assert {name: [row["seq"] for row in rows] for name, rows in result.items()} == {
                name: [row["seq"] for row in rows] for name, rows in expected.items()
            }


def test_a_user_who_may_not_get_messages_directly_reads_them_by_consumers(tmp_path: Path) -> None:
    with make_restricted_server(tmp_path, "$JS.API.DIRECT.GET.>") as server:
        for name in NAMES:
            fill(server, name, [(f"{name}.a", b"x", None)] * 3)
        tasks = find_tasks(server)
        assert {name: len(rows) for name, rows in read_together(tasks).items()} == dict.fromkeys(NAMES, 3)


def test_streams_of_which_much_is_to_be_read_stay_alone(server: JetStreamServer) -> None:
    small, large = (task for task in find_tasks(server) if task.stream_ref.name in {"s1", "s2"})
    assert group_tasks([small, large], rows=ROWS) == [(small, large)]
    heavy = replace(large, mean_size=10**6)
    assert group_tasks([small, heavy], rows=ROWS) == [(heavy,), (small,)]
    # Tasks stay as small as they are asked to be.
    span = small.last - small.first + 1
    assert [len(group) for group in group_tasks([small] * 10, rows=4 * span)] == [4, 4, 2]
    assert [len(group) for group in group_tasks([small] * 3, rows=1)] == [1, 1, 1]
