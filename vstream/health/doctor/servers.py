"""What is wrong with servers: links, loaded mapping rules, the meta group, versions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vstream.health.doctor.finding import diagnose
from vstream.health.loaded_mappings import compare_mappings
from vstream.health.units import list_names
from vstream.plan.plan import USERS
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Security

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vstream.diagnostics import Finding
    from vstream.health.loaded_mappings import LoadedMappings
    from vstream.health.snapshot import Snapshot
    from vstream.plan.plan import RuleChange
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Seat, Topology


def check(topology: Topology, bundle: Bundle, facts: Snapshot) -> Iterator[Finding]:
    """Findings about the servers of *topology*."""
    for server in facts.servers:
        if server.url is None:
            yield diagnose(
                code="VD409", about=server.name, evidence=server.problem or "", do="add its address to `monitor`"
            )
        elif not server.is_reached:
            yield diagnose(code="VD404", about=server.name, evidence=server.problem or "no answer", do="start it")
        elif not server.has_jetstream:
            yield diagnose(
                code="VD405", about=server.name, evidence="`/jsz` says that it is disabled", do="make space, restart it"
            )
    yield from _gateways(topology, facts)
    yield from check_mappings(topology, compare_mappings(topology, bundle, facts))
    yield from _meta(topology, facts)
    versions = Counter(server.version for server in facts.servers if server.version)
    if len(versions) > 1:
        shown = ", ".join(f"{count} run {version}" for version, count in sorted(versions.items()))
        yield diagnose(code="VD408", about=topology.name, evidence=shown, do="finish the upgrade")


def _gateways(topology: Topology, facts: Snapshot) -> Iterator[Finding]:
    up = {server.cluster for server in facts.servers if server.is_reached}
    if topology.hubs is not None:
        return  # the hubs have them, and no address to look at is known of those
    for server in facts.servers:
        if server.gateways is None:
            continue
        missing = [
            name for name in topology.clusters if name in up and name != server.cluster and name not in server.gateways
        ]
        if missing:
            yield diagnose(
                code="VD401",
                about=server.name,
                evidence=f"it has no connection to {list_names(missing)}, where servers answer",
                do="check the network between them",
            )


def check_mappings(topology: Topology, loaded: LoadedMappings) -> Iterator[Finding]:
    """Findings about the mapping rules and accounts that servers have *loaded*."""
    if topology.security is Security.OPERATOR:
        yield from _signed(loaded.changes)
    for difference in loaded.differences(without=USERS if topology.security is Security.OPERATOR else None):
        others = f", unlike the other {difference.matching}" if difference.is_partial else ""
        is_or_are = "is" if len(difference.sources) == 1 else "are"
        yield diagnose(
            code=difference.code,
            about=list_names(list(difference.servers)),
            evidence=f"{difference.noun} {is_or_are} not loaded as the topology says{others}: "
            f"{list_names(list(difference.sources))}",
            do="push the accounts: `vstream apply`"
            if topology.security is Security.OPERATOR
            else f"put `{loaded_path(topology)}` there and reload: `nats-server --signal reload`",
        )


def _signed(changes: Sequence[RuleChange]) -> Iterator[Finding]:
    """Accounts whose tokens are not the topology's, of the entries in which all that tokens say is compared."""
    for change in changes:
        if change.kind != USERS:
            continue
        wanted = dict(one.split(".", 1) for one in change.after or ())
        loaded = dict(one.split(".", 1) for one in change.before or ())
        names = sorted(name for name, said in wanted.items() if loaded.get(name) != said)
        ours = {said.rpartition(".")[2] for said in wanted.values()}
        others = sorted({said.rpartition(".")[2] for said in loaded.values()} - ours)
        by = f"signed by {list_names(others)}" if others else "signed by the topology's own key"
        yield diagnose(
            code="VD507",
            about=list_names(names or sorted(loaded.keys() - wanted.keys())),
            evidence=f"{list_names(list(change.servers))}: {by}, and not what the topology says",
            do="`vstream apply` pushes the topology's own; then look for who else has its keys",
        )


def _meta(topology: Topology, facts: Snapshot) -> Iterator[Finding]:
    if topology.hubs is None:
        yield from _meta_group(topology.name, topology.seats, facts)
        return
    for region in topology.regions:
        yield from _meta_group(region.name, [seat for seat in topology.seats if seat.region == region.name], facts)


def _meta_group(name: str, seats: Sequence[Seat], facts: Snapshot) -> Iterator[Finding]:
    names = {seat.server.name for seat in seats}
    members = [one for one in facts.servers if one.name in names and one.is_reached and one.has_jetstream]
    if len(seats) == 1 or not members:
        return
    said = Counter(server.meta_leader or "nobody" for server in members)
    if len(said) > 1 or "nobody" in said:
        shown = ", ".join(f"{count} say {leader}" for leader, count in sorted(said.items()))
        yield diagnose(
            code="VD406",
            about=name,
            evidence=f"who leads: {shown}",
            do="bring the majority of servers together",
        )
    size = max(server.meta_size for server in members)
    if size != len(seats):
        yield diagnose(
            code="VD407",
            about=name,
            evidence=f"the meta group counts {size} members, the topology has {len(seats)} servers",
            do="remove members that are gone: `nats server raft peer-remove NAME`",
        )
    per_region = Counter(seat.region for seat in seats)
    region, most = per_region.most_common(1)[0]
    if len(per_region) > 1 and 2 * most >= len(seats):
        yield diagnose(
            code="VD407",
            about=region,
            evidence=f"it has {most} of {len(seats)} servers: without it there is no majority",
            do="as many servers in each of three regions or more",
        )
