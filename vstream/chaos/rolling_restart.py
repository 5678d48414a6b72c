"""Restart servers one after another, each when all are healthy again; optionally with another binary."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from vstream.chaos.faults.restart import Restart
from vstream.chaos.inject import InjectionRequest, announce_impact, prune_journal, require_allowed
from vstream.chaos.journal import write_journal
from vstream.chaos.recovery import wait_until_caught_up, wait_until_healthy
from vstream.errors import LabError
from vstream.jetstream import monitoring
from vstream.lab import conf
from vstream.lab.binaries import Program
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.start import shield_from_cancellation
from vstream.value_class import value_class


@value_class
class RestartResult:
    """One server: seconds until it exited, and from then until everything was healthy."""

    server: str
    version: str
    """The version it runs now."""
    stopping: float
    recovering: float


async def restart(
    request: InjectionRequest,
    servers: Sequence[str],
    *,
    is_lame_duck: bool = False,
    program: Program | None = None,
    timeout: float,
    on_restarted: Callable[[RestartResult], None] = lambda _restarted: None,
    on_progress: Callable[[ReadinessProgress], None] = lambda _step: None,
) -> tuple[RestartResult, ...]:
    """
    Stop and start *servers* in turn. The next one waits until all servers are healthy and all streams current.

    With *program* they are started with that binary from then on: an upgrade. Refused before the first signal if any
    step takes away more than its own region. Raises LabError if a server does not come back, with the rest untouched,
    or before the first signal if *program* would refuse a configuration. When cancelled, the server that is down is
    started first.
    """
    target = request.target
    if program is not None:
        await conf.check_with_server(dict.fromkeys(servers, program.binary), target.directory.conf)
    async with target.directory.lock():
        journal = prune_journal(target)
    for server in servers:
        step = replace(request, command=f"{request.command}: {server}")
        require_allowed(step, announce_impact(step, journal, Restart(servers=(server,))))
    request.on_begin()
    done = []
    for server in servers:
        began = time.monotonic()
        restarting = asyncio.ensure_future(_restart_server(request, server, is_lame_duck=is_lame_duck, program=program))
        try:
            watch = await asyncio.shield(restarting)
        except asyncio.CancelledError:
            await shield_from_cancellation(restarting)
            raise
        stopped = time.monotonic()
        await wait_until_healthy(target, timeout=timeout, watch=watch, on_progress=on_progress)
        await wait_until_caught_up(target, timeout=timeout)
        version = (await monitoring.read_varz(target.address(server).monitor_url)).version
        if program is not None and version != program.version:
            raise LabError(f"server `{server}` runs nats-server {version}, not {program.version}")
        result = RestartResult(
            server=server, version=version, stopping=stopped - began, recovering=time.monotonic() - stopped
        )
        on_restarted(result)
        done.append(result)
    return tuple(done)


async def _restart_server(
    request: InjectionRequest, server: str, *, is_lame_duck: bool, program: Program | None
) -> Callable[[], None]:
    """End *server* and spawn it, with *program* if there is one. What it returns raises LabError if the server has died since."""
    target, fault = request.target, Restart(servers=(server,), is_lame_duck=is_lame_duck)
    async with target.directory.lock():
        if not target.may_answer(server):
            raise LabError(f"server `{server}` does not run", hint="`vstream chaos heal` or `vstream lab up` starts it")
        journal, entry = prune_journal(target).add(f"{request.command}: {server}", fault)
        write_journal(target.directory, journal)
        await fault.inject(target, entry.id)
        if program is not None:
            record = target.latest_record()
            # From here on a heal after a crash starts it with the new one, too.
            target.directory.write(replace(record, programs={**record.programs, server: program}))
        watch = await fault.heal(target, entry.id)
        write_journal(target.directory, journal.remove(entry.id))
    return watch
