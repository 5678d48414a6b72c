"""Which faults are open when, as far as a scenario's text tells."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vstream.scenario.actions import ACTIONS, ActionType, list_action_fields
from vstream.scenario.document import ScenarioDocument, StepDocument
from vstream.scenario.fault_types import Effect, FaultType, Target
from vstream.scenario.model import Inject, RegionCommand, Scenario, Wait
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class OpenFaultStep:
    """A fault that is open. *down* are the servers that it takes away, as far as they are known beforehand."""

    index: int
    type: FaultType
    name: str | None
    targets: tuple[str, ...]
    down: frozenset[str]


@value_class
class StepContext:
    """One step that has one action, the *index*-th, and the faults that are open as it begins."""

    index: int
    step: StepDocument
    field: str
    action: ActionType
    open: tuple[OpenFaultStep, ...]


def step_contexts(document: ScenarioDocument, topology: Topology) -> Iterator[StepContext]:
    """Every step with one action, in their order."""
    opened: tuple[OpenFaultStep, ...] = ()
    given_up: frozenset[str] = frozenset()
    for index, step in enumerate(document.steps):
        fields = list_action_fields(step)
        if len(fields) != 1:
            continue
        field, action = fields[0], ACTIONS[fields[0]]
        yield StepContext(index=index, step=step, field=field, action=action, open=opened)
        if field == "heal":
            opened = tuple(fault for fault in opened if step.heal and fault.name not in step.heal)
        elif step.run and step.run[0] == RegionCommand.FAILOVER.value:
            given_up |= list_servers_named(topology, step.run[1:])
            opened = tuple(fault for fault in opened if not fault.down or not fault.down <= given_up)
        elif action.fault is not None and action.stays_open and step.for_ is None:
            value = getattr(step, field)
            down = list_servers_named(topology, value) if action.fault.effect is Effect.SERVERS else frozenset()
            targets = value if action.target in {Target.REGIONS, Target.SERVERS, Target.MACHINES} else ()
            opened = (*opened, OpenFaultStep(index=index, type=action.fault, name=step.as_, targets=targets, down=down))


def list_servers_named(topology: Topology, names: tuple[str, ...] | None) -> frozenset[str]:
    """The servers that *names*, of regions and servers, stand for; all if there are none."""
    by_region = index_servers(topology)
    everyone = [server for members in by_region.values() for server in members]
    if not names:
        return frozenset(everyone)
    return frozenset(server for name in names for server in by_region.get(name, (name,) if name in everyone else ()))


def index_servers(topology: Topology) -> Mapping[str, tuple[str, ...]]:
    """The names of all servers by the region that they are in: members of a stretch cluster share its fate."""
    servers = {}
    for region in topology.regions:
        servers[region.name] = tuple(seat.server.name for seat in topology.seats if seat.region == region.name)
    return servers


def find_minimum_duration(scenario: Scenario) -> int:
    """Nanoseconds that the steps take at least: waiting, and faults that last."""
    total = 0
    for step in scenario.steps:
        total = max(total, step.at or 0)
        match step.action:
            case Wait(nanoseconds=waiting):
                total += waiting
            case Inject(lasting=int(lasting)):
                total += lasting
    return total
