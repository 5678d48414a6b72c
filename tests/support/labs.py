"""Looking at labs from outside."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import psutil
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.kv import KeyValue

from vstream.jetstream.endpoints import make_connection_options
from vstream.lab import server_records
from vstream.lab.endpoints import list_endpoints
from vstream.lab.readiness import ReadinessProgress
from vstream.lab.server_records import ServerRecord
from vstream.lab.state import LabDirectory
from vstream.lab.status import read_lab_status


def processes_in(directory: Path) -> list[psutil.Process]:
    def names(process: psutil.Process) -> bool:
        try:
            return any(str(directory) in argument for argument in process.cmdline())
        except psutil.Error:
            return False

    return [process for process in psutil.process_iter() if names(process)]


def end_all_in(directory: Path) -> list[str]:
    """Kill what still runs in *directory*: what that was, for the test to complain about."""
    left = processes_in(directory)
    running = [" ".join(process.cmdline()) for process in left if process.status() != psutil.STATUS_ZOMBIE]
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=60)
    return running


def give_pid_away(directory: LabDirectory, record: ServerRecord, process: subprocess.Popen[bytes]) -> None:
    """Say in *record* that its server is *process*, as after the id of one that has ended was given to another."""
    created = psutil.Process(process.pid).create_time()
    server_records.write(directory, replace(record, state=server_records.RUNNING, pid=process.pid, create_time=created))


def ignore_progress(_: ReadinessProgress) -> None:
    pass


def pids(name: str) -> dict[str, int | None]:
    return {server.name: server.pid for server in read_lab_status(name).servers}


def states(name: str) -> dict[str, str]:
    return {server.name: server.state.value for server in read_lab_status(name).servers}


async def eventually(holds: Callable[[], bool], within: float = 60.0) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def watch_entries(bucket: KeyValue, keys: str, number: int) -> list[KeyValue.Entry]:
    """
    The first *number* entries of *bucket* below *keys*.

    `keys()` and `history()` of nats-py end at a mark that says "no more": it comes first where the server has sent all before
    the client has read any.
    """
    watcher: Any = await bucket.watch(keys, include_history=True)
    entries: list[KeyValue.Entry] = []
    while len(entries) < number:
        if (entry := await watcher.updates(timeout=60)) is not None:
            entries.append(entry)
    await watcher.stop()
    return entries


async def fetch_all(reader: JetStreamContext.PullSubscription, number: int) -> list[Msg]:
    """The next *number* messages, none of them acknowledged."""
    result: list[Msg] = []
    while len(result) < number:
        result += await reader.fetch(number - len(result), timeout=60)
    return result


async def fetch_acknowledged(reader: JetStreamContext.PullSubscription, number: int) -> list[Msg]:
    """The next *number* messages, each acknowledged."""
    result: list[Msg] = []
    async with asyncio.timeout(60):
        while len(result) < number:
            try:
                messages = await reader.fetch(number - len(result), timeout=1)
            except TimeoutError:
                continue
            for message in messages:
                await message.ack_sync()
                result.append(message)
    return result


@asynccontextmanager
async def client(name: str, region: str, user: str = "app") -> AsyncIterator[Client]:
    """The library as it is, logged in to *region* of lab *name* as *user*. What servers refuse is in its `refused`."""
    endpoint = list_endpoints(name, user)[region]
    refused: list[str] = []

    async def remember(error: Exception) -> None:
        refused.append(str(error))

    connection = await nats.connect(
        error_cb=remember,
        reconnect_time_wait=0.1,
        **make_connection_options(endpoint, region),
        connect_timeout=30,
    )
    connection.refused = refused  # type: ignore[attr-defined]
    try:
        yield connection
    finally:
        await connection.close()
