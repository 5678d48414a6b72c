"""`vstream repair`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import inputs
from vstream.cli.outcome import NO
from vstream.cli.running import run

if TYPE_CHECKING:
    from vstream.doctor.repair import Refill
    from vstream.model.topology import Topology
    from vstream.picture.report import Picture


def command(
    topology: inputs.TopologyFile = inputs.DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it. Without, only show what would be done.")] = False,
    deadline: Annotated[
        float, typer.Option(help="Seconds after which what has not answered is reported as silent.", min=0.5, max=300)
    ] = 10,
    output: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    lab: inputs.LabName = None,
) -> None:
    """
    Give write streams back the end that they have lost, before anybody publishes there again.

    After a power loss or a restored backup, a write stream ends before what its readers
    have taken: what is published next is acknowledged, and skipped everywhere else. The
    readers still hold what is gone. It is published again under the sequences that it had,
    each message naming the one before it, so that nobody else's message can come between.
    Shows what it would do, and does it with `--yes`. Exits with 0 if there is nothing
    (left) to repair, with 1 if there is, or if not all streams answer.

    Examples: `vstream repair`, `vstream repair acme.yaml --yes`, `vstream repair --format json`
    """
    from vstream.picture.report import State  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415
    from vstream.ui import repair as view  # noqa: PLC0415

    if output not in {"text", "json"}:
        raise typer.BadParameter(f"`{output}` is none of text, json", param_hint="--format")
    wanted = _tried(inputs.load(topology).require())
    where = inputs.target(wanted, lab)
    picture, found = run(_look(wanted, where, deadline))
    standing = [pair for pair in picture.pairs if pair.state in {State.SILENT, State.UNKNOWN}]
    if output == "text":
        console.say(f"{wanted.name} on {where.description}")
        for line in view.text(found, standing):
            console.out().print(line)
    ready = [one for one in found if one.blocked is None]
    if yes and ready:
        for one in ready:
            run(_refill(one, wanted, where))
        if output == "text":
            for line in view.done(ready):
                console.out().print(line)
    if output == "json":
        repaired = [one.lost.origin for one in ready] if yes else []
        document = {"topology": wanted.name, "refills": [one.as_dict() for one in found], "repaired": repaired}
        typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
    if len(ready) < len(found) or standing or (found and not yes):
        raise typer.Exit(NO)


def _tried(topology: Topology) -> Topology:
    """*topology*, if repairs have been tried with its `routing`. Raises VstreamError."""
    from vstream.errors import VstreamError  # noqa: PLC0415
    from vstream.model.topology import Routing  # noqa: PLC0415

    if topology.routing is Routing.DOMAINS:
        raise VstreamError(
            f"`{topology.name}` has `routing: domains`, where nobody has tried a repair yet",
            hint="`vstream doctor` says what is lost, and which read streams hold it",
        )
    return topology


async def _look(topology: Topology, where: inputs.Target, deadline: float) -> tuple[Picture, tuple[Refill, ...]]:
    from vstream.doctor.repair import lost_ends  # noqa: PLC0415
    from vstream.jetstream import refill  # noqa: PLC0415
    from vstream.jetstream.connection import Connection  # noqa: PLC0415
    from vstream.jetstream.gather import gather  # noqa: PLC0415
    from vstream.jetstream.observe import connect_all  # noqa: PLC0415
    from vstream.picture.judge import judge  # noqa: PLC0415

    facts = await gather(topology, where.endpoints, deadline=deadline)
    picture = judge(topology, facts)
    ends = lost_ends(picture)
    if not ends:
        return picture, ()
    async with connect_all(topology, where.endpoints) as opened:
        connections = {region: one for region, one in opened.items() if isinstance(one, Connection)}
        return picture, tuple([await refill.look(topology, end, facts.streams, connections) for end in ends])


async def _refill(wanted: Refill, topology: Topology, where: inputs.Target) -> None:
    from vstream.jetstream import refill  # noqa: PLC0415
    from vstream.jetstream.connection import connect  # noqa: PLC0415
    from vstream.ui import console  # noqa: PLC0415

    with console.progress() as progress:
        task = progress.add_task(wanted.lost.origin, total=wanted.lost.taken - wanted.lost.last)
        region = refill.region_of(topology, wanted.lost)
        async with connect(where.endpoints[region], region) as connection:
            await refill.refill(
                wanted, connection, lambda count, total: progress.update(task, completed=count, total=total)
            )
