"""`vstream repair messages`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.servers import find_servers
from vstream.cli.views import console
from vstream.cli.views.json_output import print_json
from vstream.cli.views.repair import RepairView, render_end
from vstream.health.repair.pipeline import RepairKind, RepairRequest, repair, select


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair. Without it, only show what would be done.")] = False,
    kind: Annotated[list[RepairKind] | None, typer.Option("--kind", help="Only this kind. Can be repeated.")] = None,
    stream: options.StreamNames = None,
    deadline: options.Timeout = 10,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Bring streams back to what was written: after a power loss, a restored backup, a skipped or repeated message.

    Shows what it would do, and does it with `--yes`, in this order: `clear` removes what an interrupted repair has
    left. `resume` makes readers that take nothing ask again. `refill` publishes the lost end of a write stream again,
    as its readers hold it. `replay` puts skipped messages into a read stream, and `delete` removes duplicates: these
    two read the streams from their beginning.

    Exits with 0 if nothing is (left) to repair, with 1 if something is, and with 3 if that is not known because a stream did not answer.

    Examples: `vstream repair messages`, `vstream repair messages acme.yaml --yes`, `vstream repair messages --kind refill --kind resume`,
    `vstream repair messages --stream foo --kind replay --yes`, `vstream repair messages --format json`
    """
    loaded = options.load_topology(topology).require()
    kinds, streams = select(loaded, kind or [], stream or [])
    servers = find_servers(loaded, lab)
    request = RepairRequest(
        topology=loaded,
        endpoints=servers.endpoints,
        target=find_target_servers(loaded, lab),
        kinds=kinds,
        streams=streams,
        deadline=deadline,
        is_approved=yes,
    )
    if output != "json":
        console.print_note(f"{loaded.name} on {servers.description}")
    result = run(repair(request, RepairView(is_text=output != "json")))
    if output == "json":
        print_json("repair", result.as_dict())
    else:
        console.print_lines(render_end(result))
    if result.needs_more:
        raise typer.Exit(FAILED if result.is_unknown else NO)
