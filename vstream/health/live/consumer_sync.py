"""
Keep the positions of a topology's consumers in every other region, so that they survive the loss of their own.

Where: in the metadata of a consumer that takes nothing, beside the read stream of each other region (`plan/consumer_failover.py`).
It needs no stream or right of its own, works in all routing profiles, and is gone with nothing but all regions that have it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from vstream.errors import RefusedError, ServerError, UnknownNameError, VstreamError
from vstream.health.live.consumer_position import read_position
from vstream.jetstream import error_codes
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.region_connections import connect_all, require_reached
from vstream.plan.consumer_failover import Position, parse_record, record_config
from vstream.topology import physical
from vstream.topology.model import Endpoint, Topology, VirtualStream
from vstream.topology.replication import Durable, list_durables
from vstream.value_class import value_class


@value_class
class SyncedConsumer:
    """One consumer of one region, and the other regions that have its position."""

    durable: Durable
    position: Position | None
    kept_in: tuple[str, ...]
    problems: tuple[str, ...]
    is_refused: bool = False
    """Whether one of them is an answer: something does not exist, or is refused. What does not answer is unknown."""


class ConsumerSync:
    """Keeps the positions of all durables of *topology* on the virtual *streams*, whenever `sync` or `keep` is called."""

    def __init__(self, topology: Topology, streams: Collection[str], endpoints: Mapping[str, Endpoint]) -> None:
        self._topology = topology
        self._endpoints = endpoints
        self._streams = {stream.name: stream for stream in topology.streams if stream.name in streams}
        self._kept: dict[tuple[Durable, str], Position] = {}

    async def sync(self) -> tuple[SyncedConsumer, ...]:
        """`keep`, with connections of its own: regions come and go."""
        async with connect_all(self._topology, self._endpoints) as connections:
            return await self.keep(connections)

    async def keep(self, connections: Mapping[str, Connection | VstreamError]) -> tuple[SyncedConsumer, ...]:
        """Read every position, and write it wherever it has changed. Never raises for what servers say."""
        result = []
        for durable in list_durables(self._topology):
            stream = self._streams.get(durable.virtual)
            if stream is not None:
                result.append(await self._keep(durable, stream, connections))
        return tuple(result)

    async def _keep(
        self, durable: Durable, stream: VirtualStream, connections: Mapping[str, Connection | VstreamError]
    ) -> SyncedConsumer:
        synced = SyncedConsumer(durable=durable, position=None, kept_in=(), problems=())
        destinations = [region for region in stream.regions if region != durable.region]
        earlier = next((position for (item, _), position in self._kept.items() if item == durable), None)
        try:
            home = require_reached(connections[durable.region])
            position = await read_position(home, self._topology, stream, durable.region, durable.name, earlier=earlier)
        except VstreamError as error:
            return replace(synced, problems=(error.message,), is_refused=_is_refusal(error))
        kept_in, problems, is_refused = [], [], False
        for region in destinations:
            try:
                await self._write(require_reached(connections[region]), durable, region, stream, position)
                kept_in.append(region)
            except VstreamError as error:
                self._kept.pop((durable, region), None)  # it may come back with empty disks
                problems.append(f"{region}: {error.message}")
                is_refused |= _is_refusal(error)
        return replace(
            synced, position=position, kept_in=tuple(kept_in), problems=tuple(problems), is_refused=is_refused
        )

    async def _write(
        self, connection: Connection, durable: Durable, region: str, stream: VirtualStream, position: Position
    ) -> None:
        earlier = self._kept.get((durable, region))
        if earlier is not None and replace(position, at=earlier.at) == earlier:
            return
        admin, config = JetStreamAdmin(connection), record_config(position, physical.read_stream_in(stream, region))
        existing = await admin.find_consumer(config.stream, config.durable)
        if existing is None:
            await admin.create_consumer(config)
        elif parse_record(existing.config) is None:
            raise RefusedError(f"`{config.name}` exists, but vstream did not create it")
        else:
            await admin.update_consumer(config)
        self._kept[durable, region] = position


def _is_refusal(error: VstreamError) -> bool:
    if isinstance(error, ServerError):
        return error.err_code not in error_codes.TEMPORARILY_UNAVAILABLE
    return isinstance(error, (RefusedError, UnknownNameError))
