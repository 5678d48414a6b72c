"""Whom a server dials, and how clients reach a region: what server configurations and nats CLI contexts are rendered from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.model.artifacts import ServerAddress
    from vstream.model.topology import Region, Topology


def routes(address: ServerAddress, members: Sequence[ServerAddress]) -> list[str]:
    """
    Whom *address* dials within its cluster, of *members*: the same list for all of them, as nobody dials itself.

    But through its own front a server would not know itself, so there it is left out,
    unless it is alone: a clustered JetStream does not start without a route.
    """
    if not address.route_front:
        return [one.route_url for one in members]
    others = [one.route_url for one in members if one is not address]
    return others or [f"nats://{address.peer_host}:{address.cluster}"]


def gateways(address: ServerAddress, members: Mapping[str, Sequence[ServerAddress]]) -> list[dict[str, Any]]:
    """The clusters that the server at *address* dials, its own included, and where."""
    return [
        {"name": cluster, "urls": [one.gateway_url for one in _dialled(address, servers)]}
        for cluster, servers in members.items()
    ]


def _dialled(address: ServerAddress, servers: Sequence[ServerAddress]) -> Sequence[ServerAddress]:
    """
    Those of one cluster's *servers* that *address* shall dial: of the stretch cluster the member in its region.

    A gateway picks any of the addresses that it is given. Through a member elsewhere, each publish
    would cross to that region first, and then perhaps to the leader's in a third.
    """
    near = [one for one in servers if one.is_stretch and one.region == address.region]
    return servers if address.is_stretch else near or servers


def context(topology: Topology, region: Region, addresses: Sequence[ServerAddress]) -> dict[str, Any]:
    """What the nats CLI context of *region* is rendered from."""
    endpoint = region.endpoint
    urls = [f"nats://{one.host}:{one.client}" for one in addresses if one.region == region.name and not one.is_stretch]
    credentials: list[tuple[str, str]] = []
    if endpoint is not None:
        urls = list(endpoint.urls) or urls
        known = {
            "creds": endpoint.creds,
            "nkey": endpoint.nkey,
            "user": endpoint.user,
            "ca": endpoint.tls_ca,
            "cert": endpoint.tls_cert,
            "key": endpoint.tls_key,
        }
        credentials = [(field, value) for field, value in known.items() if value]
    return {
        "description": f"region {region.name} of {topology.name}",
        "url": ",".join(urls),
        "credentials": credentials,
    }
