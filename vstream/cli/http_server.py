"""A small HTTP server, for those who scrape it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from vstream.errors import VstreamError

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT = 5.0
_MAX_REQUEST = 16_384


async def serve(host: str, port: int, pages: dict[str, tuple[str, Callable[[], str]]]) -> asyncio.Server:
    """
    Start a server of *pages*: by path, a content type and a function that returns the text.

    Raises VstreamError if it cannot listen on the address.
    """

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT):
                head = await reader.readuntil(b"\r\n\r\n")
                method, path = head.split(b" ", 2)[:2]
                writer.write(_response(method, path.decode(errors="replace").partition("?")[0], pages))
                await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever does not speak HTTP gets no answer
        finally:
            writer.close()

    try:
        return await asyncio.start_server(answer, host, port, limit=_MAX_REQUEST)
    except OSError as error:
        raise VstreamError(
            f"cannot listen on {host}:{port}: {error.strerror}", hint="choose another address with `--listen`"
        ) from None


def _response(method: bytes, path: str, pages: dict[str, tuple[str, Callable[[], str]]]) -> bytes:
    if method not in {b"GET", b"HEAD"}:
        status, kind, body = "405 Method Not Allowed", "text/plain", b"GET only\n"
    elif path not in pages:
        status, kind, body = "404 Not Found", "text/plain", f"see {', '.join(pages)}\n".encode()
    else:
        kind, text = pages[path]
        status, body = "200 OK", text().encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)
