"""Whether links are as slow, uneven, narrow and lossy as they shall be: measured by messages that go over them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from vstream.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from vstream.chaos.connectivity import ConnectivityProbe
    from vstream.lab.links.state import LinkState, Pair

ROUNDS = 5
_NEARLY = 0.9
_UNEVEN_ROUNDS = 16
_UNEVEN = 0.25
"""Part of the jitter that the times of some messages must be apart: of 16 they are, but for one time in ten million."""
_BULK = 0.25
"""Seconds of a link's rate that are sent to measure it."""
_LEAST, _MOST = 2**12, 2**22
"""Bytes that are sent at least, and at most: a link that takes more in a moment is not told from one without a rate."""
_HALF = 0.5
"""Part of the time that a rate allows for, which bytes must take at least: queues let the first of them pass."""
_LATE = 0.15
"""Seconds. What was lost is sent again after 0.2 s or more."""
_LOSSY = 10.0
"""Seconds to wait for the first loss."""
_CERTAIN = 0.001
"""The chance that so many messages all arrive in time although the link is lossy: below it the fault does not bite."""


async def measure_latency(
    ears: ConnectivityProbe, pairs: Collection[Pair], rounds: int = ROUNDS
) -> Mapping[Pair, Sequence[float]]:
    """How many seconds a few messages took over each of *pairs*: those that arrived."""
    found = [await ears.once(pairs) for _ in range(rounds)]
    return {pair: tuple(one[pair] for one in found if pair in one) for pair in pairs}


async def verify_shaping(
    ears: ConnectivityProbe,
    asked: Mapping[Pair, LinkState],
    now: Mapping[Pair, LinkState],
    before: Mapping[Pair, Sequence[float]],
) -> str:
    """
    What shows that the links are as *asked*. *now* is how they are in all; *before* is how long messages took.

    Raises LabError for one that is not.
    """
    rounds = _UNEVEN_ROUNDS if any(state.jitter for state in asked.values()) else ROUNDS
    after = await measure_latency(ears, asked, rounds)
    said = []
    for pair, state in sorted(asked.items()):
        way = f"over {pair[0]} → {pair[1]}"
        said.append(
            f"a message takes {_delayed(after[pair], now[pair], way)} {way}, before {_ms(min(before[pair], default=0.0))}"
        )
        if state.jitter:
            said.append(f"times are up to {_ms(_uneven(after[pair], state.jitter, way))} apart {way}")
        if state.rate:
            said.append(await _narrow(ears, pair, state.rate, way))
    said += await _lossy(ears, {pair: state.loss for pair, state in asked.items() if state.loss}, after)
    return "; ".join(said)


def _delayed(after: Sequence[float], state: LinkState, way: str) -> str:
    if not after and state.loss:
        return "very long"  # everything on a connection waits for what was lost before it
    delay = state.delay or 0.0
    if not after or min(after) < _NEARLY * delay:
        took = _ms(min(after)) if after else "for ever"
        raise LabError(f"a message takes {took} {way}, and not {delay * 1000:g} ms")
    return _ms(min(after))


def _uneven(after: Sequence[float], jitter: float, way: str) -> float:
    spread = max(after, default=jitter) - min(after, default=0.0)
    if spread < _UNEVEN * jitter:
        raise LabError(
            f"all messages take the same {way}, within {_ms(spread)}, and not up to {jitter * 1000:g} ms more"
        )
    return spread


async def _narrow(ears: ConnectivityProbe, pair: Pair, rate: int, way: str) -> str:
    size = min(_MOST, max(_LEAST, int(rate / 8 * _BULK)))
    least = size * 8 / rate
    took = await ears.bulk(pair, size, within=10 * least + 10)
    if took is not None and took < _HALF * least:
        raise LabError(f"{size} bytes take {_ms(took)} {way}, and not {_ms(least)}")
    return f"{size} bytes take {'very long' if took is None else _ms(took)} {way}"


async def _lossy(
    ears: ConnectivityProbe, losses: Mapping[Pair, float], after: Mapping[Pair, Sequence[float]]
) -> Sequence[str]:
    """What shows that links lose packets: single messages, one after the other, of which some come late."""
    late: dict[Pair, int] = {}
    sent, deadline = 0, time.monotonic() + _LOSSY
    while losses.keys() - late.keys() and time.monotonic() < deadline:
        came = await ears.once(losses)
        sent += 1
        for pair in losses:
            if came.get(pair, _LOSSY) > min(after[pair], default=0.0) + _LATE:
                late.setdefault(pair, sent)
    said = []
    for pair, loss in sorted(losses.items()):
        way = f"over {pair[0]} → {pair[1]}"
        if pair in late:
            said.append(f"message {late[pair]} came late {way}")
        elif (1 - loss) ** sent < _CERTAIN:
            raise LabError(f"{sent} messages came in time {way}, which loses {loss:.3%} of all packets")
        else:
            said.append(f"{sent} messages came in time {way}: a loss of {loss:.3%} is too rare to be seen so soon")
    return said


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
