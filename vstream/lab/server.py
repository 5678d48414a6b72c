"""The nats-servers of a lab: start, signal, stop, reload. Only processes that are provably ours are signalled."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from vstream.errors import LabError, NotReachableError
from vstream.jetstream import monitoring
from vstream.lab import processes, server_records
from vstream.lab.binaries import Program
from vstream.lab.links.proxy_process import PortTakenError, ProxyProcess
from vstream.lab.server_records import ServerRecord
from vstream.lab.state import LabDirectory
from vstream.value_class import value_class

GRACE = 10.0
"""Seconds that a server has after SIGTERM. An idle one needs 20 ms."""
_CHECK_TIMEOUT = 30.0
_SPAWN_TIMEOUT = 5.0
"""Seconds that a spawned process has to become the server. It takes milliseconds."""
_POLL_SECONDS = 0.01
_MAX_QUOTED_LINES = 5
_BLOCK_BYTES = 65536
_LINE_BYTES = 512
"""Bytes; most log lines are shorter."""
_PANIC = re.compile(r"panic:|fatal error:|\[FTL\]|DATA RACE|SIGSEGV")
_MAX_PANIC_LINES = 20
_MAX_PANIC_LENGTH = 500


@dataclass(frozen=True, slots=True)
class LogMark:
    """The lengths of the logs at one moment."""

    log: int
    err: int


@dataclass(frozen=True, slots=True)
class NatsServer:
    """One server of a lab, running or not."""

    directory: LabDirectory
    name: str

    @property
    def config(self) -> Path:
        """Its configuration file."""
        return self.directory.config(self.name)

    @property
    def log_file(self) -> Path:
        """Its log."""
        return self.directory.log / f"{self.name}.log"

    @property
    def err_file(self) -> Path:
        """Its output before it has a log, and in a panic."""
        return self.directory.log / f"{self.name}.err"

    def process(self) -> psutil.Process | None:
        """Its process; None if it does not run."""
        return server_records.process_of(self.directory, self.name)

    def is_running(self) -> bool:
        """Whether its process exists and is ours."""
        return self.process() is not None

    def start(self, binary: Path, version: str) -> None:
        """
        Spawn it in a new session: it outlives this process and its terminal.

        It may not be ready yet, or may die. Raises LabError if *binary* cannot be run.
        """
        argv = server_records.server_arguments(binary.absolute(), self.config)
        intent = ServerRecord(
            server=self.name, state=server_records.STARTING, argv=argv, config=str(self.config), version=version
        )
        server_records.write(self.directory, intent)
        self.directory.recover_store(self.name)
        try:
            pid = processes.start_process(argv, log=self.err_file, cwd=self.directory.path)
        except OSError as error:
            server_records.forget(self.directory, self.name)
            raise LabError(f"server `{self.name}` cannot be started: {error}") from error
        with suppress(psutil.NoSuchProcess):
            started = psutil.Process(pid).create_time()
            server_records.write(
                self.directory,
                ServerRecord(
                    server=self.name,
                    state=server_records.RUNNING,
                    argv=argv,
                    config=str(self.config),
                    version=version,
                    pid=pid,
                    create_time=started,
                ),
            )

    def signal(self, number: signal.Signals) -> bool:
        """Send signal *number*; False if the server does not run."""
        process = self.process()
        if process is None:
            return False
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)  # psutil checks once more that the process id was not given to another
            return True
        return False

    async def stop(self, *, grace: float = GRACE) -> None:
        """Stop it; after *grace* seconds with SIGKILL. Fine if it does not run. Raises LabError if it survives."""
        await stop_servers(self.directory, (self.name,), grace=grace)

    async def reload(self, monitor: str, *, binary: Path, timeout: float) -> None:
        """
        Make it load its configuration again, and return once it has.

        Raises LabError with the server's own words if it refuses, and NotReachableError if it does not answer at
        *monitor* within *timeout* seconds. In both cases the server continues with the old configuration.
        """
        refusal = await find_config_problem(binary, self.config)
        if refusal is not None:
            raise LabError(f"server `{self.name}` would refuse its configuration: {refusal}")
        before = (await monitoring.read_varz(monitor)).config_load_time
        mark = self.mark_log()
        if not self.signal(signal.SIGHUP):
            raise LabError(f"server `{self.name}` does not run", hint="`vstream lab up` starts it")
        deadline = time.monotonic() + timeout
        while (await monitoring.read_varz(monitor)).config_load_time == before:
            refused = [line for line in self.read_lines_since(mark) if "Failed to reload" in line]
            if refused:
                raise LabError(f"server `{self.name}` refused to reload: {refused[-1]}")
            if time.monotonic() > deadline:
                raise NotReachableError(f"server `{self.name}` did not reload within {timeout:g} s")
            await asyncio.sleep(_POLL_SECONDS)

    def mark_log(self) -> LogMark:
        """The present end of the logs."""
        return LogMark(_get_size(self.log_file), _get_size(self.err_file))

    def read_lines_since(self, mark: LogMark) -> list[str]:
        """What the server has written since *mark*: its log, then its other output."""
        return _read_lines_from(self.log_file, mark.log) + _read_lines_from(self.err_file, mark.err)

    def read_last_lines(self, count: int) -> tuple[str, ...]:
        """The last *count* lines of its log and its other output; the newer file comes last."""
        files = (path for path in (self.err_file, self.log_file) if path.exists())
        written = sorted(files, key=lambda path: path.stat().st_mtime_ns)
        window = max(_BLOCK_BYTES, count * _LINE_BYTES)
        lines = [line for path in written for line in _read_lines_from(path, max(0, _get_size(path) - window))[-count:]]
        return tuple(lines[-count:]) if count > 0 else ()

    def copy_logs(self, directory: Path) -> tuple[str, ...]:
        """Copy its log and its other output into *directory*. Returns the first lines of a panic or a fatal error."""
        panics: list[str] = []
        for path in (self.log_file, self.err_file):
            if _get_size(path):
                copy = directory / path.name
                shutil.copyfile(path, copy)
                panics += _list_panics(copy)
        return tuple(panics[:_MAX_PANIC_LINES])


def _list_panics(log: Path) -> Iterator[str]:
    with log.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if _PANIC.search(line):
                yield line.strip()[:_MAX_PANIC_LENGTH]


async def find_config_problem(binary: Path, config: Path) -> str | None:
    """What `nats-server -t` objects to in *config*; None if it accepts the file."""
    try:
        checker = await asyncio.create_subprocess_exec(
            binary,
            "-t",
            "-c",
            config,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return f"`{binary}` cannot be run: {error}"
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT):
            _, output = await checker.communicate()
    except TimeoutError:
        return f"no answer from `nats-server -t` within {_CHECK_TIMEOUT:g} s"
    finally:
        if checker.returncode is None:
            checker.kill()
            await checker.wait()
    if checker.returncode == 0:
        return None
    return output.decode(errors="replace").strip().removeprefix("nats-server: ") or f"exit code {checker.returncode}"


@value_class
class SpawnedServers:
    """Servers that were spawned, each with the end of its logs before; and the proxy of their links, if they need one."""

    marks: Mapping[NatsServer, LogMark] = field(default_factory=dict)
    proxy: ProxyProcess | None = None

    def join(self, other: SpawnedServers) -> SpawnedServers:
        """These and those of *other*."""
        return replace(self, marks={**self.marks, **other.marks})

    def require_running(self) -> None:
        """Raises LabError, with its last words, if one of them has died since."""
        for server, mark in self.marks.items():
            if not server.is_running():
                raise _explain_death(server, server.read_lines_since(mark))
        if self.proxy is not None and self.proxy.process() is None:
            raise self.proxy.explain_death()


def start_servers(
    directory: LabDirectory, names: Iterable[str], programs: Mapping[str, Program], proxy: ProxyProcess | None = None
) -> SpawnedServers:
    """Start the servers *names*, each with its own of *programs*; *proxy* makes their links."""
    servers = [NatsServer(directory, name) for name in names]
    marks = {server: server.mark_log() for server in servers}
    for server in servers:
        program = programs[server.name]
        server.start(program.binary, program.version)
    return SpawnedServers(marks=marks, proxy=proxy)


def _explain_death(server: NatsServer, log: Sequence[str]) -> LabError:
    kind = PortTakenError if any("address already in use" in line for line in log) else LabError
    quoted = "\n".join(f"  {line}" for line in log[-_MAX_QUOTED_LINES:]) or "  (it wrote nothing)"
    return kind(
        f"server `{server.name}` died while it was starting; its last words:\n{quoted}",
        hint=f"its whole log is `{server.log_file}`",
    )


async def stop_servers(directory: LabDirectory, servers: Iterable[str] | None = None, *, grace: float = GRACE) -> None:
    """
    Stop *servers*, or all of the lab, at the same time, and forget their records.

    They are found in the process table, so records need not be right. A server that ignores SIGTERM for *grace* seconds
    is killed. Raises LabError if one survives.
    """
    deadline = time.monotonic() + _SPAWN_TIMEOUT
    while server_records.may_be_spawning(directory) and time.monotonic() < deadline:
        await asyncio.sleep(_POLL_SECONDS)
    running = server_records.scan_processes(directory)
    chosen = sorted({*running, *server_records.list_recorded_servers(directory)} if servers is None else servers)
    targets = [process for name in chosen for process in running.get(name, ())]
    if immortal := await processes.terminate(targets, grace=grace):
        pids = ", ".join(str(process.pid) for process in immortal)
        raise LabError(f"servers of lab `{directory.name}` cannot be killed: process {pids}")
    for name in chosen:
        server_records.forget(directory, name)


def _get_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _read_lines_from(path: Path, offset: int) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read().decode(errors="replace").splitlines()
    except FileNotFoundError:
        return []
