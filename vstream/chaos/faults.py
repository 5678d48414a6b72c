"""The faults: each can be injected, shown to bite, and healed. Each step may be repeated after a crash."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from vstream.chaos import leaders
from vstream.chaos.disk_full import DiskFull
from vstream.chaos.links import LinkShape, Partition
from vstream.chaos.power_loss import PowerLoss
from vstream.chaos.process import ServerFault, are, require_awake, start_missing, wait_until, wait_until_silent
from vstream.errors import LabError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.lab import records

if TYPE_CHECKING:
    from collections.abc import Callable

    from vstream.chaos.target_servers import TargetServers

_GRACE = 30.0
_LAME_DUCK_GRACE = 180.0
"""Seconds: clients are sent away over two minutes, which is the server's default."""


class Fault(Protocol):
    """Something that is done to servers on purpose. *name* is its own in the lab's journal."""

    kind: ClassVar[str]

    async def inject(self, site: TargetServers, name: str) -> str:
        """Do it, and give what shows that it bites. Raises LabError if nothing does."""

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:
        """Undo it. What it returns raises LabError if that has failed since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill(ServerFault):
    """The processes are gone, as by `kill -9`: their files stay."""

    kind: ClassVar[str] = "kill"
    servers: tuple[str, ...]

    async def inject(self, site: TargetServers, name: str) -> str:  # noqa: ARG002 - as every fault
        """SIGKILL to each server that runs. Then no process is left, and no monitoring port answers."""
        for server in self.servers:
            site.process(server).signal(signal.SIGKILL)
        await wait_until(self.servers, lambda server: not site.process(server).is_running(), "still runs after SIGKILL")
        await wait_until_silent(site, self.servers)
        return f"{are(self.servers)} gone, and silent on the monitoring port"

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:  # noqa: ARG002
        """Start those that do not run."""
        return start_missing(site, self.servers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(ServerFault):
    """The processes are stopped, as by a machine that hangs: connections stay open, and nothing answers."""

    kind: ClassVar[str] = "pause"
    servers: tuple[str, ...]

    async def inject(self, site: TargetServers, name: str) -> str:  # noqa: ARG002
        """SIGSTOP to each server that runs. Then every process is stopped, and no monitoring port answers."""
        for server in self.servers:
            site.process(server).signal(signal.SIGSTOP)
        await wait_until(
            self.servers, lambda server: site.is_alive(server, stopped=True), "is not stopped after SIGSTOP"
        )
        await wait_until_silent(site, self.servers)
        return f"{are(self.servers)} stopped, and silent on the monitoring port"

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:  # noqa: ARG002
        """SIGCONT to each server that runs."""
        for server in self.servers:
            site.process(server).signal(signal.SIGCONT)
        return _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart(ServerFault):
    """The processes end as they do when they are asked to, and are started again."""

    kind: ClassVar[str] = "restart"
    servers: tuple[str, ...]
    is_lame_duck: bool = False
    """Clients are sent away first. Only how it begins depends on it, so the journal need not know."""

    async def inject(self, site: TargetServers, name: str) -> str:  # noqa: ARG002
        """SIGTERM, or SIGUSR2, to each server that runs. Then no process is left."""
        for server in self.servers:
            site.process(server).signal(signal.SIGUSR2 if self.is_lame_duck else signal.SIGTERM)
        return await self._gone(site, _LAME_DUCK_GRACE if self.is_lame_duck else _GRACE)

    async def _gone(self, site: TargetServers, within: float) -> str:
        await wait_until(
            self.servers,
            lambda server: not site.process(server).is_running(),
            "still runs after it was told to end",
            within=within,
        )
        return f"{are(self.servers)} gone"

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:
        """
        Start them, as `Kill` does.

        What still runs is ended first: it may have been told to before a crash, and be about to.
        SIGINT does that at once; SIGTERM does nothing to a server that is sending its clients away.
        """
        require_awake(site, self.servers)
        for server in self.servers:
            site.process(server).signal(signal.SIGINT)
        await self._gone(site, _GRACE)
        return await Kill(servers=self.servers).heal(site, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDown:
    """The leader of a stream hands over. The servers elect another by themselves: there is nothing to undo."""

    kind: ClassVar[str] = "step-down"
    stream: str
    leader: str

    async def inject(self, site: TargetServers, name: str) -> str:  # noqa: ARG002
        """Ask the leader. Then another server leads."""
        async with site.connected() as connection:
            await JetStreamAdmin(connection).step_down(self.stream)
            new, seconds = await leaders.wait_for_successor(
                lambda: leaders.stream_leader(connection, self.stream), self.leader, within=leaders.ELECTION
            )
        if new is None:
            raise LabError(f"stream `{self.stream}` has no other leader than `{self.leader}` after {seconds:.0f} s")
        return f"{self.stream} is led by {new} instead of {self.leader}, seen after {seconds:.1f} s"

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:  # noqa: ARG002
        """Nothing."""
        return _nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaStepDown:
    """The leader of the meta group hands over. There is nothing to undo."""

    kind: ClassVar[str] = "step-down-meta"
    leader: str

    async def inject(self, site: TargetServers, name: str) -> str:  # noqa: ARG002
        """Ask the leader, in the system account. Then another server leads."""
        async with site.connect_to_system() as connection:
            await JetStreamAdmin(connection).step_down_meta()
        new, seconds = await leaders.wait_for_successor(
            lambda: leaders.meta_leader(site.monitors()), self.leader, within=leaders.ELECTION
        )
        if new is None:
            raise LabError(f"the meta group has no other leader than `{self.leader}` after {seconds:.0f} s")
        return f"the meta group is led by {new} instead of {self.leader}, seen after {seconds:.1f} s"

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:  # noqa: ARG002
        """Nothing."""
        return _nothing


LabFault = Kill | Pause | Restart | Partition | LinkShape | PowerLoss | DiskFull
"""Faults that stay until they are healed, so they are journalled."""


def is_over(fault: LabFault, name: str, site: TargetServers) -> bool:
    """Whether nothing of *fault* is left: `lab up` has started its servers since, or `lab down` has ended the lab."""
    match fault:
        case Kill() | PowerLoss():
            return all(
                site.process(server).is_running() or records.read(site.directory, server) is None
                for server in fault.servers
            )
        case Pause():
            return not any(site.is_alive(server, stopped=True) for server in fault.servers)
        case Partition() | LinkShape():
            return not fault.is_open(site, name)
        case DiskFull():
            return fault.is_over(site, name)
        case Restart():
            return all(records.read(site.directory, server) is None for server in fault.servers)


def _nothing() -> None:
    pass
