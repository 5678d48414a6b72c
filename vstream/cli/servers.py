"""Which servers a command works on: how they are reached, and the keys and the bundle that they need."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vstream.errors import LabError, VstreamError
from vstream.health.units import list_names
from vstream.jetstream import monitoring
from vstream.jetstream.keyring import Keyring, default_directory
from vstream.lab import keys as lab_keys
from vstream.lab import lab
from vstream.lint.load_topology import render_bundle
from vstream.render import account_view
from vstream.topology.accounts import password_variable, regional_user, regional_variable
from vstream.topology.bundle import Bundle
from vstream.topology.model import Endpoint, Security, Topology
from vstream.topology.profiles import profile_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """The servers that a command works on."""

    endpoints: Mapping[str, Endpoint]
    lab: str | None
    description: str
    leaving: tuple[str, ...] = ()
    """Servers of a lab that the topology does not have."""


def find_servers(topology: Topology, lab_name: str | None) -> Servers:
    """
    The servers that are meant: the lab that was named, else what `connect` says, else the running lab of this topology.

    Raises LabError or VstreamError if there are none.
    """
    connect = {region.name: region.endpoint for region in topology.regions if region.endpoint is not None}
    if lab_name is None and connect:
        for endpoint in connect.values():
            monitoring.trust_ca(endpoint.monitor, endpoint.tls_ca)
        places = [endpoint.context or ", ".join(endpoint.urls) for endpoint in connect.values()]
        return Servers(endpoints=connect, lab=None, description="; ".join(places))
    name = lab_name or topology.name
    if lab.is_running(name):
        _check_servers(topology, name)
        seats = {seat.server.name for seat in topology.processes}
        leaving = sorted(one.server.name for one in lab.addresses(name) if one.server.name not in seats)
        return Servers(endpoints=lab.endpoints(name), lab=name, description=f"lab {name}", leaving=tuple(leaving))
    if lab_name is not None:
        raise LabError(f"lab `{name}` is not running", hint=f"`vstream lab up --lab {name}` starts it")
    raise VstreamError(
        f"no servers for topology `{topology.name}`: it has no `connect`, and no lab of it is running",
        hint="`vstream lab up` starts a lab; `connect` in the topology names real servers",
    )


def endpoints_as_user(topology: Topology, where: Servers, user: str) -> Mapping[str, Endpoint]:
    """
    How *user* of the rendered accounts reaches the regions: one that may do what is needed, and nothing else.

    In a lab, or where its password is in the variable that servers read it from too, or its key or certificate in the
    directory of the topology's keys. Otherwise, and without such accounts, as `connect` says.
    """
    if not topology.has_accounts:
        return where.endpoints
    if where.lab is not None:
        return lab.endpoints(where.lab, user)
    if topology.security is not Security.PASSWORDS:
        return _with_files(topology, where, user)
    profile = profile_of(topology)
    if profile.has_physical_names:
        return where.endpoints
    found = dict(where.endpoints)
    for region, one in where.endpoints.items():
        variable = regional_variable(user, region) if profile.has_region_accounts else password_variable(user)
        if one.user and variable in os.environ:
            found[region] = replace(one, user=profile.user_name(user, region), password=None, password_env=variable)
    return found


def _with_files(topology: Topology, where: Servers, user: str) -> Mapping[str, Endpoint]:
    """Logged in with what is in the directory of the topology's keys, where that is there."""
    ring = Keyring(default_directory(topology.name))
    called = account_view.logins(topology)
    found = dict(where.endpoints)
    for region, one in where.endpoints.items():
        name = next(login for login in (regional_user(user, region), user) if login in called)
        certificate, key = ring.certificate(name)
        fields: dict[str, Path] = {
            Security.OPERATOR: {"creds": ring.credentials(name)},
            Security.NKEYS: {"nkey": ring.seed(name)},
            Security.CERTIFICATES: {"tls_cert": certificate, "tls_key": key},
        }[topology.security]
        if all(path.is_file() for path in fields.values()):
            said: dict[str, Any] = {field: str(path) for field, path in fields.items()}
            found[region] = replace(one, **said)
    return found


def _check_servers(topology: Topology, lab_name: str) -> None:
    """The lab must have the servers that the topology has; regions that leave may still be there. Raises LabError."""
    has = {(address.region, address.server.name) for address in lab.addresses(lab_name)}
    wanted = {(seat.region, seat.server.name) for seat in topology.processes}
    staying = {region for region, _ in wanted}
    is_same = lab.status(lab_name).topology == topology.name  # else its other servers are somebody's
    if has == wanted or (is_same and {one for one in has if one[0] in staying} == wanted):
        return
    parts = (("lacks", wanted - has), ("has besides", has - wanted))
    different = " and ".join(f"{verb} {', '.join(sorted(name for _, name in some))}" for verb, some in parts if some)
    raise LabError(
        f"lab `{lab_name}` was started from other servers than topology `{topology.name}` has: it {different}",
        hint=f"`vstream lab up --lab {lab_name}` starts the servers of regions that are new; after any other change, "
        f"`vstream lab down {lab_name} --purge` comes first; another `--lab` keeps it",
    )


def find_signer(topology: Topology, lab_name: str | None) -> Keyring | None:
    """
    The keys of *topology* for the servers that are meant, None if it has none.

    Raises VstreamError if there are none.
    """
    if not topology.security.has_keys:
        return None
    if lab_name is not None:
        return lab_keys.signer(lab_name, topology)
    ring = Keyring(default_directory(topology.name))
    if missing := ring.missing(topology):
        raise VstreamError(
            f"topology `{topology.name}` needs keys that are not in {ring.directory}: {list_names(list(missing))}",
            hint="`vstream keys create` makes what is missing; $VSTREAM_KEYS names another directory",
        )
    return ring


def build_bundle(topology: Topology, where: Servers, templates: Path | None) -> Bundle:
    """The bundle of *topology* as *where* needs it: a lab's servers have addresses of their own."""
    seats = {seat.server.name for seat in topology.processes}
    addresses = None
    if where.lab is not None:
        addresses = tuple(one for one in lab.addresses(where.lab) if one.server.name in seats)
    return render_bundle(topology, addresses=addresses, templates=templates, signer=find_signer(topology, where.lab))
