"""Plan × servers → what was done. Decides nothing: the plan says what and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vstream.errors import NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.plan.changes import Create, Delete, Phase, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vstream.plan.changes import Change, Plan
    from vstream.plan.port import MappingAdmin, StreamAdmin

IN_FLIGHT = 32
"""Requests at a time: with more, servers get no faster (measured: 418/s at 32, 472/s at 128)."""
ATTEMPTS = 3
TEMPORARILY_UNAVAILABLE = frozenset({10008, 10009})
"""JSClusterNotAvailErr and JSClusterNotLeaderErr: the request was refused, and asking again is safe."""
STREAM_NOT_FOUND = 10059
FIRST_PAUSE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """
    What has become of each change of a plan.

    A request without an answer may have taken effect: it is *uncertain*, neither
    done nor skipped.
    """

    done: tuple[Change, ...]
    uncertain: tuple[Change, ...] = ()
    refused: tuple[Change, ...] = ()
    skipped: tuple[Change, ...] = ()
    mappings_loaded: bool = False
    mappings_pending: bool = False
    """Whether servers still have other rules loaded, which only whoever runs them can change."""
    waits_for: tuple[str, ...] = ()
    """Servers of which nobody knows what they have loaded, so that removals were skipped."""
    failure: VstreamError | None = None

    @property
    def is_complete(self) -> bool:
        """Whether everything that the plan says has been done."""
        return not (self.uncertain or self.refused or self.skipped or self.mappings_pending or self.failure)


async def apply(
    plan: Plan, streams: StreamAdmin, mappings: MappingAdmin | None, on_done: Callable[[Change], None]
) -> Applied:
    """
    Carry out *plan*, phase by phase, up to 32 requests at a time; stop at the first failure.

    *mappings* is None where vstream cannot make servers load them: then everything
    that must wait for them is skipped, as it is where a server's loaded rules are
    unknown: it may still send publishes to what would be removed. Never raises for
    what servers answer.
    """
    run = _Run(streams, on_done)
    is_loaded = is_pending = False
    waits_for: tuple[str, ...] = ()
    for phase in Phase:
        if phase is Phase.MAPPINGS:
            if run.failure is None and plan.rules:
                if mappings is None:
                    is_pending = True
                else:
                    is_loaded = await run.load(mappings)
            continue
        changes = plan.in_phase(phase)
        if changes and phase > Phase.MAPPINGS and not is_loaded:
            waits_for = plan.unread_servers
        if run.failure is not None or (phase > Phase.MAPPINGS and (is_pending or waits_for)):
            run.skipped.extend(changes)
        else:
            await run.carry_out(changes)
    return Applied(
        done=tuple(run.done),
        uncertain=tuple(run.uncertain),
        refused=tuple(run.refused),
        skipped=tuple(run.skipped),
        mappings_loaded=is_loaded,
        mappings_pending=is_pending,
        waits_for=waits_for,
        failure=run.failure,
    )


class _Run:
    def __init__(self, streams: StreamAdmin, on_done: Callable[[Change], None]) -> None:
        self._streams = streams
        self._on_done = on_done
        self.done: list[Change] = []
        self.uncertain: list[Change] = []
        self.refused: list[Change] = []
        self.skipped: list[Change] = []
        self.failure: VstreamError | None = None

    async def load(self, mappings: MappingAdmin) -> bool:
        try:
            await mappings.load()
        except VstreamError as failure:
            self.failure = failure
            return False
        return True

    async def carry_out(self, changes: Sequence[Change]) -> None:
        waiting = iter(changes)

        async def worker() -> None:
            for change in waiting:
                if self.failure is not None:
                    self.skipped.append(change)
                else:
                    await self._one(change)

        await asyncio.gather(*(worker() for _ in range(min(IN_FLIGHT, len(changes)))))

    async def _one(self, change: Change) -> None:
        try:
            await _with_retries(change, self._streams)
        except NotReachableError as failure:
            self.uncertain.append(change)
            self.failure = self.failure or failure
        except (ServerError, NoRespondersError) as failure:
            self.refused.append(change)
            self.failure = self.failure or failure
        else:
            self.done.append(change)
            self._on_done(change)


async def _with_retries(change: Change, streams: StreamAdmin) -> None:
    pause = FIRST_PAUSE
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _request(change, streams)
        except NotReachableError:
            # The same create or update twice is one; a second delete could hit a stream that somebody made since.
            if isinstance(change, Delete) or attempt == ATTEMPTS:
                raise
        except ServerError as failure:
            if isinstance(change, Delete) and failure.err_code == STREAM_NOT_FOUND:
                return None  # somebody else was faster: it is as the plan wants it
            if failure.err_code not in TEMPORARILY_UNAVAILABLE or attempt == ATTEMPTS:
                raise
        await asyncio.sleep(pause)
        pause *= 2
    return None


async def _request(change: Change, streams: StreamAdmin) -> None:
    match change:
        case Create():
            await streams.create(change.config)
        case Update():
            await streams.update(change.config)
        case Delete():
            await streams.delete(change.config.name)
