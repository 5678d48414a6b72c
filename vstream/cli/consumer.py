"""`vstream consumer`: show a consumer's position, and continue it in another region."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.exit_codes import exit_unless_yes
from vstream.cli.views import console
from vstream.cli.views import consumer as view
from vstream.cli.views.json_output import format_json, print_json
from vstream.errors import VstreamError
from vstream.files import save_output
from vstream.health.live import consumer_position
from vstream.health.live.consumer_position import MoveRequest
from vstream.health.live.consumer_sync import ConsumerSync
from vstream.plan import consumer_failover
from vstream.plan.consumer_failover import Position
from vstream.servers.find_servers import find_and_trust_servers
from vstream.topology.model import Topology

app = typer.Typer(
    help="Durable consumers of virtual streams: show them, and continue them in another region.", no_args_is_help=True
)

Stream = Annotated[str, typer.Argument(help="The virtual stream.")]
Durable = Annotated[str, typer.Argument(help="The consumer.")]


@app.command("position")
def read_position(
    stream: Stream,
    consumer: Durable,
    region: Annotated[str, typer.Option("--region", "-r", help="The region of the consumer.")],
    topology: options.ServedTopology = options.DEFAULT_FILE,
    output_path: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the position to this file, for `failover --position`.")
    ] = None,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Print how far a consumer is in one region, as a sequence of each origin, which holds in every region.

    Run it from cron with `--output`, and keep the file outside of the region: once the region is dead, nothing
    else knows how far its consumers were. Changes nothing.

    Examples: `vstream consumer position foo reader --region west`,
    `vstream consumer position foo reader --region west --output /var/lib/vstream/foo-reader-west.json`
    """
    loaded = options.check_topology_file(topology).require()
    virtual = options.require_virtual_stream(loaded, stream, [region])
    endpoints = find_and_trust_servers(loaded, lab).endpoints
    position = run(consumer_position.read_position_in(loaded, endpoints, virtual, region, consumer))
    text = format_json("consumer-position", consumer_failover.as_dict(position))
    if output_path is not None:
        save_output(output_path, text + "\n", is_private=True)
    elif output_format == "json":
        typer.echo(text)
    else:
        console.print_lines(view.render_position(position, "now"))


@app.command("sync")
def sync(
    topology: options.ServedTopology = options.DEFAULT_FILE,
    streams: options.StreamNames = None,
    is_watching: Annotated[
        bool, typer.Option("--watch", "-w", help="Keep copying positions as they move, until Ctrl-C.")
    ] = False,
    every: options.CheckInterval = 5,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
    log_format: options.LogFormat = "text",
    is_quiet: options.Quiet = None,
) -> None:
    """
    Record how far each consumer of the topology is in every other region of its stream, so that `failover` needs no file.

    The record is in the metadata of a consumer `NAME-of-REGION` there, which takes no messages. Run it as a service with `--watch`, outside of
    the regions or in each: what is acknowledged after the last check comes again after a failover. Exits with 1 if a
    consumer does not exist or servers refuse a record, and with 3 if the only trouble is a region that cannot be reached.

    Examples: `vstream consumer sync`, `vstream consumer sync -t acme.yaml --watch --every 1`
    """
    console.set_log(log_format, is_quiet=is_quiet)

    def prepare(newest: Topology) -> ConsumerSync:
        endpoints = find_and_trust_servers(newest, lab).endpoints
        return ConsumerSync(newest, options.choose_streams(newest, streams), endpoints)

    printer = view.SyncPrinter(is_json=output_format == "json", is_watching=is_watching)
    followed = options.FollowedTopology(topology, prepare)
    if is_watching:
        run(_watch(followed, printer, every))
        return
    synced = run(followed.latest().sync())
    printer.show(synced)
    exit_unless_yes(is_no=any(item.is_refused for item in synced), is_unknown=any(item.problems for item in synced))


async def _watch(followed: options.FollowedTopology[ConsumerSync], printer: view.SyncPrinter, every: float) -> NoReturn:
    while True:
        printer.show(await followed.latest().sync())
        await asyncio.sleep(every)


@app.command("failover")
def failover(
    stream: Stream,
    consumer: Durable,
    to: Annotated[str, typer.Option("--to", metavar="REGION", help="The region in which to continue.")],
    come_from: Annotated[
        str | None, typer.Option("--from", metavar="REGION", help="The region where its clients were.")
    ] = None,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--position", help="A file that `vstream consumer position` wrote, if the region does not answer."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--as", help="The name of the consumer there, if it differs.")] = None,
    yes: options.Yes = False,
    topology: options.ServedTopology = options.DEFAULT_FILE,
    output_format: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Continue a consumer in another region where it was in this one. Nothing is skipped; messages that come again are counted.

    Stop its clients first. The position is read from the region itself. Where that is dead, it is the last one that
    `vstream consumer sync` kept in the other region, or that of a file of `vstream consumer position`: everything that was
    acknowledged since comes again, too. A consumer of that name in the other region is replaced. Changes nothing without
    `--yes`. Stopped at any point, it can be run again.

    Examples: `vstream consumer failover foo reader --from west --to east`,
    `vstream consumer failover foo reader --position foo-reader-west.json --to east --yes`
    """
    if (come_from is None) == (recorded is None):
        raise typer.BadParameter("name the region that it leaves: either `--from REGION` or `--position FILE`")
    if come_from == to:
        raise typer.BadParameter("`--from` and `--to` are the same region")
    loaded = options.check_topology_file(topology).require()
    lost_regions = [lost.name for lost in loaded.lost]
    asked = [to] if come_from is None or come_from in lost_regions else [come_from, to]
    request = MoveRequest(
        topology=loaded,
        stream=options.require_virtual_stream(loaded, stream, asked),
        durable=consumer,
        recorded=None if recorded is None else _load_position(recorded, (loaded.name, stream, consumer)),
        come_from=come_from,
        to=to,
        name=name or consumer,
    )
    endpoints = find_and_trust_servers(loaded, lab).endpoints
    move, pending = run(consumer_position.move_consumer(request, endpoints, is_approved=yes))
    if output_format == "json":
        print_json("consumer-failover", view.failover_as_dict(move, to, pending, is_done=yes))
        return
    console.print_lines(view.render_failover(move))
    if yes:
        console.print_note(f"Done: {pending:,} messages are to be delivered.", style="bold green")
    else:
        console.print_note("Nothing was changed: pass `--yes` to do it.")


def _load_position(file: Path, meant: tuple[str, str, str]) -> Position:
    """The position in *file*. Raises VstreamError if it is not *meant*: topology, virtual stream and consumer."""
    text = options.read_bytes(file, limit=-1).decode("utf-8", "replace")
    position = consumer_failover.parse_position(text, str(file))
    recorded = (position.topology, position.stream, position.consumer)
    if recorded != meant:
        raise VstreamError(f"{file} is of {' / '.join(recorded)}, not of {' / '.join(meant)}")
    return position
