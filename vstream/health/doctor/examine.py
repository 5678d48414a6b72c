"""A snapshot to a diagnosis: what all checks find, the gravest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

from vstream.codes import Chapter
from vstream.findings import Finding, Severity
from vstream.health.doctor import CHECKS
from vstream.health.doctor.check import DoctorFinding, Drift, make_live_system
from vstream.health.doctor.configs import ConfigFile, count_compared
from vstream.health.snapshot import Snapshot
from vstream.syntax.document import Json
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology
from vstream.value_class import value_class

CHAPTER: Final = Chapter(title="Doctor", pages=tuple(check.page for check in CHECKS))
"""The manual of `vstream doctor`."""
_ORDER = [Severity.ERROR, Severity.WARNING, Severity.NOTE]


class Health(Enum):
    """What a diagnosis comes to."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    """There are errors or warnings."""
    UNKNOWN = "unknown"
    """No problem was found, but not everything could be checked."""


@value_class
class Diagnosis:
    """Everything that was found, the gravest first."""

    topology: str
    took: float
    servers: int
    """How many servers answered on their monitoring ports."""
    all_servers: int
    streams: int
    configs: int
    """How many configuration files were compared with what their servers have loaded."""
    findings: tuple[DoctorFinding, ...]

    @property
    def health(self) -> Health:
        """Errors and warnings come before what is not known."""
        if any(finding.severity is not Severity.NOTE for finding in self.findings):
            return Health.UNHEALTHY
        is_partial = self.select_drift(Drift.UNKNOWN) or self.select_drift(Drift.UNSEEN)
        return Health.UNKNOWN if is_partial else Health.HEALTHY

    def select_drift(self, drift: Drift) -> tuple[DoctorFinding, ...]:
        """The findings that mean *drift*."""
        return tuple(finding for finding in self.findings if finding.drift is drift)

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "topology": self.topology,
            "took_s": round(self.took, 3),
            "servers_reached": self.servers,
            "streams_seen": self.streams,
            "configs_compared": self.configs,
            "health": self.health.value,
            "is_healthy": self.health is Health.HEALTHY,
            "findings": doctor_findings_as_dicts(self.findings),
        }


def doctor_findings_as_dicts(findings: Sequence[Finding]) -> list[Json]:
    """Findings as JSON would have them."""
    return [_as_dict(finding) for finding in findings]


def _as_dict(finding: Finding) -> dict[str, Json]:
    return {
        "code": finding.code,
        "name": finding.message,
        "severity": finding.severity.value,
        "about": finding.about,
        "evidence": finding.evidence,
        "hint": finding.hint,
    }


def examine(
    topology: Topology, bundle: Bundle, snapshot: Snapshot, files: Mapping[str, ConfigFile] | None = None
) -> Diagnosis:
    """
    What is wrong with the live system of *topology*, whose *bundle* says what should be there.

    *files* are the configuration files of servers, by their names, of those whose files can be read.
    """
    config_files = files or {}
    system = make_live_system(topology, snapshot, bundle, config_files)
    findings = [finding for check in CHECKS for finding in check.run(system)]
    findings.sort(key=lambda finding: (_ORDER.index(finding.severity), finding.code))
    return Diagnosis(
        topology=topology.name,
        took=snapshot.took,
        servers=len(snapshot.reached_servers),
        all_servers=len(snapshot.servers),
        streams=len(snapshot.streams),
        configs=count_compared(snapshot, config_files),
        findings=tuple(findings),
    )
