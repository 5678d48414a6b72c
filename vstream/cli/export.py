"""`vstream export`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from ipaddress import ip_address
from typing import Annotated, Any

import typer

from vstream import resources
from vstream.chaos.target_servers import TargetServers
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.servers import Servers, find_servers
from vstream.cli.status import Deadline, expected_bundle
from vstream.cli.views import console
from vstream.cli.views.chaos import RefreshPrinter
from vstream.errors import VstreamError
from vstream.health.live.refresh import LOOK_DEADLINE, watch
from vstream.health.pipeline import read_status
from vstream.health.prometheus import CONTENT_TYPE, render_metrics
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology

_LAST_PORT = 65_535
_REFRESH_EVERY = 1.0
_LANDING_PAGE = """<!doctype html><html lang="en"><head><title>vstream export</title></head>
<body><h1>vstream export</h1><p><a href="/metrics">Metrics</a></p></body></html>
"""


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve /metrics on.")] = "127.0.0.1:9477",
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.2, max=3600)] = 10,
    deadline: Deadline = 4,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once and exit.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus and exit.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana and exit.")] = False,
    is_refreshing: Annotated[
        bool, typer.Option("--refresh", help="Also do what `vstream resync --watch` does, every second.")
    ] = False,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Serve what `vstream status` knows to Prometheus, until Ctrl-C.

    Servers are asked every `--every` seconds, not at each scrape. Whatever they answer, it
    keeps serving: `vstream_up` is 0 while nothing could be read, and standard error says why.

    Examples: `vstream export acme.yaml --listen 0.0.0.0:9477`, `vstream export --once > /var/lib/node_exporter/vstream.prom`,
    `vstream export --alerts > vstream-alerts.yaml`, `vstream export --dashboard > vstream-dashboard.json`
    """
    if alerts or dashboard:
        name = "alerts.yaml" if alerts else "dashboard.json"
        typer.echo((resources.templates() / "export" / name).read_text(encoding="utf-8"), nl=False)
        return
    loaded = options.load_topology(topology).require()
    servers = find_servers(loaded, lab)
    bundle = expected_bundle(loaded, servers, templates)
    if once:
        seen = run(read_status(loaded, servers.endpoints, bundle, deadline=deadline))
        typer.echo(render_metrics(loaded.name, seen), nl=False)
        return
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > _LAST_PORT:
        raise typer.BadParameter(f"`{listen}` is not HOST:PORT", param_hint="--listen")
    exporter = _Exporter(loaded, servers, bundle, deadline)
    serving = exporter.serve(host.strip("[]") or "127.0.0.1", int(port), every)
    run(_serve_and_refresh(serving, loaded, find_target_servers(loaded, lab)) if is_refreshing else serving)


async def _serve_and_refresh(serving: Coroutine[Any, Any, None], topology: Topology, site: TargetServers) -> None:
    show = RefreshPrinter(is_json=False).show
    await asyncio.gather(serving, watch(topology, site, every=_REFRESH_EVERY, deadline=LOOK_DEADLINE, on_look=show))


class _Exporter:
    """Reads the servers again and again, and serves what it read last."""

    def __init__(self, topology: Topology, servers: Servers, bundle: Bundle | str, deadline: float) -> None:
        self._topology = topology
        self._servers = servers
        self._bundle = bundle
        self._deadline = deadline
        self._page = ""
        self._reported: tuple[str, ...] = ()

    async def serve(self, host: str, port: int, every: float) -> None:
        await self._look()
        pages = {
            "/": ("text/html; charset=utf-8", lambda: _LANDING_PAGE),
            "/healthz": ("text/plain; charset=utf-8", lambda: "ok\n"),
            "/metrics": (CONTENT_TYPE, lambda: self._page),
        }
        server = await serve(host, port, pages)
        bound_port = server.sockets[0].getsockname()[1]
        console.print_note(f"{self._topology.name} on {self._servers.description}: http://{host}:{bound_port}/metrics")
        if warning := warn_if_exposed([bound.getsockname()[0] for bound in server.sockets], bound_port):
            console.print_note(warning, style="yellow")
        async with server:
            while True:
                await asyncio.sleep(every)
                await self._look()

    async def _look(self) -> None:
        """Make the next page. Monitoring that dies of a strange answer is worse than a page that says so."""
        try:
            seen = await read_status(self._topology, self._servers.endpoints, self._bundle, deadline=self._deadline)
            self._page = render_metrics(self._topology.name, seen)
        except VstreamError as error:
            self._fail(error.message)
        except Exception as error:  # noqa: BLE001 - see above
            self._fail(f"an answer of the servers could not be read: {error!r}")
        else:
            self._report(tuple(f"not known: {problem.about}: {problem.text}" for problem in seen.unknown))

    def _fail(self, reason: str) -> None:
        self._page = render_metrics(self._topology.name, None)
        self._report((f"vstream_up is 0: {reason}",))

    def _report(self, lines: tuple[str, ...]) -> None:
        """Say on standard error what could not be read, once for as long as it stays the same."""
        if lines != self._reported:
            for line in lines:
                console.print_note(line, style="yellow")
        self._reported = lines


def warn_if_exposed(addresses: Iterable[str], port: int) -> str | None:
    """What others learn who reach *port* at one of the IP *addresses*; None where all of them are loopback."""
    if all(ip_address(address).is_loopback for address in addresses):
        return None
    return (
        f"warning: anybody who reaches port {port} reads the names of streams and servers: there is no TLS and no login."
        " Let only Prometheus reach it, or listen on 127.0.0.1"
    )


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
