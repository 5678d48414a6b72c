"""
A full disk, for some servers only: they can no longer write to files.

On Linux a running process can be given a limit for the size of the files it writes; here it is zero bytes. Every write
then fails as on a full disk, though with another error ("file too large" instead of "no space left on device"). Nothing
else on this machine is affected.
"""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import ClassVar

import psutil

from vstream.chaos.faults import base
from vstream.errors import LabError, UnsupportedError
from vstream.files import write_private
from vstream.lab.server import SpawnedServers
from vstream.scenario import fault_types
from vstream.servers.target_servers import TargetServers
from vstream.value_class import value_class

_SIGNAL_TIMEOUT = 0.5
"""Seconds within which a server has handled a signal. It takes a millisecond."""
_REOPENED = "File log re-opened"


@value_class
class DiskFull(base.ServerFault):
    """The servers run but cannot write. After a failed write they refuse messages until they are restarted."""

    kind: ClassVar[str] = "disk-full"
    keeps_down: ClassVar[bool] = False
    loses_servers: ClassVar[bool] = True
    is_unhealthy: ClassVar[bool] = True

    async def inject(self, target: TargetServers, fault_id: str) -> str:
        """Set the limit. Confirmed when each server has it and cannot write the log line that it was asked for."""
        if not hasattr(psutil.Process, "rlimit"):
            raise UnsupportedError(
                "a full disk cannot be made on this machine: it takes a limit that only Linux sets on processes that run",
                hint="`vstream chaos pause` and `kill-server` work here",
            )
        processes = {server: process for server in self.servers if (process := target.nats_server(server).process())}
        place = _locate(target, fault_id)
        await asyncio.to_thread(place.parent.mkdir, mode=0o700, parents=True)
        write_private(place, json.dumps({server: process.pid for server, process in processes.items()}))
        for process in processes.values():
            _set_limit(process, 0)
        for server, process in processes.items():
            if process.rlimit(psutil.RLIMIT_FSIZE)[0] != 0 or await _can_write(target, server):
                raise LabError(f"server `{server}` still writes to its disk")
        return f"{base.name_with_verb(self.servers)} not able to write: nothing more arrives in the log"

    async def heal(self, target: TargetServers, fault_id: str) -> SpawnedServers:
        """
        Lift the limit and restart the servers: otherwise they keep refusing after a failed write.

        Processes that were started since are left alone.
        """
        limited = self._find_limited(target, fault_id)
        base.require_awake(target, limited)
        for server in limited:
            process = target.nats_server(server).process()
            if process is not None:
                _set_limit(process, psutil.RLIM_INFINITY)
            target.nats_server(server).signal(signal.SIGINT)
            await base.wait_until_gone(target, (server,), within=base.EXIT_SECONDS)
        return base.start_absent_servers(target, self.servers)

    def is_over(self, target: TargetServers, fault_id: str) -> bool:
        """Whether all its servers were restarted since, or are no longer meant to run."""
        return not self._find_limited(target, fault_id) and not base.list_absent_servers(target, self.servers)

    def _find_limited(self, target: TargetServers, fault_id: str) -> list[str]:
        """Those of the servers that are still the processes that were limited."""
        return base.find_running(target, base.read_pids(_locate(target, fault_id)))


def _locate(target: TargetServers, fault_id: str) -> Path:
    return target.directory.faults / fault_id / "limited"


def _set_limit(process: psutil.Process, size: int) -> None:
    """The hard limit stays, so that this one can be lifted again."""
    try:
        process.rlimit(psutil.RLIMIT_FSIZE, (size, process.rlimit(psutil.RLIMIT_FSIZE)[1]))
    except psutil.NoSuchProcess:
        return
    except (psutil.AccessDenied, OSError) as error:
        raise UnsupportedError(f"the system does not let vstream limit what process {process.pid} writes") from error


async def _can_write(target: TargetServers, server: str) -> bool:
    """Whether *server* says in its log that it has opened it anew, as it does when it is asked to."""
    process = target.nats_server(server)
    mark = process.mark_log()
    process.signal(signal.SIGUSR1)
    await asyncio.sleep(_SIGNAL_TIMEOUT)
    return any(_REOPENED in line for line in process.read_lines_since(mark))


async def _resolve_disk_full(request: base.FaultRequest) -> base.LastingInjection:
    return request.make_lasting(DiskFull(servers=request.servers_of_targets()))


RESOLVERS = {fault_types.DISK_FULL: _resolve_disk_full}
