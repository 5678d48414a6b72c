"""`vstream repair`: of messages, of sourcing, and of the meta group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import NO, UNKNOWN, exit_unless_yes
from vstream.cli.views import console
from vstream.cli.views import repair as view
from vstream.cli.views.json_output import print_json
from vstream.cli.views.progress import progress_bar
from vstream.health.live.rescue import MetaGroup, choose_rescuable_groups, rescue_groups, resync_after_rescue
from vstream.health.live.resync_readers import ResyncMode, resync_readers
from vstream.health.live.resync_watch import Resyncer, watch_and_resync
from vstream.health.repair.pipeline import RepairEnd, RepairKind, RepairRequest, check_and_repair, choose_repairs
from vstream.servers.find_servers import find_and_trust_servers
from vstream.servers.target_servers import make_target


def repair_messages(
    file: options.TopologyFile = options.DEFAULT_FILE,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Repair. Without it, only show what would be done.")] = False,
    kind: Annotated[list[RepairKind] | None, typer.Option("--kind", help="Only this kind. Can be repeated.")] = None,
    stream: options.StreamNames = None,
    timeout: options.Timeout = 10,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Bring streams back to what was written: after a power loss, a restored backup, a skipped or repeated message.

    Shows what it would do, and does it with `--yes`, in this order: `clear` removes what an interrupted repair has
    left. `resync` makes readers that take nothing ask again at once. `refill` publishes the lost end of a write stream again,
    as its readers hold it. `replay` puts skipped messages into a read stream, and `delete` removes duplicates: these
    two read the streams from their beginning.

    Exits with 0 if nothing is (left) to repair, with 1 if something is, and with 3 if that is not known because a stream did not answer.

    Examples: `vstream repair messages`, `vstream repair messages acme.yaml --yes`, `vstream repair messages --kind refill --kind resync`,
    `vstream repair messages --stream foo --kind replay --yes`, `vstream repair messages --format json`
    """
    topology = options.check_topology_file(file).require()
    streams = frozenset(options.choose_streams(topology, stream))
    kinds = choose_repairs(topology, kind or [])
    servers = find_and_trust_servers(topology, lab)
    request = RepairRequest(
        topology=topology,
        target=make_target(topology, servers),
        kinds=kinds,
        streams=streams,
        timeout=timeout,
        is_approved=yes,
    )
    if output_format != "json":
        console.print_note(servers.describe_with(topology))
    with progress_bar() as progress:
        result = run(check_and_repair(request, view.RepairView(progress, is_text=output_format != "json")))
    if output_format == "json":
        print_json("repair", result.as_dict())
    else:
        console.print_lines(view.render_end(result))
    exit_unless_yes(is_no=result.outcome is RepairEnd.OPEN, is_unknown=result.outcome is RepairEnd.UNKNOWN)


def repair_sources(
    file: options.TopologyFile = options.DEFAULT_FILE,
    timeout: Annotated[
        float, typer.Option(help="Seconds to wait before the step-downs, and again after them.", min=1)
    ] = 120,
    wait_only: Annotated[bool, typer.Option("--wait-only", help="Only measure; do not step down leaders.")] = False,
    is_watching: Annotated[
        bool,
        typer.Option("--watch", "-w", help="Keep watching until Ctrl-C, and resync only streams that stand still."),
    ] = False,
    every: options.CheckInterval = 1,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
) -> None:
    """
    Resync every read stream after an outage, so that it asks its sources at once, and measure until all have caught up.

    Waits for gateways and the meta leader first. A stream that has lost a source asks again after
    10 s, then later and later. Its next leader asks at once, so each read stream's leader steps down.
    Exits with 1 unless every read stream has everything in time.

    `--watch` does it by itself, stream by stream: where nothing has arrived for two checks although
    the origin, the gateways and the meta leader are there. Otherwise it says what it waits for.

    Examples: `vstream repair sources`, `vstream repair sources acme.yaml --wait-only`, `vstream repair sources --watch`
    """
    console.set_log(log_format, is_quiet=is_quiet)
    if is_watching:
        show = view.ResyncPrinter(is_json=output_format == "json").show
        followed = options.FollowedTopology(
            file, lambda newest: Resyncer(newest, make_target(newest, find_and_trust_servers(newest, lab)))
        )
        run(watch_and_resync(followed.latest, every=every, on_check=show))
        return
    topology = options.check_topology_file(file).require()
    target = make_target(topology, find_and_trust_servers(topology, lab))
    with progress_bar() as bar:
        bar.add_task(f"waiting for gateways, leaders and sources: at most twice {timeout:g} s", total=None)
        mode = ResyncMode.MEASURE if wait_only else ResyncMode.ALL
        result = run(resync_readers(topology, target, timeout=timeout, mode=mode))
    if output_format == "json":
        print_json("resync", view.resync_as_dict(result))
    else:
        console.print_note(f"gateways and leaders were ready after {result.waited:.1f} s")
        console.stdout().print(view.resync_table(result))
    exit_unless_yes(is_no=bool(result.behind))


def repair_meta(
    file: options.TopologyFile = options.DEFAULT_FILE,
    yes: options.Yes = False,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Recover when more than half of the meta group's servers are dead for good: streams and consumers can be changed again.

    Dials every server and asks the system account of every region who answers. With `--yes`, on 2.15 and newer: the
    remaining servers lower their quorum (`META.RESCUE`), elect a leader, forget the dead, and resync. Before 2.15 it
    says which servers to start or to update. Stopped anywhere, run it again.

    Exits with 1 if the quorum is there or nothing can be done, and with 3 if a server may be alive.
    Changes nothing without `--yes`.

    Examples: `vstream repair meta`, `vstream repair meta acme.yaml --yes`
    """
    topology = options.check_topology_file(file).require()
    servers = find_and_trust_servers(topology, lab)
    is_json = output_format == "json"

    def show(groups: Sequence[MetaGroup]) -> None:
        if not is_json:
            console.print_note(servers.describe_with(topology))
            console.print_lines(view.render_groups(groups))

    def show_step(step: str) -> None:
        console.print_note(f"  {step}")

    groups = run(rescue_groups(topology, servers, is_approved=yes, on_groups=show, on_step=show_step))
    chosen = choose_rescuable_groups(groups)
    if is_json:
        print_json("rescue", view.rescue_as_dict(topology.name, groups, is_done=yes and bool(chosen)))
    if not chosen and any(group.refusal is None for group in groups):
        console.print_warning("Nothing was changed: a server may be alive.", style="bold yellow")
        raise typer.Exit(UNKNOWN)
    if not chosen:
        console.print_note("Nothing was changed: there is nothing that could be rescued.")
        raise typer.Exit(NO)
    if not yes:
        console.print_note("Nothing was changed: pass `--yes` to do it.")
        return
    console.print_note(
        "The JetStream API is back. Never start the dead servers again with their old disks.", style="bold green"
    )
    for note in view.describe_resync_after_rescue(run(resync_after_rescue(topology, servers, chosen))):
        console.print_note(note)
