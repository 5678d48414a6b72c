"""Publish load with an identity in each message, and which identities a stream holds: what was lost, what is doubled."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import nats
from nats.aio.client import Client
from nats.errors import Error

from tests.support.paths import CERTIFICATES
from vstream.jetstream.client import TidyClient
from vstream.jetstream.endpoints import make_connection_options
from vstream.jetstream.message_reader import read_messages
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.lab.endpoints import list_endpoints
from vstream.topology.model import Endpoint


async def _quiet(_: Exception) -> None:
    """The library logs tracebacks where nobody listens."""


async def publish_over_tls(address: str, password: str, subject: str) -> str:
    """The stream that takes a publish of user `app` at a server whose certificate is one of those in tests/fixtures."""
    tls = ssl.create_default_context(cafile=CERTIFICATES / "ca.pem")
    client = await nats.connect(f"tls://{address}", tls=tls, user="app", password=password)
    try:
        return (await client.jetstream(timeout=30).publish(subject, b"")).stream
    finally:
        await client.close()


@dataclass
class Load:
    """Publishers, one in each region, each with its own sequence of identities."""

    rate: float
    tag: str = "a"
    """Part of each identity, so that two loads in one region have none in common."""
    prefix: str = "foo"
    has_ids: bool = False
    """Whether each message carries its identity as `Nats-Msg-Id`, so that servers store it once."""
    acked: dict[str, set[str]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    """Publishes that were certainly not stored: nobody listened."""
    unknown: set[str] = field(default_factory=set)
    gap: dict[str, float] = field(default_factory=dict)
    """The longest time between two acknowledgements, in seconds, in each region."""
    seqs: dict[str, int] = field(default_factory=dict)
    """The sequence of each acknowledged message in the stream that took it."""
    before: set[str] = field(default_factory=set)
    """What a test notes as acknowledged before something happens."""
    patience: float = 60.0
    """How long a publish waits for its answer, in seconds."""
    _last: dict[str, float] = field(default_factory=dict)

    async def publish(self, client: Client, region: str) -> None:
        self.acked.setdefault(region, set())
        self.refused.setdefault(region, 0)
        due, number = time.monotonic(), 0
        pending: set[asyncio.Task[None]] = set()
        try:
            while True:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                # What a busy machine has held up does not all come at once.
                due = max(due, time.monotonic() - 1) + 1 / self.rate
                task = asyncio.create_task(self._one(client, region, f"{region}-{self.tag}{number}"))
                pending.add(task)
                task.add_done_callback(pending.discard)
                number += 1
        finally:
            await asyncio.gather(*pending)

    async def _one(self, client: Client, region: str, identity: str) -> None:
        try:
            headers = {"Nats-Msg-Id": identity} if self.has_ids else None
            answer = await client.request(
                f"{self.prefix}.{identity}", identity.encode(), timeout=self.patience, headers=headers
            )
            self.seqs[identity] = int(json.loads(answer.data)["seq"])
        except nats.errors.NoRespondersError:
            self.refused[region] += 1
        except (Error, OSError, TimeoutError, KeyError):
            self.unknown.add(identity)
        else:
            self.acked[region].add(identity)
            now = time.monotonic()
            self.gap[region] = max(self.gap.get(region, 0.0), now - self._last.get(region, now))
            self._last[region] = now

    async def wait_for_acknowledged(self, number: int, within: float = 120.0) -> None:
        """Return once every region that publishes has *number* more acknowledged than now."""
        deadline = time.monotonic() + within
        expected: dict[str, int] = {}
        while not expected or any(len(self.acked[region]) < expected[region] for region in expected):
            for region, acked in self.acked.items():
                expected.setdefault(region, len(acked) + number)
            assert time.monotonic() < deadline, {region: len(acked) for region, acked in self.acked.items()}
            await asyncio.sleep(0.02)

    @property
    def everything(self) -> set[str]:
        return set().union(*self.acked.values())

    def availability(self, regions: Collection[str]) -> float:
        """The share of the publishes in *regions* that were acknowledged."""
        acked = sum(len(self.acked[region]) for region in regions)
        failed = sum(self.refused[region] for region in regions)
        failed += sum(identity.rpartition("-")[0] in regions for identity in self.unknown)
        return acked / (acked + failed) if acked + failed else 0.0


@asynccontextmanager
async def under_load(load: Load, endpoints: Mapping[str, Endpoint]) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """*load* in every region of *endpoints*, until the end of the block. The tasks are by region."""
    # The library's own client forgets sockets where a server dies while it connects.
    clients = {region: TidyClient(endpoint) for region, endpoint in endpoints.items()}
    for region, client in clients.items():
        endpoint = endpoints[region]
        options = make_connection_options(endpoint, region)
        await client.connect(error_cb=_quiet, **options, connect_timeout=30)
    tasks = {region: asyncio.create_task(load.publish(client, region)) for region, client in clients.items()}
    try:
        yield tasks
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        # A server that has gone takes nothing any more, not even a farewell.
        await asyncio.gather(*(client.close() for client in clients.values()), return_exceptions=True)


async def identities(site: str | Mapping[str, Endpoint], region: str, stream: str) -> Counter[str]:
    """How often *stream*, asked in *region* of *site*, a lab's name or endpoints by region, holds each identity."""
    endpoints = list_endpoints(site) if isinstance(site, str) else site
    connection = await open_reconnecting(
        endpoints[region], region, name="test", accepts_server=lambda _name, _id: True, within=60
    )
    try:
        return Counter([message.data.decode() async for message in read_messages(connection, stream, patience=60)])
    finally:
        await connection.close()


async def compare(
    site: str | Mapping[str, Endpoint], region: str, stream: str, load: Load, within: float = 120.0
) -> tuple[list[str], list[str], list[str]]:
    """
    What *stream*, asked in *region* of *site*, as in `identities`, lacks of *load*, what it holds more than once, and what is not of it.

    Waits until nothing is lacking.
    """
    deadline = time.monotonic() + within
    while True:
        held = await identities(site, region, stream)
        missing = load.everything - held.keys()
        if not missing or time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    doubled = [identity for identity, count in held.items() if count > 1]
    return sorted(missing), doubled, sorted(held.keys() - load.everything - load.unknown)


async def check_contents(
    site: str | Mapping[str, Endpoint], streams: Mapping[str, str], load: Load, within: float = 120.0
) -> None:
    """Every stream of *streams*, by region, holds everything that *load* was told is stored, once, and nothing else."""
    for region, stream in streams.items():
        missing, doubled, strange = await compare(site, region, stream, load, within)
        assert (len(missing), len(doubled)) == (0, 0), f"{stream}: lost {missing[:5]}, doubled {doubled[:5]}"
        assert not strange, f"{stream}: {strange[:5]}"
