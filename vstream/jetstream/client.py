"""nats-py made safe: no clear text where TLS is required, bounded lines, closed sockets. Deadlines are in `connection`."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import nats.errors
from nats.aio import transport
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol import parser
from nats.protocol.parser import AWAITING_MSG_PAYLOAD, Parser

from vstream.errors import NOT_PERMITTED, MalformedAnswerError, NoRespondersError, NotPermittedError, VstreamError
from vstream.jetstream.answers import MAX_PAYLOAD_BYTES, REFUSED, UNREADABLE, require_info
from vstream.topology.model import Endpoint

MAX_CONTROL_LINE_BYTES = 1024 * 1024
"""Longest protocol line in bytes. The longest lines list the addresses of all servers."""
_MAX_REFUSALS = 1000
_INSIST_SECONDS = 0.1
"""Seconds until a task is cancelled again: Python 3.11 loses a cancellation at the moment a socket connects."""

# The library's own takes the square of the number of spaces, which a server chooses: 100,000 of them take minutes.
parser.INFO_RE = re.compile(rb"\AINFO\s+([^\s][^\r\n]*)\r\n")
_UNREADABLE = (MalformedAnswerError, *UNREADABLE)
"""What the library raises for protocol lines with values that it does not expect."""


class RefusedForGoodError(nats.errors.Error):
    """The server refused in a way that another attempt cannot change."""


class _BoundedParser(Parser):
    """The library's parser, which otherwise keeps whatever a server sends, of any size."""

    async def parse(self, data: bytes = b"") -> None:
        try:
            await super().parse(data)
        except _UNREADABLE as error:
            # The library logs a traceback, and waits for ever.
            raise ProtocolError("nats: the server does not speak the NATS protocol") from error
        needed = self.needed if self.state == AWAITING_MSG_PAYLOAD else len(self.buf)
        most = MAX_PAYLOAD_BYTES if self.state == AWAITING_MSG_PAYLOAD else MAX_CONTROL_LINE_BYTES
        if needed > most:
            raise ProtocolError(f"nats: the server sends {needed:,} bytes at once; {most:,} are allowed")


class TidyClient(Client):
    """
    The library's client, which sends nothing in clear text where *endpoint* asks for TLS, and closes every socket.

    The library starts TLS only if the server asks for it, so anyone in between could remove it. It also sends its
    credentials to every server that another server names.

    It forgets the socket of a reconnect that failed half way. And on close it does not always wait for the attempt in
    progress, which then continues, or ends with an exception that nobody catches.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        if any(url.lower().startswith(("ws:", "wss:")) for url in endpoint.urls):
            with suppress(ImportError):  # then the library says so when it connects
                vars(transport).update(aiohttp=import_module("aiohttp"), multidict=import_module("multidict"))
        super().__init__()
        self._ps = _BoundedParser(self)
        self._connecting_to: object = None
        self._needs_tls = endpoint.requires_tls
        self._has_login = endpoint.has_login
        self.info: dict[str, Any] = {}
        """The first line of the last server that sent one with values of the right types. The library keeps any."""
        self.refusals: list[str] = []
        """What the server has not let the user publish or subscribe to, as the server spells it."""
        self._expected: WeakKeyDictionary[asyncio.Future[Any], str] = WeakKeyDictionary()
        self.is_mapped: Callable[[str], bool] = lambda _subject: False
        """Whether a mapping rule is to take a subject. Servers map first: where one refuses that name, it has no such rule."""

    def expect(self, subject: str, answer: asyncio.Future[Any]) -> None:
        """Watch for *answer* after a request to *subject*: fail it as soon as the server refuses that subject."""
        self._expected[answer] = subject

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, Any] | None = None
    ) -> None:
        """Like the library's `publish`, which keeps a future for the answer to each request."""
        answer = self._resp_map.get(reply.rpartition(".")[2]) if reply and self._resp_map else None
        if answer is not None:
            self.expect(subject, answer)
        await super().publish(subject, payload, reply, headers)

    def _build_message(self, sid: int, subject: bytes, *parts: Any) -> Any:
        """Like the library's, which ends the connection at a subject that is not UTF-8: here, such bytes are escaped."""
        return super()._build_message(sid, subject.decode(errors="backslashreplace").encode(), *parts)

    async def _process_err(self, err_msg: str) -> None:
        if refused := REFUSED.search(err_msg):
            if len(self.refusals) < _MAX_REFUSALS:
                self.refusals.append(f"`{refused[2]}`")
                self._remember_refusal(*refused.groups())
            self._fail_refused(*refused.groups())
        await super()._process_err(err_msg)

    def _remember_refusal(self, action: str, refused: str) -> None:
        exact = next((subject for subject in self._expected.values() if subject.lower() == refused), "")
        verb = "publish" if action == "publish" else "subscribe"
        if verb == "subscribe" or not self.is_mapped(exact):
            NOT_PERMITTED[f"the user may not {verb} to `{exact or refused}`"] = None

    def _fail_refused(self, action: str, refused: str) -> None:
        """End the waiting for what the server has refused. It names subjects as it has mapped them."""
        waiting = {answer: subject for answer, subject in self._expected.items() if not answer.done()}
        if action == "publish":
            exact = {answer: subject for answer, subject in waiting.items() if subject.lower() == refused}
            mapped = {answer: subject for answer, subject in waiting.items() if refused.endswith(subject.lower())}
            waiting = exact or mapped or (waiting if len(waiting) == 1 else {})
        for answer, subject in waiting.items():
            error: VstreamError = NotPermittedError(f"the user may not publish to `{subject}`")
            if action != "publish":
                subscription = f"the user may not subscribe to `{refused}`"
                error = NotPermittedError(f"{subscription}, where the answer from `{subject}` would come")
            elif subject.lower() == refused and self.is_mapped(subject):
                error = NoRespondersError(f"server `{self.info.get('server_name')}` has no rule that maps `{subject}`")
            answer.set_exception(error)

    async def _process_connect_init(self) -> None:
        self._connecting_to = self._transport
        try:
            await super()._process_connect_init()
            self._connecting_to = None
        except ssl.SSLError:
            raise  # of a wrong certificate it is a ValueError
        except _UNREADABLE as error:
            # Its first line is endless, or has values of other types.
            raise RefusedForGoodError(f"what answers is not a nats-server: {error}") from error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        info = require_info(info, "INFO")
        if initial_connection:
            self._server_info = self.info = info
        if self._has_login and not self._needs_tls:
            # Nothing proves that the servers it names are the ones that the topology means.
            info = {**info, "connect_urls": []}
        await super()._process_info(info, initial_connection)

    async def _attempt_reconnect(self) -> None:
        # An attempt that was cancelled ends the waiting for its successor, which then raises this as its last act.
        with suppress(asyncio.InvalidStateError):
            await super()._attempt_reconnect()

    async def _process_pong(self) -> None:
        """A late PONG, whose waiter has given up, would end the library's reading with a traceback."""
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    def _connect_command(self) -> bytes:
        # The last moment before anything is sent, credentials included.
        if self._needs_tls and not _is_encrypted(self._transport):
            raise RefusedForGoodError("the server does not use TLS, but `connect` requires it; nothing was sent")
        return bytes(super()._connect_command())

    async def _select_next_server(self) -> None:
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._select_next_server()

    async def end_waiting(self) -> None:
        """Nothing that is waited for comes any more: the connection is closed."""
        for answer in [answer for answer in self._expected if not answer.done()]:
            answer.set_exception(nats.errors.ConnectionClosedError())

    async def close(self) -> None:
        """Close the connection, and return once nothing of it remains."""
        while (attempt := self._reconnection_task) is not None and attempt is not asyncio.current_task():
            if attempt.done():
                _ = attempt.cancelled() or attempt.exception()  # asyncio logs what nobody has looked at
                break
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=_INSIST_SECONDS)
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None and self._transport is self._connecting_to:
            # Nobody tells a stream that its socket is closed once TLS has begun on it: closing would wait for ever.
            with suppress(AttributeError):  # Python 3.11.2 raises it where TLS has been closed twice
                writer.transport.abort()
            self._transport = None
        try:
            try:
                await super().close()
            except OSError:
                # The connection was lost before all was sent. What closing does after that is still to be done.
                self._status = Client.DISCONNECTED
                await super().close()
        except asyncio.CancelledError:
            # An attempt that was cancelled while it waited for its socket to close has cancelled all such waiting.
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise


def _is_encrypted(transport: Any) -> bool:
    """Whether what the library's *transport* sends is encrypted: it says so of a WebSocket alone."""
    writer = getattr(transport, "_io_writer", None)
    if writer is None:
        return bool(getattr(transport, "_using_tls", False))
    return writer.get_extra_info("ssl_object") is not None
