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
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
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


async def test_apply_fails_if_new_replicas_lack_what_was_there_before(state: Path, tmp_path: Path) -> None:
    file = tmp_path / "slow.yaml"
    write_topology(file)
    for arguments in (("lab", "up", file, "--server-version", "2.12.8"), ("apply", file, "--yes")):
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
        for number in range(HELD):
            await connection.request(f"_vs.{name}.west.{name}.{number}", b"", timeout=30)
        write_topology(file, name)
        with blocked_log(Path(slow.log_file), pid):
            applying = asyncio.create_task(asyncio.to_thread(vstream, "apply", file, "--yes"))
            async with asyncio.timeout(60):
                while len(await find_late(followers, stream)) < len(followers):
                    await connection.client.publish(f"_vs.{name}.west.{name}.more", b"")
                    await asyncio.sleep(0.01)
        applied = await applying
        assert (applied.code, "it lacks messages" in applied.err) == (3, True), applied.out + applied.err
        assert f"`{stream}`: the replica on `" in applied.err
    # The leader still has everything, and gives it to new replicas.
    for scaled in (None, name):
        write_topology(file, scaled)
        applied = await asyncio.to_thread(vstream, "apply", file, "--yes")
        assert applied.code == 0, applied.out + applied.err
    assert not await find_late(addresses, stream)
    await asyncio.to_thread(vstream, "lab", "down", "slow", "--purge")
