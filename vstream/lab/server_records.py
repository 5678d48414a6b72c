"""
Which process is which server of a lab.

A record is written before its server is spawned and completed afterwards. A
process is ours if its record agrees (process id, start time, arguments), or if
it was started with exactly the arguments that only we use, `PROGRAM -c
STATE/labs/NAME/conf/servers/SERVER.conf`: that finds it even where vstream was
killed before it could complete the record.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from vstream.files import write_private
from vstream.lab.processes import read_arguments, reap
from vstream.lab.state import LabDirectory
from vstream.value_class import value_class

STARTING = "starting"
RUNNING = "running"
_SUFFIX = ".conf"
_LOG_SUFFIXES = (".log", ".err")


@value_class
class ServerRecord:
    """A server that is meant to run. It has a process id and a start time once it was spawned."""

    server: str
    state: str
    argv: tuple[str, ...]
    config: str
    version: str
    pid: int | None = None
    create_time: float | None = None


def server_arguments(binary: Path, config: Path) -> tuple[str, ...]:
    """The command line of a server: its identity in the process table."""
    return (str(binary), "-c", str(config))


def write(directory: LabDirectory, record: ServerRecord) -> None:
    """Store *record* durably: it survives a crash of this process or machine."""
    write_private(_path(directory, record.server), json.dumps(asdict(record), indent=2) + "\n")


def read(directory: LabDirectory, server: str) -> ServerRecord | None:
    """The record of *server*; None if it is missing or cannot be parsed."""
    try:
        document = json.loads(_path(directory, server).read_text(encoding="utf-8"))
        return ServerRecord(**{**document, "argv": tuple(document["argv"])})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def list_recorded_servers(directory: LabDirectory) -> tuple[str, ...]:
    """The names of all servers that are meant to run."""
    return tuple(sorted(path.stem for path in directory.run.glob("*.json")))


def forget(directory: LabDirectory, server: str) -> None:
    """Record that the server is no longer meant to run."""
    _path(directory, server).unlink(missing_ok=True)


def process_of(directory: LabDirectory, server: str) -> psutil.Process | None:
    """The running process of *server*, by its record, otherwise by its arguments."""
    return _find_recorded_process(directory, server) or next(iter(scan_processes(directory).get(server, ())), None)


def scan_processes(directory: LabDirectory) -> Mapping[str, Sequence[psutil.Process]]:
    """All running servers of the lab by name, from the process table alone."""
    servers = f"{directory.conf / 'servers'}{os.sep}"
    processes: dict[str, list[psutil.Process]] = defaultdict(list)
    for process in psutil.process_iter():
        match read_arguments(process):
            case [_, "-c", config] if config.startswith(servers) and config.endswith(_SUFFIX):
                processes[config.removeprefix(servers).removesuffix(_SUFFIX)].append(process)
    return processes


def may_be_spawning(directory: LabDirectory) -> bool:
    """
    Whether a process may be about to become a server: its parent was killed before it had its own arguments.

    Between fork and exec, only its working directory identifies it. A user's shell in that directory looks the same.
    """
    records = (read(directory, server) for server in list_recorded_servers(directory))
    if not any(record is not None and record.pid is None for record in records):
        return False
    return any(_is_nameless_in(directory.path, process) for process in psutil.process_iter())


def _is_nameless_in(path: Path, process: psutil.Process) -> bool:
    try:
        if process.cwd() != str(path):
            return False
    except psutil.Error:
        return False
    return not any(argument.startswith(str(path)) for argument in read_arguments(process))


def _find_recorded_process(directory: LabDirectory, server: str) -> psutil.Process | None:
    record = read(directory, server)
    if record is None or record.pid is None:
        return None
    try:
        process = psutil.Process(record.pid)
        if process.create_time() != record.create_time:
            return None
        if process.status() == psutil.STATUS_ZOMBIE:
            reap(process)
            return None
    except psutil.Error:
        return None
    return process if str(directory.config(server)) in read_arguments(process) else None


def _path(directory: LabDirectory, server: str) -> Path:
    return directory.run / f"{server}.json"


@dataclass(frozen=True, slots=True)
class OwnServers:
    """
    The servers of the lab whose logs are in *logs*. All others are strangers.

    Names and ports say nothing: another lab has the same names, and may have got the
    ports. A server takes a new id each time it starts, and writes it into its
    log before it listens.
    """

    logs: Path

    def includes(self, server: str, server_id: str) -> bool:
        """Whether the lab started *server* with the id *server_id*; both as in a server's INFO."""
        if not server_id or server != Path(server).name:
            return False
        pattern = re.compile(rb"\bID: +" + re.escape(server_id.encode()) + rb"\s")
        return any(pattern.search(_read_log(self.logs / f"{server}{suffix}")) for suffix in _LOG_SUFFIXES)


def _read_log(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the lab may have been removed
        return b""
