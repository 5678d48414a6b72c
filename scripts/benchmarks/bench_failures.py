"""
What an outage of a region does, by routing profile and consistency model: each region killed, and each cut off, under load.

Every run is a scenario in a lab of its own: publishers with acknowledgements and message ids in every region, which try
again for three seconds, and a durable pull consumer in every region, for a stream of each model. What was lost and
doubled is told by reading every stream in the end.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vstream.capture.records import OperationKind, OperationOutcome
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import CaseKind, CaseStatus
from vstream.errors import VstreamError
from vstream.lab import lifecycle
from vstream.lint.check_scenario import check_scenario
from vstream.runner.runner import capture_scenario
from vstream.scenario.model import ClientOperation
from vstream.topology.profiles import PROFILES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from vstream.capture.records import Delivery, FaultRecord, OperationRecord, Window
    from vstream.capture.store import Capture
    from vstream.capture.verdict.model import Verdict
    from vstream.topology.profiles.profile import Profile

REGIONS = ("west", "central", "east")
"""Each goes once. `prices` is at home in the east."""
STREAMS: dict[str, dict[str, Any]] = {
    "foo": {"subjects": ["v.foo.>"], "consistency": "virtual", "write": {"max_age": "1h"}},
    "ledger": {"subjects": ["v.ledger.>"], "consistency": "ordered", "write": {"max_age": "1h"}},
    "journal": {
        "subjects": ["v.journal.>"],
        "consistency": "ordered",
        "virtual_name": "order",
        "write": {"max_age": "1h"},
    },
    "stock": {"subjects": ["stock.>"], "consistency": "stretch"},
    "prices": {"subjects": ["prices.>"], "consistency": "homed", "home": "east"},
}
"""`journal` is `ordered`, whose ordering stream carries the virtual name: `named`, as in docs/compatibility.md."""
_MODELS = ("foo", "ledger", "stock", "prices")


def _list_streams_of(profile: Profile) -> tuple[str, ...]:
    """The streams that a topology may have with *profile*: domains have no other consistency, `virtual_name` is of `mapped`."""
    if profile.has_domains:
        return ("foo",)
    return tuple(STREAMS) if profile.has_physical_names else _MODELS


STREAMS_OF = {routing.value: _list_streams_of(profile) for routing, profile in PROFILES.items()}
VERSIONS = ("2.12.8", "2.15.1")
FAULTS = ("killed", "isolated")
HOW = {"west": "reset", "central": "drop", "east": "reset"}
RATE = 160
"""Publishes a second in each region, of all streams together."""
LASTS = {"killed": "8s", "isolated": "15s"}
_NS = 1_000_000_000
_UNDER_WAY = 2 * _NS
"""What was acknowledged in the last two seconds of an outage may be delivered after it."""
HEAD = (
    "profile   model      server  fault     rounds    acked  lost  doubled  moved   refused there        elsewhere"
    "       delivered     fetches  new consumer  converged"
)


@dataclass(kw_only=True)
class Round:
    """One outage of *region*, as the clients of one stream had it. Pairs are (so many, of so many)."""

    region: str
    watched: frozenset[str]
    """Where consumers are looked at: in the region itself, or in the others if it is dead."""
    window: Window
    tried: Window | None
    """When every operation was tried in the region."""
    refused: tuple[int, int] = (0, 0)
    """Publishes in the region that were not acknowledged."""
    elsewhere: tuple[int, int] = (0, 0)
    fetches: tuple[int, int] = (0, 0)
    """Pull requests of consumers that were there before, and were answered."""
    acknowledged: set[str] = field(default_factory=set)
    """Ids of what was published where consumers are looked at."""
    delivered: set[str] = field(default_factory=set)
    """Those of them that a consumer of the same region had before it was over."""
    created: bool | None = None
    """Whether a consumer could be made in the region, and delivered a message. None: nobody can ask the dead."""
    converged: list[float | None] = field(default_factory=list)
    """Seconds from the first step of the healing until a region had everything. None: never."""

    def take_operation(self, operation: OperationRecord) -> None:
        """Take in one operation of a client."""
        is_ok, is_here = operation.outcome is OperationOutcome.OK, operation.region == self.region
        if (
            self.tried is not None
            and is_here
            and operation.kind is OperationKind.TRY
            and _within(self.tried, operation.sent)
        ):
            if operation.subject == ClientOperation.CREATE_CONSUMER.value:
                self.created = is_ok and operation.count > 0
        elif not _within(self.window, operation.due):
            return
        elif operation.kind is OperationKind.PUBLISH:
            self._take_publish(operation, is_ok=is_ok, is_here=is_here)
        elif operation.kind is OperationKind.FETCH and operation.region in self.watched:
            self.fetches = _sum((self.fetches, (is_ok, 1)))

    def _take_publish(self, operation: OperationRecord, *, is_ok: bool, is_here: bool) -> None:
        if is_here:
            self.refused = _sum((self.refused, (not is_ok, 1)))
        else:
            self.elsewhere = _sum((self.elsewhere, (not is_ok, 1)))
        is_early = operation.done is not None and operation.done < self.window.end - _UNDER_WAY
        if is_ok and is_early and operation.region in self.watched and operation.id is not None:
            self.acknowledged.add(operation.id)

    def was_delivered(self, delivery: Delivery) -> None:
        """Take in what a consumer received, when all operations are known."""
        is_its_own = delivery.id.startswith(f"{delivery.region}/")
        if is_its_own and delivery.at < self.window.end and delivery.id in self.acknowledged:
            self.delivered.add(delivery.id)


def _within(window: Window, moment: int) -> bool:
    return window.start <= moment < window.end


def scenario(profile: str, fault: str, version: str, servers: int) -> dict[str, Any]:
    """The scenario of one run, as a document."""
    names = STREAMS_OF[profile]
    topology: dict[str, Any] = {
        "version": 1,
        "name": "outages",
        "server_version": "2.12",
        "routing": profile,
        "regions": {region: {"servers": servers} for region in REGIONS},
        "streams": {name: {**STREAMS[name], "canary": f"{_root(name)}._canary.*"} for name in names},
    }
    if profile != "mapped":
        topology["roots"] = ["v.>"]
    if len(names) > 1:
        topology["stretch"] = {"members": "all"}
    return {
        "scenario": 1,
        "name": "outages",
        "topology": topology,
        "lab": {"versions": {"*": version}},
        "workload": {
            "rate": f"{RATE // len(names)}/s",
            "retry": "same-id",
            "timeout": "1s",
            "give-up": "3s",
            "readers": [{"by": "consumer", "stream": name, "rate": "5/s"} for name in names],
        },
        "steps": [{"wait": "3s"}, *(step for region in REGIONS for step in _outage(region, fault))],
    }


def _root(name: str) -> str:
    return str(STREAMS[name]["subjects"][0]).removesuffix(".>")


def _outage(region: str, fault: str) -> Iterator[dict[str, Any]]:
    if fault == "killed":
        yield {"kill-region": region, "as": f"break-{region}"}
        yield {"wait": LASTS[fault], "as": f"out-{region}"}
    else:
        yield {"isolate": region, "how": HOW[region], "as": f"break-{region}"}
        yield {"wait": LASTS[fault], "as": f"out-{region}"}
        yield {"try": region, "as": f"try-{region}"}
    yield {"heal": f"break-{region}"}
    yield {"converge": "240s", "as": f"back-{region}"}


def rounds(capture: Capture, verdict: Verdict, fault: str) -> dict[tuple[str, str], Round]:
    """By stream and region that was away: what its clients noticed."""
    windows = {window.name: window for window in capture.windows()}
    loads = {
        (stream.name, region): Round(
            region=region,
            watched=frozenset({region}) if fault == "isolated" else frozenset(REGIONS) - {region},
            window=windows[f"out-{region}"],
            tried=windows.get(f"try-{region}"),
        )
        for stream in verdict.streams
        for region in REGIONS
        if f"out-{region}" in windows
    }
    for operation in capture.operations():
        for region in REGIONS:
            if (operation.stream, region) in loads:
                loads[operation.stream, region].take_operation(operation)
    for delivery in capture.deliveries():
        for region in REGIONS:
            if (delivery.stream, region) in loads:
                loads[delivery.stream, region].was_delivered(delivery)
    for broken in verdict.faults:
        for arrival in broken.convergences:
            key = (arrival.stream, broken.fault.id.removeprefix("break-"))
            if key in loads:
                loads[key].converged.append(_seconds(broken.fault, arrival.took))
    return loads


def _seconds(fault: FaultRecord, took: int | None) -> float | None:
    """From the first step of the healing; *took* counts from when the servers were healthy."""
    if took is None or fault.healed is None or fault.healing is None:
        return None
    return (fault.healed - fault.healing + took) / _NS


def _sum(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
    parts, of = zip(*pairs, strict=True)
    return sum(parts), sum(of)


def _of(pair: tuple[int, int]) -> str:
    return f"{pair[0]:,} of {pair[1]:,}"


def lines(profile: str, version: str, fault: str, capture: Capture, verdict: Verdict) -> Iterator[str]:
    """A line for each stream. One that has a home has two: its home's outage, and those of the others."""
    every = rounds(capture, verdict, fault)
    for stream in verdict.streams:
        acked = sum(tally.acknowledged for tally in stream.origins.values())
        lost = sum(stream.lost_by_origin.values())
        doubled = sum(physical.duplicated.count for physical in stream.physical)
        moved = sum(physical.reordered.count for physical in stream.physical) + stream.displaced * (
            stream.model != "virtual"
        )
        home = STREAMS[stream.name].get("home")
        called = "named" if "virtual_name" in STREAMS[stream.name] else stream.model
        groups = [(called, [load for (name, region), load in every.items() if name == stream.name and region != home])]
        if home is not None:
            groups.append(("  at home", [every[stream.name, home]] if (stream.name, home) in every else []))
        counts = f"{acked:>7,}  {lost:>4}  {doubled:>7}  {moved:>5}"
        for name, loads in groups:
            if not loads:
                continue
            asked = [load.created for load in loads if load.created is not None]
            slowest = [took for load in loads for took in load.converged]
            converged = "never" if None in slowest else f"{max(took for took in slowest if took is not None):.1f} s"
            delivered = _sum((len(load.delivered), len(load.acknowledged)) for load in loads)
            yield (
                f"{profile:<8}  {name:<9}  {version}  {fault:<8}  {len(loads):>6}  {counts}  "
                f"{_of(_sum(load.refused for load in loads)):>14}  {_of(_sum(load.elsewhere for load in loads)):>15}  "
                f"{_of(delivered):>14}  {_of(_sum(load.fetches for load in loads)):>10}  "
                f"{_of((sum(asked), len(asked))) if asked else '–':>12}  {converged:>9}"
            )
            counts = " " * len(counts)


def problems(verdict: Verdict) -> list[str]:
    """What must not be: something lost, doubled or out of order, or a fault, a step or a stream that nothing is known of."""
    asked = {CaseKind.SAFETY, CaseKind.FAULT, CaseKind.CAPTURE, CaseKind.SERVERS}
    return [
        f"{case.name}: {case.detail}"
        for case in verdict.cases
        if case.kind in asked and case.status is not CaseStatus.PASS
    ]


def outages(profile: str, version: str, fault: str, servers: int) -> bool:
    """One run, printed; False if something must not be. Its capture is kept then."""
    text = json.dumps(scenario(profile, fault, version, servers)).encode()
    topology = check_scenario(text, "outages.yaml", lambda _name: b"").require()
    directory = Path(tempfile.mkdtemp(prefix="vstream-outages-"))
    os.environ["VSTREAM_STATE_DIR"] = str(directory / "state")
    try:
        work = capture_scenario(
            topology, capture_dir=directory / "capture", lab_name="outages", on_event=lambda _event: None
        )
        capture = asyncio.run(work)
        verdict = judge_capture(capture)
    except VstreamError as error:
        print(f"{profile}, {version}, {fault}: {error.message}", flush=True)
        return False
    finally:
        asyncio.run(lifecycle.down("outages", purge=True))
    for line in lines(profile, version, fault, capture, verdict):
        print(line, flush=True)
    wrong = problems(verdict)
    for problem in (*wrong, *verdict.warnings):
        print(f"  {problem}", flush=True)
    if wrong:
        print(f"  the capture is kept: {capture.path}", flush=True)
    else:
        shutil.rmtree(directory)
    return not wrong


def main(profiles: Sequence[str], versions: Sequence[str], faults: Sequence[str], servers: int) -> int:
    """Print the table; 1 if anything was lost, doubled or out of order, or is not known."""
    how_many = "server" if servers == 1 else "servers"
    print(f"{RATE} publishes per second and region, {servers} {how_many} in each region", flush=True)
    print(HEAD, flush=True)
    runs = [(profile, version, fault) for profile in profiles for version in versions for fault in faults]
    done = [outages(*run, servers) for run in runs]
    return 0 if all(done) else 1
