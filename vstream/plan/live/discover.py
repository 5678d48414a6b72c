"""What runs, read without a topology: streams, durables, loaded mappings, versions and clusters of one account."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

from vstream.errors import NotReachableError, ServerError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import convert_malformed_errors
from vstream.jetstream.connection import Connection, connect
from vstream.jetstream.region_connections import read_account_name
from vstream.plan.importing.discovered import ClusterEndpoint, Discovered, DiscoveredServer
from vstream.plan.importing.topology import make_routing_refusal
from vstream.plan.live.loaded_rules import leads_elsewhere, read_loaded_rules
from vstream.plan.live.observe import LEADER_TIMEOUT
from vstream.plan.model import RULE, kind_of
from vstream.plan.rules import LoadedEntries
from vstream.topology.consumer_config import ObservedConsumer
from vstream.topology.model import Endpoint, Routing, ServerVersion
from vstream.topology.stream_config import REGION_ACCOUNT_PREFIX, ObservedStream

_PAUSE_SECONDS = 0.5


async def discover(
    endpoints: Sequence[tuple[str, Endpoint]], monitors: Sequence[str] = (), *, lab: str | None = None, timeout: float
) -> Discovered:
    """
    Everything that the account of *endpoints* has: pairs of what a way is called, and how servers are reached on it.

    *monitors* are monitoring addresses besides those of the ways. Raises NotReachableError if a way leads nowhere,
    VstreamError if streams do not answer, or the ways lead to different accounts, and RefusedError where each
    region is a JetStream domain.
    """
    async with AsyncExitStack() as stack:
        connections = await asyncio.gather(
            *(stack.enter_async_context(connect(endpoint, label, timeout=timeout)) for label, endpoint in endpoints)
        )
        account = await _read_account(connections)
        if len({connection.domain for connection in connections}) > 1:
            raise make_routing_refusal(Routing.DOMAINS)
        admin = JetStreamAdmin(connections[0])
        streams = await _read_streams(admin)
        consumers = await _read_consumers(admin, streams)
    asked: dict[str, str | None] = {}
    for connection, (_, endpoint) in zip(connections, endpoints, strict=True):
        asked |= dict.fromkeys(endpoint.monitor, connection.cluster)
    addresses = {**dict.fromkeys(monitors), **asked}
    answers = await asyncio.gather(*(_ask_server(url, beside, account, timeout) for url, beside in addresses.items()))
    read = [answer for answer in answers if answer is not None]
    monitored = {server.name for server, _, _ in read}
    unmonitored = [connection for connection in connections if connection.server_name not in monitored]
    connected = [_describe_connected_server(connection) for connection in unmonitored]
    return Discovered(
        streams=streams,
        consumers=consumers,
        endpoints=tuple(_list_cluster_endpoints(connections, endpoints, is_lab=lab is not None)),
        servers=(*(server for server, _, _ in read), *connected),
        rules={server.name: rules for server, rules, _ in read},
        clusters=tuple(dict.fromkeys(cluster for _, _, heard in read for cluster in heard)),
        unread=tuple(url for url, answer in zip(addresses, answers, strict=True) if answer is None),
        lab=lab,
    )


def _describe_connected_server(connection: Connection) -> DiscoveredServer:
    version = _read_version(connection.server_version)
    return DiscoveredServer(name=connection.server_name, cluster=connection.cluster, version=version)


def _list_cluster_endpoints(
    connections: Sequence[Connection], endpoints: Sequence[tuple[str, Endpoint]], *, is_lab: bool
) -> Iterable[ClusterEndpoint]:
    """One way for each cluster. Two that lead to one cluster are one with more addresses, if they are alike."""
    by_cluster: dict[str, ClusterEndpoint] = {}
    for connection, (label, endpoint) in zip(connections, endpoints, strict=True):
        cluster = connection.cluster or connection.server_name
        servers = len(connection.known_addresses)
        candidate = ClusterEndpoint(
            cluster=cluster, endpoint=endpoint, region=label if is_lab else None, servers=servers
        )
        before = by_cluster.get(cluster)
        if (
            before is not None
            and not endpoint.context
            and replace(before.endpoint, urls=()) == replace(endpoint, urls=())
        ):
            urls = tuple(dict.fromkeys((*before.endpoint.urls, *endpoint.urls)))
            candidate = replace(
                candidate, endpoint=replace(before.endpoint, urls=urls), servers=max(before.servers, servers)
            )
        elif before is not None:
            continue
        by_cluster[cluster] = candidate
    return by_cluster.values()


async def _read_account(connections: Sequence[Connection]) -> str:
    """The account of all of *connections*. Raises VstreamError if it is not one."""
    names = await asyncio.gather(*map(read_account_name, connections))
    if len(set(names)) > 1 and all(name.startswith(REGION_ACCOUNT_PREFIX) for name in names):
        raise make_routing_refusal(Routing.REGIONAL)
    for connection, name in zip(connections, names, strict=True):
        if name != names[0]:
            raise VstreamError(
                f"`{connections[0].region}` leads to account `{names[0]}`, `{connection.region}` to `{name}`",
                hint="one topology is in one account: connect to all regions with its credentials",
            )
    return names[0]


async def _read_streams(admin: JetStreamAdmin) -> Mapping[str, ObservedStream]:
    """
    All streams. Raises NotReachableError if some do not answer.

    Without them a topology would not have their regions, and applying it would take their sources away.
    """
    deadline = time.monotonic() + LEADER_TIMEOUT
    while True:
        streams, unanswered = await admin.streams()
        if not unanswered:
            return streams
        if time.monotonic() > deadline:
            raise NotReachableError(
                f"these streams exist, but no server answers for them: {', '.join(unanswered)}",
                hint="import when all regions are up: a topology without them would remove their sources",
            )
        await asyncio.sleep(_PAUSE_SECONDS)


async def _read_consumers(
    admin: JetStreamAdmin, streams: Mapping[str, ObservedStream]
) -> dict[str, Mapping[str, ObservedConsumer]]:
    """The durables of each stream that has consumers. Raises NotReachableError if one does not answer."""
    consumers, silent = await admin.consumers_of(name for name, stream in streams.items() if stream.consumers)
    if silent:
        raise NotReachableError(
            f"these consumers exist, but no server answers for them: {', '.join(silent)}",
            hint="import when all regions are up",
        )
    return consumers


async def _ask_server(
    url: str, beside: str | None, account: str, timeout: float
) -> tuple[DiscoveredServer, LoadedEntries, tuple[str, ...]] | None:
    """
    The server that monitors at *url*: itself, the rules that it has loaded, and the clusters that it knows.

    None if it does not answer. Raises RefusedError if it has vstream's hidden accounts.
    """
    try:
        varz, loaded, gateways = await asyncio.gather(
            monitoring.get(url, "/varz", timeout),
            read_loaded_rules(url, account, (), timeout),
            monitoring.read_gateway_bytes(url, timeout),
        )
        told = await monitoring.read_varz(url, timeout)
        with convert_malformed_errors(url):
            version = _read_version(told.version)
    except NotReachableError:
        return None
    except ServerError as error:
        raise VstreamError(f"the monitoring endpoint {url} has no account `{account}`: {error}") from error
    if leads_elsewhere(loaded) and await _has_hidden_accounts(url, timeout):
        raise make_routing_refusal(Routing.ACCOUNTS)
    tags = varz.get("tags")
    server = DiscoveredServer(
        name=told.server_name,
        cluster=told.cluster,
        version=version,
        tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else (),
        monitor=url,
        beside=beside,
    )
    # In operator mode a server says more of the account than its rules.
    rules = {source: to for source, to in loaded.items() if kind_of(source) == RULE}
    return server, rules, (*([told.cluster] if told.cluster else []), *sorted(gateways))


async def _has_hidden_accounts(url: str, timeout: float) -> bool:
    accounts = (await monitoring.get(url, "/accountz", timeout)).get("accounts") or ()
    return {account[:2] for account in accounts if isinstance(account, str)} >= {"W_", "R_"}


def _read_version(text: str) -> ServerVersion:
    major, minor, *_ = (int(part) for part in text.split("-", maxsplit=1)[0].split("."))
    return major, minor
