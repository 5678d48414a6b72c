"""Repeat requests until the answer is right, for as long as copies may lag behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from vstream.errors import NoRespondersError
from vstream.jetstream.answers import parse_sequence
from vstream.jetstream.connection import Reply
from vstream.probe.target import ProbeTarget
from vstream.value_class import value_class

REPEAT_TIMEOUT = 3.0
"""Seconds for all repeated requests in one region. A replica that lags for longer counts as wrong."""
_FIRST_PAUSE_SECONDS = 0.02
_PAUSE_FACTOR = 1.5


@value_class
class Settled:
    """The last answers, their time in milliseconds, and what is wrong with them, if anything."""

    answers: tuple[Reply, ...]
    elapsed_ms: float
    problem: str | None


async def repeat_looks(until: float, first_pause: float, longest_pause: float) -> AsyncIterator[None]:
    """Yield at once, then after pauses that grow to *longest_pause* seconds, and a last time at *until* (monotonic)."""
    pause = first_pause
    yield
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(pause, left))
        yield
        pause = min(pause * _PAUSE_FACTOR, longest_pause)


class Budget:
    """The time left for repeated requests. It begins when the object is made."""

    def __init__(self) -> None:
        self._until = time.monotonic() + REPEAT_TIMEOUT

    async def settle(
        self,
        target: ProbeTarget,
        ask: Callable[[float], Awaitable[tuple[Reply, ...]]],
        judge: Callable[[Sequence[Reply]], str | None],
    ) -> Settled:
        """
        Ask until *judge* has no complaint, or time is up; at least once. Raises what `ProbeTarget.measure` does.

        Nobody answers a new consumer's name at first in other clusters, until gateways have heard of it.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            is_last = time.monotonic() + pause > self._until
            try:
                answers, elapsed_ms = await target.measure(ask)
            except NoRespondersError:
                if is_last:
                    raise
            else:
                problem = judge(answers)
                if problem is None or is_last:
                    return Settled(answers=answers, elapsed_ms=elapsed_ms, problem=problem)
            await asyncio.sleep(pause)
            pause *= 2


def describe_answer(answer: Reply) -> str:
    """*answer*, described for use in a sentence."""
    if answer.status is not None:
        return f"{answer.status} {answer.headers.get('Description', '')}".rstrip()
    seq = parse_stored_sequence(answer)
    return "something that is no stored message" if seq is None else f"sequence {seq}"


def parse_stored_sequence(answer: Reply) -> int | None:
    """The sequence of the stored message in a Direct Get answer; None if it holds no message."""
    return parse_sequence(answer.headers.get("Nats-Sequence", ""))
