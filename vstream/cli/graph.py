"""`vstream graph`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.topology import graph

_MOST = 50


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    stream: Annotated[list[str] | None, typer.Option("--stream", "-s", help="Only this virtual stream.")] = None,
    output: Annotated[str, typer.Option("--format", help="mermaid or svg.")] = "mermaid",
) -> None:
    """
    Draw the regions, the physical streams, and what flows between them. Asks no servers.

    Mermaid is drawn by GitHub, GitLab and many wikis where it stands in a `mermaid` code block.

    Examples: `vstream graph`, `vstream graph acme.yaml -s orders --format svg > orders.svg`
    """
    if output not in {"mermaid", "svg"}:
        raise typer.BadParameter(f"`{output}` is none of mermaid, svg", param_hint="--format")
    wanted = options.load_topology(topology).require()
    known = [one.name for one in wanted.streams]
    for name in stream or ():
        if name not in known:
            raise typer.BadParameter(f"`{name}` is none of {', '.join(known)}", param_hint="--stream")
    chosen = [one for one in wanted.streams if one.name in (stream or known)]
    if len(chosen) > _MOST:
        raise typer.BadParameter(
            f"{len(chosen)} streams in one picture show nothing: choose some of them", param_hint="--stream"
        )
    draw = graph.svg if output == "svg" else graph.mermaid
    typer.echo(draw(wanted, chosen), nl=False)
