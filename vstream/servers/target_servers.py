"""The servers that a command changes or a fault takes: of a lab, with processes to signal, or of a deployment, with only its API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field, replace

import psutil

from vstream.errors import LabError, NotReachableError, VstreamError
from vstream.jetstream.connection import Connection, open_connection
from vstream.jetstream.region_connections import join_connections, require_cluster
from vstream.lab.endpoints import find_system_endpoint, list_endpoints
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import Direction
from vstream.lab.readiness import trust_monitors
from vstream.lab.server import NatsServer
from vstream.lab.state import LabDirectory, LabRecord
from vstream.lab.status import require_recorded_lab
from vstream.servers.find_servers import Servers
from vstream.topology.model import Endpoint, Topology
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class


@value_class
class TargetServers:
    """Which servers are meant, and how they are reached. *lab* is None for servers that vstream did not start."""

    servers: Mapping[str, str]
    """The region of each server."""
    clusters: Mapping[str, str]
    """The cluster of each server: its region's own, or the stretch cluster."""
    endpoints: Mapping[str, Endpoint]
    system: Endpoint | None
    """How to reach the system account: only there can the meta leader step down."""
    lab: tuple[LabDirectory, LabRecord] | None
    hubs: Mapping[str, str] = field(default_factory=dict)
    """By region, the server that joins it to the others without JetStream; then each region has its own meta group."""
    held: frozenset[str] = frozenset()
    """Servers that another open fault holds down, whichever fault is healed."""

    @property
    def directory(self) -> LabDirectory:
        """The lab's directory. Raises LabError if this is not a lab."""
        return self.require_lab()[0]

    @property
    def record(self) -> LabRecord:
        """The record of the lab. Raises LabError if this is not a lab."""
        return self.require_lab()[1]

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions, in the order of the topology."""
        return tuple(dict.fromkeys(self.servers.values()))

    @property
    def meta_groups(self) -> tuple[frozenset[str], ...]:
        """The servers of each JetStream meta group."""
        if not self.hubs:
            return (frozenset(self.servers),)
        return tuple(frozenset(self.list_in_region(region)) - {hub} for region, hub in self.hubs.items())

    def latest_record(self) -> LabRecord:
        """The record as it is now: an upgrade changes the binaries of servers."""
        return self.directory.read() or self.record

    def list_in_region(self, region: str) -> tuple[str, ...]:
        """The servers in *region*, including its member of the stretch cluster."""
        return tuple(server for server, where in self.servers.items() if where == region)

    def address(self, server: str) -> ServerAddress:
        """Where *server* of the lab listens."""
        return next(address for address in self.record.servers if address.server.name == server)

    def nats_server(self, server: str) -> NatsServer:
        """The server of the lab. Its process is looked up by identity for every signal."""
        return NatsServer(self.directory, server)

    def unavailable(self) -> frozenset[str]:
        """The servers of the lab that do not run, or are stopped by a signal."""
        return frozenset(server for server in self.servers if not self.may_answer(server))

    def may_answer(self, server: str) -> bool:
        """Whether the process of *server* runs and is not paused. Always true outside a lab."""
        return self.lab is None or self._find_status(server) not in {None, psutil.STATUS_STOPPED}

    def is_paused(self, server: str) -> bool:
        """Whether a signal has stopped the process of *server*, in a lab."""
        return self._find_status(server) == psutil.STATUS_STOPPED

    def _find_status(self, server: str) -> str | None:
        process = self.nats_server(server).process()
        try:
            return None if process is None else process.status()
        except psutil.NoSuchProcess:
            return None

    def monitors(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Monitoring addresses of running servers; in a lab, only of those *among* the given ones."""
        if self.lab is None:
            return tuple(url for endpoint in self.endpoints.values() for url in endpoint.monitor)
        asked = self.servers if among is None else [server for server in self.servers if server in among]
        return tuple(self.address(server).monitor_url for server in asked if self.may_answer(server))

    @asynccontextmanager
    async def connect(self, first: str | None = None) -> AsyncIterator[Connection]:
        """A connection to region *first*, or to another one. Raises NotReachableError if no region can be reached."""
        regions = sorted(self.endpoints, key=lambda region: region != first)
        if self.hubs:
            async with self._connect_to_each(regions) as connection:
                yield connection
            return
        connection = await self._open([(region, self._living_endpoint(region)) for region in regions])
        try:
            yield connection
        finally:
            await connection.close()

    @asynccontextmanager
    async def _connect_to_each(self, regions: Sequence[str]) -> AsyncIterator[Connection]:
        """To the first of *regions* that can be reached; what is asked of another domain goes there."""

        async def open_region(region: str) -> Connection | NotReachableError:
            try:
                return await self._open([(region, self._living_endpoint(region))])
            except NotReachableError as error:
                return error

        opened = dict(zip(regions, await asyncio.gather(*map(open_region, regions)), strict=True))
        try:
            yield join_connections(opened)
        finally:
            await asyncio.gather(*(result.close() for result in opened.values() if isinstance(result, Connection)))

    @asynccontextmanager
    async def connect_to_system(self) -> AsyncIterator[Connection]:
        """A connection to the system account. Raises LabError if its address is unknown or ambiguous."""
        self.require_one_meta_group()
        if self.system is None:
            raise LabError(
                "moving the JetStream meta leader needs the system account, which is not configured",
                hint="`--system-context NAME` names a nats CLI context of the system account",
            )
        endpoint = self.system
        if self.lab is not None:
            urls = tuple(url for region in self.endpoints for url in self._living_endpoint(region).urls)
            endpoint = replace(endpoint, urls=urls)
        connection = await self._open([("system account", endpoint)])
        try:
            yield connection
        finally:
            await connection.close()

    def require_one_meta_group(self) -> None:
        """Raises LabError if each region has its own meta leader: the fault does not say which."""
        if self.hubs:
            raise LabError(
                "with `routing: domains` each region has a JetStream meta leader of its own",
                hint="kill or pause a server instead: `vstream lab status` lists them",
            )

    def system_endpoint_in(self, region: str) -> Endpoint:
        """How to reach the lab's system account in *region*; without addresses if no server runs there."""
        assert self.system is not None
        if region not in self.hubs:
            return replace(self.system, urls=self._living_endpoint(region).urls)
        # The system accounts of regions are their own; those of hubs are one.
        hub = self.address(self.hubs[region])
        return replace(self.system, urls=(hub.client_url,) if self.may_answer(self.hubs[region]) else ())

    def find_cut_links(self) -> frozenset[Direction]:
        """The links of the lab that carry nothing now."""
        links = ProxyProcess(self.directory).read_orders()
        return frozenset(pair for pair in links.pairs if links.state(pair).cut is not None) if links else frozenset()

    async def _open(self, choices: Iterable[tuple[str, Endpoint]]) -> Connection:
        reasons, hint = [], "`vstream chaos heal` undoes the faults of a lab"
        for region, endpoint in choices:
            if not endpoint.urls and endpoint.context is None:
                reasons.append(f"region `{region}`: none of its servers serves")
                continue
            try:
                connection = await open_connection(endpoint, region)
            except NotReachableError as error:
                reasons.append(error.message)
                hint = hint if self.lab is not None else error.hint or hint
                continue
            try:
                if region in self.endpoints:
                    require_cluster(connection, {self.clusters[server] for server in self.list_in_region(region)})
            except VstreamError:
                await connection.close()
                raise
            return connection
        raise NotReachableError("no region can be reached: " + "; ".join(reasons), hint=hint)

    def _living_endpoint(self, region: str) -> Endpoint:
        """The endpoint of *region* without servers that are known to be lost: a paused one would keep us waiting."""
        if self.lab is None:
            return self.endpoints[region]
        serving = [self.address(server) for server in self.list_in_region(region) if self.may_answer(server)]
        addresses = [address for address in serving if not (address.is_stretch or address.is_hub)]
        urls = tuple(address.client_url for address in addresses)
        return replace(self.endpoints[region], urls=urls)

    def require_lab(self) -> tuple[LabDirectory, LabRecord]:
        """The lab's directory and record. Raises LabError if this is not a lab."""
        if self.lab is None:
            raise LabError(
                "these servers were not started by vstream, so it does not touch their processes",
                hint="a lab's servers can be killed and paused (`vstream lab up`); "
                "elsewhere there are `chaos step-down` and `chaos step-down-meta`",
            )
        return self.lab


def load_and_trust_lab(name: str) -> TargetServers:
    """The lab *name*, running or not; its authority is trusted from now on. Raises LabError if there is none."""
    directory, record = require_recorded_lab(name)
    trust_monitors(record.servers)
    return TargetServers(
        servers={address.server.name: address.region for address in record.servers},
        clusters={address.server.name: address.cluster_name for address in record.servers},
        endpoints=list_endpoints(name),
        system=find_system_endpoint(name),
        lab=(directory, record),
        hubs={address.region: address.server.name for address in record.servers if address.is_hub},
    )


def load_and_trust_lab_of(topology: Topology, name: str) -> TargetServers:
    """The lab *name*, which must belong to *topology*. Raises LabError if it does not."""
    target = load_and_trust_lab(name)
    expected = {seat.server.name: seat.region for seat in topology.all_seats}
    if expected != dict(target.servers):
        raise LabError(
            f"lab `{name}` runs other servers than topology `{topology.name}` has",
            hint="`--topology FILE` names the topology that the lab was started from",
        )
    return target


def make_api_target(topology: Topology, endpoints: Mapping[str, Endpoint], system: Endpoint | None) -> TargetServers:
    """Servers reached through `connect`: only their API can be used."""
    return TargetServers(
        servers={seat.server.name: seat.region for seat in topology.all_seats},
        clusters={seat.server.name: seat.cluster for seat in topology.all_seats},
        endpoints=endpoints,
        system=system,
        lab=None,
        hubs={seat.region: seat.server.name for seat in topology.all_seats if seat.is_hub},
    )


def make_target(topology: Topology, servers: Servers, system_context: str | None = None) -> TargetServers:
    """What may be done to *servers*: everything in a lab, which must belong to *topology*, elsewhere what their API can do."""
    return (
        make_changing_target(topology, servers, system_context)
        if servers.lab is None
        else load_and_trust_lab_of(topology, servers.lab)
    )


def make_changing_target(topology: Topology, servers: Servers, system_context: str | None = None) -> TargetServers:
    """The same while *servers* become those of *topology*: a lab may have others yet."""
    if servers.lab is not None:
        return load_and_trust_lab(servers.lab)
    logins = (endpoint.system for endpoint in servers.endpoints.values() if endpoint.system)
    system = next(logins, None) if system_context is None else Endpoint(context=system_context)
    return make_api_target(topology, servers.endpoints, system)
