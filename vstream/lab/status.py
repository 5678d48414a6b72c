"""What can be known about labs without changing them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import psutil

from vstream.errors import LabError, UnknownNameError
from vstream.formatting import quote_names
from vstream.lab import keys, passwords, server_records
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import Backend
from vstream.lab.server import NatsServer
from vstream.lab.state import LabDirectory, LabRecord, lab_directory, list_lab_directories
from vstream.topology.accounts import APP_USER, SYSTEM_USER, VSTREAM_USER, inbox_of, regional_user
from vstream.topology.model import CLIENT_INBOX, Endpoint
from vstream.topology.server_address import ServerAddress
from vstream.value_class import value_class


class ServerState(Enum):
    """Whether a server runs."""

    RUNNING = "running"
    STOPPED = "stopped"
    """It is not meant to run."""
    CRASHED = "crashed"
    """It was started and not stopped, and does not run."""


@value_class
class ServerStatus:
    """One server. *pid* and *uptime* are None unless it runs."""

    name: str
    region: str
    state: ServerState
    address: ServerAddress
    version: str
    pid: int | None
    uptime: timedelta | None


@value_class
class ProxyStatus:
    """The link proxy. *pid* is None unless it runs."""

    backend: Backend
    state: ServerState
    pid: int | None
    overlays: tuple[str, ...]
    """Overlays on the links: open faults."""


@value_class
class LabStatus:
    """One lab. *topology* is the name of the topology that it was started from."""

    name: str
    topology: str
    directory: Path
    servers: tuple[ServerStatus, ...]
    links: ProxyStatus | None
    """None if servers of different regions dial each other directly."""

    @property
    def running(self) -> int:
        """How many servers run."""
        return sum(server.state is ServerState.RUNNING for server in self.servers)


def require_recorded_lab(name: str) -> tuple[LabDirectory, LabRecord]:
    """The directory and the record of lab *name*. Raises LabError if there is no such lab."""
    directory = lab_directory(name)
    record = directory.read()
    if record is None:
        labs = quote_names(lab.name for lab in list_lab_directories())
        raise LabError(
            f"there is no lab `{name}`",
            hint=f"labs of this machine: {labs}" if labs else "`vstream lab up TOPOLOGY` starts one",
        )
    return directory, record


def read_lab_status(name: str) -> LabStatus:
    """The servers of lab *name*, in the order of its topology. Raises LabError if there is no such lab."""
    directory, record = require_recorded_lab(name)
    running = server_records.scan_processes(directory)
    statuses = []
    for address in record.servers:
        process = next(iter(running.get(address.server.name, ())), None)
        statuses.append(_describe_server(directory, record, address, process))
    return LabStatus(
        name=name,
        topology=record.topology,
        directory=directory.path,
        servers=tuple(statuses),
        links=_describe_proxy(directory),
    )


def is_running(name: str) -> bool:
    """Whether any server of lab *name* runs. Raises LabError if its record cannot be parsed."""
    directory = lab_directory(name)
    return directory.read() is not None and bool(server_records.scan_processes(directory))


def list_lab_names() -> tuple[str, ...]:
    """The names of all labs of this user, even if their record cannot be parsed."""
    return tuple(directory.name for directory in list_lab_directories())


def list_labs() -> tuple[LabStatus, ...]:
    """All labs of this user, by name. Raises LabError if a record cannot be parsed."""
    # One that was purged since its directory was seen is no lab any more.
    return tuple(read_lab_status(lab.name) for lab in list_lab_directories() if lab.read() is not None)


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
    return address.region == region and not (address.is_stretch or address.is_hub)


def read_log_tail(name: str, server: str, lines: int) -> tuple[str, ...]:
    """The last *lines* lines that *server* of lab *name* has written. Raises UnknownNameError if there is no such server."""
    directory, record = require_recorded_lab(name)
    servers = [address.server.name for address in record.servers]
    if server not in servers:
        raise UnknownNameError(f"lab `{name}` has no server `{server}`", hint=f"its servers: {', '.join(servers)}")
    return NatsServer(directory, server).read_last_lines(lines)


def _describe_server(
    directory: LabDirectory, record: LabRecord, address: ServerAddress, process: psutil.Process | None
) -> ServerStatus:
    name = address.server.name
    uptime = _measure_uptime(process)
    started = server_records.read(directory, name)
    if process is not None and uptime is not None:
        state, pid = ServerState.RUNNING, process.pid
    else:
        state, pid = (ServerState.STOPPED if started is None else ServerState.CRASHED), None
    return ServerStatus(
        name=name,
        region=address.region,
        state=state,
        address=address,
        version=started.version if started else record.programs[name].version,
        pid=pid,
        uptime=uptime,
    )


def _describe_proxy(directory: LabDirectory) -> ProxyStatus | None:
    proxy = ProxyProcess(directory)
    links = proxy.read_orders()
    if links is None or links.backend is Backend.NONE:
        return None
    process = proxy.process()
    if process is not None:
        state = ServerState.RUNNING
    else:
        state = ServerState.CRASHED if proxy.is_wanted else ServerState.STOPPED
    return ProxyStatus(
        backend=links.backend,
        state=state,
        pid=process.pid if process is not None else None,
        overlays=tuple(links.overlays),
    )


def _measure_uptime(process: psutil.Process | None) -> timedelta | None:
    """How long *process* has been running; None if it has just ended."""
    try:
        return None if process is None else timedelta(seconds=max(0.0, time.time() - process.create_time()))
    except psutil.NoSuchProcess:
        return None
