"""From a topology and its servers to a status or a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping

from vstream.health.assess import assess
from vstream.health.doctor.configs import ConfigFile
from vstream.health.doctor.examine import Diagnosis, examine
from vstream.health.live.collect import collect_snapshot
from vstream.health.status import Status
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint, Topology


async def read_status(
    topology: Topology, endpoints: Mapping[str, Endpoint], bundle: Bundle | str, *, timeout: float
) -> Status:
    """The status of the servers at *endpoints*, after *timeout* seconds at most. Raises NotReachableError if nothing answers."""
    return assess(topology, await collect_snapshot(topology, endpoints, timeout=timeout), bundle)


async def diagnose(
    topology: Topology,
    endpoints: Mapping[str, Endpoint],
    bundle: Bundle,
    files: Mapping[str, ConfigFile],
    *,
    timeout: float,
) -> Diagnosis:
    """The diagnosis of the servers at *endpoints*, whose configuration *files* are these. Raises as `collect_snapshot`."""
    snapshot = await collect_snapshot(topology, endpoints, timeout=timeout, is_deep=True)
    return examine(topology, bundle, snapshot, files)
