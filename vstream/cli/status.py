"""`vstream status` and `vstream watch`."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO
from vstream.cli.servers import Servers, find_servers

if TYPE_CHECKING:
    from vstream.health.report import Status
    from vstream.topology.model import Topology

Deadline = Annotated[
    float, typer.Option(help="Seconds after which what has not answered is reported as silent.", min=0.5, max=60)
]


def status(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    deadline: Deadline = 4,
    output: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    lab: options.LabName = None,
) -> None:
    """
    What works right now, and how far each region is behind each other. Writes nothing.

    Lag is what a read stream has still to take: the last sequence of the write stream
    against its own position, and the age of the oldest message that is missing. It is
    not the servers' `lag`, which is 0 also where nothing arrives. Exits with 1 unless
    all is well, with 3 if no server answers.

    Examples: `vstream status`, `vstream status acme.yaml --deadline 2 --format json`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import status as view  # noqa: PLC0415

    if output not in {"text", "json"}:
        raise typer.BadParameter(f"`{output}` is none of text, json", param_hint="--format")
    wanted = options.load_topology(topology).require()
    where = find_servers(wanted, lab)
    picture = run(look(wanted, where, deadline))
    if output == "json":
        typer.echo(_lines(picture.as_dict()))
    else:
        out = console.stdout()
        out.print(view.screen(picture, width=out.width))
    if not picture.is_well:
        raise typer.Exit(NO)


def watch(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    every: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.2, max=3600)] = 2,
    deadline: Deadline = 4,
    lab: options.LabName = None,
) -> None:
    """
    `vstream status`, again and again until Ctrl-C, in place on a terminal of any width.

    Where the output is no terminal, each look is printed below the last one.

    Examples: `vstream watch`, `vstream watch acme.yaml --every 10`
    """
    wanted = options.load_topology(topology).require()
    where = find_servers(wanted, lab)
    run(_watch(wanted, where, every, deadline))


def _lines(found: dict[str, Any]) -> str:
    """*found* as JSON, a line for each part and for each item of a list: Python indents ten times slower than it writes."""

    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=False)

    def part(value: object) -> str:
        if not isinstance(value, list) or not value:
            return text(value)
        items = ",\n    ".join(map(text, value))
        return f"[\n    {items}\n  ]"

    members = ",\n  ".join(f"{text(key)}: {part(value)}" for key, value in found.items())
    return f"{{\n  {members}\n}}"


async def look(topology: Topology, where: Servers, deadline: float) -> Status:
    """One picture. Raises NotReachableError if nothing answers."""
    from vstream.health.live.collect import collect_snapshot  # noqa: PLC0415
    from vstream.health.status import assess  # noqa: PLC0415

    return assess(topology, await collect_snapshot(topology, where.endpoints, deadline=deadline))


async def _watch(topology: Topology, where: Servers, every: float, deadline: float) -> None:
    from rich.live import Live  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import status as view  # noqa: PLC0415
    from vstream.errors import NotReachableError  # noqa: PLC0415

    out = console.stdout()
    with Live(console=out, screen=out.is_terminal, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            began = time.monotonic()
            try:
                seen = view.screen(await look(topology, where, deadline), width=out.width)
            except NotReachableError as error:
                seen = Text.assemble(("✗ ", "bold red"), error.message)
            if out.is_terminal:
                live.update(seen, refresh=True)
            else:
                out.print(seen)
            await asyncio.sleep(max(0.0, every - (time.monotonic() - began)))
