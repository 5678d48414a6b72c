"""
What happens over time to messages between regions while regions are killed and cut off: a model, which asks no servers.

Messages flow like water: publishing, removal by limits and sourcing have speeds that change at some moments only, such as
when a link is cut or a backlog is gone. The model goes from one such moment to the next, so it is exact without choosing a
step. No two regions wait for others, so each pair is reckoned alone; streams and pairs that are alike are reckoned once.
What servers decide by chance (`source_retries`) is drawn several times, and results are ranges.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vstream.health.source_retries import BACKOFF, BOOT, DIAL, Away, Interval, draw_start, find_down, find_idle
from vstream.lab.links.state import IDEAL, Direction, LinkState
from vstream.timing import SOURCE_ANSWER_SECONDS
from vstream.topology.model import Consistency, Topology, VirtualStream
from vstream.topology.replication import physical_streams
from vstream.topology.sizing import (
    HEADER_BYTES,
    PROTOCOL_BYTES,
    RECORD_BYTES,
    SUBJECT_BYTES,
    Load,
    RetentionLimits,
    find_retention_limits,
)
from vstream.value_class import value_class

HISTORIES = 40
"""How many possible histories are drawn."""
ALIKE = 5
"""How many of the streams, and of the pairs of regions, that are alike have chances of their own in a history."""
FIRST_WINDOW, WINDOW = 2 * 2**20, 32 * 2**20
"""Bytes that a source lets be on their way, at first and at most (setMaxPendingBytes in server/consumer.go)."""
_LITTLE = 1e-6
"""Messages that are none: what rounding leaves over."""


@value_class
class StreamClass:
    """Virtual streams that differ in nothing but their names. *rate* is messages per second in each region."""

    regions: tuple[str, ...]
    rate: float
    size: int
    write: RetentionLimits
    read: RetentionLimits


@dataclass(kw_only=True)
class Flow:
    """What one source does. Positions count messages from the beginning."""

    rate: float
    wire: int
    """Bytes of a message between regions."""
    weight: float
    """How many streams it stands for."""
    keeping: RetentionLimits
    idle: list[Interval]
    silent: list[Interval]
    """When nothing is published."""
    is_back: bool = False
    """Which way of a link it takes; its requests take the other."""
    position: float = 0.0
    """All before it was delivered or lost."""
    reconnect_position: float = 0.0
    """The position when its source was last answered."""
    answer_at: float = 0.0
    """When the answer comes that has waited behind a full link."""
    lost: float = 0.0
    first_loss: float = math.inf
    lag: float = 0.0
    """The highest, in messages; and in seconds."""
    lag_s: float = 0.0
    caught_up: float = 0.0
    """When it last came to have nothing waiting; infinite while something is."""
    marks: dict[float, float] = field(default_factory=dict)
    """What was delivered at moments that somebody asks for."""

    @property
    def arrivals(self) -> float:
        """Messages that the reader has."""
        return self.position - self.lost

    def count_published(self, moment: float) -> float:
        """Messages until *moment*."""
        if self.silent:
            moment -= sum(max(0.0, min(moment, interval.ends) - interval.begins) for interval in self.silent)
        return self.rate * moment if moment > 0 else 0.0

    def publishing_speed(self, moment: float) -> float:
        """Messages per second, none before the beginning."""
        return 0.0 if moment < 0 or any(interval.has(moment) for interval in self.silent) else self.rate

    def limits_at(self, moment: float) -> tuple[tuple[float, float], ...]:
        """For each limit: the position below which it has removed everything, and how fast that goes on."""
        before = moment - self.keeping.age
        return (
            (self.count_published(before), self.publishing_speed(before)),
            (self.count_published(moment) - self.keeping.messages, self.publishing_speed(moment)),
        )

    def moments(self) -> Iterator[float]:
        """When speeds change, and the marks."""
        for interval in (*self.idle, *self.silent):
            for later in (0.0, self.keeping.age):
                yield from (interval.begins + later, interval.ends + later)
        yield from (self.keeping.age, *self.marks)

    def is_idle(self, now: float) -> bool:
        """Whether its source takes nothing."""
        return any(interval.has(now) for interval in self.idle)

    def ask(self, now: float, delay: float) -> float:
        """When its source goes on, or asks once more, if a request made at *now* is answered *delay* seconds late."""
        self.reconnect_position = self.position
        if delay < _LITTLE or self.answer_at == now:
            return now
        later = now + (SOURCE_ANSWER_SECONDS + BACKOFF if delay > SOURCE_ANSWER_SECONDS else delay)
        self.answer_at = 0.0 if delay > SOURCE_ANSWER_SECONDS else later
        self.idle.append(Interval(now, later))
        return later

    def count_queued(self, now: float) -> float:
        """Bytes that are under way: the window grows with what was taken."""
        window = min(WINDOW, FIRST_WINDOW + (self.position - self.reconnect_position) * self.wire)
        waiting = (self.count_published(now) - self.position) * self.wire
        return 0.0 if self.is_idle(now) else self.weight * min(waiting, window)

    def predict_change(self, now: float, speed: float) -> float:
        """Seconds until the backlog is gone, or a limit reaches what waits, if messages are taken at *speed*."""
        waiting, gain = self.count_published(now) - self.position, speed - self.publishing_speed(now)
        changes = [waiting / gain] if waiting > _LITTLE and gain > 0 else []
        for removed, removal in self.limits_at(now):
            if removal > speed and self.position - removed > _LITTLE:
                changes.append((self.position - removed) / (removal - speed))
        return min(changes, default=math.inf)

    def advance(self, now: float, after: float, speed: float) -> None:
        """Take messages at *speed* from *now* to *after*."""
        self._note(now)
        reached = min(self.count_published(after), self.position + speed * (after - now))
        removed = max(position for position, _ in self.limits_at(after))
        if removed - reached > _LITTLE:
            self.first_loss = min(self.first_loss, now)
            self.lost += removed - reached
        self.position = max(reached, removed)
        self._note(after)

    def _note(self, now: float) -> None:
        waiting = self.count_published(now) - self.position
        if waiting > _LITTLE:
            oldest = self.position / self.rate
            for interval in self.silent:
                oldest += (interval.ends - interval.begins) * (oldest >= interval.begins)
            self.lag, self.lag_s = max(self.lag, waiting), max(self.lag_s, now - oldest)
            self.caught_up = math.inf
        elif math.isinf(self.caught_up):
            self.caught_up = now
        if now in self.marks:
            self.marks[now] = self.arrivals


def run_link(flows: Sequence[Flow], capacities: tuple[float, float], rtt: float, duration: float) -> None:
    """Let *flows* share a link until *duration*. *capacities*: bytes per second, there and back."""
    forth, back = ([flow for flow in flows if flow.is_back is is_back] for is_back in (False, True))
    flows, now = [*forth, *back], 0.0
    moments = sorted({moment for flow in flows for moment in flow.moments() if 0 < moment < duration} | {duration})
    while moments:
        end = moments.pop(0)
        while now < end:
            speeds = [*_share_link(forth, now, capacities[0], rtt), *_share_link(back, now, capacities[1], rtt)]
            changes = [flow.predict_change(now, speed) for flow, speed in zip(flows, speeds, strict=True)]
            # A step too short to count in floating point would be made for ever.
            after = min(end, now + max(min(changes), _LITTLE))
            for flow, speed in zip(flows, speeds, strict=True):
                flow.advance(now, after, speed)
            now = after
        for flow in flows:
            if any(interval.ends == now for interval in flow.idle) and not flow.is_idle(now):
                # All that goes one way shares a connection (server/gateway.go), requests and answers too.
                queues = [sum(user.count_queued(now) for user in users if user is not flow) for users in (forth, back)]
                later = flow.ask(now, sum(queue / most for queue, most in zip(queues, capacities, strict=True)))
                if now < later < duration:
                    insort(moments, later)


def _share_link(flows: Sequence[Flow], now: float, capacity: float, rtt: float) -> list[float]:
    """Messages per second for each flow: what it wants, or what is left, in equal parts of bytes for each stream."""
    wishes = []
    for flow in flows:
        speed = math.inf if flow.count_published(now) - flow.position > _LITTLE else flow.publishing_speed(now)
        wishes.append(0.0 if flow.is_idle(now) else min(speed, WINDOW / max(rtt, _LITTLE) / flow.wire))
    speeds = [0.0] * len(flows)
    left, weights = capacity, sum(flow.weight for flow in flows)
    for index in sorted(range(len(flows)), key=lambda index: wishes[index] * flows[index].wire):
        flow = flows[index]
        speeds[index] = min(wishes[index], left / max(weights, flow.weight) / flow.wire)
        left -= speeds[index] * flow.wire * flow.weight
        weights -= flow.weight
    return speeds


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over all histories; None where it did not come to pass within the duration."""

    low: float | None
    high: float | None


def measure_spread(values: Iterable[float]) -> Spread:
    """The lowest and the highest of *values*, one at least; infinite ones did not come to pass."""
    ordered = sorted(values)
    return Spread(*(round(value, 3) if math.isfinite(value) else None for value in (ordered[0], ordered[-1])))


@value_class
class PairFigures:
    """Pairs of regions that are alike, each as bad as its worst stream; *lost_messages* are of all. *origin* and *reader* are the first."""

    origin: str
    reader: str
    pairs_alike: int
    lag_messages: Spread
    lag_s: Spread
    everywhere_after_healing_s: Spread
    lost_messages: Spread
    first_loss_s: Spread
    crossed_bytes: float


@value_class
class OutageSimulation:
    """What a topology comes to. JSON has the same names. *stored_bytes* are by region, those of all replicas."""

    topology: str
    duration_s: float
    published_messages: float
    refused_messages: float
    crossed_bytes: float
    source_consumers: int
    meta_assets: int
    meta_members: int
    not_simulated: tuple[str, ...]
    pairs: tuple[PairFigures, ...]
    """The worst first."""
    stored_bytes: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class _AlikePairs:
    """What pairs of regions that are alike have in common. *capacities*, there and back, are in bytes per second."""

    origin: tuple[Away, ...]
    reader: tuple[Away, ...]
    servers: tuple[int, int]
    capacities: tuple[float, float]
    rtt: float
    classes: tuple[StreamClass, ...]


def simulate(
    topology: Topology,
    loads: Mapping[str, Load],
    copies: Mapping[str, int],
    outages: Mapping[str, Sequence[Away]],
    links: Mapping[Direction, LinkState],
    duration: float,
) -> OutageSimulation:
    """
    What becomes of *loads*, by virtual stream, within *duration* seconds, with *outages* by region.

    *copies*: by virtual stream, how many such streams there are; one if it is not in it.
    """
    streams = [stream for stream in topology.streams if stream.consistency is Consistency.VIRTUAL]
    counts: Counter[StreamClass] = Counter()
    for stream in streams:
        counts[_classify(stream, loads[stream.name])] += copies.get(stream.name, 1)
    draw = random.Random(0)  # noqa: S311 - a model, not a secret
    groups = _group_pairs(topology, tuple(counts), outages, links)
    histories: dict[_AlikePairs, list[list[tuple[StreamClass, Flow]]]] = {}
    for alike, pairs in groups.items():
        number = HISTORIES * min(ALIKE, len(pairs))
        histories[alike] = [_draw_history(alike, counts, duration, draw) for _ in range(number)]
    healed = max((away.ends for times in outages.values() for away in times), default=0.0)
    figures = [_pair_figures(alike, groups[alike], histories[alike], healed) for alike in groups]
    written = {region.name: _make_write_flows(counts, region.name, outages) for region in topology.regions}
    writers = [flow for flows in written.values() for flow in flows.values()]
    published = sum(flow.count_published(duration) * flow.weight for flow in writers)
    return OutageSimulation(
        topology=topology.name,
        duration_s=duration,
        published_messages=published,
        refused_messages=sum(flow.rate * flow.weight for flow in writers) * duration - published,
        crossed_bytes=sum(pair.crossed_bytes * pair.pairs_alike for pair in figures),
        source_consumers=sum(count * len(kind.regions) ** 2 for kind, count in counts.items()),
        meta_assets=sum(len(physical_streams(stream)) * copies.get(stream.name, 1) for stream in topology.streams),
        meta_members=len(topology.seats),
        not_simulated=tuple(stream.name for stream in topology.streams if stream not in streams),
        pairs=tuple(sorted(figures, key=lambda pair: pair.lag_s.high or 0, reverse=True)),
        stored_bytes=_store(groups, histories, written, duration),
    )


def _classify(stream: VirtualStream, load: Load) -> StreamClass:
    """What *stream* is like. Settings are those of the first region, should regions differ."""
    first, stored = stream.regions[0], load.size + RECORD_BYTES + SUBJECT_BYTES
    return StreamClass(
        regions=stream.regions,
        rate=load.rate,
        size=load.size,
        write=find_retention_limits(stream.write_settings[first], stored),
        read=find_retention_limits(stream.read_settings[first], stored + HEADER_BYTES),
    )


def _group_pairs(
    topology: Topology,
    classes: tuple[StreamClass, ...],
    outages: Mapping[str, Sequence[Away]],
    links: Mapping[Direction, LinkState],
) -> dict[_AlikePairs, list[Direction]]:
    """The pairs of regions between which messages go, by what they have in common."""
    groups: dict[_AlikePairs, list[Direction]] = defaultdict(list)
    for origin in topology.regions:
        for reader in topology.regions:
            pair = (origin.name, reader.name)
            link, return_link = links.get(pair, IDEAL), links.get(pair[::-1], IDEAL)
            alike = _AlikePairs(
                origin=tuple(outages.get(origin.name, ())),
                reader=tuple(outages.get(reader.name, ())),
                servers=(len(origin.servers), len(reader.servers)),
                capacities=(
                    link.rate / 8 if link.rate else math.inf,
                    return_link.rate / 8 if return_link.rate else math.inf,
                ),
                rtt=(link.delay or 0) + (return_link.delay or 0),
                classes=tuple(kind for kind in classes if {*pair} <= {*kind.regions}),
            )
            if alike.classes and origin is not reader:
                groups[alike].append(pair)
    return groups


def _draw_history(
    alike: _AlikePairs, counts: Counter[StreamClass], duration: float, draw: random.Random
) -> list[tuple[StreamClass, Flow]]:
    starts = (draw_start(alike.servers[0], draw), draw_start(alike.servers[1], draw))
    flows: list[tuple[StreamClass, Flow]] = []
    sides = [(alike.origin, alike.reader, starts), (alike.reader, alike.origin, starts[::-1])]
    is_shared = min(alike.capacities) < math.inf and (alike.origin or alike.reader)  # else no source asks, or waits
    for is_back, (writing, reading, times) in enumerate(sides if is_shared else sides[:1]):
        dead = find_down(writing, times[0])
        for kind in alike.classes:
            different = min(ALIKE, counts[kind])
            for _ in range(different):
                flow = _make_flow(kind, counts[kind] / different, find_idle(writing, reading, times, draw), dead)
                flow.is_back = bool(is_back)
                flow.marks = dict.fromkeys((max(0.0, duration - kind.read.age), duration), 0.0)
                flows.append((kind, flow))
    run_link([flow for _, flow in flows], alike.capacities, alike.rtt, duration)
    return [(kind, flow) for kind, flow in flows if not flow.is_back]


def _make_flow(kind: StreamClass, weight: float, idle: list[Interval], silent: list[Interval]) -> Flow:
    wire = kind.size + SUBJECT_BYTES + PROTOCOL_BYTES
    return Flow(rate=kind.rate, wire=wire, weight=weight, keeping=kind.write, idle=idle, silent=silent)


def _pair_figures(
    alike: _AlikePairs,
    pairs: Sequence[Direction],
    histories: Sequence[Sequence[tuple[StreamClass, Flow]]],
    healed: float,
) -> PairFigures:
    """What became of *pairs*, over *histories* of which several belong together, with chances of their own."""
    together = len(histories) // HISTORIES
    rounds: list[list[Flow]] = [[] for _ in range(HISTORIES)]
    for number, flows in enumerate(histories):
        rounds[number // together] += [flow for _, flow in flows]
    return PairFigures(
        origin=pairs[0][0],
        reader=pairs[0][1],
        pairs_alike=len(pairs),
        lag_messages=measure_spread(max(flow.lag for flow in flows) for flows in rounds),
        lag_s=measure_spread(max(flow.lag_s for flow in flows) + alike.rtt / 2 for flows in rounds),
        everywhere_after_healing_s=measure_spread(
            max(0.0, *(flow.caught_up - healed for flow in flows)) for flows in rounds
        ),
        lost_messages=measure_spread(sum(flow.lost * flow.weight for flow in flows) / together for flows in rounds),
        first_loss_s=measure_spread(min(flow.first_loss for flow in flows) for flows in rounds),
        crossed_bytes=sum(flow.arrivals * flow.wire * flow.weight for flows in rounds for flow in flows)
        / len(histories),
    )


def _make_write_flows(
    counts: Counter[StreamClass], region: str, outages: Mapping[str, Sequence[Away]]
) -> dict[StreamClass, Flow]:
    """What clients publish in *region*, which an ordinary start keeps from it."""
    dead = find_down(outages.get(region, ()), BOOT + DIAL / 2)
    return {kind: _make_flow(kind, count, [], dead) for kind, count in counts.items() if region in kind.regions}


def _store(
    groups: Mapping[_AlikePairs, Sequence[Direction]],
    histories: Mapping[_AlikePairs, Sequence[Sequence[tuple[StreamClass, Flow]]]],
    written: Mapping[str, Mapping[StreamClass, Flow]],
    duration: float,
) -> dict[str, float]:
    """Bytes in each region in the end, all replicas together. What a region publishes itself, it has at once."""
    read: defaultdict[tuple[str, StreamClass], float] = defaultdict(float)
    for alike, pairs in groups.items():
        for kind in alike.classes:
            marks = [flow.marks for flows in histories[alike] for flow_kind, flow in flows if flow_kind is kind]
            before = max(0.0, duration - kind.read.age)
            recent = statistics.fmean(mark[duration] - mark[before] for mark in marks)
            for _, reader in pairs:
                read[reader, kind] += recent
    stored = dict.fromkeys(written, 0.0)
    for region, flows in written.items():
        for kind, flow in flows.items():
            size = kind.size + RECORD_BYTES + SUBJECT_BYTES
            removed = max(0.0, *(position for position, _ in flow.limits_at(duration)))
            writes = (flow.count_published(duration) - removed) * size * kind.write.replicas
            itself = flow.count_published(duration) - flow.count_published(duration - kind.read.age)
            reads = min(read[region, kind] + itself, kind.read.messages) * (size + HEADER_BYTES) * kind.read.replicas
            stored[region] += (writes + reads) * flow.weight
    return stored
