"""Connections to a region, with deadlines for requests, and vstream's errors instead of the client library's."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from socket import gaierror
from typing import Any, NoReturn

import nats
import nats.errors
from nats.aio.msg import Msg

from vstream.errors import (
    LoginRefusedError,
    NoRespondersError,
    NotPermittedError,
    NotReachableError,
    describe_system_error,
)
from vstream.jetstream.answers import api_error, decode_object
from vstream.jetstream.cancellation import insist_on_cancellation
from vstream.jetstream.client import RefusedForGoodError, TidyClient
from vstream.jetstream.endpoints import make_connection_options, resolve_context
from vstream.topology.model import Endpoint
from vstream.value_class import value_class

CONNECT_TIMEOUT = 5.0
_FOR_GOOD = (RefusedForGoodError, ssl.SSLCertVerificationError, ImportError)
"""Errors that another attempt would meet again."""
STATUS_NO_RESPONDERS = 503
_STATUS_DIGITS = 3
REQUEST_TIMEOUT = 5.0
_REPEAT_SECONDS = 1.0
_DOMAIN = re.compile(r"\$JS\.([^.]+)\.API\.")
_NOT_THERE = "are the servers running (`vstream lab up` starts those of a lab), and is `connect` right?"
_HINTS = {
    "does not use TLS": "serve TLS there; without it, `connect` has `nats://` or `ws://` addresses, and no `tls`",
    "certificate verify failed": "the certificate must name the host of the address, come from an authority in `tls.ca`, and not have expired",
    "needs aiohttp": "pip install 'vstream[websocket]', or use `nats://` or `tls://` addresses",
}
"""What to do, by words of the reason."""


def choose_hint(why: str) -> str:
    """What to do about a server that cannot be reached, for the reason *why*."""
    return next((hint for words, hint in _HINTS.items() if words in why), _NOT_THERE)


@value_class
class Reply:
    """An answer: payload and headers. *status* is the code of a status-only message, such as 404."""

    data: bytes
    headers: Mapping[str, str]
    reply: str = ""
    """The subject on which the sender expects an answer, such as the acknowledgement of a fetched message."""

    @classmethod
    def of(cls, message: Msg) -> Reply:
        """The library's *message*."""
        return cls(data=message.data, headers=plain_headers(message.headers or {}), reply=message.reply)

    @property
    def status(self) -> int | None:
        """The status in the first line of the headers; None for a plain message."""
        status = self.headers.get("Status")
        return int(status) if status and len(status) == _STATUS_DIGITS and status.isdecimal() else None


class Connection:
    """One client connection to one region. Made by `connect`."""

    def __init__(self, client: TidyClient, region: str) -> None:
        self._client = client
        self.region = region

    @property
    def client(self) -> TidyClient:
        """The underlying nats-py client."""
        return self._client

    @property
    def server_name(self) -> str:
        """The server that the client is connected to."""
        return str(self._info.get("server_name", "?"))

    @property
    def server_version(self) -> str:
        """That server's version, such as `2.15.1`."""
        return str(self._info.get("version", "0.0.0"))

    @property
    def is_connected(self) -> bool:
        """
        Whether the connection is up right now.

        While it is down, the library buffers what is published and sends it after a reconnect. Callers for whom late is
        worse than never check this first.
        """
        return bool(self._client.is_connected)

    @property
    def cluster(self) -> str | None:
        """The name of that server's cluster; None if it has none."""
        name = self._info.get("cluster")
        return str(name) if name else None

    @property
    def domain(self) -> str | None:
        """The JetStream domain of that server; None if it has none."""
        name = self._info.get("domain")
        return str(name) if name else None

    @property
    def known_addresses(self) -> tuple[str, ...]:
        """Client addresses of the servers in its cluster, as far as it lists them. A server can have several."""
        return tuple(str(url) for url in self._info.get("connect_urls") or ())

    @property
    def _info(self) -> dict[str, Any]:
        return self._client.info

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Reply:
        """
        Send one request and return its answer.

        Raises NoRespondersError if nobody listens on the subject, and NotReachableError if no answer came within
        *timeout* seconds. In the second case the request may have had its effect.
        """
        refusals = len(self._client.refusals)
        try:
            with insist_on_cancellation():
                message = await self._client.request(
                    subject, payload, timeout=timeout, headers=dict(headers) if headers else None
                )
        except nats.errors.NoRespondersError:
            raise NoRespondersError(f"nothing in region `{self.region}` listens on `{subject}`") from None
        except NotPermittedError as error:
            raise NotPermittedError(f"region `{self.region}`: {error.message}") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            reason = f"no answer within {round(timeout, 2):g} s" if _is_timeout(error) else describe_reason(error)
            if later := self._client.refusals[refusals:]:
                raise NotPermittedError(
                    f"region `{self.region}`: {reason} on `{subject}`, and the server refused {' and '.join(later)}"
                ) from None
            raise NotReachableError(f"region `{self.region}`: {reason} on `{subject}`") from error
        return Reply.of(message)

    async def request_many(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        is_last: Callable[[Reply], bool],
        timeout: float = REQUEST_TIMEOUT,
        headers: Mapping[str, str] | None = None,
        inbox_header: str | None = None,
    ) -> tuple[Reply, ...]:
        """
        Send one request and return all answers, up to the one for which *is_last* is true.

        With *inbox_header*, that header says where answers go, and nobody replies. It is sent again each second: servers of
        other regions do not know at once that somebody listens there.

        Raises NoRespondersError if nobody listens, and NotReachableError, with the number of answers so far, if the
        last one has not come within *timeout* seconds.
        """
        inbox, answers = self._client.new_inbox(), list[Reply]()
        # To wait for each message in a task of its own would cost several times what the message does.
        arrived: asyncio.Queue[Reply | None] = asyncio.Queue()
        refusal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        refusal.add_done_callback(lambda _: arrived.put_nowait(None))
        self._client.expect(subject, refusal)

        async def take(message: Msg) -> None:
            arrived.put_nowait(Reply.of(message))

        repeating: asyncio.Future[None] | None = None
        try:
            subscription = await self._client.subscribe(inbox, cb=take)
            try:
                if inbox_header is None:
                    await self._client.publish(subject, payload, reply=inbox)
                else:
                    fields = {**(headers or {}), inbox_header: inbox}
                    repeating = asyncio.ensure_future(self._publish_repeatedly(subject, payload, fields))
                async with asyncio.timeout(timeout):
                    while not answers or not is_last(answers[-1]):
                        answer = await arrived.get()
                        if answer is None:
                            refusal.result()
                            continue
                        if answer.status == STATUS_NO_RESPONDERS:
                            raise NoRespondersError(f"nothing in region `{self.region}` listens on `{subject}`")
                        answers.append(answer)
            finally:
                if repeating is not None:
                    repeating.cancel()
                if self._client.is_connected:
                    await subscription.unsubscribe()
                    await asyncio.sleep(0)  # its task ends
        except NotPermittedError as error:
            raise NotPermittedError(f"region `{self.region}`: {error.message}") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            came = f"{len(answers)} answers, and not the last" if answers else "no answer"
            reason = f"{came} within {round(timeout, 2):g} s" if _is_timeout(error) else describe_reason(error)
            raise NotReachableError(f"region `{self.region}`: {reason} on `{subject}`") from error
        finally:
            _ = refusal.cancel() or refusal.exception()
        return tuple(answers)

    async def _publish_repeatedly(self, subject: str, payload: bytes, headers: dict[str, str]) -> None:
        while True:
            await self._client.publish(subject, payload, headers=headers)
            await asyncio.sleep(_REPEAT_SECONDS)

    async def request_json(
        self,
        subject: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float = REQUEST_TIMEOUT,
        decode: Callable[[bytes, str], dict[str, Any]] = decode_object,
    ) -> dict[str, Any]:
        """Send a JSON object and return the JSON answer. Raises MalformedAnswerError if it is no object."""
        payload = json.dumps(body).encode() if body is not None else b""
        reply = await self.request(subject, payload, timeout=timeout)
        return decode(reply.data, f"{self.region}: {subject}")

    async def listen(self, subject: str, on_message: Callable[[bytes], object], *, group: str) -> NoReturn:
        """
        Call *on_message* with each message on *subject*, of which each of *group* gets some, until the connection ends.

        Raises NotPermittedError if the user may not hear them, and NotReachableError when the connection is closed.
        """

        async def call(message: Msg) -> None:
            on_message(message.data)

        try:
            await self._client.subscribe(subject, queue=group, cb=call)
            while not self._client.is_closed:
                if self._client.refusals:
                    raise NotPermittedError(f"region `{self.region}`: the user may not subscribe to `{subject}`")
                await asyncio.sleep(_REPEAT_SECONDS)
        except nats.errors.Error as error:
            raise NotReachableError(f"region `{self.region}`: {describe_reason(error)}") from error
        raise NotReachableError(f"region `{self.region}`: the connection is closed")

    async def close(self) -> None:
        """Close the connection. Does nothing if it is already closed."""
        await self._client.close()


async def ask_api(
    connection: Connection,
    subject: str,
    body: Mapping[str, Any] | None = None,
    *,
    timeout: float = REQUEST_TIMEOUT,
    **options: Any,
) -> dict[str, Any]:
    """What the JetStream API answers on *subject*. Raises ServerError if that is an error, and as `request_json`."""
    answer = await connection.request_json(subject, body, timeout=timeout, **options)
    if (error := api_error(answer, subject)) is not None:
        raise error
    return answer


@asynccontextmanager
async def connect(endpoint: Endpoint, region: str, *, timeout: float = CONNECT_TIMEOUT) -> AsyncIterator[Connection]:
    """
    Connect to *region*; the connection is closed on exit.

    Raises NotReachableError within about *timeout* seconds if no server answers,
    VstreamError if the endpoint itself is wrong (a missing context, file or variable).
    """
    connection = await open_connection(endpoint, region, timeout=timeout)
    try:
        yield connection
    finally:
        await connection.close()


async def open_connection(endpoint: Endpoint, region: str, *, timeout: float = CONNECT_TIMEOUT) -> Connection:
    """Like `connect`, for callers that close the connection themselves."""
    endpoint = resolve_context(endpoint) if endpoint.context else endpoint
    problems: list[Exception] = []

    async def remember(error: Exception) -> None:
        # The library reports every failed attempt here and would otherwise log a traceback.
        problems.append(_find_cause(error))
        first = problems[: len(endpoint.urls)]
        if len(first) == len(endpoint.urls) and all(isinstance(problem, _FOR_GOOD) for problem in first):
            raise error  # to try again until the time is up would change nothing

    client = TidyClient(endpoint)
    options = make_connection_options(endpoint, region)
    try:
        async with asyncio.timeout(timeout):
            await client.connect(
                name="vstream",
                error_cb=remember,
                closed_cb=client.end_waiting,
                connect_timeout=max(1, round(timeout)),
                max_reconnect_attempts=3,
                reconnect_time_wait=1,
                **options,
            )
    except BaseException as error:
        await client.close()  # also if this was cancelled
        if not isinstance(error, (nats.errors.Error, OSError, ImportError)):  # timeouts and TLS failures are OSErrors
            raise
        # A server that refuses a login closes at once: instead of its reason, a reset may arrive.
        reasons = [problem for problem in problems if not isinstance(problem, ConnectionResetError)]
        first_error = next(iter(reasons or problems), error)
        is_silent = _is_timeout(first_error)
        why = f"no answer within {round(timeout, 2):g} s" if is_silent else describe_reason(first_error)
        addresses = ", ".join(map(without_secrets, endpoint.urls))
        if "authorization violation" in why.lower():
            raise LoginRefusedError(
                f"region `{region}` refuses the login at {addresses}: {why}", hint="is the login under `connect` right?"
            ) from error
        raise NotReachableError(
            f"region `{region}` cannot be reached at {addresses}: {why}",
            hint=choose_hint(why),
        ) from error
    return Connection(client, region)


async def connect_to_system(endpoints: Mapping[str, Endpoint]) -> Connection:
    """Connect to the system account in any region. Raises NotReachableError if none can be reached."""
    reasons = []
    for region, endpoint in endpoints.items():
        try:
            return await open_connection(endpoint, region)
        except NotReachableError as error:
            reasons.append(error.message)
    raise NotReachableError(f"the system account cannot be reached: {'; '.join(reasons)}")


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """*headers* with plain string keys: some of the library's keys are enum members, which hash differently."""
    return {str.__str__(name): value for name, value in headers.items()}


def without_secrets(url: str) -> str:
    """*url* without the secrets that a nats CLI context may have in it."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, (TimeoutError, nats.errors.TimeoutError))


def _find_cause(error: Exception) -> Exception:
    """What is wrong with a WebSocket, where the library that opens it wraps that into words of its own."""
    return getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error


def describe_reason(error: BaseException) -> str:
    """Why a connection or request failed with *error*, in a few words."""
    if isinstance(error, ImportError):
        return "a WebSocket needs aiohttp, which is not installed"
    if isinstance(error, gaierror):
        return (error.strerror or str(error)).lower()
    text = describe_system_error(error).removeprefix("nats: ").strip("'\"")
    return text or type(error).__name__


class DomainRoutingConnection(Connection):
    """One connection for all regions: uses the connection *first*, except for requests to a domain: they use the *connections* entry of its region."""

    def __init__(self, first: Connection, connections: Mapping[str, Connection | NotReachableError]) -> None:
        super().__init__(first.client, first.region)
        self._first, self._connections = first, connections

    async def request(self, subject: str, payload: bytes = b"", **options: Any) -> Reply:
        """See Connection. Also raises NotReachableError if there is no connection to the region."""
        return await self._choose_connection(subject).request(subject, payload, **options)

    async def request_many(self, subject: str, payload: bytes = b"", **options: Any) -> tuple[Reply, ...]:
        """See Connection. Also raises NotReachableError if there is no connection to the region."""
        return await self._choose_connection(subject).request_many(subject, payload, **options)

    def _choose_connection(self, subject: str) -> Connection:
        """The connection to the region whose domain *subject* is of; the first where it is of none."""
        named = _DOMAIN.match(subject)
        if named is None:
            return self._first
        connection = self._connections.get(named[1])
        if isinstance(connection, Connection):
            return connection
        raise NotReachableError(f"region `{named[1]}` cannot be reached" if connection is None else connection.message)
