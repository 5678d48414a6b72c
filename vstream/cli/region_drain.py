"""`vstream region drain`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.apply.region_change import LOOK_TIMEOUT, PlannedChange, RegionRequest, drain, undo_drain
from vstream.apply.wait_for_gates import GATE_TIMEOUT
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO, exit_unless_yes
from vstream.cli.region_steps import load_edit, make_observer, make_request, report_end_or_exit
from vstream.cli.views import console
from vstream.cli.views import region as view
from vstream.cli.views.json_output import print_json
from vstream.errors import UnknownNameError
from vstream.health.live.drain import DrainState, wait_until_server_empty
from vstream.plan.model import Plan
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.target_servers import make_target


def command(
    target: Annotated[str, typer.Argument(help="The region, or one server.", metavar="REGION|SERVER")],
    file: options.TopologyFile = options.DEFAULT_FILE,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="REGION", help="Who takes the region's publishes. Default: the next region."),
    ] = None,
    yes: options.Yes = False,
    is_undone: Annotated[bool, typer.Option("--undo", help="Let the region take publishes again.")] = False,
    gate_timeout: options.GateTimeout = GATE_TIMEOUT,
    ship_with: options.ShipWith = None,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Empty a region, or relieve a server, so that it can be stopped without losing anything; and say when it is safe.

    A region: its clients' publishes go to another region's write streams, homes of `homed` streams move there, leaders step down, and
    every other region takes what is left. With `--yes`, it writes `drained` into the region in the topology file and carries the plan
    out. Stopped anywhere, run it again. Clients that are connected stay: they list servers of another region, and go there when
    the servers stop. Once they are back, `--undo` brings publishes and homes back.

    A server: others take over what it leads, and you see whether each stream can do without it. There is nothing to undo.

    Exits with 0 if it is safe to stop, with 1 if not, and with 3 if not everything could be seen. Changes nothing without `--yes`.

    Examples: `vstream region drain west`, `vstream region drain west acme.yaml --yes`, `vstream region drain west --undo --yes`, `vstream region drain west-1 --yes`
    """
    before = load_edit(file)
    current, is_json = before.topology, output_format == "json"
    names = [region.name for region in current.regions]
    if target in names:
        request = make_request(target, before, lab, templates, yes=yes, ship_with=ship_with, gate_timeout=gate_timeout)
        observer = make_observer(current, names_servers=True, is_json=is_json)
        change = run(undo_drain(request, observer) if is_undone else drain(request, observer, taker=to))
        _report_region(request, change, is_undone=is_undone, is_json=is_json)
        return
    if target not in [seat.server.name for seat in current.all_seats]:
        raise UnknownNameError(f"there is no region or server `{target}`", hint=f"there are {', '.join(names)}")
    options.refuse_options("has no effect for a server", {"--to": to, "--undo": is_undone})
    within = gate_timeout if yes else LOOK_TIMEOUT
    servers = find_and_trust_servers(current, lab)
    reached = make_target(current, servers)
    seen = run(wait_until_server_empty(current, reached, target, within=within, moves_leaders=yes))
    _report_drain_state(target, seen, plan=None, is_json=is_json, is_done=yes, servers=[target])


def _report_region(request: RegionRequest, change: PlannedChange, *, is_undone: bool, is_json: bool) -> None:
    region, topology, plan = request.region, request.before.topology, change.planned.plan
    if change.drain_state is not None:
        servers = [seat.server.name for seat in topology.all_seats if seat.region == region]
        _report_drain_state(region, change.drain_state, plan, is_json=is_json, is_done=change.is_done, servers=servers)
        return
    reason = f"{region} is not drained: it is not safe to stop"
    if is_json:
        seen = None if is_undone else DrainState(obstacles=(reason,))
        print_json("drain", view.drain_as_dict(region, seen, plan, is_done=change.is_done))
    report_end_or_exit(change, f"Region {region} takes publishes again. {request.before.file} says so: commit it.")
    if not is_undone:
        console.print_problem(f"{reason}.")
        raise typer.Exit(NO)


def _report_drain_state(
    target: str, seen: DrainState, plan: Plan | None, *, is_json: bool, is_done: bool, servers: list[str]
) -> None:
    """Show what was seen, and exit with whether it is safe. *plan* is None for a server: nothing is planned for one."""
    if is_json:
        print_json("drain", view.drain_as_dict(target, seen, plan, is_done=is_done))
    else:
        console.print_lines(view.describe_drain(seen, target, servers, is_done=is_done))
    exit_unless_yes(is_no=bool(seen.obstacles), is_unknown=bool(seen.unknown))
