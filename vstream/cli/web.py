"""A small HTTP server of a few pages that others only read, and of one feed of events that a page follows."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address

from vstream.errors import VstreamError, describe_system_error

MAX_FEEDS = 64
"""At once. Whoever comes then is turned away: a page that is forgotten in a tab must not end the others."""
MAX_ANSWERED = 128
"""Connections at once that are being answered, feeds included."""
MAX_WAITING = 256
"""Connections at once whose request has not come yet. The oldest is closed for a new one, so that nobody can take all."""
_TIMEOUT = 5.0
_MAX_REQUEST_BYTES = 16_384
_PORT = re.compile(r":[0-9]*\Z")
_OTHER_HOST = "only this machine is served here: call it localhost, or an address; a proxy has to set `Host` so\n"
_KEEP_ALIVE_SECONDS = 15.0
_HEADERS = (
    "Cache-Control: no-store\r\n"
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
)


@dataclass(frozen=True, slots=True)
class WebPage:
    """What is at a path: its content type, and a function that returns the text."""

    content_type: str
    text: Callable[[], str]


class Feed:
    """Events for listeners. A listener that is too slow gets the newest, and not all that came before it."""

    def __init__(self, greeting: Callable[[], str]) -> None:
        self._greeting = greeting
        self._listeners: set[asyncio.Queue[str]] = set()

    def publish(self, event: str) -> None:
        """Give the text of *event* to all listeners."""
        for queue in self._listeners:
            with suppress(asyncio.QueueEmpty):
                queue.get_nowait()
            queue.put_nowait(event)

    @property
    def listener_count(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    async def send_to(self, writer: asyncio.StreamWriter) -> None:
        """Write the greeting and all events, until the other side goes. Raises OSError or TimeoutError then."""
        queue: asyncio.Queue[str] = asyncio.Queue(maxsize=1)
        self._listeners.add(queue)
        try:
            await _write(writer, self._greeting())
            while True:
                try:
                    await _write(writer, await asyncio.wait_for(queue.get(), _KEEP_ALIVE_SECONDS))
                except TimeoutError:
                    await _write(writer, ": nothing new\n\n")
        finally:
            self._listeners.discard(queue)


def format_event(name: str, data: str) -> str:
    """An event of a feed. *data* is one line."""
    return f"event: {name}\ndata: {data}\n\n"


@dataclass(frozen=True, slots=True)
class Site:
    """Pages and feeds by path."""

    pages: Mapping[str, WebPage]
    feeds: Mapping[str, Feed] = field(default_factory=dict)


@asynccontextmanager
async def serve(host: str, port: int, site: Site) -> AsyncIterator[asyncio.Server]:
    """
    A server of *site*, which ends with all its connections. Raises VstreamError if it cannot listen on the address.

    Python 3.12 waits for connections when a server is closed, and a feed would never end.
    """
    visitors = _Visitors(site)
    try:
        server = await asyncio.start_server(visitors.answer, host, port, limit=_MAX_REQUEST_BYTES)
    except OSError as error:
        raise VstreamError(
            f"cannot listen on {host}:{port}: {describe_system_error(error)}",
            hint="choose another address with `--listen`",
        ) from None
    try:
        yield server
    finally:
        server.close()
        await visitors.send_away()


class _Visitors:
    """The connections to *site*."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._connections: set[asyncio.Task[None] | None] = set()
        self._waiting: dict[asyncio.StreamWriter, None] = {}
        """Those whose request has not come yet, the oldest first."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read a request, and answer it."""
        self._connections.add(asyncio.current_task())
        writer.transport.set_write_buffer_limits(high=0)  # what is written is read, or given up
        self._waiting[writer] = None
        if len(self._waiting) > MAX_WAITING:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]
            oldest.close()
        try:
            async with asyncio.timeout(_TIMEOUT):
                request = await reader.readuntil(b"\r\n\r\n")
            self._waiting.pop(writer, None)
            method, path = request.split(b" ", 2)[:2]
            came_to = ip_address(writer.get_extra_info("sockname")[0].partition("%")[0])
            if len(self._connections) - len(self._waiting) > MAX_ANSWERED:
                await _write(writer, _format_head("503 Service Unavailable", "text/plain") + "too many connections\n")
            elif came_to.is_loopback and not _names_loopback(request):
                await _write(writer, _format_head("421 Misdirected Request", "text/plain") + _OTHER_HOST)
            else:
                await _answer(self._site, method, path.decode(errors="replace").partition("?")[0], writer)
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever does not speak HTTP gets no answer, and whoever has gone needs none
        except asyncio.CancelledError:
            pass  # the server ends: Python 3.11 reports it as a failure of the connection otherwise
        finally:
            self._waiting.pop(writer, None)
            self._connections.discard(asyncio.current_task())
            writer.close()

    async def send_away(self) -> None:
        """End all connections."""
        tasks = [task for task in self._connections if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _names_loopback(request: bytes) -> bool:
    """
    Whether *request* is for this machine by a name that nobody else can give to it.

    A web page could have its own name lead to 127.0.0.1, and a browser would then let it read what is served here.
    """
    names = [line.partition(b":")[2].strip() for line in request.split(b"\r\n") if line[:5].lower() == b"host:"]
    hosts = [_PORT.sub("", name.decode(errors="replace")).strip("[]").lower() for name in names]
    return all(host == "localhost" or host.endswith(".localhost") or _is_address(host) for host in hosts)


def _is_address(host: str) -> bool:
    try:
        return bool(ip_address(host))
    except ValueError:
        return False


async def _answer(site: Site, method: bytes, path: str, writer: asyncio.StreamWriter) -> None:
    if method not in {b"GET", b"HEAD"}:
        await _write(writer, _format_head("405 Method Not Allowed", "text/plain") + "GET only\n")
    elif path in site.feeds and sum(feed.listener_count for feed in site.feeds.values()) >= MAX_FEEDS:
        await _write(writer, _format_head("503 Service Unavailable", "text/plain") + "too many pages follow already\n")
    elif path in site.feeds:
        await _write(writer, _format_head("200 OK", "text/event-stream"))
        if method == b"GET":
            await site.feeds[path].send_to(writer)
    elif path in site.pages:
        page = site.pages[path]
        text = page.text()
        length = len(text.encode())
        head = _format_head("200 OK", page.content_type, f"Content-Length: {length}\r\n")
        await _write(writer, head + ("" if method == b"HEAD" else text))
    else:
        await _write(writer, _format_head("404 Not Found", "text/plain") + f"see {', '.join(site.pages)}\n")


def _format_head(status: str, content_type: str, more: str = "") -> str:
    return f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nConnection: close\r\n{_HEADERS}{more}\r\n"


async def _write(writer: asyncio.StreamWriter, text: str) -> None:
    """Raises TimeoutError where nobody reads: what is left would keep its memory and the connection for as long."""
    writer.write(text.encode())
    try:
        async with asyncio.timeout(_TIMEOUT):
            await writer.drain()
    except TimeoutError:
        writer.transport.abort()
        raise
