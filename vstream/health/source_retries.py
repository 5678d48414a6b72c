"""When a source takes nothing after an outage: the servers' own timers, read in nats-server's source, not fitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from vstream.timing import ELECTION_SECONDS, LONGEST_BACKOFF_SECONDS, SOURCE_ANSWER_SECONDS

HEALTH_CHECK = 10.0
"""Seconds between looks at all sources, and of silence after which one is asked for again (sourceHealthCheckInterval)."""
BACKOFF = 10.0
"""Seconds more until the next request, for each that failed, up to `LONGEST_BACKOFF_SECONDS` (calculateRetryBackoff)."""
JITTER = (0.1, 0.2)
"""Seconds before each request, at random (setupSourceConsumer)."""
INTEREST = 1.0
"""Seconds at most until a consumer notices who listens beyond a gateway (watchGWinterest in server/consumer.go)."""
DIAL = 1.1
"""Seconds at most until a gateway dials again, and after which a server that was started does first (server/gateway.go)."""
BOOT = 0.5
"""Seconds until a server that is started listens. Measured with small streams; large ones take longer."""


@dataclass(frozen=True, slots=True)
class Interval:
    """From one moment to another, in seconds from the beginning."""

    begins: float
    ends: float

    def has(self, moment: float) -> bool:
        """Whether *moment* is in it."""
        return self.begins <= moment < self.ends


@dataclass(frozen=True, slots=True)
class Away(Interval):
    """When a region is away: killed, or else cut off."""

    is_killed: bool


def draw_start(servers: int, draw: Random) -> float:
    """
    Seconds from the start of a region's *servers* until its streams have leaders.

    Those of an only server have when another region's gateway has dialed it.
    """
    return BOOT + (draw.uniform(*ELECTION_SECONDS) if servers > 1 else draw.uniform(0, DIAL))


def find_down(outages: Iterable[Away], start_seconds: float) -> list[Interval]:
    """When a region takes no publishes: while it is killed, and *start_seconds* more until its streams lead again."""
    return _merge(Interval(away.begins, away.ends + start_seconds) for away in outages if away.is_killed)


def _merge(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments in intervals that do not touch, in order."""
    merged: list[Interval] = []
    for interval in sorted(intervals, key=lambda interval: interval.begins):
        if merged and interval.begins <= merged[-1].ends:
            merged[-1] = Interval(merged[-1].begins, max(merged[-1].ends, interval.ends))
        else:
            merged.append(interval)
    return merged


def find_idle(
    writing: Sequence[Away], reading: Sequence[Away], starts: tuple[float, float], draw: Random
) -> list[Interval]:
    """
    When a source takes nothing, in one possible history.

    *writing* and *reading*: when the region that it takes from is away, and its own; *starts*: theirs, by `draw_start`.
    """
    down = find_down(reading, starts[1])
    unanswered = find_down(writing, starts[0])
    for away in (*writing, *reading):
        if away in reading or not away.is_killed:
            recovery = BOOT + DIAL if away.is_killed else max(draw.uniform(0, DIAL), draw.uniform(0, DIAL))
            unanswered.append(Interval(away.begins, away.ends + recovery))
    unanswered = _merge(unanswered)
    killed = [away for away in (*writing, *reading) if away.is_killed]
    idle: list[Interval] = []
    for broken in unanswered:
        if idle and broken.ends <= idle[-1].ends:
            continue
        restarts = [interval.ends for interval in down if broken.has(interval.begins)]
        is_forgotten = any(broken.has(away.begins) for away in killed)
        if not is_forgotten and broken.ends + INTEREST < broken.begins + HEALTH_CHECK:
            # Both ends have the consumer. When one has dialed, it goes on, and the source asks: the other may not have.
            first = broken.ends - max(0.0, draw.triangular(-DIAL, DIAL)) + draw.uniform(0, INTEREST)
        else:
            first = restarts[-1] if restarts else broken.begins + draw.uniform(HEALTH_CHECK, 2 * HEALTH_CHECK)
        answered = _find_answered(first + draw.uniform(*JITTER), unanswered, draw)
        idle.append(Interval(broken.begins, answered + draw.uniform(0, INTEREST)))
    return idle


def _find_answered(asked: float, unanswered: Sequence[Interval], draw: Random) -> float:
    """When the first request is made that is answered, if one is made at *asked*."""
    failures = 0
    while any(interval.has(asked) for interval in unanswered):
        failures += 1
        asked += SOURCE_ANSWER_SECONDS + min(BACKOFF * failures, LONGEST_BACKOFF_SECONDS) + draw.uniform(*JITTER)
    return asked
