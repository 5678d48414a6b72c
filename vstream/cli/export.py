"""`vstream export`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import typer

from vstream import resources
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exporter import Exporter, parse_address
from vstream.cli.servers import find_servers
from vstream.cli.status import StatusSource, find_source
from vstream.cli.views.chaos import RefreshPrinter
from vstream.cli.views.console import set_log
from vstream.health.live.refresh import Refresher, watch
from vstream.health.prometheus import render_metrics
from vstream.topology.model import Topology

_REFRESH_EVERY = 1.0


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on.")] = "127.0.0.1:9477",
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.2, max=3600)] = 10,
    deadline: options.Timeout = 4,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics once and exit.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus and exit.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana and exit.")] = False,
    is_refreshing: Annotated[
        bool, typer.Option("--refresh", help="Also do what `vstream repair sources --watch` does, every second.")
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

    def find(newest: Topology) -> StatusSource:
        return find_source(newest, find_servers(newest, lab), templates)

    def serve(latest: Callable[[], StatusSource]) -> Coroutine[Any, Any, None]:
        return Exporter(latest, deadline).serve(*parse_address(listen), every)

    if once:
        source = find(options.load_topology(topology).require())
        typer.echo(render_metrics(source.topology.name, run(source.read(deadline))), nl=False)
    elif is_refreshing:
        both = options.FollowedTopology(
            topology, lambda newest: (find(newest), Refresher(newest, find_target_servers(newest, lab)))
        )
        run(_serve_and_refresh(serve(lambda: both.latest()[0]), lambda: both.latest()[1]))
    else:
        run(serve(options.FollowedTopology(topology, find).latest))


async def _serve_and_refresh(serving: Coroutine[Any, Any, None], latest: Callable[[], Refresher]) -> None:
    show = RefreshPrinter(is_json=False).show
    await asyncio.gather(serving, watch(latest, every=_REFRESH_EVERY, on_look=show))
