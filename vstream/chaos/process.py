"""What faults of processes have in common: what they take, and how it is seen."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, ClassVar

from vstream.chaos.leaders import POLL
from vstream.errors import LabError, VstreamError
from vstream.jetstream import monitoring
from vstream.lab import records, start
from vstream.lab.readiness import monitor_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from vstream.chaos.target_servers import TargetServers
    from vstream.lab.links.state import Pair

_BITES_WITHIN = 10.0
"""Seconds until a signal must have had its effect. It takes milliseconds."""
_SILENCE = 0.3
"""Seconds without an answer on a port that answers within one millisecond."""


class ServerFault:
    """A fault that takes *servers* and no links."""

    __slots__ = ()
    servers: tuple[str, ...]
    cuts: ClassVar[frozenset[Pair]] = frozenset()
    """Links that carry nothing any more."""

    @property
    def losses(self) -> tuple[str, ...]:
        """What will be gone for good: it needs to be asked for twice."""
        return ()

    @property
    def where(self) -> str:
        """What it is done to."""
        return ", ".join(self.servers)


async def wait_until(
    servers: Sequence[str], holds: Callable[[str], bool], otherwise: str, *, within: float = _BITES_WITHIN
) -> None:
    """Return once it *holds* of all *servers*. Raises LabError that says *otherwise* of the one that it does not."""
    deadline = time.monotonic() + within
    for server in servers:
        while not holds(server):
            if time.monotonic() > deadline:
                raise LabError(
                    f"server `{server}` {otherwise}, for {within:g} s",
                    hint=f"`vstream chaos kill-server {server}` ends it by force, `vstream chaos heal` starts it",
                )
            await asyncio.sleep(POLL)


def require_awake(site: TargetServers, servers: Sequence[str]) -> None:
    """Raises LabError if one of *servers* is stopped by a signal: another would wait until it goes on."""
    for server in servers:
        if site.is_alive(server, stopped=True):
            raise LabError(
                f"server `{server}` is paused, so it cannot be restarted",
                hint="`vstream chaos resume` lets it go on; `vstream chaos heal` undoes all faults, the last one first",
            )


async def wait_until_silent(site: TargetServers, servers: Sequence[str]) -> None:
    """What the process table says is not enough: nobody may be served any more. Raises LabError if somebody is."""
    deadline = time.monotonic() + _BITES_WITHIN
    for server in servers:
        url = monitor_url(site.address(server))
        while await _answers(url):
            if time.monotonic() > deadline:
                raise LabError(f"server `{server}` still answers at `{url}`")
            await asyncio.sleep(POLL)


def are(servers: Sequence[str]) -> str:
    """`a, b are`, `a is`."""
    return f"{', '.join(servers)} {'is' if len(servers) == 1 else 'are'}"


def start_missing(site: TargetServers, servers: Sequence[str]) -> Callable[[], None]:
    """
    Start those of *servers* that do not run. What it returns raises LabError if one of them has died since.

    A server that nobody wants to run any more, because the lab was taken down since, stays down, and
    so does one that another open fault has taken.
    """
    missing = [
        server
        for server in servers
        if server not in site.held
        and not site.process(server).is_running()
        and records.read(site.directory, server) is not None
    ]
    return start.start_servers(site.directory, missing, site.latest_record().programs)


def read_pids(path: Path) -> dict[str, int]:
    """Process ids by server, as they were written down at *path*; none if they were not."""
    try:
        found: dict[str, int] = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return found


async def _answers(url: str) -> bool:
    try:
        await monitoring.get(url, "/varz", _SILENCE)
    except VstreamError:
        return False
    return True
