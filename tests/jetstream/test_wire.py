"""What is never sent, and what is never taken: credentials in clear, secrets of the environment, endless answers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.command import vstream
from tests.support.paths import CERTIFICATES, TESTS
from tests.support.ports import free_port
from tests.support.single_server import run_configured
from tests.support.topologies import one_region
from vstream.credentials import PLAINTEXT, read_secret_variable
from vstream.errors import MalformedAnswerError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import monitoring
from vstream.jetstream.admin import JetStreamAdmin
from vstream.jetstream.answers import MOST_JSON, decode_object
from vstream.jetstream.connection import connect, open_connection
from vstream.jetstream.endpoints import list_endpoint_problems, resolve_context
from vstream.jetstream.reconnecting import open_reconnecting
from vstream.topology.model import Endpoint

CA = str(CERTIFICATES / "ca.pem")
OTHER_CA = str(TESTS / "fixtures" / "tls" / "certificate.pem")
SECRET = "s3cret"


class Server:
    """A server that says INFO as told, answers PING, and remembers every byte that it is sent."""

    def __init__(self, **info: object) -> None:
        self._info = {"server_name": "fake", "server_id": "X", "version": "2.15.1", "headers": True, **info}
        self.heard = b""
        self.calls = 0
        self.endless = b""
        """What it sends over and over once a client has subscribed."""
        self.hangs_up = False
        """Whether it does so as soon as a client subscribes."""
        self.url = ""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.calls += 1
        writer.write(b"INFO " + json.dumps(self._info).encode() + b"\r\n")
        try:
            while data := await reader.read(65_536):
                self.heard += data
                if b"PING" in data:
                    writer.write(b"PONG\r\n")
                if b"SUB" in data and self.hangs_up:
                    break
                while b"PUB" in data and self.endless and not writer.is_closing():
                    writer.write(self.endless)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Server]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()


@contextmanager
def real_server(directory: Path, *, is_secure: bool) -> Iterator[int]:
    """A real nats-server, with TLS or without, and its port."""
    port = free_port()
    tls = f'tls {{ cert_file: "{CERTIFICATES / "server.pem"}", key_file: "{CERTIFICATES / "server.key"}" }}'
    conf = directory / "server.conf"
    conf.write_text(
        f'listen: "127.0.0.1:{port}"\nauthorization {{ user: ops, password: {SECRET} }}\n{tls if is_secure else ""}\n'
    )
    log = directory / "server.log"
    with run_configured(conf, log):
        yield port


def login(*urls: str, **fields: Any) -> Endpoint:
    return replace(Endpoint(urls=urls, user="ops", password=SECRET), **fields)


STRIPPED = {
    "tls address": ("tls", {}),
    "ca": ("nats", {"tls_ca": CA}),
    "tls address and ca": ("tls", {"tls_ca": CA}),
    "client certificate": (
        "nats",
        {"tls_cert": str(CERTIFICATES / "user-app.pem"), "tls_key": str(CERTIFICATES / "user-app.key")},
    ),
}


@pytest.mark.parametrize(("scheme", "fields"), STRIPPED.values(), ids=STRIPPED)
async def test_nothing_is_sent_to_a_server_whose_tls_was_taken_away(scheme: str, fields: dict[str, str]) -> None:
    async with Server().open() as server:
        with pytest.raises(NotReachableError, match="does not use TLS") as caught:
            await open_connection(login(f"{scheme}://{server.url}", **fields), "west", timeout=2)
        assert server.heard == b""
        assert caught.value.hint is not None
        assert "serve TLS" in caught.value.hint


async def test_one_tls_address_is_enough_to_send_nothing_in_clear_to_the_others() -> None:
    async with Server().open() as server:
        with pytest.raises(NotReachableError):
            await open_connection(login(f"nats://{server.url}", "tls://127.0.0.1:1"), "west", timeout=2)
        assert server.calls
        assert server.heard == b""


async def test_a_workloads_connection_sends_nothing_in_clear_either() -> None:
    async with Server().open() as server:
        with pytest.raises(NotReachableError, match="does not use TLS, but `connect` requires it; nothing was sent"):
            await open_reconnecting(
                login(f"tls://{server.url}"), "west", name="it", accepts_server=lambda *_: True, within=0.5
            )
        assert server.calls
        assert server.heard == b""


@pytest.mark.parametrize("command", ["plan", "status", "backup take monday"])
async def test_a_command_that_reaches_nobody_says_what_to_do_about_it(tmp_path: Path, command: str) -> None:
    async with Server().open() as server:
        file = tmp_path / "acme.yaml"
        file.write_text(one_region(f"tls://{server.url}"))
        ran = await asyncio.to_thread(vstream, *command.split(), file, cwd=tmp_path)
    assert ran.code == 3, ran
    assert "serve TLS there" in ran.err
    assert server.heard == b""


@pytest.mark.night
async def test_a_server_that_hangs_up_after_every_request_leaves_no_traceback(tmp_path: Path) -> None:
    server = Server(cluster="west")
    server.hangs_up = True
    async with server.open():
        file = tmp_path / "acme.yaml"
        file.write_text(one_region(f"nats://{server.url}"))
        ran = await asyncio.to_thread(vstream, "doctor", file)
    assert server.calls > 1
    assert ran.code == 1
    assert "Traceback" not in ran.err


async def test_a_server_that_promises_tls_and_has_none_is_sent_no_credentials() -> None:
    async with Server(tls_required=True).open() as server:
        with pytest.raises(NotReachableError):
            await open_connection(login(f"tls://{server.url}", tls_ca=CA), "west", timeout=2)
        assert b"CONNECT" not in server.heard
        assert SECRET.encode() not in server.heard


@pytest.mark.server
async def test_a_real_server_without_tls_is_refused_and_without_asking_for_it_is_not(tmp_path: Path) -> None:
    with real_server(tmp_path, is_secure=False) as port:
        with pytest.raises(NotReachableError, match="does not use TLS"):
            await open_connection(login(f"tls://127.0.0.1:{port}", tls_ca=CA), "west", timeout=2)
        async with connect(login(f"nats://127.0.0.1:{port}"), "west") as connection:
            assert connection.is_connected


@pytest.mark.server
@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_a_real_server_with_tls_is_taken_if_the_certificate_is_right(tmp_path: Path, scheme: str) -> None:
    with real_server(tmp_path, is_secure=True) as port:
        url = f"{scheme}://127.0.0.1:{port}"
        async with connect(login(url, tls_ca=CA), "west") as connection:
            assert connection.is_connected
        for wrong in (
            login(url, tls_ca=OTHER_CA),
            login(f"{scheme}://127.0.0.2:{port}", tls_ca=CA),
            login(f"tls://127.0.0.1:{port}"),
        ):
            with pytest.raises(NotReachableError) as refusal:
                await open_connection(wrong, "west", timeout=2)
            assert "not a nats-server" not in str(refusal.value)
    assert "authentication" not in (tmp_path / "server.log").read_text().lower()


async def test_no_credentials_go_to_a_server_that_only_another_server_has_named() -> None:
    async with Server(auth_required=True).open() as gossiped:
        named = [gossiped.url]
        async with Server(connect_urls=named, auth_required=True).open() as server:
            connection = await open_connection(login(f"nats://{server.url}"), "west", timeout=60)
            assert connection.known_addresses == (gossiped.url,)
            pool = [server.uri.netloc for server in connection.client._server_pool]
            await connection.close()
            assert pool == [server.url]
        assert gossiped.calls == 0


async def test_servers_that_another_has_named_are_used_where_nothing_secret_is_sent() -> None:
    async with Server(connect_urls=["127.0.0.1:1"]).open() as server:
        connection = await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=60)
        assert "127.0.0.1:1" in [server.uri.netloc for server in connection.client._server_pool]
        await connection.close()


FAR = "nats://nats.example.net:4222"
IN_CLEAR: dict[str, Endpoint] = {
    "a password": login(FAR),
    "a token": Endpoint(urls=(FAR,), token=SECRET),
    "an nkey": Endpoint(urls=(FAR,), nkey="user.nk"),
    "over a WebSocket": login("ws://nats.example.net:80"),
    "one of several addresses": login("nats://127.0.0.1:4222", FAR),
    "an address that is nearly this machine": login("nats://localhost.example.net"),
}


@pytest.mark.parametrize("endpoint", IN_CLEAR.values(), ids=IN_CLEAR)
async def test_credentials_cross_no_network_in_clear(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PLAINTEXT, raising=False)
    with pytest.raises(
        VstreamError, match=r"credentials would cross the network unencrypted, to .*example.net"
    ) as caught:
        await open_connection(endpoint, "west", timeout=2)
    assert "--allow-plaintext" in str(caught.value.hint)
    with pytest.raises(VstreamError, match="unencrypted"):
        await open_reconnecting(endpoint, "west", name="it", accepts_server=lambda *_: True, within=0.5)
    assert any("unencrypted" in problem.message for problem in list_endpoint_problems(endpoint, "west"))
    monkeypatch.setenv(PLAINTEXT, "1")
    assert not any("unencrypted" in problem.message for problem in list_endpoint_problems(endpoint, "west"))


@pytest.mark.parametrize(
    "endpoint",
    [
        login("nats://127.0.0.1:4222", "nats://localhost", "nats://[::1]:4222", "ws://127.1.2.3"),
        Endpoint(urls=(FAR,)),
        login("tls://nats.example.net"),
        login("wss://nats.example.net"),
        login(FAR, tls_ca=CA),
    ],
    ids=["this machine", "no credentials", "tls", "wss", "a CA"],
)
def test_what_is_encrypted_or_stays_on_this_machine_or_is_no_secret_may_be_sent(endpoint: Endpoint) -> None:
    assert list_endpoint_problems(endpoint, "west") == []


def test_a_topology_reads_its_own_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VSTREAM_WEST", "NATS_PASSWORD", "AWS_SECRET", "OPS_WEST"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.delenv("VSTREAM_ALLOW_ENV", raising=False)
    assert read_secret_variable("VSTREAM_WEST", "west") == read_secret_variable("NATS_PASSWORD", "west") == SECRET
    forbidden: list[str | None] = ["AWS_SECRET", "OPS_WEST", "PATH", "", None]
    for variable in forbidden:
        with pytest.raises(VstreamError, match=r"the environment variable .* may not be read"):
            read_secret_variable(variable, "west")


def test_whoever_runs_vstream_allows_more_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VSTREAM_ALLOW_ENV", "CI_PASSWORD, OPS_*")
    for name in ("CI_PASSWORD", "OPS_WEST", "AWS_SECRET", "CI_PASSWORD_2"):
        monkeypatch.setenv(name, SECRET)
    assert read_secret_variable("CI_PASSWORD", "west") == read_secret_variable("OPS_WEST", "west") == SECRET
    for name in ("AWS_SECRET", "CI_PASSWORD_2"):
        with pytest.raises(VstreamError, match="may not be read"):
            read_secret_variable(name, "west")


@pytest.mark.parametrize("shape", ["{}/evil", "../evil", "a/../../evil", ".evil", "..\\evil"])
def test_a_context_is_a_name_and_never_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "nats" / "context").mkdir(parents=True)
    for place in (tmp_path / "evil.json", tmp_path / "config" / "nats" / "evil.json"):
        place.write_text(json.dumps({"url": "nats://127.0.0.1:1", "password": SECRET}))
    with pytest.raises(VstreamError, match="not the name of a nats CLI context"):
        resolve_context(Endpoint(context=shape.format(tmp_path)))


@pytest.mark.parametrize(
    "endless",
    [b"MSG a 1 4294967296\r\n" + b"x" * 65_536, b"INFO " + b"x" * 65_536],
    ids=["a message of 4 GiB", "a line without end"],
)
async def test_a_message_without_end_is_not_kept(endless: bytes) -> None:
    async with Server().open() as server:
        connection = await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=60)
        server.endless = endless
        with pytest.raises(NotReachableError):
            await connection.request("x", timeout=1)
        buffered = len(connection.client._ps.buf)
        await connection.close()
        assert buffered < 4 * 1024 * 1024


async def test_a_first_line_without_end_is_an_error_and_no_traceback() -> None:
    async with Server(noise="x" * 10_000_000).open() as server:
        with pytest.raises(NotReachableError):
            await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=2)


@pytest.mark.parametrize(
    "line",
    [
        b"INFO null\r\n",
        b"INFO {\r\n",
        b"INFO [1]\r\n",
        b'INFO {"connect_urls": 5}\r\n',
        b"MSG x y z\r\n",
        b"\xff\r\n",
        b"HMSG x 1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
    ],
)
async def test_a_line_that_is_not_the_protocol_is_an_error_and_no_traceback(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with Server().open() as server:
        connection = await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=60)
        server.endless = line * 1000
        with pytest.raises(NotReachableError):
            await connection.request("x", timeout=0.5)
        await connection.close()
    assert caplog.records == []


@pytest.mark.parametrize("info", [{"max_payload": {}}, {"auth_required": "no"}, {"connect_urls": [1]}, {"version": 2}])
async def test_a_first_line_with_values_of_other_types_is_refused(info: dict[str, object]) -> None:
    async with Server(**info).open() as server:
        with pytest.raises(NotReachableError, match="INFO"):
            await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=2)


async def test_a_line_of_spaces_takes_no_time() -> None:
    async with Server().open() as server:
        connection = await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=60)
        server.endless = b"INFO" + b" " * 60_000 + b"\r\n"
        began = time.monotonic()
        with pytest.raises(NotReachableError):
            await connection.request("x", timeout=0.5)
        await connection.close()
        assert time.monotonic() - began < 10


async def test_a_connection_that_is_lost_with_something_unsent_can_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Server().open() as server:
        connection = await open_connection(Endpoint(urls=(f"nats://{server.url}",)), "west", timeout=60)
        client = connection.client
        assert client._transport is not None
        lost = [ConnectionResetError("Connection lost")]
        drain = client._transport.drain

        async def fail() -> None:
            client._pending_data_size = 0
            if lost:
                raise lost.pop()
            await drain()  # type: ignore[no-untyped-call]

        monkeypatch.setattr(client._transport, "drain", fail)
        client._pending, client._pending_data_size = [b"PING\r\n"], 6
        await connection.close()
        assert client.is_closed
        assert not lost
        assert client._subs == {}


class Answers:
    """A connection that answers every request with the same."""

    region = "west"

    def __init__(self, **answer: object) -> None:
        self._answer = answer
        self.asked = 0

    async def request_json(self, *_: object, **__: object) -> dict[str, object]:
        self.asked += 1
        return self._answer


STREAM = {"config": {"name": "foo"}, "created": "", "state": {}}
MALFORMED: dict[str, dict[str, object]] = {
    "total of a million million": {"total": 10**12, "limit": 256, "streams": []},
    "negative total": {"total": -1, "streams": []},
    "total that is a list": {"total": [], "streams": []},
    "limit that is an object": {"total": 1, "limit": {}, "streams": []},
    "streams that are a text": {"total": 1, "streams": "foo"},
    "stream that is a number": {"total": 1, "streams": [1]},
    "no configuration": {"total": 1, "streams": [{}]},
    "state that is a list": {"total": 1, "streams": [{**STREAM, "state": [1]}]},
    "age that is a text": {"total": 1, "streams": [{"config": {"name": "foo", "max_age": "1h"}}]},
    "subjects that are a number": {"total": 1, "streams": [{"config": {"name": "foo", "subjects": 1}}]},
    "source without a form": {"total": 1, "streams": [{"config": {"name": "foo", "sources": ["a"]}}]},
    "metadata of numbers": {"total": 1, "streams": [{"config": {"name": "foo", "metadata": {"a": 1}}}]},
    "name that is a list": {"total": 1, "streams": [{"config": {"name": []}}]},
    "no name": {"total": 1, "streams": [{"config": {}}]},
    "name that is null": {"total": 1, "streams": [{"config": {"name": None}}]},
    "source without a name": {
        "total": 1,
        "streams": [{"config": {"name": "foo", "sources": [{"filter_subject": "a"}]}}],
    },
    "mirror whose name is null": {
        "total": 1,
        "streams": [{"config": {"name": "foo", "mirror": {"name": None, "a": 1}}}],
    },
    "source that is null": {"total": 1, "streams": [{"config": {"name": "foo", "sources": [None]}}]},
    "error that is a text": {"error": "no"},
    "error with a text as its code": {"error": {"code": "no"}},
}


@pytest.mark.parametrize("answer", MALFORMED.values(), ids=MALFORMED)
async def test_an_answer_with_values_of_other_types_is_one_error(answer: dict[str, object]) -> None:
    connection = Answers(**answer)
    with pytest.raises(MalformedAnswerError, match=r"the answer of `\$JS\.API\.STREAM\.LIST` cannot be used"):
        await JetStreamAdmin(connection).streams()  # type: ignore[arg-type]
    assert connection.asked == 1


STATE = {"messages": 1, "first_seq": 1, "last_seq": 1}


@pytest.mark.parametrize(
    "answer",
    [
        {"config": 5, "state": STATE},
        {"state": STATE},
        {"config": {"name": "foo"}, "state": []},
        {"config": {"name": "foo"}, "state": {**STATE, "last_seq": "1"}},
        {"config": {"name": "foo"}},
    ],
)
async def test_what_a_server_says_of_one_stream_has_a_configuration_and_numbers(answer: dict[str, object]) -> None:
    with pytest.raises(MalformedAnswerError, match=r"the answer of `STREAM\.INFO foo` cannot be used"):
        await JetStreamAdmin(Answers(**answer)).info("foo")  # type: ignore[arg-type]


async def test_a_server_that_announces_more_than_it_has_is_not_asked_for_all_of_it() -> None:
    connection = Answers(total=1_000_000, limit=1, streams=[])
    assert await JetStreamAdmin(connection).streams() == ({}, ())  # type: ignore[arg-type]
    assert connection.asked < 20


OFFLINE = {"name": "east", "raft_group": "S-R1F-1", "replicas": [{"name": "west-1", "offline": True}]}


async def test_what_servers_list_for_one_that_was_ended_did_not_answer() -> None:
    """They list its streams with zeros, and consumers without names (seen after SIGUSR2 on 2.15.1)."""
    led = {**STREAM, "cluster": {"name": "east", "leader": "east-1"}}
    gone = {"config": {"name": "bar"}, "state": {"messages": 0}, "cluster": OFFLINE}
    connection = Answers(total=2, streams=[led, gone], missing=["bar"])
    streams, missing = await JetStreamAdmin(connection).streams()  # type: ignore[arg-type]
    assert ([*streams], missing) == (["foo"], ("bar",))
    consumer = {"name": "", "config": {"durable_name": "billing"}, "cluster": OFFLINE}
    connection = Answers(total=1, consumers=[consumer], missing=["billing"])
    assert await JetStreamAdmin(connection).consumers("bar") == ({}, ("billing",))  # type: ignore[arg-type]


@asynccontextmanager
async def http_server(body: bytes, *, is_endless: bool = False, status: bytes = b"200 OK") -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.0 " + status + b"\r\n\r\n" + body)
        try:
            while is_endless:
                writer.write(b" " * 1_000_000)
                await writer.drain()
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b'{"server_name": 1, "version": [], "config_load_time": {}}',
        b'{"server_name": "a", "version": "2", "config_load_time": "", "cluster": "x"}',
        b'{"server_name": "a", "version": "2", "config_load_time": "", "feature_flags": [1]}',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"server_name": "\\ud800"}',
        b'{"server_name": NaN}',
    ],
)
async def test_what_monitoring_says_with_other_types_is_one_error(body: bytes) -> None:
    async with http_server(body) as url:
        with pytest.raises(MalformedAnswerError):
            await monitoring.read_varz(url)


async def test_a_page_without_end_is_given_up() -> None:
    async with http_server(b"{", is_endless=True) as url:
        with pytest.raises(NotReachableError, match=f"longer than {MOST_JSON:,} bytes"):
            await monitoring.read_varz(url, timeout=60)


async def test_long_pages_of_many_servers_are_read_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many are asked at once: together they take no more than is bearable, and each is read, or refused for its own length."""
    monkeypatch.setattr(monitoring, "MAX_AT_ONCE", MOST_JSON)
    version, most = b'{"server_name": "a", "version": "2", "config_load_time": ""', 0

    async def ask(url: str) -> str:
        try:
            return (await monitoring.read_varz(url, timeout=60)).version
        except NotReachableError as error:
            return str(error)

    async with AsyncExitStack() as stack:
        endless = [await stack.enter_async_context(http_server(b"{", is_endless=True)) for _ in range(4)]
        page = version + b" " * (MOST_JSON // 2) + b"}"
        long = [await stack.enter_async_context(http_server(page)) for _ in range(4)]
        asking = asyncio.gather(*map(ask, (*endless, *long)))
        while not asking.done():
            await asyncio.sleep(0)
            most = max(most, sum(monitoring._sizes.values()))
    answers = await asking
    assert all(f"longer than {MOST_JSON:,} bytes" in text for text in answers[:4])
    assert answers[4:] == ["2"] * 4
    assert MOST_JSON < most < 2.1 * MOST_JSON
    assert not monitoring._sizes


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [' + b"[]," * 1_000_000 + b"[]]}",
        b'{"a": [' + b'{"b":1},' * 600_000 + b"{}]}",
        '{"a": "\N{GRINNING FACE}'.encode() + b"x" * MOST_JSON + b'"}',
    ],
    ids=["lists", "objects", "wide text"],
)
def test_an_answer_takes_no_more_memory_than_its_length_says(body: bytes) -> None:
    """An empty list is three bytes of an answer, and 64 of memory; a text with one wide character takes four times its length."""
    with pytest.raises(MalformedAnswerError, match="it has more than"):
        decode_object(body, "west")


def test_the_longest_answers_of_large_systems_are_read() -> None:
    """As /jsz lists them, and a message of 48 MB in base64, which servers give by `STREAM.MSG.GET`."""
    stream = b'{"name": "foo-read-west", "created": "2026-01-01T00:00:00Z", "cluster": {"leader": "west-1"}},\n'
    assert len(decode_object(b'{"a": [' + stream * 150_000 + b"{}]}", "west")["a"]) == 150_001
    assert decode_object(b'{"a": "' + b"x" * (60 * 1024 * 1024) + b'"}', "west")


async def test_a_server_lists_twenty_thousand_streams() -> None:
    """2.8 kB each, as /jsz has them with three sources: more than is taken of any other answer."""
    stream = json.dumps({"name": "foo", "fields": [f"{number:034}" for number in range(74)]}).encode()
    body = b'{"a": [' + stream + (b"," + stream) * 19_999 + b"]}"
    assert len(body) > 56_000_000
    async with http_server(body) as url:
        assert len((await monitoring.get_large(url, "/jsz", 60))["a"]) == 20_000
        with pytest.raises(NotReachableError, match="longer than"):
            await monitoring.get(url, "/jsz", 60)


async def test_what_somebody_else_answers_by_http_is_not_repeated() -> None:
    """A topology in a pull request says who is asked: perhaps a service that tells secrets to this machine alone."""
    async with http_server(b"the-token-of-this-machine", status=b"403 Forbidden") as address:
        for ask in (monitoring.read_varz, monitoring.find_health_problem, monitoring.list_health_problems):
            with pytest.raises(ServerError, match="HTTP status 403") as caught:
                await ask(address)
            assert "the-token" not in str(caught.value)
