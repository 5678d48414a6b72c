"""
What still prevents a safe stop of a region or a server.

A region is empty once every other region has taken everything of its write streams, and nothing more comes into them. A server can
be stopped once each stream that has a replica on it keeps a majority without it. Leaders step down before: a stream that loses its
leader takes no publish until another is elected, seconds later.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from vstream.errors import LabError, NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.error_codes import ELECTION_TIMEOUT
from vstream.plan.live.gate_checks import LiveGateChecker
from vstream.plan.model import Gate, GateKind
from vstream.servers import leaders
from vstream.servers.leaders import StreamLeadership
from vstream.servers.target_servers import TargetServers
from vstream.topology.model import Topology
from vstream.topology.replication import physical_streams, replication_pairs
from vstream.topology.stream_limits import PER_SUBJECT, read_limit
from vstream.value_class import value_class

Sentences = tuple[str, ...]
_Look = tuple[Sentences, Sentences, bool]
"""What is missing, what is silent, and whether to wait is of no use."""
_POLL_SECONDS = 0.2


@value_class
class DrainState:
    """What a region or a server that is about to stop still does, one sentence each."""

    moved: tuple[str, ...] = ()
    """What other servers lead now."""
    obstacles: tuple[str, ...] = ()
    """Why it must not be stopped yet."""
    unknown: tuple[str, ...] = ()
    """What could not be checked."""
    notes: tuple[str, ...] = ()
    """What does not work while it is stopped, and what may be wrong that nobody looked for."""

    @property
    def is_safe(self) -> bool | None:
        """Whether it can be stopped; None if not everything could be checked."""
        if self.obstacles:
            return False
        return None if self.unknown else True


async def wait_until_region_empty(
    topology: Topology, target: TargetServers, region: str, *, within: float, moves_leaders: bool
) -> DrainState:
    """Wait up to *within* seconds until the drained *region* holds nothing that others lack. *moves_leaders*: leaders step down first."""
    servers = frozenset(seat.server.name for seat in topology.all_seats if seat.region == region)
    outside = next(candidate.name for candidate in topology.regions if candidate.name != region)
    async with target.connect(outside) as connection:
        checker = LiveGateChecker(connection)

        async def look() -> _Look:
            missing = await asyncio.gather(*(checker.find_missing(gate) for gate in _list_gates(topology, region)))
            stranded, silent, is_final = await _find_stranded(topology, connection, servers, other_places=True)
            return (*filter(None, missing), *stranded), silent, is_final

        moved = await _move_leaders(topology, target, connection, servers) if moves_leaders else DrainState()
        seen = await _wait_until_empty(topology, servers, moved, look, within)
        return replace(seen, notes=(*seen.notes, *_describe_stale_values(topology, region)))


async def wait_until_server_empty(
    topology: Topology, target: TargetServers, server: str, *, within: float, moves_leaders: bool
) -> DrainState:
    """Wait up to *within* seconds until no stream of *topology* needs *server*. *moves_leaders*: leaders step down first."""
    servers = frozenset((server,))
    async with target.connect() as connection:

        async def look() -> _Look:
            return await _find_stranded(topology, connection, servers, other_places=False)

        moved = await _move_leaders(topology, target, connection, servers) if moves_leaders else DrainState()
        return await _wait_until_empty(topology, servers, moved, look, within)


async def _wait_until_empty(
    topology: Topology, servers: frozenset[str], moved: DrainState, look: Callable[[], Awaitable[_Look]], within: float
) -> DrainState:
    """What *servers* still do once nothing is missing or silent, or after *within* seconds: replicas that are made take a while."""
    until = time.monotonic() + within
    while True:
        missing, silent, is_final = await look()
        if not (missing or silent) or is_final or time.monotonic() > until:
            notes = tuple(_describe_outage(topology, servers))
            return replace(moved, obstacles=missing, unknown=(*moved.unknown, *silent), notes=notes)
        await asyncio.sleep(_POLL_SECONDS)


def _list_gates(topology: Topology, region: str) -> Iterator[Gate]:
    """Each write stream of *region*, and who outside of it takes from there."""
    readers: dict[str, list[str]] = {}
    for stream in topology.streams:
        for pair in replication_pairs(stream):
            if pair.origin.place == region and pair.reader.place != region:
                readers.setdefault(pair.origin.name, []).append(pair.reader.name)
    for origin, taking in readers.items():
        yield Gate(kind=GateKind.READERS_HAVE_ALL, stream=origin, counterparts=tuple(taking))


async def _move_leaders(
    topology: Topology, target: TargetServers, connection: Connection, servers: frozenset[str]
) -> DrainState:
    """What is led elsewhere now, and what is not known to be. Streams without a replica elsewhere stay where they are."""
    moved, unknown = [], []
    for name in _list_stream_names(topology):
        seen = await _look_up(connection, name)
        if seen is not None and seen.leader in servers and not seen.peers.keys() <= servers:
            if leader := await _hand_over(connection, name, servers):
                moved.append(f"`{name}` is led by {leader}")
            else:
                unknown.append(f"`{name}` is still led from there")
    try:
        if topology_leader := await _move_meta_leader(target, servers):
            moved.append(f"the JetStream meta group is led by {topology_leader}")
    except VstreamError as error:
        unknown.append(f"who leads the JetStream meta group: {error.message}")
    return DrainState(moved=tuple(moved), unknown=tuple(unknown))


async def _hand_over(connection: Connection, stream: str, servers: frozenset[str]) -> str | None:
    """The leader of *stream* once it is not one of *servers*: any follower may be elected, so it can take several step-downs."""
    until = time.monotonic() + ELECTION_TIMEOUT
    while time.monotonic() < until:
        seen = await _look_up(connection, stream)
        leader = None if seen is None else seen.leader
        if leader is not None and leader not in servers:
            return leader
        if leader is not None:
            # While another is elected nobody answers: the next look shows who it is.
            with suppress(NotReachableError, ServerError, NoRespondersError):
                await JetStreamAdmin(connection).step_down(stream)
        await asyncio.sleep(_POLL_SECONDS)
    return None


async def _move_meta_leader(target: TargetServers, servers: frozenset[str]) -> str | None:
    """The meta leader after step-downs; None if it was none of *servers*. Raises VstreamError."""
    leader = await leaders.require_meta_leader(target)
    if leader not in servers:
        return None
    until = time.monotonic() + ELECTION_TIMEOUT
    async with target.connect_to_system() as system:
        while leader in servers:
            if time.monotonic() > until:
                raise LabError(f"its leader returns to {leader} each time", hint="run this again")
            await JetStreamAdmin(system).step_down_meta()
            elected, _ = await leaders.wait_for_successor(lambda: leaders.find_meta_leader(target.monitors()), leader)
            leader = elected or leader
    return leader


async def _find_stranded(
    topology: Topology, connection: Connection, servers: frozenset[str], *, other_places: bool
) -> _Look:
    """
    Streams that lose their majority without *servers*, streams that did not answer, and whether one has too few others for good.

    With *other_places*, streams that are in the cluster of *servers* alone do not count: they stop with it, and are empty.
    """
    stranded, unknown, is_final = [], [], False
    for name in _list_stream_names(topology):
        seen = await _look_up(connection, name)
        if seen is None:
            unknown.append(f"`{name}` does not answer")
            continue
        peers = seen.peers if seen.leader is None else {**seen.peers, seen.leader: True}
        if not servers & peers.keys() or (other_places and peers.keys() <= servers):
            continue
        current = [peer for peer, is_current in peers.items() if is_current and peer not in servers]
        needed = len(peers) // 2 + 1
        is_final |= len(peers.keys() - servers) < needed
        if len(peers) == 1:
            stranded.append(f"`{name}` has its only replica there")
        elif len(current) < needed:
            stranded.append(f"`{name}` has {len(current)} current replicas besides, and needs {needed}")
    return tuple(stranded), tuple(unknown), is_final


def _describe_outage(topology: Topology, servers: frozenset[str]) -> Iterator[str]:
    total = len(topology.all_seats)
    left = total - len(servers)
    if left <= total // 2:
        yield f"meanwhile {left} of {total} servers are no majority: no stream or consumer can be created or changed anywhere"


def _describe_stale_values(topology: Topology, region: str) -> Iterator[str]:
    """Its clients' later publishes may have come to others before earlier ones: then these are the last of their subjects."""
    for stream in topology.streams:
        keeps_newest = any(read_limit(settings, PER_SUBJECT) for settings in stream.read_settings.values())
        if region in stream.write_settings and keeps_newest:
            keeps = f"regions may keep the older value of a subject of `{stream.name}` that changed meanwhile"
            yield f"{keeps}: `vstream repair messages --stream {stream.name}` brings the newer one back"


def _list_stream_names(topology: Topology) -> Iterator[str]:
    for stream in topology.streams:
        yield from (part.name for part in physical_streams(stream))


async def _look_up(connection: Connection, stream: str) -> StreamLeadership | None:
    """Who serves *stream*; None without a usable answer."""
    try:
        return await leaders.fetch_leadership(connection, stream)
    except (LabError, NotReachableError, NoRespondersError):
        return None
