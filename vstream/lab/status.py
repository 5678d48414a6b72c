"""What can be known about labs without changing them."""

from __future__ import annotations

import time
from datetime import timedelta
from enum import Enum
from pathlib import Path

import psutil

from vstream.errors import LabError, UnknownNameError
from vstream.formatting import quote_names
from vstream.lab import server_records
from vstream.lab.links.proxy_process import ProxyProcess
from vstream.lab.links.state import Backend
from vstream.lab.server import NatsServer
from vstream.lab.state import LabDirectory, LabRecord, lab_directory, list_lab_directories
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
