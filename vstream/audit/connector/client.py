"""
A small NATS client for reading streams in bulk: blocking, one socket, no threads.

A general client passes every message to a callback, which costs twenty times as much as
parsing it. Here, the reader gets whole buffers (`receive`) and parses them in one pass;
`request` is for everything that is not bulk data.
"""

from __future__ import annotations

import json
import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from vstream.audit.connector.login import Login, load_login, split_address
from vstream.audit.connector.values import Access
from vstream.credentials import check_plaintext
from vstream.errors import NoRespondersError, NotPermittedError, NotReachableError, VstreamError
from vstream.jetstream.answers import MAX_PAYLOAD_BYTES, REFUSED, api_error, decode_object, parse_sequence, require_info

MIN_BUFFER_BYTES = 1 << 20
MIN_BATCH_BYTES = 512 << 10
"""Minimum batch size worth parsing, in bytes."""
_MOMENT_SECONDS = 0.002
DEFAULT_PORT = 4222
CRLF = b"\r\n"
_REPLY_SID = 1
"""The subscription id for answers to requests; `subscribe` uses the following ids."""
_MAX_PARALLEL_REQUESTS = 128
_NO_RESPONDERS_STATUS = b"NATS/1.0 503"
_WORD_COUNTS = {b"MSG": (4, 5), b"HMSG": (5, 6)}
"""Number of words in the first line of a message, without and with a reply subject."""


class RetryableError(NotReachableError):
    """Data read so far is valid; retry the rest, preferably on another server."""


class DisconnectedError(RetryableError):
    """The connection broke."""


class SilentServerError(DisconnectedError):
    """Nothing was received within the timeout."""


class Client:
    """One connection to a server, created by `connect`."""

    def __init__(self, server: str, connected_socket: socket.socket, timeout: float, inbox: str) -> None:
        self.server = server
        self.info: dict[str, Any] = {}
        self._socket = connected_socket
        self._timeout = timeout
        self._rest = b""
        self._buffer = bytearray()
        self.inbox = f"{inbox}.{secrets.token_hex(11)}"
        self._sids = _REPLY_SID
        self._asked = 0

    @property
    def server_version(self) -> str:
        """The version of the server, such as `2.15.1`."""
        return str(self.info.get("version", "0.0.0"))

    def close(self) -> None:
        """Close the connection, unless it is closed already."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send protocol lines. Raises DisconnectedError if the connection broke."""
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise DisconnectedError(f"{self.server}: {_reason(error)}") from error

    def receive(self, *, until: float | None = None, in_bulk: bool = False) -> bytes:
        """
        The received bytes, at least one; bytes set aside with `keep` come first.

        *in_bulk* waits a moment for more if there are few bytes: per message, a thousand messages
        at a time cost half as much as ten.

        Raises SilentServerError if nothing arrives within the timeout, or *until* a time of
        the monotonic clock; DisconnectedError if the connection is closed.
        """
        begin = len(self._rest)
        if len(self._buffer) < begin + MIN_BUFFER_BYTES:
            self._buffer = bytearray(2 * (begin + MIN_BUFFER_BYTES))
        self._buffer[:begin] = self._rest
        end = begin + self._receive_into(
            begin, self._timeout if until is None else max(0.001, until - time.monotonic())
        )
        self._rest = b""
        if in_bulk:
            with suppress(SilentServerError, DisconnectedError):
                # Whoever reads next is told if the connection broke.
                while end - begin < MIN_BATCH_BYTES:
                    end += self._receive_into(end, _MOMENT_SECONDS)
        return bytes(memoryview(self._buffer)[:end])

    def _receive_into(self, position: int, timeout: float) -> int:
        """Receive bytes into the buffer at *position*, and return their number."""
        try:
            self._socket.settimeout(timeout)
            length = self._socket.recv_into(memoryview(self._buffer)[position:])
        except TimeoutError:
            raise SilentServerError(f"{self.server}: nothing received for {timeout:g} s") from None
        except OSError as error:
            raise DisconnectedError(f"{self.server}: {_reason(error)}") from error
        finally:
            self._socket.settimeout(self._timeout)
        if not length:
            raise DisconnectedError(f"{self.server} has closed the connection")
        return length

    def keep(self, rest: bytes) -> None:
        """Set aside the beginning of an incomplete message. Raises DisconnectedError if it is too long."""
        if len(rest) > MAX_PAYLOAD_BYTES:
            raise DisconnectedError(f"{self.server} sends more than {MAX_PAYLOAD_BYTES:,} bytes at once")
        self._rest = rest

    def subscribe(self, *, several: bool = False) -> str:
        """Subscribe to a new inbox and return its subject; with *several*, to all subjects with one more token."""
        self._sids += 1
        inbox = f"{self.inbox}.{self._sids}.in"
        self.send(b"SUB %s%s %d\r\n" % (inbox.encode(), b".*" if several else b"", self._sids))
        return inbox

    def publish(self, subject: str, payload: bytes, *, reply: str) -> None:
        """Publish *payload* with a reply subject."""
        self.send(b"PUB %s %s %d\r\n%s\r\n" % (subject.encode(), reply.encode(), len(payload), payload))

    def request(self, subject: str, payload: bytes = b"") -> bytes:
        """Send one request and return its answer. Raises NoRespondersError, or NotReachableError after the timeout."""
        answer = self.request_many([(subject, payload)])[0]
        if isinstance(answer, VstreamError):
            raise answer
        return answer

    def request_many(self, asked: Sequence[tuple[str, bytes]]) -> list[bytes | VstreamError]:
        """
        Send many requests (subject, payload), several at a time, and return the answers in the same order.

        A request without an answer gets the error instead: NoRespondersError, or NotReachableError
        after the timeout. Raises DisconnectedError if the connection broke.
        """
        received: dict[int, bytes | VstreamError] = {}
        base, sent = self._asked, 0
        self._asked += len(asked)
        deadline = time.monotonic() + self._timeout
        while len(received) < len(asked):
            while sent < len(asked) and sent - len(received) < _MAX_PARALLEL_REQUESTS:
                subject, payload = asked[sent]
                self.publish(subject, payload, reply=f"{self.inbox}.{base + sent}")
                sent += 1
            try:
                replies = self.receive_replies(until=deadline)
            except SilentServerError:
                for number in range(sent):
                    why = NotReachableError(
                        f"{self.server}: no answer within {self._timeout:g} s on `{asked[number][0]}`"
                    )
                    received.setdefault(number, why)
                continue
            for number, message in replies:
                if 0 <= number - base < len(asked):
                    received[number - base] = message.payload
                    if message.has_no_responders:
                        received[number - base] = NoRespondersError(
                            f"nobody listens on `{asked[number - base][0]}` at {self.server}"
                        )
                    deadline = time.monotonic() + self._timeout
        return [received[number] for number in range(len(asked))]

    def receive_replies(self, *, until: float) -> list[tuple[int, Message]]:
        """The messages received on `inbox.NUMBER`, by number. Raises as `receive` and `handle_control`."""
        replies = []
        for message in self.receive_messages(until=until):
            self.handle_control(message)
            number = parse_sequence(message.subject.removeprefix(f"{self.inbox}."))
            if number is not None:
                replies.append((number, message))
        return replies

    def receive_messages(self, *, until: float | None = None) -> list[Message]:
        """The messages and other protocol lines that have come whole, maybe none. Raises as `receive`."""
        data, position, messages = self.receive(until=until), 0, []
        while (message := next_message(data, position)) is not None:
            messages.append(message)
            position = message.end
        self.keep(data[position:])
        return messages

    def handle_control(self, message: Message) -> None:
        """
        Handle a protocol line that is not a message, such as PING.

        Raises DisconnectedError for an error that ends the connection, NotPermittedError for a forbidden subject.
        """
        if message.verb == b"PING":
            self.send(b"PONG\r\n")
        elif message.verb == b"-ERR":
            if refused := REFUSED.search(message.line):
                action = "publish" if refused[1].lower() == "publish" else "subscribe"
                raise NotPermittedError(f"the user may not {action} to `{refused[2]}`")
            raise DisconnectedError(f"{self.server} says {message.line.removeprefix('-ERR ')}")

    def handshake(self, who: Login, *, tls: bool) -> None:
        """Log in and wait until the server has accepted the login."""
        line, _, rest = self._first_line()
        if not line.startswith(b"INFO "):
            raise VstreamError(f"{self.server} is not a NATS server: it says {line[:40]!r}")
        self.info = require_info(decode_object(line[5:], self.server), self.server)
        if tls and not (self.info.get("tls_required") or self.info.get("tls_available")):
            raise VstreamError(
                f"{self.server} does not offer TLS: nothing was sent in clear",
                hint="a `tls://` address, and tls_ca or tls_cert, ask for TLS",
            )
        if tls or self.info.get("tls_required"):
            context = who.tls or ssl.create_default_context()
            host = self.server.rpartition(":")[0].strip("[]")
            self._socket = context.wrap_socket(self._socket, server_hostname=host)
            rest = b""
        self.keep(rest)
        options = {
            "verbose": False,
            "pedantic": False,
            "lang": "python",
            "version": "1",
            "name": "vstream-audit",
            "protocol": 1,
            "headers": True,
            "no_responders": True,
            "tls_required": isinstance(self._socket, ssl.SSLSocket),
            **who.options(self.info.get("nonce")),
        }
        self.send(
            b"CONNECT %s\r\nSUB %s.* %d\r\nPING\r\n" % (json.dumps(options).encode(), self.inbox.encode(), _REPLY_SID)
        )
        is_accepted = False
        while not is_accepted:
            for message in self.receive_messages():
                if message.verb == b"-ERR":
                    raise VstreamError(
                        f"{self.server} refuses the connection: {message.line.removeprefix('-ERR ')}",
                        hint="are the credentials right, and present on the machine that reads?",
                    )
                self.handle_control(message)
                is_accepted |= message.verb == b"PONG"

    def _first_line(self) -> tuple[bytes, bytes, bytes]:
        data = self.receive()
        while CRLF not in data:
            self.keep(data)
            data = self.receive()
        return data.partition(CRLF)


class Message:
    """
    One message, or another protocol line (*verb* says which).

    *headers* is the unparsed header block, empty without headers; *end* is where the next message begins.
    """

    __slots__ = ("end", "headers", "line", "payload", "reply", "sid", "subject", "verb")

    def __init__(self, line: bytes, headers: bytes, payload: bytes, end: int) -> None:
        parts = line.split()
        self.verb = parts[0].upper() if parts else b""
        self.line = line.decode(errors="replace")
        is_message = self.verb in {b"MSG", b"HMSG"}
        sizes = 2 if self.verb == b"HMSG" else 1
        self.subject = parts[1].decode(errors="replace") if is_message else ""
        self.sid = int(parts[2]) if is_message else 0
        self.reply = parts[3].decode(errors="replace") if is_message and len(parts) == 4 + sizes else ""
        self.headers = headers
        self.payload = payload
        self.end = end

    @property
    def has_no_responders(self) -> bool:
        """Whether this is the server's "no responders" answer."""
        return self.headers.startswith(_NO_RESPONDERS_STATUS)


def next_message(data: bytes, position: int) -> Message | None:
    """The message at *position* of *data*, None if it is incomplete."""
    eol = data.find(CRLF, position)
    if eol < 0:
        return None
    line = data[position:eol]
    body = eol + 2
    parts = line.split()
    verb = parts[0].upper() if parts else b""
    if verb not in _WORD_COUNTS:
        return Message(line, b"", b"", body)
    try:
        size = int(parts[-1])
        headers = int(parts[-2]) if verb == b"HMSG" else 0
        if not 0 <= headers <= size <= MAX_PAYLOAD_BYTES or len(parts) not in _WORD_COUNTS[verb]:
            raise ValueError  # noqa: TRY301 - as what int raises
        int(parts[2])
    except (ValueError, IndexError):
        raise DisconnectedError(f"the server does not speak the NATS protocol: {line[:60]!r}") from None
    end = body + size
    if len(data) < end + 2:
        return None
    start = body + headers
    return Message(line, data[body:start], data[start:end], end + 2)


@contextmanager
def connect(access: Access) -> Iterator[Client]:
    """
    Connect to the first server of *access* that accepts the connection, and close it on exit.

    Raises NotReachableError if none can be reached, VstreamError if one refuses us.
    """
    client = _open(access)
    try:
        yield client
    finally:
        client.close()


def _open(access: Access) -> Client:
    who = load_login(access)
    if not who.servers:
        raise VstreamError("no server is given", hint="option `servers`, such as nats://127.0.0.1:4222")
    endpoint = who.endpoint
    if not access.allow_plaintext:
        check_plaintext(endpoint.plaintext_hosts, "the machine that reads")
    problems: list[str] = []
    for url in who.servers:
        parsed = split_address(url)
        host, port = parsed.hostname or "", parsed.port or DEFAULT_PORT
        if parsed.scheme in {"ws", "wss"}:
            problems.append(f"{host}:{port}: an audit cannot use WebSockets: name a `nats://` or `tls://` address")
            continue
        try:
            connected_socket = socket.create_connection((host, port), timeout=access.timeout)
        except OSError as error:
            problems.append(f"{host}:{port}: {_reason(error)}")
            continue
        connected_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected_socket.settimeout(access.timeout)
        client = Client(f"{host}:{port}", connected_socket, access.timeout, who.inbox)
        try:
            client.handshake(who, tls=endpoint.requires_tls or who.tls is not None)
        except (NotReachableError, OSError) as error:
            client.close()
            problems.append(error.message if isinstance(error, VstreamError) else f"{host}:{port}: {_reason(error)}")
            continue
        except BaseException:
            client.close()
            raise
        return client
    raise NotReachableError(f"no server can be reached: {'; '.join(problems)}", hint="are they running?")


def api_request(client: Client, access: Access, name: str, body: object | None = None) -> dict[str, Any]:
    """One request to the JetStream API. Raises ServerError if the answer is an error, and as `Client.request`."""
    subject = f"{access.api_prefix}.{name}"
    payload = b"" if body is None else json.dumps(body).encode()
    return parse_api_answer(client.request(subject, payload), subject)


def parse_api_answer(answer: bytes, subject: str) -> dict[str, Any]:
    """Parse an answer of the JetStream API. Raises ServerError if it is an error, MalformedAnswerError if invalid."""
    document = decode_object(answer, subject)
    if (error := api_error(document, subject)) is not None:
        raise error
    return document


def back_off(attempt: int) -> None:
    """Wait before a retry: 0.1 s, then twice as long each time, at most 2 s."""
    time.sleep(min(2.0, 0.1 * 2**attempt))


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
