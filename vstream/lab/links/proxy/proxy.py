"""Links that a proxy makes: every connection between regions goes through this process."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from vstream.lab.links.proxy.connections import Connection
from vstream.lab.links.proxy.lanes import RTO, Link
from vstream.lab.links.proxy.owners import SocketOwners
from vstream.lab.links.proxy.program import Program

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from vstream.lab.links.state import Front, Links, Pair

HOST = "127.0.0.1"
BACKLOG = 1024


class Proxy(Program):
    """All fronts of a lab, and what connects through them."""

    def __init__(self, place: Path, links: Links) -> None:
        super().__init__(place, links)
        self._owners = SocketOwners(str(place / "conf" / "servers"), links.servers)
        self._states: defaultdict[Pair, Link] = defaultdict(Link)
        self._open: set[Connection] = set()
        self._refused = 0
        self._servers: dict[int, asyncio.Task[asyncio.Server]] = {}

    async def listen(self) -> None:
        """Listen at every front. Raises OSError if one is taken."""
        self._serve()
        await asyncio.gather(*self._servers.values())

    def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        for front in self.links.fronts:
            if front.port not in self._servers:
                # The port is taken at once, so that failing is the failure of whoever asked for it.
                serving = loop.create_server(self._accepting(front), sock=_listening(front.port))
                self._servers[front.port] = loop.create_task(serving)

    def apply(self) -> None:
        """Give every link its state, tell it to what goes over it, and listen at fronts that are new."""
        if self._servers:
            self._serve()
        self._owners.regions = self.links.servers
        for pair in self.links.pairs:
            self._states[pair].state = self.links.state(pair)
        for one, other in self.links.pairs:
            there, back = self._states[one, other], self._states[other, one]
            there.rto = RTO + (there.state.delay or 0) + (back.state.delay or 0)
        for connection in tuple(self._open):
            connection.refresh()

    def connections(self) -> Mapping[Pair, int]:
        """Open connections, by who dialed whom."""
        return Counter(one.pair for one in self._open if one.pair is not None)

    @property
    def refused(self) -> int:
        """Connections of processes that are no servers of this lab."""
        return self._refused

    def _accepting(self, front: Front) -> Callable[[], asyncio.Protocol]:
        def accept() -> asyncio.Protocol:
            connection = Connection(
                front,
                region_of=self._owners.region_of,
                link_of=self._states.__getitem__,
                dial=_dial,
                on_end=self._ended,
            )
            self._open.add(connection)
            return connection.dialer

        return accept

    def _ended(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._refused += connection.is_stranger


def _listening(port: int) -> socket.socket:
    """Raises OSError if *port* is taken."""
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)  # noqa: FBT003 - its only argument
        listening.bind((HOST, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening


async def _dial(front: Front) -> socket.socket:
    reached = socket.socket()
    reached.setblocking(False)  # noqa: FBT003 - its only argument
    try:
        await asyncio.get_running_loop().sock_connect(reached, (HOST, front.target))
    except BaseException:
        reached.close()
        raise
    return reached
