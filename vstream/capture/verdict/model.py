"""
The verdict on a capture, as values. Views render it.

Times are integer nanoseconds: since the capture's start where a field is a moment, and a length where it is a duration.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from enum import Enum
from math import isinf
from typing import Any

from vstream.capture.records import FaultRecord, Manifest, Window
from vstream.findings import Finding, Severity, Span
from vstream.junit import Result, TestCase, to_xml
from vstream.scenario.model import Expectation, Measure
from vstream.syntax.document import Json
from vstream.value_class import value_class

FORMAT = 1


class CaseStatus(Enum):
    """How a case ended."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """Neither is proven: nothing was measured, or not what was asked."""


class CaseKind(Enum):
    """What a case is about."""

    EXPECTATION = "expectation"
    """An expectation of the scenario."""
    SAFETY = "safety"
    """A rule that holds for every stream, whether or not the scenario states it."""
    FAULT = "fault"
    """Whether a fault of the scenario really happened."""
    STEP = "step"
    """Whether a step of the scenario completed."""
    CAPTURE = "capture"
    """Whether the capture holds what a verdict needs."""
    SERVERS = "servers"
    """Whether the servers ran without a panic."""


class Unit(Enum):
    """What a measured number counts."""

    COUNT = "count"
    SHARE = "share"
    """0 to 1."""
    NANOSECONDS = "nanoseconds"
    TRUTH = "truth"
    """1 or 0."""


@value_class
class Case:
    """One question and its answer."""

    kind: CaseKind
    name: str
    """The question in a few words; unique in a verdict, unless an expectation is written twice."""
    status: CaseStatus
    detail: str
    """What was seen, in a sentence."""
    measure: Measure | None = None
    unit: Unit | None = None
    measured: float | None = None
    """In *unit*; infinite for what never happened. None: it could not be measured."""
    region: str | None = None
    stream: str | None = None
    expectation: Expectation | None = None


@value_class
class Example:
    """One affected message."""

    id: str
    """The message's identity; for a stored message without one, its subject."""
    detail: str
    origin: str | None = None
    """The region where it was published."""
    acked: int | None = None
    """When its publish was acknowledged."""
    acked_by: str | None = None
    """The physical stream that acknowledged it, at *acked_seq*."""
    acked_seq: int | None = None
    stream: str | None = None
    """The physical stream in which it was found, at *seq*."""
    seq: int | None = None
    faults: tuple[str, ...] = ()
    """The faults open when the message was acknowledged; if it was not, when it was stored."""


@value_class
class Affected:
    """How many messages are affected, and the first few of them."""

    count: int = 0
    examples: tuple[Example, ...] = ()


@value_class
class VerdictFinding(Finding):
    """A problem with messages of one virtual stream, and which messages are affected."""

    affected: Affected


@value_class
class PhysicalStreamVerdict:
    """The verdict on one physical stream."""

    name: str
    region: str
    role: str
    stored: int | None
    """Messages at the end of the run. None: unknown, and *error* says why."""
    error: str | None = None
    duplicated: Affected = Affected()
    """Copies beyond the first."""
    unexpected: Affected = Affected()
    """Messages that nobody published, or that differ from what was published."""
    altered: int = 0
    """Part of *unexpected*: published, but with another payload or subject."""
    diverged: Affected = Affected()
    """
    Messages that it should hold and does not, while another stream does.
    In a write stream, only acknowledged messages count.
    """
    reordered: Affected = Affected()
    """
    Fewest messages to move until those of each origin are in the order of its write stream.
    For a write stream: in the order of its acknowledgements.
    """


@value_class
class ServedStreamVerdict:
    """What the clients of one region could read at the end."""

    region: str
    stream: str | None
    """The physical stream; None: it is not in the capture."""
    lost: Affected = Affected()
    """Acknowledged and missing."""
    lost_by_origin: Mapping[str, int] = field(default_factory=dict)
    """By region of origin; regions without a loss are left out."""
    lost_everywhere: int = 0
    """Part of *lost*: in no captured stream."""
    recovered: Affected = Affected()
    """Indeterminate or rejected, and still present."""
    recovered_rejected: int = 0
    """Part of *recovered*: had been rejected."""
    superseded: int = 0
    """Acknowledged and missing because the stream's own limits removed them."""
    announced_losses: int = 0
    """Acknowledged and missing, as was said when the region was given up."""


@value_class
class PublishTally:
    """Outcomes of the publishes in one region."""

    attempted: int = 0
    acknowledged: int = 0
    rejected: int = 0
    indeterminate: int = 0
    retried: int = 0
    """Operations that took more than one attempt."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Number of operations that ended with each error."""


@value_class
class Distribution:
    """A distribution in nanoseconds. Quantiles are measured values, by nearest rank."""

    count: int
    p50: int
    p99: int
    max: int


@value_class
class ArrivalDelay:
    """How long messages of one region took to be stored in another region's read stream."""

    origin: str
    region: str
    spread: Distribution


@value_class
class ConsumerVerdict:
    """What one consumer received."""

    client: str
    region: str
    delivered: int
    """Distinct messages."""
    redelivered: int
    """Deliveries after the first that were marked as redelivered."""
    repeated: int
    """Deliveries of a stored message after the first that were not marked as redelivered."""
    skipped: int
    """Messages of the read stream that it never received, although it received later ones."""
    behind: int
    """Messages of the read stream after the last one that it received."""
    unknown: int
    """Deliveries of messages that nobody published."""


@value_class
class StreamVerdict:
    """The verdict on one virtual stream."""

    name: str
    model: str
    origins: Mapping[str, PublishTally]
    """By region."""
    served: tuple[ServedStreamVerdict, ...]
    physical: tuple[PhysicalStreamVerdict, ...]
    lost_by_origin: Mapping[str, int]
    """
    Messages lost in at least one region, each counted once, by region of origin.
    Regions without a loss are left out.
    """
    same_order: bool | None
    """Whether all regions read the same messages in the same order. None: unknown, or only one region."""
    displaced: int
    """Fewest messages to move, in the region that differs most, to match the first region's order."""
    arrivals: tuple[ArrivalDelay, ...] = ()
    consumers: tuple[ConsumerVerdict, ...] = ()
    unexpected_reads: Mapping[str, Affected] = field(default_factory=dict)
    """Reads that returned a message that nobody published, by region; zeros are left out."""

    def findings(self) -> Iterator[VerdictFinding]:
        """Problems with its messages."""
        for served in self.served:
            yield from self._make_finding("lost", f"in {served.region}", served.lost)
        for stream in self.physical:
            for code in ("duplicated", "unexpected", "reordered", "diverged"):
                yield from self._make_finding(code, f"in {stream.name}", getattr(stream, code))
        for region, reads in self.unexpected_reads.items():
            yield from self._make_finding("unexpected-reads", f"in {region}", reads)

    def _make_finding(self, code: str, place: str, affected: Affected) -> Iterator[VerdictFinding]:
        if affected.count:
            message = f"{affected.count:,} {code.replace('-', ' ')} {place}"
            yield VerdictFinding(
                code=code, severity=Severity.ERROR, where=self.name, message=message, affected=affected
            )


@value_class
class Availability:
    """Operations of one kind on one stream in one region that were due in one window."""

    stream: str
    region: str
    attempted: int
    ok: int
    rejected: int
    indeterminate: int
    longest_gap: int
    """The longest time without a success: from the first failure to the next success."""
    time: Distribution | None
    """Duration of the successful operations, from when they were sent."""

    @property
    def share(self) -> float | None:
        """Succeeded divided by attempted; None without attempts."""
        return self.ok / self.attempted if self.attempted else None


@value_class
class ControlPlane:
    """API requests of one region to the meta leader in one window."""

    region: str
    requests: int
    answered: int
    time: Distribution | None

    @property
    def share(self) -> float | None:
        """Answered divided by asked; None without requests."""
        return self.answered / self.requests if self.requests else None


@value_class
class WindowVerdict:
    """One window: a named step, or the whole run."""

    window: Window
    publishes: tuple[Availability, ...]
    reads: tuple[Availability, ...]
    control_plane: tuple[ControlPlane, ...]


@value_class
class Outage:
    """Failed publishes on one stream in one region after a fault, until the next fault."""

    stream: str
    region: str
    failed: int
    """Publishes without an acknowledgement."""
    first_failure: int
    """Time from the fault's first signal until the first failed publish was due."""
    recovered: int | None
    """
    Time from the first signal until a publish was acknowledged and no later one failed.
    None: not before the next fault.
    """


@value_class
class Convergence:
    """How long a region took, after a fault was healed, to hold everything written before that moment."""

    stream: str
    region: str
    took: int | None
    """0: it already held everything. None: something never arrived."""


@value_class
class FaultVerdict:
    """One fault and its consequences."""

    fault: FaultRecord
    outages: tuple[Outage, ...]
    convergences: tuple[Convergence, ...]
    """Empty if it was not healed."""


@value_class
class Verdict:
    """The verdict on one capture."""

    manifest: Manifest
    cases: tuple[Case, ...]
    streams: tuple[StreamVerdict, ...]
    windows: tuple[WindowVerdict, ...]
    """The whole run is first."""
    faults: tuple[FaultVerdict, ...]
    lateness: Distribution | None
    """How late operations were sent: the recorder's own fault. None without operations."""
    timeline: Timeline
    warnings: tuple[str, ...]

    @property
    def status(self) -> CaseStatus:
        """FAIL if a problem is proven, UNKNOWN if a case is unknown or there are no cases, otherwise PASS."""
        statuses = {case.status for case in self.cases}
        if CaseStatus.FAIL in statuses:
            return CaseStatus.FAIL
        return CaseStatus.UNKNOWN if CaseStatus.UNKNOWN in statuses or not statuses else CaseStatus.PASS

    @property
    def load_start(self) -> int:
        """Start of the load, from which people count, like the live timeline and `at` of a step."""
        return self.manifest.load[0] if self.manifest.load is not None else 0

    @property
    def counts(self) -> Mapping[CaseStatus, int]:
        """Number of cases by status. Every status is a key."""
        return {status: sum(case.status is status for case in self.cases) for status in CaseStatus}


_RESULTS = {CaseStatus.FAIL: Result.FAILURE, CaseStatus.UNKNOWN: Result.ERROR}
_SUITES = {
    CaseKind.EXPECTATION: "expectations",
    CaseKind.SAFETY: "safety",
    CaseKind.FAULT: "faults",
    CaseKind.STEP: "steps",
    CaseKind.CAPTURE: "capture",
    CaseKind.SERVERS: "servers",
}


def as_dict(verdict: Verdict) -> dict[str, Json]:
    """The verdict as JSON data. null stands for what never happened and for what is unknown."""
    manifest = verdict.manifest
    return {
        "format": FORMAT,
        "status": verdict.status.value,
        "counts": {status.value: count for status, count in verdict.counts.items()},
        "scenario": manifest.scenario,
        "seed": manifest.seed,
        "started": manifest.started,
        "load": list(manifest.load) if manifest.load is not None else None,
        "vstream": manifest.vstream,
        "backend": manifest.backend,
        "regions": list(manifest.regions),
        "machine": dict(manifest.machine),
        "servers": [
            {"name": server.name, "region": server.region, "version": server.version} for server in manifest.servers
        ],
        "warnings": list(verdict.warnings),
        **{name: _to_json(getattr(verdict, name)) for name in ("cases", "streams", "windows", "faults", "lateness")},
        "timeline": _to_json(verdict.timeline),
    }


def _to_json(value: Any) -> Json:
    if isinstance(value, Span):
        return f"{value.file}:{value.line}:{value.column}"
    if is_dataclass(value):
        # Field names keep their order; a share is worked out once more, where it can be read beside its parts.
        result = {field.name: _to_json(getattr(value, field.name)) for field in fields(value)}
        return {**result, "share": value.share} if isinstance(value, (Availability, ControlPlane)) else result
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_to_json(item) for item in value]
    single = value.value if isinstance(value, Enum) else value
    return None if isinstance(single, float) and isinf(single) else single  # a text, a number, true, false or null


def to_junit(verdict: Verdict) -> str:
    """
    A JUnit XML document: one test case per case of the verdict.

    A failed case is a failure, an unknown one an error: neither counts as a success.
    """
    suites = {}
    for about, name in _SUITES.items():
        if cases := [_make_case(case, name) for case in verdict.cases if case.kind is about]:
            suites[name] = cases
    nothing = TestCase(classname="capture", name="cases", result=Result.ERROR, message="nothing to judge")
    return to_xml(f"vstream scenario {verdict.manifest.scenario}", suites or {"capture": [nothing]})


def _make_case(case: Case, suite: str) -> TestCase:
    place = _to_json(case.expectation.span) if case.expectation is not None else None
    return TestCase(
        classname=f"{suite}.{case.measure.value}" if case.measure is not None else suite,
        name=case.name,
        result=_RESULTS.get(case.status),
        message=case.detail,
        text=f"expected at {place}" if place is not None and case.status is not CaseStatus.PASS else None,
        output=case.detail if case.status is CaseStatus.PASS else None,
    )


@value_class
class PublishInterval:
    """The publishes that were due in one interval of the timeline."""

    ok: int
    rejected: int
    indeterminate: int
    p50: int | None
    p99: int | None


@value_class
class Timeline:
    """What happened in each interval. Every list has one entry per interval."""

    start: int
    interval: int
    """Length of an interval in nanoseconds: a second, or more for a long run."""
    intervals: int
    publishes: Mapping[str, tuple[PublishInterval, ...]]
    """By region, over all streams."""
    reads: Mapping[str, tuple[float | None, ...]]
    """By region: share of answered reads; None without reads."""
    control_plane: Mapping[str, tuple[int | None, ...]]
    """By region: the meta leader's slowest answer in nanoseconds; -1 if a request failed, None without requests."""
    lag: Mapping[str, Mapping[str, tuple[int, ...]]]
    """By origin and reading region: messages written and not yet arrived at the interval's end."""
