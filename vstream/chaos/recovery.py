"""When servers are well again after a fault."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from vstream.chaos.blast_radius import sides
from vstream.chaos.connectivity import hearing
from vstream.chaos.leaders import POLL
from vstream.chaos.links import written
from vstream.errors import LabError, VstreamError
from vstream.jetstream import monitoring
from vstream.lab import readiness
from vstream.lab.readiness import Progress, Stage, monitor_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from vstream.chaos.target_servers import Site
    from vstream.lab.links.state import Pair
    from vstream.lab.readiness import Member

_PATIENCE = 1.0
"""Seconds for a message before it is sent again."""


async def healthy(
    site: Site,
    *,
    timeout: float,
    watch: Callable[[], None],
    on_progress: Callable[[Progress], None],
    without: Collection[str] = (),
) -> None:
    """
    Return once all servers that run take clients, are linked, know a meta leader, and messages get everywhere.

    Servers that another open fault holds down are not waited for, nor those of *without*, nor links that one
    cuts; nor is a meta leader where the majority that elects it is missing. Raises
    LabError that says what is missing after *timeout* seconds, or that a server has died.
    """
    deadline = time.monotonic() + timeout
    serving = [site.address(server) for server in site.servers if site.serves(server) and server not in without]
    cuts = site.cuts()
    everyone = readiness.members(serving, cuts, known=[site.address(server) for server in site.servers])
    watch()
    led = [
        member
        for group in site.meta_groups
        for side in sides(site.regions, cuts)
        if len(names := [one.server.name for one in serving if one.region in side and one.server.name in group])
        > len(group) // 2
        for member in everyone
        if member.name in names
    ]
    checks: list[tuple[Stage, Sequence[Member], Callable[[Member], Awaitable[str | None]]]] = [
        (Stage.ACCEPTING, everyone, readiness.accepting),
        (Stage.LINKED, everyone, readiness.linked),
        (Stage.LED, led, readiness.led),
    ]
    for stage, members, check in checks:
        await readiness.reach(stage, members, check, watch=watch, on_progress=on_progress, deadline=deadline)
    if len(site.regions) > 1:
        await _heard(site, cuts, deadline, on_progress)


async def _heard(site: Site, cuts: Collection[Pair], deadline: float, on_progress: Callable[[Progress], None]) -> None:
    async with hearing(site, patience=_PATIENCE) as ears:
        wanted = ears.pairs - set(cuts)
        on_progress(Progress(Stage.HEARD, 0, len(wanted)))
        if missing := await ears.until(wanted, within=deadline - time.monotonic()):
            raise LabError(
                f"no message gets over {written(missing)}",
                hint="where packets were dropped for long, TCP tries again late: `vstream chaos heal` waits on",
            )
        on_progress(Progress(Stage.HEARD, len(wanted), len(wanted)))


async def caught_up(site: Site, *, timeout: float) -> None:
    """Return once every server says that its streams and consumers have everything. Raises LabError with who lags."""
    deadline = time.monotonic() + timeout
    for server in site.servers:
        if not site.serves(server):
            continue
        url = monitor_url(site.address(server))
        while (problem := await _problem(url)) is not None:
            if time.monotonic() > deadline:
                raise LabError(
                    f"server `{server}` is not healthy after {timeout:g} s: {problem}",
                    hint="`vstream lab logs` of that server says more; nothing else was restarted",
                )
            await asyncio.sleep(POLL)


async def _problem(url: str) -> str | None:
    try:
        return await monitoring.health_problem(url, is_deep=True)
    except VstreamError as error:
        return error.message
