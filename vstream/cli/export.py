"""`vstream export`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Any

import typer

from vstream import resources
from vstream.chaos.journal import OpenFault, read_journal
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.views import console, status_page
from vstream.cli.views.console import set_log
from vstream.cli.views.repair import ResyncPrinter
from vstream.cli.views.status_page import StatusHistory
from vstream.cli.web import Feed, Site, WebPage, format_event, serve
from vstream.errors import VstreamError
from vstream.formatting import format_count, format_duration
from vstream.health.live.cross_region_listener import CrossRegionListener
from vstream.health.live.resync_watch import Resyncer, watch_and_resync
from vstream.health.pipeline import StatusSource, make_status_source
from vstream.health.prometheus import CONTENT_TYPE, render_metrics
from vstream.lab.state import lab_directory
from vstream.runner.events import ScenarioProgress, read_progress
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.target_servers import make_target
from vstream.topology.model import Topology

_RESYNC_SECONDS = 1.0


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on.")] = "127.0.0.1:9477",
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.2, max=3600)] = 10,
    timeout: options.Timeout = 4,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once and exit.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus and exit.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana and exit.")] = False,
    is_resyncing: Annotated[
        bool, typer.Option("--resync", help="Also do what `vstream repair sources --watch` does, every second.")
    ] = False,
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
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
    set_log(log_format, is_quiet=is_quiet)

    def make_source(newest: Topology) -> StatusSource:
        return make_status_source(newest, find_and_trust_servers(newest, lab), templates)

    def find_both(newest: Topology) -> tuple[StatusSource, Resyncer]:
        servers = find_and_trust_servers(newest, lab)
        return make_status_source(newest, servers, templates), Resyncer(newest, make_target(newest, servers))

    def serve(latest: Callable[[], StatusSource]) -> Coroutine[Any, Any, None]:
        return Exporter(latest, timeout).serve(*parse_address(listen), every)

    if once:
        source = make_source(options.check_topology_file(file).require())
        typer.echo(render_metrics(source.topology.name, run(source.read(timeout))), nl=False)
    elif is_resyncing:
        both = options.FollowedTopology(file, find_both)
        run(_serve_and_resync(serve(lambda: both.latest()[0]), lambda: both.latest()[1]))
    else:
        run(serve(options.FollowedTopology(file, make_source).latest))


async def _serve_and_resync(serving: Coroutine[Any, Any, None], latest: Callable[[], Resyncer]) -> None:
    show = ResyncPrinter(is_json=False).show
    await asyncio.gather(serving, watch_and_resync(latest, every=_RESYNC_SECONDS, on_check=show))


_MAX_PORT = 65_535


def parse_address(listen: str) -> tuple[str, int]:
    """The host and port of HOST:PORT. Raises typer.BadParameter if *listen* is something else."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > _MAX_PORT:
        raise typer.BadParameter(f"`{listen}` is not HOST:PORT", param_hint="--listen")
    return host.strip("[]") or "127.0.0.1", int(port)


class Exporter:
    """Reads the servers again and again, and serves what it read last."""

    def __init__(self, latest: Callable[[], StatusSource], timeout: float) -> None:
        """*latest* says before each look what to read."""
        self._latest = latest
        self._source = latest()
        self._timeout = timeout
        self._page = ""
        self._reported: tuple[str, ...] = ()
        self._every = 0.0
        self._history = StatusHistory()
        self._event = ""
        """The last one, for whoever opens the page now."""
        self._cross_region = CrossRegionListener(console.print_warning)
        self._feed = Feed(lambda: format_event("history", self._history.as_json()) + self._event)

    async def serve(self, host: str, port: int, every: float, on_ready: Callable[[str], object] | None = None) -> None:
        """Serve until it is cancelled; *every*: seconds between two looks. *on_ready* gets the page's address."""
        self._every = every
        await self._look()
        pages = dict[str, WebPage]()
        for path, name in status_page.FILES.items():
            content_type = status_page.TYPES[name.rpartition(".")[2]]
            pages[path] = WebPage(content_type, partial(status_page.read_file, name))
        pages["/healthz"] = WebPage("text/plain; charset=utf-8", lambda: "ok\n")
        pages["/metrics"] = WebPage(CONTENT_TYPE, lambda: self._page)
        async with serve(host, port, Site(pages, {"/events": self._feed})) as server:
            bound_port = server.sockets[0].getsockname()[1]
            address = f"http://{host}:{bound_port}/"
            console.print_note(
                f"{self._source.servers.describe_with(self._source.topology)}: {address} and {address}metrics"
            )
            if warning := warn_if_exposed([bound.getsockname()[0] for bound in server.sockets], bound_port):
                console.print_warning(warning)
            if on_ready is not None:
                on_ready(address)
            while True:
                await asyncio.sleep(every)
                await self._look()

    async def _look(self) -> None:
        """Make the next page. Monitoring that dies of a strange answer is worse than a page that says so."""
        try:
            self._source = self._latest()
            seen = await self._source.read(self._timeout)
            self._cross_region.follow(self._source.topology, self._source.servers.endpoints)
            self._page = render_metrics(self._source.topology.name, seen, self._cross_region.uses())
            self._history.add(seen.at, seen)
            content = status_page.format_status(seen, self._read_faults(), self._every, self._read_scenario())
            self._show("status", content)
        except VstreamError as error:
            self._fail(error.message)
        except Exception as error:  # noqa: BLE001 - see above
            self._fail(f"an answer of the servers could not be read: {error!r}")
        else:
            problems = format_count(len(seen.problems), "problem")
            console.print_detail(f"{seen.verdict.value}, {problems}, after {format_duration(seen.took)}")
            self._report(tuple(f"not known: {problem.about}: {problem.text}" for problem in seen.unknown))

    def _read_faults(self) -> tuple[OpenFault, ...]:
        """The open faults of the lab; none where its journal cannot be read, which is said."""
        lab = self._source.servers.lab
        try:
            return () if lab is None else read_journal(lab_directory(lab)).faults
        except VstreamError as error:
            console.print_warning(error.message)
            return ()

    def _read_scenario(self) -> ScenarioProgress | None:
        lab = self._source.servers.lab
        return None if lab is None else read_progress(lab_directory(lab))

    def _show(self, name: str, content: str) -> None:
        self._event = format_event(name, content)
        self._feed.publish(self._event)

    def _fail(self, reason: str) -> None:
        self._page = render_metrics(self._source.topology.name, None)
        self._history.add(time.time(), None)
        self._show("failure", status_page.format_failure(reason, time.time()))
        self._report((f"vstream_up is 0: {reason}",))

    def _report(self, lines: tuple[str, ...]) -> None:
        """Say on standard error what could not be read, once for as long as it stays the same."""
        if lines != self._reported:
            for line in lines:
                console.print_warning(line)
        self._reported = lines


def warn_if_exposed(addresses: Iterable[str], port: int) -> str | None:
    """What others learn who reach *port* at one of the IP *addresses*; None where all of them are loopback."""
    if all(ip_address(address).is_loopback for address in addresses):
        return None
    return (
        f"warning: anybody who reaches port {port} reads the names of streams, servers and clients: there is no TLS and no login."
        " Let only Prometheus reach it, or listen on 127.0.0.1"
    )
