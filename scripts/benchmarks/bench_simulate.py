"""
What `vstream size --simulate` predicts beside what real servers did: lag, catching up, storage and first loss.

Each scenario is a lab with streams of several rates and limits, an outage of the west, and a sampler that asks three times a
second what every read stream has of each origin. A figure that servers decide by chance is predicted as a range.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import bench_goals
import nats

from tests.support.command import vstream
from vstream.cli.link_options import choose_shape
from vstream.health.simulation import OutageSimulation, Spread, measure_spread, simulate
from vstream.health.source_retries import Away
from vstream.jetstream.endpoints import make_connection_options
from vstream.lab.endpoints import list_client_endpoints, list_endpoints
from vstream.lint import check_topology
from vstream.topology import physical
from vstream.topology.model import Role, Topology
from vstream.topology.naming import api_subject
from vstream.topology.sizing import SUBJECT_BYTES, Load

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

NAME = "bench-simulate"
REGIONS = ("west", "central", "east")
AWAY = REGIONS[0]
INTERVAL = 0.33
SETTLED = 6.0
"""Seconds of load before an outage, so that every source has had something."""
PATIENCE = 150.0
GOAL = 0.2
STEADY = 6
"""Samples in which nothing may change."""
BURST = 3
"""Samples in about a second."""
Key = tuple[str, str, str]
"""Stream, origin and reader."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One lab. *streams*: the rate in each region, the bytes of a message, and what the topology says of it."""

    routing: str
    fault: str | None
    """The command below `vstream chaos`; None for a run without an outage."""
    lasts: float
    streams: dict[str, tuple[float, int, dict[str, Any]]]
    link: str | None = None
    again_after: float | None = None
    """Seconds from the end of the outage until another one like it begins; None if it is the only one."""
    version: str = "2.15.1"

    @property
    def title(self) -> str:
        """What is done, in a few words."""
        how = {"kill-region": "killed", "isolate": "cut off", None: "no outage"}[self.fault]
        again = "" if self.again_after is None else f", and again {self.again_after:g} s later"
        return f"{self.routing}, {how} {self.lasts:g} s{again}" + (f", {self.link}" if self.link else "")

    @property
    def countable(self) -> list[tuple[str, float]]:
        """Streams whose read streams keep everything, so that what a reader has can be counted, and their rates."""
        return [(name, rate) for name, (rate, _, settings) in self.streams.items() if "read" not in settings]


PLAIN = {"write": {"max_age": "1h"}}
SCENARIOS = (
    Scenario(routing="mapped", fault="kill-region", lasts=8, streams={"a": (200, 256, PLAIN), "b": (20, 1024, PLAIN)}),
    Scenario(
        routing="mapped",
        fault="isolate",
        lasts=15,
        streams={
            "a": (100, 512, PLAIN),
            "b": (50, 1024, {"write": {"max_age": "8s"}}),
            "c": (100, 256, {"write": {"max_age": "1h", "max_msgs": 900}}),
            "d": (100, 512, {"write": {"max_age": "30s"}, "read": {"max_age": "40s"}}),
        },
    ),
    Scenario(
        routing="accounts",
        fault="isolate",
        lasts=30,
        streams={"a": (100, 512, PLAIN), "b": (50, 1000, {"write": {"max_age": "1h", "max_bytes": 1_000_000}})},
    ),
    Scenario(
        routing="mapped", fault="isolate", lasts=30, streams={"a": (100, 1024, PLAIN)}, link="west-central:rate=2mbit"
    ),
    Scenario(
        routing="accounts",
        fault="kill-region",
        lasts=20,
        streams={"a": (150, 1024, PLAIN)},
        link="west-east:rate=3mbit,rtt=100ms",
    ),
    Scenario(routing="domains", fault="isolate", lasts=20, streams={"a": (100, 512, PLAIN)}),
    Scenario(routing="mapped", fault="isolate", lasts=5, streams={"a": (200, 256, PLAIN)}, version="2.12.8"),
    Scenario(
        routing="accounts",
        fault=None,
        lasts=180,
        streams={
            "a": (100, 1024, PLAIN),
            "d": (50, 512, {"write": {"max_age": "30s"}, "read": {"max_age": "1m"}}),
            "e": (150, 256, {"write": {"max_age": "1m"}, "read": {"max_age": "1h", "max_bytes": 5_000_000}}),
        },
    ),
    Scenario(routing="accounts", fault="kill-region", lasts=15, streams={"a": (300, 200, PLAIN)}, version="2.12.8"),
    Scenario(
        routing="regional",
        fault="kill-region",
        lasts=12,
        streams={"a": (100, 512, PLAIN), "b": (50, 1024, {"write": {"max_age": "8s"}})},
    ),
    Scenario(
        routing="accounts",
        fault="isolate",
        lasts=12,
        again_after=8,
        streams={"a": (100, 512, PLAIN), "b": (50, 1000, {"write": {"max_age": "7s"}})},
    ),
)


@dataclass
class Sample:
    """What was there: by stream and origin the first and last sequence, by stream, origin and reader what it had."""

    at: float
    written: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    held: dict[tuple[str, str, str], int] = field(default_factory=dict)
    stored: dict[str, int] = field(default_factory=dict)
    """Bytes by region."""


@dataclass(kw_only=True)
class Row:
    """One figure."""

    name: str
    measured: float
    predicted: Spread
    unit: str

    @property
    def range(self) -> tuple[float, float]:
        """From the best to the worst; infinite if that is never."""
        ends = (self.predicted.low, self.predicted.high)
        low, high = (math.inf if end is None else end for end in ends)
        return low, high

    @property
    def deviation(self) -> float:
        """From the prediction, or from its nearer end where it is a range."""
        low, high = self.range
        nearest = min(max(self.measured, low), high)
        return (self.measured - nearest) / nearest if nearest else math.inf

    def __str__(self) -> str:
        low, high = self.range
        is_single = high - low <= GOAL / 4 * high
        predicted = f"{high:,.1f}" if is_single else f"{low:,.1f} to {high:,.1f}"
        inside = "inside" if not is_single and not self.deviation else f"{self.deviation:+.0%}"
        mark = "" if abs(self.deviation) <= GOAL else "  <- above 20 %"
        return f"  {self.name:<46}{self.measured:>12,.1f} {self.unit:<9}{predicted:>22}  {inside:>7}{mark}"


async def _quiet(_: Exception) -> None:
    """The library logs tracebacks where nobody listens."""


async def _publish(client: Any, stream: str, region: str, rate: float, size: int) -> None:
    """Publish for ever, on a subject as long as is assumed. What is due while the servers are dead is not published later, what a busy machine holds up is."""
    due = time.monotonic()
    body, subject = os.urandom(size), f"{stream}.{'x' * (SUBJECT_BYTES - len(stream) - len(region) - 2)}.{region}"
    while True:
        due += 1 / rate
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        if client.is_connected:
            await client.publish(subject, body)


async def _ask(client: Any, stream: str, body: dict[str, Any]) -> dict[str, Any] | None:
    """The state of a physical stream; None while nobody answers."""
    try:
        answer = await client.request(api_subject("STREAM.INFO", stream), json.dumps(body).encode(), timeout=2)
    except (nats.errors.Error, OSError, TimeoutError):
        return None
    state: dict[str, Any] | None = json.loads(answer.data).get("state")
    return state


async def _take_sample(topology: Topology, clients: dict[str, Any]) -> Sample:
    """The write streams, and then what every read stream has: what it lacks of them was late, however long asking takes."""
    sample = Sample(time.monotonic())

    async def look(role: Role, stream: Any, region: str) -> None:
        body = {"subjects_filter": f"{stream.name}.>"} if role is Role.READ else {}
        state = await _ask(clients[region], physical.physical_name(stream, role, region), body)
        if state is None:
            return
        sample.stored[region] = sample.stored.get(region, 0) + state["bytes"]
        if role is Role.WRITE:
            sample.written[stream.name, region] = (state["first_seq"], state["last_seq"])
        for subject, number in (state.get("subjects") or {}).items() if role is Role.READ else ():
            sample.held[stream.name, subject.rpartition(".")[2], region] = number

    for role in (Role.WRITE, Role.READ):
        await asyncio.gather(*(look(role, stream, region) for stream in topology.streams for region in stream.regions))
    return sample


def _document(scenario: Scenario) -> bytes:
    document: dict[str, Any] = {
        "version": 1,
        "name": NAME,
        "server_version": "2.12",
        "routing": scenario.routing,
        "regions": {region: {"servers": 1} for region in REGIONS},
        "streams": {
            name: {"subjects": [f"{name}.>"], **settings} for name, (_, _, settings) in scenario.streams.items()
        },
    }
    if scenario.routing != "mapped":
        document["roots"] = [f"{name}.>" for name in scenario.streams]
    return json.dumps(document).encode()


async def _connect(endpoints: Any) -> dict[str, Any]:
    return {
        region: await nats.connect(
            list(endpoint.urls),
            error_cb=_quiet,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.1,
            connect_timeout=10,
            **make_connection_options(endpoint, region),
        )
        for region, endpoint in endpoints.items()
    }


async def _observe(scenario: Scenario, topology: Topology, file: Path) -> tuple[list[Sample], float, list[Away]]:
    """Samples of a whole scenario, when the load began, and the outages: each lasts until its healing began."""
    looking, clients = await _connect(list_endpoints(NAME)), await _connect(list_client_endpoints(NAME))
    began = time.monotonic()
    load = [
        asyncio.create_task(_publish(clients[region], name, region, rate, size))
        for region in REGIONS
        for name, (rate, size, _) in scenario.streams.items()
    ]
    samples: list[Sample] = []
    try:
        await _sample_until(began + SETTLED, topology, looking, samples)
        outages: list[Away] = []
        if scenario.fault is None:
            await _sample_until(began + scenario.lasts, topology, looking, samples)
            return samples, began, outages
        for _ in range(1 if scenario.again_after is None else 2):
            if outages:
                await _sample_until(outages[-1].ends + (scenario.again_after or 0), topology, looking, samples)
            command = asyncio.to_thread(_run, "chaos", scenario.fault, AWAY, "--topology", file, "--lab", NAME)
            await _sample_during(command, topology, looking, samples)
            broken = _last_arrival(samples)
            if outages and broken <= outages[-1].ends:
                # What the first outage held up has not come yet, so nothing shows when the second began.
                broken = samples[-1].at
            await _sample_until(broken + scenario.lasts, topology, looking, samples)
            outages.append(Away(broken, time.monotonic(), scenario.fault == "kill-region"))
            command = asyncio.to_thread(_run, "chaos", "heal", "--lab", NAME)
            await _sample_during(command, topology, looking, samples)
        while not _is_steady(scenario, samples) and time.monotonic() < outages[-1].ends + PATIENCE:
            await _sample_on(topology, looking, samples)
    finally:
        for task in load:
            task.cancel()
        for client in (*looking.values(), *clients.values()):
            await client.close()
    return samples, began, outages


async def _sample_during(
    command: Coroutine[Any, Any, None], topology: Topology, clients: dict[str, Any], samples: list[Sample]
) -> None:
    """Go on with samples until *command* is done."""
    task = asyncio.create_task(command)
    while not task.done():
        await _sample_on(topology, clients, samples)
    await task


async def _sample_until(moment: float, topology: Topology, clients: dict[str, Any], samples: list[Sample]) -> None:
    while time.monotonic() < moment:
        await _sample_on(topology, clients, samples)


async def _sample_on(topology: Topology, clients: dict[str, Any], samples: list[Sample]) -> None:
    due = samples[-1].at + INTERVAL if samples else 0.0
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    samples.append(await _take_sample(topology, clients))


def _last_arrival(samples: Sequence[Sample]) -> float:
    """When the east last had something new of a region that was away."""
    moments = [
        after.at
        for before, after in pairwise(samples)
        for key, number in after.held.items()
        if key[1:] == (AWAY, REGIONS[2]) and number > before.held.get(key, 0)
    ]
    return max(moments)


def _offset(sample: Sample, key: Key) -> int | None:
    """How many messages a reader has less than were written, lost ones too; None while it is not known."""
    written, held = sample.written.get(key[:2]), sample.held.get(key)
    return None if written is None or held is None else written[1] - held


def _is_steady(scenario: Scenario, samples: Sequence[Sample]) -> bool:
    """Whether every reader goes on as fast as is written: what it lacks then is lost, or under way."""
    recent = samples[-STEADY:]
    for stream, rate in scenario.countable:
        for origin in REGIONS:
            for reader in REGIONS:
                offsets = [_offset(sample, (stream, origin, reader)) for sample in recent]
                numbers = [offset for offset in offsets if offset is not None]
                if len(numbers) < len(recent) or max(numbers) - min(numbers) > 3 * _tolerance(rate):
                    return False
    return True


def _tolerance(rate: float) -> float:
    """Messages that are under way while a sample is taken."""
    return 3 + 0.15 * rate


def compare(
    scenario: Scenario, samples: Sequence[Sample], began: float, outages: Sequence[Away], topology: Topology
) -> Iterator[Row]:
    """Every figure of *scenario*. *began*: when the load did."""
    _carry_forward(samples)
    times = {AWAY: [Away(away.begins - began, away.ends - began, away.is_killed) for away in outages]}
    rates = find_rates(scenario, samples, began)
    links = choose_shape(topology, [scenario.link] if scenario.link else [])
    duration = samples[-1].at - began

    def predict(*streams: str, longer: float = PATIENCE) -> OutageSimulation:
        loads = {
            name: Load(rate=rates[name] if name in streams else 0, size=size)
            for name, (_, size, _) in scenario.streams.items()
        }
        return simulate(topology, loads, {}, times, links, duration + longer)

    everything = predict(*scenario.streams, longer=0)
    counted = {(pair.origin, pair.reader): pair for pair in predict(*(name for name, _ in scenario.countable)).pairs}
    for pair in predict("a").pairs:
        alike = [key for key in _pairs() if _describe(scenario, key) == _describe(scenario, (pair.origin, pair.reader))]
        if AWAY not in (pair.origin, pair.reader) or scenario.fault is None:
            continue
        name = f"{pair.origin} to {pair.reader}" + (" and one like it" if len(alike) > 1 else "")
        lags = [offset for sample in samples for key in alike if (offset := _offset(sample, ("a", *key))) is not None]
        yield Row(name=f"highest lag, {name}", measured=max(lags), predicted=pair.lag_messages, unit="messages")
        healed = [sample for sample in samples if sample.at >= outages[-1].ends]
        late = max(_steady_since(scenario, healed, key) for key in alike) - outages[-1].ends
        yield Row(
            name=f"all there, {name}",
            measured=late,
            predicted=counted[pair.origin, pair.reader].everywhere_after_healing_s,
            unit="s",
        )
    if scenario.fault is not None:
        yield from _losses(scenario, samples, began, outages[0].begins, predict)
    # Where chance may still keep something back, what is stored has no single figure.
    is_over = all(pair.everywhere_after_healing_s.high is not None for pair in everything.pairs)
    for region in REGIONS[:2] if is_over else ():
        stored = everything.stored_bytes[region]
        yield Row(
            name=f"stored in {region} after {duration:.0f} s",
            measured=samples[-1].stored[region] / 1e6,
            predicted=measure_spread([stored / 1e6]),
            unit="MB",
        )


def _carry_forward(samples: Sequence[Sample]) -> None:
    """Give regions that did not answer what they had before: the dead neither publish nor read."""
    for before, after in pairwise(samples):
        after.written = before.written | after.written
        after.held = before.held | after.held


def _losses(
    scenario: Scenario,
    samples: Sequence[Sample],
    began: float,
    broken: float,
    predict: Callable[[str], OutageSimulation],
) -> Iterator[Row]:
    pair = (REGIONS[1], REGIONS[0])
    for name, (_, _, settings) in scenario.streams.items():
        figures = next(figures for figures in predict(name).pairs if figures.reader == AWAY)
        if figures.first_loss_s.high is None or "read" in settings:
            continue
        lost_at = [
            sample.at - broken
            for sample in samples
            if (name, *pair) in sample.held and sample.written[name, pair[0]][0] - 1 > sample.held[name, *pair]
        ]
        limit = ", ".join(f"{key} {value}" for key, value in settings["write"].items())
        first = figures.first_loss_s
        after = measure_spread([(moment or math.inf) - (broken - began) for moment in (first.low, first.high)])
        yield Row(name=f"first loss, {limit}", measured=min(lost_at, default=math.nan), predicted=after, unit="s")
        lost = max(_offset(sample, (name, *pair)) or 0 for sample in samples[-STEADY:])
        yield Row(name=f"lost, {limit}", measured=lost, predicted=figures.lost_messages, unit="messages")


def find_rates(scenario: Scenario, samples: Sequence[Sample], began: float) -> dict[str, float]:
    """Messages per second that were published of each stream in a region that was up: a busy machine falls behind."""
    last = samples[-1]
    return {name: last.written[name, REGIONS[1]][1] / (last.at - began) for name in scenario.streams}


def _pairs() -> list[tuple[str, str]]:
    return [(origin, reader) for origin in REGIONS for reader in REGIONS if origin != reader]


def _describe(scenario: Scenario, pair: tuple[str, str]) -> tuple[bool, bool, bool]:
    """What pairs that are alike have in common."""
    is_narrow = scenario.link is not None and set(scenario.link.partition(":")[0].split("-")) == set(pair)
    return pair[0] == AWAY, pair[1] == AWAY, is_narrow


def _steady_since(scenario: Scenario, samples: Sequence[Sample], pair: tuple[str, str]) -> float:
    """
    When the last stream had all between *pair* that it has in the end.

    What is late for less than a second does not count, as on a busy machine publishes come in bursts; unless all is.
    """
    for least in (BURST, 1):
        since = samples[0].at
        until = {sample.at: after.at for sample, after in pairwise(samples)}
        for stream, rate in scenario.countable:
            key, late = (stream, *pair), 0
            lost = max(_offset(sample, key) or 0 for sample in samples[-STEADY:])
            for sample in samples:
                offset = _offset(sample, key)
                late = late + 1 if offset is None or offset > lost + _tolerance(rate) else 0
                if late >= least:
                    since = max(since, until.get(sample.at, sample.at))
        if since > samples[0].at:
            break
    return since


def measure(scenario: Scenario) -> list[Row]:
    """Run *scenario* in a lab of its own."""
    topology = check_topology.check_topology(_document(scenario), "simulate.yaml").require()
    with tempfile.TemporaryDirectory(prefix="vstream-bench-") as directory:
        os.environ.update(VSTREAM_STATE_DIR=f"{directory}/state", VSTREAM_KEYS=f"{directory}/keys")
        file = Path(directory) / "topology.yaml"
        file.write_bytes(_document(scenario))
        try:
            links = ["--link", scenario.link] if scenario.link else []
            _run("lab", "up", file, "--server-version", scenario.version, *links)
            _run("apply", file, "--yes", "--lab", NAME)
            samples, began, outages = asyncio.run(_observe(scenario, topology, file))
        finally:
            _run("lab", "down", NAME, "--purge")
    return list(compare(scenario, samples, began, outages, topology))


def main(numbers: Sequence[int] = ()) -> int:
    """Print measured and predicted figures; 1 if one is off by more than a fifth. *numbers*: of the scenarios, or all."""
    rows = []
    for number, scenario in enumerate(SCENARIOS):
        if numbers and number not in numbers:
            continue
        measured = measure(scenario)
        print(f"{scenario.title}, {scenario.version}, load {os.getloadavg()[0]:.1f}", flush=True)
        for row in measured:
            print(row, flush=True)
        rows += measured
    within = sum(abs(row.deviation) <= GOAL for row in rows)
    print(f"{within} of {len(rows)} figures within {GOAL:.0%} of the prediction, or of its range")
    bench_goals.record("figures within 20 % of the prediction", within / len(rows))
    return 0 if within == len(rows) else 1


def _run(*arguments: str | Path) -> None:
    ran = vstream(*arguments, timeout=300)
    if ran.code:
        raise RuntimeError(f"vstream {' '.join(map(str, arguments))}: {ran.code}\n{ran.out}\n{ran.err}")


if __name__ == "__main__":
    sys.exit(main([int(text) for text in sys.argv[1:]]))
