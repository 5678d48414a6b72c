"""`vstream status` and `vstream watch`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.live import Live
from rich.text import Text

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import FAILED, NO, OK
from vstream.cli.servers import Servers, build_bundle, find_servers
from vstream.cli.views import console
from vstream.cli.views import status as view
from vstream.cli.views.json_output import JsonLayout, print_json
from vstream.errors import InvalidInputError, NotReachableError, VstreamError
from vstream.health.loaded_mappings import mappings_bundle
from vstream.health.pipeline import read_status
from vstream.health.report import StatusVerdict

if TYPE_CHECKING:
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Topology

Deadline = Annotated[
    float,
    typer.Option(help="Seconds to wait. What has not answered by then is reported as silent.", min=0.5, max=60),
]
_EXIT_CODES = {StatusVerdict.OK: OK, StatusVerdict.DEGRADED: NO, StatusVerdict.UNKNOWN: FAILED}


def status(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    deadline: Deadline = 4,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Show what works right now, and how far each region is behind each other. Changes nothing.

    Lag is what a read stream has not taken yet: the last sequence of the write stream
    against its own position, and the age of the oldest missing message. It is not the
    servers' `lag`, which is 0 even where nothing arrives. Publishing also needs the
    mapping rules: they are read from every server that `monitor` names.

    Exits with 0 if all is well and with 1 if something is wrong. Exits with 3 if nothing
    is known to be wrong but not everything could be checked, or if no server answers.

    Examples: `vstream status`, `vstream status acme.yaml --deadline 2 --format json`
    """
    loaded = options.load_topology(topology).require()
    servers = find_servers(loaded, lab)
    bundle = expected_bundle(loaded, servers, templates)
    seen = run(read_status(loaded, servers.endpoints, bundle, deadline=deadline))
    if output == "json":
        print_json("status", seen.as_dict(), layout=JsonLayout.ROWS)
    else:
        out = console.stdout()
        out.print(view.screen(seen, width=out.width))
    raise typer.Exit(_EXIT_CODES[seen.verdict])


def watch(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.2, max=3600)] = 2,
    deadline: Deadline = 4,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Repeat `vstream status` until Ctrl-C, in place on a terminal of any width.

    Where the output is not a terminal, each look is printed below the last one.

    Examples: `vstream watch`, `vstream watch acme.yaml --every 10`
    """
    loaded = options.load_topology(topology).require()
    servers = find_servers(loaded, lab)
    run(_watch(loaded, servers, expected_bundle(loaded, servers, templates), every, deadline))


def expected_bundle(topology: Topology, servers: Servers, templates: Path | None) -> Bundle | str:
    """What *servers* should have loaded; or why that is not known here: keys may be on another machine."""
    if templates is None and not topology.has_accounts:
        return mappings_bundle(topology)
    try:
        return build_bundle(topology, servers, templates)
    except InvalidInputError:
        raise
    except VstreamError as error:
        return error.message


async def _watch(topology: Topology, servers: Servers, bundle: Bundle | str, every: float, deadline: float) -> None:
    out = console.stdout()
    with Live(console=out, screen=out.is_terminal, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            began = time.monotonic()
            try:
                seen = await read_status(topology, servers.endpoints, bundle, deadline=deadline)
                screen = view.screen(seen, width=out.width)
            except NotReachableError as error:
                screen = Text.assemble(("✗ ", "bold red"), error.message)
            if out.is_terminal:
                live.update(screen, refresh=True)
            else:
                out.print(screen)
            await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))
