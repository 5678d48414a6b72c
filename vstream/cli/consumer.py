"""`vstream consumer`: where a durable is, and going on with it in another region."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vstream.cli import options
from vstream.cli.asyncio_runner import run
from vstream.cli.servers import Servers, find_servers
from vstream.cli.views.json_output import format_json, print_json
from vstream.errors import RefusedError, UnknownNameError, VstreamError
from vstream.files import save_output
from vstream.jetstream import error_codes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from vstream.jetstream.admin import JetStreamAdmin
    from vstream.jetstream.connection import Connection
    from vstream.plan.consumer_failover import Landing, Position
    from vstream.topology.consumer_config import ConsumerConfig, ObservedConsumer
    from vstream.topology.model import Topology, VirtualStream

app = typer.Typer(help="Durables of virtual streams: where they are, and going on elsewhere.", no_args_is_help=True)

Stream = Annotated[str, typer.Argument(help="The virtual stream.")]
Durable = Annotated[str, typer.Argument(help="The consumer.")]
TopologyFile = Annotated[
    Path, typer.Option("--topology", "-t", help="The topology that the servers run.", envvar="VSTREAM_TOPOLOGY")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """Everything that is known before anything is done."""

    position: Position
    landing: Landing
    found: ObservedConsumer | None
    """The consumer that is there already."""
    config: ConsumerConfig
    """What it will be."""


@app.command("position")
def read_position(
    stream: Stream,
    consumer: Durable,
    region: Annotated[str, typer.Option("--region", help="The region whose consumer is meant.")],
    topology: TopologyFile = options.DEFAULT_FILE,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write it into this file, for `failover --position`.")
    ] = None,
    lab: options.LabName = None,
) -> None:
    """
    Print how far a consumer is in one region, as a sequence of each origin: what holds in every region.

    Run it from cron with `--out`, and keep the file outside of the region: once the region is dead, nothing
    else knows how far its consumers were. Changes nothing.

    Examples: `vstream consumer position foo reader --region west`,
    `vstream consumer position foo reader --region west --out /var/lib/vstream/foo-reader-west.json`
    """
    from vstream.plan import consumer_failover  # noqa: PLC0415

    wanted = options.load_topology(topology).require()
    virtual = _stream(wanted, stream)
    _check_region(virtual, region)
    found = run(_position(wanted, find_servers(wanted, lab), virtual, consumer, region))
    text = format_json("consumer-position", consumer_failover.as_dict(found))
    if out is None:
        typer.echo(text)
        return
    save_output(out, text + "\n")


@app.command("failover")
def failover(
    stream: Stream,
    consumer: Durable,
    to: Annotated[str, typer.Option("--to", help="The region in which to go on.")],
    come_from: Annotated[
        str | None, typer.Option("--from", help="The region where its clients were. Its servers must answer.")
    ] = None,
    recorded: Annotated[
        Path | None, typer.Option("--position", help="A file of `vstream consumer position`, where they do not.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", help="What the consumer there is called, if not the same.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do it. Without this, it is only said.")] = False,
    topology: TopologyFile = options.DEFAULT_FILE,
    output: options.TextOrJson = "text",
    lab: options.LabName = None,
) -> None:
    """
    Let a consumer go on in another region where it was in this one: nothing is skipped, and it is said what comes again.

    Stop its clients first. The position is read from the region itself, or, where that is dead, from what
    `vstream consumer position` wrote before: then everything that was acknowledged since comes again, too. A consumer of that
    name in the other region is replaced. Changes nothing without `--yes`; stopped at any point, it can be run again.

    Examples: `vstream consumer failover foo reader --from west --to east`,
    `vstream consumer failover foo reader --position foo-reader-west.json --to east --yes`
    """
    from vstream.cli.views import console  # noqa: PLC0415
    from vstream.plan.consumer_failover import as_dict  # noqa: PLC0415

    if (come_from is None) == (recorded is None):
        raise typer.BadParameter("say where it was: either `--from REGION` or `--position FILE`")
    wanted = options.load_topology(topology).require()
    virtual = _stream(wanted, stream)
    for region in (come_from, to):
        if region is not None:
            _check_region(virtual, region)
    if come_from == to:
        raise typer.BadParameter("`--from` and `--to` are the same region")
    known = None if recorded is None else _recorded(recorded, wanted, virtual, consumer)
    move, pending = run(
        _failover(wanted, find_servers(wanted, lab), virtual, consumer, known or come_from or "", to, name, yes)
    )
    if output == "json":
        print_json(
            "consumer-failover",
            {
                "position": as_dict(move.position),
                "to": to,
                "consumer": move.config.name,
                "replaces": move.found is not None,
                "start": move.landing.start,
                "seen_twice": move.landing.again,
                "seen_twice_at_most": move.landing.again + move.position.beyond + move.position.unacknowledged,
                "ahead": move.landing.ahead,
                "done": yes,
                "pending": pending,
            },
        )
    else:
        console.print_note(f"Done: {pending:,} messages are to be delivered.", style="bold green")


def _stream(topology: Topology, name: str) -> VirtualStream:
    found = next((one for one in topology.streams if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in topology.streams)
        raise UnknownNameError(f"there is no virtual stream `{name}`", hint=f"there are {names}" if names else None)
    return found


def _check_region(stream: VirtualStream, region: str) -> None:
    if region not in stream.regions:
        raise UnknownNameError(
            f"`{stream.name}` is not in region `{region}`", hint=f"it is in {', '.join(stream.regions)}"
        )


def _recorded(file: Path, topology: Topology, stream: VirtualStream, consumer: str) -> Position:
    from vstream.plan import consumer_failover  # noqa: PLC0415

    found = consumer_failover.read(options.read_bytes(file, limit=-1).decode("utf-8", "replace"), str(file))
    said, meant = (found.topology, found.stream, found.consumer), (topology.name, stream.name, consumer)
    if said != meant:
        raise VstreamError(f"{file} is of {' / '.join(said)}, not of {' / '.join(meant)}")
    return found


async def _position(topology: Topology, where: Servers, stream: VirtualStream, consumer: str, region: str) -> Position:
    from vstream.health.live.consumer_position import read_position  # noqa: PLC0415
    from vstream.plan.live.observe import connect_all  # noqa: PLC0415

    async with connect_all(topology, where.endpoints) as connections:
        return await read_position(_connection(connections, region), topology, stream, region, consumer)


def _connection(connections: Mapping[str, Connection | VstreamError], region: str) -> Connection:
    found = connections[region]
    if isinstance(found, VstreamError):
        raise VstreamError(
            f"region `{region}` cannot be reached: {found.message}",
            hint="how far its consumers were is known only from a file of `vstream consumer position`",
        )
    return found


async def _failover(
    topology: Topology,
    where: Servers,
    stream: VirtualStream,
    consumer: str,
    come_from: Position | str,
    to: str,
    name: str | None,
    is_real: bool,
) -> tuple[_Move, int | None]:
    """What it takes, and once it is done, how many messages are to be delivered."""
    from vstream.health.live import consumer_position  # noqa: PLC0415
    from vstream.jetstream.admin import JetStreamAdmin  # noqa: PLC0415
    from vstream.plan import consumer_failover  # noqa: PLC0415
    from vstream.plan.live.observe import connect_all  # noqa: PLC0415

    async with connect_all(topology, where.endpoints) as connections:
        there = _connection(connections, to)
        admin = JetStreamAdmin(there)
        at = (
            await consumer_position.read_position(
                _connection(connections, come_from), topology, stream, come_from, consumer
            )
            if isinstance(come_from, str)
            else come_from
        )
        base, found = await _base(admin, topology, stream, to, name or consumer, at)
        landing = await consumer_position.resume_sequence(
            there, stream, to, at, consumer_failover.filters_of(base.fields)
        )
        move = _Move(
            position=at, landing=landing, found=found, config=consumer_failover.move_position(base, at, landing.start)
        )
        if not is_real:
            return move, None
        if found is not None and found.waiting:
            raise RefusedError(
                f"{found.waiting} requests of clients wait at `{found.config.name}`: they would lose their place",
                hint="stop them, or give the consumer another name with `--as`",
            )
        if found is not None:
            await admin.delete_consumer(found.config)
        await admin.create_consumer(move.config)
        return move, (await admin.consumer(base.stream, base.durable)).pending


async def _base(
    admin: JetStreamAdmin, topology: Topology, stream: VirtualStream, region: str, name: str, at: Position
) -> tuple[ConsumerConfig, ObservedConsumer | None]:
    """What the consumer shall be like: as the topology says, else as it is there, else as it was where it comes from."""
    from vstream.errors import ServerError  # noqa: PLC0415
    from vstream.lint.load_topology import render_bundle  # noqa: PLC0415
    from vstream.topology import physical  # noqa: PLC0415
    from vstream.topology.consumer_config import ConsumerConfig  # noqa: PLC0415
    from vstream.topology.stream_config import REGION_KEY, STREAM_KEY, TOPOLOGY_KEY  # noqa: PLC0415

    on = physical.read_stream_in(stream, region)
    try:
        found = await admin.consumer(on, name)
    except ServerError as error:
        if error.err_code != error_codes.CONSUMER_NOT_FOUND:
            raise
        found = None
    declared = {(one.config.stream, one.config.durable): one.config for one in render_bundle(topology).consumers}
    config = declared.get((on, name)) or (found.config if found else None)
    if config is None:
        # It is nobody's: the topology does not have it.
        ours = {TOPOLOGY_KEY, STREAM_KEY, REGION_KEY}
        said = at.config.get("metadata")
        metadata = {key: value for key, value in said.items() if key not in ours} if isinstance(said, dict) else {}
        config = ConsumerConfig(stream=on, durable=name, fields={**at.config, "metadata": metadata})
    return config, found
