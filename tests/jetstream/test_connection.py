"""What a connection takes from a nats CLI context, what it must not tell, and that it leaves no socket open."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.support.jetstream import JetStreamServer
from vstream.errors import NotReachableError
from vstream.jetstream.client import TidyClient
from vstream.jetstream.connection import connect, open_connection
from vstream.jetstream.endpoints import make_connection_options, resolve_context
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.probe.trace import PublishExpectation, trace_publish
from vstream.topology.model import Endpoint

Saved = Callable[..., Endpoint]


@pytest.fixture
def save_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    """Saves a nats CLI context and gives the endpoint that it stands for."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    directory = tmp_path / "nats" / "context"
    directory.mkdir(parents=True)

    def save(**fields: str) -> Endpoint:
        (directory / "it.json").write_text(json.dumps({"url": "nats://127.0.0.1:1", **fields}))
        return resolve_context(Endpoint(context="it"))

    return save


def test_a_contexts_secrets_are_used(save_context: Saved) -> None:
    connection = {"servers": ["nats://127.0.0.1:1"], "inbox_prefix": "_INBOX.vstream"}
    assert make_connection_options(save_context(token="s3cret"), "west") == {"token": "s3cret", **connection}
    assert make_connection_options(save_context(user="u", password="p"), "west") == {
        "user": "u",
        "password": "p",
        **connection,
    }
    # The nats CLI connects with an empty password then.
    assert make_connection_options(save_context(user="u"), "west") == {"user": "u", "password": "", **connection}
    assert save_context(user="u", inbox_prefix="_INBOX.u").inbox == "_INBOX.u"
    assert save_context(user="audit-west").inbox == "_INBOX.vstream.audit"
    assert "s3cret" not in repr(save_context(token="s3cret", password="s3cret"))


async def test_no_secret_of_an_address_is_in_an_error(save_context: Saved) -> None:
    endpoint = save_context(url="nats://u:s3cret@127.0.0.1:1,127.0.0.1:2,tok@127.0.0.1:3")
    addresses = "nats://127.0.0.1:1, 127.0.0.1:2, 127.0.0.1:3"
    with pytest.raises(NotReachableError, match=f"{addresses}: connection refused$"):
        async with connect(endpoint, "west"):
            pass
    with pytest.raises(NotReachableError, match=f"{addresses} within 0.1 s: connection refused$"):
        await open_reconnecting(endpoint, "west", name="it", accepts_server=lambda *_: True, within=0.1)
    expected = PublishExpectation(region="west", subjects=("foo.a",), arrivals=frozenset(), stream=None)
    traces = await trace_publish("foo.a", [expected], {"west": endpoint}, timeout=0.1)
    assert [trace.server for trace in traces] == addresses.split(", ")


async def test_an_attempt_that_fails_at_the_deadline_does_not_hide_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(_client: object, _server: object) -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:  # what `asyncio.wait_for` does with a connection that was just refused
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed") from None

    monkeypatch.setattr(TidyClient, "_connect_to_server", refuse)
    endpoint = Endpoint(urls=("nats://127.0.0.1:1",))
    async with asyncio.timeout(60):
        with pytest.raises(NotReachableError, match=r"within 0.1 s: connection refused$"):
            await open_reconnecting(endpoint, "west", name="it", accepts_server=lambda *_: True, within=0.1)


async def test_a_reset_does_not_hide_why_a_server_refuses() -> None:
    """A server that refuses a login closes at once, and what it said may be lost."""
    answers = [True, False]

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        has_reason = answers.pop(0) if len(answers) > 1 else answers[0]
        writer.write(INFO)
        await reader.readline()
        if has_reason:
            writer.write(b"-ERR 'Authorization Violation'\r\n")
            await writer.drain()
        else:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        endpoint = Endpoint(urls=(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}",))
        with pytest.raises(NotReachableError, match="Authorization Violation"):
            await open_reconnecting(endpoint, "west", name="it", accepts_server=lambda *_: True, within=1)
        answers[:] = [False, True]
        with pytest.raises(NotReachableError, match="Authorization Violation"):
            await open_connection(endpoint, "west", timeout=4)


INFO = b'INFO {"server_name":"a","version":"2.15.1","max_payload":1048576}\r\n'
SERVES = INFO + b"PONG\r\n"


class Port:
    """A port that greets its callers in turn with *spoken*, the last one over and over."""

    def __init__(self, *spoken: bytes) -> None:
        self._spoken = list(spoken)
        self._calls: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._called = asyncio.Condition()
        self.endpoint = Endpoint()

    @property
    def calls(self) -> int:
        return len(self._calls)

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(self._spoken.pop(0) if len(self._spoken) > 1 else self._spoken[0])
        self._calls.append((reader, writer))
        async with self._called:
            self._called.notify_all()

    async def was_called(self, times: int) -> None:
        async with self._called, asyncio.timeout(60):
            await self._called.wait_for(lambda: len(self._calls) >= times)

    def hang_up(self, call: int) -> None:
        self._calls[call][1].close()

    async def is_left(self, call: int) -> None:
        """Return once the caller has closed its end."""
        async with asyncio.timeout(60):
            await self._calls[call][0].read()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Port]:
        server = await asyncio.start_server(self._greet, "127.0.0.1", 0)
        self.endpoint = Endpoint(urls=(f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}",))
        try:
            yield self
        finally:
            server.close()
            for _, writer in self._calls:
                writer.close()


async def test_connecting_that_is_cancelled_leaves_no_socket_open() -> None:
    async with Port(b"").open() as port:
        # Python 3.11 forgets a cancellation in the moment in which the socket connects: then it takes the timeout.
        connecting = asyncio.create_task(open_connection(port.endpoint, "west", timeout=0.5))
        await port.was_called(1)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await port.is_left(0)


async def test_connecting_that_takes_too_long_leaves_no_socket_open() -> None:
    async with Port(b"").open() as port:
        with pytest.raises(NotReachableError):
            await open_connection(port.endpoint, "west", timeout=0.2)
        await port.is_left(0)


async def test_an_attempt_to_come_back_that_failed_leaves_no_socket_open() -> None:
    """As when a server is called that is just ending, and the next call is answered."""
    async with Port(SERVES, b"nonsense\r\n", SERVES).open() as port, connect(port.endpoint, "west") as connection:
        port.hang_up(0)
        await port.was_called(3)
        await port.is_left(1)
        assert connection.server_name == "a"


@pytest.mark.parametrize("nonsense", [b"INFO null\r\n", b"INFO []\r\n", b'INFO {"server_name": 5}\r\n'])
async def test_what_is_known_of_a_server_stays_what_it_was_when_the_next_line_is_nonsense(nonsense: bytes) -> None:
    """The library keeps the first line of each server before it is looked at."""
    async with Port(SERVES, nonsense, SERVES).open() as port, connect(port.endpoint, "west") as connection:
        port.hang_up(0)
        await port.was_called(2)
        await port.is_left(1)
        assert (connection.server_name, connection.domain, connection.known_addresses) == ("a", None, ())


@pytest.mark.parametrize("spoken", [SERVES, INFO, b""], ids=["served", "half way", "silent"])
@pytest.mark.parametrize("is_dropped", [False, True], ids=["held", "dropped again"])
async def test_a_connection_that_is_closed_while_it_comes_back_leaves_no_socket_open(
    spoken: bytes, is_dropped: bool
) -> None:
    """Wherever in the attempt that is: so at one step of the event loop after the other, all of them at once."""

    async def closed_after(steps: int) -> None:
        async with Port(SERVES, spoken).open() as port:
            connection = await open_connection(port.endpoint, "west")
            port.hang_up(0)
            await port.was_called(2)
            if is_dropped:
                port.hang_up(1)
            for _ in range(steps):
                await asyncio.sleep(0)
            await connection.close()
            await port.is_left(1)

    await asyncio.gather(*map(closed_after, range(60)))


async def test_closing_a_connection_that_the_server_ends_cancels_nobody_and_leaves_other_connections() -> None:
    """The library cancels its own tasks then, and has once cancelled who waited for them."""

    async def closed_after(steps: int) -> None:
        async with Port(SERVES).open() as port:
            connection = await open_connection(port.endpoint, "west")
            port.hang_up(0)
            for _ in range(steps):
                await asyncio.sleep(0)
            await connection.close()
            await port.is_left(0)

    async with Port(SERVES).open() as port, connect(port.endpoint, "west") as connected:
        closing = [asyncio.create_task(closed_after(steps)) for steps in range(60)]
        await asyncio.gather(*closing)
        assert not any(task.cancelling() for task in closing)
        assert connected.is_connected
        assert port.calls == 1


async def test_an_answer_that_does_not_come_leaves_no_task_that_fails_later() -> None:
    """Asyncio prints the traceback of a task that nobody has looked at."""
    async with Port(SERVES).open() as port, connect(port.endpoint, "west") as connection:
        before = asyncio.all_tasks()
        with pytest.raises(NotReachableError, match=r"no answer within 0\.05 s on `foo`"):
            await connection.request_many("foo", is_last=bool, timeout=0.05)
        assert asyncio.all_tasks() <= before


@pytest.mark.server
async def test_a_cancellation_that_comes_with_the_answer_is_not_lost(server: JetStreamServer) -> None:
    """An interrupted command that goes on polling would not end before its own timeout."""
    async with connect(Endpoint(urls=(server.url,)), "west") as connection:
        asking = asyncio.ensure_future(connection.request("$JS.API.INFO"))
        while not connection.client._resp_map:
            await asyncio.sleep(0)
        (answer,) = connection.client._resp_map.values()
        was_running = list[bool]()
        answer.add_done_callback(lambda _: was_running.append(asking.cancel()))
        await asyncio.wait([asking])
        assert [asking.cancelled()] == was_running  # from Python 3.12 on, the request ends first


async def test_answers_that_cannot_come_any_more_are_not_waited_for() -> None:
    async with Port(SERVES).open() as port, connect(port.endpoint, "west") as connection:
        collecting = asyncio.create_task(connection.request_many("foo", is_last=bool, timeout=60))
        await asyncio.sleep(0)
        await connection.close()
        async with asyncio.timeout(20):
            with pytest.raises(NotReachableError, match=r"connection closed on `foo`$"):
                await collecting


async def test_a_late_pong_that_nobody_waits_for_any_more_does_not_end_reading() -> None:
    client = TidyClient(Endpoint())
    waiter = asyncio.get_running_loop().create_future()
    waiter.cancel()
    client._pongs.append(waiter)
    await client._process_pong()
    assert client._pongs == []
