"""`vstream graph`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from vstream.cli import options
from vstream.cli.views import graph
from vstream.cli.views.json_output import print_json

_MAX_STREAMS = 50


def command(
    file: options.TopologyFile = options.DEFAULT_FILE,
    stream: options.StreamNames = None,
    output_format: Annotated[
        Literal["mermaid", "svg", "json"], typer.Option("--format", help="How the picture is written.")
    ] = "mermaid",
) -> None:
    """
    Draw the regions, the physical streams, and what replicates where. Connects to no server.

    GitHub, GitLab and many wikis draw Mermaid that is in a `mermaid` code block.

    Examples: `vstream graph`, `vstream graph acme.yaml -s orders --format svg > orders.svg`
    """
    topology = options.check_topology_file(file).require()
    names = options.choose_streams(topology, stream)
    streams = [virtual for virtual in topology.streams if virtual.name in names]
    if output_format == "json":
        print_json("graph", graph.as_dict(topology, streams))
        return
    if len(streams) > _MAX_STREAMS:
        raise typer.BadParameter(
            f"a graph of {len(streams)} streams is unreadable: choose at most {_MAX_STREAMS}", param_hint="--stream"
        )
    draw = graph.draw_svg if output_format == "svg" else graph.draw_mermaid
    typer.echo(draw(topology, streams), nl=False)
