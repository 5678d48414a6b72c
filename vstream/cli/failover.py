"""`vstream failover`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from vstream.cli import options
from vstream.cli.apply import carry_out, report
from vstream.cli.asyncio_runner import run
from vstream.cli.chaos.session import find_target_servers
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.plan_request import Planned, plan_servers
from vstream.cli.servers import Servers, find_servers
from vstream.cli.shipping import Shipping
from vstream.cli.views import console
from vstream.cli.views import failover as view
from vstream.cli.views import plan as plan_view
from vstream.cli.views.json_output import print_json
from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.files import save_output
from vstream.health.live.resync import resync
from vstream.lab import lab as labs
from vstream.lab.status import system_endpoint
from vstream.lint.load_topology import load
from vstream.plan.live.lost_region import choose_homes
from vstream.plan.live.witnesses import DeathProof, hear_witnesses, remove_peers
from vstream.topology.model import Endpoint, Region, Topology
from vstream.topology.region_keys import LOST, add_region_key, remove_region_key

RegionName = Annotated[str, typer.Argument(help="The region.", metavar="REGION")]
GateTimeout = Annotated[
    float, typer.Option("--gate-timeout", metavar="SECONDS", help="How long to wait for each gate.", min=0)
]
ShipWith = Annotated[
    str | None,
    typer.Option("--ship-with", metavar="COMMAND", help="As with `apply`: run this for each server before it reloads."),
]
_CAUGHT_UP = 120.0
"""Seconds that readers get to take again from what has moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyEdit:
    """A topology file, and what it will say."""

    file: Path
    text: str
    topology: Topology

    def save(self) -> None:
        """Write it: from then on the file says what is so, and every command continues from there."""
        save_output(self.file, self.text)

    def carry_out(self, planned: Planned, gate_timeout: float, ship_with: str | None, *, is_quiet: bool) -> None:
        """Write it, carry out the plan of it, and make read streams that stand still source again at once. Exits unless all is done."""
        self.save()
        applied, left = run(carry_out(planned, gate_timeout, Shipping(command=ship_with, loaded_timeout=None)))
        if not is_quiet or not applied.is_complete or (left is not None and not left.is_empty):
            report(planned, applied, left, is_verbose=False)
        site = find_target_servers(self.topology, planned.where.lab)
        result = run(resync(self.topology, site, timeout=_CAUGHT_UP, spares=True))
        behind = [stream.stream for stream in result.streams if stream.active is None]
        if behind:
            console.print_note(f"{', '.join(behind)} will source again later: `vstream resync` says when.")


def command(
    region: RegionName,
    topology: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    is_declared: Annotated[
        bool, typer.Option("--declare-dead", help="Confirm that it is dead, if not every server could be asked.")
    ] = False,
    gate_timeout: GateTimeout = 300,
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

    Examples: `vstream failover west`, `vstream failover west acme.yaml --yes`
    """
    current = options.load_topology(topology).require()
    where = find_servers(current, lab)
    proof = run(_prove(current, region, where))
    is_json = output == "json"
    if not is_json:
        console.print_note(f"{current.name} on {where.description}")
        _print(view.describe_proof(proof))
    if proof.alive or (proof.unknown and not is_declared):
        if is_json:
            print_json("failover", view.as_dict(proof, region, {}, None, is_done=False))
        elif not proof.alive:
            console.print_note("Pass `--declare-dead` if you know it. Nothing was changed.")
        raise typer.Exit(NO if proof.alive else FAILED)
    edit, homes = _mark_lost(topology, current, region, where)
    planned = run(plan_servers(edit.topology, lab, templates))
    if not is_json:
        _print((*view.describe_homes(homes), *plan_view.text(planned.plan)))
    is_done = yes and not planned.plan.blocked
    if is_done:
        edit.carry_out(planned, gate_timeout, ship_with, is_quiet=is_json)
        _remove_from_meta_group(edit.topology, region, where)
    if is_json:
        print_json("failover", view.as_dict(proof, region, homes, planned.plan, is_done=is_done))
    end(planned, is_done, f"Region {region} is given up. {topology} says so: commit it.")


def _print(lines: Iterable[Text]) -> None:
    for line in lines:
        console.stdout().print(line)


def end(planned: Planned, is_done: bool, success: str) -> None:
    """Say whether anything was changed, and exit with 1 if something is blocked."""
    if is_done:
        console.print_note(success, style="bold green")
        return
    if planned.plan.blocked:
        console.print_note("Nothing was changed: resolve what is blocked first.", style="bold red")
        raise typer.Exit(NO)
    console.print_note("Nothing was changed: pass `--yes` to do it.")


def find_region(topology: Topology, name: str) -> Region:
    """The region called *name*, lost or not. Raises UnknownNameError."""
    regions = {region.name: region for region in (*topology.regions, *(lost.region for lost in topology.lost))}
    if name not in regions:
        raise UnknownNameError(f"there is no region `{name}`", hint=f"there are {', '.join(regions)}")
    return regions[name]


async def _prove(topology: Topology, region: str, where: Servers) -> DeathProof:
    witnesses = [candidate.name for candidate in topology.regions if candidate.name != region]
    if not witnesses:
        raise RefusedError(f"there is no region besides `{region}`", hint="nothing could take its place")
    return await hear_witnesses(
        find_region(topology, region), where.endpoints, witnesses, system_endpoints(where, witnesses)
    )


def system_endpoints(where: Servers, regions: list[str]) -> Mapping[str, Endpoint]:
    """How the system account is reached in *regions*, as far as that is known."""
    if where.lab is not None:
        living = {address.region for address in labs.addresses(where.lab)} & {*regions}
        return {region: system_endpoint(where.lab, region) for region in sorted(living)}
    logins = {region: where.endpoints[region].system for region in regions if region in where.endpoints}
    return {region: login for region, login in logins.items() if login is not None}


def _mark_lost(file: Path, topology: Topology, region: str, where: Servers) -> tuple[TopologyEdit, Mapping[str, str]]:
    """The topology in which *region* is lost, and its homed streams' new homes; as it is where an earlier run wrote it."""
    text = read_text(file)
    if lost := next((lost for lost in topology.lost if lost.name == region), None):
        return TopologyEdit(file=file, text=text, topology=topology), lost.homes
    homes = run(choose_homes(topology, region, where.endpoints))
    return write_region_key(file, text, region, LOST, homes), homes


def write_region_key(file: Path, text: str, region: str, key: str, value: str | Mapping[str, str]) -> TopologyEdit:
    """The topology in *file*, whose text is *text*, with *key* in *region*. Raises VstreamError if it must be written by hand."""
    spelled: object = value
    if not isinstance(value, str):
        spelled = f"{{{', '.join(f'{name}: {home}' for name, home in sorted(value.items()))}}}"
    edited = add_region_key(text, region, key, value)
    return _edit(file, edited, f"write `{key}: {spelled}` into region `{region}` yourself")


def remove_key(file: Path, text: str, region: str, key: str) -> TopologyEdit:
    """The topology in *file*, whose text is *text*, without *key* in *region*. Raises VstreamError if that must be done by hand."""
    return _edit(file, remove_region_key(text, region, key), f"take `{key}` out of region `{region}` yourself")


def _edit(file: Path, edited: str | None, hint: str) -> TopologyEdit:
    if edited is None:
        raise VstreamError(f"{file} cannot be changed by vstream", hint=f"{hint}, and run this again")
    changed = load(edited.encode(), str(file), options.read_overlays()).require()
    return TopologyEdit(file=file, text=edited, topology=changed)


def read_text(file: Path) -> str:
    """What *file* says; nothing for standard input, which cannot be written."""
    return options.read_bytes(file, limit=-1).decode("utf-8-sig") if str(file) != "-" else ""


def _remove_from_meta_group(topology: Topology, region: str, where: Servers) -> None:
    """Its servers have no vote any more. A lab's are gone by now."""
    if where.lab is not None:
        return
    names = [server.name for server in find_region(topology, region).servers]
    system = system_endpoints(where, [living.name for living in topology.regions])
    if system:
        run(remove_peers(system, names))
        return
    console.print_note(f"Have the meta group forget {', '.join(names)}, with the system account:")
    console.print_note("nats server cluster peer-remove SERVER")
