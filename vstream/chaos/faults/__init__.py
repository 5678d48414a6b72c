"""
The faults. Each module says what its faults do, how they are healed, and what the journal stores.

To add one: declare it in `vstream.scenario.fault_types`, and write a module here. Its RESOLVERS and its LabFaults are seen.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import Final

from vstream.chaos.faults.base import FaultRequest, Injection, LabFault
from vstream.scenario.fault_types import FaultSpec, FaultType
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology

_MODULES: Final = tuple(import_module(module.name) for module in pkgutil.iter_modules(__path__, f"{__name__}."))

RESOLVERS: Final[Mapping[FaultType, Callable[[FaultRequest], Awaitable[Injection]]]] = {
    declared: resolver for module in _MODULES for declared, resolver in getattr(module, "RESOLVERS", {}).items()
}
"""By fault: how it becomes an injection."""

_CLASSES: Final = [member for module in _MODULES for member in vars(module).values() if isinstance(member, type)]

LAB_FAULTS: Final[Mapping[str, type[LabFault]]] = {
    member.kind: member for member in _CLASSES if issubclass(member, LabFault) and hasattr(member, "kind")
}
"""By journal kind: the faults that can be open in a lab."""


async def resolve(spec: FaultSpec, target: TargetServers, topology: Topology, *, needs_successor: bool) -> Injection:
    """What *spec* means at *target* now. Raises VstreamError if it is impossible."""
    request = FaultRequest(spec=spec, target=target, topology=topology, needs_successor=needs_successor)
    return await RESOLVERS[spec.type](request)
