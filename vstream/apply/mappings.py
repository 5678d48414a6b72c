"""How servers come to load the mappings of a plan: a lab's by a reload, others by a push of accounts or by shipped files."""

from __future__ import annotations

from collections.abc import Collection

from vstream.apply.interfaces import LeftToOthers, MappingAdmin
from vstream.apply.push_accounts import make_account_admin, with_system_login
from vstream.apply.shipping import ShippingOptions, make_shipped_mappings
from vstream.errors import LabError
from vstream.lab import keys, lifecycle
from vstream.lab.endpoints import find_system_endpoint, list_addresses
from vstream.plan.model import Plan
from vstream.plan.pipeline import PlanRequest
from vstream.servers.bundles import provide_signer
from vstream.servers.find_servers import Servers
from vstream.topology.accounts import SYSTEM_USER
from vstream.topology.bundle import Bundle
from vstream.topology.model import Security
from vstream.topology.profiles import profile_of


class LabMappings:
    """MappingAdmin for lab *name*: writes the mappings of *bundle* and reloads all servers outside *lost* regions."""

    def __init__(self, name: str, bundle: Bundle, *, lost: Collection[str] = ()) -> None:
        self._name = name
        self._bundle = bundle
        self._lost = lost

    async def ensure_loaded(self) -> None:
        """See MappingAdmin."""
        outcome = await lifecycle.reload_mappings(self._name, self._bundle)
        lost_servers = {address.server.name for address in list_addresses(self._name) if address.region in self._lost}
        refused = {server: reason for server, reason in outcome.refused.items() if server not in lost_servers}
        if refused:
            reasons = "; ".join(f"{server}: {reason}" for server, reason in sorted(refused.items()))
            raise LabError(f"the mappings were not loaded on every server: {reasons}")


def _make_lab_admin(name: str, bundle: Bundle, *, lost: Collection[str]) -> MappingAdmin:
    """How the servers of lab *name*, outside *lost* regions, get *bundle*: by a reload or by a push."""
    if not bundle.claims:
        return LabMappings(name, bundle, lost=lost)
    addresses = list_addresses(name)
    reachable = [address for address in addresses if address.region not in lost and not address.is_hub]
    regions = dict.fromkeys(address.region for address in reachable)
    return make_account_admin(
        bundle.claims,
        keys.keyring(name),
        system={region: find_system_endpoint(name, region) for region in regions},
        servers=[(address.region, address.server.name) for address in reachable],
        monitors={
            region: [address.monitor_url for address in reachable if address.region == region] for region in regions
        },
        in_domains=any(address.is_hub for address in addresses),
    )


def choose_mapping_admin(
    request: PlanRequest, plan: Plan, servers: Servers, shipping: ShippingOptions
) -> MappingAdmin | LeftToOthers:
    """How *servers* come to load what is planned. Raises VstreamError."""
    topology, lost = request.topology, request.lost
    if servers.lab is not None:
        return _make_lab_admin(servers.lab, request.bundle, lost=lost)
    ring = provide_signer(topology, None)
    if ring is None or topology.security is not Security.OPERATOR:
        return make_shipped_mappings(request, plan, shipping)
    endpoints = {region: endpoint for region, endpoint in servers.endpoints.items() if region not in lost}
    credentials = str(ring.credentials_path(SYSTEM_USER))
    return make_account_admin(
        request.bundle.claims,
        ring,
        system={region: with_system_login(endpoint, credentials) for region, endpoint in endpoints.items()},
        servers=[(seat.region, seat.server.name) for seat in topology.seats if seat.region not in lost],
        monitors={region: endpoint.monitor for region, endpoint in endpoints.items()},
        in_domains=profile_of(topology).has_domains,
    )
