"""
Beacons: a small message of each region that stays, on the canary subject of the topology.

The age of the newest beacon in another region is an end-to-end lag that depends on no server's figures. In streams
that keep only the last message of a subject, beacons also preserve how far each source has come.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping

from vstream.errors import NotReachableError, VstreamError
from vstream.health.snapshot import BeaconSighting
from vstream.jetstream import direct
from vstream.jetstream.answers import api_error, decode_object
from vstream.jetstream.connection import Connection
from vstream.jetstream.region_connections import connect_all, join_connections, require_reached
from vstream.jetstream.source_header import EXPECTED_STREAM
from vstream.topology import naming, physical
from vstream.topology.model import Endpoint, Topology, VirtualStream
from vstream.value_class import value_class

HEADER = "Vstream-Beacon"
"""`<region of origin> <seconds since 1970>`."""
_MAX_PARALLEL_REQUESTS = 32
MAX_BEACONS = 324
"""Number of beacons that one look reads: those of 36 streams in three regions. Each is a request."""
_LOOK_TIMEOUT = 3.0


def list_streams_with_beacons(topology: Topology) -> tuple[VirtualStream, ...]:
    """The streams that take beacons: those with a canary subject per region."""
    return tuple(stream for stream in topology.streams if stream.canary is not None and "*" in stream.canary.split("."))


async def publish_beacons(
    topology: Topology, connections: Mapping[str, Connection | NotReachableError]
) -> tuple[str, ...]:
    """Publish one beacon per region and stream. Returns what went wrong, by region and stream."""
    slots = asyncio.Semaphore(_MAX_PARALLEL_REQUESTS)

    async def publish_beacon(stream: VirtualStream, region: str) -> str | None:
        connection, subject = connections[region], naming.canary_subject(stream, region)
        if isinstance(connection, NotReachableError) or subject is None:
            return f"{region}: {connection}"
        # A wrong mapping is refused where it leads: a beacon of another region would be a lie.
        headers = {HEADER: f"{region} {time.time():.6f}", EXPECTED_STREAM: physical.write_stream_in(stream, region)}
        async with slots:
            try:
                reply = await connection.request(subject, headers=headers)
                error = api_error(decode_object(reply.data, subject), subject)
            except VstreamError as problem:
                return f"{stream.name} in {region}: {problem}"
        return None if error is None else f"{stream.name} in {region}: {error.description}"

    problems = await asyncio.gather(*(publish_beacon(stream, region) for stream, region in _list_pairs(topology)))
    return tuple(dict.fromkeys(problem for problem in problems if problem))


async def read_beacons(
    topology: Topology,
    connections: Mapping[str, Connection | NotReachableError],
    *,
    patience: float,
    most: int | None = None,
) -> tuple[BeaconSighting, ...]:
    """
    The newest beacon of each region in each region. Waits *patience* seconds for each at most.

    With *most*, reads only that many: those of the topology's first streams.
    """
    slots = asyncio.Semaphore(_MAX_PARALLEL_REQUESTS)

    async def read_beacon(stream: VirtualStream, origin: str, reader: str) -> BeaconSighting:
        subject = naming.canary_subject(stream, origin)
        try:
            connection = require_reached(connections[reader])
            async with slots:
                message = await direct.get_newest(
                    connection, physical.read_stream_in(stream, reader), subject or "", timeout=patience
                )
        except VstreamError as error:
            return BeaconSighting(stream=stream.name, origin=origin, reader=reader, problem=error.message)
        region, _, at = (message.headers.get(HEADER, "") if message else "").partition(" ")
        try:
            sent = float(at) if region == origin else None
        except ValueError:
            sent = None
        age = None if sent is None else max(0.0, time.time() - sent)
        is_absent = age is None
        return BeaconSighting(
            stream=stream.name,
            origin=origin,
            reader=reader,
            sent=sent,
            age=age,
            problem="there is none" if is_absent else None,
            is_absent=is_absent,
        )

    triples = [(stream, origin, reader) for stream, origin in _list_pairs(topology) for reader in stream.regions]
    return tuple(await asyncio.gather(*(read_beacon(*each) for each in triples[:most])))


def _list_pairs(topology: Topology) -> Iterator[tuple[VirtualStream, str]]:
    for stream in list_streams_with_beacons(topology):
        for region in stream.regions:
            yield stream, region


@value_class
class BeaconRound:
    """The newest beacons, and what went wrong when newer ones were published."""

    topology: Topology
    seen: tuple[BeaconSighting, ...]
    problems: tuple[str, ...]


class BeaconSender:
    """Reads and publishes the beacons of *topology* by *endpoints*. Raises VstreamError where no stream takes any."""

    def __init__(self, topology: Topology, endpoints: Mapping[str, Endpoint]) -> None:
        if not list_streams_with_beacons(topology):
            hint = "give one a subject for them: `canary: foo._canary.*` in the topology"
            raise VstreamError("no stream takes beacons", hint=hint)
        self._topology = topology
        self._endpoints = endpoints

    async def send(self) -> BeaconRound:
        """Read the newest beacon of each region in each region, then publish. Raises NotReachableError if no region can be reached."""
        async with connect_all(self._topology, self._endpoints) as connections:
            join_connections(connections)
            seen = await read_beacons(self._topology, connections, patience=_LOOK_TIMEOUT)
            problems = await publish_beacons(self._topology, connections)
        return BeaconRound(topology=self._topology, seen=seen, problems=problems)
