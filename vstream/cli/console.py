"""`vstream console`."""

from __future__ import annotations

import webbrowser
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exporter import Exporter, parse_address
from vstream.cli.servers import find_servers
from vstream.cli.status import expected_bundle
from vstream.cli.views.console import set_log


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    listen: Annotated[str, typer.Option(help="HOST:PORT to serve on; port 0 chooses a free one.")] = "127.0.0.1:0",
    every: Annotated[float, typer.Option(help="Seconds between two checks.", min=0.2, max=3600)] = 2,
    deadline: options.Timeout = 4,
    has_browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the page in a browser, or only print its address.")
    ] = True,
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = False,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Open a live page of what `vstream status` knows in the browser, and serve it until Ctrl-C.

    It shows the regions and the links between them, what arrives where, problems and what to do, the last
    hours, and in a lab the open faults and the step of a scenario. It changes nothing. For a page
    that stays, run `vstream export`: it serves the same page at `/`.

    Examples: `vstream console`, `vstream console --lab acme`, `vstream console acme.yaml --no-browser --listen 127.0.0.1:9478`
    """
    set_log(log_format, is_quiet=is_quiet)
    loaded = options.load_topology(topology).require()
    servers = find_servers(loaded, lab)
    exporter = Exporter(loaded, servers, expected_bundle(loaded, servers, templates), deadline)
    run(exporter.serve(*parse_address(listen), every, webbrowser.open if has_browser else None))
