"""`vstream probe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, endpoints_as_user, find_servers
from vstream.cli.views.json_output import print_json
from vstream.topology.accounts import PROBE_USER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.probe.report import ProbeReport, Progress
    from vstream.topology.model import Topology


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    stream: Annotated[list[str] | None, typer.Option("--stream", "-s", help="Only this virtual stream.")] = None,
    region: Annotated[list[str] | None, typer.Option("--region", "-r", help="Only this region.")] = None,
    deadline: Annotated[float, typer.Option(help="Seconds until a canary must have arrived everywhere.", min=0.1)] = 30,
    output: Annotated[str, typer.Option("--format", help="text, json or junit.")] = "text",
    forms: Annotated[
        bool, typer.Option("--forms", help="Every form of Direct Get and of pull requests too, by the virtual name.")
    ] = False,
    lab: options.LabName = None,
) -> None:
    """
    Prove that each virtual stream works in each region: who answers, and how long a message takes to get everywhere.

    Publishes only on the `canary` subjects that the topology agrees on, and deletes
    what it published; `--forms` makes a consumer of its own in each region, and deletes it.
    Exits with 1 unless everything that was checked is well.

    Examples: `vstream probe`, `vstream probe --forms`, `vstream probe -s foo --format junit > probe.xml`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import probe as view  # noqa: PLC0415
    from vstream.probe.junit import to_junit  # noqa: PLC0415

    if output not in set(view.ProbeFormat):
        raise typer.BadParameter(f"`{output}` is none of text, json, junit", param_hint="--format")
    wanted = options.load_topology(topology).require()
    _check_names("--stream", stream, [one.name for one in wanted.streams])
    _check_names("--region", region, [one.name for one in wanted.regions])
    if not any(
        one.name in (stream or [one.name]) and (not region or not set(region).isdisjoint(one.regions))
        for one in wanted.streams
    ):
        raise typer.BadParameter("none of the chosen streams is in any of these regions", param_hint="--region")
    where = find_servers(wanted, lab)
    report = run(_probe(wanted, where, stream, region, deadline, all_forms=forms))
    if output == "json":
        print_json("probe", report.as_dict())
    elif output == "junit":
        typer.echo(to_junit(report))
    else:
        console.print_note(f"{wanted.name} on {where.description}")
        console.stdout().print(view.hops(report))
        matrix = view.matrix(report)
        if matrix is not None:
            console.stdout().print(matrix)
        for table in view.tables(report):
            console.stdout().print(table)
        for line in view.problems(report):
            console.stdout().print(line)
    if not report.passed:
        raise typer.Exit(NO)


async def _probe(
    topology: Topology,
    where: Servers,
    streams: Sequence[str] | None,
    regions: Sequence[str] | None,
    deadline: float,
    *,
    all_forms: bool,
) -> ProbeReport:
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.plan.live.observe import connect_all  # noqa: PLC0415
    from vstream.probe.checks import run_probe  # noqa: PLC0415

    with console.progress_bar() as progress:
        task = progress.add_task("probing", total=None)

        def show(step: Progress) -> None:
            progress.update(task, completed=step.done, total=step.total)

        async with connect_all(topology, endpoints_as_user(topology, where, PROBE_USER)) as connections:
            return await run_probe(
                topology,
                connections,
                streams=streams,
                regions=regions,
                deadline=deadline,
                on_progress=show,
                all_forms=all_forms,
            )


def _check_names(option: str, given: list[str] | None, known: list[str]) -> None:
    for name in given or ():
        if name not in known:
            raise typer.BadParameter(f"`{name}` is none of {', '.join(known)}", param_hint=option)
