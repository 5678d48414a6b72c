"""Wait until gates of a plan hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from vstream.apply.interfaces import GateChecker
from vstream.apply.result import ApplyObserver, ApplyResult, GateTimeout
from vstream.errors import VstreamError
from vstream.plan.model import Gate
from vstream.value_class import value_class

GATE_TIMEOUT: float = 300
"""Maximum seconds for a gate: servers retry a lost source after at most two minutes."""
GATE_POLL_SECONDS = 0.25


@value_class
class GateWaiter:
    """Has gates checked again and again, and tells *observer* what they lack."""

    checker: GateChecker
    observer: ApplyObserver

    async def wait(self, gate: Gate, deadline: float) -> GateTimeout | None:
        """
        Wait until *gate* holds, and push it meanwhile; what it lacks if *deadline* comes first, None if it holds.

        Raises VstreamError for what can never be told.
        """
        while (missing := await self.checker.find_missing(gate)) is not None:
            self.observer.on_wait(gate, missing)
            if time.monotonic() > deadline:
                return GateTimeout(gate=gate, missing=missing)
            await self.checker.push(gate)
            await pause_before_next_look()
        return None

    async def wait_for_all(self, gates: Collection[Gate], timeout: float) -> ApplyResult:
        """Wait for *gates*, up to *timeout* seconds: which did not hold by then, or what failed."""
        deadline = time.monotonic() + timeout
        try:
            timeouts = await asyncio.gather(*(self.wait(gate, deadline) for gate in gates))
        except VstreamError as failure:
            return ApplyResult(failure=failure)
        return ApplyResult(gate_timeouts=tuple(timeout for timeout in timeouts if timeout is not None))

    async def look_once(self, gates: Collection[Gate]) -> dict[Gate, str]:
        """What each of *gates* lacks now, nothing if it holds. Raises as `wait`."""
        missing = await asyncio.gather(*(self.checker.find_missing(gate) for gate in gates))
        lacks = {gate: lack or "" for gate, lack in zip(gates, missing, strict=True)}
        for gate, lack in lacks.items():
            if lack:
                self.observer.on_wait(gate, lack)
        return lacks


async def pause_before_next_look() -> None:
    """Let servers get on before gates are checked again."""
    await asyncio.sleep(GATE_POLL_SECONDS)
