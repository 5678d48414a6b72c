"""The values that server configurations and nats CLI contexts are rendered from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vstream.topology.accounts import LEAF_VARIABLE
from vstream.topology.bundle import HUBS_PATH, leaf_path, loaded_path
from vstream.topology.model import Region, Security, ServerOptions, Topology
from vstream.topology.server_address import ServerAddress, base_port

_BACKOFF_SINCE = (2, 12)
"""`connect_backoff` and `server_metadata` (server/opts.go)."""


def default_addresses(topology: Topology) -> tuple[ServerAddress, ...]:
    """Addresses of every server: its host with the region's ports, or a fixed layout on loopback where hosts are open."""
    clusters = {
        cluster: index for index, cluster in enumerate(dict.fromkeys((*topology.clusters, *hub_clusters(topology))))
    }
    numbers = dict.fromkeys(clusters, 0)
    gateways = {region.name: region.gateway for region in topology.regions}
    addresses = []
    for seat in topology.all_seats:
        server, ports = seat.server, seat.ports
        store = seat.jetstream.store_dir or "./data"
        base = base_port(topology, clusters[seat.cluster], numbers[seat.cluster])
        numbers[seat.cluster] += 1
        loopback = server.host is None
        addresses.append(
            ServerAddress(
                server=server,
                region=seat.region,
                cluster_name=seat.cluster,
                host=server.host or "127.0.0.1",
                client=base if loopback else ports.client,
                monitor=base + 1 if loopback else ports.monitor,
                cluster=base + 2 if loopback else ports.cluster,
                gateway=base + 3 if loopback else ports.gateway,
                store_dir=f"{store.rstrip('/')}/{server.name}",
                is_stretch=seat.is_stretch,
                is_hub=seat.is_hub,
                transport=topology.transport,
                advertised_gateway=None if seat.is_stretch else gateways[seat.region],
            )
        )
    return tuple(addresses)


def hub_clusters(topology: Topology) -> tuple[str, ...]:
    """The clusters of the hubs; each hub is alone in its own."""
    return tuple(seat.cluster for seat in topology.all_seats if seat.is_hub)


def select_supported_options(topology: Topology) -> ServerOptions:
    """The options of servers that even the oldest server of *topology* supports."""
    options = topology.server_options
    has_all = topology.server_version >= _BACKOFF_SINCE
    return options if has_all else ServerOptions(unique_tag=options.unique_tag)


def included_path(topology: Topology, address: ServerAddress) -> str:
    """The file with the accounts of the server at *address*, or the mappings in its only account."""
    return HUBS_PATH if address.is_hub else loaded_path(topology)


def find_resolver_directory(topology: Topology, address: ServerAddress) -> str | None:
    """In operator mode, where the server at *address* keeps the tokens of accounts. Hubs have one account, in their configuration."""
    is_signed = topology.security is Security.OPERATOR and not address.is_hub
    return f"{address.store_dir}/accounts" if is_signed else None


def make_leaf_view(address: ServerAddress, hub: ServerAddress | None) -> dict[str, str] | None:
    """How a storing server reaches the *hub* of its region, if there is one."""
    if hub is None or address.is_hub:
        return None
    return {"variable": LEAF_VARIABLE, "path": leaf_path(address.region), "address": hub.leaf_address}


def gateway_mesh(
    address: ServerAddress, members: Mapping[str, Sequence[ServerAddress]], hubs: Mapping[str, ServerAddress]
) -> Mapping[str, Sequence[ServerAddress]]:
    """The clusters that are joined by gateways with that of *address*, its own included: of hubs, where there are some."""
    if not hubs:
        return members if len(members) > 1 else {}
    return {hub.cluster_name: [hub] for hub in hubs.values()} if address.is_hub else {}


def list_routes(address: ServerAddress, members: Sequence[ServerAddress]) -> list[str]:
    """
    Whom *address* dials within its cluster, of *members*: the same list for all of them, as nobody dials itself.

    But through its own front a server would not know itself, so there it is left out,
    unless it is alone: a clustered JetStream does not start without a route.
    """
    if not address.route_front:
        return [member.route_url for member in members]
    urls = [member.route_url for member in members if member is not address]
    return urls or [f"nats://{address.host}:{address.cluster}"]


def list_gateways(address: ServerAddress, members: Mapping[str, Sequence[ServerAddress]]) -> list[dict[str, Any]]:
    """The clusters that the server at *address* dials, including its own, with their addresses."""
    clusters = []
    for cluster, servers in members.items():
        urls = dict.fromkeys(server.gateway_url for server in _servers_to_dial(address, servers))
        clusters.append({"name": cluster, "urls": list(urls)})
    return clusters


def _servers_to_dial(address: ServerAddress, servers: Sequence[ServerAddress]) -> Sequence[ServerAddress]:
    """
    Those of one cluster's *servers* that *address* dials: of the stretch cluster the member in its region.

    A gateway picks any of the addresses that it is given. Through a member elsewhere, each publish
    would cross to that region first, and then perhaps to the leader's in a third.
    """
    near = [server for server in servers if server.is_stretch and server.region == address.region]
    return servers if address.is_stretch else near or servers


def make_context_view(topology: Topology, region: Region, addresses: Sequence[ServerAddress]) -> dict[str, Any]:
    """The values for the nats CLI context of *region*."""
    endpoint = region.endpoint
    urls = []
    for server_address in addresses:
        if server_address.region == region.name and not (server_address.is_stretch or server_address.is_hub):
            urls.append(server_address.client_url)
    credentials: list[tuple[str, str]] = []
    if endpoint is not None:
        urls = list(endpoint.urls) or urls
        fields = {
            "creds": endpoint.creds,
            "nkey": endpoint.nkey,
            "user": endpoint.user,
            "ca": endpoint.tls_ca,
            "cert": endpoint.tls_cert,
            "key": endpoint.tls_key,
        }
        credentials = [(field, value) for field, value in fields.items() if value]
    return {
        "description": f"region {region.name} of {topology.name}",
        "url": ",".join(urls),
        "credentials": credentials,
    }
