"""How commands and clients reach the servers of a lab: their addresses, and logins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vstream.lab import keys, passwords
from vstream.lab.state import lab_directory
from vstream.lab.status import require_recorded_lab
from vstream.topology.accounts import APP_USER, SYSTEM_USER, VSTREAM_USER, inbox_of, regional_user
from vstream.topology.model import CLIENT_INBOX, Endpoint
from vstream.topology.server_address import ServerAddress


def list_addresses(name: str) -> tuple[ServerAddress, ...]:
    """The server addresses of lab *name*, for rendering its bundle. Raises LabError if there is no such lab."""
    return require_recorded_lab(name)[1].servers


def list_endpoints(name: str, user: str = VSTREAM_USER) -> Mapping[str, Endpoint]:
    """
    How to reach each region of lab *name*, running or not. Raises LabError if there is no such lab.

    Clients connect to the region's own cluster. Loaded mappings are read from its stretch server too; its hub has none.
    Where the lab has users, they log in as *user*.
    """
    servers = list_addresses(name)
    by_region = {}
    for region in dict.fromkeys(address.region for address in servers):
        monitored = [address for address in servers if address.region == region and not address.is_hub]
        by_region[region] = Endpoint(
            urls=tuple(address.client_url for address in servers if _serves(address, region)),
            monitor=tuple(address.monitor_url for address in monitored),
            inbox=CLIENT_INBOX if user == APP_USER else inbox_of(user),
            **{**_find_authority(servers), **_find_login(name, user, region)},
        )
    return by_region


def _find_authority(servers: Sequence[ServerAddress]) -> dict[str, Any]:
    """The field of an Endpoint with the authority that signed what *servers* show; none where they speak no TLS."""
    transport = next((address.transport for address in servers if address.transport is not None), None)
    return {} if transport is None else {"tls_ca": transport.ca_file}


def _find_login(name: str, user: str, region: str) -> dict[str, Any]:
    """The fields of an Endpoint that *user* logs in with in *region*; none where the lab has no users."""
    if password := passwords.find_login(lab_directory(name).conf, user, region):
        return {"user": password[0], "password": password[1]}
    # A user of one region is called after it; others are the same in all.
    return keys.find_login_files(name, regional_user(user, region)) or keys.find_login_files(name, user)


def list_client_endpoints(name: str) -> Mapping[str, Endpoint]:
    """Like `list_endpoints`, for applications."""
    return list_endpoints(name, APP_USER)


def find_system_endpoint(name: str, region: str | None = None) -> Endpoint:
    """
    How to reach the system account of lab *name*. The templates give every lab a user for it.

    With domains, each region has its own system account: that of *region* is used.
    """
    password = passwords.find_password(lab_directory(name).conf, SYSTEM_USER)
    servers = list_addresses(name)
    urls = tuple(server.client_url for server in servers if region is None or _serves(server, region))
    files = keys.find_login_files(name, SYSTEM_USER)
    login = files or {"user": SYSTEM_USER if password else None, "password": password}
    return Endpoint(urls=urls, **{**_find_authority(servers), **login})


def _serves(address: ServerAddress, region: str) -> bool:
    """Whether clients of *region* are sent to the server at *address*: not to a stretch member, nor to a hub."""
    return address.region == region and not (address.is_stretch or address.is_hub)
