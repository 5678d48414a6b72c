"""
What is said of a capture, as values. Rendering is somebody else's.

Times are integer nanoseconds: since the capture's start where a field says when
something was, and a length where it says how long.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from vstream.diagnostics import Finding, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from vstream.capture.records import FaultRecord, Manifest, Window
    from vstream.capture.verdict.timeline import Timeline
    from vstream.scenario.model import Expectation, Measure


class CaseStatus(Enum):
    """How a case ended."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """Neither is proven: nothing was measured, or what was measured is not what was asked."""


class About(Enum):
    """What a case is about."""

    EXPECTATION = "expectation"
    """Something that the scenario expects."""
    SAFETY = "safety"
    """What must hold for every stream, also if nobody says so."""
    FAULT = "fault"
    """A fault of the scenario has really happened."""
    STEP = "step"
    """A step of the scenario came to its end."""
    CAPTURE = "capture"
    """The capture holds what a verdict needs."""
    SERVERS = "servers"
    """The servers ran without a panic."""


class Unit(Enum):
    """What a measured number counts."""

    COUNT = "count"
    SHARE = "share"
    """0 to 1."""
    NANOSECONDS = "nanoseconds"
    TRUTH = "truth"
    """1 or 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question and its answer."""

    about: About
    name: str
    """What was asked, in a few words; unique in a verdict but for expectations that are written twice."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One message that something is wrong with."""

    id: str
    """Of the message; of a stored one without an id, its subject."""
    detail: str
    origin: str | None = None
    """The region in which it was published."""
    acked: int | None = None
    """When its publish was acknowledged."""
    acked_by: str | None = None
    """By which physical stream, with *acked_seq*."""
    acked_seq: int | None = None
    stream: str | None = None
    """The physical stream in which it was found, at *seq*."""
    seq: int | None = None
    faults: tuple[str, ...] = ()
    """What was broken at that time: of an acknowledged message when it was acknowledged, else when it was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """How many messages something is true of, and the first few of them."""

    count: int = 0
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictFinding(Finding):
    """What is wrong with messages of one virtual stream, and which are affected."""

    affected: Affected


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalVerdict:
    """One physical stream, judged."""

    name: str
    region: str
    role: str
    stored: int | None
    """Messages that it held in the end. None: it is not known, and *error* says why."""
    error: str | None = None
    duplicated: Affected = Affected()
    """Copies beyond the first."""
    unexpected: Affected = Affected()
    """Messages that nobody published, or that are not as they were published."""
    altered: int = 0
    """Of *unexpected*: those that were published, and with another payload or subject."""
    diverged: Affected = Affected()
    """Messages that it should hold and does not, though another stream does; acknowledged ones only in a stream that was published to."""
    reordered: Affected = Affected()
    """Messages to move until each origin's stand in the order that its write stream has; in a write stream, that of its acknowledgements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedVerdict:
    """What the clients of one region read in the end."""

    region: str
    stream: str | None
    """The physical stream; None: there is none in the capture."""
    lost: Affected = Affected()
    """Acknowledged, and not there."""
    lost_by_origin: Mapping[str, int] = field(default_factory=dict)
    """By region of origin; those without a loss are left out."""
    lost_everywhere: int = 0
    """Of *lost*: those that no captured stream holds."""
    recovered: Affected = Affected()
    """Indeterminate or rejected, and yet there."""
    recovered_rejected: int = 0
    """Of *recovered*: those that had been rejected."""
    superseded: int = 0
    """Acknowledged and not there, since the stream's own limits have removed them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTally:
    """What became of the publishes in one region."""

    attempted: int = 0
    acknowledged: int = 0
    rejected: int = 0
    indeterminate: int = 0
    retried: int = 0
    """Operations that took more than one attempt."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """By error, how many operations it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A distribution, in nanoseconds. The quantiles are of measured values, by nearest rank."""

    count: int
    p50: int
    p99: int
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalDelay:
    """How long messages of one region took until another region's read stream had stored them."""

    origin: str
    region: str
    spread: Distribution


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerVerdict:
    """What one consumer received."""

    client: str
    region: str
    delivered: int
    """Different messages."""
    redelivered: int
    """Deliveries beyond the first that said so."""
    repeated: int
    """Deliveries of a stored message beyond the first that did not say so."""
    skipped: int
    """Messages of the read stream that it never received, though it received later ones."""
    behind: int
    """Messages of the read stream after the last one that it received."""
    unknown: int
    """Deliveries of messages that nobody published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamVerdict:
    """One virtual stream."""

    name: str
    model: str
    origins: Mapping[str, PublishTally]
    """By region."""
    served: tuple[ServedVerdict, ...]
    physical: tuple[PhysicalVerdict, ...]
    lost_by_origin: Mapping[str, int]
    """Messages that one region at least has lost, each counted once, by region of origin; those without are left out."""
    same_order: bool | None
    """Whether all regions read the same messages in the same order; None: it is not known, or there is one region."""
    displaced: int
    """Messages to move in the region that differs most, until its order is the first region's."""
    arrivals: tuple[ArrivalDelay, ...] = ()
    consumers: tuple[ConsumerVerdict, ...] = ()
    unexpected_reads: Mapping[str, Affected] = field(default_factory=dict)
    """By region, reads that returned a message that nobody published; regions without are left out."""

    def findings(self) -> Iterator[VerdictFinding]:
        """What is wrong with its messages."""
        for served in self.served:
            yield from self._finding("lost", f"in {served.region}", served.lost)
        for stream in self.physical:
            yield from self._finding("duplicated", f"in {stream.name}", stream.duplicated)
            yield from self._finding("unexpected", f"in {stream.name}", stream.unexpected)
            yield from self._finding("reordered", f"in {stream.name}", stream.reordered)
            yield from self._finding("diverged", f"in {stream.name}", stream.diverged)
        for region, reads in self.unexpected_reads.items():
            yield from self._finding("unexpected-reads", f"in {region}", reads)

    def _finding(self, code: str, place: str, affected: Affected) -> Iterator[VerdictFinding]:
        if affected.count:
            message = f"{affected.count:,} {code.replace('-', ' ')} {place}"
            yield VerdictFinding(
                code=code, severity=Severity.ERROR, where=self.name, message=message, affected=affected
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Operations of one kind on one stream, in one region, that were due in one window."""

    stream: str
    region: str
    attempted: int
    ok: int
    rejected: int
    indeterminate: int
    longest_gap: int
    """The longest time in which none succeeded, from the first that failed to the next that did not."""
    time: Distribution | None
    """How long those that succeeded took, from when they were sent."""

    @property
    def share(self) -> float | None:
        """Succeeded of attempted; None if none was attempted."""
        return self.ok / self.attempted if self.attempted else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlane:
    """What one region could ask of the meta leader in one window."""

    region: str
    asked: int
    answered: int
    time: Distribution | None

    @property
    def share(self) -> float | None:
        """Answered of asked; None if it was never asked."""
        return self.answered / self.asked if self.asked else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowVerdict:
    """One window: a named step, or the whole run."""

    window: Window
    publishes: tuple[Availability, ...]
    reads: tuple[Availability, ...]
    control_plane: tuple[ControlPlane, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """What a fault did to the publishes on one stream in one region, until the next fault."""

    stream: str
    region: str
    failed: int
    """Publishes that were not acknowledged."""
    first_failure: int
    """From the fault's first signal until the first of them was due."""
    recovered: int | None
    """From the first signal until one was acknowledged and none failed any more. None: not before the next fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """How long a region took, once a fault was healed, to have all that had been written until then."""

    stream: str
    region: str
    took: int | None
    """0: it had everything already. None: something never came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultVerdict:
    """One fault and what came of it."""

    fault: FaultRecord
    outages: tuple[Outage, ...]
    convergences: tuple[Convergence, ...]
    """Empty if it was not healed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """All that is said of one capture."""

    manifest: Manifest
    cases: tuple[Case, ...]
    streams: tuple[StreamVerdict, ...]
    windows: tuple[WindowVerdict, ...]
    """The whole run first."""
    faults: tuple[FaultVerdict, ...]
    lateness: Distribution | None
    """How much later than due operations were sent: the recorder's own fault. None without operations."""
    timeline: Timeline
    warnings: tuple[str, ...]

    @property
    def status(self) -> CaseStatus:
        """FAIL if anything is proven to be wrong, UNKNOWN if anything is not known, or nothing was asked; else PASS."""
        result = {case.status for case in self.cases}
        if CaseStatus.FAIL in result:
            return CaseStatus.FAIL
        return CaseStatus.UNKNOWN if CaseStatus.UNKNOWN in result or not result else CaseStatus.PASS

    @property
    def zero(self) -> int:
        """When the load began: what people read counts from there, as the live timeline and `at` of a step do."""
        return self.manifest.load[0] if self.manifest.load is not None else 0

    @property
    def counts(self) -> Mapping[CaseStatus, int]:
        """How many cases ended in which way. Every status is a key."""
        return {status: sum(case.status is status for case in self.cases) for status in CaseStatus}
