"""One real nats-server with JetStream, which can be paused, killed and started again."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port
from vstream.errors import VstreamError
from vstream.jetstream.connection import connect
from vstream.lab.binaries import find_or_fetch
from vstream.topology.model import Endpoint

DEADLINE = 60.0
NAME = "west-1"


class SingleServer:
    """A server at a port of its own. What it stores outlives it."""

    def __init__(self, directory: Path, version: str | None = None, *, port: int | None = None, more: str = "") -> None:
        """*more* is for its configuration, beside what is given as arguments."""
        self._more = more
        self._directory = directory
        self._binary = find_or_fetch(version)
        self._port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        return self._port

    @property
    def logs(self) -> Path:
        return self._directory

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(urls=(f"nats://127.0.0.1:{self._port}",))

    async def start(self) -> None:
        self._process = self._spawn()
        await eventually(self._answers)

    def _spawn(self) -> subprocess.Popen[bytes]:
        argv = [
            str(self._binary),
            "-a",
            "127.0.0.1",
            "-p",
            str(self._port),
            "-js",
            "-n",
            NAME,
            "-sd",
            str(self._directory / "store"),
        ]
        if self._more:
            conf = self._directory / f"{NAME}.conf"
            conf.write_text(self._more)
            argv += ["-c", str(conf)]
        with (self._directory / f"{NAME}.log").open("ab") as log:
            return subprocess.Popen(argv, stdout=log, stderr=log)

    async def _answers(self) -> bool:
        try:
            await self.api("INFO")
        except VstreamError:
            return False
        return True

    async def api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async with connect(self.endpoint, "west", timeout=1) as connection:
            answer = await connection.request_json(f"$JS.API.{subject}", body)
        assert "error" not in answer, answer
        return answer

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(DEADLINE)
        self._process = None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)


@asynccontextmanager
async def running(
    directory: Path, version: str | None = None, *, port: int | None = None
) -> AsyncIterator[SingleServer]:
    """A running server, which ends here, whatever was done to it."""
    server = SingleServer(directory, version, port=port)
    await server.start()
    try:
        yield server
    finally:
        if server._process is not None:
            server.kill()


async def eventually(holds: Any, within: float = DEADLINE) -> None:
    """Wait for a fact, which may have to be asked for."""
    deadline = time.monotonic() + within
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


@contextmanager
def run_configured(conf: Path, log: Path) -> Iterator[None]:
    """A server with the configuration *conf*, ready for clients."""
    process = subprocess.Popen([str(find_or_fetch(None)), "-c", str(conf), "-l", str(log)])
    try:
        deadline = time.monotonic() + 120
        while not (log.exists() and "Server is ready" in log.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait(timeout=120)
