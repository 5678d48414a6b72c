"""`vstream export`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Any

import typer

from vstream import resources
from vstream.chaos import journal
from vstream.chaos.journal import OpenFault
from vstream.chaos.target_servers import TargetServers
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.servers import Servers, find_servers
from vstream.cli.status import Deadline, expected_bundle
from vstream.cli.views import console, console_page
from vstream.cli.views.chaos import RefreshPrinter
from vstream.cli.views.console_page import ConsoleHistory
from vstream.cli.web import Feed, Site, WebPage, format_event, serve
from vstream.errors import VstreamError
from vstream.health.live.refresh import LOOK_DEADLINE, watch
from vstream.health.pipeline import read_status
from vstream.health.prometheus import CONTENT_TYPE, render_metrics
from vstream.lab.state import lab_directory
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology

_LAST_PORT = 65_535
_REFRESH_EVERY = 1.0


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on.")] = "127.0.0.1:9477",
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
    Serve what `vstream status` knows until Ctrl-C: to Prometheus at `/metrics`, and as a live page in the browser at `/`.

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
        self._every = 0.0
        self._history = ConsoleHistory()
        self._event = ""
        """The last one, for whoever opens the page now."""
        self._feed = Feed(lambda: format_event("history", self._history.as_json()) + self._event)

    async def serve(self, host: str, port: int, every: float) -> None:
        self._every = every
        await self._look()
        pages = dict[str, WebPage]()
        for path, name in console_page.FILES.items():
            content_type = console_page.TYPES[name.rpartition(".")[2]]
            pages[path] = WebPage(content_type, partial(console_page.read_file, name))
        pages["/healthz"] = WebPage("text/plain; charset=utf-8", lambda: "ok\n")
        pages["/metrics"] = WebPage(CONTENT_TYPE, lambda: self._page)
        async with serve(host, port, Site(pages, {"/events": self._feed})) as server:
            bound_port = server.sockets[0].getsockname()[1]
            address = f"http://{host}:{bound_port}/"
            console.print_note(f"{self._topology.name} on {self._servers.description}: {address} and {address}metrics")
            if warning := warn_if_exposed([bound.getsockname()[0] for bound in server.sockets], bound_port):
                console.print_note(warning, style="yellow")
            while True:
                await asyncio.sleep(every)
                await self._look()

    async def _look(self) -> None:
        """Make the next page. Monitoring that dies of a strange answer is worse than a page that says so."""
        try:
            seen = await read_status(self._topology, self._servers.endpoints, self._bundle, deadline=self._deadline)
            self._page = render_metrics(self._topology.name, seen)
            self._history.add(seen.at, seen)
            self._show("status", console_page.describe(seen, self._read_faults(), self._every))
        except VstreamError as error:
            self._fail(error.message)
        except Exception as error:  # noqa: BLE001 - see above
            self._fail(f"an answer of the servers could not be read: {error!r}")
        else:
            self._report(tuple(f"not known: {problem.about}: {problem.text}" for problem in seen.unknown))

    def _read_faults(self) -> tuple[OpenFault, ...]:
        """The open faults of the lab; none where its journal cannot be read, which is said."""
        try:
            book = None if self._servers.lab is None else journal.read(lab_directory(self._servers.lab))
        except VstreamError as error:
            console.print_note(error.message, style="yellow")
            return ()
        return () if book is None else book.faults

    def _show(self, name: str, content: str) -> None:
        self._event = format_event(name, content)
        self._feed.publish(self._event)

    def _fail(self, reason: str) -> None:
        self._page = render_metrics(self._topology.name, None)
        self._history.add(time.time(), None)
        self._show("failure", console_page.describe_failure(reason, time.time()))
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
