"""
Everything that servers say at one moment, within a deadline.

Monitoring ports first: one answer holds all streams of a server, costs it no pass
through the mapping rules, and comes also where JetStream has no leader. STREAM.LIST is
never asked: while a region is down, servers wait 4 s for it on each page. What no
monitoring port tells is asked by STREAM.INFO, of a connection to the stream's own region.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, repeat
from statistics import median
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from vstream.errors import HangingError, MalformedAnswerError, NotReachableError, ServerError, VstreamError
from vstream.health.live import beacons, gaps, lag, reachability
from vstream.health.snapshot import (
    UNCLUSTERED,
    BeaconSighting,
    Gap,
    RegionSnapshot,
    Repeat,
    ServerSnapshot,
    Snapshot,
    StreamSnapshot,
    WriteError,
    parse_stream,
    to_unix_seconds,
)
from vstream.jetstream import error_codes, monitoring, region_connections
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import convert_malformed_errors, is_from_leader, require_text
from vstream.jetstream.connection import Connection, open_connection
from vstream.jetstream.endpoints import list_endpoint_problems
from vstream.plan.live.loaded_rules import own_accounts, read_loaded_rules
from vstream.topology import naming
from vstream.topology.consumer_config import ObservedConsumer
from vstream.topology.model import Endpoint, Topology
from vstream.topology.profiles import profile_of
from vstream.topology.replication import Durable, PhysicalStream, list_durables, list_physical_streams, physical_streams

_Opened = Mapping[str, Connection | NotReachableError]
_SCOUTS = 8
"""Number of streams that are asked for first in each place. If none of them answers, the place counts as down."""
_SCOUT_TIMEOUT = 1.0
"""Seconds to wait for them."""
_MAX_PARALLEL_REQUESTS = 128
_CONNECT_SHARE = 0.4
"""The share of the deadline that connecting may take. The rest is for requests."""
_MONITORING_SHARE = 0.6
_STREAMS_SHARE = 0.8
"""The shares after which monitoring ports, and then leaders of streams, have had their time: others still have to be asked."""
_CANNOT_WRITE = "write error"
_NOT_TOLD = "$G"
"""The account to assume if no server names one: that of clients without a user."""


async def collect_snapshot(
    topology: Topology,
    endpoints: Mapping[str, Endpoint],
    *,
    timeout: float,
    is_deep: bool = False,
    opened: _Opened = MappingProxyType({}),
) -> Snapshot:
    """
    What all servers say, not later than *timeout* seconds from now, and one more for each 1,000 streams.

    With *is_deep* also what readers have skipped. Regions that were *opened* before are not dialled again. Raises NotReachableError if no region and no monitoring port answers, and
    with *is_deep* VstreamError where servers and topology have different modes of security.
    """
    collector = _SnapshotCollector(topology, endpoints, opened, timeout, is_deep=is_deep)
    try:
        return await collector.run()
    finally:
        await collector.close()


class _SnapshotCollector:
    def __init__(
        self, topology: Topology, endpoints: Mapping[str, Endpoint], opened: _Opened, timeout: float, *, is_deep: bool
    ) -> None:
        # A server lists some thousand streams a second, and those of a lab share one machine.
        timeout += sum(len(physical_streams(stream)) for stream in topology.streams) // 1_000
        self._topology = topology
        self._endpoints = endpoints
        self._opened = opened
        self._began = began = time.monotonic()
        self._deadline = began + timeout
        self._until = began + timeout * _MONITORING_SHARE
        """When what is done now has had its time, on the monotonic clock."""
        self._connecting = timeout * _CONNECT_SHARE
        self._is_deep = is_deep
        self._connections: dict[str, Connection] = {}
        self._problems: dict[str, str] = {}
        self._refusals: list[VstreamError] = []
        self._account: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._is_account_known = False
        self._streams: dict[str, StreamSnapshot] = {}
        self._absent: set[str] = set()
        self._ahead = list[float]()
        """How far servers' clocks, which give messages their times, are ahead of the one here, which may be wrong."""

    def _remaining(self) -> float:
        return max(0.05, self._until - time.monotonic())

    async def run(self) -> Snapshot:
        at = time.time()
        servers, _ = await asyncio.gather(self._ask_servers(), self._connect())
        if not self._connections and not any(server.is_reached for server in servers):
            raise NotReachableError.of_all(self._refusals)
        self._until = self._began + (self._deadline - self._began) * _STREAMS_SHARE
        account = self._account.result()
        if self._is_deep and account != _NOT_TOLD:
            region_connections.require_security_mode(self._topology, account)
        await self._ask_for_the_rest(servers)
        self._until = self._deadline
        servers = [self._believe_running(server) for server in servers]
        regions, lags, gaps_and_repeats, consumers, sightings, errors = await asyncio.gather(
            asyncio.gather(*(self._observe_region(region.name) for region in self._topology.regions)),
            lag.measure_lag(self._topology, self._streams, self._connections, self._deadline),
            self._find_gaps_and_repeats(),
            self._read_consumers(),
            self._read_beacons(),
            _find_write_errors(servers, self._deadline),
        )
        return Snapshot(
            at=at + (median(self._ahead) if self._ahead else 0.0),
            took=time.monotonic() - self._began,
            account=account,
            regions=tuple(regions),
            servers=tuple(servers),
            streams=self._streams,
            absent=frozenset(self._absent),
            lags=lags,
            gaps=tuple(gap for gap in gaps_and_repeats if isinstance(gap, Gap)),
            repeats=tuple(repeat for repeat in gaps_and_repeats if isinstance(repeat, Repeat)),
            write_errors=errors,
            beacons=sightings,
            consumers=consumers,
        )

    def _believe_running(self, server: ServerSnapshot) -> ServerSnapshot:
        """*server*; where only its monitoring port is silent, as one that no monitoring address leads to."""
        running = {stream.leader for stream in self._streams.values()}
        running |= {connection.server_name for connection in self._connections.values()}
        if server.is_reached or server.url is None or server.name not in running:
            return server
        problem = f"{server.problem}; but it runs: it takes connections, or leads a stream"
        return replace(server, url=None, problem=problem, rules_problem=problem)

    async def _read_consumers(self) -> dict[tuple[str, str], ObservedConsumer | None]:
        """Ask for the topology's consumers. Their leaders answer, even in a region that is cut off."""
        slots = asyncio.Semaphore(_MAX_PARALLEL_REQUESTS)
        observed: dict[tuple[str, str], ObservedConsumer | None] = {}

        async def observe_consumer(durable: Durable) -> None:
            stream = self._streams.get(durable.stream)
            if not self._connections or stream is None or stream.leader is None:
                return
            connection = region_connections.choose_connection_to(self._connections, durable.region)
            key = durable.stream, durable.name
            async with slots:
                with suppress(VstreamError):
                    observed[key] = await JetStreamAdmin(connection).find_consumer(*key, timeout=self._remaining())

        await asyncio.gather(*map(observe_consumer, list_durables(self._topology)))
        return observed

    async def _find_gaps_and_repeats(self) -> tuple[Gap | Repeat, ...]:
        if not self._is_deep:
            return ()
        return await gaps.find_gaps_and_repeats(self._topology, self._streams, self._connections, self._deadline)

    async def _read_beacons(self) -> tuple[BeaconSighting, ...]:
        if not beacons.list_streams_with_beacons(self._topology):
            return ()
        away = {region: NotReachableError(problem) for region, problem in self._problems.items()}
        return await beacons.read_beacons(
            self._topology, {**away, **self._connections}, patience=self._remaining(), most=beacons.MAX_BEACONS
        )

    async def _observe_region(self, region: str) -> RegionSnapshot:
        return await reachability.observe_region(
            self._topology, region, self._connections.get(region), self._problems.get(region), self._deadline
        )

    async def close(self) -> None:
        opened = self._opened.values()
        await asyncio.gather(*(each.close() for each in self._connections.values() if each not in opened))

    async def _connect(self) -> None:
        await asyncio.gather(*(self._connect_to(region.name) for region in self._topology.regions))
        if not self._account.done():
            self._account.set_result(_NOT_TOLD)

    def _refuse(self, region: str, error: VstreamError) -> None:
        self._problems[region] = error.message
        self._refusals.append(error)

    async def _connect_to(self, region: str) -> None:
        connection = self._opened.get(region)
        if not isinstance(connection, Connection):
            connection = await self._dial(region)
        if connection is None:
            return
        connection.client.is_mapped = partial(profile_of(self._topology).maps, self._topology, region)
        self._connections[region] = connection
        expected = self._topology.region(region).cluster
        if connection.cluster != expected:
            self._problems[region] = (
                f"the connection for region `{region}` leads to cluster `{connection.cluster}`, not to `{expected}`"
            )
        if not self._account.done():
            try:
                account = await region_connections.read_account_name(connection)
            except VstreamError:
                return
            if not self._account.done():
                self._is_account_known = True
                self._account.set_result(account)

    async def _dial(self, region: str) -> Connection | None:
        """A connection to *region*; None if it cannot be reached, for the reasons that are remembered."""
        endpoint = self._endpoints.get(region)
        if endpoint is None:
            self._refuse(region, region_connections.make_address_error(region))
            return None
        if problems := list_endpoint_problems(endpoint, region):
            self._problems[region] = "; ".join(problem.message for problem in problems)
            self._refusals += problems
            return None
        try:
            return await open_connection(endpoint, region, timeout=self._connecting)
        except VstreamError as error:
            self._refuse(region, error)
            return None

    async def _ask_servers(self) -> list[ServerSnapshot]:
        servers: list[ServerSnapshot] = []
        asked = [(region, url) for region, endpoint in self._endpoints.items() for url in endpoint.monitor]
        answers = await asyncio.gather(*(self._ask_server(region, url) for region, url in asked))
        for region in self._topology.regions:
            own_answers = [answer for answer in answers if answer.region == region.name]
            reached = [answer for answer in own_answers if answer.is_reached]
            silent = [answer for answer in own_answers if not answer.is_reached]
            servers += reached
            # Which address is whose is known only of those that answer.
            seats = [seat.server.name for seat in self._topology.seats if seat.region == region.name]
            unnamed = [name for name in seats if name not in {server.name for server in reached}]
            nobody = ServerSnapshot(
                name="?", region=region.name, problem="`monitor` under `connect` does not lead to it"
            )
            for name, answer in zip(unnamed, chain(silent, repeat(nobody)), strict=False):
                away = replace(answer, name=name)
                if answer.url and len(silent) < len(unnamed):
                    problem = f"{answer.problem}; which server has that address is not known"
                    away = replace(away, url=None, problem=problem)
                servers.append(away)
        return servers

    async def _ask_server(self, region: str, url: str) -> ServerSnapshot:
        try:
            with convert_malformed_errors(url):
                return await self._read_server(region, url)
        except VstreamError as error:
            hangs = isinstance(error, HangingError)
            return ServerSnapshot(name="?", region=region, url=url, problem=error.message, hangs=hangs)

    async def _read_server(self, region: str, url: str) -> ServerSnapshot:
        varz = await monitoring.read_varz(url, self._remaining())
        if varz.cluster and varz.cluster not in self._topology.clusters_in(region):
            problem = f"{url} leads to server `{varz.server_name}` of cluster `{varz.cluster}`"
            return ServerSnapshot(name="?", region=region, url=None, problem=problem)
        if varz.now is not None:
            self._ahead.append(to_unix_seconds(require_text(varz.now)) - time.time())
        linked, jetstream, (rules, rules_problem) = await asyncio.gather(
            monitoring.read_gateway_bytes(url, self._remaining()),
            self._read_jetstream(region, url, varz.server_name),
            self._read_rules(url),
        )
        group = jetstream.get("meta_cluster") or {}
        return ServerSnapshot(
            name=varz.server_name,
            region=region,
            url=url,
            cluster=varz.cluster,
            version=varz.version,
            gateways=linked,
            has_jetstream=bool(jetstream) and not jetstream.get("disabled", False),
            meta_leader=require_text(group.get("leader") or "") or None,
            meta_size=int(group.get("cluster_size", 0)),
            rules=rules,
            rules_problem=rules_problem,
            config_digest=varz.config_digest,
            config_loaded=varz.config_load_time,
            flags=varz.flags,
            storage=int(jetstream.get("storage", 0)),
            storage_limit=int((jetstream.get("config") or {}).get("max_storage", 0)),
        )

    async def _read_jetstream(self, region: str, url: str, server: str) -> Mapping[str, Any]:
        """What *server* reports about JetStream. Keeps the streams that it leads."""
        account = await self._find_account(region)
        path = f"/jsz?acc={quote(account, safe='')}&streams=true&stream_leader_only=true&config=true"
        try:
            answer = await monitoring.get_large(url, path, self._remaining())
        except ServerError:
            # It says so where the account has nothing there yet.
            return await monitoring.get(url, "/jsz", self._remaining())
        look = partial(reachability.find_unsubscribed, url, account)
        unsubscribed = await look(self._keep(answer, region, led_by=server), self._remaining())
        if unsubscribed:
            # One may have been made, moved or deleted between the two answers: only what is seen twice is so.
            answer = await monitoring.get_large(url, path, self._remaining())
            again = await look(self._keep(answer, region, led_by=server), self._remaining())
            for name in unsubscribed.keys() & again.keys():
                self._streams[name] = replace(self._streams[name], unsubscribed=again[name])
        return answer

    def _keep(self, answer: Mapping[str, Any], region: str, *, led_by: str | None) -> list[StreamSnapshot]:
        """Remember the streams that are listed in *answer*, of those that *led_by* leads. Returns them."""
        home, streams = self._home(region), []
        for account in answer.get("account_details") or ():
            for detail in account.get("stream_detail") or ():
                stream = parse_stream(detail, naming.qualified_name(home, str(detail["name"])))
                # Servers before 2.11 list replicas, too: they do not know what a source does.
                if led_by is None or stream.leader in {led_by, UNCLUSTERED}:
                    # One that is cut off leads for some more seconds, beside the one that the others have elected.
                    if stream.name not in self._streams or is_from_leader(detail):
                        self._streams[stream.name] = stream
                    streams.append(stream)
        return streams

    def _home(self, region: str) -> str | None:
        """The domain or account that streams of *region* are in, if one monitoring answer lists them all."""
        profile = profile_of(self._topology)
        return profile.account_of_reads(region) if profile.has_write_beside_read else None

    async def _find_account(self, region: str) -> str:
        """The account of clients of *region*."""
        account = await asyncio.shield(self._account)
        profile = profile_of(self._topology)
        return profile.client_account(self._topology, region) if profile.has_region_accounts else account

    async def _read_rules(self, url: str) -> tuple[Mapping[str, tuple[str, ...]] | None, str | None]:
        """What the server at *url* has loaded; or None, and why that is not known."""
        account = await asyncio.shield(self._account)
        if not self._is_account_known:
            return None, "the account of `connect` is not known: no server has named it"
        try:
            return await read_loaded_rules(url, account, own_accounts(self._topology), self._remaining()), None
        except ServerError:
            return {}, None  # no such account there: nothing has used it since the server started
        except VstreamError as error:
            return None, error.message

    async def _ask_for_the_rest(self, servers: Sequence[ServerSnapshot]) -> None:
        """Ask for streams whose leader was not seen, then ask replicas about streams without a leader."""
        unknown = [part for part in list_physical_streams(self._topology) if part.name not in self._streams]
        by_place: dict[str, list[PhysicalStream]] = {}
        for part in unknown:
            by_place.setdefault(part.place, []).append(part)
        if not by_place:
            return
        await asyncio.gather(*(self._ask_place(place, streams) for place, streams in by_place.items()))
        leaderless = {part.name for part in unknown} - self._streams.keys() - self._absent
        if leaderless:
            before = dict(self._streams)
            reached = [server for server in servers if server.is_reached]
            answers = await asyncio.gather(*map(self._read_replicas, reached))
            for server, answer in zip(reached, answers, strict=True):
                with suppress(MalformedAnswerError), convert_malformed_errors(str(server.url)):
                    self._keep(answer, server.region, led_by=None)
            # Replicas know neither more than the leader nor who leads, if nobody says that it does.
            for name, stream in self._streams.items():
                self._streams[name] = before.get(name) or replace(stream, leader=None)

    async def _read_replicas(self, server: ServerSnapshot) -> Mapping[str, Any]:
        """All streams that *server* has a replica of, as it lists them; nothing if it does not answer."""
        account = quote(await self._find_account(server.region), safe="")
        try:
            return await monitoring.get_large(str(server.url), f"/jsz?acc={account}&streams=true", self._remaining())
        except VstreamError:
            return {}

    async def _ask_place(self, place: str, parts: Sequence[PhysicalStream]) -> None:
        connection = self._connections.get(place) or next(iter(self._connections.values()), None)
        if connection is None:
            return
        admin = JetStreamAdmin(connection)
        patience = min(_SCOUT_TIMEOUT, self._remaining() / 2)
        scouts = await asyncio.gather(*(self._ask(admin, part.name, patience) for part in parts[:_SCOUTS]))
        if any(scouts):
            slots = asyncio.Semaphore(_MAX_PARALLEL_REQUESTS)

            async def ask_in_turn(name: str) -> None:
                async with slots:
                    await self._ask(admin, name, self._remaining())

            await asyncio.gather(*(ask_in_turn(part.name) for part in parts[_SCOUTS:]))

    async def _ask(self, admin: JetStreamAdmin, name: str, patience: float) -> bool:
        """Ask for stream *name*. Returns whether anything answered."""
        if time.monotonic() > self._until:
            return False
        try:
            info = await admin.info(name, timeout=patience)
            with convert_malformed_errors(name):
                self._streams[name] = parse_stream(info, name)
        except ServerError as error:
            if error.err_code == error_codes.STREAM_NOT_FOUND:
                self._absent.add(name)
            return error.err_code == error_codes.STREAM_NOT_FOUND
        except VstreamError:
            return False
        return True


async def _find_write_errors(servers: Sequence[ServerSnapshot], deadline: float) -> tuple[WriteError, ...]:
    """
    Read write errors from *servers* before *deadline*, on the monotonic clock.

    Servers report them for Raft groups, and for streams and consumers with several replicas, once a write has failed. For
    others they report nothing: a refused publish is the only sign.
    """
    asked = [server for server in servers if server.is_reached]
    answers = await asyncio.gather(*(_read_problems(str(server.url), deadline) for server in asked))
    errors: list[WriteError] = []
    for server, problems in zip(asked, answers, strict=True):
        for problem in problems:
            error = str(problem.get("error"))
            if _CANNOT_WRITE in error:
                errors.append(WriteError(server=server.name, about=_name_what_fails(problem), error=error))
    return tuple(errors)


async def _read_problems(url: str, deadline: float) -> Sequence[Mapping[str, Any]]:
    try:
        return await monitoring.list_health_problems(url, max(0.05, deadline - time.monotonic()))
    except VstreamError:
        return ()  # that it does not answer is a finding of its own


def _name_what_fails(problem: Mapping[str, Any]) -> str:
    """What a server's *problem* is about: a stream, a consumer, or JetStream as a whole."""
    names = [str(problem[key]) for key in ("stream", "consumer") if problem.get(key)]
    return " > ".join(names) or "JetStream"
