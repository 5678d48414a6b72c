"""`vstream region failback`."""

from __future__ import annotations

from vstream.apply.execute import GATE_TIMEOUT
from vstream.apply.pipeline import start_missing_servers
from vstream.cli import options
from vstream.cli.apply import GateTimeout
from vstream.cli.asyncio_runner import run
from vstream.cli.plan import plan_with_progress
from vstream.cli.region_failover import EditOptions, RegionName, ShipWith, carry_out_edit, load_edit, report_end_or_exit
from vstream.cli.views import console
from vstream.cli.views import plan as plan_view
from vstream.cli.views import region as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import show_readiness
from vstream.errors import RefusedError
from vstream.lab.status import read_lab_status
from vstream.plan.live.witnesses import require_empty, wait_for_members
from vstream.plan.pipeline import require_nothing_lost
from vstream.servers.find_servers import Servers, find_servers
from vstream.topology.model import Topology


def command(
    region: RegionName,
    topology: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    gate_timeout: GateTimeout = GATE_TIMEOUT,
    ship_with: ShipWith = None,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Take a region that was rebuilt back in: its streams are created again, and homes move back.

    Start its servers first, with empty disks and the files that `vstream render` writes for the topology without `lost`; a lab
    starts them itself. Servers accept a removed name in the meta group only five minutes later: the command waits for it.
    With `--yes`, it takes `lost` out of the topology file and carries the plan out: the region's streams get the whole
    history from another region, and clients are sent to them once they have it. Stopped anywhere, run it again.

    Exits with 1 if something is refused, with 3 if no server answered for a stream. Changes nothing without `--yes`.

    Examples: `vstream region failback west`, `vstream region failback west acme.yaml --yes`
    """
    current = options.read_topology_file(topology).require()
    edit = load_edit(topology, current).take_in(region)
    servers = find_servers(current, lab)
    seats = {seat.server.name for seat in edit.topology.all_seats if seat.region == region}
    is_json = output == "json"
    if servers.lab is None:
        _check_servers(servers, edit.topology, region, is_new=edit.topology is not current, is_waiting=yes)
    elif yes:
        if not _list_running(servers.lab, seats):
            require_nothing_lost(run(plan_with_progress(current, lab, templates)).plan, current)
        # The file comes second: a lab without servers that its file has is refused. Those that an earlier run has started may
        # not be let in yet.
        with show_readiness("starting") as show:
            run(start_missing_servers(servers.lab, edit.topology, templates, show))
    elif _list_running(servers.lab, seats) != seats:
        if is_json:
            print_json("failback", view.as_dict(None, (region,), {}, None, is_done=False))
        console.print_note(f"The lab will start the servers of {region}. Nothing was changed: pass `--yes` to do it.")
        return
    planned = run(plan_with_progress(edit.topology, lab, templates))
    if not is_json:
        console.print_lines(plan_view.render_plan(planned.plan, is_allowed=True))
    how = EditOptions(is_allowed=yes, gate_timeout=gate_timeout, ship_with=ship_with, is_json=is_json)
    left, is_done = carry_out_edit(edit, planned, how)
    if is_json:
        print_json("failback", view.as_dict(None, (region,), {}, planned.plan, is_done=is_done))
    report_end_or_exit(edit.topology, left, is_done, f"Region {region} is in again. {topology} says so: commit it.")


def _list_running(lab_name: str, seats: set[str]) -> set[str]:
    """Those of *seats* that run in the lab."""
    return seats & {server.name for server in read_lab_status(lab_name).servers if server.pid}


def _check_servers(servers: Servers, topology: Topology, region: str, *, is_new: bool, is_waiting: bool) -> None:
    """The servers of *region* must run, with empty disks if they come now, and be let in by the others."""
    endpoints = {**servers.endpoints, **servers.given_up}
    endpoint = endpoints.get(region)
    if endpoint is None:
        raise RefusedError(f"no address is known for region `{region}`", hint=f"add `{region}` to `connect`")
    if is_new:
        run(require_empty(region, endpoint))
    if is_waiting:
        monitors = [url for endpoint in endpoints.values() for url in endpoint.monitor]
        run(wait_for_members(topology.server_names_in(region), monitors))
