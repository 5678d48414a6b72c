"""`vstream probe --beacons`."""

from __future__ import annotations

import asyncio

import typer

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


def send_beacons(topology: Topology, lab: str | None, *, every: float | None, is_json: bool) -> None:
    """
    Show how old the newest beacon of each region is in each other region, then publish new ones.

    *every*: seconds between two rounds, until Ctrl-C; None for one round. Exits with 1 if a beacon could not be
    published. Raises VstreamError where no stream of *topology* takes beacons.
    """
    if not streams_with_beacons(topology):
        raise VstreamError(
            "no stream takes beacons", hint="give one a subject for them: `canary: foo._canary.*` in the topology"
        )
    servers = find_servers(topology, lab)
    work = _send_once(topology, servers, is_json) if every is None else _repeat(topology, servers, every, is_json)
    if not run(work):
        raise typer.Exit(NO)


async def _repeat(topology: Topology, servers: Servers, every: float, is_json: bool) -> bool:
    """Rounds without end: an outage is what beacons are there to show."""
    while True:
        try:
            await _send_once(topology, servers, is_json)
        except NotReachableError as error:
            console.print_note(f"not published: {error.message}", style="bold red")
        await asyncio.sleep(every)


async def _send_once(topology: Topology, servers: Servers, is_json: bool) -> bool:
    """Whether all beacons were published."""
    async with connect_all(topology, servers.endpoints) as connections:
        any_connection(connections)
        seen = await read_beacons(topology, connections, patience=_PATIENCE)
        problems = await publish_beacons(topology, connections)
    _show(topology, seen, problems, is_json)
    return not problems


def _show(topology: Topology, seen: tuple[BeaconSighting, ...], problems: tuple[str, ...], is_json: bool) -> None:
    if is_json:
        document = {
            "topology": topology.name,
            "beacons": [sighting.as_dict() for sighting in seen],
            "problems": list(problems),
        }
        print_json("probe-beacons", document, layout=JsonLayout.LINE)
        return
    console.stdout().print(view.beacon_matrix([region.name for region in topology.regions], seen))
    for problem in problems:
        console.print_note(f"not published: {problem}", style="bold red")
