"""`vstream region failover`."""

from __future__ import annotations

from typing import Annotated

import typer

from vstream.apply.region_change import MaybeAlive, fail_over
from vstream.apply.wait_for_gates import GATE_TIMEOUT
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.region_steps import load_edit, make_observer, make_request, report_end_or_exit
from vstream.cli.views import console
from vstream.cli.views import region as view
from vstream.cli.views.json_output import print_json
from vstream.plan.live.dead_regions import DeathVerdict


def command(
    region: options.RegionName,
    file: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    is_declared: Annotated[
        bool, typer.Option("--declare-dead", help="Confirm that it is dead, if not every server could be asked.")
    ] = False,
    also: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="A region that is dead, too. Can be repeated.")
    ] = None,
    gate_timeout: options.GateTimeout = GATE_TIMEOUT,
    ship_with: options.ShipWith = None,
    output_format: options.TextOrJson = "text",
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
    regions = tuple(dict.fromkeys((region, *(also or ()))))
    before = load_edit(file)
    request = make_request(region, before, lab, templates, yes=yes, ship_with=ship_with, gate_timeout=gate_timeout)
    observer = make_observer(before.topology, is_json=output_format == "json")
    result = run(fail_over(request, observer, also=regions[1:], is_declared_dead=is_declared))
    if output_format == "json":
        print_json("failover", view.as_dict(result, regions))
    if isinstance(result, MaybeAlive):
        is_alive = result.report.verdict is DeathVerdict.ALIVE
        if output_format != "json" and not is_alive:
            console.print_note(
                "Pass `--declare-dead` if you know it, and `--also REGION` for each region that is dead, too. "
                "Nothing was changed."
            )
        exit_unless_yes(is_no=is_alive, is_unknown=True)
    else:
        report_end_or_exit(result, f"Given up: {', '.join(regions)}. {file} says so: commit it.")
