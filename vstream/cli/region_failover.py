"""`vstream region failover`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from vstream.apply.execute import GATE_TIMEOUT
from vstream.apply.pipeline import prove_dead, refresh_silent_readers
from vstream.apply.shipping import ShippingOptions
from vstream.cli import options
from vstream.cli.apply import GateTimeout, apply_with_progress, report_applied_or_exit
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO, UNKNOWN
from vstream.cli.plan import plan_with_progress
from vstream.cli.views import apply as apply_view
from vstream.cli.views import console
from vstream.cli.views import plan as plan_view
from vstream.cli.views import region as view
from vstream.cli.views.json_output import print_json
from vstream.plan.live.lost_region import give_up
from vstream.plan.live.witnesses import remove_peers
from vstream.plan.pipeline import require_nothing_lost
from vstream.plan.plan import Plan
from vstream.plan.topology_edit import TopologyEdit
from vstream.servers.find_servers import Servers, find_servers, find_system_endpoints
from vstream.servers.server_plan import ServerPlan
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Topology
from vstream.value_class import value_class

RegionName = Annotated[str, typer.Argument(help="The region.", metavar="REGION")]
ShipWith = Annotated[
    str | None,
    typer.Option("--ship-with", metavar="COMMAND", help="As with `apply`: run this for each server before it reloads."),
]


@value_class
class EditOptions:
    """How a command carries out a change of the topology file."""

    is_allowed: bool
    """Whether anything may be changed: `--yes`."""
    gate_timeout: float
    ship_with: str | None
    is_json: bool


def carry_out_edit(edit: TopologyEdit, planned: ServerPlan, how: EditOptions) -> tuple[Plan, bool]:
    """
    Where *how* allows it and nothing is blocked, write *edit*, carry out the plan of it, and make readers source again.

    Returns the plan of what is left, and whether anything was done. Exits unless all is done. Raises RefusedError where
    the plan loses what nobody has given up.
    """
    require_nothing_lost(planned.plan, edit.topology)
    if not how.is_allowed or planned.plan.blocked:
        return planned.plan, False
    edit.save()
    shipping = ShippingOptions(command=how.ship_with)
    applied, left = run(apply_with_progress(planned, how.gate_timeout, shipping))
    if not how.is_json or not applied.is_complete or (left is not None and not left.is_empty):
        report_applied_or_exit(planned, applied, left, is_verbose=False)
    behind = run(refresh_silent_readers(edit.topology, planned.servers))
    if behind:
        console.print_note(f"{', '.join(behind)} will source again later: `vstream repair sources` says when.")
    return planned.plan if left is None else left, True


def load_edit(file: Path, topology: Topology) -> TopologyEdit:
    """*topology* as *file* says it; standard input, which cannot be written, says nothing."""
    text = options.read_bytes(file, limit=-1).decode("utf-8-sig") if str(file) != "-" else ""
    return TopologyEdit(file=str(file), text=text, original=text, topology=topology, overlays=options.read_overlays())


def command(
    region: RegionName,
    topology: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    is_declared: Annotated[
        bool, typer.Option("--declare-dead", help="Confirm that it is dead, if not every server could be asked.")
    ] = False,
    also: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="A region that is dead, too. Can be repeated.")
    ] = None,
    gate_timeout: GateTimeout = GATE_TIMEOUT,
    ship_with: ShipWith = None,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Give up a region that is dead for good, and continue without it: homes of `homed` streams move to the furthest copy.

    Asks everybody who would know whether the region is dead: its own addresses, the gateways of every other server, the
    system account. Shows what is lost with it, by origin, and the plan. With `--yes`, it writes `lost` into the region in
    the topology file, which every command reads from then on, and carries the plan out. Stopped anywhere, run it again.

    Exits with 1 if anything of the region answers or something is blocked, and with 3 if not everybody could be asked.
    Changes nothing without `--yes`.

    Examples: `vstream region failover west`, `vstream region failover west acme.yaml --also central --yes`
    """
    current = options.read_topology_file(topology).require()
    servers = find_servers(current, lab)
    regions = tuple(dict.fromkeys((region, *(also or ()))))
    proof = run(prove_dead(current, regions, servers))
    is_json = output == "json"
    if not is_json:
        console.print_note(servers.describe_with(current))
        console.print_lines(view.describe_proof(proof))
    if proof.alive or (proof.unknown and not is_declared):
        if is_json:
            print_json("failover", view.as_dict(proof, regions, {}, None, is_done=False))
        elif not proof.alive:
            console.print_note(
                "Pass `--declare-dead` if you know it, and `--also REGION` for each region that is dead, too. "
                "Nothing was changed."
            )
        raise typer.Exit(NO if proof.alive else UNKNOWN)
    edit, homes = run(give_up(load_edit(topology, current), regions, servers.endpoints))
    planned = run(plan_with_progress(edit.topology, lab, templates))
    if not is_json:
        console.print_lines((*view.describe_homes(homes), *plan_view.render_plan(planned.plan, is_allowed=True)))
    how = EditOptions(is_allowed=yes, gate_timeout=gate_timeout, ship_with=ship_with, is_json=is_json)
    left, is_done = carry_out_edit(edit, planned, how)
    if is_done:
        _remove_from_meta_group(edit.topology, regions, servers)
    if is_json:
        print_json("failover", view.as_dict(proof, regions, homes, planned.plan, is_done=is_done))
    report_end_or_exit(edit.topology, left, is_done, f"Given up: {', '.join(regions)}. {topology} says so: commit it.")


def report_end_or_exit(topology: Topology, plan: Plan, is_done: bool, success: str) -> None:
    """Say what was changed. Exits with 1 if something is refused, and with 3 where nobody knows."""
    if is_done:
        if plan.unknown_servers:
            for line in apply_view.describe_unknown_rules(plan, loaded_path(topology)):
                console.print_note(line.plain)
            raise typer.Exit(UNKNOWN)
        console.print_note(success, style="bold green")
        return
    if plan.blocked:
        console.print_problem("Nothing was changed: resolve what is blocked first.")
        raise typer.Exit(NO if plan.is_refused else UNKNOWN)
    console.print_note("Nothing was changed: pass `--yes` to do it.")


def _remove_from_meta_group(topology: Topology, regions: Sequence[str], servers: Servers) -> None:
    """Their servers have no vote any more. A lab's are gone by now."""
    if servers.lab is not None:
        return
    names = [server for region in regions for server in topology.server_names_in(region)]
    system = find_system_endpoints(servers, [living.name for living in topology.regions])
    if system:
        run(remove_peers(system, names))
        return
    console.print_note(f"Have the meta group forget {', '.join(names)}, with the system account:")
    console.print_note("nats server cluster peer-remove SERVER")
