"""What the newest messages of a reader prove: skipped, taken twice, or nothing."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import cast

import pytest

from tests.health.doctor.test_examine import TOPOLOGY, healthy
from vstream.health.live import gaps
from vstream.health.snapshot import Gap, Repeat
from vstream.jetstream import direct
from vstream.jetstream.connection import Connection
from vstream.jetstream.direct import DirectMessage

READER, ORIGIN = "foo-read-east", "foo-write-west"


def message(stream: str, seq: int, data: str, *, of: int | None = None, second: int = 0) -> DirectMessage:
    return DirectMessage(
        stream=stream,
        seq=seq,
        subject="foo.a",
        stored_at=f"2026-01-01T00:00:{second:02}.5Z",
        headers={} if of is None else {"Nats-Stream-Source": f"{ORIGIN} {of} _vs.foo.west.> > _vs.foo.west.foo.a"},
        data=data.encode(),
    )


async def find_gaps(
    monkeypatch: pytest.MonkeyPatch, taken: list[tuple[int, str]], held: dict[int, tuple[str, int]]
) -> tuple[Gap | Repeat, ...]:
    """What is found where the reader took these sequences and payloads in second 1, and the origin holds those."""
    at_origin = {seq: message(ORIGIN, seq, data, second=second) for seq, (data, second) in held.items()}
    at_reader = {seq: message(READER, seq, data, of=origin, second=1) for seq, (origin, data) in enumerate(taken, 1)}

    async def get(_: object, stream: str, seq: int, __: float) -> DirectMessage | None:
        return (at_reader if stream == READER else at_origin if stream == ORIGIN else {}).get(seq)

    async def following(_: object, stream: str, seq: int, __: float) -> DirectMessage | None:
        later = [candidate for candidate in at_origin if candidate >= seq]
        return at_origin[min(later)] if stream == ORIGIN and later else None

    monkeypatch.setattr(direct, "read_message", get)
    monkeypatch.setattr(direct, "read_next_message", following)
    streams = {READER: replace(healthy().streams[READER], first_seq=1, last_seq=len(taken))}
    connection = cast("Connection", object())
    return await gaps.find_gaps_and_repeats(
        TOPOLOGY, streams, {"west": connection, "east": connection}, time.monotonic() + 60
    )


async def test_no_gap_is_found_where_nothing_was_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await find_gaps(monkeypatch, [(1, "a"), (2, "b")], {1: ("a", 0), 2: ("b", 0)}) == ()


async def test_a_skipped_message_that_the_origin_still_has_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    (gap,) = await find_gaps(monkeypatch, [(1, "a"), (4, "d")], {1: ("a", 0), 3: ("c", 0), 4: ("d", 0)})
    assert gap == Gap(reader=READER, origin=ORIGIN, first=3, last=3)
    assert await find_gaps(monkeypatch, [(1, "a"), (4, "d")], {4: ("d", 0)}) == ()


async def test_a_message_taken_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = [(1, "a"), (2, "b"), (1, "a"), (2, "b"), (3, "c")]
    (repeat,) = await find_gaps(monkeypatch, copied, {1: ("a", 0), 2: ("b", 0), 3: ("c", 9)})
    assert repeat == Repeat(reader=READER, origin=ORIGIN, seq=1, later=2)


@pytest.mark.parametrize(
    "held",
    [
        {1: ("x", 9), 2: ("y", 9)},
        {1: ("a", 9), 2: ("b", 9)},
        {1: ("x", 9)},
    ],
    ids=["other messages", "the same ones, stored later", "not so many yet"],
)
async def test_an_origin_that_was_made_anew(held: dict[int, tuple[str, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert await find_gaps(monkeypatch, [(1, "a"), (2, "b"), (1, held[1][0])], held) == ()
