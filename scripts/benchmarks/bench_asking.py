"""
What asking costs: exactly the requests that `vstream status` makes, by a bare client that throws the answers away.

A look at the servers is recorded once: the URLs of monitoring ports, and the subjects and payloads of requests. The bare
client sends them again, all regions side by side: in each region one request after another, as a script would, or all
at once, which is the least that any client can wait. Nothing is decoded; connecting to NATS is not measured.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import nats

from vstream.health.live.collect import collect_snapshot
from vstream.jetstream import monitoring
from vstream.jetstream.connection import Connection

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from nats.aio.client import Client

    from vstream.topology.model import Endpoint, Topology

_PATIENCE = 120.0
"""Seconds for what is recorded: a busy server must not make a request fail, which then would not be asked again."""
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Request:
    """One request in a region: a whole URL, or a subject with a payload."""

    where: str
    payload: bytes = b""

    @property
    def is_http(self) -> bool:
        return self.where.startswith("http://")


async def record(topology: Topology, endpoints: Mapping[str, Endpoint]) -> dict[str, list[Request]]:
    """The requests of one look at the servers, by region, in its order."""
    requests: dict[str, list[Request]] = {region: [] for region in endpoints}
    region_of = {url: region for region, endpoint in endpoints.items() for url in endpoint.monitor}
    fetch, request = monitoring._fetch, Connection.request  # noqa: SLF001 - what is sent is known here alone

    async def record_fetch(url_base: str, path: str, *limits: Any) -> tuple[int, bytes]:
        requests[region_of[url_base]].append(Request(url_base + path))
        return await fetch(url_base, path, *limits)

    async def record_request(self: Connection, subject: str, payload: bytes = b"", **options: Any) -> Any:
        requests[self.region].append(Request(subject, payload))
        return await request(self, subject, payload, **options)

    with _replace(monitoring, "_fetch", record_fetch), _replace(Connection, "request", record_request):
        await collect_snapshot(topology, endpoints, timeout=_PATIENCE)
    return requests


@contextmanager
def _replace(owner: object, name: str, value: object) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


async def ask(endpoints: Mapping[str, Endpoint], requests: Mapping[str, list[Request]], *, is_at_once: bool) -> float:
    """Seconds until every region has answered all of its *requests*."""
    clients = {}
    for region, endpoint in endpoints.items():
        clients[region] = await nats.connect(
            list(endpoint.urls), user=endpoint.user, password=endpoint.password, inbox_prefix=endpoint.inbox
        )

    async def ask_region(region: str) -> None:
        if is_at_once:
            await asyncio.gather(*(_ask(clients[region], request) for request in requests[region]))
            return
        for request in requests[region]:
            await _ask(clients[region], request)

    start = time.perf_counter()
    await asyncio.gather(*map(ask_region, endpoints))
    seconds = time.perf_counter() - start
    for client in clients.values():
        await client.close()
    return seconds


async def _ask(client: Client, request: Request) -> None:
    if not request.is_http:
        await client.request(request.where, request.payload, timeout=_PATIENCE)
        return
    parts = urlsplit(request.where)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    target = f"{parts.path}?{parts.query}" if parts.query else parts.path
    writer.write(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
    first = await reader.read(_CHUNK)
    assert first.startswith(b"HTTP/1.0 200"), first[:100]
    while await reader.read(_CHUNK):
        pass
    writer.close()
