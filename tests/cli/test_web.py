"""The pages of `vstream export`: what is served to whom, and a feed that no slow or forgotten listener holds up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from vstream.cli import web
from vstream.cli.web import Feed, Site, WebPage, format_event


@asynccontextmanager
async def serving(site: Site) -> AsyncIterator[int]:
    async with web.serve("127.0.0.1", 0, site) as server:
        yield server.sockets[0].getsockname()[1]


async def ask(port: int, request: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request.encode())
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    await writer.wait_closed()
    return answer.decode()


async def test_a_page_is_read_and_nothing_else_can_be_done() -> None:
    async with serving(Site({"/": WebPage("text/html", lambda: "<p>é")})) as port:
        got = await ask(port, "GET /?x=1 HTTP/1.1\r\n\r\n")
        assert got.startswith("HTTP/1.1 200 OK\r\n")
        assert got.endswith("Content-Length: 5\r\n\r\n<p>é")
        assert "default-src 'none'; script-src 'self'" in got
        assert (await ask(port, "HEAD / HTTP/1.1\r\n\r\n")).endswith("Content-Length: 5\r\n\r\n")
        assert "405 Method Not Allowed" in await ask(port, "POST / HTTP/1.1\r\n\r\n")
        assert "404 Not Found" in await ask(port, "GET /etc HTTP/1.1\r\n\r\n")
        assert await ask(port, "hello\r\n\r\n") == ""


async def test_a_feed_greets_and_then_tells_what_is_new() -> None:
    feed = Feed(lambda: format_event("history", "[]"))
    async with serving(Site({}, {"/events": feed})) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /events HTTP/1.1\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
        assert b"text/event-stream" in head
        assert await asyncio.wait_for(reader.readuntil(b"\n\n"), 60) == b"event: history\ndata: []\n\n"
        feed.publish("old")
        feed.publish(format_event("status", "{}"))
        assert await asyncio.wait_for(reader.readuntil(b"\n\n"), 60) == b"event: status\ndata: {}\n\n"
        writer.close()
        await writer.wait_closed()


async def test_whoever_comes_when_all_places_are_taken_is_turned_away() -> None:
    feed = Feed(lambda: ":\n\n")
    async with serving(Site({"/": WebPage("text/plain", lambda: "here")}, {"/events": feed})) as port:
        listeners = []
        for _ in range(web.MAX_CONNECTIONS):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /events HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(b":\n\n"), 60)
            listeners.append(writer)
        assert "503 Service Unavailable" in await ask(port, "GET / HTTP/1.1\r\n\r\n")
        for writer in listeners:
            writer.close()
            await writer.wait_closed()
        async with asyncio.timeout(60):
            while "here" not in await ask(port, "GET / HTTP/1.1\r\n\r\n"):
                feed.publish(":\n\n")  # the server notices when it writes
