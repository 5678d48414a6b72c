"""What a connection carries from its first byte on, whatever the version of Python does before it is through."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import pytest

from vstream.lab.links.proxy.connections import ProxiedConnection
from vstream.lab.links.proxy.lanes import OneWayLink
from vstream.lab.links.state import Front

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOST = "127.0.0.1"


class EagerTransport:
    """A transport that reads on when it is told not to, as asyncio's does in `connection_made` of Python 3.11.2."""

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def pause_reading(self) -> None:
        """Go on reading."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class EagerProtocol(asyncio.Protocol):
    """Hands everything on to *inner*, which gets an `EagerTransport`. Sets *has_read_all* at the end of what it reads."""

    def __init__(self, inner: asyncio.Protocol, has_read_all: asyncio.Event) -> None:
        self._inner = inner
        self._has_read_all = has_read_all

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(cast("asyncio.BaseTransport", EagerTransport(transport)))

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        self._has_read_all.set()
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)


@asynccontextmanager
async def front_of(server: asyncio.Server, *, is_eager: bool) -> AsyncIterator[int]:
    """The port of a front of *server*. If *is_eager*, a connection goes through once all that its dialer says was read."""
    target = server.sockets[0].getsockname()[1]
    is_known = asyncio.Event()
    if not is_eager:
        is_known.set()

    async def region_of(_port: int, _front: int) -> str:
        await is_known.wait()
        return "west"

    def accept() -> asyncio.Protocol:
        connection = ProxiedConnection(
            Front(port=0, target=target, region="east"),
            region_of=region_of,
            links=defaultdict(OneWayLink),
            on_end=lambda _: None,
        )
        return EagerProtocol(connection.dialer, is_known) if is_eager else connection.dialer

    fronts = await asyncio.get_running_loop().create_server(accept, HOST, 0)
    try:
        yield fronts.sockets[0].getsockname()[1]
    finally:
        fronts.close()


@pytest.mark.parametrize("is_eager", [True, False])
async def test_what_a_server_says_before_it_is_through_arrives(is_eager: bool) -> None:
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await arrived.put(await reader.read())
        writer.write(b"+OK")
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    async with asyncio.timeout(30), server, front_of(server, is_eager=is_eager) as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"CONNECT {}\r\n")
        await writer.drain()
        writer.write(b"PING\r\n")
        # A server that has said everything before anybody listens is heard all the same.
        writer.write_eof()
        assert await arrived.get() == b"CONNECT {}\r\nPING\r\n"
        assert await reader.read() == b"+OK"
        writer.close()
