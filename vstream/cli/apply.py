"""`vstream apply`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import FAILED, NO
from vstream.cli.plan import Adopt, Lost, Planned, compare, make
from vstream.cli.servers import find_servers, find_signer
from vstream.topology.accounts import SYSTEM_USER
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Security
from vstream.topology.profiles import profile_of

if TYPE_CHECKING:
    from vstream.plan.apply import ApplyResult
    from vstream.plan.plan import Plan
    from vstream.plan.port import MappingAdmin


def command(
    what: Annotated[
        Path,
        typer.Argument(help="A topology file, or a plan that `vstream plan --out` saved.", metavar="TOPOLOGY|PLAN"),
    ] = options.DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    allow_destructive: Annotated[
        bool, typer.Option("--allow-destructive", help="Carry out changes that lose or double messages.")
    ] = False,
    allow_many: Annotated[
        bool, typer.Option("--allow-many", help="Change or delete more than 30 % of the streams that exist.")
    ] = False,
    gate_timeout: Annotated[
        float, typer.Option("--gate-timeout", metavar="SECONDS", help="How long a gate may take to hold.", min=0)
    ] = 300,
    adopt: Adopt = None,
    lost: Lost = None,
    lab: options.LabName = None,
    templates: options.TemplatesDirectory = None,
) -> None:
    """
    Make the servers as the topology says: write streams, read streams, then mappings; removals in reverse.

    Shows the plan and asks once. Between its stages there are gates, such as that every
    reader has all of a write stream that goes: one that does not hold in time ends it. A
    saved plan is carried out as it was reviewed, and refused if the servers have changed
    since. Stopped at any point, a second `apply` finishes the job. Exits with 1 if
    something is blocked, refused or still missing.

    Examples: `vstream apply`, `vstream apply --yes`, `vstream apply plan.json`
    """
    from vstream.cli.views import applied as outcome  # noqa: PLC0415
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.cli.views import plan as view  # noqa: PLC0415

    planned = run(_planned(what, lab, frozenset(adopt or ()), templates, tuple(sorted(lost or ()))))
    plan = planned.plan
    console.print_note(f"{planned.topology.name} on {planned.where.description}")
    for line in view.text(plan):
        console.stdout().print(line)
    if plan.blocked:
        console.print_note("Nothing was changed: resolve what is blocked first.", style="bold red")
        raise typer.Exit(NO)
    if plan.is_empty:
        return
    _check_allowed(plan, allow_destructive=allow_destructive, allow_many=allow_many)
    if not yes:
        _ask()
        # Nobody knows how long the question stood there.
        run(_require_unchanged(planned, frozenset(adopt or ())))
    applied, left = run(_carry_out(planned, gate_timeout))
    for line in outcome.text(applied, loaded_path(planned.topology)):
        console.stdout().print(line)
    if applied.gate_timeouts:
        raise typer.Exit(NO)
    if applied.failure is not None:
        console.print_error(applied.failure)
        console.print_note("Run `vstream apply` again: it goes on where this one stopped.")
        raise typer.Exit(FAILED)
    _say_emptied(planned, applied)
    if left is not None and not left.is_empty:
        is_known = applied.mappings_pending or applied.unread_servers
        console.print_note("Still open:" if is_known else "The servers still differ from the topology:")
        for line in view.text(left):
            console.stdout().print(line)
        raise typer.Exit(NO)


async def _require_unchanged(planned: Planned, adopt: frozenset[str]) -> None:
    """Raises StalePlanError if the plan would be another one by now."""
    fresh = await compare(planned.topology, planned.where, planned.bundle, adopt, planned.lost)
    _require_same(fresh, planned.plan)


def _require_same(fresh: Plan, reviewed: Plan) -> None:
    """The servers must be as they were, and this vstream must come to the same conclusion. Raises StalePlanError."""
    from vstream.errors import StalePlanError  # noqa: PLC0415

    if fresh != reviewed:
        raise StalePlanError(
            "the servers have changed since the plan was made"
            if fresh.observed != reviewed.observed
            else "this vstream plans other changes than the one that wrote the file",
            hint="run `vstream plan` again and review what is different"
            + ("" if fresh.observed != reviewed.observed else "; `--templates` must be the same for both"),
        )


async def _planned(
    what: Path, lab: str | None, adopt: frozenset[str], templates: Path | None, lost: tuple[str, ...]
) -> Planned:
    if what.suffix != ".json":
        return await make(options.load_topology(what).require(), lab, adopt, templates, lost)
    from vstream.lint.load_topology import load  # noqa: PLC0415
    from vstream.plan import saved  # noqa: PLC0415

    if lab or adopt or lost:
        raise typer.BadParameter("a saved plan says itself what it is for: drop --lab, --adopt and --lost")
    file = saved.load(options.read_bytes(what, limit=-1).decode("utf-8", "replace"), str(what))
    topology = load(file.topology_text.encode(), file.topology_file).require()
    fresh = await make(topology, file.lab, frozenset(file.adopt), templates, file.lost)
    _require_same(fresh.plan, file.plan)
    return fresh


def _check_allowed(plan: Plan, *, allow_destructive: bool, allow_many: bool) -> None:
    from vstream.cli.views import console  # noqa: PLC0415

    needed = []
    if plan.is_destructive and not allow_destructive:
        needed.append("--allow-destructive (messages would be lost or doubled)")
    if plan.touches_many and not allow_many:
        needed.append("--allow-many (more than 30 % of the streams that exist would change)")
    if needed:
        console.print_note(f"Nothing was changed: this plan needs {' and '.join(needed)}.", style="bold red")
        raise typer.Exit(NO)


def _ask() -> None:
    from vstream.cli.views import console  # noqa: PLC0415

    if not sys.stdin.isatty():
        console.print_note("Nothing was changed: nobody to ask, and no --yes.", style="bold red")
        raise typer.Exit(NO)
    if not typer.confirm("Apply this plan?", err=True):
        console.print_note("Nothing was changed.")
        raise typer.Exit(NO)


async def _carry_out(planned: Planned, gate_timeout: float) -> tuple[ApplyResult, Plan | None]:
    """Apply, then plan again: what is left is what counts."""
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.jetstream.admin import JetStreamAdmin  # noqa: PLC0415
    from vstream.lab.remove_servers import LabServerAdmin  # noqa: PLC0415
    from vstream.plan.apply import apply  # noqa: PLC0415
    from vstream.plan.live.gate_checks import LiveGateChecker  # noqa: PLC0415
    from vstream.plan.live.observe import any_connection, connect_all  # noqa: PLC0415

    where = planned.where
    async with connect_all(planned.topology, where.endpoints) as connections:
        connection = any_connection(connections)
        with console.progress_bar() as progress:
            task = progress.add_task("applying", total=len(planned.plan.changes))
            applied = await apply(
                planned.plan,
                JetStreamAdmin(connection),
                _mapping_admin(planned),
                LiveGateChecker(connection),
                servers=LabServerAdmin(where.lab) if where.lab is not None else None,
                on_done=lambda _change: progress.update(task, description="applying", advance=1),
                on_wait=lambda _gate, missing: progress.update(task, description=f"waiting: {missing}"),
                patience=gate_timeout,
            )
    if applied.gate_timeouts:
        return applied, None
    if applied.failure is not None:
        return applied, None
    if applied.retired:
        where = find_servers(planned.topology, where.lab)  # there are fewer servers now
    return applied, await compare(planned.topology, where, planned.bundle, frozenset(), planned.lost)


def _mapping_admin(planned: Planned) -> MappingAdmin | None:
    """How servers come to load what is planned; None where only whoever runs them can make them."""
    from vstream.lab import mappings  # noqa: PLC0415 - loads psutil

    where, topology = planned.where, planned.topology
    if where.lab is not None:
        return mappings.mapping_admin(where.lab, planned.bundle, lost=planned.lost)
    ring = find_signer(topology, None)
    if ring is None or topology.security is not Security.OPERATOR:
        return None
    from vstream.plan.live.push_accounts import account_admin, with_system_login  # noqa: PLC0415

    there = {region: one for region, one in where.endpoints.items() if region not in planned.lost}
    credentials = str(ring.credentials(SYSTEM_USER))
    return account_admin(
        planned.bundle.claims,
        ring,
        system={region: with_system_login(one, credentials) for region, one in there.items()},
        servers=[(seat.region, seat.server.name) for seat in topology.seats if seat.region not in planned.lost],
        monitors={region: one.monitor for region, one in there.items()},
        in_domains=profile_of(topology).has_domains,
    )


def _say_emptied(planned: Planned, applied: ApplyResult) -> None:
    """What to do with the servers of a region that holds nothing of the topology any more."""
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.plan.plan import Delete  # noqa: PLC0415

    held = {stream.region for stream in planned.bundle.streams}
    left = {change.region for change in applied.done if isinstance(change, Delete)} - held
    for region in planned.topology.regions:
        if region.name not in left:
            continue
        console.print_note(f"Region {region.name} holds no stream of {planned.topology.name} any more.")
        if planned.where.lab is not None:
            console.print_note("Take it out of the topology and apply again to stop its servers.")
        else:
            names = ", ".join(server.name for server in region.servers)
            console.print_note(
                f"To give it up, take it out of the topology, stop {names}, and have the meta group forget each:"
            )
            console.print_note("nats server cluster peer-remove SERVER, with the system account.")
