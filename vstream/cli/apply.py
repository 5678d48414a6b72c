"""`vstream apply`."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from vstream.apply.pipeline import AppliedPlan, apply_and_replan, apply_plan
from vstream.apply.result import ApplyResult
from vstream.apply.shipping import ShippingOptions
from vstream.apply.wait_for_gates import GATE_TIMEOUT
from vstream.cli import options
from vstream.cli.asyncio_runner import exit_on_signals, run
from vstream.cli.exit_codes import NO
from vstream.cli.shared_steps import (
    exit_if_blocked,
    exit_unless_done,
    plan_with_progress,
    report_applied,
    show_changes,
)
from vstream.cli.views import apply as view
from vstream.cli.views import console, durations
from vstream.cli.views import plan as plan_view
from vstream.errors import VstreamError
from vstream.formatting import summarize_names
from vstream.lint.check_topology import check_topology
from vstream.plan import saved
from vstream.plan.model import AllowOption, Plan
from vstream.plan.pipeline import make_plan
from vstream.plan.transitions.pause_publishers import select_resumptions
from vstream.servers.server_plan import ServerPlan

_RESUME_TIMEOUT = 20.0
"""Seconds for new servers of a paused stream to hold everything where a plan is blocked: the next run can try again."""


def command(
    path: Annotated[
        Path,
        typer.Argument(
            help="A topology file, or a plan that `vstream plan --output` saved.",
            metavar="TOPOLOGY|PLAN",
            envvar="VSTREAM_TOPOLOGY",
        ),
    ] = options.DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow_destructive: Annotated[
        bool, typer.Option("--allow-destructive", help="Allow changes that lose or duplicate messages.")
    ] = False,
    allow_many: Annotated[
        bool, typer.Option("--allow-many", help="Allow changing or deleting more than 30 % of the existing streams.")
    ] = False,
    gate_timeout: options.GateTimeout = GATE_TIMEOUT,
    ship_with: Annotated[
        str | None,
        typer.Option(
            "--ship-with",
            metavar="COMMAND",
            help="Run this for each server before it reloads. {server}, {host}, {region} and {directory}, which holds "
            "the file that servers load again, are filled in.",
        ),
    ] = None,
    loaded_timeout: Annotated[
        float | None,
        typer.Option(
            "--wait-loaded", help="Wait up to this long, such as 5m, until a sidecar has loaded the rules.", min=0
        ),
    ] = None,
    adopt: options.Adopt = None,
    lost: options.Lost = None,
    verbose: options.Verbose = False,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Make the servers match the topology: write streams, read streams, then mappings; removals in reverse.

    Shows the plan and asks once. Its stages wait for gates: for example, every reader must have all of a write stream
    that goes. A gate that does not hold in time ends the run. A saved plan is carried out as it was reviewed. It is
    refused if the servers have changed since. Run `apply` again after it was stopped: it goes on.

    Exits with 1 if something is refused or still missing. Exits with 3 if no server answered for a stream, or if all is
    done, but it is not known whether each server has loaded its rules.

    Mapping rules are files on the servers. With a user of the system account (`system` under `connect`), servers are
    told to reload them one by one, a canary first. Otherwise vstream stops there until you have shipped and reloaded them.

    Examples: `vstream apply`, `vstream apply plan.json`, `vstream apply --wait-loaded 5m`,
    `vstream apply --ship-with 'rsync -r {directory}/ {host}:/etc/nats/'`
    """
    planned = run(_plan(path, lab, templates, adopt=frozenset(adopt or ()), lost=tuple(sorted(lost or ()))))
    plan = planned.plan
    console.print_note(planned.servers.describe_with(planned.request.topology))
    console.print_lines(plan_view.render_plan(plan, is_verbose=verbose))
    if plan.blocked:
        exit_if_blocked(plan, resumed=_resume_paused(planned, yes=yes))
    if plan.has_work:
        is_allowed = {AllowOption.DESTRUCTIVE: allow_destructive, AllowOption.MANY: allow_many}
        allowed = [option for option, is_given in is_allowed.items() if is_given]
        _exit_unless_allowed(plan, allowed)
        if not yes:
            _confirm_or_exit("Apply this plan?")
            _require_same(planned)
        shipping = ShippingOptions(command=ship_with, loaded_timeout=loaded_timeout)
        applied = run(_apply(planned, gate_timeout, shipping, allowed))
        report_applied(applied, is_verbose=verbose)
    else:
        applied = AppliedPlan(planned=planned, result=ApplyResult(), remaining=plan)
    console.print_lines(view.describe_unknown_rules(applied))
    exit_unless_done(applied)


async def _plan(
    path: Path, lab: str | None, templates: Path | None, *, adopt: frozenset[str], lost: tuple[str, ...]
) -> ServerPlan:
    """The plan of the topology file *path*, or the saved plan *path* if it still holds."""
    if path.suffix != ".json":
        return await plan_with_progress(
            options.check_topology_file(path).require(), lab, templates, adopt=adopt, lost=lost
        )
    if lab or adopt or lost or options.read_overlays():
        variables = "VSTREAM_LAB and VSTREAM_OVERLAY"
        raise typer.BadParameter(f"a saved plan has its options: drop --lab, --adopt, --lost, --overlay, {variables}")
    file = saved.parse(options.read_bytes(path, limit=-1).decode("utf-8", "replace"), str(path))
    topology = check_topology(file.topology_text.encode(), file.topology_file).require()
    fresh = await plan_with_progress(topology, file.lab, templates, adopt=frozenset(file.adopt), lost=file.lost)
    saved.require_same(fresh.plan, file.plan)
    return fresh


def _resume_paused(planned: ServerPlan, *, yes: bool) -> Collection[str]:
    """Let streams that an earlier run has paused take publishes again, whatever is blocked. Those that do now."""
    resumptions = select_resumptions(planned.plan)
    if not resumptions.changes or not (yes or sys.stdin.isatty()):
        return ()
    names = summarize_names([change.config.name for change in resumptions.changes])
    if not yes and not _confirm(f"Let {names} take publishes again, and change nothing else?"):
        return ()
    try:
        if not yes:
            _require_same(planned)
        result = run(_resume(replace(planned, plan=resumptions)))
    except VstreamError as failure:
        console.print_error(failure)
        return ()
    console.print_lines(view.render_resumed(result))
    if result.failure is not None:
        console.print_error(result.failure)
    return [change.config.name for change in result.done]


def _require_same(planned: ServerPlan) -> None:
    """Raises StalePlanError if *planned* is not the plan any more: nobody knows how long a question was on the screen."""
    saved.require_same(run(make_plan(planned.request)), saved.to_dict(planned.plan))


def _exit_unless_allowed(plan: Plan, allowed: Collection[AllowOption]) -> None:
    if unmet := plan.unmet_demands(allowed):
        console.print_problem(f"Nothing was changed: this plan needs {' and '.join(map(str, unmet))}.")
        raise typer.Exit(NO)


def _confirm_or_exit(question: str) -> None:
    if not sys.stdin.isatty():
        console.print_problem("Nothing was changed: not a terminal; pass `--yes` to apply without confirmation.")
        raise typer.Exit(NO)
    if not _confirm(question):
        console.print_note("Nothing was changed.")
        raise typer.Exit(NO)


def _confirm(question: str) -> bool:
    # Python loses an interrupt that comes while it cleans up an object, as it does after the plan.
    asked = time.monotonic()
    with exit_on_signals():
        is_wanted = typer.confirm(question, err=True)
    durations.QUESTIONS.append(time.monotonic() - asked)
    return is_wanted


async def _apply(
    planned: ServerPlan, gate_timeout: float, shipping: ShippingOptions, allowed: Collection[AllowOption]
) -> AppliedPlan:
    with show_changes(planned.plan) as observer:
        return await apply_and_replan(planned, shipping, allowed=allowed, gate_timeout=gate_timeout, observer=observer)


async def _resume(planned: ServerPlan) -> ApplyResult:
    with show_changes(planned.plan) as observer:
        return await apply_plan(planned, ShippingOptions(), gate_timeout=_RESUME_TIMEOUT, observer=observer)
