"""What every fault has, and what faults of processes have in common."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from vstream.chaos import select
from vstream.chaos.leaders import POLL
from vstream.errors import LabError, VstreamError
from vstream.jetstream import monitoring
from vstream.lab import records, start
from vstream.lab.readiness import monitor_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path
    from typing import Self

    from vstream.chaos.target_servers import TargetServers
    from vstream.lab.binaries import Program
    from vstream.lab.links.state import Pair
    from vstream.scenario.faults import FaultSpec
    from vstream.topology.model import Topology

_EFFECT_TIMEOUT = 10.0
"""Seconds until a signal must have had its effect. It takes milliseconds."""
_SILENCE = 0.3
"""Seconds without an answer on a port that answers within one millisecond."""


class Fault(Protocol):
    """Something that is done to servers on purpose. *name* is its own in the lab's journal."""

    async def inject(self, site: TargetServers, name: str) -> str:
        """Do it, and give what proves that it is active. Raises LabError if nothing does."""


class LabFault(Fault, Protocol):
    """A fault that stays until it is healed, so it is journalled. Every step may be repeated after a crash."""

    kind: ClassVar[str]
    """Its name in the journal."""
    keeps_down: ClassVar[bool]
    """Whether its servers stay down while it is open, whichever other fault is healed."""
    is_unhealthy: ClassVar[bool]
    """Whether its servers run and are never healthy while it is open."""

    @property
    def counted_as_lost(self) -> tuple[str, ...]:
        """The servers that count as lost while it is open."""

    @property
    def cuts(self) -> frozenset[Pair]:
        """Links that carry nothing while it is open."""

    @property
    def losses(self) -> tuple[str, ...]:
        """What will be gone for good: that must be forced."""

    @property
    def where(self) -> str:
        """What it is done to."""

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:
        """Undo it. What it returns raises LabError if that has failed since."""

    def is_over(self, site: TargetServers, name: str) -> bool:
        """Whether nothing of it is left: `lab up` has started its servers since, or `lab down` has ended the lab."""

    def journal_entry(self) -> dict[str, Any]:
        """Itself as plain JSON data, which `from_journal` reads back."""

    @classmethod
    def from_journal(cls, entry: Mapping[str, Any]) -> Self:
        """Raises KeyError, TypeError or ValueError if *entry* is not what `journal_entry` gives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LastingInjection:
    """Servers, or links, that are taken away until they are healed."""

    fault: LabFault
    regions: tuple[str, ...]
    """Those that it touches directly."""
    also_confirm: Callable[[], Awaitable[str]] | None = None
    """What else must be seen before the fault counts as confirmed, such as that another server leads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """A leader that steps down: there is nothing to undo. *region* is where it was."""

    fault: Fault
    region: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingRestart:
    """Servers that are restarted in turn; with *program*, from then on, if there is one."""

    servers: tuple[str, ...]
    is_lame_duck: bool
    program: Program | None = None


Injection = LastingInjection | HandOver | RollingRestart


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRequest:
    """One fault, as it was asked for, and the servers that it is for."""

    spec: FaultSpec
    site: TargetServers
    topology: Topology
    is_forced: bool

    def of_servers(self, fault: ServerFault) -> LastingInjection:
        """*fault*, and the regions that its servers are in."""
        return LastingInjection(fault=fault, regions=self.regions_of(fault.servers))

    def regions_of(self, servers: Sequence[str]) -> tuple[str, ...]:
        """The regions of *servers*."""
        return tuple(dict.fromkeys(self.site.servers[server] for server in servers))

    def servers_of_regions(self) -> tuple[str, ...]:
        """The servers of the regions that are named, or of all."""
        names = self.spec.targets or self.site.regions
        return tuple(server for name in names for server in select.servers_of_region(self.site, name))

    def servers_of_machines(self) -> tuple[str, ...]:
        """The servers of the regions, or the servers, that are named, or all."""
        if not self.spec.targets:
            return tuple(self.site.servers)
        return tuple(server for name in self.spec.targets for server in select.region_or_server(self.site, name))

    def stream(self) -> str:
        """The physical stream that is named."""
        region = self.spec.options.get("region")
        return select.stream(self.topology, self.spec.targets[0], None if region is None else str(region))


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFault(ABC):
    """A fault that takes *servers* and no links."""

    kind: ClassVar[str]
    keeps_down: ClassVar[bool] = False
    is_unhealthy: ClassVar[bool] = False
    servers: tuple[str, ...]

    @property
    def counted_as_lost(self) -> tuple[str, ...]:
        """All of its servers."""
        return self.servers

    @property
    def cuts(self) -> frozenset[Pair]:
        """None."""
        return frozenset()

    @property
    def losses(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    @property
    def where(self) -> str:
        """Which servers."""
        return ", ".join(self.servers)

    @abstractmethod
    async def inject(self, site: TargetServers, name: str) -> str:
        """See Fault."""

    @abstractmethod
    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:
        """See LabFault."""

    @abstractmethod
    def is_over(self, site: TargetServers, name: str) -> bool:
        """See LabFault."""

    def journal_entry(self) -> dict[str, Any]:
        """Its servers."""
        return {"servers": list(self.servers)}

    @classmethod
    def from_journal(cls, entry: Mapping[str, Any]) -> Self:
        """What `journal_entry` has given."""
        return cls(servers=tuple(entry["servers"]))


def are_started(site: TargetServers, servers: Sequence[str]) -> bool:
    """Whether each of *servers* runs, or nobody wants it to run any more."""
    return all(site.process(server).is_running() or records.read(site.directory, server) is None for server in servers)


async def wait_until(
    servers: Sequence[str], holds: Callable[[str], bool], problem: str, *, within: float = _EFFECT_TIMEOUT
) -> None:
    """Return once *holds* is true of all *servers*. Raises LabError with *problem* and the server that has it."""
    deadline = time.monotonic() + within
    for server in servers:
        while not holds(server):
            if time.monotonic() > deadline:
                raise LabError(
                    f"server `{server}` {problem} after {within:g} s",
                    hint=f"`vstream chaos kill-server {server}` ends it by force, `vstream chaos heal` starts it",
                )
            await asyncio.sleep(POLL)


async def wait_until_gone(site: TargetServers, servers: Sequence[str]) -> None:
    """Return once none of *servers*, which were killed, has a process. Raises LabError."""
    await wait_until(servers, lambda server: not site.process(server).is_running(), "still runs, killed by SIGKILL,")


def require_awake(site: TargetServers, servers: Sequence[str]) -> None:
    """Raises LabError if one of *servers* is stopped by a signal: another would wait until it goes on."""
    for server in servers:
        if site.is_alive(server, stopped=True):
            raise LabError(
                f"server `{server}` is paused, so it cannot be restarted",
                hint="`vstream chaos resume` resumes it; `vstream chaos heal` undoes all faults, the last one first",
            )


async def wait_until_silent(site: TargetServers, servers: Sequence[str]) -> None:
    """What the process table says is not enough: nobody may be served any more. Raises LabError if somebody is."""
    deadline = time.monotonic() + _EFFECT_TIMEOUT
    for server in servers:
        url = monitor_url(site.address(server))
        while await _answers(url):
            if time.monotonic() > deadline:
                raise LabError(f"server `{server}` still answers at `{url}`")
            await asyncio.sleep(POLL)


def name_with_verb(servers: Sequence[str]) -> str:
    """`a, b are`, `a is`."""
    return f"{', '.join(servers)} {'is' if len(servers) == 1 else 'are'}"


def start_missing(site: TargetServers, servers: Sequence[str]) -> Callable[[], None]:
    """
    Start those of *servers* that do not run. What it returns raises LabError if one of them has died since.

    A server that nobody wants to run any more, because the lab was taken down since, stays down, and
    so does one that another open fault has taken.
    """
    missing = []
    for server in servers:
        is_wanted = records.read(site.directory, server) is not None
        if is_wanted and server not in site.held and not site.process(server).is_running():
            missing.append(server)
    return start.start_servers(site.directory, missing, site.latest_record().programs)


def read_pids(path: Path) -> dict[str, int]:
    """Process ids by server, as they were written down at *path*; none if they were not."""
    try:
        pids: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return pids


def do_nothing() -> None:
    """There is nothing to watch."""


async def _answers(url: str) -> bool:
    try:
        await monitoring.get(url, "/varz", _SILENCE)
    except VstreamError:
        return False
    return True
