"""Facts to findings: all checks, and the order in which they are reported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.health.doctor import configs, servers, sourcing, streams
from vstream.health.status import assess

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.diagnostics import Finding
    from vstream.health.doctor.configs import ConfigFile
    from vstream.health.snapshot import Snapshot
    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Topology

_ORDER = [Severity.ERROR, Severity.WARNING, Severity.NOTE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Everything that was found, the gravest first."""

    topology: str
    took: float
    servers: int
    streams: int
    configs: int
    """How many configuration files were compared with what their servers have loaded."""
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether there are neither errors nor warnings."""
        return all(one.severity is Severity.NOTE for one in self.findings)

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "topology": self.topology,
            "took_s": round(self.took, 3),
            "servers_reached": self.servers,
            "streams_seen": self.streams,
            "configs_compared": self.configs,
            "is_healthy": self.is_healthy,
            "findings": [
                {
                    "code": one.code,
                    "name": one.message,
                    "severity": one.severity.value,
                    "about": one.about,
                    "evidence": one.evidence,
                    "do": one.hint,
                }
                for one in self.findings
            ],
        }


def examine(
    topology: Topology, bundle: Bundle, facts: Snapshot, files: Mapping[str, ConfigFile] | None = None
) -> Diagnosis:
    """
    What is wrong with the live system of *topology*, whose *bundle* says what should be there.

    *files* are what servers are configured by, by their names, of those whose files can be read.
    """
    known = files or {}
    picture = assess(topology, facts)
    found = [
        *streams.check(topology, facts),
        *sourcing.check(picture, facts),
        *servers.check(topology, bundle, facts),
        *configs.check(topology, facts, known),
    ]
    found.sort(key=lambda one: (_ORDER.index(one.severity), one.code))
    return Diagnosis(
        topology=topology.name,
        took=facts.took,
        servers=sum(server.is_reached for server in facts.servers),
        streams=len(facts.streams),
        configs=configs.count_compared(facts, known),
        findings=tuple(found),
    )
