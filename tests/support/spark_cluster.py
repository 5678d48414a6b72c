"""A standalone Spark cluster of two workers on this machine, from the PySpark package alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from tests.support.ports import free_port
from vstream.audit.spark import java
from vstream.audit.spark.session import SMALL_SETTINGS
from vstream.lab.ports import is_free


@dataclass
class Cluster:
    directory: Path
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    page: int = field(default_factory=free_port)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self.port}"

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.processes[1:]

    def begin(self) -> None:
        address = ["--host", "127.0.0.1"]
        self._launch("master.Master", *address, "--port", str(self.port), "--webui-port", str(self.page))
        for number in range(2):
            place = ["--port", str(free_port()), "--webui-port", str(free_port())]
            size = ["--cores", "1", "--memory", "1g", "--work-dir", str(self.directory / f"worker-{number}")]
            self._launch("worker.Worker", *address, *place, *size, self.master)
        deadline = time.monotonic() + 90
        while self.alive() < 2:
            assert all(process.poll() is None for process in self.processes), self.read_logs()
            assert time.monotonic() < deadline, self.read_logs()
            time.sleep(0.1)

    def _launch(self, name: str, *arguments: str) -> None:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        command = [str(program), f"org.apache.spark.deploy.{name}", *arguments]
        with (self.directory / f"{name}-{len(self.processes)}.log").open("wb") as log:
            self.processes.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))

    def alive(self) -> int:
        """How many workers the master knows to be there."""
        with (
            suppress(OSError, ValueError),
            urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=10) as page,
        ):
            return int(json.load(page)["aliveworkers"])
        return 0

    def kill_worker_of(self, port: int) -> int | None:
        """Kill the worker, all of it, one of whose readers is connected from *port*; returns its process."""
        for worker in self.workers:
            if worker.poll() is not None:
                continue
            family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
            if any(_is_connected(process, port) for process in family):
                for process in family:
                    with suppress(psutil.Error):
                        process.kill()
                worker.wait(timeout=20)
                return worker.pid
        return None

    def read_logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-1500:] for path in self.directory.glob("*.log"))

    def end(self) -> None:
        for process in reversed(self.processes):
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End *process* and all that it has started."""
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            with suppress(psutil.Error):
                child.kill()
        process.kill()
        process.wait(timeout=20)


def _is_connected(process: psutil.Process, port: int) -> bool:
    with suppress(psutil.Error):
        return any(
            net_connection.laddr.port == port for net_connection in process.net_connections() if net_connection.laddr
        )
    return False


def bare_python(directory: Path) -> Path:
    """A Python that has what is installed, and not this checkout: what is there editable is left out."""
    program = directory / "bare-python"
    packages = sysconfig.get_path("purelib")
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    program.chmod(0o755)
    return program


def _environment(directory: Path) -> dict[str, str]:
    """What Spark's own programs are started with; this process's environment stays as it is."""
    before = dict(os.environ)
    java.set_java_home(directory)
    environment = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "PYSPARK_PYTHON": str(bare_python(directory)),
    }
    os.environ.clear()
    os.environ.update(before)
    return environment


@contextmanager
def cluster(directory: Path) -> Iterator[Cluster]:
    running = Cluster(directory, _environment(directory))
    try:
        running.begin()
        yield running
    finally:
        running.end()


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A Spark Connect server whose executors have no vstream; what `--remote` has to be."""
    port = free_port()
    settings = {
        **SMALL_SETTINGS,
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(directory),
        "spark.ui.enabled": "false",
    }
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    command += [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    log = directory / "connect.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            command,
            # Spark takes this server for one of its daemons, and sizes it like them.
            env=_environment(directory) | {"SPARK_DAEMON_MEMORY": "1g"},
            cwd=directory,
            stdout=output,
            stderr=output,
        )
    try:
        deadline = time.monotonic() + 120
        while is_free(port):
            assert server.poll() is None, log.read_text(errors="replace")[-1500:]
            assert time.monotonic() < deadline, log.read_text(errors="replace")[-1500:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        _end(server)
