"""From a topology and its servers to a status or a diagnosis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vstream.errors import InvalidInputError, VstreamError
from vstream.health.assess import assess
from vstream.health.doctor.configs import ConfigFile
from vstream.health.doctor.examine import Diagnosis, examine
from vstream.health.live.collect import collect_snapshot
from vstream.health.status import Status
from vstream.render.pipeline import render_loaded
from vstream.servers.bundles import provide_bundle, provide_signer
from vstream.servers.find_servers import Servers
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint, Topology
from vstream.value_class import value_class


@value_class
class StatusSource:
    """What a status is read from: *bundle* is what the servers should have loaded, or why that is not known here."""

    topology: Topology
    servers: Servers
    bundle: Bundle | VstreamError

    async def read(self, timeout: float) -> Status:
        """The status now, after *timeout* seconds at most. Raises NotReachableError if nothing answers."""
        snapshot = await collect_snapshot(self.topology, self.servers.endpoints, timeout=timeout)
        return assess(self.topology, snapshot, self.bundle)


def make_status_source(topology: Topology, servers: Servers, templates: Path | None) -> StatusSource:
    """The status of *servers*, which are those of *topology*: their keys may be on another machine."""
    bundle: Bundle | VstreamError
    try:
        if templates is None:
            bundle = render_loaded(topology, provide_signer(topology, servers.lab) if topology.has_accounts else None)
        else:
            bundle = provide_bundle(topology, servers, templates)
    except InvalidInputError:
        raise
    except VstreamError as error:
        bundle = error
    return StatusSource(topology=topology, servers=servers, bundle=bundle)


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
