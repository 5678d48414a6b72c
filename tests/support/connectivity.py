"""Who hears whom: messages of plain NATS from every region to every region of a lab."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import nats
import psutil
from nats.aio.client import Client
from nats.aio.msg import Msg

from vstream.lab import ports
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.lab.links.state import Direction
from vstream.lab.server import NatsServer
from vstream.lab.state import lab_directory

_ROUND = 0.5


class Ears:
    """A client in each region that hears everything and answers it."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients
        self._round = 0
        self._heard: defaultdict[int, set[Direction]] = defaultdict(set)

    def everybody(self) -> set[Direction]:
        return {(client, reader) for client in self._clients for reader in self._clients}

    async def listen(self) -> None:
        for region, client in self._clients.items():

            async def hear(message: Msg, region: str = region) -> None:
                _, number, origin = message.subject.split(".")
                self._heard[int(number)].add((origin, region))

            async def reply(message: Msg) -> None:
                await message.respond(b"")

            await client.subscribe("heard.*.*", cb=hear)
            await client.subscribe(f"echo.{region}", cb=reply)
            await client.flush()

    async def require(
        self, expected: Collection[Direction], within: float = 60.0, *, perhaps: Collection[Direction] = ()
    ) -> None:
        """
        Return once what is published in one region is heard in another exactly as *expected*, twice in a row.

        Fails at once if somebody hears what it should not, also what was published before others could hear.
        Of those in *perhaps*, some or all may be heard.
        """
        allowed = {*expected, *perhaps}
        first = self._round + 1
        deadline = time.monotonic() + within
        good = 0
        while good < 2:
            self._round += 1
            for region, client in self._clients.items():
                await client.publish(f"heard.{self._round}.{region}", b"")
            pause = time.monotonic() + _ROUND
            while not self._heard[self._round] >= set(expected) and time.monotonic() < pause:
                await asyncio.sleep(0.02)
            good = good + 1 if self._heard[self._round] >= set(expected) else 0
            for number in range(first, self._round + 1):
                assert self._heard[number] <= allowed, sorted(self._heard[number] - allowed)
            assert time.monotonic() < deadline, sorted(set(expected) - self._heard[self._round])

    async def round_trip(self, one: str, other: str) -> float:
        """Seconds of the quickest of a few requests from *one* to *other*."""
        return min(await self.round_trips(one, other, 5))

    async def until_quicker(self, one: str, other: str, seconds: float, *, within: float = 60.0) -> None:
        """Return once a round trip has taken less than *seconds*: a busy machine may need a few."""
        deadline = time.monotonic() + within
        while (took := await self.round_trip(one, other)) >= seconds:
            assert time.monotonic() < deadline, took

    async def round_trips(self, one: str, other: str, count: int, *, size: int = 0) -> list[float]:
        """Seconds of *count* requests of *size* bytes from *one* to *other*, one after the other."""
        took = []
        for _ in range(count):
            begun = time.monotonic()
            await self._clients[one].request(f"echo.{other}", b" " * size, timeout=60)
            took.append(time.monotonic() - begun)
        return took


@asynccontextmanager
async def ears(name: str) -> AsyncIterator[Ears]:
    """Clients in every region of lab *name*."""

    async def silent(_: Exception) -> None:
        pass

    clients = {
        region: await nats.connect(list(endpoint.urls), error_cb=silent, connect_timeout=30)
        for region, endpoint in list_endpoints(name).items()
    }
    try:
        listening = Ears(clients)
        await listening.listen()
        yield listening
    finally:
        await asyncio.gather(*(client.close() for client in clients.values()))


def direct(name: str) -> list[tuple[str, str]]:
    """The servers of different regions of lab *name* that are connected without a proxy in between."""
    addresses = list_addresses(name)
    owner = {port: address for address in addresses for port in ports.server_ports(address)}
    result = []
    for address in addresses:
        process = NatsServer(lab_directory(name), address.server.name).process()
        assert process is not None
        for net_connection in process.net_connections(kind="tcp"):
            peer = (
                owner.get(net_connection.raddr.port)
                if net_connection.raddr and net_connection.status == psutil.CONN_ESTABLISHED
                else None
            )
            if peer is not None and peer.region != address.region:
                result.append((address.server.name, peer.server.name))
    return result
