"""`vstream beacon`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, find_servers
from vstream.cli.views import console
from vstream.cli.views import status as view
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.errors import NotReachableError, VstreamError
from vstream.health.live.beacons import publish_beacons, read_beacons, streams_with_beacons
from vstream.health.snapshot import BeaconSighting
from vstream.plan.live.observe import any_connection, connect_all
from vstream.topology.model import Topology

_PATIENCE = 3.0


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    every: Annotated[
        float | None,
        typer.Option(help="Seconds between two beacons, until Ctrl-C. Without it: one.", min=0.2, max=86_400),
    ] = None,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Show how old the newest beacon of each region is in each other region, then publish new ones.

    A beacon is an empty message that stays in the stream until the stream's limits remove it. It goes
    on the `canary` subject of each stream whose canary has a `*`, which stands for the region. With
    `--every 10`, an age of much more than 10 s is a lag that was measured from end to end.
    Exits with 1 if a beacon could not be published.

    Examples: `vstream beacon`, `vstream beacon acme.yaml --every 10`
    """
    loaded = options.load_topology(topology).require()
    if not streams_with_beacons(loaded):
        raise VstreamError(
            "no stream takes beacons", hint="give one a subject for them: `canary: foo._canary.*` in the topology"
        )
    servers = find_servers(loaded, lab)
    work = _one_round(loaded, servers, output) if every is None else _repeat(loaded, servers, every, output)
    if not run(work):
        raise typer.Exit(NO)


async def _repeat(topology: Topology, servers: Servers, every: float, output: str) -> bool:
    """Rounds without end: an outage is what beacons are there to show."""
    while True:
        try:
            await _one_round(topology, servers, output)
        except NotReachableError as error:
            console.print_note(f"not published: {error.message}", style="bold red")
        await asyncio.sleep(every)


async def _one_round(topology: Topology, servers: Servers, output: str) -> bool:
    """Whether all beacons were published."""
    async with connect_all(topology, servers.endpoints) as connections:
        any_connection(connections)
        seen = await read_beacons(topology, connections, patience=_PATIENCE)
        problems = await publish_beacons(topology, connections)
    _show(topology, seen, problems, output)
    return not problems


def _show(topology: Topology, seen: tuple[BeaconSighting, ...], problems: tuple[str, ...], output: str) -> None:
    if output == "json":
        document = {
            "topology": topology.name,
            "beacons": [sighting.as_dict() for sighting in seen],
            "problems": list(problems),
        }
        print_json("beacon", document, layout=JsonLayout.LINE)
        return
    console.stdout().print(view.beacon_matrix([region.name for region in topology.regions], seen))
    for problem in problems:
        console.print_note(f"not published: {problem}", style="bold red")
