"""The raw answers of each server's monitoring endpoints, for people who cannot ask it."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from vstream.errors import VstreamError
from vstream.jetstream import monitoring

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.topology.model import Endpoint

PATHS = (
    "/varz",
    "/jsz?accounts=true&streams=true&consumers=true&config=true&raft=true",
    "/gatewayz?accs=false",
    "/routez",
    "/leafz",
    "/accountz",
    "/healthz?details=true",
)
_UNSAFE = re.compile(r"[^\w-]")
"""Characters of a server's name that no file name gets: they could lead anywhere, or be obeyed by a terminal."""


async def ask_servers(
    endpoints: Mapping[str, Endpoint], *, timeout: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The answers of every server that `monitor` names, by its name and then by path; and by address, who did not answer."""
    urls = [url for endpoint in endpoints.values() for url in endpoint.monitor]
    answers = await asyncio.gather(*(_ask(url, timeout) for url in urls))
    servers: dict[str, dict[str, Any]] = {}
    silent: dict[str, str] = {}
    for url, answer in zip(urls, answers, strict=True):
        varz = answer["/varz"]
        if isinstance(varz, str):
            silent[url] = varz
        else:
            servers[_UNSAFE.sub("_", str(varz.get("server_name", url)))[:100]] = answer
    return servers, silent


async def _ask(url: str, timeout: float) -> dict[str, Any]:
    """By path, what is answered, or why that is not known."""

    async def get(path: str) -> Any:
        try:
            return await monitoring.get(url, path, timeout)
        except VstreamError as error:
            return error.message

    return dict(zip(PATHS, await asyncio.gather(*map(get, PATHS)), strict=True))
