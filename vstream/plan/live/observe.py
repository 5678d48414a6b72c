"""What the servers of all regions report now: streams, and loaded mapping rules and accounts."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias

from vstream.errors import NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection
from vstream.jetstream.region_connections import (
    join_connections,
    name_manager,
    read_account_name,
    require_connected_account,
    require_security_mode,
)
from vstream.plan.context import Observed
from vstream.plan.live import loaded_rules
from vstream.plan.rules import LoadedEntries
from vstream.subjects.account_flow import GLOBAL_ACCOUNT
from vstream.topology import naming, physical
from vstream.topology.consumer_config import ObservedConsumer
from vstream.topology.model import Endpoint, Role, Security, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.replication import list_physical_streams
from vstream.topology.stream_config import ROLE_KEY, ObservedStream

LEADER_TIMEOUT = 10.0
"""Seconds that streams get to elect a leader. It takes 4 to 9."""
_PAUSE_SECONDS = 0.5
_READ_FROM = frozenset({Role.READ.value, Role.ORIGIN.value})
_Answer: TypeAlias = tuple[monitoring.Varz, LoadedEntries]
"""What one server says about itself, and what it has loaded."""


async def observe(
    topology: Topology, connections: Mapping[str, Connection | NotReachableError], endpoints: Mapping[str, Endpoint]
) -> Observed:
    """Everything that a plan compares. Raises VstreamError if the streams cannot be listed."""
    connection = join_connections(connections)
    admin, account = JetStreamAdmin(connection), await read_account_name(connection)
    is_signed = topology.security is Security.OPERATOR
    require_security_mode(topology, account)
    if is_signed:
        await require_connected_account(topology, connections, endpoints)
    if topology.has_accounts and account != physical.client_account(topology, connection.region) and not is_signed:
        return await _observe_elsewhere(topology, connection, account)
    answers, unread = await _ask_all_servers(topology, endpoints, account)
    rules = {varz.server_name: loaded for varz, loaded in answers}
    loaded_here = rules.get(connection.server_name)
    # Tokens are of public keys, and what servers have loaded of them is told by the accounts' names.
    asking = physical.client_account(topology, connection.region) if is_signed else account
    if _may_be_in_one_account(topology, loaded_here, asking):
        streams_here = await _list_own_streams(connection)
        if any(stream.config.owner == topology.name for stream in streams_here.values()):
            return Observed(streams=streams_here, rules=rules, unread_servers=tuple(sorted(unread)))
    at = datetime.now(UTC)
    accounts = _accounts_to_ask(topology, loaded_here, asking)
    reaches = partial(loaded_rules.is_reachable, asking=asking)
    partly = {name for name in accounts if name and not all(reaches(name, loaded) for loaded in rules.values())}
    silent_accounts = await _find_silent_accounts(admin, sorted(partly))
    accounts = [name for name in accounts if name not in silent_accounts]
    streams, unanswered = await _list_streams(topology, connections, admin, accounts)
    consumers, no_answer = await _read_consumers(topology, streams, admin)
    return Observed(
        streams=streams,
        unanswered=unanswered,
        rules=rules,
        unread_servers=tuple(sorted((*unread, *_list_unknown_regions(topology, streams.values(), endpoints)))),
        consumers=consumers,
        silent_consumers=no_answer,
        at=at,
        versions=_index_versions(connections, answers),
    )


def _index_versions(
    connections: Mapping[str, Connection | NotReachableError], answers: Iterable[_Answer]
) -> Mapping[str, Mapping[str, str]]:
    """By cluster and server, the versions of those that are connected to or tell it over monitoring."""
    versions: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for varz, _ in answers:
        versions[str(varz.cluster)][varz.server_name] = varz.version
    for link in connections.values():
        if isinstance(link, Connection):
            versions[str(link.cluster)][link.server_name] = link.server_version
    return versions


async def _ask_all_servers(
    topology: Topology, endpoints: Mapping[str, Endpoint], account: str
) -> tuple[list[_Answer], list[str]]:
    """What each server has loaded, of regions that leave too, and the servers of which that is unknown."""
    known_regions = {region.name for region in topology.regions}
    leaving = [endpoint for region, endpoint in endpoints.items() if region not in known_regions]
    per_region = await asyncio.gather(
        *(_ask_servers_in(topology, region.name, endpoints, account) for region in topology.regions),
        *(_ask_leaving_servers(topology, endpoint, account) for endpoint in leaving),
    )
    answers: list[_Answer] = []
    unread: list[str] = []
    for answered, silent in per_region:
        answers.extend(answered)
        unread.extend(silent)
    return answers, unread


def _may_be_in_one_account(topology: Topology, loaded_here: LoadedEntries | None, asking: str) -> bool:
    """Whether the API of the account *asking* is still its own: perhaps the topology runs there in one account."""
    if loaded_here is None or not profile_of(topology).has_hidden_accounts:
        return False
    is_joined = topology.moves_from is not None and loaded_rules.is_reachable(
        naming.FORMER_ACCOUNT, loaded_here, asking
    )
    return not (loaded_rules.leads_elsewhere(loaded_here) or is_joined)


def _accounts_to_ask(topology: Topology, loaded_here: LoadedEntries | None, asking: str) -> list[str | None]:
    """The accounts with streams that the account *asking* reaches; None stands for itself."""
    accounts: list[str | None] = []
    for account in physical.stream_accounts(topology):
        if account is not None:
            can_ask = loaded_rules.is_reachable(account, loaded_here, asking)
        else:
            # Where vstream renders no accounts, whatever the account's API leads to is asked: another profile is found
            # there.
            can_ask = not (topology.has_accounts and loaded_rules.leads_elsewhere(loaded_here))
        if can_ask:
            accounts.append(account)
    return (
        [*accounts, *loaded_rules.find_leaving_accounts(topology, loaded_here, asking)]
        if topology.has_accounts
        else accounts
    )


async def _read_consumers(
    topology: Topology, streams: Mapping[str, ObservedStream], admin: JetStreamAdmin
) -> tuple[dict[str, Mapping[str, ObservedConsumer]], tuple[str, ...]]:
    """The durables of the streams that are read from, where there are any, and those that did not answer."""
    consumed = [stream for stream in topology.streams if stream.consumers]
    read_streams = {physical.read_stream_in(stream, region) for stream in consumed for region in stream.regions}
    for name, stream in streams.items():
        # Of streams that the topology no longer has, too: their durables may have to go.
        if stream.config.owner == topology.name and stream.config.metadata_value(ROLE_KEY) in _READ_FROM:
            read_streams.add(name)
    return await admin.consumers_of(name for name in read_streams & streams.keys() if streams[name].consumers)


def _list_unknown_regions(
    topology: Topology, streams: Iterable[ObservedStream], endpoints: Mapping[str, Endpoint]
) -> frozenset[str]:
    """Regions where streams of *topology* live, and of whose servers nothing is known."""
    known_regions = {region.name for region in topology.regions} | endpoints.keys() | {*topology.clusters}
    owned = [stream.config for stream in streams if stream.config.owner == topology.name]
    regions = {region for config in owned if (region := config.region) is not None}
    return frozenset(
        f"the servers of region `{region}`, which the topology does not have" for region in regions - known_regions
    )


async def _list_own_streams(connection: Connection) -> Mapping[str, ObservedStream]:
    """The streams of the account of *connection*; none if it has no JetStream."""
    try:
        return (await JetStreamAdmin(connection).streams())[0]
    except ServerError:
        return {}


async def _observe_elsewhere(topology: Topology, connection: Connection, account: str) -> Observed:
    """
    The streams of servers that have not loaded the topology's accounts: perhaps it still runs there in one account.

    Raises VstreamError if it does not, or if the topology says another account.
    """
    streams, unanswered = await JetStreamAdmin(connection).streams()
    is_here = any(stream.config.owner == topology.name for stream in streams.values())
    if profile_of(topology).has_physical_names and is_here:
        raise VstreamError(
            f"the streams of `{topology.name}` are in account `{account}`, not in `{physical.client_account(topology)}`",
            hint="leave `account` out: servers let `$G` share nothing, so what is in it stays there"
            if account == GLOBAL_ACCOUNT
            else f"say so: `account: {account}`",
        )
    if not is_here:
        raise VstreamError(
            f"the user of `connect` is in account `{account}`, not in "
            f"`{physical.client_account(topology, connection.region)}`",
            hint=f"with `routing: {topology.routing.value}`, every server includes accounts.cfg (`vstream render`); "
            f"connect as `{name_manager(topology, connection.region)}`",
        )
    return Observed(
        streams=streams, unanswered=unanswered, unread_servers=tuple(seat.server.name for seat in topology.seats)
    )


async def _find_silent_accounts(admin: JetStreamAdmin, partly: Sequence[str]) -> frozenset[str]:
    """
    Those of the accounts *partly*, which not every server has loaded, whose JetStream does not answer.

    A new account answers once the meta leader's server has it. Until then a plan takes it as empty, and loads it first.
    """

    async def is_silent(account: str) -> bool:
        try:
            await admin.streams([account])
        except (NotReachableError, NoRespondersError):
            return True
        return False

    answers = await asyncio.gather(*map(is_silent, partly))
    return frozenset(account for account, silent in zip(partly, answers, strict=True) if silent)


async def _list_streams(
    topology: Topology,
    connections: Mapping[str, Connection | NotReachableError],
    admin: JetStreamAdmin,
    accounts: Sequence[str | None],
) -> tuple[dict[str, ObservedStream], tuple[str, ...]]:
    """
    All streams of *accounts*, and those that did not answer.

    A stream that was just moved or scaled, or whose servers have just started, has
    no leader for a moment: where its region can be reached, it is asked for again.
    """
    reached = {region for region, connection in connections.items() if isinstance(connection, Connection)}
    members = topology.stretch.members if topology.stretch else {}
    if topology.stretch and 2 * len(reached & members.keys()) > len(members):
        reached.add(topology.stretch.cluster)  # it has its majority
    # Who is in another domain knows nothing of this one's streams: they are as those that do not answer.
    in_domains = profile_of(topology).has_domains
    asked = [account for account in accounts if not in_domains or account in reached]
    away = [part.name for part in list_physical_streams(topology) if part.place not in reached] if in_domains else []
    deadline = time.monotonic() + LEADER_TIMEOUT
    while True:
        streams, unanswered = await admin.streams(asked)
        place_of = {part.name: part.place for part in list_physical_streams(topology)} if unanswered else {}
        if all(place_of.get(name) not in reached for name in unanswered) or time.monotonic() > deadline:
            return streams, (*unanswered, *away)
        await asyncio.sleep(_PAUSE_SECONDS)


async def _ask_servers_in(
    topology: Topology, region: str, endpoints: Mapping[str, Endpoint], account: str
) -> tuple[list[_Answer], list[str]]:
    names = [seat.server.name for seat in topology.seats if seat.region == region]
    endpoint = endpoints.get(region)
    if endpoint is None or not endpoint.monitor:
        return [], names
    answers = await asyncio.gather(*(_ask_server(topology, url, account) for url in endpoint.monitor))
    for url, answer in zip(endpoint.monitor, answers, strict=True):
        if answer is not None and answer[0].cluster not in topology.clusters_in(region):
            raise VstreamError(
                f"the monitoring address {url} of region `{region}` leads to cluster `{answer[0].cluster}` "
                f"(server `{answer[0].server_name}`), not to `{topology.region(region).cluster}`",
                hint="correct `monitor` under `connect`, or the region's `cluster` in the topology",
            )
    answered = [answer for answer in answers if answer is not None]
    heard = {varz.server_name for varz, _ in answered}
    silent = [url for url, answer in zip(endpoint.monitor, answers, strict=True) if answer is None]
    # A server that no monitoring address leads to is as unread as one that does not answer.
    return answered, silent + (
        [] if silent else [name for name in names if name not in heard and len(heard) < len(names)]
    )


async def _ask_leaving_servers(topology: Topology, endpoint: Endpoint, account: str) -> tuple[list[_Answer], list[str]]:
    """The rules of servers that the topology does not have: those that have stopped map nothing any more."""
    answers = await asyncio.gather(*(_ask_server(topology, url, account) for url in endpoint.monitor))
    return [answer for answer in answers if answer is not None], []


async def _ask_server(topology: Topology, url: str, account: str) -> _Answer | None:
    try:
        return await asyncio.gather(
            monitoring.read_varz(url),
            loaded_rules.read_loaded_rules(url, account, loaded_rules.own_accounts(topology), monitoring.TIMEOUT),
        )
    except VstreamError:
        return None
