"""`vstream probe --beacons`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

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
Round = Callable[[], Coroutine[Any, Any, bool]]


def send_beacons(file: Path, lab: str | None, *, every: float | None, is_json: bool) -> None:
    """
    Show how old the newest beacon of each region is in each other region, then publish new ones.

    *every*: seconds between two rounds, until Ctrl-C; None for one round. Exits with 1 if a beacon could not be
    published. Raises VstreamError where no stream of the topology in *file* takes beacons.
    """

    def prepare(newest: Topology) -> Round:
        if not streams_with_beacons(newest):
            hint = "give one a subject for them: `canary: foo._canary.*` in the topology"
            raise VstreamError("no stream takes beacons", hint=hint)
        return partial(_send_once, newest, find_servers(newest, lab), is_json)

    followed = options.FollowedTopology(file, prepare)
    if not run(followed.latest()() if every is None else _repeat(followed.latest, every)):
        raise typer.Exit(NO)


async def _repeat(latest: Callable[[], Round], every: float) -> bool:
    """Rounds without end: an outage is what beacons are there to show."""
    while True:
        try:
            await latest()()
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
