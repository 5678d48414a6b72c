"""`vstream export`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.servers import Servers, find_servers
from vstream.cli.status import Deadline, look

if TYPE_CHECKING:
    from vstream.health.report import Status
    from vstream.topology.model import Topology


_LAST_PORT = 65_535


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve /metrics on.")] = "127.0.0.1:9477",
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.2, max=3600)] = 10,
    deadline: Deadline = 4,
    once: Annotated[bool, typer.Option("--once", help="Print the metrics of one look, and end.")] = False,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print alert rules for Prometheus, and end.")] = False,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Print a dashboard for Grafana, and end.")] = False,
    lab: options.LabName = None,
) -> None:
    """
    Serve what `vstream status` knows to Prometheus, until Ctrl-C.

    Servers are asked every `--every` seconds, not at each scrape. Runs on while none
    of them answers: `vstream_up` is 0 then.

    Examples: `vstream export acme.yaml --listen 0.0.0.0:9477`, `vstream export --once > /var/lib/node_exporter/vstream.prom`,
    `vstream export --alerts > vstream-alerts.yaml`, `vstream export --dashboard > vstream-dashboard.json`
    """
    if alerts or dashboard:
        from vstream import resources  # noqa: PLC0415

        name = "alerts.yaml" if alerts else "dashboard.json"
        typer.echo((resources.templates() / "export" / name).read_text(encoding="utf-8"), nl=False)
        return
    wanted = options.load_topology(topology).require()
    where = find_servers(wanted, lab)
    if once:
        from vstream.health.prometheus import render_metrics  # noqa: PLC0415

        typer.echo(render_metrics(wanted.name, run(look(wanted, where, deadline))), nl=False)
        return
    host, _, port = listen.rpartition(":")
    if not port.isdigit() or int(port) > _LAST_PORT:
        raise typer.BadParameter(f"`{listen}` is not HOST:PORT", param_hint="--listen")
    run(_export(wanted, where, host or "127.0.0.1", int(port), every, deadline))


async def _export(topology: Topology, where: Servers, host: str, port: int, every: float, deadline: float) -> None:
    from vstream.cli.http_server import serve  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.errors import NotReachableError  # noqa: PLC0415
    from vstream.health.prometheus import CONTENT_TYPE, render_metrics  # noqa: PLC0415

    async def latest() -> Status | None:
        try:
            return await look(topology, where, deadline)
        except NotReachableError:
            return None

    text = render_metrics(topology.name, await latest())
    server = await serve(host.strip("[]"), port, {"/metrics": (CONTENT_TYPE, lambda: text)})
    bound = server.sockets[0].getsockname()
    console.print_note(f"{topology.name} on {where.description}: http://{host}:{bound[1]}/metrics")
    async with server:
        while True:
            await asyncio.sleep(every)
            text = render_metrics(topology.name, await latest())
