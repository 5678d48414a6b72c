"""The report of an audit as plain values. Needs neither a terminal nor Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from vstream.findings import Finding, Severity
from vstream.syntax.document import Json
from vstream.value_class import value_class


class AuditVerdict(Enum):
    """The verdict of an audit."""

    PASS = "pass"
    FAIL = "fail"
    UNKNOWN = "unknown"
    """No error was found, but not everything could be checked."""


@value_class
class SequenceRange:
    """Messages with sequences from *first* to *last*. *number* counts messages, or extra copies."""

    first: int
    last: int
    number: int
    seq: int | None = None
    """The sequence of the first of them in the stream that the finding is about."""
    key: str | None = None
    """The subject of one of them."""

    @property
    def text(self) -> str:
        """The range as text: `101` or `101–150`."""
        return f"{self.first}" if self.first == self.last else f"{self.first}–{self.last}"

    def as_dict(self) -> dict[str, Json]:
        """The range as JSON data."""
        return {"first": self.first, "last": self.last, "number": self.number, "seq": self.seq, "subject": self.key}


@value_class
class MessageFinding(Finding):
    """A finding about *count* messages, with the first few ranges of them."""

    name: str
    leaves_open: bool
    virtual: str
    count: int
    region: str | None = None
    stream: str | None = None
    """The physical stream that the finding is about."""
    origin: str | None = None
    """The stream that stored the messages from their clients."""
    origin_region: str | None = None
    former: str | None = None
    """The former identity of an *origin* that was deleted and created again."""
    ranges: tuple[SequenceRange, ...] = ()
    more: int = 0
    """The number of further ranges."""
    examples: tuple[str, ...] = ()
    """Keys, ids or reasons, for findings without ranges."""

    def as_dict(self) -> dict[str, Json]:
        """All fields as JSON data."""
        return {
            "code": self.code,
            "name": self.name,
            "severity": self.severity.value,
            "virtual": self.virtual,
            "region": self.region,
            "stream": self.stream,
            "origin": self.origin,
            "origin_region": self.origin_region,
            "detail": self.message,
            "count": self.count,
            "ranges": [item.as_dict() for item in self.ranges],
            "more_ranges": self.more,
            "examples": list(self.examples),
        }


@value_class
class StreamState:
    """One physical stream at the snapshot."""

    virtual: str
    stream: str
    region: str
    role: str
    is_origin: bool
    messages: int | None
    first_seq: int | None
    last_seq: int | None
    rows: int
    """The number of its messages that were compared."""
    server_version: str | None
    path: str | None
    error: str | None


@value_class
class ReaderRoute:
    """An origin and one reader of it."""

    virtual: str
    origin: str
    origin_region: str | None
    stream: str
    region: str
    arrived: int | None
    """Copies that were compared; None where the reader could not be read."""
    least: int | None
    greatest: int | None
    missing: int = 0
    """Lost, expired or late."""
    extra: int = 0
    """Extra copies."""
    mismatched: int = 0
    """All other errors, such as a changed payload. `other` in JSON."""


@value_class
class Delay:
    """Delays of messages from one region to another, in nanoseconds."""

    virtual: str
    origin_region: str
    region: str
    minute: int | None
    """Start of the interval, in minutes since 1970; None: the whole period."""
    minutes: int | None
    """Length of the interval in minutes."""
    messages: int
    p50_ns: float
    p90_ns: float
    p99_ns: float
    max_ns: int


@value_class
class Recovery:
    """How long after a fault the last message arrived that was in transit when it began, or written while it lasted."""

    window: str
    begun_ns: int
    """Start of the fault since 1970: the same fault may happen several times."""
    virtual: str
    origin_region: str
    region: str
    messages: int
    missing: int
    """Messages written before its end that never arrived: then the regions have not converged."""
    recovery_ns: int


@value_class
class OrderDifference:
    """How many pairs of adjacent messages in one region are in the opposite order in another."""

    virtual: str
    region: str
    compared_with: str
    """The region whose order is compared; `other` in JSON and in the table `order_differences`."""
    neighbours: int
    inverted: int


@value_class
class PublishOutcomes:
    """Outcomes of the publishes in one region, and how many of these messages are stored."""

    virtual: str
    region: str
    outcome: str
    publishes: int
    stored: int


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of an audit."""

    subject: str
    """What was audited: a topology, a capture or tables."""
    regions: tuple[str, ...]
    streams: tuple[StreamState, ...]
    findings: tuple[MessageFinding, ...]
    routes: tuple[ReaderRoute, ...] = ()
    delays: tuple[Delay, ...] = ()
    one_in: int = 1
    """Delays were measured for one in so many messages."""
    recoveries: tuple[Recovery, ...] = ()
    order_differences: tuple[OrderDifference, ...] = ()
    publish_outcomes: tuple[PublishOutcomes, ...] = ()
    verified_before: int = 0
    """Messages that an earlier audit with the same state found right: *delays* and *order_differences* are of the others."""
    shown: frozenset[str] | None = None
    """The virtual streams with figures (*routes* to *order_differences*); None: all of them."""
    stretch: str | None = None
    """The name of the stretch cluster, if its streams were audited; it is not a region."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Duration of each stage, in seconds."""

    @property
    def virtuals(self) -> tuple[str, ...]:
        """The virtual streams."""
        return tuple(dict.fromkeys(stream.virtual for stream in self.streams))

    @property
    def with_figures(self) -> tuple[str, ...]:
        """The virtual streams that have figures."""
        return tuple(name for name in self.virtuals if self.shown is None or name in self.shown)

    @property
    def messages(self) -> int:
        """The number of stored messages that were compared."""
        return sum(stream.rows for stream in self.streams)

    def display_name(self, name: str) -> str:
        """The display name of a region or of the stretch cluster."""
        return "stretch cluster" if name == self.stretch else name

    def findings_about(self, virtual: str | None = None) -> Sequence[MessageFinding]:
        """The findings about one virtual stream, or all findings."""
        return self.findings if virtual is None else self._by_virtual.get(virtual, [])

    @cached_property
    def _by_virtual(self) -> Mapping[str, Sequence[MessageFinding]]:
        result: dict[str, list[MessageFinding]] = {}
        for finding in self.findings:
            result.setdefault(finding.virtual, []).append(finding)
        return result

    def verdict(self, virtual: str | None = None) -> AuditVerdict:
        """FAIL for any error, otherwise UNKNOWN if something could not be checked, otherwise PASS."""
        result = self.findings_about(virtual)
        if any(item.severity is Severity.ERROR and not item.leaves_open for item in result):
            return AuditVerdict.FAIL
        if not self.streams or any(item.leaves_open for item in result):
            return AuditVerdict.UNKNOWN
        return AuditVerdict.PASS

    def as_dict(self, *, only_findings: bool = False) -> dict[str, Json]:
        """
        The report as JSON data; with *only_findings*, without figures.

        Where not all virtual streams have figures, those that pass are counted and not named.
        """
        verdicts = {name: self.verdict(name) for name in self.virtuals}
        counts = Counter(verdict.value for verdict in verdicts.values())
        is_whole = self.shown is None and not only_findings
        named = {name: verdict for name, verdict in verdicts.items() if is_whole or verdict is not AuditVerdict.PASS}
        shown = frozenset() if only_findings else frozenset(self.with_figures)

        def select(figures: Iterable[Any]) -> list[dict[str, Json]]:
            return [asdict(figure) for figure in figures if figure.virtual in shown]

        return {
            "subject": self.subject,
            "verdict": self.verdict().value,
            "messages": self.messages,
            "regions": list(self.regions),
            "stretch": self.stretch,
            "verdict_counts": {verdict.value: counts[verdict.value] for verdict in AuditVerdict},
            "verdicts": {name: verdict.value for name, verdict in named.items()},
            "findings": [finding.as_dict() for finding in self.findings],
            "streams": select(self.streams),
            "routes": [_rename_key(route, "mismatched", "other") for route in select(self.routes)],
            "delays": select(self.delays),
            "recoveries": select(self.recoveries),
            "order_differences": [
                _rename_key(order, "compared_with", "other") for order in select(self.order_differences)
            ],
            "publish_outcomes": select(self.publish_outcomes),
            "delays_of_one_in": self.one_in,
            "verified_before": self.verified_before,
            "seconds": {stage: round(second, 3) for stage, second in self.seconds.items()},
        }


def _rename_key(fields: dict[str, Json], old: str, new: str) -> dict[str, Json]:
    """*fields* in the same order, with the key *old* renamed to *new*."""
    return {new if key == old else key: value for key, value in fields.items()}
