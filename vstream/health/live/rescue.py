"""
Recover a JetStream meta group that has lost its majority for good.

Each of its servers is dialled, and the system account of every region is asked which servers answer. From 2.15 on, all that
are left can be told to go on with as many votes as there are of them (`META.RESCUE`, for five minutes: server/raft.go,
RescueQuorum). Then the dead are removed, so that the group is as large as it is.

A server that is alive but cut off looks dead: two halves of a group that both have a leader contradict each other for ever.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vstream.errors import NoRespondersError, NotReachableError, RefusedError, VstreamError
from vstream.files import state_directory, write_private
from vstream.health.live.resync_readers import ResyncMode, resync_readers
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin, peer_id
from vstream.jetstream.answers import api_error, convert_malformed_errors, decode_object, parse_list, require_text
from vstream.jetstream.connection import Connection, Reply, connect_to_system, open_connection
from vstream.jetstream.endpoints import resolve_context
from vstream.plan.live.dead_regions import ANSWER_TIMEOUT, DIAL_TIMEOUT, is_listening
from vstream.servers.find_servers import Servers, find_system_endpoints
from vstream.servers.target_servers import make_target
from vstream.topology.model import Endpoint, Topology
from vstream.topology.units import parse_version
from vstream.value_class import value_class

SINCE = (2, 15, 0)
_RESCUE, _LOOK = "$JS.API.META.RESCUE", "$SYS.REQ.SERVER.PING.JSZ"
_LEADER_TIMEOUT = 60.0
"""Seconds until there is a leader. It takes less than one, where all servers that are left have agreed."""
_RESYNC_TIMEOUT = 60.0
_QUORUM_SECONDS = 300


@value_class
class MetaGroup:
    """
    A meta group according to everybody who could be asked.

    *alive* are its servers that answer, with their versions; *dead* those that nobody sees; *unknown* says why that is
    not certain. *listed* are its members as its *leader* lists them, empty without one. *begun* are servers that an
    earlier run of this command found dead, and has not yet removed.
    """

    name: str
    members: tuple[str, ...]
    alive: Mapping[str, str]
    unknown: tuple[str, ...]
    leader: str | None
    listed: frozenset[str]
    begun: frozenset[str]
    system: tuple[str, ...]
    """The regions whose system account it is asked through."""

    @property
    def dead(self) -> tuple[str, ...]:
        """Its servers that nobody sees."""
        return tuple(server for server in self.members if server not in self.alive)

    @property
    def majority(self) -> int:
        """How many of its members a leader needs."""
        return len(self.members) // 2 + 1

    @property
    def too_old(self) -> tuple[str, ...]:
        """The servers that are left and cannot lower their quorum."""
        return tuple(name for name, version in self.alive.items() if (parse_version(version) or SINCE) < SINCE)

    @property
    def is_going_on(self) -> bool:
        """Whether an earlier run made it elect a leader, but has not removed all dead servers."""
        return self.leader is not None and bool(self.begun)

    @property
    def refusal(self) -> str | None:
        """Why there is nothing to rescue, or no way to; None if there is."""
        if self.is_going_on:
            alive = sorted(self.begun & self.alive.keys())
            return f"{', '.join(alive)} answers, which an earlier run found dead" if alive else None
        is_cut_off = len(self.listed) > 0 and 2 * len(self.listed & self.alive.keys()) <= len(self.listed)
        is_stale = self.leader is not None and (is_cut_off or self.leader not in self.alive)
        if is_stale and not self.too_old:  # 2.12.8 named a dead leader for more than a minute
            return f"its servers still name `{self.leader}` as leader, which leads no majority: run this again in some seconds"
        if self.leader is not None and not is_stale:
            return f"it has a leader, `{self.leader}`: its quorum is there"
        if len(self.alive) >= self.majority:
            return f"{len(self.alive)} of {len(self.members)} servers answer, a majority: they will elect a leader, or are cut off from each other"
        if self.too_old:
            return (
                "servers before 2.15 cannot lower their quorum: start dead ones again; or, if their disks are gone, restart "
                f"{', '.join(self.too_old)} with nats-server 2.15, one after the other, and run this again"
            )
        return None

    @property
    def to_remove(self) -> tuple[str, ...]:
        """The servers to remove from the group."""
        if not self.is_going_on:
            return self.dead
        return tuple(server for server in self.members if server in self.begun & self.listed)


@value_class
class _MetaView:
    """What one server says of its meta group. *listed* are members by name or by the group's id, empty but for its leader."""

    version: str
    leader: str | None
    size: int
    listed: tuple[str, ...]


@value_class
class ResyncAfterRescue:
    """Why read streams are not resynced once there is a leader; both fields are empty where they do."""

    dead_regions: tuple[str, ...] = ()
    """Regions that died as a whole, whose write streams nobody leads: readers wait until they are given up."""
    problem: str = ""


def choose_rescuable_groups(groups: Sequence[MetaGroup]) -> tuple[MetaGroup, ...]:
    """Those of *groups* that can be rescued; none while a server of one of them may be alive."""
    chosen = tuple(group for group in groups if group.refusal is None)
    return () if any(group.unknown for group in chosen) else chosen


async def find_groups(
    topology: Topology, endpoints: Mapping[str, Endpoint], system: Mapping[str, Endpoint]
) -> tuple[MetaGroup, ...]:
    """The meta groups of several servers, as far as *endpoints* and the *system* account, both by region, tell."""
    seats: dict[str, list[str]] = {region.name: [] for region in topology.regions}
    for seat in topology.seats:
        seats[seat.region].append(seat.server.name)
    dialled, looks = await asyncio.gather(
        asyncio.gather(*(_dial_region(region, endpoints.get(region), names) for region, names in seats.items())),
        asyncio.gather(*(_look(region, endpoint) for region, endpoint in system.items())),
    )
    unsure = {region: problems for region, (_, problems) in zip(seats, dialled, strict=True)}
    views = dict(zip(system, looks, strict=True))
    versions = {name: version for names, _ in dialled for name, version in names.items()}
    versions |= {name: view.version for look in looks for name, view in look.items()}
    places_of = {topology.name: [*seats]} if topology.hubs is None else {region: [region] for region in seats}
    begun = read_record(topology.name)
    groups: list[MetaGroup] = []
    for name, places in places_of.items():
        members = tuple(seat.server.name for seat in topology.seats if seat.region in places)
        seen = {server: view for place in places for server, view in views.get(place, {}).items() if server in members}
        group = MetaGroup(
            name=name,
            members=members,
            alive={server: version for server, version in sorted(versions.items()) if server in members},
            unknown=tuple(problem for place in places for problem in unsure[place]),
            leader=next((view.leader for view in seen.values() if view.leader), None),
            listed=find_listed(members, {peer for view in seen.values() for peer in view.listed}),
            begun=begun.get(name, frozenset()),
            system=tuple(place for place in places if place in system),
        )
        doubts = _list_doubts(group, seen, has_system=bool(system))
        groups.append(replace(group, unknown=tuple(dict.fromkeys((*group.unknown, *doubts)))))
    return tuple(group for group in groups if len(group.members) > 1)  # one server decides alone


def _list_doubts(group: MetaGroup, seen: Mapping[str, _MetaView], *, has_system: bool) -> Iterator[str]:
    """What the servers *seen* on the system account leave open about *group*."""
    if not seen:
        why = "nobody answers on the system account" if has_system else "`connect` names no user of the system account"
        yield f"`{group.name}`: {why}"
    sizes = {view.size for view in seen.values() if view.size}
    if not group.begun and any(size != len(group.members) for size in sizes):
        listed_sizes = " and ".join(map(str, sorted(sizes)))
        yield (
            f"`{group.name}`: its meta group has {listed_sizes} members, the topology {len(group.members)}: who are the others?"
        )


async def _dial_region(
    region: str, endpoint: Endpoint | None, seats: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The version of each server that answers in a region with these *seats*, by name; and what is not certain."""
    names: dict[str, str] = {}
    problems = [f"`{region}`: no address of it is known"] if endpoint is None else []
    count = 0
    if endpoint is not None:
        endpoint = resolve_context(endpoint) if endpoint.context else endpoint
        answers = await asyncio.gather(
            *(_dial(region, replace(endpoint, urls=(url,))) for url in endpoint.urls),
            *(_ask_monitor(url) for url in endpoint.monitor),
        )
        names = {answer[0]: answer[1] for answer in answers if isinstance(answer, tuple)}
        problems = [answer for answer in answers if isinstance(answer, str)]
        count = max(len(endpoint.urls), len(endpoint.monitor))
    if count < len(seats) and not names.keys() >= {*seats}:
        problems.append(f"`{region}`: {count} addresses are known of its {len(seats)} servers")
    return names, problems


async def _dial(region: str, endpoint: Endpoint) -> tuple[str, str] | str | None:
    """Name and version of the server there; None if nobody listens; or why that is not known."""
    if not await is_listening(endpoint.urls[0]):
        return None
    try:
        connection = await open_connection(endpoint, region, timeout=DIAL_TIMEOUT)
    except VstreamError as error:
        return f"`{region}`: {error.message}, and something listens there"
    try:
        return connection.server_name, connection.server_version
    finally:
        await connection.close()


async def _ask_monitor(url: str) -> tuple[str, str] | str | None:
    if not await is_listening(url):
        return None
    try:
        varz = await monitoring.read_varz(url)
    except VstreamError as error:
        return f"{error.message}, and something listens there"
    return varz.server_name, varz.version


async def _look(region: str, endpoint: Endpoint) -> dict[str, _MetaView]:
    """What each server that answers on the system account of *region* says, by its name."""
    try:
        connection = await open_connection(endpoint, region, timeout=DIAL_TIMEOUT)
    except VstreamError:
        return {}
    try:
        return await _look_at(connection)
    finally:
        await connection.close()


async def _look_at(connection: Connection, *, is_for_leader: bool = False) -> dict[str, _MetaView]:
    servers: dict[str, _MetaView] = {}

    def note(reply: Reply) -> bool:
        answer = decode_object(reply.data, _LOOK)
        with convert_malformed_errors(_LOOK):
            group = (answer.get("data") or {}).get("meta_cluster") or {}
            leader = require_text(group.get("leader") or "") or None
            replicas = parse_list(group, "replicas", _LOOK)
            peers = [require_text(peer[key]) for peer in replicas for key in ("name", "peer") if key in peer]
            name = require_text(answer["server"]["name"])
            servers[name] = _MetaView(
                version=require_text(answer["server"]["ver"]),
                leader=leader,
                size=int(group.get("cluster_size") or 0),
                listed=(name, *peers) if leader == name else (),
            )
        return is_for_leader and leader is not None

    await _collect(connection, _LOOK, {}, note)
    return servers


async def _collect(connection: Connection, subject: str, body: object, note: Callable[[Reply], bool]) -> None:
    """Hand every answer to *note*, until that says that it was the last, or time is up."""
    try:
        await connection.request_many(subject, json.dumps(body).encode(), is_last=note, timeout=ANSWER_TIMEOUT)
    except NoRespondersError:
        raise NotReachableError(
            f"nobody listens on `{subject}`: is the user under `connect.….system` in the system account?"
        ) from None
    except NotReachableError:
        pass  # nobody says which answer is the last


async def rescue_groups(
    topology: Topology,
    servers: Servers,
    *,
    is_approved: bool,
    on_groups: Callable[[Sequence[MetaGroup]], None] = lambda _groups: None,
    on_step: Callable[[str], None] = lambda _step: None,
) -> tuple[MetaGroup, ...]:
    """
    Find the meta groups of *topology*, which *on_groups* hears, and rescue those that `choose_rescuable_groups` chooses, if *is_approved*.

    *on_step* hears what has happened. Returns the groups as they were found. Stopped anywhere, the next run goes on.
    """
    system = find_system_endpoints(servers, [region.name for region in topology.regions])
    groups = await find_groups(topology, servers.endpoints, system)
    on_groups(groups)
    for group in choose_rescuable_groups(groups) if is_approved else ():
        await _rescue(topology, group, system, on_step)
    return groups


async def resync_after_rescue(topology: Topology, servers: Servers, groups: Sequence[MetaGroup]) -> ResyncAfterRescue:
    """Resync every read stream after *groups* were rescued, unless a region died as a whole."""
    dead = {server for group in groups for server in group.dead}
    dead_regions = [region.name for region in topology.regions if {server.name for server in region.servers} <= dead]
    if dead_regions:
        return ResyncAfterRescue(dead_regions=tuple(dead_regions))
    try:
        target = make_target(topology, servers)
        result = await resync_readers(topology, target, timeout=_RESYNC_TIMEOUT, mode=ResyncMode.ALL)
    except VstreamError as error:
        return ResyncAfterRescue(problem=error.message)
    return ResyncAfterRescue(problem="; ".join(f"{stream.stream}: {stream.note}" for stream in result.behind))


async def _rescue(
    topology: Topology, group: MetaGroup, system: Mapping[str, Endpoint], on_step: Callable[[str], None]
) -> None:
    """Make the servers that are left elect a leader, and have them forget those that are dead. Raises VstreamError."""
    connection = await connect_to_system({region: system[region] for region in group.system})
    try:
        if not group.is_going_on:
            write_record(topology.name, {**read_record(topology.name), group.name: frozenset(group.dead)})
            await _lower_quorum(connection, group)
            on_step(
                f"{len(group.alive)} servers go on with {len(group.alive)} votes, for {_QUORUM_SECONDS // 60} minutes"
            )
        leader = await _wait_for_leader(connection, group)
        on_step(f"`{leader}` leads the meta group")
        for server in group.to_remove:
            await JetStreamAdmin(connection).remove_peer(server)
            on_step(f"the meta group has forgotten `{server}`")
        write_record(
            topology.name, {name: dead for name, dead in read_record(topology.name).items() if name != group.name}
        )
    finally:
        await connection.close()


async def _lower_quorum(connection: Connection, group: MetaGroup) -> None:
    """All that are left must agree: a part of them could elect a leader that lacks what the others have."""
    agreed: set[str] = set()
    refused: dict[str, str] = {}

    def note(reply: Reply) -> bool:
        answer = decode_object(reply.data, _RESCUE)
        with convert_malformed_errors(_RESCUE):
            server = require_text(answer["server"])
            if (error := api_error(answer, _RESCUE)) is None:
                agreed.add(server)
            elif "leader is known" in error.description:
                agreed.add(server)  # those that had agreed before it have elected one
            else:
                refused[server] = error.description
        return {*agreed, *refused} >= group.alive.keys()

    await _collect(connection, _RESCUE, {"quorum_needed": len(group.alive)}, note)
    if refused:
        reasons = "; ".join(f"`{server}`: {reason}" for server, reason in sorted(refused.items()))
        raise RefusedError(
            f"not every server lowers its quorum: {reasons}", hint="start a server that has the group's log"
        )
    if silent := group.alive.keys() - agreed:
        raise NotReachableError(
            f"{', '.join(sorted(silent))} has not answered to {_RESCUE}",
            hint="run this again; the others return to their former quorum in five minutes",
        )


async def _wait_for_leader(connection: Connection, group: MetaGroup) -> str:
    until = time.monotonic() + _LEADER_TIMEOUT
    while True:
        for name, view in (await _look_at(connection, is_for_leader=True)).items():
            if name in group.alive and view.leader:
                return view.leader
        if time.monotonic() > until:
            raise NotReachableError(
                f"the meta group `{group.name}` has no leader after {_LEADER_TIMEOUT:g} s",
                hint="do the remaining servers reach each other? Then run this again",
            )


def find_listed(members: Sequence[str], peers: Collection[str]) -> frozenset[str]:
    """Those of *members* that are among *peers*, by name or by the group's id."""
    return frozenset(server for server in members if server in peers or peer_id(server) in peers)


def _record_file(topology: str) -> Path:
    return state_directory() / "rescue" / f"{topology}.json"


def read_record(topology: str) -> dict[str, frozenset[str]]:
    """By meta group, the servers that unfinished runs found dead."""
    file = _record_file(topology)
    if not file.is_file():
        return {}
    return {name: frozenset(dead) for name, dead in json.loads(file.read_text(encoding="utf-8")).items()}


def write_record(topology: str, dead: Mapping[str, Collection[str]]) -> None:
    """Remember which servers are dead: once there is a leader, nothing else tells a rescue from a restart."""
    file = _record_file(topology)
    if not dead:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    write_private(file, json.dumps({name: sorted(servers) for name, servers in dead.items()}))
