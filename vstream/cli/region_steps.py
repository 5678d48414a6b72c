"""Steps that `region drain`, `failover` and `failback` share: they show a change of a region, and how it ended."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import typer

from vstream.apply.execute import ApplyResult
from vstream.apply.region_change import RegionRequest, RegionResult, RegionWatch, change_region
from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO, UNKNOWN
from vstream.cli.shared_steps import exit_unless_done, report_applied, show_changes
from vstream.cli.views import apply as apply_view
from vstream.cli.views import console
from vstream.cli.views import plan as plan_view
from vstream.cli.views import region as view
from vstream.cli.views.progress import show_readiness, show_steps
from vstream.plan.live.witnesses import DeathProof
from vstream.plan.plan import Plan
from vstream.plan.topology_edit import TopologyEdit
from vstream.scenario.model import RegionCommand
from vstream.servers.find_servers import Servers
from vstream.servers.server_plan import ServerPlan
from vstream.topology.bundle import loaded_path


def carry_out_change(request: RegionRequest, *, is_json: bool) -> RegionResult:
    """Do what *request* says; unless *is_json*, show what is heard, planned and done."""
    result = run(change_region(request, _make_watch(request, is_json=is_json)))
    if result.members:
        console.print_note(f"Have the meta group forget {', '.join(result.members)}, with the system account:")
        console.print_note("nats server cluster peer-remove SERVER")
    return result


def _make_watch(request: RegionRequest, *, is_json: bool) -> RegionWatch:
    before = request.before.topology
    is_drain = request.action.command in {RegionCommand.DRAIN, RegionCommand.UNDO_DRAIN}

    def show_proof(servers: Servers, proof: DeathProof) -> None:
        if not is_json:
            console.print_note(servers.describe_with(before))
            console.print_lines(view.describe_proof(proof))

    async def show_plan(planned: ServerPlan, result: RegionResult) -> None:
        if is_json:
            return
        if is_drain:
            console.print_note(planned.servers.describe_with(before))
        console.print_lines(
            (*view.describe_homes(result.homes), *plan_view.render_plan(planned.plan, names_options=False))
        )

    def show_applied(planned: ServerPlan, applied: ApplyResult, left: Plan | None) -> None:
        if is_json:
            _note_incomplete(planned, applied, left)
        else:
            report_applied(planned, applied, left, is_verbose=False)

    def note_behind(streams: tuple[str, ...]) -> None:
        console.print_note(f"{', '.join(streams)} will source again later: `vstream repair sources` says when.")

    return RegionWatch(
        on_proof=show_proof,
        on_plan=show_plan,
        on_applied=show_applied,
        on_behind=note_behind,
        show_planning=show_steps,
        show_starting=partial(show_readiness, "starting"),
        show_applying=show_changes,
    )


def _note_incomplete(planned: ServerPlan, applied: ApplyResult, left: Plan | None) -> None:
    """Say beside the JSON what was not done."""
    if left is None or not left.is_empty:
        for line in apply_view.render_applied(applied, loaded_path(planned.request.topology)):
            console.print_note(line.plain)
    if applied.failure is not None:
        console.print_error(applied.failure)


def load_edit(file: Path) -> TopologyEdit:
    """The topology *file* as it is written; standard input, which cannot be written, says nothing."""
    topology = options.read_topology_file(file).require()
    text = options.read_bytes(file, limit=-1).decode("utf-8-sig") if str(file) != "-" else ""
    return TopologyEdit(file=str(file), text=text, original=text, topology=topology, overlays=options.read_overlays())


def report_end_or_exit(result: RegionResult, success: str) -> None:
    """Say what was changed. Exits with 1 if something is refused or left to do, and with 3 where nobody knows."""
    assert result.planned is not None
    if result.applied is not None:
        exit_unless_done(result.applied, result.left)
    topology, plan = result.planned.request.topology, result.planned.plan
    if result.left is not None:
        if result.left.unknown_servers:
            for line in apply_view.describe_unknown_rules(result.left, loaded_path(topology)):
                console.print_note(line.plain)
            raise typer.Exit(UNKNOWN)
        console.print_note(success, style="bold green")
        return
    if plan.blocked:
        console.print_problem("Nothing was changed: resolve what is blocked first.")
        raise typer.Exit(NO if plan.is_refused else UNKNOWN)
    console.print_note("Nothing was changed: pass `--yes` to do it.")
