"""Steps that several commands take: they plan and apply with progress, and say what was done and what is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from vstream.apply.pipeline import AppliedPlan, ApplyEnd
from vstream.apply.result import ApplyObserver, ApplyResult
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import apply as view
from vstream.cli.views import console
from vstream.cli.views import plan as plan_view
from vstream.cli.views.progress import progress_bar, show_steps
from vstream.formatting import summarize_names
from vstream.plan.model import Delete, Plan
from vstream.plan.transitions.pause_publishers import select_resumptions
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.server_plan import ServerPlan, make_server_plan
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Topology


async def plan_with_progress(
    topology: Topology,
    lab_name: str | None,
    templates: Path | None,
    *,
    adopt: frozenset[str] = frozenset(),
    lost: tuple[str, ...] = (),
    with_files: bool = True,
) -> ServerPlan:
    """`make_server_plan` of the lab *lab_name*, or of the servers that *topology* means. Raises VstreamError."""
    servers = find_and_trust_servers(topology, lab_name)
    with show_steps() as show:
        return await make_server_plan(
            topology, servers, templates, adopt=adopt, lost=lost, with_files=with_files, on_progress=show
        )


def exit_if_blocked(plan: Plan, *, resumed: Collection[str] = ()) -> None:
    """Ends with 1 if something is refused, and with 3 if only nobody answered for it. Nothing was changed but *resumed*."""
    if plan.blocked:
        changed = "Nothing else" if resumed else "Nothing"
        console.print_problem(f"{changed} was changed: resolve what is blocked first.")
        if paused := [name for name in plan.list_paused() if name not in resumed]:
            console.print_problem(f'Publishers get "no responders" from {summarize_names(paused)}.')
        if any(change.config.name in paused for change in select_resumptions(plan).changes):
            console.print_problem(
                "`vstream apply --yes` lets them go on once the new servers hold everything: start those that are down."
            )
        exit_unless_yes(is_no=bool(plan.refusals), is_unknown=True)


def exit_unless_done(applied: AppliedPlan) -> None:
    """Ends with 1 if something differs still, and with 3 if it is not known whether the servers are as the topology says."""
    end = applied.outcome
    exit_unless_yes(is_no=end is ApplyEnd.OPEN, is_unknown=end is not ApplyEnd.DONE)


@contextmanager
def show_changes(plan: Plan) -> Iterator[ApplyObserver]:
    """A progress bar of the changes of *plan* that are done, and what is waited for."""
    with progress_bar() as progress:
        task = progress.add_task("applying", total=len(plan.changes))
        yield ApplyObserver(
            on_done=lambda _change: progress.update(task, description="applying", advance=1),
            on_wait=lambda _gate, missing: progress.update(task, description=f"waiting: {missing}"),
            on_interrupted=_report_paused,
        )


def _report_paused(result: ApplyResult) -> None:
    for line in view.render_paused(result.list_paused()):
        console.print_problem(line.plain)


def report_applied(applied: AppliedPlan, *, is_verbose: bool) -> None:
    """Say what was done and what is left."""
    result, remaining = applied.result, applied.remaining
    console.print_lines(view.render_applied(result, loaded_path(applied.planned.request.topology)))
    if result.gate_timeouts:
        return
    if result.failure is not None:
        console.print_error(result.failure)
        console.print_note("Run `vstream apply` again: it continues where this run stopped.")
        return
    _print_emptied_regions(applied)
    if remaining is not None and not remaining.is_empty:
        is_expected = result.mappings_pending or result.unread_servers or not remaining.differs
        console.print_note("Still open:" if is_expected else "The servers still differ from the topology:")
        console.print_lines(plan_view.render_plan(remaining, is_verbose=is_verbose))


def _print_emptied_regions(applied: AppliedPlan) -> None:
    """What to do with the servers of a region that holds nothing of the topology any more."""
    planned = applied.planned
    topology = planned.request.topology
    used = {stream.region for stream in planned.request.bundle.streams}
    emptied = {change.region for change in applied.result.done if isinstance(change, Delete)} - used
    for region in topology.regions:
        if region.name not in emptied:
            continue
        console.print_note(f"Region {region.name} holds no stream of {topology.name} any more.")
        if planned.servers.lab is not None:
            console.print_note("Take it out of the topology and apply again to stop its servers.")
            continue
        names = ", ".join(server.name for server in region.servers)
        console.print_note(
            f"To give it up, take it out of the topology, stop {names}, and have the meta group forget each:"
        )
        console.print_note("nats server cluster peer-remove SERVER, with the system account.")
