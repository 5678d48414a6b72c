"""
Read a consumer's position, look for it in another region's stream, and continue there.

The position is read by Direct Get, which also a region without a meta leader answers: a copy that is behind
makes it smaller, and then more comes again. Where it is in another stream is asked of that stream's leader: a copy
that is behind could hide the one message that delivery has to begin with.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from vstream.errors import RefusedError, ServerError, UnknownNameError, VstreamError
from vstream.jetstream import direct
from vstream.jetstream.admin import JetStreamAdmin, ask_until_available
from vstream.jetstream.answers import require_text
from vstream.jetstream.connection import Connection
from vstream.jetstream.region_connections import connect_all
from vstream.jetstream.source_header import origin_of, read_positions
from vstream.plan.consumer_failover import (
    BackwardScan,
    Position,
    SourcedMessage,
    StartPoint,
    filters_of,
    move_position,
    parse_record,
    receives,
    record_name,
)
from vstream.render.pipeline import render_bundle
from vstream.topology import naming, physical
from vstream.topology.bundle import Bundle
from vstream.topology.consumer_config import ConsumerConfig, ObservedConsumer
from vstream.topology.model import Endpoint, Role, Topology, VirtualStream
from vstream.topology.replication import sources_of
from vstream.topology.stream_config import OWNERSHIP_KEYS
from vstream.value_class import value_class

Connections = Mapping[str, Connection | VstreamError]

MAX_SCANNED = 65_536
"""Number of messages before the position that are searched for the last one of each origin."""
_RECORDED_ONLY = "`vstream consumer sync` keeps its consumers' positions in the other regions; none is there"
"""What to do where a region does not answer whose positions are asked for."""
_TO_HINT = "name a region that answers with `--to`"
_PRECISION = timedelta(seconds=1)
"""Records say the time without fractions of a second."""
_TIMEOUT = 10.0


def origins_of(stream: VirtualStream) -> tuple[str, ...]:
    """The origins that a position in *stream* names: one if all regions mirror it."""
    return tuple(origin.name for origin in sources_of(stream, Role.READ))


@value_class
class MoveRequest:
    """A durable of a virtual stream that is to go on in the region *to*, called *name* there."""

    topology: Topology
    stream: VirtualStream
    durable: str
    come_from: str | None
    """The region where its clients were; None with *recorded*."""
    recorded: Position | None
    """Where it was. Without it, that is read in the region *come_from*, or in *to* where that one does not answer."""
    to: str
    name: str


@value_class
class ConsumerMove:
    """Everything that is known before anything is done."""

    request: MoveRequest
    position: Position
    start: StartPoint
    existing: ObservedConsumer | None
    """The consumer that is there already."""
    config: ConsumerConfig
    """What it will be."""
    is_recorded: bool
    """Whether the position is not read from the consumer itself, but as it was recorded."""

    @property
    def seen_twice_at_most(self) -> int:
        """Messages that may be delivered again."""
        if self.is_recorded:
            return self.start.remaining
        return self.start.redelivered + self.position.beyond + self.position.unacknowledged


async def read_position_in(
    topology: Topology, endpoints: Mapping[str, Endpoint], stream: VirtualStream, region: str, durable: str
) -> Position:
    """How far *durable* is in *region*. Raises VstreamError if that cannot be known."""
    async with connect_all(topology, endpoints) as connections:
        connection = _require_connection(connections, region, _RECORDED_ONLY)
        return await read_position(connection, topology, stream, region, durable)


async def move_consumer(
    request: MoveRequest, endpoints: Mapping[str, Endpoint], *, is_approved: bool
) -> tuple[ConsumerMove, int | None]:
    """What it takes, and once it is done, how many messages are to be delivered. Changes nothing unless *is_approved*."""
    async with connect_all(request.topology, endpoints) as connections:
        move = await plan_move(request, render_bundle(request.topology), connections)
        return move, await carry_out_move(move, connections) if is_approved else None


async def plan_move(request: MoveRequest, bundle: Bundle, connections: Connections) -> ConsumerMove:
    """What it takes to continue the consumer; nothing is changed. Raises VstreamError if that cannot be known."""
    target = _require_connection(connections, request.to, _TO_HINT)
    name = physical.read_stream_in(request.stream, request.to)
    position, is_recorded = request.recorded, True
    if position is None:
        position, is_recorded = await _find_position(request, connections)
    existing = await ask_until_available(lambda: JetStreamAdmin(target).find_consumer(name, request.name))
    base = _base_config(bundle, existing, name, request.name, position)
    ended = await _find_end(request, position, target) if is_recorded else None
    start = await find_start_point(target, request.stream, request.to, position, filters_of(base.fields), ended)
    config = move_position(base, position, start.seq)
    return ConsumerMove(
        request=request, position=position, start=start, existing=existing, config=config, is_recorded=is_recorded
    )


async def carry_out_move(move: ConsumerMove, connections: Connections) -> int:
    """Make the consumer, in place of the one that is there. Returns how many messages it is to deliver. Raises VstreamError."""
    admin, existing = JetStreamAdmin(_require_connection(connections, move.request.to, _TO_HINT)), move.existing
    # Where the region that died had the meta leader, another one has to be elected first.
    if existing is not None:
        await ask_until_available(lambda: _delete_unused(admin, existing))
    await ask_until_available(lambda: admin.create_consumer(move.config))
    created = await ask_until_available(lambda: admin.consumer(move.config.stream, move.config.durable))
    return created.pending


async def _delete_unused(admin: JetStreamAdmin, planned: ObservedConsumer) -> None:
    """Delete *planned* unless it is gone. May be repeated; raises RefusedError if it is in use, or was made again meanwhile."""
    config = planned.config
    current = await admin.find_consumer(config.stream, config.durable)
    if current is None:
        return
    if current.created != planned.created:
        raise RefusedError(f"`{config.name}` was deleted and made again meanwhile", hint="run this again")
    if current.waiting:
        raise RefusedError(
            f"{current.waiting} requests of clients wait at `{config.name}`: they would lose their place",
            hint="stop them, or give the consumer another name with `--as`",
        )
    await admin.delete_consumer(config)


def _require_connection(connections: Connections, region: str, hint: str) -> Connection:
    """The connection to *region*. Raises VstreamError with *hint* if there is none."""
    connection = connections.get(region) or VstreamError(f"region `{region}` was given up")
    if isinstance(connection, VstreamError):
        raise VstreamError(connection.message, hint=hint)
    return connection


async def _find_position(request: MoveRequest, connections: Connections) -> tuple[Position, bool]:
    """The position in the region it comes from, or as its new region has kept it if that does not answer; and whether so."""
    stream, durable, come_from = request.stream, request.durable, str(request.come_from)
    try:
        connection = _require_connection(connections, come_from, _RECORDED_ONLY)
        return await read_position(connection, request.topology, stream, come_from, durable), False
    except (ServerError, UnknownNameError):
        raise
    except VstreamError:
        admin = JetStreamAdmin(_require_connection(connections, request.to, _TO_HINT))
        keeper = await admin.find_consumer(physical.read_stream_in(stream, request.to), record_name(come_from, durable))
        kept_position = None if keeper is None else parse_record(keeper.config)
        if kept_position is None:
            raise
        return kept_position, True


def _base_config(
    bundle: Bundle, existing: ObservedConsumer | None, stream: str, durable: str, position: Position
) -> ConsumerConfig:
    """What the consumer will be: as the topology says, else as it exists there, else as it was where it comes from."""
    for declared in bundle.consumers:
        if (declared.config.stream, declared.config.durable) == (stream, durable):
            return declared.config
    if existing is not None:
        return existing.config
    # The topology does not have it, so it belongs to nobody.
    former = ConsumerConfig(stream=stream, durable=durable, fields=position.config)
    metadata = {key: value for key, value in former.metadata.items() if key not in OWNERSHIP_KEYS}
    return ConsumerConfig(stream=stream, durable=durable, fields={**position.config, "metadata": {**metadata}})


async def read_position(
    connection: Connection,
    topology: Topology,
    stream: VirtualStream,
    region: str,
    durable: str,
    *,
    earlier: Position | None = None,
) -> Position:
    """
    The position of *durable* in *region*; with an *earlier* one, only what came after that is read.

    Raises UnknownNameError if there is no such consumer, and as requests do.
    """
    admin, name = JetStreamAdmin(connection), physical.read_stream_in(stream, region)
    observed = await admin.find_consumer(name, durable)
    if observed is None:
        raise UnknownNameError(
            f"there is no consumer `{durable}` on `{name}` in region `{region}`",
            hint=f"`nats consumer ls {naming.local_name(name)}` lists them",
        )
    floor, delivered = observed.ack_floor, observed.delivered
    if observed.config.fields.get("ack_policy") in {None, "none"}:
        floor = delivered
    origins = origins_of(stream)
    filters = filters_of(observed.config.fields)
    after = [step async for step in _walk_back(connection, name, delivered, floor, origins, direct.read_message)]
    acknowledged = sum(receives(filters, step.subject) for step in after) - observed.unacknowledged
    is_mirror = stream.consistency.has_mirrors
    seqs = {origins[0]: floor} if is_mirror else await _read_before(connection, name, floor, origins, earlier)
    return Position(
        topology=topology.name,
        stream=stream.name,
        consumer=durable,
        region=region,
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        origins={origin: seqs.get(origin, 0) for origin in origins},
        unknown=tuple(origin for origin in origins if origin not in seqs),
        beyond=max(0, acknowledged),
        unacknowledged=observed.unacknowledged,
        config=observed.config.fields,
        floor=floor,
    )


async def find_start_point(
    connection: Connection,
    stream: VirtualStream,
    region: str,
    at: Position,
    filters: Sequence[str],
    ended: datetime | None = None,
) -> StartPoint:
    """
    The sequence that continues *at* in the stream that *region* reads from. Raises as requests do.

    With *ended*, *at* is a record, and nothing that was stored from then on counts as acknowledged.
    """
    name = physical.read_stream_in(stream, region)
    info = await ask_until_available(lambda: JetStreamAdmin(connection).info(name))
    first, last = int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
    before = max(0, first - 1)  # a stream that never had a message begins with 0
    positions = read_positions(info, name)
    if stream.consistency.has_mirrors:
        # A mirror has the sequences of what it mirrors.
        (floor,) = at.origins.values()
        if ended is not None:
            floor = await _lower_floor(connection, name, min(floor, last), before, ended)
        steps = [step async for step in _walk_back(connection, name, last, max(floor, before), (), _ask_leader)]
        remaining = sum(receives(filters, step.subject) for step in steps)
        return StartPoint(stream=name, seq=floor + 1, redelivered=0, remaining=remaining)
    walk = BackwardScan(at.origins, positions, filters)
    if not walk.is_over:
        async for step in _walk_back(connection, name, last, before, tuple(at.origins), _ask_leader):
            walk.add(step)
            if walk.is_over:
                break
    return walk.start_point(name, last)


async def _find_end(request: MoveRequest, at: Position, connection: Connection) -> datetime:
    """From when on nothing counts as acknowledged by the record *at*. Raises as requests do."""
    ended = datetime.fromisoformat(at.at) + _PRECISION
    mirrored = physical.mirrored_stream(request.stream)
    lost_with = {lost.name for lost in request.topology.lost if request.stream.name in lost.homes}
    if mirrored is None or at.region not in lost_with:
        return ended
    # The new origin is younger than every position in the dead region, whatever the clock says of who recorded that.
    info = await ask_until_available(lambda: JetStreamAdmin(connection).info(mirrored))
    return min(ended, datetime.fromisoformat(require_text(info["created"])))


async def _lower_floor(connection: Connection, name: str, floor: int, before: int, ended: datetime) -> int:
    """
    *floor*, or what is before the first message up to there that was stored after *ended*.

    A new origin begins after the last message of a copy, and gives out once more the sequences after it.
    """
    async for step in _walk_back(connection, name, floor, before, (), _ask_leader):
        if datetime.fromisoformat(step.stored_at) < ended:
            break
        floor = step.seq - 1
    return floor


async def _read_before(
    connection: Connection, name: str, floor: int, origins: tuple[str, ...], earlier: Position | None
) -> dict[str, int]:
    """The last sequence of each origin at or before *floor*, of those that are found."""
    begin, before = max(0, floor - MAX_SCANNED), dict[str, int]()
    if earlier is not None and begin <= earlier.floor <= floor:
        begin = earlier.floor
        before = {origin: seq for origin, seq in earlier.origins.items() if origin not in earlier.unknown}
    positions: dict[str, int] = {}
    async for step in _walk_back(connection, name, floor, begin, origins, direct.read_message):
        if step.origin in origins:
            # The first one found is the last of its origin: each stands in its own order.
            positions.setdefault(str(step.origin), step.origin_seq)
            if len(positions) == len(origins):
                break
    return before | positions


async def _ask_leader(connection: Connection, stream: str, seq: int, patience: float) -> direct.DirectMessage | None:
    return await ask_until_available(lambda: direct.get_by_seq_from_leader(connection, stream, seq, timeout=patience))


async def _walk_back(
    connection: Connection, name: str, last: int, before: int, origins: tuple[str, ...], read: direct.Read
) -> AsyncIterator[SourcedMessage]:
    """The messages of stream *name* from sequence *last* down to the one after *before*."""
    async for message in direct.walk_back(connection, name, last, before, timeout=_TIMEOUT, read=read):
        origin, seq = origin_of(message.headers, origins, reader=name)
        yield SourcedMessage(
            seq=message.seq,
            subject=message.subject,
            origin=origin,
            origin_seq=seq or 0,
            stored_at=message.stored_at,
        )
