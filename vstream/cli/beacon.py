"""`vstream beacon`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, find_servers
from vstream.cli.views.json_output import JsonLayout, print_json

if TYPE_CHECKING:
    from vstream.health.snapshot import BeaconSighting
    from vstream.topology.model import Topology

_PATIENCE = 3.0


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    every: Annotated[
        float | None, typer.Option(help="Seconds between two, until Ctrl-C. Without it: one.", min=0.2, max=86_400)
    ] = None,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Show how old the newest beacon of each region is in each other, then publish new ones.

    A beacon is an empty message that stays. It goes on the `canary` subject of each
    stream that has one with a `*`, which stands for the region. Run every 10 seconds, an
    age of much more than 10 is a lag that was measured from end to end. Exits with 1 if
    a beacon could not be published.

    Examples: `vstream beacon`, `vstream beacon acme.yaml --every 10`
    """
    from vstream.errors import VstreamError  # noqa: PLC0415
    from vstream.health.live.beacons import streams_with_beacons  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    if not streams_with_beacons(wanted):
        raise VstreamError(
            "no stream takes beacons", hint="give one a subject for them: `canary: foo._canary.*` in the topology"
        )
    where = find_servers(wanted, lab)
    if not run(_beacons(wanted, where, every, output)):
        raise typer.Exit(NO)


async def _beacons(topology: Topology, where: Servers, every: float | None, output: str) -> bool:
    """Whether all beacons of the last round were published."""
    from vstream.health.live import beacons  # noqa: PLC0415
    from vstream.plan.live.observe import any_connection, connect_all  # noqa: PLC0415

    while True:
        async with connect_all(topology, where.endpoints) as connections:
            any_connection(connections)
            seen = await beacons.read_beacons(topology, connections, patience=_PATIENCE)
            problems = await beacons.publish_beacons(topology, connections)
        _show(topology, seen, problems, output)
        if every is None:
            return not problems
        await asyncio.sleep(every)


def _show(topology: Topology, seen: tuple[BeaconSighting, ...], problems: tuple[str, ...], output: str) -> None:
    from vstream.cli.views import beacons as view  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415

    if output == "json":
        found = {"topology": topology.name, "beacons": [one.as_dict() for one in seen], "problems": list(problems)}
        print_json("beacon", found, layout=JsonLayout.LINE)
        return
    console.stdout().print(view.matrix([region.name for region in topology.regions], seen))
    for problem in problems:
        console.print_note(f"not published: {problem}", style="bold red")
