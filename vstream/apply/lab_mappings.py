"""The lab's side of applying a plan: its servers load the mappings when told to."""

from __future__ import annotations

from collections.abc import Collection

from vstream.apply.port import MappingAdmin
from vstream.apply.push_accounts import account_admin
from vstream.errors import LabError
from vstream.lab import keys, lab
from vstream.lab.readiness import monitor_url
from vstream.lab.status import system_endpoint
from vstream.topology.bundle import Bundle


class LabMappings:
    """MappingAdmin for lab *name*: writes the mappings of *bundle* and reloads all servers outside *lost* regions."""

    def __init__(self, name: str, bundle: Bundle, *, lost: Collection[str] = ()) -> None:
        self._name = name
        self._bundle = bundle
        self._lost = lost

    async def load(self) -> None:
        """See MappingAdmin."""
        outcome = await lab.reload_mappings(self._name, self._bundle)
        gone = {address.server.name for address in lab.addresses(self._name) if address.region in self._lost}
        refused = {server: reason for server, reason in outcome.refused.items() if server not in gone}
        if refused:
            reasons = "; ".join(f"{server}: {reason}" for server, reason in sorted(refused.items()))
            raise LabError(f"the mappings were not loaded on every server: {reasons}")


def mapping_admin(name: str, bundle: Bundle, *, lost: Collection[str] = ()) -> MappingAdmin:
    """How the servers of lab *name*, outside *lost* regions, get *bundle*: by a reload or by a push."""
    if not bundle.claims:
        return LabMappings(name, bundle, lost=lost)
    addresses = lab.addresses(name)
    reachable = [address for address in addresses if address.region not in lost and not address.is_hub]
    regions = dict.fromkeys(address.region for address in reachable)
    return account_admin(
        bundle.claims,
        keys.keyring(name),
        system={region: system_endpoint(name, region) for region in regions},
        servers=[(address.region, address.server.name) for address in reachable],
        monitors={
            region: [monitor_url(address) for address in reachable if address.region == region] for region in regions
        },
        in_domains=any(address.is_hub for address in addresses),
    )
