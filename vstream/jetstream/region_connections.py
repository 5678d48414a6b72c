"""Connections to the regions of a topology, and whether they lead to the servers that it means."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from vstream.errors import MalformedAnswerError, NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.connection import CONNECT_TIMEOUT, Connection, DomainRoutingConnection, open_connection
from vstream.jetstream.endpoints import require_endpoints
from vstream.jetstream.reconnecting import ReconnectingConnection, open_reconnecting
from vstream.subjects.account_flow import GLOBAL_ACCOUNT
from vstream.syntax.document import object_or_empty
from vstream.topology import naming, physical
from vstream.topology.accounts import VSTREAM_USER
from vstream.topology.model import Endpoint, Security, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.profiles.shared import WHO_AM_I
from vstream.topology.signing import PUBLIC_KEY
from vstream.topology.stream_config import REGION_ACCOUNT_PREFIX
from vstream.topology.units import format_version, parse_version

_MAX_ACCOUNT_LENGTH: Final = 1000
"""Characters. Names of accounts stand in addresses and reports; operator mode's have 56."""
_RELOAD_TIMEOUT: Final = 2.0
_PAUSE_SECONDS: Final = 0.5
_C = TypeVar("_C", bound=Connection)


@asynccontextmanager
async def connect_all(
    topology: Topology,
    endpoints: Mapping[str, Endpoint],
    *,
    on_open: Callable[[str], None] = lambda _region: None,
) -> AsyncIterator[Mapping[str, Connection | NotReachableError]]:
    """
    One connection to each region that can be reached, and the reason for each that cannot. *on_open* is told each region.

    Raises VstreamError with every file, context and variable that is missing, before anything is dialled; and if a
    connection leads to another cluster than the region's, or to a server that is older than the topology promises.
    """
    async with _connect(topology, endpoints, open_connection, on_open) as connections:
        yield connections


@asynccontextmanager
async def connect_reconnecting(
    topology: Topology, endpoints: Mapping[str, Endpoint]
) -> AsyncIterator[Mapping[str, ReconnectingConnection | NotReachableError]]:
    """As `connect_all`, with connections that come back after an outage."""
    open_region = partial(
        open_reconnecting,
        name="vstream",
        accepts_server=lambda *_: True,
        within=CONNECT_TIMEOUT,
        is_rehearsal=False,
    )
    async with _connect(topology, endpoints, open_region, lambda _region: None) as connections:
        yield connections


@asynccontextmanager
async def _connect(
    topology: Topology,
    endpoints: Mapping[str, Endpoint],
    open_region: Callable[[Endpoint, str], Awaitable[_C]],
    on_open: Callable[[str], None],
) -> AsyncIterator[Mapping[str, _C | NotReachableError]]:
    """See `connect_all`."""
    require_endpoints(topology, endpoints)

    async def try_to_open(region: str) -> _C | NotReachableError:
        try:
            if region not in endpoints:
                raise make_address_error(region)
            return await open_region(endpoints[region], region)
        except NotReachableError as error:
            return error
        finally:
            on_open(region)

    names = [region.name for region in topology.regions]
    connections = dict(zip(names, await asyncio.gather(*map(try_to_open, names)), strict=True))
    opened = {region: connection for region, connection in connections.items() if isinstance(connection, Connection)}
    try:
        for region, connection in opened.items():
            connection.client.is_mapped = partial(profile_of(topology).maps, topology, region)
            require_cluster(connection, {topology.region(region).cluster})
            _require_server_version(topology, region, connection)
        await _require_own_accounts(topology, opened.values())
        yield connections
    finally:
        await asyncio.gather(*(connection.close() for connection in opened.values()))


def make_address_error(region: str) -> NotReachableError:
    """Nothing says how *region* is reached."""
    return NotReachableError(
        f"no address is known for region `{region}`", hint=f"add `{region}` to `connect` in the topology"
    )


def require_cluster(connection: Connection, expected: Collection[str]) -> None:
    """Raises VstreamError if *connection* leads to another cluster than those *expected* in its region."""
    if connection.cluster not in expected:
        raise VstreamError(
            f"the connection for region `{connection.region}` leads to cluster `{connection.cluster}` "
            f"(server `{connection.server_name}`), not to `{'` or `'.join(sorted(expected))}`",
            hint="correct `connect` or the region's `cluster` in the topology",
        )


def _require_server_version(topology: Topology, region: str, connection: Connection) -> None:
    running = parse_version(connection.server_version)
    if running is not None and running[:2] < topology.server_version:
        oldest = format_version(topology.server_version)
        raise VstreamError(
            f"server `{connection.server_name}` in region `{region}` runs {connection.server_version}, "
            f'the topology says `server_version: "{oldest}"`',
            hint="upgrade the server, or lower `server_version`",
        )


async def _require_own_accounts(topology: Topology, connections: Collection[Connection]) -> None:
    """Raises VstreamError where whoever connects to one region is in the account of another."""
    if not profile_of(topology).has_region_accounts:
        return
    accounts = await asyncio.gather(*map(read_account_name, connections))
    for connection, account in zip(connections, accounts, strict=True):
        expected = naming.region_account(connection.region)
        if account.startswith(REGION_ACCOUNT_PREFIX) and account != expected:
            raise VstreamError(
                f"the user of `connect` for region `{connection.region}` is in account `{account}`, not in `{expected}`",
                hint=f"connect as `{name_manager(topology, connection.region)}`: with `routing: {topology.routing.value}`, "
                "each region has users of its own",
            )


def name_manager(topology: Topology, region: str) -> str:
    """The user who manages the streams of *region*."""
    return profile_of(topology).user_name(VSTREAM_USER, region)


def join_connections(connections: Mapping[str, Connection | NotReachableError]) -> Connection:
    """
    One connection for all regions. It asks the first that can be reached, and a domain's own region for what only that knows.

    Raises NotReachableError with every reason if no region can be reached.
    """
    return DomainRoutingConnection(next(iter(select_reached(connections).values())), connections)


def choose_connection_to(connections: Mapping[str, _C], place: str) -> _C:
    """The connection to a region. Without one, as to the stretch cluster, any other: each reaches all."""
    return connections.get(place) or next(iter(connections.values()))


def require_reached(connection: _C | VstreamError) -> _C:
    """*connection*. Raises the reason why there is none."""
    if isinstance(connection, VstreamError):
        raise connection
    return connection


def select_reached(connections: Mapping[str, _C | NotReachableError]) -> Mapping[str, _C]:
    """The connections to regions that can be reached. Raises NotReachableError with every reason if there is none."""
    errors = [connection for connection in connections.values() if isinstance(connection, NotReachableError)]
    if len(errors) == len(connections):
        raise NotReachableError.of_all(errors)
    pairs = connections.items()
    return {region: connection for region, connection in pairs if not isinstance(connection, NotReachableError)}


def require_all_reached(connections: Mapping[str, _C | NotReachableError]) -> Mapping[str, _C]:
    """All of them. Raises NotReachableError if a region cannot be reached."""
    for connection in connections.values():
        if isinstance(connection, NotReachableError):
            raise NotReachableError(connection.message, hint=f"all regions are needed: {connection.hint}")
    return select_reached(connections)


def require_security_mode(topology: Topology, account: str) -> None:
    """
    Raises VstreamError where servers are in operator mode and *topology* is not, or the other way round.

    *account* is what servers call the account of whoever connects. An account of one's own may be in either.
    """
    is_signed = PUBLIC_KEY.fullmatch(account) is not None
    if not topology.has_accounts or is_signed is (topology.security is Security.OPERATOR):
        return
    if is_signed:
        raise VstreamError(
            f"the servers are in operator mode: the user of `connect` is in account `{account}`, and the topology says "
            f"`mode: {topology.security.value}`",
            hint="write `security: {mode: operator}` if these are the right servers; "
            "a lab starts afresh after `vstream lab down --purge`",
        )
    raise VstreamError(
        f"the servers are not in operator mode: the user of `connect` is in account `{account}`, which is "
        "defined in their configuration files",
        hint="ship operator.cfg and the server configurations to every server, and restart each (`vstream render`); "
        "a lab starts afresh after `vstream lab down --purge`",
    )


async def require_connected_account(
    topology: Topology, connections: Mapping[str, Connection | NotReachableError], endpoints: Mapping[str, Endpoint]
) -> None:
    """
    Raises VstreamError if the user of `connect` is in another account than the topology's, or that is of another profile.

    For operator mode, where servers tell clients the public key of their account, and monitoring its name.
    """
    for region, connection in connections.items():
        endpoint = endpoints.get(region)
        if not isinstance(connection, Connection) or endpoint is None or not endpoint.monitor:
            continue
        try:
            key = await read_account_name(connection)
            await monitoring.look_up_account(endpoint.monitor[0], key, monitoring.TIMEOUT)
            detail = await monitoring.read_account_detail(endpoint.monitor[0], key, monitoring.TIMEOUT)
        except (NotReachableError, ServerError):
            continue  # what cannot be read is said by the plan
        name, expected = str(detail.get("name_tag") or key), physical.client_account(topology, region)
        if name != expected:
            raise VstreamError(
                f"the user of `connect` for region `{region}` is in account `{name}`, not in `{expected}`",
                hint=f"connect with user-{name_manager(topology, region)}.creds of the topology's keys (`vstream keys where`); "
                "the routing profile of a topology in operator mode cannot change while servers run",
            )
        if bool(detail.get("jetstream_enabled")) is profile_of(topology).has_hidden_accounts:
            raise VstreamError(
                f"servers of region `{region}` have accounts of another profile than `routing: {topology.routing.value}`",
                hint="the routing profile of a topology in operator mode cannot change while servers run",
            )


async def read_account_name(connection: Connection) -> str:
    """
    The account that *connection* belongs to. Raises MalformedAnswerError if what the server names can be none.

    A server that reloads its accounts does not listen for a moment: it is asked again for `_RELOAD_TIMEOUT` seconds.
    """
    until = time.monotonic() + _RELOAD_TIMEOUT
    while True:
        try:
            answer = await connection.request_json(WHO_AM_I)
            break
        except NoRespondersError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)
    account = str(object_or_empty(answer.get("data")).get("account", GLOBAL_ACCOUNT))
    if len(account) > _MAX_ACCOUNT_LENGTH:
        raise MalformedAnswerError(WHO_AM_I, f"the account's name has {len(account):,} characters")
    return account
