"""One nats-server with JetStream, and streams in it, for tests of what reads them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import nats
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from tests.support.ports import free_port
from vstream.audit.connector.client import connect
from vstream.audit.connector.values import Access
from vstream.errors import VstreamError
from vstream.lab import binaries
from vstream.lab.ports import is_free

T = TypeVar("T")


async def _quiet(_: Exception) -> None:
    """The library logs tracebacks where nobody listens."""


@dataclass
class JetStreamServer:
    directory: Path
    version: str | None = None
    more: str = ""
    """Lines of its configuration."""
    connection: dict[str, Any] = field(default_factory=dict)
    """What a client of ours needs besides the address."""
    access: Access | None = None
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process
        return self.process.pid

    def start(self) -> None:
        if not self.port or not is_free(self.port):
            self.port = free_port()
        conf = self.directory / "server.conf"
        conf.write_text(
            f'listen: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.directory / "store"}", max_mem: 256MB, max_file: 1GB }}\n{self.more}\n'
        )
        binary = binaries.find_or_fetch(self.version) if self.version else binaries.find_or_fetch()
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen([binary, "-c", conf], stdout=log, stderr=log)
        deadline = time.monotonic() + 60
        access = self.access or Access()
        while True:
            assert self.process.poll() is None, (self.directory / "server.log").read_text()
            with suppress(VstreamError, OSError), connect(replace(access, servers=(self.url,))):
                return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, number: int = signal.SIGTERM) -> None:
        if self.process and self.process.poll() is None:
            os.kill(self.process.pid, number)
            self.process.wait(timeout=60)

    def run(self, work: Callable[[Client, JetStreamContext], Coroutine[Any, Any, T]]) -> T:
        """Do *work* with a client of its own."""

        async def main() -> T:
            client = await nats.connect(
                self.url, error_cb=_quiet, allow_reconnect=False, **self.connection, connect_timeout=30
            )
            try:
                return await work(client, client.jetstream(timeout=60))
            finally:
                await client.close()

        return asyncio.run(main())

    def api(self, name: str, body: Any = None) -> Any:
        async def ask(client: Client, _: JetStreamContext) -> Any:
            payload = json.dumps(body).encode() if body is not None else b""
            return json.loads((await client.request(f"$JS.API.{name}", payload, timeout=60)).data)

        answer = self.run(ask)
        assert "error" not in answer, answer["error"]
        return answer


def make_restricted_server(directory: Path, denied: str) -> JetStreamServer:
    """A server whose clients may not publish to *denied*."""
    permissions = f'{{publish: {{deny: "{denied}"}}}}'
    more = f"authorization: {{users: [{{user: u, password: p, permissions: {permissions}}}]}}\nno_auth_user: u"
    return JetStreamServer(directory, more=more)


def fill(
    server: JetStreamServer,
    stream: str,
    messages: list[tuple[str, bytes, dict[str, str] | None]],
    **config: Any,
) -> None:
    """Create *stream* unless it exists, and publish *messages* into it, in order."""
    subjects = [f"{stream}.>"]
    defaults = {"name": stream, "subjects": subjects, "storage": "memory", "allow_direct": True, "num_replicas": 1}

    async def work(client: Client, context: JetStreamContext) -> None:
        await client.request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps({**defaults, **config}).encode(), timeout=60)
        last = None
        for number, (subject, payload, headers) in enumerate(messages):
            last = await context.publish_async(subject, payload, headers=headers)
            if number % 1000 == 0:
                await last
        if last is not None:
            await context.publish_async_completed()

    server.run(work)
