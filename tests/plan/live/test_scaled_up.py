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

from tests.support.command import Ran, vstream
from tests.support.labs import pids
from tests.support.meta_leader import lead_meta_group_from
from vstream.errors import VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import Connection, connect
from vstream.lab.endpoints import list_addresses, list_endpoints
from vstream.topology.model import Endpoint
from vstream.topology.server_address import ServerAddress

pytestmark = pytest.mark.lab

NAMES = tuple(f"s{number}" for number in range(6))
"""Some of their write streams are on other servers than others, and than their read streams."""
HELD = 300
_SMALLEST_PIPE = 4096


def write_topology(file: Path, *, write: str | None = None, read: str | None = None) -> None:
    """One of the write streams, and one of the read streams, may have three replicas."""
    counts = {name: (3 if name == write else 1, 3 if name == read else 1) for name in NAMES}
    streams = "".join(
        f"  {name}: {{subjects: [{name}.>], write: {{max_age: unlimited, replicas: {of_write}}}, read: {{replicas: {of_read}}}}}\n"
        for name, (of_write, of_read) in counts.items()
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


async def find_following(addresses: Sequence[ServerAddress], stream: str, leader: str) -> list[str]:
    """The servers on which a replica of *stream* follows *leader*, which cannot be asked itself."""
    following = []
    for address in addresses:
        answer = await monitoring.get_large(address.monitor_url, "/jsz?accounts=true&streams=true", 5)
        replicas = [replica for account in answer["account_details"] for replica in account.get("stream_detail") or ()]
        if any(replica["name"] == stream and replica["cluster"].get("leader") == leader for replica in replicas):
            following.append(address.server.name)
    return following


def list_others(server: str) -> list[ServerAddress]:
    return [address for address in list_addresses("slow") if address.server.name != server]


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


async def apply(file: Path) -> Ran:
    return await asyncio.to_thread(vstream, "apply", file, "--yes", "--allow-many")


async def test_new_replicas_get_what_was_there_before_or_apply_fails(state: Path, tmp_path: Path) -> None:
    """Their stream's server cannot go on while they begin: what comes into the stream then may be all that they get."""
    file = tmp_path / "slow.yaml"
    write_topology(file)
    ran = await asyncio.to_thread(vstream, "lab", "up", file, "--server-version", "2.12.8")
    assert ran.code == 0, ran.err
    assert (await apply(file)).code == 0
    west = list_endpoints("slow")["west"]
    async with connect(west, "west") as connection:
        listed = (await connection.request_json("$JS.API.STREAM.LIST"))["streams"]
    leaders = {info["config"]["name"]: info["cluster"]["leader"] for info in listed}
    writes, reads = ({name: leaders[f"{name}-{role}-west"] for name in NAMES} for role in ("write", "read"))
    compared = next(name for name in NAMES if writes[name] != reads[name])
    paused = next(name for name in NAMES if name != compared and writes[name] != writes[compared])
    await lead_meta_group_from("slow", writes[compared])
    going_on = next(address for address in list_addresses("slow") if address.server.name == writes[compared])
    async with connect(Endpoint(urls=(f"nats://127.0.0.1:{going_on.client}",)), "west") as connection:
        await check_that_clients_wait(connection, file, paused, writes[paused])
        await check_that_apply_fails(connection, file, compared, reads[compared], scaled=paused)
    await asyncio.to_thread(vstream, "lab", "down", "slow", "--purge")


@contextmanager
def blocked_server(name: str) -> Iterator[None]:
    server, pid = next(address for address in list_addresses("slow") if address.server.name == name), pids("slow")[name]
    assert pid is not None
    assert server.log_file is not None
    with blocked_log(Path(server.log_file), pid):
        yield


async def check_that_clients_wait(connection: Connection, file: Path, name: str, leader: str) -> None:
    stream, admin = f"{name}-write-west", JetStreamAdmin(connection)
    publisher = Publisher(connection, f"_vs.{name}.west.{name}.x")
    while publisher.acknowledged < HELD:
        await publisher.publish()
    followers = list_others(leader)
    write_topology(file, write=name)
    async with asyncio.timeout(60):
        applying = asyncio.create_task(apply(file))
        while publisher.acknowledged == publisher.sent:
            await publisher.publish()
        with blocked_server(leader):
            while len(await find_following(followers, stream, leader)) < len(followers):
                await publisher.publish()
            for _ in range(20):
                await publisher.publish()
    applied = await applying
    assert applied.code == 0, applied.out + applied.err
    assert (await admin.info(stream))["state"]["messages"] >= publisher.acknowledged
    held = publisher.acknowledged
    await publisher.publish()
    assert publisher.acknowledged == held + 1
    assert not await find_late(list_addresses("slow"), stream)


async def check_that_apply_fails(connection: Connection, file: Path, name: str, leader: str, *, scaled: str) -> None:
    """
    Nobody keeps a source back: new replicas may begin with what comes from there, and every run says so.

    Before the new group has a leader, a message that came would end the source until then. The write stream *scaled* keeps its
    three replicas: a server that gives one up logs that, and would be blocked too early.
    """
    stream, admin = f"{name}-read-west", JetStreamAdmin(connection)
    publisher = Publisher(connection, f"_vs.{name}.west.{name}.x")
    async with asyncio.timeout(60):
        while (await admin.info(stream))["state"]["messages"] < HELD:
            await publisher.publish()
    followers = list_others(leader)
    write_topology(file, write=scaled, read=name)
    with blocked_server(leader):
        applying = asyncio.create_task(apply(file))
        async with asyncio.timeout(60):
            while len(await find_following(followers, stream, leader)) < len(followers):
                await asyncio.sleep(0.01)
            while len(await find_late(followers, stream)) < len(followers):
                await publisher.publish()
    failed = await applying
    for run in (failed, await apply(file)):
        assert (run.code, f"`{stream}`: the replica on `" in run.err) == (3, True), run.out + run.err
    # The leader still has everything, and gives it to new replicas.
    for read in (None, name):
        write_topology(file, write=scaled, read=read)
        applied = await apply(file)
        assert applied.code == 0, applied.out + applied.err
    assert not await find_late(list_addresses("slow"), stream)
    assert "vstream.scaled" not in (await admin.info(stream))["config"]["metadata"]
