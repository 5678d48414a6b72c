"""
The faults. Each module says what its faults do, how they are healed, and what the journal stores.

To add one: declare it in `vstream.scenario.faults`, write a module here, and name the module in `_MODULES`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from vstream.chaos.faults import disk_full, kill, links, pause, power_loss, restart, step_down
from vstream.chaos.faults.base import FaultRequest, Injection, LabFault
from vstream.chaos.target_servers import TargetServers
from vstream.scenario.faults import FaultSpec, FaultType
from vstream.topology.model import Topology

_MODULES: Final = (kill, pause, disk_full, power_loss, links, step_down, restart)

RESOLVERS: Final[Mapping[FaultType, Callable[[FaultRequest], Awaitable[Injection]]]] = {
    declared: resolver for module in _MODULES for declared, resolver in module.RESOLVERS.items()
}
"""By fault name: how it becomes an injection."""

MECHANISMS: Final[Mapping[str, type[LabFault]]] = {
    mechanism.kind: mechanism for module in _MODULES for mechanism in module.MECHANISMS
}
"""By journal kind: the faults that can be open in a lab."""


async def resolve(spec: FaultSpec, target: TargetServers, topology: Topology, *, is_forced: bool) -> Injection:
    """What *spec* means at *target* now. Raises VstreamError if it is impossible."""
    return await RESOLVERS[spec.type](FaultRequest(spec=spec, target=target, topology=topology, is_forced=is_forced))
