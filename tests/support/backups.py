"""A backup that is taken under load, and restored by a command that is killed onto servers that have nothing."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nats
from nats.js.client import JetStreamContext

from tests.support.command import environment, vstream
from tests.support.labs import fetch_acknowledged
from tests.support.publish_load import Load, compare, identities, under_load
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.connection import connect
from vstream.jetstream.endpoints import make_connection_options
from vstream.lab.endpoints import list_client_endpoints, list_endpoints

REGIONS = ("west", "central", "east")
NAME = "backed-up"
BEFORE = 20
"""Messages that the consumer in the west has acknowledged before the backup, and again as many meanwhile."""


def document(servers: int, streams: str) -> str:
    regions = "".join(f"  {region}: {{servers: {servers}}}\n" for region in REGIONS)
    return f'version: 1\nname: {NAME}\nserver_version: "2.12"\nregions:\n{regions}{streams}'


async def command(*arguments: str | Path, code: int = 0) -> str:
    ran = await asyncio.to_thread(vstream, *arguments, timeout=590)
    assert ran.code == code, f"{arguments}: {ran.code}\n{ran.out}\n{ran.err}"
    return ran.out + ran.err


async def killed_after(seconds: float, *arguments: str | Path) -> bool:
    """Run the command, and kill it after so long. Whether it was still running."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "vstream", *arguments, env=environment(), stdout=DEVNULL, stderr=DEVNULL
    )
    try:
        await asyncio.wait_for(process.wait(), seconds)
    except TimeoutError:
        process.kill()
        await process.wait()
        return True
    return False


DIES = """
import os
import signal
import sys

from vstream.cli.app import run
from vstream.jetstream import snapshots

send = snapshots._send_chunk


async def send_or_die(connection, target, chunk, timeout):
    if not chunk:
        os.kill(os.getpid(), signal.SIGKILL)
    return await send(connection, target, chunk, timeout)


snapshots._send_chunk = send_or_die
run()
"""
"""The `vstream` command, killed when it has sent all of a snapshot but its end: the stream is there then, and listens to nobody."""


DIES_LATER = """
import os
import signal

from vstream.backup import restore
from vstream.cli.app import run

attach = restore._Restored.attach


async def attach_or_die(stream):
    if stream._config.sources:
        os.kill(os.getpid(), signal.SIGKILL)
    await attach(stream)


restore._Restored.attach = attach_or_die
run()
"""
"""The same, killed when all streams are there, and readers take from no other yet."""
DIES_BETWEEN = """
import os
import signal

from vstream.backup import restore
from vstream.cli.app import run

make = restore._Restored.make


async def make_or_die(stream):
    if stream.name == "foo-read-east":
        os.kill(os.getpid(), signal.SIGKILL)
    await make(stream)


restore._Restored.make = make_or_die
run()
"""
"""The same, killed when all streams that clients publish to are there, and readers are not."""
DIES_LAST = """
import os
import signal

from vstream.backup import restore
from vstream.cli.app import run


async def die(stream):
    os.kill(os.getpid(), signal.SIGKILL)


restore._Restored.limit = die
run()
"""
"""The same, killed when readers have taken everything, and no write stream has its limit back."""
STOPS_BETWEEN = """
import os
import signal

from vstream.backup import take
from vstream.cli.app import run
from vstream.topology.model import Role


async def save_or_stop(connection, stream, directory):
    if stream.role is Role.WRITE and not stopped:
        stopped.append(True)
        os.kill(os.getpid(), signal.SIGSTOP)
    return await save(connection, stream, directory)


stopped = []
save = take._save
take._save = save_or_stop
run()
"""
"""The `vstream` command, which stops when it has the snapshots of all readers, and none of a write stream."""
WAITS = """
import os
import signal
import sys

from vstream.backup import restore
from vstream.cli.app import run

read_state = restore._read_state


async def read_and_wait(request, connections):
    state = await read_state(request, connections)
    os.kill(os.getpid(), signal.SIGSTOP)
    return state


restore._read_state = read_and_wait
run()
"""
"""The `vstream` command, which stops when it has seen what is there, before it restores anything."""


@contextmanager
def stopped_command(*arguments: str | Path, program: str = WAITS) -> Iterator[subprocess.Popen[str]]:
    """The command, which has seen what is there and waits for SIGCONT. At the end of the block it is killed."""
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], env=environment(), stdout=DEVNULL, stderr=PIPE, text=True
    )
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), status
        yield process
    finally:
        process.kill()
        process.communicate()  # which closes its output, too


async def killed_before_the_end(*arguments: str | Path, program: str = DIES) -> None:
    """Run the command, and see it die: when a server has all of the first stream but the end of its snapshot."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *arguments, env=environment(), stdout=DEVNULL, stderr=DEVNULL
    )
    assert await asyncio.wait_for(process.wait(), 60) == -signal.SIGKILL


async def take(region: str, number: int, *, stream: str = "foo") -> list[str]:
    """The next *number* messages of the durable `reader`, each acknowledged."""
    endpoint = list_endpoints(NAME)[region]
    client = await nats.connect(**make_connection_options(endpoint, region), connect_timeout=30)
    try:
        context: JetStreamContext = client.jetstream(timeout=60)
        reader = await context.pull_subscribe_bind(durable="reader", stream=f"{stream}-read-{region}")
        return [message.data.decode() for message in await fetch_acknowledged(reader, number)]
    finally:
        await client.close()


async def backed_up(file: Path, directory: Path, rate: float, *, killed: Sequence[float] = ()) -> Load:
    """The running lab's streams, backed up while clients publish and take; where *killed*, into another directory first."""
    load = Load(rate)
    endpoints = list_client_endpoints(NAME)
    async with under_load(load, endpoints):
        await load.wait_for_acknowledged(BEFORE)
        first = load.everything
        for region in REGIONS:
            while not first <= (await identities(NAME, region, f"foo-read-{region}")).keys():
                await asyncio.sleep(0.2)
        await take("west", BEFORE)
        for number, seconds in enumerate(killed):
            unfinished = directory.with_name(f"unfinished-{number}")
            assert await killed_after(seconds, "backup", "take", unfinished, file)
            assert "backup" in await command(
                "backup", "restore", unfinished, file, "--yes", code=1 if any_in(unfinished) else 3
            )
        taking = asyncio.create_task(take("west", BEFORE))
        backup = json.loads(await command("backup", "take", directory, file, "--format", "json"))
        await taking
        await load.wait_for_acknowledged(round(rate / 2))
    assert all(backup["cut"].values()), backup
    check_cut(directory, backup["cut"])
    return load


def any_in(directory: Path) -> bool:
    return (directory / "snapshots").is_dir()


def check_cut(directory: Path, cut: dict[str, int]) -> None:
    """Every stream of `foo` in the capture has each message up to the cut, once, and nothing else."""
    expected = {(origin, seq) for origin, last in cut.items() if origin.startswith("foo") for seq in range(1, last + 1)}
    for region in REGIONS:
        lines = (directory / "streams" / f"foo-read-{region}.jsonl").read_text().splitlines()
        held = [(message["origin"], message["origin_seq"]) for message in map(json.loads, lines)]
        assert len(held) == len(set(held)), region
        assert set(held) == expected, region
        write = f"foo-write-{region}"
        lines = (directory / "streams" / f"{write}.jsonl").read_text().splitlines()
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, cut[write] + 1))


async def goes_on(file: Path, directory: Path, load: Load) -> None:
    """Everywhere is once what the write streams' backup had, and what is published now; the consumer goes on where it was."""
    restored = set[str]()
    for region in REGIONS:
        restored |= (await identities(NAME, region, f"foo-write-{region}")).keys()
    assert restored <= load.everything | load.unknown
    backup = json.loads((directory / "backup.json").read_text())
    assert len(restored) >= sum(last for origin, last in backup["cut"].items() if origin.startswith("foo"))
    more = Load(20, tag="b")
    async with under_load(more, list_client_endpoints(NAME)):
        await more.wait_for_acknowledged(10)
    more.acked["before"] = restored
    for region in REGIONS:
        missing, doubled, strange = await compare(NAME, region, f"foo-read-{region}", more)
        assert (missing, doubled, strange) == ([], [], []), region
    # The consumer goes on where it was: after what was acknowledged before the backup, at the least.
    order = list(await identities(NAME, "west", "foo-read-west"))
    async with connect(list_endpoints(NAME)["west"], "west") as connection:
        floor = (await JetStreamAdmin(connection).consumer("foo-read-west", "reader")).ack_floor
    assert floor >= BEFORE
    assert await take("west", 2) == order[floor : floor + 2]
    await command("plan", file, "--detailed-exitcode")
