"""One proxied connection between two servers: two sockets, and a lane in each direction."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from vstream.lab.links.proxy.lanes import Lane, OneWayLink
from vstream.lab.links.state import Cut, Direction, Front

_FIRST_SYN_SECONDS = 1.0
"""Seconds until TCP tries to connect again. It doubles each time."""
_CONNECT_TIMEOUT = 130.0
"""Seconds after which TCP gives up connecting."""
HOST = "127.0.0.1"
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER on with time 0: closing resets the connection."""


class ConnectionSide(asyncio.Protocol):
    """One of the two sockets. Bytes read go to *out*; until there is one, they are kept."""

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection
        self.transport: asyncio.Transport | None = None
        self.out: Lane | None = None
        self.other: ConnectionSide | None = None
        self.is_clogged = False
        """Whether the kernel takes no more bytes."""
        self.has_been_told = False
        """Whether it has got everything that the other has sent, and knows it."""
        self._has_finished = False
        self._early: list[bytes] = []
        """What was read before there was a lane for it: in Python 3.11.2 nothing stops a new transport from reading."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asyncio's."""
        self.transport = cast("asyncio.Transport", transport)
        self._connection.on_open(self)

    def data_received(self, data: bytes) -> None:
        """Asyncio's."""
        if self.out is None:
            self._early.append(data)
        else:
            self.out.feed(data)

    def join(self, out: Lane, other: ConnectionSide) -> None:
        """Send what was and will be read to *out*; *other* is the far socket."""
        self.out, self.other = out, other
        for data in self._early:
            out.feed(data)
        self._early.clear()
        if self._has_finished:
            out.close_sender()

    def eof_received(self) -> bool:
        """Called by asyncio. The other direction stays open."""
        self._finish()
        return True

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio gives it by position
        """Asyncio's."""
        self.transport = None
        self._finish()
        self._connection.on_close(self)

    def pause_writing(self) -> None:
        """Called by asyncio: the sender to this socket has to wait."""
        self.is_clogged = True
        if self.other is not None:
            self.other.throttle()

    def resume_writing(self) -> None:
        """Asyncio's."""
        self.is_clogged = False
        if self.other is not None:
            self.other.throttle()

    def write(self, data: bytes | None) -> None:
        """Write *data*; None means that the other side has closed."""
        if self.transport is None or self.transport.is_closing():
            return
        if data is not None:
            self.transport.write(data)
            return
        self.has_been_told = True
        if self.other is None or self.other.transport is None or self._has_finished:
            self.transport.close()
        else:
            self.transport.write_eof()

    def throttle(self) -> None:
        """Continue reading, or wait until there is room again."""
        if self.transport is None or self.transport.is_closing():
            return
        must_wait = (self.out is not None and self.out.is_full) or (self.other is not None and self.other.is_clogged)
        if must_wait:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def reset(self) -> None:
        """Close it so that its peer gets a reset."""
        if self.transport is not None:
            held = self.transport.get_extra_info("socket")
            if held is not None:
                held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()

    def _finish(self) -> None:
        if not self._has_finished:
            self._has_finished = True
            if self.out is not None:
                self.out.close_sender()


class ProxiedConnection:
    """
    A connection that a server has dialed at a front.

    *region_of* finds the region of a server by the port that it dials from. *links* has the link in each direction.
    *on_end* is called once.
    """

    def __init__(
        self,
        front: Front,
        *,
        region_of: Callable[[int, int], Awaitable[str | None]],
        links: Mapping[Direction, OneWayLink],
        on_end: Callable[[ProxiedConnection], None],
    ) -> None:
        self._front = front
        self._region_of = region_of
        self._links = links
        self._on_end = on_end
        self.pair: Direction | None = None
        """Who dialed whom, once that is known."""
        self.is_stranger = False
        """Whether it was dialed by something that is no server of this lab."""
        self._lanes: tuple[Lane, ...] = ()
        self._opening: asyncio.Task[None] | None = None
        self.dialer = ConnectionSide(self)
        self._dialed = ConnectionSide(self)

    def on_open(self, side: ConnectionSide) -> None:
        """The socket of *side* is connected."""
        if side is self.dialer:
            assert side.transport is not None
            side.transport.pause_reading()
            self._opening = asyncio.ensure_future(self._open())

    def on_close(self, side: ConnectionSide) -> None:
        """The socket of *side* is closed."""
        if side is self.dialer and self._dialed.transport is None and self._opening is not None:
            self._opening.cancel()
        peer = self._dialed if side is self.dialer else self.dialer
        if peer.out is not None:
            peer.out.close_receiver()
        if peer.has_been_told and peer.transport is not None:
            peer.transport.close()
        if self.dialer.transport is None and self._dialed.transport is None:
            self._on_end(self)

    def refresh(self) -> None:
        """The states of the links have changed."""
        if self._is_reset:
            self.reset()
        for lane in self._lanes:
            lane.refresh()

    def reset(self) -> None:
        """Reset both sockets."""
        if self._opening is not None:
            self._opening.cancel()
        self.dialer.reset()
        self._dialed.reset()

    @property
    def _is_reset(self) -> bool:
        return self.pair is not None and self._links[self.pair].state.cut is Cut.RESET

    async def _open(self) -> None:
        assert self.dialer.transport is not None
        peer = self.dialer.transport.get_extra_info("peername")
        region = await self._region_of(peer[1], self._front.port) if peer else None
        if region is None:
            self.is_stranger = True
            self.reset()
            return
        self.pair = (region, self._front.region)
        forth, back = self._links[self.pair], self._links[self._front.region, region]
        if self._is_reset:
            self.reset()
            return
        lane_there = Lane(forth, self._dialed.write, self.dialer.throttle)
        lane_back = Lane(back, self.dialer.write, self._dialed.throttle)
        self._lanes = (lane_there, lane_back)
        self._dialed.join(lane_back, self.dialer)
        self.dialer.join(lane_there, self._dialed)
        # Read on while it is not through: only so it is seen when the server gives up.
        self.dialer.throttle()
        if not await self._completes_handshake(forth, back):
            self.reset()
            return
        try:
            reached = await _dial(self._front)
            await asyncio.get_running_loop().create_connection(lambda: self._dialed, sock=reached)
        except OSError:
            self.reset()  # as if there were no proxy: nobody listens
            return
        self._opening = None
        if self.dialer.transport is None:
            self._dialed.reset()
            return
        lane_back.open()
        lane_there.open()

    async def _completes_handshake(self, forward: OneWayLink, back: OneWayLink) -> bool:
        """Wait as long as TCP's handshake takes; False if it gives up. It needs both directions."""
        waited, pause = 0.0, _FIRST_SYN_SECONDS
        while forward.is_dropping or back.is_dropping:
            if waited > _CONNECT_TIMEOUT:
                return False
            await asyncio.sleep(pause)
            waited += pause
            pause *= 2
        delay = (forward.state.delay or 0) + (back.state.delay or 0)
        if delay:
            await asyncio.sleep(delay)
        return True


async def _dial(front: Front) -> socket.socket:
    """Connect to the server behind *front*."""
    connected = socket.socket()
    connected.settimeout(0)
    try:
        await asyncio.get_running_loop().sock_connect(connected, (HOST, front.target))
    except BaseException:
        connected.close()
        raise
    return connected
