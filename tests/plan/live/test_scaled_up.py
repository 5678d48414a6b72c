"""A stream with one replica gets more, and its server is slow: new replicas may lack all that was there before."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.command import vstream
from tests.support.labs import pids
from vstream.errors import VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, connect
from vstream.lab.status import list_addresses, list_endpoints
from vstream.servers.leaders import find_meta_leader
from vstream.topology.model import Endpoint
from vstream.topology.server_address import ServerAddress

pytestmark = pytest.mark.lab

NAMES = ("foo", "bar", "baz", "qux")
"""Some of them are not on the meta group's leader, which must go on."""
HELD = 300
_SMALLEST_PIPE = 4096


def write_topology(file: Path, scaled: str | None = None) -> None:
    streams = "".join(
        f"  {name}: {{subjects: [{name}.>], replicas: {3 if name == scaled else 1}, write: {{max_age: unlimited}}}}\n"
        for name in NAMES
    )
    file.write_text(
        f'version: 1\nname: slow\nserver_version: "2.12"\nregions: {{west: {{servers: 3}}}}\nstreams:\n{streams}'
    )


@contextmanager
def blocked_log(log: Path, pid: int) -> Iterator[None]:
    """The server's log is a pipe that is full: who logs waits."""
    log.rename(log.with_suffix(".former"))
    os.mkfifo(log)
    pipe = os.open(log, os.O_RDWR)
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _SMALLEST_PIPE)
    os.kill(pid, signal.SIGUSR1)  # it opens its log again, and says so there
    assert b"re-opened" in os.read(pipe, _SMALLEST_PIPE)
    os.set_blocking(pipe, False)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"\n")
    try:
        yield
    finally:
        log.unlink()
        os.kill(pid, signal.SIGUSR1)
        while not log.exists():
            with suppress(BlockingIOError):
                os.read(pipe, _SMALLEST_PIPE)
        os.close(pipe)


async def find_late(addresses: Sequence[ServerAddress], stream: str) -> list[str]:
    """The servers on which *stream* begins with what came last."""
    firsts = [await monitoring.list_first_sequences(address.monitor_url, 5) for address in addresses]
    return [
        address.server.name
        for address, listed in zip(addresses, firsts, strict=True)
        if any(name == stream and first > HELD for (name, _), first in listed.items())
    ]


class Publisher:
    """Publishes one message after the other, and keeps what was acknowledged; whoever is refused tries again."""

    def __init__(self, connection: Connection, subject: str) -> None:
        self._connection = connection
        self._subject = subject
        self.acknowledged = 0
        self.sent = 0

    async def publish(self) -> None:
        self.sent += 1
        with suppress(VstreamError):
            answer = await self._connection.request_json(self._subject, timeout=1)
            self.acknowledged += "seq" in answer


@pytest.mark.parametrize("version", ["2.12.8"])
async def test_new_replicas_get_what_was_there_before_although_clients_publish(
    version: str, state: Path, tmp_path: Path
) -> None:
    """Its server cannot go on while the new ones begin: what came into the stream then would be all that these get."""
    file = tmp_path / "slow.yaml"
    write_topology(file)
    for arguments in (("lab", "up", file, "--server-version", version), ("apply", file, "--yes")):
        ran = await asyncio.to_thread(vstream, *arguments)
        assert ran.code == 0, ran.err
    addresses, west = list_addresses("slow"), list_endpoints("slow")["west"]
    meta_leader = await find_meta_leader(west.monitor)
    async with connect(west, "west") as connection:
        admin = JetStreamAdmin(connection)
        leaders = {name: (await admin.info(f"{name}-write-west"))["cluster"]["leader"] for name in NAMES}
        name = next(name for name in NAMES if leaders[name] != meta_leader)
        stream, leader = f"{name}-write-west", leaders[name]
    followers = [address for address in addresses if address.server.name != leader]
    meta = next(address for address in followers if address.server.name == meta_leader)
    slow = next(address for address in addresses if address.server.name == leader)
    pid = pids("slow")[leader]
    assert pid is not None
    assert slow.log_file is not None
    async with connect(Endpoint(urls=(f"nats://127.0.0.1:{meta.client}",)), "west") as connection:
        admin, publisher = JetStreamAdmin(connection), Publisher(connection, f"_vs.{name}.west.{name}.x")
        while publisher.acknowledged < HELD:
            await publisher.publish()
        write_topology(file, name)
        with blocked_log(Path(slow.log_file), pid):
            applying = asyncio.create_task(asyncio.to_thread(vstream, "apply", file, "--yes"))
            async with asyncio.timeout(60):
                while len((await admin.info(stream))["cluster"].get("replicas") or ()) < 2:
                    await publisher.publish()
            for _ in range(20):
                await publisher.publish()
        applied = await applying
        assert applied.code == 0, applied.out + applied.err
        assert publisher.acknowledged < publisher.sent
        assert (await admin.info(stream))["state"]["messages"] >= publisher.acknowledged
        held = publisher.acknowledged
        await publisher.publish()
        assert publisher.acknowledged == held + 1
    assert not await find_late(addresses, stream)
    await asyncio.to_thread(vstream, "lab", "down", "slow", "--purge")
