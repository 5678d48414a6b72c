"""Steps that `region drain`, `failover` and `failback` share: they show a change of a region, and how it ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from vstream.apply.pipeline import AppliedPlan
from vstream.apply.region_change import PlannedChange, RegionObserver, RegionRequest
from vstream.apply.shipping import ShippingOptions
from vstream.cli import options
from vstream.cli.shared_steps import exit_if_blocked, exit_unless_done, report_applied, show_changes
from vstream.cli.views import apply as apply_view
from vstream.cli.views import console
from vstream.cli.views import plan as plan_view
from vstream.cli.views import region as view
from vstream.cli.views.progress import show_readiness, show_steps
from vstream.plan.live.dead_regions import DeathReport
from vstream.plan.topology_edit import TopologyEdit
from vstream.servers.find_servers import Servers
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Topology


def make_request(
    region: str,
    before: TopologyEdit,
    lab: str | None,
    templates: Path | None,
    *,
    yes: bool,
    ship_with: str | None,
    gate_timeout: float,
) -> RegionRequest:
    """The change of *region* that the options of a command ask for."""
    return RegionRequest(
        region=region,
        before=before,
        lab=lab,
        templates=templates,
        is_approved=yes,
        shipping=ShippingOptions(command=ship_with),
        gate_timeout=gate_timeout,
    )


def make_observer(before: Topology, *, names_servers: bool = False, is_json: bool) -> RegionObserver:
    """
    Show what is heard, planned and done; with *is_json*, only what goes wrong.

    With *names_servers*, the servers of *before* are named above the plan, where nothing was heard before that names them.
    """

    def show_report(servers: Servers, report: DeathReport) -> None:
        if not is_json:
            console.print_note(servers.describe_with(before))
            console.print_lines(view.describe_report(report))

    def show_plan(change: PlannedChange) -> None:
        if is_json:
            return
        planned = change.planned
        if names_servers:
            console.print_note(planned.servers.describe_with(before))
        console.print_lines(
            (*view.describe_homes(change.homes), *plan_view.render_plan(planned.plan, names_options=False))
        )

    def show_applied(applied: AppliedPlan) -> None:
        if is_json:
            _note_incomplete(applied)
        else:
            report_applied(applied, is_verbose=False)

    def note_behind(streams: tuple[str, ...]) -> None:
        console.print_note(f"not resynced in time: {', '.join(streams)}; `vstream repair sources` tries again")

    return RegionObserver(
        on_report=show_report,
        on_plan=show_plan,
        on_applied=show_applied,
        on_behind=note_behind,
        show_planning=show_steps,
        show_starting=partial(show_readiness, "starting"),
        show_applying=show_changes,
    )


def _note_incomplete(applied: AppliedPlan) -> None:
    """Say beside the JSON what was not done."""
    if not applied.is_done:
        for line in apply_view.render_applied(applied.result, loaded_path(applied.planned.request.topology)):
            console.print_note(line.plain)
    if applied.result.failure is not None:
        console.print_error(applied.result.failure)


def load_edit(file: Path) -> TopologyEdit:
    """The topology *file* as it is written; standard input, which cannot be written, says nothing."""
    source = options.read_topology_file(file)
    topology = source.parse().require()
    text = source.content.decode("utf-8-sig") if str(file) != "-" else ""
    return TopologyEdit(file=str(file), text=text, original=text, topology=topology, overlays=source.overlays)


def report_end_or_exit(change: PlannedChange, success: str) -> None:
    """
    Say what was changed, and what is left to do by hand. Raises VstreamError for what failed afterwards.

    Exits with 1 if something is refused or left to do, and with 3 where nobody knows.
    """
    if change.failure is not None:
        raise change.failure
    applied = change.applied
    if applied is None:
        exit_if_blocked(change.planned.plan)
        console.print_note("Nothing was changed: pass `--yes` to do it.")
        return
    if change.still_members:
        console.print_note(f"Have the meta group forget {', '.join(change.still_members)}, with the system account:")
        console.print_note("nats server cluster peer-remove SERVER")
    for line in apply_view.describe_unknown_rules(applied):
        console.print_note(line.plain)
    exit_unless_done(applied)
    console.print_note(success, style="bold green")
