"""
Read a consumer's position, and look for it in another region's stream.

The position is read by Direct Get, which also a region without a meta leader answers: a copy that is behind
makes it smaller, and then more comes again. Where it is in another stream is asked of that stream's leader: a copy
that is behind could hide the one message that delivery has to begin with.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from vstream.errors import ServerError, UnknownNameError
from vstream.health.live.lag import get_message
from vstream.jetstream import direct, error_codes
from vstream.jetstream.admin import JetStreamAdmin, ask_until_available
from vstream.jetstream.source_header import origin_of
from vstream.plan.consumer_failover import BackwardScan, Landing, Position, SourcedMessage, filters_of, takes
from vstream.topology import naming, physical
from vstream.topology.model import Role, Topology, VirtualStream
from vstream.topology.stream_config import source_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from vstream.jetstream.connection import Connection

SCANNED = 65_536
"""Number of messages before the position that are searched for the last one of each origin."""
_AT_ONCE = 64
_TIMEOUT = 10.0


def origins_of(stream: VirtualStream) -> tuple[str, ...]:
    """The origins that a position in *stream* names: one if all regions mirror it."""
    mirrored = physical.mirrored_stream(stream)
    if mirrored is not None:
        return (mirrored,)
    return tuple(physical.physical_name(stream, Role.WRITE, region) for region in stream.regions)


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
    try:
        observed = await admin.consumer(name, durable)
    except ServerError as error:
        if error.err_code != error_codes.CONSUMER_NOT_FOUND:
            raise
        raise UnknownNameError(
            f"there is no consumer `{durable}` on `{name}` in region `{region}`",
            hint=f"`nats consumer ls {naming.local_name(name)}` lists them",
        ) from None
    floor, delivered = observed.ack_floor, observed.delivered
    if observed.config.fields.get("ack_policy") in {None, "none"}:
        floor = delivered
    origins = origins_of(stream)
    filters = filters_of(observed.config.fields)
    after = [step async for step in _backwards(connection, name, delivered, floor, origins, get_message)]
    acknowledged = sum(takes(filters, step.subject) for step in after) - observed.unacknowledged
    is_mirror = stream.consistency.has_mirrors
    seqs = {origins[0]: floor} if is_mirror else await _before(connection, name, floor, origins, earlier)
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


async def resume_sequence(
    connection: Connection, stream: VirtualStream, region: str, at: Position, filters: Sequence[str]
) -> Landing:
    """The sequence that continues *at* in the stream that *region* reads from. Raises as requests do."""
    name = physical.read_stream_in(stream, region)
    info = await ask_until_available(lambda: JetStreamAdmin(connection).info(name))
    first, last = int(info["state"]["first_seq"]), int(info["state"]["last_seq"])
    before = max(0, first - 1)  # a stream that never had a message begins with 0
    positions = {
        source_name(source, name): int(source["seq"]) for source in info.get("sources") or () if source.get("seq")
    }
    if stream.consistency.has_mirrors:
        # A mirror has the sequences of what it mirrors.
        (floor,) = at.origins.values()
        steps = [step async for step in _backwards(connection, name, last, max(floor, before), (), _of_leader)]
        ahead = sum(takes(filters, step.subject) for step in steps)
        return Landing(stream=name, start=floor + 1, again=0, ahead=ahead)
    walk = BackwardScan(at.origins, positions, filters)
    if not walk.is_over:
        async for step in _backwards(connection, name, last, before, tuple(at.origins), _of_leader):
            walk.take(step)
            if walk.is_over:
                break
    return walk.landing(name, last)


async def _before(
    connection: Connection, name: str, floor: int, origins: tuple[str, ...], earlier: Position | None
) -> dict[str, int]:
    """The last sequence of each origin at or before *floor*, of those that are found."""
    begin, before = max(0, floor - SCANNED), dict[str, int]()
    if earlier is not None and begin <= earlier.floor <= floor:
        begin = earlier.floor
        before = {origin: seq for origin, seq in earlier.origins.items() if origin not in earlier.unknown}
    positions: dict[str, int] = {}
    async for step in _backwards(connection, name, floor, begin, origins, get_message):
        if step.origin in origins:
            # The first one found is the last of its origin: each stands in its own order.
            positions.setdefault(str(step.origin), step.origin_seq)
            if len(positions) == len(origins):
                break
    return before | positions


async def _of_leader(connection: Connection, stream: str, seq: int, patience: float) -> direct.DirectMessage | None:
    return await ask_until_available(lambda: direct.leader_get_by_seq(connection, stream, seq, timeout=patience))


async def _backwards(
    connection: Connection, name: str, last: int, before: int, origins: tuple[str, ...], read: Callable[..., Any]
) -> AsyncIterator[SourcedMessage]:
    """The messages of stream *name* from sequence *last* down to the one after *before*."""
    for top in range(last, before, -_AT_ONCE):
        seqs = range(top, max(before, top - _AT_ONCE), -1)
        for message in await asyncio.gather(*(read(connection, name, seq, _TIMEOUT) for seq in seqs)):
            if message is not None:
                origin, seq = origin_of(message.headers, origins, taker=name)
                yield SourcedMessage(seq=message.seq, subject=message.subject, origin=origin, origin_seq=seq or 0)
