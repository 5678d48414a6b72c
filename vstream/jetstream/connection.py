"""Connections to a region, with deadlines, and with this project's errors instead of the client library's."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import nats
import nats.errors
from nats.aio.client import Client
from nats.errors import ProtocolError
from nats.protocol import parser
from nats.protocol.parser import AWAITING_MSG_PAYLOAD, Parser

from vstream.errors import (
    NOT_PERMITTED,
    MalformedAnswerError,
    NoRespondersError,
    NotPermittedError,
    NotReachableError,
    VstreamError,
)
from vstream.jetstream.answers import MOST_PAYLOAD, UNREADABLE, check_info, decode_object
from vstream.permissions import check_plaintext, read_variable
from vstream.topology.model import is_context_name

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

    from vstream.topology.model import Endpoint

_Message = TypeVar("_Message")

CONNECT_TIMEOUT = 5.0
_NO_RESPONDERS = 503
_STATUS_DIGITS = 3
REQUEST_TIMEOUT = 5.0
_NO_TLS = "serve TLS there; without it, `connect` has `nats://` or `ws://` addresses, and no `tls`"
MOST_CONTROL_LINE = 1024 * 1024
"""Bytes of a line of the protocol; the longest lists the addresses of all servers."""
_REFUSED = re.compile(r'permissions violation for (publish|subscription) to "([^"]*)"', re.IGNORECASE)
_MOST_REFUSALS = 1000
_INSIST = 0.1
"""Seconds until a task is cancelled again: Python 3.11 forgets a cancellation in the moment in which a socket connects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer: payload and headers. *status* is the number of a status-only message, such as 404."""

    data: bytes
    headers: Mapping[str, str]
    reply: str = ""
    """Where it wants an answer itself, such as the acknowledgement of a fetched message."""

    @property
    def status(self) -> int | None:
        """The status that the server put into the headers' first line, None for a plain message."""
        status = self.headers.get("Status")
        return int(status) if status and len(status) == _STATUS_DIGITS and status.isdecimal() else None


# The library's own takes the square of the number of spaces, which a server chooses: 100,000 of them take minutes.
parser.INFO_RE = re.compile(rb"\AINFO\s+([^\s][^\r\n]*)\r\n")
_UNREADABLE = (MalformedAnswerError, *UNREADABLE)
"""What the library raises for lines of the protocol with other values than it expects."""


class _BoundedParser(Parser):
    """The library's parser, which otherwise keeps whatever a server sends, of any size."""

    async def parse(self, data: bytes = b"") -> None:
        try:
            await super().parse(data)
        except _UNREADABLE as error:
            # The library logs a traceback, and waits for ever.
            raise ProtocolError("nats: the server does not speak the NATS protocol") from error
        needed = self.needed if self.state == AWAITING_MSG_PAYLOAD else len(self.buf)
        most = MOST_PAYLOAD if self.state == AWAITING_MSG_PAYLOAD else MOST_CONTROL_LINE
        if needed > most:
            raise ProtocolError(f"nats: the server sends {needed:,} bytes at once; {most:,} are allowed")


class TidyClient(Client):
    """
    The library's client: it sends nothing in clear where *endpoint* asks for TLS, and closes every socket in the end.

    The library starts TLS only where the server asks for it, so that whoever is in between could take it away. It also
    sends its credentials to every server that another one names.

    It forgets the socket of an attempt to reconnect which failed half way. And it does not always wait for the attempt
    that is being made when it is closed, which then goes on, or ends with an exception that nobody catches.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        super().__init__()
        self._ps = _BoundedParser(self)
        self._connecting_to: object = None
        self._needs_tls = endpoint.requires_tls
        self._has_login = endpoint.has_login
        self.refusals: list[str] = []
        """What the server has not let the user publish or subscribe to, as the server spells it."""
        self._expected: WeakKeyDictionary[asyncio.Future[Any], str] = WeakKeyDictionary()

    def expect(self, subject: str, answer: asyncio.Future[Any]) -> None:
        """*answer* is waited for after something was sent to *subject*: it fails as soon as the server refuses that."""
        self._expected[answer] = subject

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, Any] | None = None
    ) -> None:
        """As the library, which keeps a future for the answer to each of its requests."""
        answer = self._resp_map.get(reply.rpartition(".")[2]) if reply and self._resp_map else None
        if answer is not None:
            self.expect(subject, answer)
        await super().publish(subject, payload, reply, headers)

    async def _process_err(self, err_msg: str) -> None:
        if refused := _REFUSED.search(err_msg):
            if len(self.refusals) < _MOST_REFUSALS:
                self.refusals.append(f"`{refused[2]}`")
                self._remember_refusal(*refused.groups())
            self._fail_refused(*refused.groups())
        await super()._process_err(err_msg)

    def _remember_refusal(self, action: str, refused: str) -> None:
        subjects = (subject for subject in self._expected.values() if subject.lower() == refused)
        subject = next(subjects, refused)
        NOT_PERMITTED[f"the user may not {'publish' if action == 'publish' else 'subscribe'} to `{subject}`"] = None

    def _fail_refused(self, action: str, refused: str) -> None:
        """End the waiting for what the server has refused. It names subjects as it has mapped them."""
        waiting = {answer: subject for answer, subject in self._expected.items() if not answer.done()}
        if action == "publish":
            exact = {answer: subject for answer, subject in waiting.items() if subject.lower() == refused}
            mapped = {answer: subject for answer, subject in waiting.items() if refused.endswith(subject.lower())}
            waiting = exact or mapped or (waiting if len(waiting) == 1 else {})
        for answer, subject in waiting.items():
            answer.set_exception(
                NotPermittedError(
                    f"the user may not publish to `{subject}`"
                    if action == "publish"
                    else f"the user may not subscribe to `{refused}`, where the answer from `{subject}` would come"
                )
            )

    async def _process_connect_init(self) -> None:
        self._connecting_to = self._transport
        try:
            await super()._process_connect_init()
            self._connecting_to = None
        except _UNREADABLE as error:
            # Its first line is endless, or has values of other types.
            raise nats.errors.Error(f"what answers is not a nats-server: {error}") from error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:  # noqa: FBT001, FBT002
        info = check_info(info, "INFO")
        if initial_connection:
            self._server_info = info
        if self._has_login and not self._needs_tls:
            # Nothing proves that the servers it names are the ones that the topology means.
            info = {**info, "connect_urls": []}
        await super()._process_info(info, initial_connection)

    def _connect_command(self) -> bytes:
        # The last moment before anything is sent, credentials included.
        if self._needs_tls and not _is_encrypted(self._transport):
            raise nats.errors.Error("the server does not use TLS, but `connect` requires it; nothing was sent")
        return bytes(super()._connect_command())

    async def _select_next_server(self) -> None:
        if self._transport:
            self._transport.close()  # type: ignore[no-untyped-call]
        await super()._select_next_server()

    async def close(self) -> None:
        """Close the connection, and return once nothing of it is left."""
        while (attempt := self._reconnection_task) is not None and attempt is not asyncio.current_task():
            if attempt.done():
                _ = attempt.cancelled() or attempt.exception()  # asyncio logs what nobody has looked at
                break
            attempt.cancel()
            await asyncio.wait({attempt}, timeout=_INSIST)
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None and self._transport is self._connecting_to:
            # Nobody tells a stream that its socket is closed once TLS has begun on it: closing would wait for ever.
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


async def _until_refused(message: Awaitable[_Message], refusal: asyncio.Future[None]) -> _Message:
    """*message*, once it has come. Raises what *refusal* does, if that is first. Nothing waits for *message* any more then."""
    coming = asyncio.ensure_future(message)
    waited_for: set[asyncio.Future[Any]] = {coming, refusal}
    try:
        await asyncio.wait(waited_for, return_when=asyncio.FIRST_COMPLETED)
        if refusal.done():
            refusal.result()
        return await coming
    finally:
        # What is left of it would fail later, and asyncio prints the traceback of a task that nobody has looked at.
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


def _is_encrypted(transport: Any) -> bool:
    """Whether what the library's *transport* sends is encrypted: it says so of a WebSocket alone."""
    writer = getattr(transport, "_io_writer", None)
    if writer is None:
        return bool(getattr(transport, "_using_tls", False))
    return writer.get_extra_info("ssl_object") is not None


class Connection:
    """One client connection to one region. Made by `connect`."""

    def __init__(self, client: TidyClient, region: str) -> None:
        self._client = client
        self.region = region

    @property
    def client(self) -> TidyClient:
        """The library's client."""
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
        Whether the connection stands at this moment.

        While it does not, the library keeps what is published and sends it once it
        is back: a caller for whom late is worse than never asks here first.
        """
        return bool(self._client.is_connected)

    @property
    def cluster(self) -> str | None:
        """That server's cluster name, None where it has none."""
        name = self._info.get("cluster")
        return str(name) if name else None

    @property
    def domain(self) -> str | None:
        """That server's JetStream domain, None where it has none."""
        name = self._info.get("domain")
        return str(name) if name else None

    @property
    def known_addresses(self) -> tuple[str, ...]:
        """Where clients reach the servers of its cluster, as far as it says so: a server can have several."""
        return tuple(str(url) for url in self._info.get("connect_urls") or ())

    @property
    def _info(self) -> dict[str, Any]:
        return self._client._server_info  # noqa: SLF001 - the library has no public view of INFO

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = REQUEST_TIMEOUT,
    ) -> Reply:
        """
        One request, one answer.

        Raises NoRespondersError where nobody listens, NotReachableError where no
        answer came within *timeout* seconds: the request may have had its effect.
        """
        refusals = len(self._client.refusals)
        try:
            message = await self._client.request(
                subject, payload, timeout=timeout, headers=dict(headers) if headers else None
            )
        except nats.errors.NoRespondersError:
            raise NoRespondersError(f"nothing in region `{self.region}` listens on `{subject}`") from None
        except NotPermittedError as error:
            raise NotPermittedError(f"region `{self.region}`: {error.message}") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            reason = f"no answer within {timeout:g} s" if _is_timeout(error) else _reason(error)
            if later := self._client.refusals[refusals:]:
                raise NotPermittedError(
                    f"region `{self.region}`: {reason} on `{subject}`, and the server refused {' and '.join(later)}"
                ) from None
            raise NotReachableError(f"region `{self.region}`: {reason} on `{subject}`") from error
        return Reply(data=message.data, headers=plain_headers(message.headers or {}), reply=message.reply)

    async def collect(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        is_last: Callable[[Reply], bool],
        timeout: float = REQUEST_TIMEOUT,
    ) -> tuple[Reply, ...]:
        """
        One request, and every answer up to that for which *is_last* holds.

        Raises NoRespondersError where nobody listens, NotReachableError where the last
        answer has not come within *timeout* seconds, and says how many came.
        """
        inbox, answers = self._client.new_inbox(), list[Reply]()
        refusal: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._client.expect(subject, refusal)
        try:
            subscription = await self._client.subscribe(inbox)
            try:
                await self._client.publish(subject, payload, reply=inbox)
                async with asyncio.timeout(timeout):
                    while not answers or not is_last(answers[-1]):
                        message = await _until_refused(subscription.next_msg(timeout=None), refusal)
                        answer = Reply(
                            data=message.data, headers=plain_headers(message.headers or {}), reply=message.reply
                        )
                        if answer.status == _NO_RESPONDERS:
                            raise NoRespondersError(f"nothing in region `{self.region}` listens on `{subject}`")
                        answers.append(answer)
            finally:
                if self._client.is_connected:
                    await subscription.unsubscribe()
        except NotPermittedError as error:
            raise NotPermittedError(f"region `{self.region}`: {error.message}") from None
        except (nats.errors.Error, OSError, TimeoutError) as error:
            came = f"{len(answers)} answers, and not the last" if answers else "no answer"
            reason = f"{came} within {timeout:g} s" if _is_timeout(error) else _reason(error)
            raise NotReachableError(f"region `{self.region}`: {reason} on `{subject}`") from error
        finally:
            _ = refusal.cancel() or refusal.exception()
        return tuple(answers)

    async def request_json(
        self, subject: str, body: Mapping[str, Any] | None = None, *, timeout: float = REQUEST_TIMEOUT
    ) -> dict[str, Any]:
        """A request with a JSON object each way. Raises MalformedAnswerError if the answer is none."""
        payload = json.dumps(body).encode() if body is not None else b""
        reply = await self.request(subject, payload, timeout=timeout)
        return decode_object(reply.data, f"{self.region}: {subject}")

    async def close(self) -> None:
        """Close the connection. Does nothing if it is closed."""
        await self._client.close()


@asynccontextmanager
async def connect(endpoint: Endpoint, region: str, *, timeout: float = CONNECT_TIMEOUT) -> AsyncIterator[Connection]:
    """
    A connection to *region*, closed on exit.

    Raises NotReachableError within about *timeout* seconds if no server answers,
    VstreamError if the endpoint itself is wrong (a missing context, file or variable).
    """
    connection = await open_connection(endpoint, region, timeout=timeout)
    try:
        yield connection
    finally:
        await connection.close()


async def open_connection(endpoint: Endpoint, region: str, *, timeout: float = CONNECT_TIMEOUT) -> Connection:
    """As `connect`, for callers that close the connection themselves."""
    endpoint = resolve_context(endpoint) if endpoint.context else endpoint
    problems: list[str] = []

    async def remember(error: Exception) -> None:
        # The library reports every failed attempt here and would otherwise log a traceback.
        problems.append(_reason(error))

    client = TidyClient(endpoint)
    options = connection_options(endpoint, region)
    try:
        async with asyncio.timeout(timeout):
            await client.connect(
                list(endpoint.urls),
                name="vstream",
                error_cb=remember,
                connect_timeout=max(1, round(timeout)),
                max_reconnect_attempts=3,
                reconnect_time_wait=1,
                **options,
            )
    except BaseException as error:
        await client.close()  # also if this was cancelled
        if not isinstance(error, (nats.errors.Error, OSError)):  # timeouts and TLS failures are OSErrors
            raise
        why = problems[0] if problems else _reason(error)
        raise NotReachableError(
            f"region `{region}` cannot be reached at {', '.join(map(_without_secrets, endpoint.urls))}: {why}",
            hint=_NO_TLS if "does not use TLS" in why else "are its servers running, and is `connect` right?",
        ) from error
    return Connection(client, region)


def endpoint_problems(endpoint: Endpoint, region: str) -> list[VstreamError]:
    """All that is wrong with *endpoint* itself and can be seen without a network: contexts, files, variables."""
    problems: list[VstreamError] = []
    if endpoint.context:
        try:
            endpoint = resolve_context(endpoint)
        except VstreamError as error:
            return [VstreamError(f"region `{region}`: {error.message}", hint=error.hint)]
    files = (
        (endpoint.creds, "credentials"),
        (endpoint.nkey, "nkey"),
        (endpoint.tls_ca, "CA"),
        (endpoint.tls_cert, "certificate"),
        (endpoint.tls_key, "key"),
    )
    checks: list[Callable[[], object]] = [partial(_file, path, region, kind) for path, kind in files if path]
    variables = (endpoint.password_env if endpoint.user else None, endpoint.token_env)
    checks += [partial(read_variable, name, f"region `{region}`") for name in variables if name]
    checks.append(partial(check_plaintext, endpoint.plaintext_hosts, f"region `{region}`"))
    for check in checks:
        try:
            check()
        except VstreamError as error:
            problems.append(error)
    return problems


def connection_options(endpoint: Endpoint, region: str) -> dict[str, Any]:
    """The client library's options for *endpoint*. Raises VstreamError for a file or variable that is not there, or not allowed."""
    reader = f"region `{region}`"
    check_plaintext(endpoint.plaintext_hosts, reader)
    options: dict[str, Any] = {"inbox_prefix": endpoint.inbox}
    if endpoint.creds:
        options["user_credentials"] = _file(endpoint.creds, region, "credentials")
    if endpoint.nkey:
        options["nkeys_seed"] = _file(endpoint.nkey, region, "nkey")
    if endpoint.user:
        options["user"] = endpoint.user
        # A nats CLI context may have a user without a password.
        options["password"] = (
            read_variable(endpoint.password_env, reader) if endpoint.password_env else endpoint.password or ""
        )
    if endpoint.token_env:
        options["token"] = read_variable(endpoint.token_env, reader)
    elif endpoint.token:
        options["token"] = endpoint.token
    if endpoint.tls_ca or endpoint.tls_cert:
        context = ssl.create_default_context(cafile=_file(endpoint.tls_ca, region, "CA") if endpoint.tls_ca else None)
        if endpoint.tls_cert:
            context.load_cert_chain(
                _file(endpoint.tls_cert, region, "certificate"),
                _file(endpoint.tls_key, region, "key") if endpoint.tls_key else None,
            )
        options["tls"] = context
        logging.getLogger("asyncio").addFilter(_is_news)
    return options


def _is_news(record: logging.LogRecord) -> bool:
    """
    Whether what asyncio warns of is worth saying.

    The library makes the stream of a TLS connection by itself (nats/aio/transport.py, `connect_tls`), which then does not
    know that it is one. So asyncio warns at the end of each that it cannot be half closed, which nobody wants it to be.
    """
    return not str(record.msg).startswith("returning true from eof_received()")


def _file(path: str, region: str, kind: str) -> str:
    file = Path(path).expanduser()
    if not file.is_file():
        raise VstreamError(
            f"region `{region}`: the {kind} file {path} does not exist", hint="see `connect` in the topology"
        )
    return str(file)


def resolve_context(endpoint: Endpoint) -> Endpoint:
    """Fill an endpoint from its nats CLI context. Raises VstreamError if there is no such context."""
    name = endpoint.context or ""
    if not is_context_name(name):
        raise VstreamError(
            f"`{name}` is not the name of a nats CLI context",
            hint="names contain no `/` and do not begin with a dot: `nats context ls`",
        )
    directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "nats" / "context"
    path = directory / f"{endpoint.context}.json"
    try:
        context = json.loads(path.read_text(encoding="utf-8"))
        urls = tuple(url.strip() for url in context["url"].split(",") if url.strip())
    except FileNotFoundError:
        names = sorted(file.stem for file in directory.glob("*.json")) if directory.is_dir() else []
        raise VstreamError(
            f"there is no nats CLI context `{endpoint.context}`",
            hint=f"known contexts: {', '.join(names)}" if names else f"none are saved in {directory}",
        ) from None
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise VstreamError(
            f"the nats CLI context {path} cannot be read", hint="`nats context validate` says why"
        ) from None
    return replace(
        endpoint,
        context=None,
        urls=urls,
        creds=context.get("creds") or None,
        nkey=context.get("nkey") or None,
        user=context.get("user") or None,
        password=context.get("password") or None,
        token=context.get("token") or None,
        tls_ca=context.get("ca") or None,
        tls_cert=context.get("cert") or None,
        tls_key=context.get("key") or None,
    )


def plain_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """*headers* under plain keys: some of the library's are enum members, which hash unlike the strings they equal."""
    return {str.__str__(name): value for name, value in headers.items()}


def _without_secrets(url: str) -> str:
    """*url* without the secrets that a nats CLI context may have in it."""
    scheme, separator, rest = url.rpartition("://")
    return f"{scheme}{separator}{rest.rpartition('@')[2]}"


def _is_timeout(error: BaseException) -> bool:
    return isinstance(error, (TimeoutError, nats.errors.TimeoutError))


def _reason(error: BaseException) -> str:
    text = str(error).removeprefix("nats: ").strip("'\"")
    return text or type(error).__name__
