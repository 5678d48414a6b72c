"""When a super-cluster is ready: facts in sequence, each checked on every server until it holds or time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from vstream.errors import LabError, NotReachableError, ServerError
from vstream.formatting import quote_names
from vstream.jetstream import monitoring
from vstream.jetstream.monitoring import Meta
from vstream.lab.links.state import Direction
from vstream.lab.server import SpawnedServers
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class

READY_TIMEOUT = 60.0
"""Seconds until the servers of a lab must be ready, where nobody says otherwise."""
_POLL_SECONDS = 0.1


class ReadinessStage(Enum):
    """What `up` is waiting for."""

    CONFIGS = "configurations accepted"
    ACCEPTING = "servers accepting clients"
    LINKED = "servers linked"
    LED = "servers with a JetStream leader"
    HEARD = "links between regions that carry messages"


@dataclass(frozen=True, slots=True)
class ReadinessProgress:
    """Progress of `up`: *done* of *total* servers have reached *stage*."""

    stage: ReadinessStage
    done: int
    total: int


@value_class
class Member:
    """A server, and the servers that it must be linked with."""

    name: str
    host: str
    client: int
    monitor: str
    siblings: frozenset[str]
    """The other servers of its cluster, reached by routes."""
    clusters: frozenset[str]
    """All other clusters, reached by gateways."""
    peers: int
    """Number of servers in its meta group; 0 for a server without JetStream."""
    hub: str | None = None
    """The server that connects its region to the others."""


def trust_monitors(addresses: Iterable[ServerAddress]) -> None:
    """From now on, monitoring requests to *addresses* trust the lab's own authority."""
    for address in addresses:
        if address.transport is not None:
            monitoring.trust_ca((address.monitor_url,), address.transport.ca_file)


def list_members(
    addresses: Sequence[ServerAddress],
    cuts: Collection[Direction] = (),
    *,
    voters: Sequence[ServerAddress] | None = None,
) -> tuple[Member, ...]:
    """
    What each of *addresses* must be linked with, if these are all that run, and the links *cuts* carry nothing.

    *voters* is every server, running or not: all have a vote in their meta group.
    """
    everyone = addresses if voters is None else voters
    # Where there are hubs, each region has a meta group of its own.
    has_hubs = any(address.is_hub for address in everyone)
    return tuple(_make_member(address, addresses, cuts, everyone, has_hubs=has_hubs) for address in addresses)


def _make_member(
    address: ServerAddress,
    running: Sequence[ServerAddress],
    cuts: Collection[Direction],
    everyone: Sequence[ServerAddress],
    *,
    has_hubs: bool,
) -> Member:
    siblings, clusters = set(), set()
    for peer in running:
        is_sending = (address.region, peer.region) not in cuts
        if peer.cluster_name != address.cluster_name:
            if is_sending and address.is_hub is peer.is_hub is has_hubs:
                clusters.add(peer.cluster_name)
        elif peer is not address and is_sending and (peer.region, address.region) not in cuts:
            siblings.add(peer.server.name)
    hub, peers = None, 0
    if not address.is_hub:
        hub = next((peer.server.name for peer in running if peer.is_hub and peer.region == address.region), None)
        peers = sum(not has_hubs or peer.cluster_name == address.cluster_name for peer in everyone)
    return Member(
        name=address.server.name,
        host=address.host,
        client=address.client,
        monitor=address.monitor_url,
        hub=hub,
        peers=peers,
        siblings=frozenset(siblings),
        clusters=frozenset(clusters),
    )


async def check_clients(member: Member) -> str | None:
    """Why *member* cannot serve clients yet; None if it can."""
    varz = await monitoring.read_varz(member.monitor)
    if varz.server_name != member.name:
        return f"`{member.monitor}` is answered by server `{varz.server_name}`"
    try:
        async with asyncio.timeout(monitoring.TIMEOUT):
            reader, writer = await asyncio.open_connection(member.host, member.client)
            try:
                greeting = await reader.readline()
            finally:
                writer.close()
    except OSError as error:  # TimeoutError is one
        return f"no client can connect to port {member.client}: {error or 'no answer'}"
    return None if greeting.startswith(b"INFO ") else f"port {member.client} does not greet as a nats-server"


async def check_links(member: Member) -> str | None:
    """The links that *member* lacks; None if it has all."""
    if missing := member.siblings - await monitoring.list_routed_servers(member.monitor):
        return f"no route to {quote_names(sorted(missing))}"
    if member.hub is not None and member.hub not in await monitoring.list_leaf_servers(member.monitor):
        return f"no leaf connection to `{member.hub}`"
    if not member.clusters:
        return None
    if missing := member.clusters - (await monitoring.read_gateway_bytes(member.monitor)).keys():
        return f"no gateway to {quote_names(sorted(missing))}"
    return None


async def check_meta_leader(member: Member) -> str | None:
    """Why *member* is not in a complete meta group with a leader; None if it is."""
    if not member.peers:
        return None
    group = await monitoring.read_meta(member.monitor)
    if group is None:
        varz = await monitoring.read_varz(member.monitor)
        # A server on its own has no meta group to wait for.
        if varz.is_clustered or member.peers > 1:
            return "JetStream is not clustered yet"
    elif group.leader is None:
        return "no JetStream meta leader"
    elif not is_meta_group_complete(group, member.peers, is_leader=group.leader == member.name):
        return f"its JetStream meta group has {group.cluster_size} members, not {member.peers}"
    return await monitoring.find_health_problem(member.monitor)


def is_meta_group_complete(group: Meta, peers: int, *, is_leader: bool) -> bool:
    """
    Whether the meta group as one server sees it has *peers* members, or counts fewer and needs as many for a majority.

    A group whose first leader resigned early can count one member less than it has, for good (seen on nats-server 2.10;
    the code is the same up to 2.12). Its leader must then list all the others.
    """
    if group.cluster_size == peers:
        return True
    has_same_majority = group.cluster_size < peers and group.cluster_size // 2 == peers // 2
    return has_same_majority and (not is_leader or len(group.followers) == peers - 1)


async def find_unheard_members(everyone: Sequence[Member]) -> frozenset[str]:
    """
    Which of *everyone* must reconnect: they follow the leader of their meta group, and it has not heard them.

    Where all answer and none has a leader, the votes of one of them reach nobody, and which one cannot be seen: all.
    """
    groups: dict[str, Meta] = {}
    for member in everyone:
        with suppress(NotReachableError, ServerError):
            if member.peers and (group := await monitoring.read_meta(member.monitor)) is not None:
                groups[member.name] = group
    if len(groups) == sum(member.peers > 0 for member in everyone) and all(
        group.leader is None for group in groups.values()
    ):
        return frozenset(groups)
    heard = {name: group.followers | {name} for name, group in groups.items() if group.leader == name}
    return frozenset(name for name, group in groups.items() if name not in heard.get(group.leader or "", {name}))


async def wait_for_stage(
    stage: ReadinessStage,
    waited_for: Sequence[Member],
    check: Callable[[Member], Awaitable[str | None]],
    *,
    spawned: SpawnedServers,
    on_progress: Callable[[ReadinessProgress], None],
    deadline: float,
) -> None:
    """
    Return once *check* has no complaint about any of *waited_for*.

    *deadline* is on the monotonic clock; after it, LabError says what is missing on which server. So it does if one of
    *spawned* dies meanwhile.
    """
    total = len(waited_for)
    complaints: dict[str, str] = {}
    pending = waited_for
    on_progress(ReadinessProgress(stage, 0, total))
    while True:
        answers = await asyncio.gather(*(_find_complaint(check, member) for member in pending))
        complaints = {member.name: text for member, text in zip(pending, answers, strict=True) if text is not None}
        if len(complaints) < len(pending):
            on_progress(ReadinessProgress(stage, total - len(complaints), total))
        if not complaints:
            return
        pending = [member for member in pending if member.name in complaints]
        spawned.require_running()
        if time.monotonic() > deadline:
            name, complaint = next(iter(complaints.items()))
            more = f" (and {len(complaints) - 1} more servers)" if len(complaints) > 1 else ""
            raise LabError(
                f"the lab is not ready: {total - len(complaints)} of {total} {stage.value}; "
                f"server `{name}`: {complaint}{more}",
                hint="a busy machine needs a longer timeout; otherwise the log of that server says more",
            )
        await asyncio.sleep(_POLL_SECONDS)


async def _find_complaint(check: Callable[[Member], Awaitable[str | None]], member: Member) -> str | None:
    try:
        return await check(member)
    except (NotReachableError, ServerError) as error:
        return error.message
