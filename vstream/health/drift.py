"""What differs between a topology and its servers, beyond what a plan compares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from vstream.health.doctor.check import DoctorFinding, Drift
from vstream.health.doctor.configs import ConfigFile
from vstream.health.doctor.examine import Diagnosis, examine
from vstream.health.live.collect import collect_snapshot
from vstream.servers.find_servers import Servers
from vstream.servers.server_plan import ServerPlan, make_server_plan
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class DriftReport:
    """What differs between a topology and its servers: a plan, and the findings that a plan does not know."""

    planned: ServerPlan
    diagnosis: Diagnosis
    different: tuple[DoctorFinding, ...]
    unknown: tuple[DoctorFinding, ...]

    @property
    def has_drifted(self) -> bool:
        """Whether anything differs."""
        return self.planned.plan.differs or bool(self.different)

    @property
    def is_partial(self) -> bool:
        """Whether something could not be compared."""
        plan = self.planned.plan
        return bool(self.unknown or plan.unread_servers or plan.unreachable or not (plan.differs or plan.is_empty))


async def find_drift(
    topology: Topology,
    servers: Servers,
    templates: Path | None,
    files: Mapping[str, ConfigFile],
    *,
    timeout: float,
    on_progress: Callable[[str], None],
) -> DriftReport:
    """Compare *topology* and the configuration *files* of servers with what these have. Raises VstreamError."""
    planned, snapshot = await asyncio.gather(
        make_server_plan(topology, servers, templates, on_progress=on_progress),
        collect_snapshot(topology, servers.endpoints, timeout=timeout, is_deep=True),
    )
    diagnosis = examine(topology, planned.request.bundle, snapshot, files)
    return DriftReport(
        planned=planned,
        diagnosis=diagnosis,
        different=diagnosis.select_drift(Drift.DIFFERENCE),
        unknown=diagnosis.select_drift(Drift.UNKNOWN),
    )
