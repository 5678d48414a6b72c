"""What a check of the doctor is, what it looks at, and what its findings mean to other commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING

from vstream.codes import Page
from vstream.errors import VstreamError
from vstream.findings import Finding, Severity
from vstream.health.loaded_mappings import LoadedMappings, compare_mappings
from vstream.health.pairs import assess_pairs
from vstream.health.snapshot import Snapshot
from vstream.health.status import AssessedPair
from vstream.health.stream_faults import StreamFault, find_stream_faults
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.health.doctor.configs import ConfigFile

RESYNC = "`vstream repair sources`"
APPLY = "`vstream plan`, then `vstream apply`"


class Drift(Enum):
    """What a finding means for the question whether servers are as the topology says."""

    DIFFERENCE = "difference"
    """They are not, and a plan does not show it."""
    UNKNOWN = "unknown"
    """Something could not be seen, so nobody can say. A diagnosis without errors is then UNKNOWN, too."""
    UNSEEN = "unseen"
    """Nothing. But something else could not be seen, and a diagnosis without errors is UNKNOWN."""
    UNRELATED = "unrelated"
    """Nothing: it is about how servers do, or a plan shows it."""


@value_class
class LiveSystem:
    """What checks look at: what the servers of *topology* said, and what follows from it."""

    topology: Topology
    snapshot: Snapshot
    pairs: Sequence[AssessedPair]
    loaded: LoadedMappings
    stream_faults: Sequence[StreamFault]
    files: Mapping[str, ConfigFile]
    """The configuration files of servers, by their names, of those whose files can be read."""


def make_live_system(
    topology: Topology, snapshot: Snapshot, bundle: Bundle | VstreamError, files: Mapping[str, ConfigFile]
) -> LiveSystem:
    """*bundle* says what servers are to have loaded; or an error, why that is not known."""
    return LiveSystem(
        topology=topology,
        snapshot=snapshot,
        pairs=assess_pairs(topology, snapshot),
        loaded=compare_mappings(topology, bundle, snapshot),
        stream_faults=tuple(find_stream_faults(topology, snapshot)),
        files=files,
    )


@value_class
class Issue:
    """What a check has found. *evidence* is what servers said; *hint* is what to do about it."""

    about: str
    evidence: str
    hint: str
    drift: Drift | None = None
    """If it means another thing for drift than the check's findings do."""


@value_class
class DoctorFinding(Finding):
    """A finding about a live system."""

    drift: Drift


@value_class
class DoctorCheck:
    """One question to a live system. Its page of the manual is the docstring of *find_issues*."""

    code: str
    name: str
    severity: Severity
    drift: Drift
    is_in_status: bool
    """Whether `vstream status` shows each issue as a problem. What it shows in other words is in `problems.py`."""
    find_issues: Callable[[LiveSystem], Iterator[Issue]]

    @property
    def page(self) -> Page:
        """Its page of the manual."""
        return Page(code=self.code, name=self.name, severity=self.severity, text=inspect.getdoc(self.find_issues) or "")

    def run(self, system: LiveSystem) -> Iterator[DoctorFinding]:
        """What is wrong with *system*."""
        for issue in self.find_issues(system):
            yield DoctorFinding(
                code=self.code,
                severity=self.severity,
                message=self.name,
                where=issue.about,
                evidence=issue.evidence,
                hint=issue.hint,
                drift=issue.drift or self.drift,
            )


def check(
    code: str, name: str, severity: Severity = Severity.ERROR, *, drift: Drift, is_in_status: bool = False
) -> Callable[[Callable[[LiveSystem], Iterator[Issue]]], DoctorCheck]:
    """Turn a generator of issues into a check. Everything else that knows codes is told by it: see `CHECKS`."""

    def decorate(find_issues: Callable[[LiveSystem], Iterator[Issue]]) -> DoctorCheck:
        return DoctorCheck(
            code=code, name=name, severity=severity, drift=drift, is_in_status=is_in_status, find_issues=find_issues
        )

    return decorate


def list_checks(*modules: ModuleType) -> tuple[DoctorCheck, ...]:
    """All checks that *modules* define, by their codes."""
    checks = {value for module in modules for value in vars(module).values() if isinstance(value, DoctorCheck)}
    return tuple(sorted(checks, key=lambda check: check.code))
