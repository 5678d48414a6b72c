"""When bytes arrive that go over a link, and that all of them do, in order, whatever happens to it."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vstream.lab.links.proxy.lanes import RTO_SECONDS, Lane, OneWayLink, find_next_resend
from vstream.lab.links.state import (
    Answer,
    Backend,
    Cut,
    Front,
    Links,
    LinkState,
    decode,
    decode_answer,
    encode,
    encode_answer,
)


def link(**state: float | Cut | None) -> OneWayLink:
    made = OneWayLink()
    made.state = LinkState(**state)  # type: ignore[arg-type]
    return made


def test_what_is_lost_is_sent_again_after_a_pause_that_doubles() -> None:
    assert [find_next_resend(0, now, RTO_SECONDS) for now in (0.1, 0.3, 0.7, 1.5, 5)] == pytest.approx(
        [0.2, 0.6, 1.4, 3.0, 6.2]
    )
    assert find_next_resend(10, 10, RTO_SECONDS) == 10
    # From 120 s on it is tried regularly.
    assert find_next_resend(0, 10_000, RTO_SECONDS) - 10_000 <= 120


def test_a_delay_is_added_to_everything() -> None:
    assert link(delay=0.07).schedule_arrival(5, 100) == pytest.approx(5.07)
    assert all(5.07 <= link(delay=0.07, jitter=0.01).schedule_arrival(5, 100) <= 5.08 for _ in range(100))


def test_a_rate_is_shared_by_all_that_use_the_link() -> None:
    slow = link(rate=8_000_000)  # 1 MB/s
    assert slow.schedule_arrival(0, 500_000) == pytest.approx(0.5)
    assert slow.schedule_arrival(0, 500_000) == pytest.approx(1.0)
    assert slow.schedule_arrival(3, 100_000) == pytest.approx(3.1)
    assert b"".join(slow.slices(b"x" * 100_001)) == b"x" * 100_001
    assert max(map(len, slow.slices(b"x" * 100_001))) == 5000


def test_losses_cost_time_as_often_as_they_happen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", iter([0.0, 0.99, 0.99, 0.0, 0.0, 0.0, 0.99]).__next__)
    lossy = link(loss=0.5)
    # `schedule_arrival` draws for the jitter first.
    assert lossy.schedule_arrival(0, 100) == 0
    monkeypatch.setattr(random, "random", iter([0.0, 0.0, 0.0, 0.0, 0.99]).__next__)
    assert lossy.schedule_arrival(0, 100) == pytest.approx(RTO_SECONDS + 2 * RTO_SECONDS + 4 * RTO_SECONDS)


states = st.builds(
    LinkState,
    cut=st.sampled_from([None, None, Cut.DROP]),
    delay=st.sampled_from([None, 0.001, 0.01]),
    jitter=st.sampled_from([None, 0.01]),
    rate=st.sampled_from([None, 10**7]),
)


@settings(max_examples=25)
@given(st.lists(st.tuples(states, st.lists(st.binary(min_size=1, max_size=5000), max_size=3)), min_size=1, max_size=6))
def test_all_bytes_arrive_once_and_in_order_whatever_the_link_does(steps: list[tuple[LinkState, list[bytes]]]) -> None:
    async def main() -> None:
        arrived: list[bytes] = []
        finished = asyncio.get_running_loop().create_future()

        def write(data: bytes | None) -> None:
            assert not finished.done()
            if data is None:
                finished.set_result(None)
            else:
                arrived.append(data)

        one_way = OneWayLink()
        one_way.rto = 0.001
        lane = Lane(one_way, write, lambda: None)
        for number, (state, pieces) in enumerate(steps):
            one_way.state = state
            lane.refresh()
            for piece in pieces:
                lane.feed(piece)
                await asyncio.sleep(0)
            if number == 1:
                lane.open()
        lane.open()
        lane.close_sender()
        one_way.state = LinkState()
        lane.refresh()
        await asyncio.wait_for(finished, 10)
        assert b"".join(arrived) == b"".join(piece for _, pieces in steps for piece in pieces)

    asyncio.run(main())


async def test_nothing_arrives_while_a_link_is_cut() -> None:
    arrived: list[bytes | None] = []
    one_way = link(delay=0.001)
    lane = Lane(one_way, arrived.append, lambda: None)
    lane.open()
    lane.feed(b"on its way")
    one_way.state = LinkState(cut=Cut.DROP)
    lane.refresh()
    lane.feed(b"after it")
    lane.close_sender()
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert arrived == []


async def test_a_sender_that_sends_more_than_the_link_holds_has_to_wait() -> None:
    asked: list[bool] = []
    one_way = link(rate=8_000)
    lane = Lane(one_way, lambda _: None, lambda: asked.append(lane.is_full))
    lane.open()
    lane.feed(b"x" * one_way.window)
    assert asked == []
    lane.feed(b"x")
    assert asked == [True]
    lane.close_receiver()


def test_orders_and_answers_are_read_back_as_they_were_written() -> None:
    links = Links(
        backend=Backend.PROXY,
        servers={"west-1": "west", "east-1": "east"},
        fronts=(Front(port=14008, target=14003, region="west"),),
        generation=7,
        started={("west", "east"): LinkState(delay=0.07, rate=10**6)},
        base={("west", "east"): LinkState(loss=0.01, jitter=0.0)},
        overlays={"a": {("east", "west"): LinkState(cut=Cut.DROP)}, "b": {}},
    )
    assert decode(encode(links)) == links
    answer = Answer(pid=1, generation=7, answered=2, connections={("west", "east"): 3}, refused=1, failure="no")
    assert decode_answer(encode_answer(answer)) == answer


def test_the_latest_overlay_that_says_something_counts() -> None:
    pair = ("west", "east")
    links = Links(
        backend=Backend.PROXY,
        servers={"west-1": "west", "east-1": "east"},
        base={pair: LinkState(delay=0.07, loss=0.01)},
        overlays={"one": {pair: LinkState(delay=0.2)}, "two": {pair: LinkState(cut=Cut.RESET, loss=0.0)}},
    )
    assert links.state(pair) == LinkState(cut=Cut.RESET, delay=0.2, loss=0.0)
    assert links.state(("east", "west")) == LinkState()
    assert links.pairs == (("west", "east"), ("east", "west"))
