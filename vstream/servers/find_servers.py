"""The servers of a topology, those under its `connect` or its running lab, and how they are reached."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from vstream.credentials import require_secret_file
from vstream.errors import LabError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.keyring import Keyring, default_key_directory
from vstream.lab.endpoints import find_system_endpoint, list_addresses, list_endpoints
from vstream.lab.readiness import trust_monitors
from vstream.lab.status import is_running, read_lab_status
from vstream.render import account_view
from vstream.topology.accounts import inbox_of, password_variable, regional_user, regional_variable
from vstream.topology.model import Endpoint, Region, Security, Topology
from vstream.topology.profiles import profile_of
from vstream.value_class import value_class


@value_class
class Servers:
    """Servers that run, and how they are reached."""

    endpoints: Mapping[str, Endpoint]
    lab: str | None
    """Its name; None for servers under `connect`."""
    description: str
    leaving_servers: tuple[str, ...] = ()
    """Servers of a lab that the topology does not have."""
    lost: Mapping[str, Endpoint] = field(default_factory=dict)
    """How lost regions were reached: a change of regions asks whether they answer again, and nobody else."""

    def describe_with(self, topology: Topology) -> str:
        """What a command is about: `acme on lab acme`."""
        return f"{topology.name} on {self.description}"


def find_and_trust_servers(topology: Topology, lab_name: str | None) -> Servers:
    """What `find_servers` finds; monitoring requests of the process to these servers trust their authorities from now on."""
    servers = find_servers(topology, lab_name)
    for endpoint in (*servers.endpoints.values(), *servers.lost.values()):
        monitoring.trust_ca(endpoint.monitor, endpoint.tls_ca)
    if servers.lab is not None:
        trust_monitors(list_addresses(servers.lab))
    return servers


def find_servers(topology: Topology, lab_name: str | None) -> Servers:
    """
    The servers of *topology*: those of the lab *lab_name*, else those under `connect`, else its running lab.

    Raises LabError or VstreamError if there are none.
    """
    if lab_name is None and any(region.endpoint for region in topology.regions):
        connect = _read_connect(topology, topology.regions)
        urls = [endpoint.context or ", ".join(endpoint.urls) for endpoint in connect.values()]
        lost = _read_connect(topology, [lost.region for lost in topology.lost])
        return Servers(endpoints=connect, lab=None, description="; ".join(urls), lost=lost)
    name = lab_name or topology.name
    if is_running(name):
        _require_same_servers(topology, name)
        seats = {seat.server.name for seat in topology.all_seats}
        leaving = tuple(sorted({address.server.name for address in list_addresses(name)} - seats))
        return Servers(endpoints=list_endpoints(name), lab=name, description=f"lab {name}", leaving_servers=leaving)
    if lab_name is not None:
        raise LabError(f"lab `{name}` is not running", hint=f"`vstream lab up --lab {name}` starts it")
    raise VstreamError(
        f"no servers for topology `{topology.name}`: it has no `connect`, and no lab of it is running",
        hint="`vstream lab up` starts a lab; `connect` in the topology names real servers",
    )


def _read_connect(topology: Topology, regions: Iterable[Region]) -> dict[str, Endpoint]:
    """What `connect` says of *regions*."""
    connect = {region.name: region.endpoint for region in regions if region.endpoint is not None}
    return {region: _with_secret_files(endpoint, region, topology) for region, endpoint in connect.items()}


def _with_secret_files(endpoint: Endpoint, region: str, topology: Topology) -> Endpoint:
    """*endpoint* of *topology* with the paths of its secret files. Raises VstreamError for one that it may not name."""
    keys = default_key_directory(topology.name)
    named = {kind: getattr(endpoint, kind) for kind in ("creds", "nkey", "tls_cert", "tls_key")}
    files: dict[str, Any] = {
        kind: require_secret_file(path, f"region `{region}`", keys) for kind, path in named.items() if path
    }
    system = endpoint.system and _with_secret_files(endpoint.system, region, topology)
    return replace(endpoint, system=system, **files)


def endpoints_as_user(topology: Topology, servers: Servers, user: str) -> Mapping[str, Endpoint]:
    """
    How *user* of the rendered accounts reaches the regions: with the rights of that user, and no others.

    In a lab always. On other servers, where the user's password is in the variable that the servers read, or its key or
    certificate in the directory of the topology's keys. Otherwise as `connect` says.
    """
    if not topology.has_accounts:
        return servers.endpoints
    if servers.lab is not None:
        return list_endpoints(servers.lab, user)
    if topology.security is not Security.PASSWORDS:
        return _with_key_files(topology, servers, user)
    profile = profile_of(topology)
    if profile.has_physical_names:
        return servers.endpoints
    endpoints = dict(servers.endpoints)
    for region, endpoint in servers.endpoints.items():
        variable = regional_variable(user, region) if profile.has_region_accounts else password_variable(user)
        if endpoint.user and variable in os.environ:
            name = profile.user_name(user, region)
            endpoints[region] = replace(endpoint, user=name, password=None, password_env=variable, inbox=inbox_of(name))
    return endpoints


def find_system_endpoints(servers: Servers, regions: Sequence[str]) -> Mapping[str, Endpoint]:
    """How the system account is reached in *regions*, as far as that is known."""
    if servers.lab is not None:
        living = {address.region for address in list_addresses(servers.lab)} & {*regions}
        return {region: find_system_endpoint(servers.lab, region) for region in sorted(living)}
    logins = {region: servers.endpoints[region].system for region in regions if region in servers.endpoints}
    return {region: login for region, login in logins.items() if login is not None}


def _with_key_files(topology: Topology, servers: Servers, user: str) -> Mapping[str, Endpoint]:
    """The endpoints with the files of *user* from the directory of the topology's keys, where they exist."""
    ring = Keyring(default_key_directory(topology.name))
    logins = account_view.index_users(topology)
    endpoints = dict(servers.endpoints)
    for region, endpoint in servers.endpoints.items():
        name = next(login for login in (regional_user(user, region), user) if login in logins)
        certificate, key = ring.certificate_paths(name)
        files = {
            Security.OPERATOR: {"creds": ring.credentials_path(name)},
            Security.NKEYS: {"nkey": ring.seed_path(name)},
            Security.CERTIFICATES: {"tls_cert": certificate, "tls_key": key},
        }[topology.security]
        if not endpoint.context and all(path.is_file() for path in files.values()):
            paths: dict[str, Any] = {kind: str(path) for kind, path in files.items()}
            endpoints[region] = replace(endpoint, inbox=inbox_of(user), **paths)
    return endpoints


def _require_same_servers(topology: Topology, lab_name: str) -> None:
    """Raises LabError unless the lab has the servers of *topology*; it may also have regions that leave."""
    running = {(address.region, address.server.name) for address in list_addresses(lab_name)}
    expected = {(seat.region, seat.server.name) for seat in topology.all_seats}
    staying = {region for region, _ in expected}
    is_same_topology = read_lab_status(lab_name).topology == topology.name  # else its other servers are somebody's
    in_staying_regions = {(region, server) for region, server in running if region in staying}
    if running == expected or (is_same_topology and in_staying_regions == expected):
        return
    differences = (("lacks", expected - running), ("also has", running - expected))
    listed = [f"{verb} {', '.join(sorted(name for _, name in servers))}" for verb, servers in differences if servers]
    raise LabError(
        f"lab `{lab_name}` was started from other servers than topology `{topology.name}` has: it {' and '.join(listed)}",
        hint=f"`vstream lab up --lab {lab_name}` starts the servers of new regions; after any other change, run "
        f"`vstream lab down {lab_name} --purge` first, or choose another `--lab`",
    )
