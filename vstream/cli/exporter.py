"""Reads the status of a topology again and again, and serves it: metrics for Prometheus, and the live page in the browser."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from functools import partial
from ipaddress import ip_address

import typer

from vstream.chaos import journal
from vstream.chaos.journal import OpenFault
from vstream.cli.status import StatusSource
from vstream.cli.views import console, console_page
from vstream.cli.views.console_page import ConsoleHistory
from vstream.cli.web import Feed, Site, WebPage, format_event, serve
from vstream.errors import VstreamError
from vstream.formatting import format_count, format_duration
from vstream.health.prometheus import CONTENT_TYPE, render_metrics
from vstream.lab.state import lab_directory
from vstream.runner import progress
from vstream.runner.progress import ScenarioProgress

_LAST_PORT = 65_535


def parse_address(listen: str) -> tuple[str, int]:
    """The host and port of HOST:PORT. Raises typer.BadParameter if *listen* is something else."""
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > _LAST_PORT:
        raise typer.BadParameter(f"`{listen}` is not HOST:PORT", param_hint="--listen")
    return host.strip("[]") or "127.0.0.1", int(port)


class Exporter:
    """Reads the servers again and again, and serves what it read last."""

    def __init__(self, latest: Callable[[], StatusSource], deadline: float) -> None:
        """*latest* says before each look what to read."""
        self._latest = latest
        self._source = latest()
        self._deadline = deadline
        self._page = ""
        self._reported: tuple[str, ...] = ()
        self._every = 0.0
        self._history = ConsoleHistory()
        self._event = ""
        """The last one, for whoever opens the page now."""
        self._feed = Feed(lambda: format_event("history", self._history.as_json()) + self._event)

    async def serve(self, host: str, port: int, every: float, on_ready: Callable[[str], object] | None = None) -> None:
        """Serve until it is cancelled; *every*: seconds between two looks. *on_ready* gets the page's address."""
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
            console.print_note(
                f"{self._source.topology.name} on {self._source.servers.description}: {address} and {address}metrics"
            )
            if warning := warn_if_exposed([bound.getsockname()[0] for bound in server.sockets], bound_port):
                console.print_note(warning, style="yellow")
            if on_ready is not None:
                on_ready(address)
            while True:
                await asyncio.sleep(every)
                await self._look()

    async def _look(self) -> None:
        """Make the next page. Monitoring that dies of a strange answer is worse than a page that says so."""
        try:
            self._source = self._latest()
            seen = await self._source.read(self._deadline)
            self._page = render_metrics(self._source.topology.name, seen)
            self._history.add(seen.at, seen)
            self._show("status", console_page.describe(seen, self._read_faults(), self._every, self._read_scenario()))
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
        try:
            book = None if self._source.servers.lab is None else journal.read(lab_directory(self._source.servers.lab))
        except VstreamError as error:
            console.print_note(error.message, style="yellow")
            return ()
        return () if book is None else book.faults

    def _read_scenario(self) -> ScenarioProgress | None:
        lab = self._source.servers.lab
        return None if lab is None else progress.read(lab_directory(lab))

    def _show(self, name: str, content: str) -> None:
        self._event = format_event(name, content)
        self._feed.publish(self._event)

    def _fail(self, reason: str) -> None:
        self._page = render_metrics(self._source.topology.name, None)
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
