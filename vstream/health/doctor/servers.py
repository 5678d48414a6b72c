"""Problems of servers: unreachable servers, missing links, loaded mapping rules, the meta group, versions, storage."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from vstream.findings import Severity
from vstream.formatting import format_size, summarize_names
from vstream.health.doctor.check import Drift, Issue, LiveSystem, check
from vstream.health.snapshot import ServerSnapshot
from vstream.topology.bundle import loaded_path
from vstream.topology.model import Endpoint, Seat, Security
from vstream.topology.units import format_version, parse_version

_START = "start it (`vstream lab up` starts that of a lab); if it runs, let this machine reach that address"
_RESTART = "it hangs, or its machine is overloaded: look at its process and its log, then restart it"


@check("VD401", "no-gateway", drift=Drift.UNRELATED)
def no_gateway(system: LiveSystem) -> Iterator[Issue]:
    """
    A server has no gateway connection to a cluster of the topology that answers.

    ## Why is this bad?
    Requests of its clients to the other region fail, and its streams cannot source from there. Traffic is not routed
    through a third cluster.

    ## What to do
    Check the network, the `gateway` block, and `advertise`. A gateway can wait for a wrong address for an hour: restart
    that server.
    """
    if system.topology.hubs is not None:
        return  # the hubs have the gateways, and none of their addresses is known
    answering = {server.cluster for server in system.snapshot.reached_servers}
    for server in system.snapshot.servers:
        if server.gateways is None:
            continue
        expected = [name for name in system.topology.clusters if name in answering and name != server.cluster]
        missing = [name for name in expected if name not in server.gateways]
        if missing:
            yield Issue(
                about=server.name,
                evidence=f"it has no connection to {summarize_names(missing)}, where servers answer",
                hint="check the network between them",
            )


@check("VD402", "half-reloaded", drift=Drift.UNRELATED)
def half_reloaded(system: LiveSystem) -> Iterator[Issue]:
    """
    Servers have loaded different mapping rules or accounts.

    ## Why is this bad?
    The server to which a client is connected maps its publishes. Some clients write to the right stream, others to
    none, without an error if they do not wait for an acknowledgement.

    ## What to do
    Put `mappings.cfg` (with `routing: accounts`: `accounts.cfg`) on every server and reload each: `nats-server --signal
    reload`. A server refuses the whole reload if anything in the file cannot be reloaded, such as `gateway`, and logs
    the reason. Imports of a new account work after the second reload.
    """
    yield from _check_mapping_differences(system, is_partial=True)


@check("VD403", "other-rules", drift=Drift.UNRELATED)
def other_rules(system: LiveSystem) -> Iterator[Issue]:
    """
    All servers have loaded the same mapping rules or accounts, but they differ from the topology.

    ## Why is this bad?
    Publishes and requests of clients reach the wrong stream, or none.

    ## What to do
    `vstream render`, put `mappings.cfg` (or `accounts.cfg`) on every server, reload. `vstream plan` shows each
    different rule, import and export.
    """
    yield from _check_mapping_differences(system, is_partial=False)


def _check_mapping_differences(system: LiveSystem, *, is_partial: bool) -> Iterator[Issue]:
    is_operator = system.topology.security is Security.OPERATOR
    ship = f"put `{loaded_path(system.topology)}` there and reload: `nats-server --signal reload`"
    for difference in system.loaded.differences():
        if difference.is_partial is is_partial:
            yield Issue(
                about=summarize_names(list(difference.servers)),
                evidence=difference.evidence,
                hint="push the accounts: `vstream apply`" if is_operator else ship,
            )


@check("VD404", "server-away", drift=Drift.UNKNOWN)
def server_away(system: LiveSystem) -> Iterator[Issue]:
    """
    A server does not answer.

    ## Why is this bad?
    A stream with three replicas survives the loss of one server, not of two. The meta group counts the server until it
    is removed.

    ## What to do
    Start it. If it runs and hangs, look at its process and its log, and restart it. If it is lost for ever, remove it from
    the meta group: `nats server cluster peer-remove NAME`.
    """
    for server in system.snapshot.silent_servers:
        hint = _RESTART if server.hangs else _START
        yield Issue(about=server.name, evidence=server.problem or "no answer", hint=hint)


@check("VD405", "jetstream-off", drift=Drift.UNRELATED, is_in_status=True)
def jetstream_off(system: LiveSystem) -> Iterator[Issue]:
    """
    JetStream is disabled on a server of the topology.

    ## Why is this bad?
    Servers disable it when a write to disk fails, and do not enable it again when there is space.

    ## What to do
    Free disk space, then restart the server.
    """
    for server in system.snapshot.servers:
        if server.is_reached and not server.has_jetstream:
            yield Issue(
                about=server.name,
                evidence="`/jsz` says that JetStream is disabled",
                hint="free disk space, then restart the server",
            )


@check("VD406", "no-meta-leader", drift=Drift.UNRELATED)
def no_meta_leader(system: LiveSystem) -> Iterator[Issue]:
    """
    The servers do not agree on a leader of the JetStream meta group.

    ## Why is this bad?
    Without a leader, consumers cannot be created, and streams cannot be created or changed. Publishing, Direct Get and
    existing consumers continue to work.

    ## What to do
    A majority of all servers must run and reach each other. If the majority is lost for ever, 2.15 can continue with
    fewer servers: `vstream repair meta`.
    """
    hint = "start or reconnect a majority of the servers"
    is_told = False
    for name, _, members in _list_meta_groups(system):
        leaders = Counter(server.meta_leader or "nobody" for server in members)
        if len(leaders) > 1 or "nobody" in leaders:
            is_told = True
            votes = ", ".join(f"{count} say {leader}" for leader, count in sorted(leaders.items()))
            yield Issue(about=name, evidence=f"who leads: {votes}", hint=hint)
    for region in system.snapshot.regions:
        if region.problem is None and region.control is not None and not is_told:
            evidence = f"from there, the JetStream API is not available: {region.control}"
            yield Issue(about=region.name, evidence=evidence, hint=hint)


@check("VD407", "meta-shape", Severity.WARNING, drift=Drift.DIFFERENCE)
def meta_shape(system: LiveSystem) -> Iterator[Issue]:
    """
    The members of the meta group differ from the servers of the topology, or one region can stop it.

    ## Why is this bad?
    Lost members still count for the majority. If one region has half of the members or more, its loss stops the API
    everywhere.

    ## What to do
    Remove lost members (`nats server cluster peer-remove NAME`). Use at least three regions with the same number of
    servers.
    """
    for name, seats, members in _list_meta_groups(system):
        size = max(server.meta_size for server in members)
        # With every member there, and as many needed for a majority, the number has no effect: `lab/readiness.py` says more.
        has_same_majority = size < len(seats) == len(members) and size // 2 == len(seats) // 2
        if size != len(seats) and not has_same_majority:
            yield Issue(
                about=name,
                evidence=f"the meta group counts {size} members, the topology has {len(seats)} servers",
                hint="remove members that are gone: `nats server cluster peer-remove NAME`; those that run belong in the topology",
            )
        per_region = Counter(seat.region for seat in seats)
        region, most = per_region.most_common(1)[0]
        if len(per_region) > 1 and 2 * most >= max(len(seats), size):
            yield Issue(
                about=region,
                evidence=f"it has {most} of {max(len(seats), size)} servers: without it there is no majority",
                hint="use at least three regions with the same number of servers",
                drift=Drift.UNRELATED,  # the topology itself says so
            )


def _list_meta_groups(system: LiveSystem) -> Iterator[tuple[str, Sequence[Seat], Sequence[ServerSnapshot]]]:
    """Each meta group of several servers: its name, the servers it should have, and those that answer."""
    topology = system.topology
    groups = {topology.name: list(topology.seats)}
    if topology.hubs is not None:
        groups = {
            region.name: [seat for seat in topology.seats if seat.region == region.name] for region in topology.regions
        }
    for name, seats in groups.items():
        names = {seat.server.name for seat in seats}
        answering = [server for server in system.snapshot.reached_servers if server.has_jetstream]
        members = [server for server in answering if server.name in names]
        if len(seats) > 1 and members:
            yield name, seats, members


@check("VD408", "mixed-versions", Severity.NOTE, drift=Drift.DIFFERENCE)
def mixed_versions(system: LiveSystem) -> Iterator[Issue]:
    """
    Servers run different versions.

    ## Why is this bad?
    During a rolling upgrade it is not. Afterwards, behaviour depends on which server is the leader: how it finds
    positions in sources, and whether `duplicate_window: 0` means off.

    ## What to do
    Finish the upgrade.
    """
    versions = Counter(server.version for server in system.snapshot.servers if server.version)
    if len(versions) > 1:
        counts = ", ".join(f"{count} run {version}" for version, count in sorted(versions.items()))
        yield Issue(about=system.topology.name, evidence=counts, hint="finish the upgrade")


@check("VD409", "unread-server", Severity.NOTE, drift=Drift.UNKNOWN)
def unread_server(system: LiveSystem) -> Iterator[Issue]:
    """
    A server has no known monitoring address.

    ## Why is this bad?
    Its loaded mapping rules and its gateway connections are unknown.

    ## What to do
    Add or correct its monitoring address in `monitor` under `connect`: a server with TLS is asked with `https://`.
    """
    for server in system.snapshot.servers:
        if server.url is None:
            yield Issue(
                about=server.name,
                evidence=server.problem or "it has no monitoring address",
                hint="add or correct its monitoring address in `monitor` under `connect`",
            )
        elif server.is_reached and server.rules is None:
            yield Issue(
                about=server.name,
                evidence=f"could not read what it has loaded: {server.rules_problem}",
                hint="let vstream read `/accountz` of its monitoring address",
            )


@check("VD412", "too-old", drift=Drift.DIFFERENCE)
def too_old(system: LiveSystem) -> Iterator[Issue]:
    """
    A server is older than the `server_version` of the topology.

    ## Why is this bad?
    The server refuses or ignores settings that vstream renders for newer servers, so a stream with its leader there
    behaves differently. `plan` and `apply` refuse to work over a connection to it.

    ## What to do
    Upgrade it, or set the older version in the topology and run `vstream validate`.
    """
    older: defaultdict[str, list[str]] = defaultdict(list)
    for server in system.snapshot.reached_servers:
        version = parse_version(server.version or "")
        if version is not None and version[:2] < system.topology.server_version:
            older[server.version or ""].append(server.name)
    promised = format_version(system.topology.server_version)
    for version_text, names in sorted(older.items()):
        yield Issue(
            about=summarize_names(names),
            evidence=f'it runs {version_text}, but the topology says `server_version: "{promised}"`',
            hint="upgrade it, or lower `server_version`",
        )


@check("VD414", "little-room", Severity.WARNING, drift=Drift.UNRELATED, is_in_status=True)
def little_room(system: LiveSystem) -> Iterator[Issue]:
    """
    JetStream of a server, or of the account, uses more than four fifths of its storage limit.

    ## Why is this bad?
    When it is full, streams there refuse every publish ("insufficient resources", "resource limits exceeded for
    account"), read streams stop sourcing, and no stream can be created. Without `max_file_store` the limit of a server is
    three quarters of what was free when it started. The limit of an account counts all replicas in all regions.

    ## What to do
    Raise `max_file_store`, which needs a restart, or `max_file` under `jetstream` of the account, which needs a reload.
    Or lower `max_age` and `max_bytes` of streams.
    """
    for server in system.snapshot.reached_servers:
        if server.is_nearly_full:
            used, limit = format_size(server.storage), format_size(server.storage_limit)
            yield Issue(
                about=server.name,
                evidence=f"its streams use {used} of the {limit} allowed",
                hint="raise `max_file_store` there, which needs a restart, or lower the limits of streams",
            )
    # All regions may tell of one account, or each of its own.
    regions: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for region in system.snapshot.regions:
        for usage in region.account_usage:
            if usage.is_nearly_full:
                regions[usage.storage, usage.limit][region.name] = usage.used
    for (storage, most), use_by_region in regions.items():
        used, limit = format_size(max(use_by_region.values())), format_size(most)
        yield Issue(
            about=summarize_names(list(use_by_region)),
            evidence=f"streams of the account use {used} of the {limit} allowed",
            hint=f"raise `max_{storage}` under `jetstream` of the account and reload, or lower the limits of streams",
        )


@check("VD415", "unreachable-region", Severity.NOTE, drift=Drift.UNKNOWN)
def unreachable_region(system: LiveSystem) -> Iterator[Issue]:
    """
    A region cannot be reached from this machine.

    ## Why is this bad?
    The region may work well for its clients. But vstream sees its streams and servers only through other regions or
    monitoring ports, or not at all, so it may have problems that are not found.

    ## What to do
    1. A variable or a file is missing: `export NAME=…`, or put the file where `connect` says.
    2. Otherwise, on this machine, with the region's address and login (`--creds FILE`, or `--user NAME --password …`):
       `nats --server nats://HOST:4222 server check connection`.
    3. The login is refused: correct it under `connect`. There is no answer: see VD404, or open the port.
    4. `vstream doctor` again.
    """
    for region in system.snapshot.regions:
        if region.problem is not None:
            endpoint = system.topology.region(region.name).endpoint
            hint = _START if endpoint is None else _hint_to_connect(endpoint)
            yield Issue(about=region.name, evidence=region.problem, hint=hint)


def _hint_to_connect(endpoint: Endpoint) -> str:
    url = endpoint.urls[0] if endpoint.urls else "nats://HOST:4222"
    # What is in front of the `@` is a login.
    check = f"`nats --server {url.rpartition('@')[2]} server check connection`, on this machine"
    return f"{check}; then `vstream lint --explain VD415` says what to correct"


@check("VD507", "foreign-account", drift=Drift.DIFFERENCE)
def foreign_account(system: LiveSystem) -> Iterator[Issue]:
    """
    In operator mode, servers have loaded an account token that differs from the topology.

    ## Why is this bad?
    It was pushed with a key that servers trust. It may grant users more permissions or imports than the topology does,
    or belong to an earlier topology.

    ## What to do
    `vstream plan` shows the differences, `vstream apply` pushes the token of the topology to every server. If the token
    was signed by an unknown key, find out whose key it is: servers trust the keys in operator.cfg.
    """
    for token in system.loaded.foreign_tokens:
        yield Issue(
            about=summarize_names(list(token.accounts)),
            evidence=token.evidence,
            hint="push the topology's token with `vstream apply`; then find out who else has its keys",
        )
