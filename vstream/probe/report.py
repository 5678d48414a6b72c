"""A probe's results, as values. Views render them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum

from vstream.syntax.document import Json
from vstream.value_class import value_class


class CheckKind(Enum):
    """What a check tests, in the order in which a message passes."""

    CONNECTION = "connection"
    """The probe itself reaches the region."""
    MAPPING = "mapping"
    """A publish on a virtual subject gets to the region's write stream."""
    STREAM_INFO = "stream_info"
    """STREAM.INFO on the virtual name is answered by the region's read stream."""
    DIRECT_GET = "direct_get"
    """Direct Get on the virtual name is answered by the region's read stream."""
    CANARY_PUBLISH = "canary_publish"
    """A canary is stored in its region of origin."""
    CANARY = "canary"
    """A canary of one region arrives in the read stream of one region."""
    OWN_READ = "own_read"
    """How long after its acknowledgement a canary is served in its own region: measured, not promised."""
    FORM = "form"
    """A form of Direct Get (ADR-31) on the virtual name is answered as it should be."""
    PULL = "pull"
    """A pull request (ADR-13) on the virtual name is answered as it should be."""
    CLEANUP = "cleanup"
    """No canary is left in a physical stream."""


class CheckStatus(Enum):
    """How a check ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It was not tried, for the reason in its detail."""
    UNKNOWN = "unknown"
    """Neither answer is proven: time was up, or an answer is missing."""


@value_class
class Check:
    """One check and its result."""

    stream: str
    """The virtual stream."""
    region: str | None
    """Where it was tried; for a canary, where it was read. None: it concerns the whole stream."""
    kind: CheckKind
    status: CheckStatus
    detail: str
    """What was seen, in at most one sentence."""
    origin: str | None = None
    """Where a canary was published."""
    subject: str | None = None
    """The subject that was published on."""
    form: str | None = None
    """Which form of a request it was."""
    hint: str | None = None
    """What to look at; only if the status is not ok."""
    answered_by: str | None = None
    """The physical stream that answered, if the answer names one; for a cleanup, the one that was cleaned."""
    server: str | None = None
    """The server that it was asked through, where each server is probed; for a canary, the one that it was published through."""
    elapsed_ms: float | None = None
    """Milliseconds of the request's round trip; for a canary, from its acknowledgement to the arrival seen."""

    def as_dict(self) -> dict[str, Json]:
        """Every field, ready for JSON."""
        elapsed_ms = None if self.elapsed_ms is None else round(self.elapsed_ms, 3)
        fields = {**asdict(self), "kind": self.kind.value, "status": self.status.value, "elapsed_ms": elapsed_ms}
        return {"hop" if name == "kind" else name: value for name, value in fields.items()}


@value_class
class Progress:
    """A check has just ended, as number *done* of *total*."""

    check: Check
    done: int
    total: int


@value_class
class ProbeReport:
    """All checks of one probe, in the order of the topology."""

    topology: str
    regions: tuple[str, ...]
    checks: tuple[Check, ...]

    @property
    def is_pass(self) -> bool:
        """
        Whether something was seen to work, and everything that was asked for works.

        Nothing seen is never a pass: no checks, only skipped checks, or one unknown answer. Skipped checks beside
        others that are ok do not matter.
        """
        counts = self.counts
        return counts[CheckStatus.OK] > 0 and not counts[CheckStatus.FAILED] and not counts[CheckStatus.UNKNOWN]

    @property
    def is_fail(self) -> bool:
        """Whether something was seen not to work. That no region could be reached says nothing of any."""
        counts = self.counts
        kinds = {check.kind for check in self.checks if check.status is CheckStatus.FAILED}
        return bool(kinds) and (counts[CheckStatus.OK] > 0 or kinds != {CheckKind.CONNECTION})

    @property
    def counts(self) -> Mapping[CheckStatus, int]:
        """Number of checks by status. Every status is a key."""
        seen = Counter(check.status for check in self.checks)
        return {status: seen[status] for status in CheckStatus}

    @property
    def streams(self) -> tuple[str, ...]:
        """The virtual streams that were probed."""
        return tuple(dict.fromkeys(check.stream for check in self.checks))

    def matrix(self, stream: str | None = None) -> Mapping[str, Mapping[str, float | None]]:
        """
        Canary times in milliseconds: origin → reader → ms. Empty where no canary was tried.

        For one *stream*, or the slowest of all. None where any of them is not ok;
        a pair that was never tried for any is absent.
        """
        times: dict[str, dict[str, float | None]] = {}
        for check in self.checks:
            if check.kind is not CheckKind.CANARY or check.region is None or check.origin is None:
                continue
            if stream is not None and check.stream != stream:
                continue
            row = times.setdefault(check.origin, {})
            time = check.elapsed_ms if check.status is CheckStatus.OK else None
            before = row.get(check.region, 0.0)
            row[check.region] = None if time is None or before is None else max(before, time)
        return times

    def as_dict(self) -> dict[str, Json]:
        """The report as JSON would have it."""
        return {
            "topology": self.topology,
            "passed": self.is_pass or (False if self.is_fail else None),
            "regions": list(self.regions),
            "counts": {status.value: count for status, count in self.counts.items()},
            "matrix": {origin: _round_times(row) for origin, row in self.matrix().items()},
            "checks": [check.as_dict() for check in self.checks],
        }


def name_servers(report: ProbeReport, servers: Mapping[str, str]) -> ProbeReport:
    """*report*, each check with the server that it was asked through: *servers* are by region."""
    checks = tuple(replace(check, server=servers.get(check.origin or check.region or "")) for check in report.checks)
    return replace(report, checks=checks)


def join_reports(reports: Sequence[ProbeReport]) -> ProbeReport:
    """All checks of *reports*, of which there is at least one, about the same topology and regions."""
    return replace(reports[0], checks=tuple(check for report in reports for check in report.checks))


def _round_times(row: Mapping[str, float | None]) -> dict[str, Json]:
    return {reader: None if ms is None else round(ms, 3) for reader, ms in row.items()}
