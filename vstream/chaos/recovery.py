"""Wait until servers are healthy again after a fault."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence

from vstream.chaos.blast_radius import find_connected_sides
from vstream.chaos.connectivity import format_pairs, probe_connectivity
from vstream.errors import LabError, VstreamError
from vstream.jetstream import monitoring
from vstream.lab import readiness
from vstream.lab.links.state import Direction
from vstream.lab.readiness import Member, ReadinessProgress, ReadinessStage
from vstream.lab.server import SpawnedServers
from vstream.servers.leaders import POLL_SECONDS
from vstream.servers.target_servers import TargetServers

_MESSAGE_TIMEOUT = 1.0
"""Seconds to wait for a message before it is sent again."""


async def wait_until_healthy(
    target: TargetServers,
    *,
    timeout: float,
    spawned: SpawnedServers,
    on_progress: Callable[[ReadinessProgress], None],
    without: Collection[str] = (),
) -> None:
    """
    Wait until all running servers accept clients, are linked, know a meta leader, and exchange messages.

    Not waited for: servers that another open fault holds down, those of *without*, cut links, and a meta leader if its
    majority is missing. Raises LabError that says what is missing after *timeout* seconds, or that one of *spawned* has died.
    """
    deadline = time.monotonic() + timeout
    serving = [target.address(name) for name in target.servers if target.may_answer(name) and name not in without]
    cuts = target.find_cut_links()
    everyone = readiness.list_members(serving, cuts, voters=[target.address(server) for server in target.servers])
    spawned.require_running()
    led: list[Member] = []
    for group in target.meta_groups:
        for side in find_connected_sides(target.regions, cuts):
            names = {address.server.name for address in serving if address.region in side} & group
            if len(names) > len(group) // 2:
                led += [member for member in everyone if member.name in names]
    checks: list[tuple[ReadinessStage, Sequence[Member], Callable[[Member], Awaitable[str | None]]]] = [
        (ReadinessStage.ACCEPTING, everyone, readiness.check_clients),
        (ReadinessStage.LINKED, everyone, readiness.check_links),
        (ReadinessStage.LED, led, readiness.check_meta_leader),
    ]
    for stage, members, check in checks:
        await readiness.wait_for_stage(
            stage, members, check, spawned=spawned, on_progress=on_progress, deadline=deadline
        )
    if len(target.regions) > 1:
        await _wait_until_connected(target, cuts, deadline, on_progress)


async def _wait_until_connected(
    target: TargetServers,
    cuts: Collection[Direction],
    deadline: float,
    on_progress: Callable[[ReadinessProgress], None],
) -> None:
    async with probe_connectivity(target, patience=_MESSAGE_TIMEOUT) as probe:
        pairs = probe.pairs - set(cuts)
        on_progress(ReadinessProgress(ReadinessStage.HEARD, 0, len(pairs)))
        if missing := await probe.find_silent(pairs, within=deadline - time.monotonic()):
            raise LabError(
                f"no message gets over {format_pairs(missing)}",
                hint="after a long cut, TCP retries late: `vstream chaos heal` keeps waiting",
            )
        on_progress(ReadinessProgress(ReadinessStage.HEARD, len(pairs), len(pairs)))


async def wait_until_replicas_current(target: TargetServers, *, timeout: float) -> None:
    """Wait until all servers report their streams and consumers as current. Raises LabError with who lags."""
    deadline = time.monotonic() + timeout
    for server in target.servers:
        if not target.may_answer(server):
            continue
        url = target.address(server).monitor_url
        while (problem := await _find_problem(url)) is not None:
            if time.monotonic() > deadline:
                raise LabError(
                    f"server `{server}` is not healthy after {timeout:g} s: {problem}",
                    hint="`vstream lab logs` of that server says more; nothing else was restarted",
                )
            await asyncio.sleep(POLL_SECONDS)


async def _find_problem(url: str) -> str | None:
    try:
        return await monitoring.find_health_problem(url, is_deep=True)
    except VstreamError as error:
        return error.message
