"""The pages of `vstream export`: what is served to whom, and a feed that no slow or forgotten listener holds up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psutil
import pytest

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


async def open_half(port: int) -> asyncio.StreamWriter:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HT")
    return writer


@asynccontextmanager
async def closing_all(writers: list[asyncio.StreamWriter]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for writer in writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)


async def test_whoever_wants_to_follow_when_all_places_are_taken_is_turned_away_and_pages_are_not() -> None:
    feed = Feed(lambda: ":\n\n")
    async with serving(Site({"/": WebPage("text/plain", lambda: "here")}, {"/events": feed})) as port:
        listeners: list[asyncio.StreamWriter] = []
        async with closing_all(listeners):
            for _ in range(web.MAX_FEEDS):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /events HTTP/1.1\r\n\r\n")
                await asyncio.wait_for(reader.readuntil(b":\n\n"), 60)
                listeners.append(writer)
            assert "503 Service Unavailable" in await ask(port, "GET /events HTTP/1.1\r\n\r\n")
            assert "here" in await ask(port, "GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(60):
            while feed.listener_count:
                feed.publish(":\n\n")  # the server notices when it writes
                await asyncio.sleep(0)


async def test_connections_that_ask_nothing_keep_nobody_else_out() -> None:
    async with serving(Site({"/": WebPage("text/plain", lambda: "here")})) as port:
        silent = [await open_half(port) for _ in range(web.MAX_WAITING + 50)]
        async with closing_all(silent):
            assert "here" in await ask(port, "GET / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize(
    "host", ["evil.example:9477", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", ""]
)
async def test_a_web_page_whose_name_leads_here_reads_nothing(host: str) -> None:
    async with serving(Site({"/": WebPage("text/plain", lambda: "here")}, {"/events": Feed(lambda: "here")})) as port:
        for path in ("/", "/events", "/nothing"):
            got = await ask(port, f"GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n")
            assert got.startswith("HTTP/1.1 421 ")
            assert "here" not in got.replace("served here", "")


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9477", "localhost", "LOCALHOST:1", "[::1]:9477", "10.1.2.3", "a.localhost:8"]
)
async def test_a_browser_on_this_machine_reads_the_page(host: str) -> None:
    async with serving(Site({"/": WebPage("text/plain", lambda: "here")})) as port:
        assert (await ask(port, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).endswith("here")


HOSTILE = {
    "a second request behind the first": (b"GET / HTTP/1.1\r\n\r\nGET /secret HTTP/1.1\r\n\r\n", b"200 OK"),
    "a body with two lengths": (
        b"GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /secret HTTP/1.1\r\n\r\n",
        b"200 OK",
    ),
    "a header of 20 kB": (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b""),
    "another method": (b"TRACE / HTTP/1.1\r\nX: secret\r\n\r\n", b"405 "),
    "an address of somebody else": (b"GET http://evil.example/ HTTP/1.1\r\n\r\n", b"404 "),
    "a way up": (b"GET /../../etc/passwd HTTP/1.1\r\n\r\n", b"404 "),
    "a new line in the path": (b"GET /\rX-Secret:secret HTTP/1.1\r\n\r\n", b"404 "),
    "bytes that are no text": (b"GET /\xff\x00 HTTP/1.1\r\n\r\n", b"404 "),
    "no path": (b"GET\r\n\r\n", b""),
}


@pytest.mark.parametrize(("request_", "expected"), HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_request_gets_one_answer_in_which_nothing_of_it_is(request_: bytes, expected: bytes) -> None:
    async with serving(Site({"/": WebPage("text/plain", lambda: "here")})) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_)
        with suppress(ConnectionError):
            got = await asyncio.wait_for(reader.read(), 60)
            assert expected in got.partition(b"\r\n")[0]
            assert got.count(b"HTTP/1.1") == bool(expected)
            assert b"secret" not in got.lower()
        writer.close()


async def test_whoever_reads_nothing_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was to be sent would stay in memory, and the connection open, for as long as it likes."""
    monkeypatch.setattr(web, "_TIMEOUT", 0.2)
    async with serving(Site({"/": WebPage("text/plain", lambda: "x" * 30_000_000)})) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        async with closing_all([writer]):
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(60):
                while not (held := count_accepted(port)):
                    await asyncio.sleep(0.01)
                while held:
                    await asyncio.sleep(0.05)
                    held = count_accepted(port)


def count_accepted(port: int) -> int:
    """Connections that the server on *port* has open."""
    mine = psutil.Process().net_connections("tcp")
    return sum(connection.laddr.port == port and connection.status == psutil.CONN_ESTABLISHED for connection in mine)
