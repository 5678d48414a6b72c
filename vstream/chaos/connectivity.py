"""Who hears whom: messages from every region of a lab to every other, in the system account, where nothing stores them."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from vstream.errors import NotConnectedError, NotReachableError
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.lab.identity import OwnServers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Mapping

    from vstream.chaos.target_servers import TargetServers
    from vstream.jetstream.connection import Reply
    from vstream.jetstream.reconnecting import ReconnectingConnection
    from vstream.lab.links.state import Pair

_POLL = 0.005
_CONNECT = 10.0
_PIECES = 16
_LEAST_PAYLOAD = 2**8
_PAYLOAD = 2**18
"""Bytes of a message: servers take four times as many."""


class ConnectivityProbe:
    """One client in each region that serves. Made by `hearing`; *patience* is how many seconds a message may take."""

    def __init__(self, clients: Mapping[str, ReconnectingConnection], *, patience: float) -> None:
        self._clients = clients
        self._patience = patience
        self._subject = f"_vs_heard.{secrets.token_hex(8)}"
        self._round = 0
        self._arrived: dict[tuple[int, Pair], float] = {}

    @property
    def pairs(self) -> frozenset[Pair]:
        """Every way from one of these regions to another."""
        return frozenset((one, other) for one in self._clients for other in self._clients if one != other)

    async def listen(self) -> None:
        """Subscribe everywhere. It takes a moment until all servers know."""
        for region, client in self._clients.items():
            await client.subscribe(f"{self._subject}.*.*", partial(self._hear, region))

    async def _hear(self, region: str, _: Reply, subject: str) -> None:
        origin, number = subject.split(".")[-2:]
        self._arrived.setdefault((int(number), (origin, region)), time.monotonic())

    async def once(self, awaited: Collection[Pair]) -> Mapping[Pair, float]:
        """
        The ways that a message from each region takes now, with the seconds that it takes.

        Returns when all of *awaited* have arrived, else when patience is over.
        """
        self._round += 1
        number, began = self._round, time.monotonic()
        for region, client in self._clients.items():
            try:
                await client.publish(f"{self._subject}.{region}.{number}", b"")
            except NotConnectedError:
                continue
        while time.monotonic() - began < self._patience:
            if all((number, pair) in self._arrived for pair in awaited):
                break
            await asyncio.sleep(_POLL)
        return {pair: self._arrived[number, pair] - began for pair in self.pairs if (number, pair) in self._arrived}

    async def bulk(self, pair: Pair, size: int, *, within: float) -> float | None:
        """The seconds that *size* bytes take from the first region to the second; None if longer than *within*."""
        self._round += 1
        # In pieces, each by itself: the kernel lets 64 KiB pass a limit at once if they come as one.
        piece = min(_PAYLOAD, max(_LEAST_PAYLOAD, size // _PIECES))
        first, count = self._round, -(-size // piece)
        self._round += count
        began, left = time.monotonic(), size
        for number in range(first, first + count):
            part = min(left, piece)
            await self._clients[pair[0]].publish(f"{self._subject}.{pair[0]}.{number}", b" " * part)
            left -= part
            await asyncio.sleep(_POLL)
        while (first + count - 1, pair) not in self._arrived:
            if time.monotonic() - began > within:
                return None
            await asyncio.sleep(_POLL)
        return self._arrived[first + count - 1, pair] - began

    async def until(self, awaited: Collection[Pair], *, within: float) -> Collection[Pair]:
        """Return once all of *awaited* are heard in one round: nothing. Else those that were not heard *within* seconds."""
        deadline = time.monotonic() + within
        while missing := set(awaited) - set(await self.once(awaited)):
            if time.monotonic() > deadline:
                break
        return missing


@asynccontextmanager
async def probe_connectivity(site: TargetServers, *, patience: float) -> AsyncIterator[ConnectivityProbe]:
    """Clients of the system account in every region of the lab that serves."""
    clients: dict[str, ReconnectingConnection] = {}
    try:
        for region in site.regions:
            endpoint = site.system_in(region)
            if not endpoint.urls:
                continue
            try:
                clients[region] = await open_reconnecting(
                    endpoint, region, name="vstream", knows=OwnServers(site.directory.log).knows, within=_CONNECT
                )
            except NotReachableError:
                continue  # as a region that does not serve
        found = ConnectivityProbe(clients, patience=patience)
        await found.listen()
        yield found
    finally:
        for client in clients.values():
            await client.close()
