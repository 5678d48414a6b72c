"""
A connection for a workload: it reconnects for ever, and never sends anything late.

While it is down, publishes are refused at once. The client library would keep them and send them after the reconnect,
which turns an outage into messages that nobody can tell from those that were sent in time.

It connects only to servers that its owner knows: while a server is away, another program may get its port.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from vstream.errors import NotConnectedError, NotReachableError
from vstream.jetstream.client import TidyClient
from vstream.jetstream.connection import Connection, Reply, choose_hint, describe_reason, without_secrets
from vstream.jetstream.endpoints import make_connection_options, resolve_context
from vstream.topology.model import Endpoint

AcceptsServer = Callable[[str, str], bool]
"""Whether a server is one of ours, by its name and its id."""

SERVER_TIMEOUT = 1
"""Seconds for one server. A paused server accepts the connection and says nothing."""
RETURN_PAUSE_SECONDS = 0.1
"""Seconds between two attempts at one server."""
PING_SECONDS = 1
MAX_OUTSTANDING_PINGS = 2
"""Unanswered pings after which a server is given up: after 3 s."""


class _Client(TidyClient):
    """The library's client, without what it keeps of a connection that has broken, and for the servers that it accepts."""

    def __init__(self, endpoint: Endpoint, accepts_server: AcceptsServer, *, is_rehearsal: bool) -> None:
        super().__init__(endpoint)
        self._is_rehearsal = is_rehearsal
        self._accepts_server = accepts_server
        self.stranger: str | None = None
        """The last server that was not one of ours."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        # The first thing that a server says, before anything is sent to it.
        name, server_id = str(info.get("server_name")), str(info.get("server_id"))
        if initial_connection and not self._accepts_server(name, server_id):
            self.stranger = name
            raise nats.errors.Error(f"server `{name}` is a stranger")
        await super()._process_info(info, initial_connection)

    def _remember_refusal(self, action: str, refused: str) -> None:
        if not self._is_rehearsal:  # whose clients are refused what they should be
            super()._remember_refusal(action, refused)

    async def _process_op_err(self, e: Exception) -> None:
        if self.is_connected:
            # Closing waits until everything is written, which a paused server can hold up for ever.
            writer = getattr(self._transport, "_io_writer", None)
            if writer is not None:
                writer.transport.abort()
            self._pending = []
            self._pending_data_size = 0
        await super()._process_op_err(e)


class ReconnectingConnection(Connection):
    """See the module. Made by `open_reconnecting`."""

    def __init__(self, client: _Client, region: str) -> None:
        super().__init__(client, region)
        self._steady = client

    async def publish(
        self, subject: str, payload: bytes, *, reply: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send one message. Raises NotConnectedError, with nothing sent, while the connection is down."""
        self._require_connection()
        try:
            await self._steady.publish(subject, payload, reply=reply, headers=dict(headers) if headers else None)
        except nats.errors.Error as error:
            raise NotConnectedError(f"region `{self.region}`: {error}") from error

    async def subscribe(self, subject: str, on_message: Callable[[Reply, str], Awaitable[None]]) -> None:
        """Call *on_message* with payload and subject of each message on *subject*, also after reconnects."""

        async def call(message: Msg) -> None:
            await on_message(Reply.of(message), message.subject)

        await self._steady.subscribe(subject, cb=call)

    def inbox(self) -> str:
        """A subject prefix of this client, without wildcards; answers arrive below it."""
        return str(self._steady.new_inbox())

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = SERVER_TIMEOUT,
    ) -> Reply:
        """Like `Connection.request`; raises NotConnectedError, with nothing sent, while the connection is down."""
        self._require_connection()
        return await super().request(subject, payload, headers=headers, timeout=timeout)

    def _require_connection(self) -> None:
        if not self.is_connected:
            raise NotConnectedError("not connected")


async def open_reconnecting(
    endpoint: Endpoint,
    region: str,
    *,
    name: str,
    accepts_server: AcceptsServer,
    within: float,
    is_rehearsal: bool = True,
) -> ReconnectingConnection:
    """
    Connect to *region* with client name *name*, using only servers for whose name and id *accepts_server* is true.

    Only the first connection has a deadline. Raises NotReachableError after *within* seconds, and VstreamError if the
    endpoint itself is wrong.
    """
    endpoint = resolve_context(endpoint) if endpoint.context else endpoint
    last: Exception | None = None
    has_connected, deadline = False, asyncio.get_running_loop().time() + within

    async def remember(error: Exception) -> None:
        # The library logs a traceback where nobody listens.
        nonlocal last
        if last is None or not isinstance(error, ConnectionResetError):
            last = error  # of a server that closes at once, a reset may arrive instead of its reason
        # Before Python 3.12, an attempt that fails at the deadline hides it, and the library would go on for ever.
        if not has_connected and asyncio.get_running_loop().time() > deadline:
            raise error

    options = make_connection_options(endpoint, region)
    client = _Client(endpoint, accepts_server, is_rehearsal=is_rehearsal)
    try:
        async with asyncio.timeout(within):
            await client.connect(
                name=name,
                error_cb=remember,
                connect_timeout=SERVER_TIMEOUT,
                reconnect_time_wait=RETURN_PAUSE_SECONDS,  # type: ignore[arg-type]  # it only sleeps so long
                max_reconnect_attempts=-1,
                ping_interval=PING_SECONDS,
                max_outstanding_pings=MAX_OUTSTANDING_PINGS,
                **options,
            )
        has_connected = True
    except BaseException as error:
        await client.close()  # also if this was cancelled
        if not isinstance(error, (nats.errors.Error, OSError)):  # timeouts are OSErrors
            raise
        why, stranger = describe_reason(last or error), client.stranger
        raise NotReachableError(
            f"region `{region}` cannot be reached at {', '.join(map(without_secrets, endpoint.urls))} within {within:g} s: {why}",
            hint=f"server `{stranger}` at that address does not belong to this lab" if stranger else choose_hint(why),
        ) from error
    return ReconnectingConnection(client, region)
