"""`vstream region failback`."""

from __future__ import annotations

from vstream.apply.region_change import ServersNotStarted, fail_back
from vstream.apply.wait_for_gates import GATE_TIMEOUT
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.region_steps import load_edit, make_observer, make_request, report_end_or_exit
from vstream.cli.views import console
from vstream.cli.views import region as view
from vstream.cli.views.json_output import print_json


def command(
    region: options.RegionName,
    file: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    gate_timeout: options.GateTimeout = GATE_TIMEOUT,
    ship_with: options.ShipWith = None,
    output_format: options.TextOrJson = "text",
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
    before = load_edit(file)
    request = make_request(region, before, lab, templates, yes=yes, ship_with=ship_with, gate_timeout=gate_timeout)
    observer = make_observer(before.topology, is_json=output_format == "json")
    result = run(fail_back(request, observer))
    if output_format == "json":
        print_json("failback", view.as_dict(result, (region,)))
    if isinstance(result, ServersNotStarted):
        console.print_note(f"The lab will start the servers of {region}. Nothing was changed: pass `--yes` to do it.")
        return
    report_end_or_exit(result, f"Region {region} is in again. {file} says so: commit it.")
