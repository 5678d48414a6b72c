"""
Check the servers repeatedly, and resync streams that stand still although nothing prevents them from sourcing.

Which ones, and after how many seconds again (6, 12 … 640), says `vstream.health.resync_policy`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from vstream.errors import NotPermittedError, VstreamError
from vstream.health.live.collect import collect_snapshot
from vstream.health.resync_policy import META_GROUP, ResyncAction, ResyncDecision, ResyncPolicy
from vstream.jetstream.admin import JetStreamAdmin
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology
from vstream.value_class import value_class

_LOOK_TIMEOUT = 4.0
"""Seconds for one check: what has not answered by then is unknown."""


@value_class
class ResyncCheck:
    """One look. *problem* is why the servers could not be asked, or why a leader did not step down."""

    decisions: tuple[ResyncDecision, ...] = ()
    problem: str | None = None


class Resyncer:
    """Looks at the servers of *topology*, and resyncs what stands still. It remembers earlier looks."""

    def __init__(self, topology: Topology, target: TargetServers) -> None:
        self._topology = topology
        self._target = target
        self._policy = ResyncPolicy(topology, can_move_meta=target.system is not None and topology.hubs is None)

    async def check_and_resync(self) -> ResyncCheck:
        """Look once, and have the leaders of what stands still step down. Raises NotPermittedError where it may not step leaders down."""
        try:
            snapshot = await collect_snapshot(self._topology, self._target.endpoints, timeout=_LOOK_TIMEOUT)
        except NotPermittedError:
            raise
        except VstreamError as error:
            return ResyncCheck(problem=error.message)
        decisions = self._policy.decide(snapshot)
        chosen = [decision for decision in decisions if decision.action is not ResyncAction.WAIT]
        return ResyncCheck(decisions=decisions, problem=await _resync(self._target, chosen) if chosen else None)


async def watch_and_resync(
    latest: Callable[[], Resyncer], *, every: float, on_check: Callable[[ResyncCheck], None]
) -> NoReturn:
    """
    Look, and resync what stands still, every *every* seconds until cancelled, each time with the *latest* resyncer.

    Continues whatever servers answer. Raises NotPermittedError where it may not step leaders down: waiting does not
    change that.
    """
    while True:
        began = time.monotonic()
        on_check(await latest().check_and_resync())
        await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))


async def _resync(target: TargetServers, chosen: Sequence[ResyncDecision]) -> str | None:
    """Make the leaders of *chosen* step down. Returns why one did not, if so: the next look tells what came of it."""
    try:
        async with target.connect(chosen[0].place) as connection:
            admin = JetStreamAdmin(connection)
            streams = [decision for decision in chosen if decision.stream != META_GROUP]
            await asyncio.gather(*(admin.step_down(decision.stream, decision.new_leader) for decision in streams))
        for decision in chosen:
            if decision.stream == META_GROUP:
                async with target.connect_to_system() as system:
                    await JetStreamAdmin(system).step_down_meta(decision.new_leader)
    except NotPermittedError:
        raise
    except VstreamError as error:
        return error.message
    return None
