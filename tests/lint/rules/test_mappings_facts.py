"""What the rules about mappings say that servers do, shown once on a real one."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import BadRequestError

from tests.support.ports import free_port
from vstream.lab import binaries

pytestmark = pytest.mark.server

NATS_SERVER = str(binaries.find_or_fetch("2.15.1"))
DEADLINE_S = 60
Start = Callable[..., "Server"]


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    conf: Path
    log: Path
    errors: list[str]

    async def connect(self, **options: str) -> Client:
        async def note(error: Exception) -> None:
            self.errors.append(str(error))

        client = await nats.connect(
            f"nats://127.0.0.1:{self.port}", error_cb=note, allow_reconnect=False, connect_timeout=DEADLINE_S, **options
        )
        # The server looks up whether the account has mappings once per read.
        await client.flush()
        return client

    def reload(self, text: str) -> None:
        """Write another configuration, and wait until the server has it."""
        before = self.count_said("Reloaded server configuration")
        self.conf.write_text(f"listen: 127.0.0.1:{self.port}\n{text}")
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.count_said("Reloaded server configuration") > before)

    def count_said(self, words: str) -> int:
        return self.log.read_text(errors="replace").count(words)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def listening(port: int) -> bool:
    try:
        with closing(socket.create_connection(("127.0.0.1", port), DEADLINE_S)) as connection:
            return b"INFO" in connection.recv(16)
    except ConnectionRefusedError:
        return False


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a server with the configuration given, and files that it includes."""
    started: list[Server] = []

    def start_server(text: str, **included: str) -> Server:
        port = free_port()
        directory = tmp_path / str(len(started))
        directory.mkdir()
        conf, log = directory / "server.conf", directory / "server.log"
        conf.write_text(f"listen: 127.0.0.1:{port}\n{text.replace('<STORE>', str(directory / 'js'))}")
        for name, content in included.items():
            (directory / f"{name}.cfg").write_text(content)
        assert subprocess.run([NATS_SERVER, "-t", "-c", conf], check=False, capture_output=True).returncode == 0
        with log.open("wb") as output:
            process = subprocess.Popen([NATS_SERVER, "-c", conf], stdout=output, stderr=output)
        server = Server(process, port, conf, log, [])
        started.append(server)
        wait_until(lambda: listening(port))
        return server

    yield start_server
    for server in started:
        server.process.kill()
        server.process.wait(DEADLINE_S)


async def arrivals(client: Client, subjects: list[str]) -> list[str]:
    """Publish to each subject: under which subjects the client itself sees the messages."""
    seen: list[str] = []
    done = "_done.x"
    subscription = await client.subscribe(">")
    for subject in subjects:
        await client.publish(subject, b"x")
    await client.publish(done, b"")
    async for message in subscription.messages:
        if message.subject == done:
            break
        seen.append(message.subject)
    await subscription.unsubscribe()
    return seen


async def test_vs302_one_of_two_rules_is_drawn_at_each_start(start: Start) -> None:
    text = 'mappings {"o.>": "one.>", "o.eu.>": "two.>", "o.eu.x": "three", "o.*.x": "four"}\n'
    seen: set[str] = set()
    for _ in range(40):
        server = start(text)
        client = await server.connect()
        seen.update(await arrivals(client, ["o.eu.x"]))
        await client.close()
        server.process.kill()
        if len(seen) > 1:
            return
    pytest.fail(f"only {seen} in 40 starts")


async def test_vs303_the_last_of_equal_sources_wins(start: Start) -> None:
    server = start("mappings {foo: first, foo: last}\n")
    client = await server.connect()
    assert await arrivals(client, ["foo"]) == ["last"]
    await client.close()


def test_vs306_a_missing_destination_kills_the_server(start: Start) -> None:
    server = start("mappings {foo: {weight: 100%}}\n")
    with (
        closing(socket.create_connection(("127.0.0.1", server.port), DEADLINE_S)) as connection,
        connection.makefile("rb") as answers,
    ):
        connection.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
        assert b"PONG\r\n" in answers
        connection.sendall(b"PUB foo 1\r\nx\r\n")
        assert server.process.wait(DEADLINE_S) != 0
    assert server.count_said("nil pointer dereference")


async def test_vs308_a_function_within_a_token_is_text(start: Start) -> None:
    server = start('mappings {"a.*": "b.{{wildcard(1)}}-x"}\n')
    client = await server.connect()
    assert await arrivals(client, ["a.1"]) == ["b.{{wildcard(1)}}-x"]
    await client.close()


async def test_vs313_what_weights_leave_is_not_mapped(start: Start) -> None:
    server = start("mappings {foo: {destination: bar, weight: 60%}}\n")
    client = await server.connect()
    seen = await arrivals(client, ["foo"] * 500)
    assert 500 / 4 < seen.count("foo") < 500 * 3 / 5
    assert seen.count("foo") + seen.count("bar") == 500
    await client.close()


async def test_vs314_a_source_among_its_destinations_drops_the_rest(start: Start) -> None:
    rule = "foo: [{destination: foo, weight: 100%, cluster: west}, {destination: bar, weight: 100%, cluster: east}]"
    server = start(f"cluster {{name: north}}\nmappings {{{rule}}}\n")
    client = await server.connect()
    assert await arrivals(client, ["foo"]) == []
    await client.close()


async def test_vs315_a_cluster_of_another_case_leaves_messages_as_they_are(start: Start) -> None:
    server = start("cluster {name: west}\nmappings {foo: {destination: bar, weight: 100%, cluster: West}}\n")
    client = await server.connect()
    assert await arrivals(client, ["foo"]) == ["foo"]
    await client.close()


JETSTREAM = 'jetstream {store_dir: "<STORE>"}\n'


async def test_vs330_vs335_vs343_requests_by_a_virtual_name(start: Start) -> None:
    server = start(
        JETSTREAM
        + """mappings {
          "$JS.API.STREAM.MSG.DIRECT.foo": "$JS.API.STREAM.DIRECT.GET.foo-read"
          "$JS.API.STREAM.INFO.foo": "$JS.API.STREAM.INFO.foo-read"
          "$JS.API.CONSUMER.CREATE.foo.>": "$JS.API.CONSUMER.CREATE.foo-read.>"
          "$JS.API.CONSUMER.MSG.NEXT.foo.*": "$JS.API.CONSUMER.MSG.NEXT.foo-read.{{wildcard(1)}}"
          "$JS.ACK.foo.>": "acked.>"
        }
        """
    )
    client = await server.connect()
    stream = client.jetstream(timeout=60)
    await stream.add_stream(StreamConfig(name="foo-read", subjects=["data.>"], allow_direct=True))
    await stream.add_consumer("foo-read", ConsumerConfig(durable_name="app", ack_policy=AckPolicy.EXPLICIT))
    await stream.publish("data.x", b"1")
    # Neither the subject that the recipe maps nor the one it becomes is known: nobody answers at all.
    for subject in ("$JS.API.STREAM.MSG.DIRECT.foo", "$JS.API.STREAM.DIRECT.GET.foo-read"):
        with pytest.raises(TimeoutError):
            await client.request(subject, b'{"seq":1}', timeout=0.3)
    with pytest.raises(NoRespondersError):
        await client.request("$JS.API.DIRECT.GET.foo", b'{"seq":1}', timeout=DEADLINE_S)
    assert (await client.request("$JS.API.DIRECT.GET.foo-read", b'{"seq":1}', timeout=DEADLINE_S)).data == b"1"
    # The body says foo, the mapped subject foo-read.
    with pytest.raises(BadRequestError) as refused:
        await stream.add_consumer("foo", ConsumerConfig(name="other"))
    assert refused.value.err_code == 10056
    # What arrives by the virtual name is acknowledged by the real one.
    acknowledged = await client.subscribe("acked.>")
    bound = await stream.pull_subscribe_bind("app", stream="foo")
    (message,) = await bound.fetch(1, timeout=DEADLINE_S)
    assert message.reply.startswith("$JS.ACK.foo-read.app.")
    await message.ack_sync(timeout=DEADLINE_S)
    assert acknowledged.pending_msgs == 0
    await client.close()


async def test_vs351_a_message_is_mapped_on_both_sides_of_a_leaf_node_connection(start: Start) -> None:
    port = free_port()
    hub = start(f'leafnodes {{listen: "127.0.0.1:{port}"}}\nmappings {{"foo.>": "foo.hub.>"}}\n')
    leaf = start(f'leafnodes {{remotes: [{{url: "nats://127.0.0.1:{port}"}}]}}\nmappings {{"foo.>": "foo.leaf.>"}}\n')
    wait_until(lambda: bool(hub.count_said("Leafnode connection created")))
    far, near = await hub.connect(), await leaf.connect()
    subscription = await far.subscribe("foo.>")
    await far.flush()
    async with asyncio.timeout(DEADLINE_S):
        while not subscription.pending_msgs:  # the leaf hears of the subscription only later
            await near.publish("foo.x", b"")
            await asyncio.sleep(0.05)
    message = await subscription.next_msg(timeout=DEADLINE_S)
    assert message.subject == "foo.hub.leaf.x"
    await near.close()
    await far.close()


@pytest.mark.parametrize("publish", ['["foo", "_done.x"]', '{deny: "bar"}'], ids=["allow", "deny"])
async def test_vs352_permissions_are_checked_for_the_mapped_subject(start: Start, publish: str) -> None:
    user = f"{{user: app, password: pw, permissions: {{publish: {publish}}}}}"
    server = start(f"accounts {{APP {{users: [{user}], mappings {{foo: bar}}}}}}\n")
    client = await server.connect(user="app", password="pw")
    assert await arrivals(client, ["foo"]) == []
    assert [error for error in server.errors if 'permissions violation for publish to "bar"' in error.lower()]
    await client.close()


async def test_vs353_a_block_that_is_taken_out_stays_in_force(start: Start) -> None:
    accounts = "accounts {SYS {}}\nsystem_account: SYS\n"
    server = start(f"{accounts}mappings {{foo: bar}}\n")
    client = await server.connect()
    server.reload(accounts)
    assert await arrivals(client, ["foo"]) == ["bar"]
    server.reload(f"{accounts}mappings {{}}\n")
    assert await arrivals(client, ["foo"]) == ["foo"]
    await client.close()


async def test_vs354_rules_at_the_top_do_not_apply_to_other_accounts(start: Start) -> None:
    server = start("accounts {APP {users: [{user: app, password: pw}]}}\nmappings {foo: bar}\n")
    client = await server.connect(user="app", password="pw")
    assert await arrivals(client, ["foo"]) == ["foo"]
    await client.close()


async def test_vs355_the_blocks_of_two_included_files_are_not_merged(start: Start) -> None:
    server = start("include one.cfg\ninclude two.cfg\n", one="mappings {foo: bar}\n", two="mappings {fob: baz}\n")
    client = await server.connect()
    assert await arrivals(client, ["foo", "fob"]) == ["foo", "baz"]
    await client.close()
