"""From what a scenario says to a fault of `vstream chaos`: which servers, and what else must be seen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vstream.chaos import leaders, select
from vstream.chaos.disk_full import DiskFull
from vstream.chaos.faults import Kill, MetaStepDown, Pause, StepDown
from vstream.chaos.links import LinkShape, Partition
from vstream.chaos.power_loss import PowerLoss
from vstream.lab import binaries
from vstream.lab.links.choose import link_state
from vstream.lab.links.state import Cut, LinkState
from vstream.scenario.model import FaultKind
from vstream.topology.model import Link

if TYPE_CHECKING:
    from vstream.chaos.faults import Fault, LabFault
    from vstream.chaos.target_servers import TargetServers
    from vstream.lab.binaries import Program
    from vstream.lab.links.state import Pair
    from vstream.scenario.model import FaultSpec
    from vstream.topology.model import Topology

_NS = 1_000_000_000
_LOSE = 2 * _NS

Confirm = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Servers, or links, that are taken away until they are healed; *is_brief* ones at once."""

    fault: LabFault
    regions: tuple[str, ...]
    """Those that it touches directly."""
    also_confirm: Confirm | None = None
    is_brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """A leader that steps down: there is nothing to undo. *region* is where it was."""

    fault: Fault
    region: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rolled:
    """Servers that are restarted in turn; with *program*, from then on, if there is one."""

    servers: tuple[str, ...]
    is_lame_duck: bool
    program: Program | None = None


Broken = Taken | HandedOver | Rolled


async def resolve_fault(spec: FaultSpec, site: TargetServers, topology: Topology) -> Broken:
    """What *spec* means at *site* now. Raises VstreamError if that cannot be."""
    return await MAKERS[spec.kind](_Asked(spec, site, topology))


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is asked for, and of which servers."""

    spec: FaultSpec
    site: TargetServers
    topology: Topology

    def taken(self, fault: Kill | Pause | PowerLoss | DiskFull) -> Taken:
        """Servers, and the regions that they stand in."""
        return Taken(fault=fault, regions=tuple(dict.fromkeys(self.site.servers[one] for one in fault.servers)))

    def cut(self, pairs: Iterable[Pair]) -> Mapping[Pair, LinkState]:
        """All of *pairs*, cut as it is asked for."""
        return dict.fromkeys(pairs, LinkState(cut=Cut(self.spec.options.get("how", Cut.RESET.value))))

    def servers_of_regions(self) -> tuple[str, ...]:
        """The servers of the regions that are named, or of all."""
        names = self.spec.targets or self.site.regions
        return tuple(server for name in names for server in select.servers_of_region(self.site, name))

    def servers_in_turn(self) -> tuple[str, ...]:
        """The servers of the regions, or the servers, that are named, or all."""
        if not self.spec.targets:
            return tuple(self.site.servers)
        return tuple(one for name in self.spec.targets for one in select.region_or_server(self.site, name))

    def stream(self) -> str:
        """The physical stream that is named."""
        region = self.spec.options.get("region")
        return select.stream(self.topology, self.spec.targets[0], None if region is None else str(region))


async def _kill_region(asked: _Asked) -> Broken:
    return asked.taken(Kill(servers=asked.servers_of_regions()))


async def _restart_region(asked: _Asked) -> Broken:
    return replace(asked.taken(Kill(servers=asked.servers_of_regions())), is_brief=True)


async def _kill_server(asked: _Asked) -> Broken:
    servers = tuple(one for name in asked.spec.targets for one in select.server(asked.site, name))
    return asked.taken(Kill(servers=servers))


async def _pause(asked: _Asked) -> Broken:
    return asked.taken(Pause(servers=asked.servers_in_turn()))


async def _kill_leader(asked: _Asked) -> Broken:
    role, leader = await select.led_stream(asked.site, asked.stream())
    taken = asked.taken(Kill(servers=select.server(asked.site, leader)))
    return replace(taken, also_confirm=select.new_stream_leader(asked.site, role, leader))


async def _kill_meta_leader(asked: _Asked) -> Broken:
    leader = await leaders.require_meta_leader(asked.site)
    taken = asked.taken(Kill(servers=select.server(asked.site, leader)))
    return replace(taken, also_confirm=select.new_meta_leader(asked.site, leader))


async def _partition(asked: _Asked) -> Broken:
    sides = select.sides(asked.site, asked.spec.targets)
    is_one_way = bool(asked.spec.options.get("one_way"))
    return Taken(
        fault=Partition(states=asked.cut(select.between(sides, one_way=is_one_way))),
        regions=tuple(region for side in sides for region in side),
    )


async def _isolate(asked: _Asked) -> Broken:
    regions = asked.spec.targets
    return Taken(fault=Partition(states=asked.cut(select.around(asked.site, regions))), regions=regions)


async def _link(asked: _Asked) -> Broken:
    regions = asked.spec.targets or asked.site.regions
    pairs = [(one, other) for one in regions for other in regions if one != other]
    options = {name: value for name, value in asked.spec.options.items() if name in {"rtt", "jitter", "rate", "loss"}}
    # Both directions are as bad: which comes first says nothing.
    shape = link_state(Link(between=(regions[0], regions[-1]), **options))  # type: ignore[arg-type]  # numbers all of them
    return Taken(fault=LinkShape(states=dict.fromkeys(pairs, shape)), regions=tuple(regions))


async def _power_loss(asked: _Asked) -> Broken:
    lose = asked.spec.options.get("lose", _LOSE)
    # There is nothing to wait for in the dark: how long it lasts changes nothing of what is lost.
    return replace(asked.taken(PowerLoss(servers=asked.servers_in_turn(), seconds=float(lose) / _NS)), is_brief=True)


async def _disk_full(asked: _Asked) -> Broken:
    return asked.taken(DiskFull(servers=asked.servers_in_turn()))


async def _step_down(asked: _Asked) -> Broken:
    role, leader = await select.led_stream(asked.site, asked.stream())
    select.require_elector(role)
    return HandedOver(fault=StepDown(stream=role.stream, leader=leader), region=asked.site.servers.get(leader))


async def _step_down_meta(asked: _Asked) -> Broken:
    leader = await leaders.require_meta_leader(asked.site)
    return HandedOver(fault=MetaStepDown(leader=leader), region=asked.site.servers.get(leader))


async def _rolling_restart(asked: _Asked) -> Broken:
    return Rolled(servers=asked.servers_in_turn(), is_lame_duck=bool(asked.spec.options.get("lame_duck")))


async def _upgrade(asked: _Asked) -> Broken:
    version = str(asked.spec.options["to"])
    # It may have to be fetched first.
    program = await asyncio.to_thread(lambda: binaries.program(binaries.locate(version)))
    return Rolled(servers=asked.servers_in_turn(), is_lame_duck=False, program=program)


MAKERS: Mapping[FaultKind, Callable[[_Asked], Awaitable[Broken]]] = {
    FaultKind.KILL_REGION: _kill_region,
    FaultKind.RESTART_REGION: _restart_region,
    FaultKind.KILL_SERVER: _kill_server,
    FaultKind.PAUSE: _pause,
    FaultKind.DISK_FULL: _disk_full,
    FaultKind.POWER_LOSS: _power_loss,
    FaultKind.PARTITION: _partition,
    FaultKind.ISOLATE: _isolate,
    FaultKind.LINK: _link,
    FaultKind.KILL_LEADER: _kill_leader,
    FaultKind.KILL_META_LEADER: _kill_meta_leader,
    FaultKind.STEP_DOWN: _step_down,
    FaultKind.STEP_DOWN_META: _step_down_meta,
    FaultKind.ROLLING_RESTART: _rolling_restart,
    FaultKind.UPGRADE: _upgrade,
}
