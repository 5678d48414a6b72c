"""
What all faults share, and what faults of processes share.

A fault goes this way, whether a command or a step of a scenario asks for it:

1. `scenario.fault_types` declares a `FaultType`. With targets and options it is a `FaultSpec`: what was asked for.
2. Its resolver gets that in a `FaultRequest`, with the servers that run now, and says what to do with which of them: a
   `LastingInjection`, a `LeaderChange` or a `RollingRestart`.
3. `chaos.inject` does it. Only a lasting one has a `LabFault`, which knows how it is injected, healed and journalled. From
   before its first signal until it is healed, it is in the lab's journal as an `OpenFault`.
4. What was done and proven is an `InjectionResult`; a run of a scenario writes a `FaultRecord` of it into its capture.
"""

from __future__ import annotations

import asyncio
import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from vstream.chaos import select
from vstream.errors import LabError, VstreamError
from vstream.jetstream import monitoring
from vstream.lab import server_records
from vstream.lab.binaries import Program
from vstream.lab.links.state import Direction
from vstream.lab.server import SpawnedServers, start_servers
from vstream.scenario.fault_types import FaultSpec
from vstream.servers.leaders import POLL_SECONDS
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology
from vstream.value_class import value_class

_EFFECT_TIMEOUT = 10.0
"""Seconds within which a signal must take effect. It takes milliseconds."""
EXIT_SECONDS = 30.0
"""Seconds within which a server must exit that was asked to."""
_SILENCE_SECONDS = 0.3
"""Seconds without an answer, on a port that otherwise answers within a millisecond."""


class LabFault(ABC):
    """
    A fault that stays until it is healed, and is therefore journalled: *fault_id* is its id there, such as `f1`.

    Every step may be repeated after a crash.
    """

    __slots__ = ()
    kind: ClassVar[str]
    """Its name in the journal."""
    keeps_down: ClassVar[bool]
    """Whether its servers stay down while it is open, whichever other fault is healed."""
    is_unhealthy: ClassVar[bool] = False
    """Whether its servers run but cannot be healthy while it is open."""

    @property
    def affected_servers(self) -> tuple[str, ...]:
        """The servers that it is injected into; none for links."""
        return ()

    @property
    @abstractmethod
    def counted_as_lost(self) -> tuple[str, ...]:
        """The servers that count as lost while it is open: no other fault may then take the rest of a quorum."""

    @property
    def cuts(self) -> frozenset[Direction]:
        """Links that carry nothing while it is open."""
        return frozenset()

    @property
    def permanent_losses(self) -> tuple[str, ...]:
        """What will be lost for good. Such a fault must be forced."""
        return ()

    @property
    @abstractmethod
    def target_text(self) -> str:
        """Its target, for people."""

    @abstractmethod
    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Inject it and return evidence that it is active. Raises LabError if there is no such evidence."""

    @abstractmethod
    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """Undo it. Returns what it has spawned for that."""

    @abstractmethod
    def is_over(self, target: TargetServers, fault_id: str) -> bool:
        """Whether nothing of it is left because `lab up` restarted its servers or `lab down` ended the lab."""

    @abstractmethod
    def journal_entry(self) -> dict[str, Any]:
        """The fault as plain JSON data, which `from_journal` reads."""

    @classmethod
    @abstractmethod
    def from_journal(cls, entry: Mapping[str, Any]) -> Self:
        """The reverse of `journal_entry`. Raises KeyError, TypeError or ValueError for other data."""


@value_class
class LastingInjection:
    """Servers or links that are taken away until they are healed."""

    fault: LabFault
    regions: tuple[str, ...]
    """The regions that it affects directly."""
    also_confirm: Callable[[], Awaitable[str]] | None = None
    """What else must be observed before the fault counts as confirmed, such as a new leader."""


@value_class
class LeaderChange(ABC):
    """A leader that steps down: nothing to undo. *regions* is where it was."""

    leader: str
    regions: tuple[str, ...]

    @abstractmethod
    async def step_down(self, target: TargetServers) -> str:
        """Have it step down, and return evidence that another server leads. Raises LabError if there is no such evidence."""


@value_class
class RollingRestart:
    """Servers that are restarted one after another, from then on with *program* if there is one."""

    servers: tuple[str, ...]
    regions: tuple[str, ...]
    is_lame_duck: bool
    program: Program | None = None


Injection = LastingInjection | LeaderChange | RollingRestart


@value_class
class FaultRequest:
    """A requested fault, and the servers that it can target. *needs_successor*: a leader steps down only if another can lead."""

    spec: FaultSpec
    target: TargetServers
    topology: Topology
    needs_successor: bool

    def make_lasting(self, fault: ServerFault) -> LastingInjection:
        """*fault* and the regions of its servers."""
        return LastingInjection(fault=fault, regions=self.regions_of(fault.servers))

    def regions_of(self, servers: Sequence[str]) -> tuple[str, ...]:
        """The regions of *servers*, as far as they are the target's: others may lead, too."""
        regions = self.target.servers
        return tuple(dict.fromkeys(regions[server] for server in servers if server in regions))

    def servers_of_regions(self) -> tuple[str, ...]:
        """The servers of the named regions, or all."""
        names = self.spec.targets or self.target.regions
        return tuple(server for name in names for server in select.require_running_in_region(self.target, name))

    def servers_of_targets(self) -> tuple[str, ...]:
        """The named servers and the servers of the named regions, or all."""
        if not self.spec.targets:
            return tuple(self.target.servers)
        return tuple(
            server for name in self.spec.targets for server in select.require_serving_servers(self.target, name)
        )

    def find_physical_stream(self) -> str:
        """The name of the physical stream that the first target and `--region` mean."""
        region = self.spec.options.get("region")
        return select.find_physical_stream(self.topology, self.spec.targets[0], None if region is None else str(region))


@value_class
class ServerFault(LabFault):
    """A fault of *servers*, without links."""

    loses_servers: ClassVar[bool]
    """Whether its servers count as lost while it is open. Those that only became slow do not."""
    servers: tuple[str, ...]

    @property
    def affected_servers(self) -> tuple[str, ...]:
        """All of its servers."""
        return self.servers

    @property
    def counted_as_lost(self) -> tuple[str, ...]:
        """All of its servers, or none."""
        return self.servers if self.loses_servers else ()

    @property
    def target_text(self) -> str:
        """The names of its servers."""
        return ", ".join(self.servers)

    def journal_entry(self) -> dict[str, Any]:
        """Its servers."""
        return {"servers": list(self.servers)}

    @classmethod
    def from_journal(cls, entry: Mapping[str, Any]) -> Self:
        """The reverse of `journal_entry`."""
        return cls(servers=tuple(entry["servers"]))

    def signal(self, target: TargetServers, number: signal.Signals) -> None:
        """Send it to each of its servers that runs."""
        for server in self.servers:
            target.nats_server(server).signal(number)


@value_class
class StoppedServersFault(ServerFault):
    """A fault after which its servers do not run: starting them undoes it."""

    loses_servers: ClassVar[bool] = True

    async def kill(self, target: TargetServers) -> str:
        """Kill its servers, and return the evidence: no process is left, and no monitoring port answers."""
        self.signal(target, signal.SIGKILL)
        await wait_until_gone(target, self.servers)
        await wait_until_silent(target, self.servers)
        return f"{name_with_verb(self.servers)} gone, and silent on the monitoring port"

    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """Start the servers that do not run."""
        return start_absent_servers(target, self.servers)

    def is_over(self, target: TargetServers, fault_id: str) -> bool:
        """Whether they were started since."""
        return not list_absent_servers(target, self.servers)


def list_absent_servers(target: TargetServers, servers: Sequence[str]) -> list[str]:
    """Those of *servers* that are meant to run and do not: after `lab down`, none is meant to."""
    stopped = [server for server in servers if not target.nats_server(server).is_running()]
    return [server for server in stopped if server_records.read(target.directory, server) is not None]


async def wait_until(
    servers: Sequence[str], holds: Callable[[str], bool], problem: str, *, within: float = _EFFECT_TIMEOUT
) -> None:
    """Wait until *holds* is true of all *servers*. Raises LabError with *problem* and a server where it is not."""
    deadline = time.monotonic() + within
    for server in servers:
        while not holds(server):
            if time.monotonic() > deadline:
                raise LabError(
                    f"server `{server}` {problem} after {within:g} s",
                    hint=f"`vstream chaos kill-server {server}` ends it by force, `vstream chaos heal` starts it",
                )
            await asyncio.sleep(POLL_SECONDS)


async def wait_until_gone(target: TargetServers, servers: Sequence[str], *, within: float = _EFFECT_TIMEOUT) -> None:
    """Wait until none of *servers*, which were told to end, has a process. Raises LabError."""
    await wait_until(servers, lambda server: not target.nats_server(server).is_running(), "still runs", within=within)


def require_awake(target: TargetServers, servers: Sequence[str]) -> None:
    """Raises LabError if one of *servers* is stopped by a signal: a second fault would wait until it continues."""
    for server in servers:
        if target.is_paused(server):
            raise LabError(
                f"server `{server}` is paused, so it cannot be restarted",
                hint="`vstream chaos resume` resumes it; `vstream chaos heal` undoes all faults, the last one first",
            )


async def wait_until_silent(target: TargetServers, servers: Sequence[str]) -> None:
    """Wait until the servers answer nobody: the process table alone is not enough. Raises LabError if one does."""
    deadline = time.monotonic() + _EFFECT_TIMEOUT
    for server in servers:
        url = target.address(server).monitor_url
        while await _is_answering(url):
            if time.monotonic() > deadline:
                raise LabError(f"server `{server}` still answers at `{url}`")
            await asyncio.sleep(POLL_SECONDS)


def name_with_verb(servers: Sequence[str]) -> str:
    """`a, b are`, `a is`."""
    return f"{', '.join(servers)} {'is' if len(servers) == 1 else 'are'}"


def start_absent_servers(target: TargetServers, servers: Sequence[str]) -> SpawnedServers:
    """Start those of *servers* that are meant to run and do not, unless another open fault holds them down."""
    missing = [server for server in list_absent_servers(target, servers) if server not in target.held]
    return start_servers(target.directory, missing, target.latest_record().programs)


def read_pids(path: Path) -> dict[str, int]:
    """Process ids by server, as recorded at *path*; empty if there is no record."""
    try:
        pids: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return pids


def find_running(target: TargetServers, pids: Mapping[str, int]) -> list[str]:
    """The servers that still run as the processes *pids*."""
    processes = {server: target.nats_server(server).process() for server in pids}
    return [server for server, process in processes.items() if process and process.pid == pids[server]]


async def _is_answering(url: str) -> bool:
    try:
        await monitoring.get(url, "/varz", _SILENCE_SECONDS)
    except VstreamError:
        return False
    return True
