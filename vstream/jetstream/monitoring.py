"""
Read the HTTP monitoring endpoints of a nats-server.

They need no credentials and answer even if JetStream has no leader. A supervisor, and a check of the loaded mappings,
need that.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import lru_cache
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from vstream.credentials import make_tls_context
from vstream.errors import (
    HangingError,
    MalformedAnswerError,
    NotReachableError,
    ServerError,
    VstreamError,
    describe_system_error,
)
from vstream.jetstream import answers
from vstream.jetstream.cancellation import insist_on_cancellation
from vstream.topology.model import Endpoint
from vstream.topology.naming import probe_subject
from vstream.topology.units import Version, parse_version
from vstream.value_class import value_class

TIMEOUT = 2.0
"""Default timeout of one request, in seconds."""

MAX_AT_ONCE = 3 * answers.MOST_JSON
"""Bytes of all answers that are being read: many servers are asked at once. Beyond that, the longer ones take turns."""
_CHUNK, _SMALL, _TURN = 65_536, 1 << 20, 0.01
_sizes: dict[asyncio.StreamReader, int] = {}
"""Bytes of each answer that is being read now."""
_trusted: dict[str, ssl.SSLContext] = {}
"""Replaces the system's authorities, by host and port."""
_DIGESTS_VARIABLES_SINCE: Version = (2, 12, 0)
"""Digests of servers before this leave out variables: they cannot be compared with others."""
_STATUS_OK = 200
_HEALTH = frozenset({_STATUS_OK, 500, 503})
"""Statuses of /healthz: 500 means that the server does not accept connections yet (server/monitor.go, healthz)."""
_ALL_PATHS = (
    "/varz",
    "/jsz?accounts=true&streams=true&consumers=true&config=true&raft=true",
    "/gatewayz?accs=false",
    "/routez",
    "/leafz",
    "/accountz",
    "/healthz?details=true",
)
_UNSAFE = re.compile(r"[^\w-]")
"""Characters of a server's name that no file name gets: they could lead anywhere, or be obeyed by a terminal."""
_SPEAKS_TLS = b"Client sent an HTTP request to an HTTPS server."


@value_class
class Varz:
    """/varz: what one server says about itself."""

    server_name: str
    version: str
    config_load_time: str
    """Changes with each successful reload, on every version."""
    was_reloaded: bool
    """Whether it has loaded its configuration again since it started."""
    cluster: str | None
    is_clustered: bool
    """Whether the server accepts routes. If not it stands alone, and JetStream has no meta group."""
    now: str | None = None
    """What its clock says."""
    config_digest: str | None = None
    """Digest of all loaded configuration values, see `vstream.syntax.natsconf.digest`; None before 2.12."""
    flags: Mapping[str, bool] = field(default_factory=dict)
    """The feature flags that the server knows, and whether each is on; none before 2.14."""


@value_class
class Meta:
    """The JetStream meta group, as one server sees it."""

    leader: str | None
    cluster_size: int
    followers: frozenset[str] = frozenset()
    """The members besides the leader, according to the leader; other servers list none."""


@value_class
class MetaLog:
    """The log of the meta group, as one server has it on disk."""

    first: int
    """Its first entry. Whatever came before is in the server's snapshot, from which it starts."""
    last: int
    is_leader: bool


async def get(url_base: str, path: str, timeout: float = TIMEOUT) -> Mapping[str, Any]:
    """
    The JSON object at *path*, for example `/varz`, of the server with the monitoring address *url_base*.

    Raises NotReachableError without a complete answer after *timeout* seconds, and ServerError for any status but 200.
    """
    return answers.decode_object(await _get(url_base, path, timeout, answers.MOST_JSON), url_base + path)


async def get_large(url_base: str, path: str, timeout: float) -> Mapping[str, Any]:
    """Like `get`, for thousands of entries, which are read with `convert_malformed_errors` (`answers.decode_large`)."""
    return answers.decode_large(await _get(url_base, path, timeout, answers.MOST_LIST_JSON), url_base + path)


async def _get(url_base: str, path: str, timeout: float, most: int) -> bytes:
    status, body = await _fetch(url_base, path, timeout, most)
    if status != _STATUS_OK:
        raise _make_error(status, url_base + path, body)
    return body


async def read_varz(url_base: str, timeout: float = TIMEOUT) -> Varz:
    """Name, version and configuration of the server."""
    url = f"{url_base}/varz"
    answer = await get(url_base, "/varz", timeout)
    with answers.convert_malformed_errors(url):
        cluster = answer.get("cluster") or {}
        flags = answer.get("feature_flags") or {}
        version = answers.require_text(answer["version"])
        has_digest = (parse_version(version) or _DIGESTS_VARIABLES_SINCE) >= _DIGESTS_VARIABLES_SINCE
        return Varz(
            server_name=answers.require_text(answer["server_name"]),
            version=version,
            config_load_time=answers.require_text(answer["config_load_time"]),
            was_reloaded=answer.get("start") != answer["config_load_time"],
            cluster=cluster.get("name") or None,
            # A cluster may have no more than a name, which placement asks for.
            is_clustered="cluster_port" in cluster,
            now=answer.get("now"),
            config_digest=(answer.get("config_digest") or None) if has_digest else None,
            flags={str(name): bool(value) for name, value in flags.items()},
        )


async def find_health_problem(url_base: str, timeout: float = TIMEOUT, *, is_deep: bool = False) -> str | None:
    """
    Why the server reports itself unhealthy; None if it is healthy.

    With *is_deep*, each stream and consumer must have caught up as well.

    A server logs a warning for each unhealthy answer: ask only once a meta leader is known.
    """
    path = "/healthz" if is_deep else "/healthz?js-server-only=true"
    status, body = await _fetch(url_base, path, timeout)
    if status not in _HEALTH:
        raise _make_error(status, url_base + path, body)
    answer = answers.decode_object(body, url_base + path)
    return None if answer.get("status") == "ok" else str(answer.get("error") or answer.get("status"))


async def read_raw_answers(
    endpoints: Mapping[str, Endpoint], *, timeout: float
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The answers of every server that `monitor` names, by its name and then by path; and by address, who did not answer."""
    urls = [url for endpoint in endpoints.values() for url in endpoint.monitor]
    answers = await asyncio.gather(*(_read_all_paths(url, timeout) for url in urls))
    servers: dict[str, dict[str, Any]] = {}
    silent: dict[str, str] = {}
    for url, answer in zip(urls, answers, strict=True):
        varz = answer["/varz"]
        if isinstance(varz, str):
            silent[url] = varz
        else:
            servers[_UNSAFE.sub("_", str(varz.get("server_name", url)))[:100]] = answer
    return servers, silent


async def _read_all_paths(url: str, timeout: float) -> dict[str, Any]:
    """By path, what is answered, or why that is not known."""

    async def read(path: str) -> Any:
        try:
            return await get(url, path, timeout)
        except VstreamError as error:
            return error.message

    return dict(zip(_ALL_PATHS, await asyncio.gather(*map(read, _ALL_PATHS)), strict=True))


async def list_health_problems(url_base: str, timeout: float = TIMEOUT) -> tuple[Mapping[str, Any], ...]:
    """
    Everything that makes the server unhealthy: `type`, `account`, `stream`, `consumer`, `error`.

    Streams with one replica are never listed. If anything is listed, the server logs a warning. Raises as `get`.
    """
    status, body = await _fetch(url_base, "/healthz?details=true", timeout)
    if status not in _HEALTH:
        raise _make_error(status, url_base, body)
    problems = answers.parse_list(answers.decode_object(body, url_base), "errors", url_base)
    return tuple(problem for problem in problems if isinstance(problem, dict))


async def read_meta(url_base: str, timeout: float = TIMEOUT) -> Meta | None:
    """The meta group; None if JetStream is not clustered or not enabled."""
    with answers.convert_malformed_errors(f"{url_base}/jsz"):
        group = (await get(url_base, "/jsz", timeout)).get("meta_cluster")
        if group is None:
            return None
        return Meta(
            leader=group.get("leader"),
            cluster_size=int(group.get("cluster_size", 0)),
            followers=frozenset(
                answers.require_text(peer["name"]) for peer in answers.parse_list(group, "replicas", url_base)
            ),
        )


async def read_meta_log(url_base: str, timeout: float = TIMEOUT) -> MetaLog | None:
    """The log of the meta group on the server; None if JetStream is not clustered or not enabled."""
    url = f"{url_base}/raftz"
    answer = await get(url_base, "/raftz?group=_meta_", timeout)
    with answers.convert_malformed_errors(url):
        for groups in answer.values():
            if (group := groups.get("_meta_")) is not None:
                first, last = int(group["wal"]["first_seq"]), int(group["pindex"])
                return MetaLog(first=first, last=last, is_leader=group["state"] == "LEADER")
    return None


async def list_first_sequences(url_base: str, timeout: float) -> Mapping[tuple[str, str], int]:
    """The first sequence of each stream that the server holds messages of, by its name and when it was created."""
    url = f"{url_base}/jsz"
    answer = await get_large(url_base, "/jsz?accounts=true&streams=true", timeout)
    with answers.convert_malformed_errors(url):
        accounts = answers.parse_list(answer, "account_details", url)
        streams = [stream for account in accounts for stream in account.get("stream_detail") or ()]
        held = [stream for stream in streams if stream["state"]["messages"]]
        return {(stream["name"], stream["created"]): int(stream["state"]["first_seq"]) for stream in held}


async def read_gateway_bytes(url_base: str, timeout: float = TIMEOUT) -> Mapping[str, int]:
    """The clusters that this server has an outbound gateway connection to, and the bytes of messages sent over it."""
    with answers.convert_malformed_errors(f"{url_base}/gatewayz"):
        gateways = (await get(url_base, "/gatewayz", timeout)).get("outbound_gateways") or {}
        connections = {name: gateway.get("connection") for name, gateway in gateways.items()}
        return {name: int(connection.get("out_bytes", 0)) for name, connection in connections.items() if connection}


async def list_leaf_servers(url_base: str, timeout: float = TIMEOUT) -> frozenset[str]:
    """The names of the servers that this server has a leaf node connection to."""
    with answers.convert_malformed_errors(f"{url_base}/leafz"):
        leafs = (await get(url_base, "/leafz", timeout)).get("leafs") or ()
        return frozenset(str(leaf.get("name")) for leaf in leafs)


async def list_routed_servers(url_base: str, timeout: float = TIMEOUT) -> frozenset[str]:
    """The names of the servers that this server has a route to."""
    with answers.convert_malformed_errors(f"{url_base}/routez"):
        routes = (await get(url_base, "/routez", timeout)).get("routes") or ()
        return frozenset(str(route["remote_name"]) for route in routes if route.get("remote_name"))


async def read_account_detail(url_base: str, account: str = "$G", timeout: float = TIMEOUT) -> Mapping[str, Any]:
    """
    What the server has loaded of *account*: `mappings`, `exports`, `imports`. Empty parts have no key.

    Mappings list destinations by source: `{"subject": …, "weight": 0..100}`, with a `cluster` if the destination holds
    for one cluster only. Where every destination names a cluster, the server itself adds the source at 100 % for all
    other clusters. Raises ServerError if there is no such account.
    """
    answer = await get(url_base, f"/accountz?acc={quote(account, safe='')}", timeout)
    detail = answer.get("account_detail") or {}
    if not isinstance(detail, dict):
        raise MalformedAnswerError(f"{url_base}/accountz", "`account_detail` is not an object")
    return detail


async def look_up_account(url_base: str, account: str, timeout: float = TIMEOUT) -> None:
    """Make the server look up *account*: in operator mode it knows no account before its first user (Connz)."""
    try:
        await get(url_base, f"/connz?acc={quote(account, safe='')}&limit=1", timeout)
    except ServerError:
        return  # there is none: whoever asks for it next is told


async def has_subscription(url_base: str, account: str, pattern: str, timeout: float = TIMEOUT) -> bool:
    """Whether the server itself has a subscription to exactly *pattern* in *account*. Raises as `get`."""
    literal = quote(probe_subject(pattern), safe="")
    answer = await get(url_base, f"/subsz?acc={quote(account, safe='')}&subs=1&test={literal}", timeout)
    with answers.convert_malformed_errors(f"{url_base}/subsz"):
        return any(subscription.get("subject") == pattern for subscription in answer.get("subscriptions_list") or ())


async def list_subscribed_subjects(url_base: str, account: str, most: int, timeout: float) -> frozenset[str]:
    """All subjects that somebody is subscribed to in *account* on this server. Raises as `get`, and for more than *most*."""
    answer = await get_large(url_base, f"/subsz?acc={quote(account, safe='')}&subs=1&limit={most}", timeout)
    with answers.convert_malformed_errors(f"{url_base}/subsz"):
        if int(answer.get("total", 0)) > most:
            raise VstreamError(f"account `{account}` has more than {most:,} subscriptions there")
        listed = answers.parse_list(answer, "subscriptions_list", url_base)
        return frozenset(map(str.__str__, map(itemgetter("subject"), listed)))  # raises for what is no text


def _make_error(status: int, url: str, body: bytes) -> ServerError:
    # Not the body: a topology chooses who is asked, which may be somebody who tells secrets.
    reason = ": the server speaks TLS, write `https://`" if body.strip() == _SPEAKS_TLS else ""
    return ServerError(code=status, err_code=0, description=f"HTTP status {status}{reason}", subject=url)


def trust_ca(addresses: Iterable[str], ca: str | None) -> None:
    """
    From now on, accept certificates of the servers at the HTTPS *addresses* if the authority in file *ca* signed them.

    Without *ca*, the system's authorities count. Raises VstreamError if the file holds no certificate.
    """
    secure = [address for address in addresses if address.startswith("https:")]
    if ca is None or not secure:
        return
    path = Path(ca).expanduser()
    context = _make_context(path, path.stat().st_mtime_ns if path.is_file() else 0)
    _trusted.update(dict.fromkeys((urlsplit(address).netloc for address in secure), context))


@lru_cache(maxsize=16)
def _make_context(ca: Path, _changed: int) -> ssl.SSLContext:
    return make_tls_context(str(ca), None, None)


async def _fetch(url_base: str, path: str, timeout: float, most: int = answers.MOST_JSON) -> tuple[int, bytes]:
    url, connected = url_base.rstrip("/") + path, asyncio.Event()
    try:
        async with asyncio.timeout(timeout):
            with insist_on_cancellation():
                return await _exchange(url, connected, most)
    except TimeoutError as error:
        if connected.is_set():
            raise HangingError(
                f"`{url}` takes connections, but has not answered within {round(timeout, 2):g} s"
            ) from error
        raise NotReachableError(f"no answer from `{url}` within {round(timeout, 2):g} s") from error
    except (OSError, ssl.SSLError, ValueError) as error:
        raise NotReachableError(f"no answer from `{url}`: {describe_system_error(error)}") from error


async def _exchange(url: str, connected: asyncio.Event, most: int) -> tuple[int, bytes]:
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if is_tls else 80), ssl=_trusted.get(parts.netloc, True) if is_tls else None
    )
    connected.set()
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        # HTTP/1.0: the answer is not chunked, and ends where the connection ends.
        writer.write(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        answer = await _read_all(reader, most)
    finally:
        writer.close()
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise ConnectionError("the connection was closed before the answer")
    return _parse_status(head), body


async def _read_all(reader: asyncio.StreamReader, most: int) -> bytes:
    """Everything up to the end of the connection. Raises ValueError for more than *most* bytes."""
    chunks: list[bytes] = []
    _sizes[reader] = 0
    try:
        while chunk := await reader.read(_CHUNK):
            _sizes[reader] += len(chunk)
            if _sizes[reader] > most:
                raise ValueError(f"the answer is longer than {most:,} bytes")
            chunks.append(chunk)
            while _sizes[reader] > _SMALL and sum(_sizes.values()) > MAX_AT_ONCE and reader is not next(iter(_sizes)):
                await asyncio.sleep(_TURN)
    finally:
        del _sizes[reader]
    return b"".join(chunks)


def _parse_status(head: bytes) -> int:
    """The status in `HTTP/1.0 200 OK`."""
    protocol, _, rest = head.partition(b" ")
    if not protocol.startswith(b"HTTP/"):
        raise ValueError("the answer is not HTTP")
    return int(rest[:3])
