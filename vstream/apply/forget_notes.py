"""Remove notes from streams that have moved or been scaled up: no later run needs them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from vstream.apply.before_moves import BeforeMoves
from vstream.apply.interfaces import Administration
from vstream.apply.result import ApplyResult
from vstream.apply.retry import retry
from vstream.errors import VstreamError
from vstream.plan.model import Gate, GateKind
from vstream.timing import MOVE_START_SECONDS
from vstream.topology.naming import is_paused
from vstream.topology.stream_config import MOVED_KEY, StreamConfig, with_noted_scaling, without_noted_move


async def forget_notes(gates: Sequence[Gate], administration: Administration, before: BeforeMoves) -> ApplyResult:
    """Remove the notes of streams of *gates*, which hold: of those scaled up and compared, or moved and recorded."""
    try:
        for gate in gates:
            await retry(partial(_forget_note, gate, administration, before))
    except VstreamError as failure:
        return ApplyResult(failure=failure)
    return ApplyResult()


async def _forget_note(gate: Gate, administration: Administration, before: BeforeMoves) -> None:
    # No update says what it is based on: little comes between reading and sending, and what is sent again is read again.
    streams, leader = administration.streams, await administration.checker.leader(gate.stream)
    current = await streams.read(gate.stream)
    if is_paused(current):
        return  # by another run since: what that is about to do would be undone
    if gate.kind is GateKind.REPLICAS_ARE_COMPLETE:
        await streams.update(with_noted_scaling(current, None))
    elif _is_done_moving(current, leader, before):
        await streams.update(without_noted_move(current))


def _is_done_moving(config: StreamConfig, leader: str | None, before: BeforeMoves) -> bool:
    """Whether a note of a move may go: an update of a stream that has not even begun to move leaves it without a leader."""
    moved_at = config.metadata_value(MOVED_KEY)
    if moved_at is None or not moved_at.isdecimal():
        return False
    led_before = before.leaders.get(config.name)
    has_moved = led_before is not None and leader not in {led_before, None}
    return has_moved or time.time() > int(moved_at) + MOVE_START_SECONDS
