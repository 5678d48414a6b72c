"""`vstream repair meta`."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.failover import system_endpoints
from vstream.cli.servers import Servers, find_servers
from vstream.cli.views import console
from vstream.cli.views import rescue as view
from vstream.cli.views.json_output import print_json
from vstream.errors import VstreamError
from vstream.health.live.rescue import MetaGroup, choose_groups, find_groups, rescue
from vstream.health.live.resync import resync
from vstream.topology.model import Topology

_CAUGHT_UP = 60.0


def command(
    topology: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Recover when more than half of the meta group's servers are dead for good: streams and consumers can be changed again.

    Dials every server and asks the system account of every region who answers. With `--yes`, on 2.15 and newer: the
    remaining servers lower their quorum (`META.RESCUE`), elect a leader, forget the dead, and source again. Before 2.15 it
    says which servers to start or to update. Stopped anywhere, run it again.

    Exits with 1 if the quorum is there or nothing can be done, and with 3 if a server may be alive.
    Changes nothing without `--yes`.

    Examples: `vstream repair meta`, `vstream repair meta acme.yaml --yes`
    """
    loaded = options.load_topology(topology).require()
    where = find_servers(loaded, lab)
    system = system_endpoints(where, [region.name for region in loaded.regions])
    groups = run(find_groups(loaded, where.endpoints, system))
    is_json = output == "json"
    if not is_json:
        console.print_note(f"{loaded.name} on {where.description}")
        console.print_lines(view.text(groups))
    chosen = choose_groups(groups)
    for group in chosen if yes else ():
        run(rescue(loaded, group, system, lambda step: console.print_note(f"  {step}")))
    if is_json:
        print_json("rescue", view.as_dict(loaded.name, groups, is_done=yes and bool(chosen)))
    if not chosen and any(group.refusal is None for group in groups):
        console.print_note("Nothing was changed: a server may be alive.", style="bold yellow")
        raise typer.Exit(FAILED)
    if not chosen:
        console.print_note("Nothing was changed: there is nothing that could be rescued.")
        raise typer.Exit(NO)
    if not yes:
        console.print_note("Nothing was changed: pass `--yes` to do it.")
        return
    console.print_note(
        "The JetStream API is back. Never start the dead servers again with their old disks.", style="bold green"
    )
    _resync(loaded, where, chosen)


def _resync(topology: Topology, where: Servers, groups: Sequence[MetaGroup]) -> None:
    """Make every read stream source again; a region that died as a whole has write streams that nobody leads."""
    dead = {server for group in groups for server in group.dead}
    gone = [region.name for region in topology.regions if {server.name for server in region.servers} <= dead]
    if gone:
        command = " --also ".join(gone)
        console.print_note(f"Dead: {', '.join(gone)}. Go on with `vstream region failover {command}`.")
        return
    try:
        run(resync(topology, find_target_servers(topology, where.lab), timeout=_CAUGHT_UP))
    except VstreamError as error:
        console.print_note(
            f"Not all read streams were refreshed: {error.message}. `vstream repair sources` tries again."
        )
