"""What the rules about streams say of servers, shown on servers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nats
import nats.errors
import pytest
import pytest_asyncio
from nats.aio.client import Client

from tests.support import workspaces
from tests.support.ports import free_port
from vstream.lab.binaries import find_or_fetch

pytestmark = [pytest.mark.server, pytest.mark.asyncio]

DEADLINE_S = 60
MESSAGES = 20
MINUTE = 60 * 10**9
Config = dict[str, Any]

BLOG: Config = {
    "name": "foo-read-west",
    "subject_transform": {"src": "foo.*.>", "dest": "foo.>"},
    "sources": [{"name": "foo-write-west", "filter_subject": "foo.west.>"}],
}
PER_SOURCE: Config = {
    "name": "foo-read-west",
    "sources": [{"name": "foo-write-west", "subject_transforms": [{"src": "foo.west.>", "dest": "foo.>"}]}],
}
REFUSED: list[tuple[str, int, list[Config]]] = [
    ("VS202", 10128, [{"name": "a\\b", "subjects": ["a"]}]),
    ("VS203", 10025, [{"name": "a", "subjects": ["a"], "max_ages": 1}]),
    (
        "VS206",
        10144,
        [
            {
                "name": "a",
                "sources": [{"name": "b", "filter_subject": "b", "subject_transforms": [{"src": "b", "dest": "c"}]}],
            }
        ],
    ),
    ("VS207", 10140, [{"name": "a", "sources": [{"name": "b"}, {"name": "b"}]}]),
    ("VS208", 10034, [{"name": "a", "mirror": {"name": "b"}, "subjects": ["a"]}]),
    ("VS208", 10031, [{"name": "a", "mirror": {"name": "b"}, "sources": [{"name": "c"}]}]),
    ("VS208", 10143, [{"name": "a", "mirror": {"name": "b"}, "first_seq": 5}]),
    ("VS209", 10187, [{"name": "a", "sources": [{"name": "b"}], "allow_msg_schedules": True}]),
    ("VS210", 10052, [{"name": "a", "subjects": ["a.>"], "republish": {"src": "a.>", "dest": "a.b.>"}}]),
    (
        "VS212",
        10052,
        [
            {"name": "a", "subjects": ["a"], "sources": [{"name": "b"}]},
            {"name": "b", "subjects": ["b"], "sources": [{"name": "a"}]},
        ],
    ),
    ("VS216", 10052, [{"name": "a", "subjects": ["a"], "max_age": MINUTE, "duplicate_window": 2 * MINUTE}]),
    ("VS216", 10052, [{"name": "a", "subjects": ["a"], "duplicate_window": MINUTE // 1_000}]),
    (
        "VS220",
        10046,
        [
            {"name": "b", "subjects": ["b"], "max_msg_size": 8_192},
            {"name": "a", "sources": [{"name": "b"}], "max_msg_size": 4_096},
        ],
    ),
    ("VS223", 10052, [{"name": "a", "subjects": ["a"], "num_replicas": 6}]),
    (
        "VS233",
        10052,
        [{"name": "foo-write-west", "subjects": ["a"], "num_replicas": 3, "persist_mode": "async"}],
    ),
]
"""A rule, the error that the last of the streams gets, and the streams."""


@dataclass(slots=True)
class Server:
    """One nats-server with JetStream, which can be stopped and started again on its data."""

    binary: Path
    directory: Path
    port: int
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    clients: list[Client] = field(default_factory=list)

    async def start(self) -> Client:
        """Start, and wait until JetStream answers."""
        conf = self.directory / "server.conf"
        conf.write_text(
            f'server_name: facts\nlisten: "127.0.0.1:{self.port}"\n'
            f'jetstream {{ store_dir: "{self.directory}", max_file: 100MB, max_mem: 10MB }}\n'
        )
        process = self._spawn(conf)
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                client = await nats.connect(f"nats://127.0.0.1:{self.port}", allow_reconnect=False, connect_timeout=30)
            except (OSError, nats.errors.Error):
                assert time.monotonic() < deadline, (self.directory / "server.log").read_text()
                assert process.poll() is None, (self.directory / "server.log").read_text()
                await asyncio.sleep(0.01)
                continue
            self.clients.append(client)
            await client.request("$JS.API.INFO", timeout=DEADLINE_S)
            return client

    def _spawn(self, conf: Path) -> subprocess.Popen[bytes]:
        with (self.directory / "server.log").open("ab") as log:
            process = subprocess.Popen([self.binary, "-c", conf], stdout=log, stderr=log)
        self.processes.append(process)
        return process

    async def stop(self) -> None:
        """Stop the way an operator does."""
        await self.clients.pop().close()
        process = self.processes.pop()
        process.terminate()
        await asyncio.to_thread(process.wait, DEADLINE_S)


Start = Callable[[str | None], Server]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[Start]:
    """Servers of any version, which end with the test."""
    servers: list[Server] = []

    def make(version: str | None) -> Server:
        servers.append(Server(binary=find_or_fetch(version), directory=tmp_path, port=free_port()))
        return servers[-1]

    yield make
    for server in servers:
        for client in server.clients:
            await client.close()
        for process in server.processes:
            process.kill()
            await asyncio.to_thread(process.wait, DEADLINE_S)


async def create(client: Client, config: Config) -> int:
    """Create a stream; the code of the error that the server answers, 0 if there is none."""
    complete = {"retention": "limits", "storage": "file", "discard": "old", "num_replicas": 1, **config}
    answer = await client.request(
        f"$JS.API.STREAM.CREATE.{config['name']}", json.dumps(complete).encode(), timeout=DEADLINE_S
    )
    error = json.loads(answer.data).get("error")
    return int(error["err_code"]) if error else 0


async def messages(client: Client, stream: str) -> int:
    """How many messages a stream holds."""
    answer = await client.request(f"$JS.API.STREAM.INFO.{stream}", timeout=DEADLINE_S)
    return int(json.loads(answer.data)["state"]["messages"])


async def holds(client: Client, stream: str, subject: str) -> bool:
    """Whether a stream holds a message on *subject*."""
    body = json.dumps({"last_by_subj": subject}).encode()
    answer = await client.request(f"$JS.API.STREAM.MSG.GET.{stream}", body, timeout=DEADLINE_S)
    return "message" in json.loads(answer.data)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + DEADLINE_S
    while not await holds():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def after_a_restart(server: Server, read: Config) -> int:
    """How many messages *read* holds after it has sourced `MESSAGES` and a restart, and one message since."""
    client = await server.start()
    assert await create(client, {"name": "foo-write-west", "subjects": ["foo.west.>"]}) == 0
    assert await create(client, read) == 0
    for _ in range(MESSAGES):
        await client.request("foo.west.x", b"", timeout=DEADLINE_S)

    async def has_all() -> bool:
        return await messages(client, "foo-read-west") == MESSAGES

    await eventually(has_all)
    await server.stop()
    client = await server.start()
    await client.request("foo.west.last", b"", timeout=DEADLINE_S)

    async def has_last() -> bool:
        return await holds(client, "foo-read-west", "foo.last")

    # A source is read in order: what it has before this message is there by then.
    await eventually(has_last)
    return await messages(client, "foo-read-west")


async def test_a_filter_with_a_transform_of_the_stream_stores_everything_twice_after_a_restart(server: Start) -> None:
    assert "VS205" in workspaces.codes({"a.json": json.dumps(BLOG)})
    assert await after_a_restart(server("2.14.6"), BLOG) == 2 * MESSAGES + 1


async def test_a_transform_of_the_source_stores_everything_once(server: Start) -> None:
    assert "VS205" not in workspaces.codes({"a.json": json.dumps(PER_SOURCE)})
    assert await after_a_restart(server("2.14.6"), PER_SOURCE) == MESSAGES + 1


async def test_servers_refuse_what_the_rules_say_they_refuse(server: Start) -> None:
    client = await server(None).start()
    expected, answered = [], []
    for code, error, configs in REFUSED:
        assert code in workspaces.codes({"a.json": json.dumps(configs)})
        expected.append((code, *(0 for _ in configs[1:]), error))
        answered.append((code, *[await create(client, config) for config in configs]))
        for config in configs[:-1]:
            await client.request(f"$JS.API.STREAM.DELETE.{config['name']}", timeout=DEADLINE_S)
    assert answered == expected


async def test_a_source_that_names_no_stream_is_accepted_and_its_lag_says_nothing(server: Start) -> None:
    client = await server(None).start()
    assert await create(client, {"name": "all", "sources": [{"name": "nobody"}]}) == 0
    answer = await client.request("$JS.API.STREAM.INFO.all", timeout=DEADLINE_S)
    assert [source["lag"] for source in json.loads(answer.data)["sources"]] == [0]
