"""The model of outages: what must hold for any flows, cases with an answer on paper, and the servers' rule for sources."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.command import vstream
from vstream.health.simulation import Flow, run_link, simulate
from vstream.health.source_retries import BACKOFF, Away, Interval, draw_start, find_idle
from vstream.lint import check_topology
from vstream.timing import SOURCE_ANSWER_SECONDS
from vstream.topology.sizing import Load, RetentionLimits

HOUR = 3600.0
TEXT = """\
version: 1
name: simulated
server_version: "2.12"
regions: {{{regions}}}
streams:
  foo: {{subjects: [foo.>], write: {{max_age: 1h}}, read: {{max_age: 2h}}}}
"""


def flow(
    rate: float = 100,
    *,
    idle: tuple[float, float] | None = None,
    silent: tuple[float, float] | None = None,
    age: float = HOUR,
    messages: float = math.inf,
    weight: float = 1,
    is_back: bool = False,
) -> Flow:
    return Flow(
        rate=rate,
        wire=1000,
        weight=weight,
        keeping=RetentionLimits(age=age, messages=messages, replicas=1),
        idle=[Interval(*idle)] if idle else [],
        silent=[Interval(*silent)] if silent else [],
        is_back=is_back,
    )


moments = st.tuples(st.integers(0, 80), st.integers(1, 80)).map(lambda pair: (float(pair[0]), float(sum(pair))))
flows = st.builds(
    flow,
    st.sampled_from([0.0, 1.0, 30.0, 100.0]),
    idle=st.none() | moments,
    silent=st.none() | moments,
    age=st.sampled_from([1.0, 7.0, 40.0, HOUR]),
    messages=st.sampled_from([10.0, 500.0, math.inf]),
    weight=st.sampled_from([1.0, 7.0]),
    is_back=st.booleans(),
)


@given(st.lists(flows, min_size=1, max_size=4), st.sampled_from([2e4, 1e5, 3e5, math.inf]), st.sampled_from([0.0, 0.1]))
def test_nothing_appears_or_disappears(several: list[Flow], capacity: float, rtt: float) -> None:
    run_link(several, (capacity, capacity), rtt, 100)
    for each in several:
        waiting = each.count_published(100) - each.position
        assert each.arrivals >= -1e-3
        assert each.lost >= 0
        assert waiting >= -1e-3
        assert each.arrivals + each.lost + waiting == pytest.approx(each.count_published(100), abs=1e-3)
        assert waiting <= each.keeping.messages + 1e-3
        assert waiting <= each.rate * each.keeping.age + 1e-3
    for is_back in (False, True):
        crossed = sum(each.arrivals * each.wire * each.weight for each in several if each.is_back is is_back)
        assert crossed <= capacity * 100 + 1


def test_a_backlog_is_gone_when_the_rest_of_the_link_has_carried_it() -> None:
    # 100 messages/s of 1,000 bytes over 150,000 bytes/s: 1,000 waiting ones need 20 s more.
    away = flow(idle=(10, 20))
    run_link([away], (150_000, 150_000), 0.0, 100)
    assert away.caught_up == pytest.approx(40)
    assert (away.lag, away.lag_s, away.lost) == pytest.approx((1000, 10, 0))


def test_streams_share_a_link_and_those_that_are_behind_leave_the_others_alone() -> None:
    away, ordinary = flow(idle=(10, 20)), flow()
    run_link([away, ordinary], (250_000, 250_000), 0.0, 100)
    assert away.caught_up == pytest.approx(40)
    assert ordinary.lag == 0
    many = flow(idle=(10, 20), weight=10)
    run_link([many], (1_500_000, 1_500_000), 0.0, 100)
    assert many.caught_up == pytest.approx(40)
    narrow = flow()
    run_link([narrow], (50_000, 50_000), 0.0, 100)
    assert narrow.lag == pytest.approx(5000)
    assert math.isinf(narrow.caught_up)


def test_a_source_waits_until_its_request_is_through_a_full_link() -> None:
    # At 20 s, 250 of the 500 messages that go the other way are left: the request is there 1.67 s later.
    away, opposite = flow(idle=(10, 20)), flow(idle=(10, 15), is_back=True)
    run_link([away, opposite], (150_000, 150_000), 0.0, 100)
    assert (away.caught_up, opposite.caught_up) == pytest.approx((45, 25))
    # The answer waits behind 750 messages of another stream.
    away, opposite = flow(idle=(10, 20)), flow(idle=(10, 19))
    run_link([away, opposite], (250_000, math.inf), 0.0, 100)
    assert away.lag == pytest.approx(1300)
    # One that needs more than 30 s is made again 40 s after the last, and the link that way only grows fuller.
    late, growing = flow(idle=(10, 41)), flow(idle=(10, 40), is_back=True)
    run_link([late, growing], (150_000, 50_000), 0.0, 200)
    assert late.arrivals == pytest.approx(1000)
    assert {interval.ends for interval in late.idle} == {41, 81, 121, 161, 201}


def test_what_a_limit_removes_before_it_was_taken_is_lost() -> None:
    old = flow(idle=(10, 30), age=5)
    run_link([old], (math.inf, math.inf), 0.0, 100)
    assert (old.first_loss, old.lost, old.lag) == pytest.approx((15, 1500, 500))
    crowded = flow(idle=(10, 30), messages=800)
    run_link([crowded], (math.inf, math.inf), 0.0, 100)
    assert (crowded.first_loss, crowded.lost) == pytest.approx((18, 1200))
    # What was published before a region was killed grows older while nobody publishes.
    dead = flow(idle=(10, 40), silent=(12, 40), age=5)
    run_link([dead], (math.inf, math.inf), 0.0, 100)
    assert (dead.first_loss, dead.lost) == pytest.approx((15, 200))


def resumptions(writing: list[Away], reading: list[Away], servers: int = 1) -> list[float]:
    draw = random.Random(1)
    ends = []
    for _ in range(400):
        starts = (draw_start(servers, draw), draw_start(servers, draw))
        (interval,) = find_idle(writing, reading, starts, draw)
        ends.append(interval.ends)
    return sorted(ends)


def test_a_source_asks_again_as_servers_do() -> None:
    # After a short cut messages go on by themselves, and a source asks again, nearly always when its gateway has dialed.
    short = resumptions([Away(100, 105, is_killed=False)], [])
    dialed, early = [end for end in short if end < 109], [end for end in short if end > 109]
    assert short[0] > 105
    assert 300 < len(dialed) < len(short)
    assert 105 + SOURCE_ANSWER_SECONDS + BACKOFF < early[0] < early[-1] < 109 + SOURCE_ANSWER_SECONDS + BACKOFF
    # Asked after 10 to 20 s of silence, and after a failure 30 s for the answer and 10 s of backoff later.
    cut = resumptions([], [Away(100, 115, is_killed=False)])
    soon, late = [end for end in cut if end < 122], [end for end in cut if end > 150]
    assert len(soon) + len(late) == len(cut)
    assert soon
    assert 110 + SOURCE_ANSWER_SECONDS + BACKOFF < late[0] < late[-1] < 116 + SOURCE_ANSWER_SECONDS + BACKOFF + 2
    # An only server asks before its gateway has dialed, nearly always; several take longer to elect a leader.
    killed = resumptions([], [Away(100, 108, is_killed=True)])
    assert sum(end > 108 + SOURCE_ANSWER_SECONDS + BACKOFF for end in killed) > 300
    assert resumptions([], [Away(100, 108, is_killed=True)], servers=3)[-1] < 120
    # The longest backoff is two minutes, so after a long outage there are 150 s between requests.
    long = resumptions([Away(100, 4000, is_killed=False)], [])
    assert 4000 < long[0] < long[-1] < 4152


def test_an_outage_that_begins_before_the_last_is_over_makes_it_longer() -> None:
    draw = random.Random(1)
    for _ in range(50):
        twice = [Away(100, 115, is_killed=False), Away(116, 150, is_killed=False)]
        intervals = find_idle(twice, [], (1.0, 1.0), draw)
        assert intervals[0].begins == 100
        assert intervals[-1].ends > 150


def test_a_hundred_regions_with_ten_thousand_streams_are_a_few_kinds() -> None:
    regions = ", ".join(f"r{number}: {{servers: 3}}" for number in range(100))
    topology = check_topology.check_topology(TEXT.format(regions=regions).encode(), "many.yaml").require()
    outages = {"r7": [Away(30, 90, is_killed=False)]}
    result = simulate(topology, {"foo": Load(rate=2, size=1000)}, {"foo": 10_000}, outages, {}, 600)
    assert sum(pair.pairs_alike for pair in result.pairs) == 9900
    assert len(result.pairs) == 3
    assert result.source_consumers == 100_000_000
    assert result.published_messages == pytest.approx(2 * 10_000 * 100 * 600)
    worst = result.pairs[0]
    assert "r7" in {worst.origin, worst.reader}
    assert worst.lag_s.high is not None
    assert worst.lag_s.high >= 60
    assert result.pairs[-1].lag_messages.high == 0
    # 2/s × 600 s × 10,000 streams of its own, and those of 100 regions, 1,070 and 1,190 bytes each, on 3 servers.
    assert result.stored_bytes["r1"] == pytest.approx(2 * 600 * 10_000 * 3 * (1070 + 100 * 1190))


def test_the_command_says_what_an_outage_comes_to(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TEXT.format(regions="west: {servers: 1}, east: {servers: 1}"))
    options = ["--rate", "100/s", "--size", "1KiB", "--isolate", "west=30s@1m", "--link", "all:rtt=80ms,rate=2mbit"]
    ran = vstream("size", file, "--simulate", *options)
    assert ran.code == 0, ran.err
    assert "does not know" in ran.out
    result = vstream("size", file, "--simulate", *options, "--format", "json").json()
    assert result["pairs"][0]["lag_messages"]["low"] >= 3000
    assert result["pairs"][0]["first_loss_s"]["high"] is None
    assert json.dumps(result) == json.dumps(vstream("size", file, "--simulate", *options, "--format", "json").json())
    for wrong in (
        ["--isolate", "west=30s@1m"],
        ["--simulate", "--isolate", "north=30s@1m"],
        ["--simulate", "--kill-region", "west=30s"],
        ["--simulate", "--kill-region", "west=soon@1m"],
        ["--simulate", "--copies", "0"],
        ["--simulate", "--link", "west-north:rate=1mbit"],
        ["--simulate", "--duration", "unlimited"],
    ):
        refused = vstream("size", file, *wrong)
        assert refused.code == 2, wrong
        assert "Traceback" not in refused.err
