"""Where a position is in a stream that has the same messages in another order."""

from __future__ import annotations

import random

import pytest

from vstream.errors import PlanError
from vstream.plan.consumer_failover import BackwardScan, SourcedMessage, parse_position

ORIGINS = ("w", "c", "e")


def walk_back(
    steps: list[SourcedMessage], position: dict[str, int], taken: dict[str, int] | None = None, *filters: str
) -> BackwardScan:
    walk = BackwardScan(position, taken or {}, filters)
    for step in reversed(steps):
        if walk.is_over:
            break
        walk.add(step)
    return walk


def stream(*messages: str) -> list[SourcedMessage]:
    """`w3` is the third message of origin w."""
    return [
        SourcedMessage(
            seq=seq,
            subject=f"foo.{message}",
            origin=message[0] if message[0] != "?" else None,
            origin_seq=int(message[1:]),
        )
        for seq, message in enumerate(messages, 1)
    ]


def test_delivery_begins_with_the_first_message_that_was_not_acknowledged() -> None:
    start_point = walk_back(stream("w1", "c1", "w2", "c2", "w3"), {"w": 2, "c": 0}).start_point("s", 5)
    assert (start_point.seq, start_point.redelivered, start_point.remaining) == (2, 1, 4)


def test_where_everything_was_acknowledged_it_begins_after_the_end() -> None:
    start_point = walk_back(stream("w1", "c1", "w2"), {"w": 2, "c": 1}).start_point("s", 3)
    assert (start_point.seq, start_point.redelivered, start_point.remaining) == (4, 0, 0)


def test_only_what_the_consumer_takes_is_counted() -> None:
    start_point = walk_back(stream("c1", "w1", "w2", "c2"), {"w": 2, "c": 0}, None, "foo.w1").start_point("s", 4)
    assert (start_point.seq, start_point.redelivered, start_point.remaining) == (1, 1, 1)


def test_what_does_not_say_where_it_came_from_counts_as_not_acknowledged() -> None:
    start_point = walk_back(stream("w1", "?1", "w2"), {"w": 2}).start_point("s", 3)
    assert start_point.seq == 4  # it stands before what was certainly acknowledged
    start_point = walk_back(stream("w1", "?1"), {"w": 1}).start_point("s", 2)
    assert start_point.seq == 2


def test_an_origin_that_the_stream_has_nothing_newer_of_is_not_looked_for() -> None:
    steps = stream(*(f"w{number}" for number in range(1, 50)))
    walk = walk_back(steps, {"w": 48, "c": 7}, {"c": 7})
    assert walk.is_over
    assert walk.start_point("s", 49).seq == 49


def test_nothing_is_ever_skipped_and_the_count_is_exact() -> None:
    chance = random.Random(7)
    for _ in range(300):
        counts = {origin: chance.randrange(0, 9) for origin in ORIGINS}

        def merge_origins(counts: dict[str, int] = counts) -> list[str]:
            """The messages of all origins, each origin's in order."""
            order = [origin for origin, number in counts.items() for _ in range(number)]
            chance.shuffle(order)
            seen: dict[str, int] = {}
            result = []
            for origin in order:
                seen[origin] = seen.get(origin, 0) + 1
                result.append(f"{origin}{seen[origin]}")
            return result

        old_order, new_order = merge_origins(), merge_origins()
        floor = chance.randrange(0, len(old_order) + 1)
        acknowledged = set(old_order[:floor])
        position = {
            origin: max((int(message[1:]) for message in acknowledged if message[0] == origin), default=0)
            for origin in ORIGINS
        }
        copied = {origin: number for origin, number in counts.items() if chance.random() < 0.5}
        start_point = walk_back(stream(*new_order), position, copied).start_point("s", len(new_order))
        delivered = new_order[start_point.seq - 1 :]
        assert set(old_order) - acknowledged <= set(delivered)
        assert start_point.redelivered == len(acknowledged & set(delivered))
        assert start_point.remaining == len(delivered)


@pytest.mark.parametrize(
    "change",
    [
        '"origins": {"w": 1e999}',
        '"origins": {"w": []}',
        '"config": {"metadata": 5}',
        '"at": ""',
        '"at": "2026-01-01T00:00:00"',
        '"at": "9999-12-31T23:59:59.9Z"',
        '"config": {"filter_subjects": [1]}',
        '"config": [["a", 1]]',
        pytest.param('"config": ' + "[" * 100_000, id="deep"),
    ],
)
def test_a_position_that_somebody_else_has_written_is_one_error(change: str) -> None:
    """Applications may make consumers, and so what `consumer sync` keeps."""
    good = '{"format": 1, "topology": "t", "stream": "s", "consumer": "c", "region": "r", "at": "2026-01-01T00:00:00Z", "origins": {}, "unknown": [], '
    good += '"beyond": 0, "unacknowledged": 0, "config": {}'
    assert parse_position(good + "}", "x").stream == "s"
    with pytest.raises(PlanError, match="does not hold a consumer position"):
        parse_position(f"{good}, {change}}}", "x")
