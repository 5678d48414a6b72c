"""`vstream probe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, endpoints_as_user, find_servers
from vstream.cli.views import console
from vstream.cli.views import probe as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import progress_bar
from vstream.plan.live.observe import connect_all
from vstream.probe.checks import run_probe
from vstream.probe.report import ProbeReport, Progress
from vstream.topology.accounts import PROBE_USER
from vstream.topology.model import Topology


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    stream: Annotated[list[str] | None, typer.Option("--stream", "-s", help="Only this virtual stream.")] = None,
    region: Annotated[list[str] | None, typer.Option("--region", "-r", help="Only this region.")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds until a canary must have arrived everywhere.", min=0.1)] = 30,
    output: Annotated[str, typer.Option("--format", help="text, json or junit.")] = "text",
    forms: Annotated[
        bool, typer.Option("--forms", help="Also try every form of Direct Get and pull requests by the virtual name.")
    ] = False,
    lab: options.LabName = None,
) -> None:
    """
    Prove that each virtual stream works in each region: who answers, and how long a message takes to get everywhere.

    Publishes only on the `canary` subjects of the topology, and deletes what it published.
    `--forms` creates a consumer of its own in each region, and deletes it.
    Exits with 1 unless every check passes.

    Examples: `vstream probe`, `vstream probe --forms`, `vstream probe -s foo --format junit > probe.xml`
    """
    if output not in set(view.ProbeFormat):
        raise typer.BadParameter(f"unknown format `{output}`: expected text, json or junit", param_hint="--format")
    loaded = options.load_topology(topology).require()
    _check_names("--stream", stream, [virtual.name for virtual in loaded.streams])
    _check_names("--region", region, [virtual.name for virtual in loaded.regions])
    chosen = [virtual for virtual in loaded.streams if not stream or virtual.name in stream]
    if not any(not region or set(region) & set(virtual.regions) for virtual in chosen):
        raise typer.BadParameter("no chosen stream is in any of these regions", param_hint="--region")
    servers = find_servers(loaded, lab)
    report = run(_probe(loaded, servers, stream, region, deadline, all_forms=forms))
    if output == "json":
        print_json("probe", report.as_dict())
    elif output == "junit":
        typer.echo(view.to_junit(report))
    else:
        console.print_note(f"{loaded.name} on {servers.description}")
        for part in view.text(report):
            console.stdout().print(part)
    if not report.is_pass:
        raise typer.Exit(NO)


async def _probe(
    topology: Topology,
    servers: Servers,
    streams: Sequence[str] | None,
    regions: Sequence[str] | None,
    deadline: float,
    *,
    all_forms: bool,
) -> ProbeReport:

    with progress_bar() as progress:
        task = progress.add_task("probing", total=None)

        def show(step: Progress) -> None:
            progress.update(task, completed=step.done, total=step.total)

        async with connect_all(topology, endpoints_as_user(topology, servers, PROBE_USER)) as connections:
            return await run_probe(
                topology,
                connections,
                streams=streams,
                regions=regions,
                deadline=deadline,
                on_progress=show,
                all_forms=all_forms,
            )


def _check_names(option: str, names: list[str] | None, known: list[str]) -> None:
    for name in names or ():
        if name not in known:
            raise typer.BadParameter(f"unknown name `{name}`: expected one of {', '.join(known)}", param_hint=option)
