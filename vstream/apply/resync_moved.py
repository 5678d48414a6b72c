"""Resync the readers of streams that have moved or been scaled: by themselves they would ask these only later."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Mapping, Sequence

from vstream.apply.interfaces import ReaderAdmin
from vstream.apply.result import ApplyResult, GateTimeout
from vstream.apply.wait_for_gates import GateWaiter, pause_before_next_look
from vstream.errors import VstreamError
from vstream.plan.model import Gate
from vstream.timing import MOVE_START_SECONDS
from vstream.value_class import value_class


@value_class
class MovedReaderResync:
    """Resyncs the readers of each stream once that is there."""

    readers: ReaderAdmin
    waiter: GateWaiter
    moving: Collection[str]
    """The streams that get other servers."""
    leaders: Mapping[str, str | None]
    """Who led streams before."""
    timeout: float
    """Seconds until those that are not there yet are given up."""

    async def run(self, gates: Sequence[Gate], gates_meanwhile: Sequence[Gate]) -> ApplyResult:
        """
        Have the readers of what moved take from it at once, as soon as *gates* say that it is there.

        What fails ends nothing, as they do it by themselves later; but a stream without a leader does. *gates_meanwhile* are
        pushed, so that servers record what moves: a later stage asks whether they have.
        """
        pushing = (self.waiter.wait(gate, math.inf) for gate in gates_meanwhile)
        recording = asyncio.gather(*pushing, return_exceptions=True)
        try:
            return await self._resync_as_they_arrive(gates)
        finally:
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)

    async def _resync_as_they_arrive(self, gates: Sequence[Gate]) -> ApplyResult:
        waiting, began, result = list(gates), time.monotonic(), ApplyResult()
        try:
            while waiting:
                lacks = await self.waiter.look_once(waiting)
                arrived = await self._list_arrived(lacks, began)
                if arrived:
                    result = result.join(await self._resync_readers_of(arrived, result.resynced))
                elif time.monotonic() > began + self.timeout:
                    result = result.join(ApplyResult(not_resynced=tuple(filter(None, lacks.values()))))
                    return result.join(ApplyResult(gate_timeouts=await self._list_without_leader(lacks)))
                else:
                    await pause_before_next_look()
                waiting = [gate for gate in waiting if gate not in arrived]
        except VstreamError as failure:
            return result.join(ApplyResult(not_resynced=(failure.message,)))
        return result

    async def _list_arrived(self, lacks: Mapping[Gate, str], began: float) -> list[Gate]:
        """The gates that lack nothing. A stream that moves looks so until it has begun to, soon after *began*."""
        holding = [gate for gate, lack in lacks.items() if not lack]
        if time.monotonic() >= began + MOVE_START_SECONDS:
            return holding
        return [gate for gate in holding if gate.stream not in self.moving or await self._has_other_leader(gate)]

    async def _resync_readers_of(self, arrived: Sequence[Gate], resynced: Collection[str]) -> ApplyResult:
        """Of what has another leader now: the others have lost nothing, and would only be interrupted."""
        names: dict[str, None] = {}
        for gate in arrived:
            if await self._has_other_leader(gate):
                names.update(dict.fromkeys(gate.counterparts))
        if not names:
            return ApplyResult()
        not_resynced = await self.readers.resync(tuple(names))
        return ApplyResult(not_resynced=not_resynced, resynced=tuple(name for name in names if name not in resynced))

    async def _list_without_leader(self, lacks: Mapping[Gate, str]) -> tuple[GateTimeout, ...]:
        """What *lacks* of streams that nobody can publish into."""
        leaders = [await self.waiter.checker.leader(gate.stream) for gate in lacks]
        timeouts = [GateTimeout(gate=gate, missing=lack) for gate, lack in lacks.items()]
        return tuple(timeout for timeout, leader in zip(timeouts, leaders, strict=True) if leader is None)

    async def _has_other_leader(self, gate: Gate) -> bool:
        leader = await self.waiter.checker.leader(gate.stream)
        return leader is None or leader != self.leaders.get(gate.stream)
