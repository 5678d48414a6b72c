"""
When bytes sent from one region arrive in another, and what happens to them while the link is cut.

A proxy sees streams, not packets. What networks do to packets is translated to what TCP makes of it: bytes that are
late, but never missing or out of order.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator

from vstream.lab.links.state import IDEAL, Cut, LinkState

RTO_SECONDS = 0.2
"""Seconds after a round trip until TCP sends lost data again: the kernels' minimum. It doubles each time."""
_MAX_RTO_SECONDS = 120.0
_PACKET_BYTES = 1448
"""Bytes of a packet on an Ethernet."""
_WINDOW_BYTES = 4 * 2**20
"""Bytes that a connection can have in flight: about what kernels allow."""
_QUEUE_SECONDS = 0.2
"""How many seconds of a limited link's rate one connection may queue."""
_SLICE_SECONDS = 0.005
"""Seconds of a limited link's rate that pass at once; several connections take turns of this length."""


class OneWayLink:
    """A link in one direction: its state, and until when it is busy."""

    def __init__(self) -> None:
        self.state: LinkState = IDEAL
        self.rto = RTO_SECONDS
        self._busy_until = 0.0

    @property
    def is_dropping(self) -> bool:
        """Whether nothing arrives."""
        return self.state.cut is Cut.DROP

    @property
    def window(self) -> int:
        """Bytes of one connection that may be in flight."""
        if not self.state.rate:
            return _WINDOW_BYTES
        return min(_WINDOW_BYTES, max(2**16, int(self.state.rate / 8 * (_QUEUE_SECONDS + 2 * (self.state.delay or 0)))))

    def slices(self, data: bytes) -> Iterator[bytes]:
        """*data* in pieces that each arrive as a whole."""
        if not self.state.rate:
            yield data
            return
        size = max(_PACKET_BYTES, int(self.state.rate / 8 * _SLICE_SECONDS))
        for start in range(0, len(data), size):
            yield data[start : start + size]

    def schedule_arrival(self, now: float, size: int) -> float:
        """When *size* bytes sent at *now* arrive."""
        state = self.state
        at = now
        if state.rate:
            at = self._busy_until = max(now, self._busy_until) + size * 8 / state.rate
        at += (state.delay or 0) + random.random() * (state.jitter or 0)  # noqa: S311 - a network, not a secret
        if state.loss:
            at += self._draw_loss_delay(state.loss, -(-size // _PACKET_BYTES))
        return at

    def _draw_loss_delay(self, loss: float, packets: int) -> float:
        """Seconds until the last of *packets* was sent often enough to arrive, each time being lost with chance *loss*."""
        total, pause = 0.0, self.rto
        chance = 1 - (1 - loss) ** packets
        while random.random() < chance:  # noqa: S311
            total += pause
            pause = min(2 * pause, _MAX_RTO_SECONDS)
            chance = loss
        return total


class Lane:
    """One direction of one connection. *write* gets bytes when they arrive, None when the sender has closed."""

    def __init__(self, link: OneWayLink, write: Callable[[bytes | None], None], throttle: Callable[[], None]) -> None:
        self.link = link
        self._write = write
        self._throttle = throttle
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[float, bytes | None]] = deque()
        self._queued = 0
        self._last = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._held_since: float | None = None
        self._is_open = False
        self._is_dead = False

    @property
    def is_full(self) -> bool:
        """Whether its sender has to wait."""
        return self._queued > self.link.window

    def open(self) -> None:
        """Bytes can be written from now on; earlier ones have waited."""
        self._is_open = True
        self._schedule_flush()

    def feed(self, data: bytes) -> None:
        """The sender has sent *data*."""
        if self._is_dead:
            return
        if not self._queue and self._is_open and self.link.state.is_ideal:
            self._write(data)
            return
        now = self._loop.time()
        if self.link.is_dropping:
            self._append(now, data)
            self._held_since = self._held_since or now
        else:
            for piece in self.link.slices(data):
                self._append(self.link.schedule_arrival(now, len(piece)), piece)
            self._schedule_flush()
        if self.is_full:
            self._throttle()

    def close_sender(self) -> None:
        """The sender has closed: the close takes its time to arrive, too."""
        if self._is_dead:
            return
        now = self._loop.time()
        self._append(now + (self.link.state.delay or 0), None)
        if self.link.is_dropping:
            self._held_since = self._held_since or now
        self._schedule_flush()

    def close_receiver(self) -> None:
        """The receiver has gone."""
        self._is_dead = True
        self._queue.clear()
        self._queued = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def refresh(self) -> None:
        """The state of the link has changed."""
        if self._is_dead or not self._queue:
            self._held_since = None
            return
        now = self._loop.time()
        if self.link.is_dropping:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._held_since = self._held_since or now
        elif self._held_since is not None:
            again = find_next_resend(self._held_since, now, self.link.rto)
            self._queue = deque((max(due, again), data) for due, data in self._queue)
            self._last = max(self._last, again)
            self._held_since = None
            self._schedule_flush()

    def _append(self, due: float, data: bytes | None) -> None:
        self._last = max(self._last, due)  # TCP keeps the order: nothing overtakes
        self._queue.append((self._last, data))
        self._queued += len(data or b"")

    def _schedule_flush(self) -> None:
        if self._timer is None and self._queue and self._is_open and not self.link.is_dropping:
            self._timer = self._loop.call_at(self._queue[0][0], self._flush)

    def _flush(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._queue and self._queue[0][0] <= now:
            _, data = self._queue.popleft()
            self._queued -= len(data or b"")
            self._write(data)
        self._schedule_flush()
        self._throttle()


def find_next_resend(first: float, now: float, rto: float) -> float:
    """The next time, at or after *now*, at which TCP resends what it first sent at *first*. The pause doubles."""
    at, pause = first, rto
    while at < now:
        at += pause
        pause = min(2 * pause, _MAX_RTO_SECONDS)
    return at
