"""
The HTTP monitoring endpoints of a nats-server, read only.

They need no credentials and answer even where JetStream has no leader, which
is what a supervisor and a read-back of loaded mappings need.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from vstream.errors import MalformedAnswerError, NotReachableError, ServerError, VstreamError
from vstream.jetstream.answers import decode_object, read_list, read_text, reading
from vstream.topology.naming import probe_subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMEOUT = 2.0
"""Seconds for one request, where the caller does not say."""

MOST_BYTES = 32 * 1024 * 1024
"""Of one answer, and all servers are asked at once. /jsz of ten thousand streams with their configurations has about 20 MB."""
_CHUNK = 65_536
_OK = 200
_HEALTH = frozenset({_OK, 500, 503})
"""What /healthz answers with: 500 where the server is not ready for connections yet (server/monitor.go, healthz)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Varz:
    """What one server says of itself."""

    server_name: str
    version: str
    config_load_time: str
    """Changes with each successful reload, on every version."""
    cluster: str | None
    is_clustered: bool
    """Whether it takes routes: else it is on its own, and JetStream has no meta group."""
    config_digest: str | None = None
    """Of all values of the configuration that it has loaded, see `vstream.syntax.natsconf.digest`; None before 2.12."""
    flags: Mapping[str, bool] = field(default_factory=dict)
    """The feature flags that it knows, and whether each is on; none before 2.14."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meta:
    """The JetStream meta group as one server sees it."""

    leader: str | None
    cluster_size: int
    followers: frozenset[str] = frozenset()
    """The members besides its leader, as the leader says; none from any other server."""


async def get(url_base: str, path: str, timeout: float = TIMEOUT) -> Mapping[str, Any]:
    """
    The JSON object at *path*, for example `/varz`, of the server that monitors at *url_base*.

    Raises NotReachableError without a whole answer after *timeout* seconds, and
    ServerError where the server answers with anything but 200.
    """
    status, body = await _fetch(url_base, path, timeout)
    if status != _OK:
        description = body.decode(errors="replace").strip() or f"HTTP status {status}"
        raise ServerError(code=status, err_code=0, description=description, subject=url_base + path)
    return decode_object(body, url_base + path)


async def varz(url_base: str, timeout: float = TIMEOUT) -> Varz:
    """Name, version and configuration of the server."""
    url = f"{url_base}/varz"
    answer = await get(url_base, "/varz", timeout)
    with reading(url):
        cluster = answer.get("cluster") or {}
        flags = answer.get("feature_flags") or {}
        return Varz(
            server_name=read_text(answer["server_name"]),
            version=read_text(answer["version"]),
            config_load_time=read_text(answer["config_load_time"]),
            cluster=cluster.get("name") or None,
            # A cluster may have no more than a name, which placement asks for.
            is_clustered="cluster_port" in cluster,
            config_digest=answer.get("config_digest") or None,
            flags={str(name): bool(value) for name, value in flags.items()},
        )


async def health_problem(url_base: str, timeout: float = TIMEOUT, *, is_deep: bool = False) -> str | None:
    """
    Why the server does not call itself healthy, or None if it does.

    Single streams and consumers count only where *is_deep*: each must have caught up.

    Every "no" is a warning in the server's log: ask once a meta leader is known.
    """
    path = "/healthz" if is_deep else "/healthz?js-server-only=true"
    status, body = await _fetch(url_base, path, timeout)
    if status not in _HEALTH:
        raise ServerError(code=status, err_code=0, description=body.decode(errors="replace"), subject=url_base + path)
    answer = decode_object(body, url_base + path)
    return None if answer.get("status") == "ok" else str(answer.get("error") or answer.get("status"))


async def health_problems(url_base: str, timeout: float = TIMEOUT) -> tuple[Mapping[str, Any], ...]:
    """
    Everything that keeps the server from calling itself healthy: `type`, `account`, `stream`, `consumer`, `error`.

    Streams with one replica are never among it. If there is anything, the server logs a warning. Raises as `get`.
    """
    status, body = await _fetch(url_base, "/healthz?details=true", timeout)
    if status not in _HEALTH:
        raise ServerError(code=status, err_code=0, description=body.decode(errors="replace"), subject=url_base)
    problems = read_list(decode_object(body, url_base), "errors", url_base)
    return tuple(problem for problem in problems if isinstance(problem, dict))


async def meta(url_base: str, timeout: float = TIMEOUT) -> Meta | None:
    """The meta group, or None where JetStream is not clustered or not enabled."""
    with reading(f"{url_base}/jsz"):
        group = (await get(url_base, "/jsz", timeout)).get("meta_cluster")
        if group is None:
            return None
        return Meta(
            leader=group.get("leader"),
            cluster_size=int(group.get("cluster_size", 0)),
            followers=frozenset(read_text(peer["name"]) for peer in read_list(group, "replicas", url_base)),
        )


async def outbound_gateways(url_base: str, timeout: float = TIMEOUT) -> frozenset[str]:
    """The clusters that this server has a connection to."""
    with reading(f"{url_base}/gatewayz"):
        gateways = (await get(url_base, "/gatewayz", timeout)).get("outbound_gateways") or {}
        return frozenset(name for name, gateway in gateways.items() if gateway.get("connection"))


async def leaf_servers(url_base: str, timeout: float = TIMEOUT) -> frozenset[str]:
    """The names of the servers that this server has a leaf connection with."""
    with reading(f"{url_base}/leafz"):
        leafs = (await get(url_base, "/leafz", timeout)).get("leafs") or ()
        return frozenset(str(leaf.get("name")) for leaf in leafs)


async def routed_servers(url_base: str, timeout: float = TIMEOUT) -> frozenset[str]:
    """The names of the servers that this server has a route to."""
    with reading(f"{url_base}/routez"):
        routes = (await get(url_base, "/routez", timeout)).get("routes") or ()
        return frozenset(str(route["remote_name"]) for route in routes if route.get("remote_name"))


async def account_detail(url_base: str, account: str = "$G", timeout: float = TIMEOUT) -> Mapping[str, Any]:
    """
    What the server has loaded of *account*: `mappings`, `exports`, `imports`; a key is left out where it has none.

    Mappings are for each source its destinations: `{"subject": …, "weight": 0..100}`, with a `cluster` where one
    holds for one cluster only. Where every destination names a cluster, the server itself adds the source at
    100 % for all other clusters. Raises ServerError if there is no such account.
    """
    answer = await get(url_base, f"/accountz?acc={quote(account, safe='')}", timeout)
    detail = answer.get("account_detail") or {}
    if not isinstance(detail, dict):
        raise MalformedAnswerError(f"{url_base}/accountz", "`account_detail` is not an object")
    return detail


async def load_account(url_base: str, account: str, timeout: float = TIMEOUT) -> None:
    """Have the server look up *account*: in operator mode it knows none of which it had nobody (monitor.go, Connz)."""
    try:
        await get(url_base, f"/connz?acc={quote(account, safe='')}&limit=1", timeout)
    except ServerError:
        return  # there is none: whoever asks for it next is told


async def has_subscription(url_base: str, account: str, pattern: str, timeout: float = TIMEOUT) -> bool:
    """Whether anything on the server itself subscribes to exactly *pattern* in *account*. Raises as `get`."""
    literal = quote(probe_subject(pattern), safe="")
    answer = await get(url_base, f"/subsz?acc={quote(account, safe='')}&subs=1&test={literal}", timeout)
    with reading(f"{url_base}/subsz"):
        return any(subscription.get("subject") == pattern for subscription in answer.get("subscriptions_list") or ())


def trust_ca(addresses: Iterable[str], ca: str | None) -> None:
    """
    From now on, take what the servers at the HTTPS *addresses* show if the authority in the file *ca* has signed it.

    Without one, the system's authorities count. Raises VstreamError if the file holds none.
    """
    secure = [address for address in addresses if address.startswith("https:")]
    if ca is None or not secure:
        return
    path = Path(ca).expanduser()
    try:
        context = _context(path, path.stat().st_mtime_ns)
    except (OSError, ssl.SSLError) as error:
        raise VstreamError(
            f"the CA file {ca} cannot be read: {error.strerror or error}", hint="see `tls` of `connect` in the topology"
        ) from None
    _trusted.update(dict.fromkeys((urlsplit(address).netloc for address in secure), context))


@lru_cache(maxsize=16)
def _context(ca: Path, _changed: int) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca))


_trusted: dict[str, ssl.SSLContext] = {}
"""What stands for the system's authorities, by host and port."""


async def _fetch(url_base: str, path: str, timeout: float) -> tuple[int, bytes]:
    url = url_base + path
    try:
        async with asyncio.timeout(timeout):
            return await _exchange(url)
    except TimeoutError as error:
        raise NotReachableError(f"no answer from `{url}` within {timeout:g} s") from error
    except (OSError, ssl.SSLError, ValueError) as error:
        raise NotReachableError(f"no answer from `{url}`: {error}") from error


async def _exchange(url: str) -> tuple[int, bytes]:
    parts = urlsplit(url)
    is_tls = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if is_tls else 80), ssl=_trusted.get(parts.netloc, True) if is_tls else None
    )
    try:
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        # HTTP/1.0: the answer is not chunked, and ends where the connection ends.
        writer.write(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\n\r\n".encode())
        answer = await _read_all(reader)
    finally:
        writer.close()
    head, separator, body = answer.partition(b"\r\n\r\n")
    if not separator:
        raise ConnectionError("the connection was closed before the answer")
    return _status(head), body


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    """Everything up to the end of the connection. Raises ValueError for more than MOST_BYTES."""
    chunks: list[bytes] = []
    size = 0
    while chunk := await reader.read(_CHUNK):
        size += len(chunk)
        if size > MOST_BYTES:
            raise ValueError(f"the answer is longer than {MOST_BYTES:,} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _status(head: bytes) -> int:
    """The status in `HTTP/1.0 200 OK`."""
    protocol, _, rest = head.partition(b" ")
    if not protocol.startswith(b"HTTP/"):
        raise ValueError("the answer is not HTTP")
    return int(rest[:3])
