"""From names that people give to the servers they mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import product

from vstream.errors import LabError, RefusedError, UnknownNameError
from vstream.formatting import quote_names
from vstream.lab.links.state import Direction
from vstream.scenario.fault_types import FAULTS, Target
from vstream.servers import leaders
from vstream.servers.leaders import StreamLeadership
from vstream.servers.target_servers import TargetServers
from vstream.topology import physical
from vstream.topology.model import Role, Topology

_FOR_SERVERS = quote_names(name for name, fault in FAULTS.items() if fault.target in {Target.SERVERS, Target.MACHINES})
_SIDES_HINT = 'write `"west | central,east"`: sides with `|`, regions with commas'


def require_running_in_region(target: TargetServers, region: str) -> tuple[str, ...]:
    """The running servers of *region*. Raises UnknownNameError if there is no such region, LabError if none runs."""
    _require_region(target, region)
    running = tuple(server for server in target.list_in_region(region) if target.nats_server(server).is_running())
    if not running:
        raise LabError(f"no server of region `{region}` runs", hint="`vstream chaos status` shows what is open")
    return running


def require_running_server(target: TargetServers, name: str) -> str:
    """The server *name*, which runs. Raises UnknownNameError if it does not exist, LabError if it does not run."""
    if name not in target.servers:
        raise UnknownNameError(f"there is no server `{name}`", hint=f"servers: {', '.join(target.servers)}")
    if not target.nats_server(name).is_running():
        raise LabError(f"server `{name}` does not run", hint="`vstream chaos status` shows what is open")
    return name


def require_serving_servers(target: TargetServers, name: str) -> tuple[str, ...]:
    """The servers of region *name*, or the server *name*, that run and are not paused. Raises UnknownNameError, or LabError for none."""
    if name in target.regions and name in target.servers:
        raise UnknownNameError(
            f"`{name}` is a region and a server", hint="name each server of the region, or rename one of them"
        )
    if name not in target.regions and name not in target.servers:
        raise UnknownNameError(
            f"there is no region or server `{name}`",
            hint=f"regions: {', '.join(target.regions)}; servers: {', '.join(target.servers)}{_explain_name(target, name)}",
        )
    servers = (
        require_running_in_region(target, name) if name in target.regions else (require_running_server(target, name),)
    )
    serving = tuple(candidate for candidate in servers if target.may_answer(candidate))
    if not serving:
        raise LabError(f"`{name}` is paused already", hint="`vstream chaos resume` resumes it")
    return serving


def parse_sides(target: TargetServers, texts: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """
    The sides of a partition. Each of *texts* lists regions, separated by commas.

    Raises UnknownNameError for an unknown region, for a region on two sides, and for fewer than two sides.
    """
    parts = tuple(tuple(name.strip() for name in text.split(",") if name.strip()) for text in texts)
    named = [name for side in parts for name in side]
    for name in named:
        _require_region(target, name)
        if named.count(name) > 1:
            raise UnknownNameError(f"region `{name}` cannot be on two sides", hint=_SIDES_HINT)
    if len(parts) <= 1 or not all(parts):
        raise UnknownNameError("a partition has two sides or more", hint=_SIDES_HINT)
    return parts


def list_links_between(parts: Sequence[Sequence[str]], *, one_way: bool = False) -> tuple[Direction, ...]:
    """The links between *parts*, which are groups of regions; with *one_way* only what the first one sends."""
    senders = parts[:1] if one_way else parts
    pairs: list[Direction] = []
    for side in senders:
        for far in parts:
            if far is not side:
                pairs += product(side, far)
    return tuple(pairs)


def list_links_around(target: TargetServers, regions: Sequence[str]) -> tuple[Direction, ...]:
    """The links of each of *regions* to all others. Raises UnknownNameError if one is unknown or the only region."""
    for name in regions:
        _require_region(target, name)
    if len(target.regions) == 1:
        raise UnknownNameError("there is only one region: it has no links to others")
    pairs = list_links_between([(region,) for region in target.regions])
    return tuple(pair for pair in pairs if not set(regions).isdisjoint(pair))


def find_link(target: TargetServers, near: str, far: str) -> tuple[Direction, Direction]:
    """The link between two regions, in both directions. Raises UnknownNameError if one is unknown or both are one."""
    for name in (near, far):
        _require_region(target, name)
    if near == far:
        raise UnknownNameError(f"`{near}` has no link to itself", hint=f"regions: {', '.join(target.regions)}")
    return (near, far), (far, near)


def _require_region(target: TargetServers, name: str) -> None:
    if name not in target.regions:
        raise UnknownNameError.of_region(name, target.regions, _explain_name(target, name))


def _explain_name(target: TargetServers, name: str) -> str:
    """What *name* is, which is no region: the end of a hint."""
    if name in target.servers:
        return f"; `{name}` is a server in region `{target.servers[name]}`: {_FOR_SERVERS} take it alone"
    members = [server for server, cluster in target.clusters.items() if cluster == name]
    where = tuple(dict.fromkeys(target.servers[server] for server in members))
    if len(where) == 1:
        return f"; `{name}` is the cluster of region `{where[0]}`"
    if where:
        return (
            f"; `{name}` is a cluster across regions, and each of its servers goes with its own region; "
            f"{_FOR_SERVERS} take one alone: {', '.join(members)}"
        )
    return ""


def find_physical_stream(topology: Topology, name: str, region: str | None) -> str:
    """
    The physical stream for *name*: the write stream in *region* of a virtual stream, otherwise the stream of that name.

    Raises UnknownNameError if the virtual stream is not in that region, or if the region is missing.
    """
    virtual = next((declared for declared in topology.streams if declared.name == name), None)
    if virtual is None:
        return name
    if virtual.consistency.has_origin or (virtual.is_virtual_name_of_order and region is None):
        return physical.mirrored_stream(virtual) or name
    if region not in virtual.regions:
        raise UnknownNameError(
            f"virtual stream `{name}` has a stream in each region: which one?"
            if region is None
            else f"virtual stream `{name}` is not in region `{region}`",
            hint=f"`--region` with one of {', '.join(virtual.regions)}; its read streams have names of their own, "
            f"such as `{physical.physical_name(virtual, Role.READ, virtual.regions[0])}`",
        )
    return physical.physical_name(virtual, Role.WRITE, region)


async def require_stream_leader(target: TargetServers, name: str) -> tuple[StreamLeadership, str]:
    """The leadership of stream *name*, and its leader. Raises LabError if there is no such stream or it has no leader."""
    async with target.connect() as connection:
        leadership = await leaders.fetch_leadership(connection, name)
    if leadership.leader is None or leadership.leader not in target.servers:
        raise LabError(
            f"stream `{name}` is led by `{leadership.leader}`, which is not a server of this topology"
            if leadership.leader
            else f"the server does not say who leads stream `{name}`",
            hint="a single server that is not clustered has no leaders to change",
        )
    return leadership, leadership.leader


def require_electable_successor(leadership: StreamLeadership) -> None:
    """Raises RefusedError if the others could not elect a leader after the present one of *leadership*."""
    if leadership.replicas == 1:
        raise RefusedError(
            f"stream `{leadership.stream}` has one replica: no follower can take over",
            hint="streams of three replicas can change their leader",
        )
    if not leadership.can_elect:
        raise RefusedError(
            f"stream `{leadership.stream}` has {len(leadership.followers)} of {leadership.replicas - 1} current followers: "
            "it could lose its leader",
            hint="heal what is open first, or pass `--yes-really`",
        )


def make_stream_leader_check(
    target: TargetServers, leadership: StreamLeadership, old: str
) -> Callable[[], Awaitable[str]]:
    """A check, for after *old* was killed, that another server leads the stream of *leadership*."""

    async def confirm() -> str:
        if not leadership.can_elect:
            return f"{leadership.stream} has no leader: no other replica could be one"
        async with target.connect(target.servers[old]) as connection:
            return await leaders.confirm_successor(
                leadership.stream, lambda: leaders.find_stream_leader(connection, leadership.stream), old
            )

    return confirm


def make_meta_leader_check(target: TargetServers, old: str) -> Callable[[], Awaitable[str]]:
    """A check, for after *old* was killed, that another server leads the meta group."""

    async def confirm() -> str:
        serving = len(target.servers) - len(target.unavailable())
        if serving <= len(target.servers) // 2:
            return "the meta group has no leader: the majority is missing"
        return await leaders.confirm_successor(
            "the meta group", lambda: leaders.find_meta_leader(target.monitors()), old
        )

    return confirm
