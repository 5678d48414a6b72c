"""What a doctor's check is: a code, its page of the manual, and what its findings mean to other commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from types import ModuleType
from typing import TYPE_CHECKING

from vstream.codes import Page
from vstream.findings import Finding, Severity
from vstream.health.loaded_mappings import LoadedMappings
from vstream.health.snapshot import Snapshot
from vstream.health.status import Status
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
class Patient:
    """Everything that checks look at."""

    topology: Topology
    snapshot: Snapshot
    status: Status
    loaded: LoadedMappings
    files: Mapping[str, ConfigFile]
    """The configuration files of servers, by their names, of those whose files can be read."""


@value_class
class Symptom:
    """What a check has found. *evidence* is what servers said; *do* is what to do about it."""

    about: str
    evidence: str
    do: str
    drift: Drift | None = None
    """If it means another thing for drift than the check's findings do."""


@value_class
class DoctorFinding(Finding):
    """A finding about a live system."""

    drift: Drift


@value_class
class DoctorCheck:
    """One question to a live system. Its page of the manual is the docstring of *look*."""

    code: str
    name: str
    severity: Severity
    drift: Drift
    look: Callable[[Patient], Iterator[Symptom]]

    @property
    def page(self) -> Page:
        """Its page of the manual."""
        return Page(code=self.code, name=self.name, severity=self.severity, text=inspect.getdoc(self.look) or "")

    def run(self, patient: Patient) -> Iterator[DoctorFinding]:
        """What is wrong with *patient*."""
        for symptom in self.look(patient):
            yield DoctorFinding(
                code=self.code,
                severity=self.severity,
                message=self.name,
                where=symptom.about,
                evidence=symptom.evidence,
                hint=symptom.do,
                drift=symptom.drift or self.drift,
            )


def check(
    code: str, name: str, severity: Severity = Severity.ERROR, *, drift: Drift
) -> Callable[[Callable[[Patient], Iterator[Symptom]]], DoctorCheck]:
    """Turn a generator of symptoms into a check. Everything else that knows codes is told by it: see `examine.CHECKS`."""

    def decorate(look: Callable[[Patient], Iterator[Symptom]]) -> DoctorCheck:
        return DoctorCheck(code=code, name=name, severity=severity, drift=drift, look=look)

    return decorate


def list_checks(*modules: ModuleType) -> tuple[DoctorCheck, ...]:
    """All checks that *modules* define, by their codes."""
    checks = {value for module in modules for value in vars(module).values() if isinstance(value, DoctorCheck)}
    return tuple(sorted(checks, key=lambda check: check.code))
