"""
A full disk, for some servers only: they may not write to files any more.

Linux can set a limit on a process that runs: of no bytes, here, on the size of the files that
it writes. Every write fails from then on, as on a full disk, with another error ("file too
large" instead of "no space left on device"), and nothing else on this machine notices.
"""

from __future__ import annotations

import asyncio
import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import psutil

from vstream.chaos.process import ServerFault, are, read_pids, require_awake, start_missing, wait_until
from vstream.errors import LabError, UnsupportedError
from vstream.files import write_atomically
from vstream.lab import records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from vstream.chaos.target_servers import TargetServers

_HEARS_WITHIN = 0.5
"""Seconds in which a server has handled a signal. It takes a millisecond."""
_GRACE = 30.0
_REOPENED = "File log re-opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskFull(ServerFault):
    """The servers run, and cannot write. What could not be written makes them refuse until they are restarted."""

    kind: ClassVar[str] = "disk-full"
    servers: tuple[str, ...]

    async def inject(self, site: TargetServers, name: str) -> str:
        """Limit them. Then each has the limit, and cannot write the line into its log that it was asked for."""
        if not hasattr(psutil.Process, "rlimit"):
            raise UnsupportedError(
                "a full disk cannot be made on this machine: it takes a limit that only Linux sets on processes that run",
                hint="`vstream chaos pause` and `kill-server` work here",
            )
        found = {server: one for server in self.servers if (one := site.process(server).process())}
        place = _place(site, name)
        await asyncio.to_thread(place.parent.mkdir, mode=0o700, parents=True)
        write_atomically(place, json.dumps({server: one.pid for server, one in found.items()}))
        for process in found.values():
            _limit(process, 0)
        for server, process in found.items():
            if process.rlimit(psutil.RLIMIT_FSIZE)[0] != 0 or await _writes(site, server):
                raise LabError(f"server `{server}` still writes to its disk")
        return f"{are(self.servers)} not able to write: nothing more arrives in the log"

    async def heal(self, site: TargetServers, name: str) -> Callable[[], None]:
        """
        Lift the limit and restart: what could not be written stays refused otherwise.

        A process that was started since is left alone.
        """
        limited = self._limited(site, name)
        require_awake(site, limited)
        for server in limited:
            process = site.process(server).process()
            if process is not None:
                _limit(process, psutil.RLIM_INFINITY)
            site.process(server).signal(signal.SIGINT)
            await wait_until((server,), lambda one: not site.process(one).is_running(), "does not end", within=_GRACE)
        return start_missing(site, self.servers)

    def is_over(self, site: TargetServers, name: str) -> bool:
        """Whether all its servers were restarted since, or nobody wants them to run."""
        if self._limited(site, name):
            return False
        return all(
            site.process(server).is_running() or records.read(site.directory, server) is None for server in self.servers
        )

    def _limited(self, site: TargetServers, name: str) -> tuple[str, ...]:
        """Those of the servers that are still the processes that were limited."""
        pids = read_pids(_place(site, name))
        return tuple(
            server for server, pid in pids.items() if (one := site.process(server).process()) and one.pid == pid
        )


def _place(site: TargetServers, name: str) -> Path:
    return site.directory.faults / name / "limited"


def _limit(process: psutil.Process, size: int) -> None:
    """The hard limit stays, so that this one can be lifted again."""
    try:
        process.rlimit(psutil.RLIMIT_FSIZE, (size, process.rlimit(psutil.RLIMIT_FSIZE)[1]))
    except psutil.NoSuchProcess:
        return
    except (psutil.AccessDenied, OSError) as error:
        raise UnsupportedError(f"the system does not let vstream limit what process {process.pid} writes") from error


async def _writes(site: TargetServers, server: str) -> bool:
    """Whether *server* says in its log that it has opened it anew, as it does when it is asked to."""
    one = site.process(server)
    mark = one.log_mark()
    one.signal(signal.SIGUSR1)
    await asyncio.sleep(_HEARS_WITHIN)
    return any(_REOPENED in line for line in one.said_since(mark))
