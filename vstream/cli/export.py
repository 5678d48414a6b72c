"""`vstream export`."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Annotated, Any

import typer

from vstream import resources
from vstream.chaos.target_servers import TargetServers
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exporter import Exporter, parse_address
from vstream.cli.servers import find_servers
from vstream.cli.status import expected_bundle
from vstream.cli.views.chaos import RefreshPrinter
from vstream.cli.views.console import set_log
from vstream.health.live.refresh import LOOK_DEADLINE, watch
from vstream.health.pipeline import read_status
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
    is_quiet: options.Quiet = False,
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
    loaded = options.load_topology(topology).require()
    servers = find_servers(loaded, lab)
    bundle = expected_bundle(loaded, servers, templates)
    if once:
        seen = run(read_status(loaded, servers.endpoints, bundle, deadline=deadline))
        typer.echo(render_metrics(loaded.name, seen), nl=False)
        return
    serving = Exporter(loaded, servers, bundle, deadline).serve(*parse_address(listen), every)
    run(_serve_and_refresh(serving, loaded, find_target_servers(loaded, lab)) if is_refreshing else serving)


async def _serve_and_refresh(serving: Coroutine[Any, Any, None], topology: Topology, target: TargetServers) -> None:
    show = RefreshPrinter(is_json=False).show
    await asyncio.gather(serving, watch(topology, target, every=_REFRESH_EVERY, deadline=LOOK_DEADLINE, on_look=show))
