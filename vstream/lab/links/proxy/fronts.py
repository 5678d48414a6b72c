"""The proxy of a lab: every connection between regions goes through this process."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from vstream.lab.links import state
from vstream.lab.links.proxy.connections import HOST, ProxiedConnection
from vstream.lab.links.proxy.lanes import RTO_SECONDS, OneWayLink
from vstream.lab.links.proxy.owners import SocketOwners
from vstream.lab.links.state import Answer, Direction, Front, Links

BACKLOG_SIZE = 1024


def read_orders(place: Path) -> Links:
    """The orders for the lab at *place*. Raises OSError, ValueError, KeyError or TypeError if they are unreadable."""
    return state.decode((place / "links" / "links.json").read_text(encoding="utf-8"))


class Proxy:
    """All fronts of the lab at *place*, and what connects through them. Starts with the links that *links* says."""

    def __init__(self, place: Path, links: Links) -> None:
        self._place = place
        self.links = links
        self._owners = SocketOwners(str(place / "conf" / "servers"), links.servers)
        self._states: defaultdict[Direction, OneWayLink] = defaultdict(OneWayLink)
        self._open: set[ProxiedConnection] = set()
        self._refused = 0
        self._servers: dict[int, asyncio.Task[asyncio.Server]] = {}
        self._answered = 0
        self._failure: str | None = None

    async def start(self) -> None:
        """Follow the first orders, listen on every front, and answer. Raises OSError if a front's port is in use."""
        self._follow_orders(self.links)
        self._listen()
        await asyncio.gather(*self._servers.values())
        self._write_answer()

    def reread(self) -> None:
        """Follow the current orders, and answer."""
        try:
            links = read_orders(self._place)
        except (OSError, ValueError, KeyError, TypeError) as error:
            self._failure = f"{type(error).__name__}: {error}"
        else:
            self._follow_orders(links)
        self._write_answer()

    def connections(self) -> Mapping[Direction, int]:
        """Open connections, by the dialing and the dialed region."""
        return Counter(connection.pair for connection in self._open if connection.pair is not None)

    def _follow_orders(self, links: Links) -> None:
        before, self.links = self.links, links
        try:
            self._apply()
        except OSError as error:
            self._failure = error.strerror or str(error)
            self.links = before
        else:
            self._failure = None

    def _apply(self) -> None:
        """Give every link its state, tell the connections that use it, and listen at fronts that are new."""
        if self._servers:
            self._listen()
        self._owners.regions = self.links.servers
        for pair in self.links.pairs:
            self._states[pair].state = self.links.state(pair)
        for pair in self.links.pairs:
            forth, back = self._states[pair], self._states[pair[::-1]]
            forth.rto = RTO_SECONDS + (forth.state.delay or 0) + (back.state.delay or 0)
        for connection in tuple(self._open):
            connection.refresh()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for front in self.links.fronts:
            if front.port not in self._servers:
                # The port is bound at once, so that a failure is reported to whoever ordered it.
                serving = loop.create_server(self._make_acceptor(front), sock=_bind(front.port))
                self._servers[front.port] = loop.create_task(serving)

    def _write_answer(self) -> None:
        """Say what is in effect, and what connects."""
        self._answered += 1
        answer = Answer(
            pid=os.getpid(),
            generation=self.links.generation,
            answered=self._answered,
            connections=self.connections(),
            refused=self._refused,
            failure=self._failure,
        )
        with suppress(OSError):  # a lab that is being removed
            state.replace_file(self._place / "links" / "answer.json", state.encode_answer(answer))

    def _make_acceptor(self, front: Front) -> Callable[[], asyncio.Protocol]:
        def new_connection() -> asyncio.Protocol:
            connection = ProxiedConnection(
                front, region_of=self._owners.region_of, links=self._states, on_end=self._forget
            )
            self._open.add(connection)
            return connection.dialer

        return new_connection

    def _forget(self, connection: ProxiedConnection) -> None:
        self._open.discard(connection)
        self._refused += connection.is_stranger


def _bind(port: int) -> socket.socket:
    """A socket that listens on *port*. Raises OSError if it is in use."""
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.settimeout(0)
        listener.bind((HOST, port))
        listener.listen(BACKLOG_SIZE)
    except OSError:
        listener.close()
        raise
    return listener
