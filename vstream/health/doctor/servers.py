"""What is wrong with servers: those that do not answer, links, loaded mapping rules, the meta group, versions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from vstream.diagnostics import Severity
from vstream.health.doctor.check import Drift, Patient, Symptom, check
from vstream.health.units import list_names
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Security

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vstream.health.snapshot import ServerSnapshot
    from vstream.topology.model import Seat


@check("VD401", "no-gateway")
def no_gateway(patient: Patient) -> Iterator[Symptom]:
    """
    A server has no gateway connection to a cluster of the topology that answers.

    ## Why is this bad?
    What its clients ask of the other region, and what its streams source from there, does not pass. Clusters do not
    route through a third one.

    ## What to do
    Check the network, the `gateway` block, and `advertise`. A gateway that waits for an address that is wrong can do so
    for an hour: restart that server.
    """
    if patient.topology.hubs is not None:
        return  # the hubs have the gateways, and none of their addresses is known
    answering = {server.cluster for server in patient.snapshot.servers if server.is_reached}
    for server in patient.snapshot.servers:
        if server.gateways is None:
            continue
        expected = [name for name in patient.topology.clusters if name in answering and name != server.cluster]
        missing = [name for name in expected if name not in server.gateways]
        if missing:
            yield Symptom(
                about=server.name,
                evidence=f"it has no connection to {list_names(missing)}, where servers answer",
                do="check the network between them",
            )


@check("VD402", "half-reloaded")
def half_reloaded(patient: Patient) -> Iterator[Symptom]:
    """
    Servers have loaded different mapping rules, or other accounts.

    ## Why is this bad?
    A publish is mapped by the server that its client is connected to: some clients write into the right stream, and
    others nowhere, without an error where they do not wait for an acknowledgement.

    ## What to do
    Put `mappings.cfg` (with `routing: accounts`: `accounts.cfg`) on every server and reload each: `nats-server --signal
    reload`. A reload is refused as a whole if anything in the file cannot be reloaded, such as `gateway`: the server's log
    says so. What a new account imports is served from the second reload on.
    """
    yield from _mapping_differences(patient, is_partial=True)


@check("VD403", "other-rules")
def other_rules(patient: Patient) -> Iterator[Symptom]:
    """
    All servers have loaded mapping rules or accounts, and they are not those of the topology.

    ## Why is this bad?
    Clients are sent where the topology does not mean them to go, or nowhere.

    ## What to do
    `vstream render`, put `mappings.cfg` (or `accounts.cfg`) on every server, reload. `vstream plan` shows each rule, and of
    accounts each import and export.
    """
    yield from _mapping_differences(patient, is_partial=False)


def _mapping_differences(patient: Patient, *, is_partial: bool) -> Iterator[Symptom]:
    is_operator = patient.topology.security is Security.OPERATOR
    ship = f"put `{loaded_path(patient.topology)}` there and reload: `nats-server --signal reload`"
    for difference in patient.loaded.differences():
        if difference.is_partial is is_partial:
            yield Symptom(
                about=list_names(list(difference.servers)),
                evidence=difference.evidence,
                do="push the accounts: `vstream apply`" if is_operator else ship,
            )


@check("VD404", "server-away", drift=Drift.UNKNOWN)
def server_away(patient: Patient) -> Iterator[Symptom]:
    """
    A server does not answer.

    ## Why is this bad?
    Streams with three replicas survive one in each region, not two; the meta group counts it until it is removed.

    ## What to do
    Start it. If it is gone for good, remove it from the meta group: `nats server raft peer-remove NAME`.
    """
    for server in patient.snapshot.servers:
        if server.url is not None and not server.is_reached:
            yield Symptom(about=server.name, evidence=server.problem or "no answer", do="start it")


@check("VD405", "jetstream-off")
def jetstream_off(patient: Patient) -> Iterator[Symptom]:
    """
    JetStream is switched off on a server of the topology.

    ## Why is this bad?
    Servers do so when a write to disk fails, and do not switch it on again when there is space.

    ## What to do
    Make space, then restart the server.
    """
    for server in patient.snapshot.servers:
        if server.is_reached and not server.has_jetstream:
            yield Symptom(
                about=server.name,
                evidence="`/jsz` says that it is disabled",
                do="free disk space, then restart the server",
            )


@check("VD406", "no-meta-leader")
def no_meta_leader(patient: Patient) -> Iterator[Symptom]:
    """
    The JetStream meta group has no leader that servers agree on.

    ## Why is this bad?
    Without it there are no new consumers, and streams cannot be made or changed. Publishing, Direct Get and consumers
    that exist go on.

    ## What to do
    The majority of all servers must run and reach each other. After the loss of a majority for good, 2.15 can be told
    to go on with fewer: `$JS.API.META.RESCUE`.
    """
    for name, _, members in _meta_groups(patient):
        leaders = Counter(server.meta_leader or "nobody" for server in members)
        if len(leaders) > 1 or "nobody" in leaders:
            votes = ", ".join(f"{count} say {leader}" for leader, count in sorted(leaders.items()))
            yield Symptom(about=name, evidence=f"who leads: {votes}", do="bring the majority of servers together")


@check("VD407", "meta-shape", Severity.WARNING, drift=Drift.DIFFERENCE)
def meta_shape(patient: Patient) -> Iterator[Symptom]:
    """
    The meta group has other members than the topology has servers, or one region can stop it.

    ## Why is this bad?
    Members that are gone count for the majority. If one region holds half of them or more, its loss stops the API
    everywhere.

    ## What to do
    Remove members that are gone (`nats server raft peer-remove NAME`). Have three regions or more with as many
    servers each.
    """
    for name, seats, members in _meta_groups(patient):
        size = max(server.meta_size for server in members)
        # With every member there, and as many needed for a majority, the number has no effect: `lab/readiness.py` says more.
        has_same_majority = size < len(seats) == len(members) and size // 2 == len(seats) // 2
        if size != len(seats) and not has_same_majority:
            yield Symptom(
                about=name,
                evidence=f"the meta group counts {size} members, the topology has {len(seats)} servers",
                do="remove members that are gone: `nats server raft peer-remove NAME`",
            )
        per_region = Counter(seat.region for seat in seats)
        region, most = per_region.most_common(1)[0]
        if len(per_region) > 1 and 2 * most >= len(seats):
            yield Symptom(
                about=region,
                evidence=f"it has {most} of {len(seats)} servers: without it there is no majority",
                do="use as many servers in each of three regions or more",
                drift=Drift.UNRELATED,  # the topology itself says so
            )


def _meta_groups(patient: Patient) -> Iterator[tuple[str, Sequence[Seat], Sequence[ServerSnapshot]]]:
    """Each meta group of several servers: its name, the servers it should have, and those that answer."""
    topology = patient.topology
    groups = {topology.name: list(topology.seats)}
    if topology.hubs is not None:
        groups = {
            region.name: [seat for seat in topology.seats if seat.region == region.name] for region in topology.regions
        }
    for name, seats in groups.items():
        names = {seat.server.name for seat in seats}
        answering = [server for server in patient.snapshot.servers if server.is_reached and server.has_jetstream]
        members = [server for server in answering if server.name in names]
        if len(seats) > 1 and members:
            yield name, seats, members


@check("VD408", "mixed-versions", Severity.NOTE, drift=Drift.DIFFERENCE)
def mixed_versions(patient: Patient) -> Iterator[Symptom]:
    """
    Servers run different versions.

    ## Why is this bad?
    Nothing, during a rolling upgrade. Left so, behaviour depends on which server leads: how positions in sources are
    found, whether `duplicate_window: 0` means off.

    ## What to do
    Finish the upgrade.
    """
    versions = Counter(server.version for server in patient.snapshot.servers if server.version)
    if len(versions) > 1:
        counts = ", ".join(f"{count} run {version}" for version, count in sorted(versions.items()))
        yield Symptom(about=patient.topology.name, evidence=counts, do="finish the upgrade")


@check("VD409", "unread-server", Severity.NOTE, drift=Drift.UNKNOWN)
def unread_server(patient: Patient) -> Iterator[Symptom]:
    """
    No monitoring address leads to a server.

    ## Why is this bad?
    Which mapping rules it has loaded, and whether it has its gateways, is not known.

    ## What to do
    Add its monitoring address to `monitor` under `connect`.
    """
    for server in patient.snapshot.servers:
        if server.url is None:
            yield Symptom(
                about=server.name,
                evidence=server.problem or "it was not asked",
                do="add its monitoring address to `monitor` under `connect`",
            )
        elif server.is_reached and server.rules is None:
            yield Symptom(
                about=server.name,
                evidence=f"could not read what it has loaded: {server.rules_problem}",
                do="let vstream read `/accountz` of its monitoring address",
            )


@check("VD415", "unreachable-region", Severity.NOTE, drift=Drift.UNKNOWN)
def unreachable_region(patient: Patient) -> Iterator[Symptom]:
    """
    A region cannot be reached from here.

    ## Why is this bad?
    Perhaps nothing: clients in the region may do well. But its streams and servers are seen through other regions or monitoring
    ports only, or not at all, and that no error was found there says nothing.

    ## What to do
    Correct the region's address under `connect`, or open the network between here and there. If its servers are down, start
    them (VD404).
    """
    for region in patient.snapshot.regions:
        if region.problem is not None:
            yield Symptom(
                about=region.name, evidence=region.problem, do="check the address under `connect`, and the network"
            )


@check("VD507", "foreign-account", drift=Drift.DIFFERENCE)
def foreign_account(patient: Patient) -> Iterator[Symptom]:
    """
    In operator mode, servers have loaded another token of an account than the topology's.

    ## Why is this bad?
    Somebody who has a key that servers trust has pushed it. It may let users do what they may not, or import what was
    never meant for them; or it is one of an earlier topology.

    ## What to do
    `vstream plan` shows what is different, `vstream apply` pushes the topology's own token to every server. If it was
    signed by a key that is not yours, find out whose it is: servers trust those that operator.cfg names.
    """
    for token in patient.loaded.foreign_tokens:
        yield Symptom(
            about=list_names(list(token.accounts)),
            evidence=token.evidence,
            do="push the topology's own: `vstream apply`; then find out who else has its keys",
        )
