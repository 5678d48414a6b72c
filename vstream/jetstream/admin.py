"""
Streams over the raw JetStream API.

JSON in and out: the client library's typed classes drop every field that they do
not know, which would reset it at the next update.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from vstream.errors import (
    MalformedAnswerError,
    NoRespondersError,
    NotPermittedError,
    NotReachableError,
    RefusedError,
    ServerError,
)
from vstream.jetstream import error_codes
from vstream.jetstream.answers import (
    convert_malformed_errors,
    decode_large,
    parse_list,
    parse_total,
    require_config,
    require_source_infos,
    require_state,
)
from vstream.jetstream.connection import Connection, ask_api
from vstream.topology import naming
from vstream.topology.consumer_config import ConsumerConfig, ObservedConsumer
from vstream.topology.stream_config import ACCOUNT_SEPARATOR, ObservedStream, StreamConfig, short_hash, source_name

_Answer = TypeVar("_Answer")
REQUEST_TIMEOUT = 10.0
"""Seconds for one change. A leader election takes 4 to 9."""
MAX_PARALLEL_PAGES = 8
_MAX_PARALLEL_STREAMS = 32
_PAGE_STREAMS = 256
"""Streams of one page, where an answer does not say (server/jetstream_api.go, JSApiListLimit)."""
_PAUSE_SECONDS = 0.25
_REMOVAL_TIMEOUT = 60.0
"""Seconds. If the leader was among the servers that stopped, a new one takes 4 to 9."""
_REMOVAL_LATER = {*error_codes.TEMPORARILY_UNAVAILABLE, error_codes.MEMBER_CHANGE_IN_PROGRESS}
"""Refusals to remove a server that end by themselves."""
_RELOAD_TIMEOUT = 2.0
"""Seconds. It takes a fifth of one, on a busy machine."""
_UNANSWERED_TIMEOUT = 2.0
"""Seconds to wait for a request that a server carries out without answering, or that a dead server would answer."""
_ALIVE_TIMEOUT = 1.0
"""Seconds in which a stream answers that somebody has made again. An origin rests for longer before it takes publishes."""


class JetStreamAdmin:
    """
    Manages and lists streams over one connection. The account's streams of all clusters answer on any connection.

    Requests about streams of hidden accounts, such as `R_west/foo`, go to where the API of their account is imported.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def streams(
        self, accounts: Sequence[str | None] = (None,)
    ) -> tuple[dict[str, ObservedStream], tuple[str, ...]]:
        """
        All streams of *accounts* by name, and the names that no server answered for. None: the connection's account.

        Pages of STREAM.LIST, the first alone and then several at a time. While a
        region is down the servers wait 4 s for it on each page.
        """
        all_streams: dict[str, ObservedStream] = {}
        unanswered: list[str] = []
        for streams, silent in await asyncio.gather(*map(self._read_account, accounts)):
            all_streams.update(streams)
            unanswered.extend(silent)
        return all_streams, tuple(unanswered)

    async def _read_account(self, account: str | None) -> tuple[dict[str, ObservedStream], list[str]]:
        subject = _spell_list_subject(account)
        first = await self._list(subject, 0, decode=decode_large)
        total = parse_total(first, subject)
        with convert_malformed_errors(subject):
            size = max(1, int(first.get("limit", 0)) or _PAGE_STREAMS)
        pages = [first]
        # A few pages at a time: a server that announces more than it has is asked once too often, and no more.
        for offset in range(size, total, size * MAX_PARALLEL_PAGES):
            offsets = range(offset, min(total, offset + size * MAX_PARALLEL_PAGES), size)
            answers = await asyncio.gather(*(self._list(subject, start, decode=decode_large) for start in offsets))
            pages.extend(answers)
            if not all(parse_list(answer, "streams", subject) or answer.get("missing") for answer in answers):
                break
        streams, unanswered = {}, set()
        with convert_malformed_errors(subject):
            for answer in pages:
                for info in parse_list(answer, "streams", subject):
                    stream = _read_stream(info, account, subject)
                    if _is_placeholder(info):
                        unanswered.add(stream.config.name)
                    else:
                        streams[stream.config.name] = stream
                for name in parse_list(answer, "missing", subject):
                    unanswered.add(naming.qualified_name(account, str(name)))
        return streams, sorted(unanswered - streams.keys())

    async def _list(self, subject: str, offset: int, **options: Any) -> dict[str, Any]:
        until = time.monotonic() + _RELOAD_TIMEOUT
        while True:
            try:
                return await ask_until_available(lambda: self._ask(subject, {"offset": offset}, **options))
            except NoRespondersError:
                # A server that loads its accounts again serves no imports for a moment.
                if not subject.startswith(naming.ACCOUNT_API_PREFIX) or time.monotonic() > until:
                    raise
            await asyncio.sleep(_PAUSE_SECONDS)

    async def create(self, config: StreamConfig) -> None:
        """See `apply.interfaces.StreamAdmin`."""
        await self._ask_api("STREAM.CREATE", config.name, dict(config.fields))

    async def update(self, config: StreamConfig) -> None:
        """See `apply.interfaces.StreamAdmin`."""
        await self._ask_api("STREAM.UPDATE", config.name, dict(config.fields))

    async def read(self, name: str) -> StreamConfig:
        """See `apply.interfaces.StreamAdmin`."""
        return StreamConfig(name=name, fields=(await self.info(name))["config"])

    async def delete(self, name: str) -> None:
        """See `apply.interfaces.StreamAdmin`."""
        await self._ask_api("STREAM.DELETE", name, None)

    async def forget(self, name: str) -> None:
        """See `apply.interfaces.StreamAdmin`. No server answers this request; the stream's own servers carry it out."""
        until = time.monotonic() + 2 * REQUEST_TIMEOUT
        while await self._is_known(name):
            # Somebody else may have forgotten it, too, and made it again while we waited.
            if await self._is_answering(name):
                raise RefusedError(
                    f"`{name}` answers again: it was made again, or its region is back",
                    hint="run this again: it goes on from what is there",
                )
            if time.monotonic() > until:
                raise NotReachableError(f"the meta group still knows `{name}` after {2 * REQUEST_TIMEOUT:g} s")
            try:
                await self._ask_api("STREAM.DELETE", name, None, timeout=_UNANSWERED_TIMEOUT)
            except NotPermittedError:
                raise
            except (NotReachableError, ServerError):
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _is_answering(self, name: str) -> bool:
        try:
            await self.info(name, timeout=_ALIVE_TIMEOUT)
        except (NotReachableError, NoRespondersError, ServerError):
            return False
        return True

    async def _is_known(self, name: str) -> bool:
        """Whether the meta group has a stream of that name, whether or not its servers run."""
        account, _, local = name.rpartition(ACCOUNT_SEPARATOR)
        subject = f"{naming.api_prefix(account or None)}.STREAM.NAMES"
        offset = 0
        while True:
            answer = await self._ask(subject, {"offset": offset})
            names = parse_list(answer, "streams", subject)
            offset += len(names)
            if local in names:
                return True
            if not names or offset >= parse_total(answer, subject):
                return False

    async def create_consumer(self, config: ConsumerConfig) -> None:
        """See `apply.interfaces.StreamAdmin`."""
        await self._send_consumer(config, "create")

    async def update_consumer(self, config: ConsumerConfig) -> None:
        """See `apply.interfaces.StreamAdmin`."""
        await self._send_consumer(config, "update")

    async def _send_consumer(self, config: ConsumerConfig, action: str) -> None:
        subject = f"{naming.api_subject('CONSUMER.CREATE', config.stream)}.{config.durable}"
        body = {"stream_name": naming.local_name(config.stream), "config": dict(config.fields), "action": action}
        await self._ask(subject, body)

    async def delete_consumer(self, config: ConsumerConfig) -> None:
        """See `apply.interfaces.StreamAdmin`."""
        await self._ask(f"{naming.api_subject('CONSUMER.DELETE', config.stream)}.{config.durable}", None)

    async def consumer(self, stream: str, durable: str, *, timeout: float = REQUEST_TIMEOUT) -> ObservedConsumer:
        """The consumer *durable* of *stream*, as its leader describes it. Raises ServerError 10014 if missing."""
        subject = f"{naming.api_subject('CONSUMER.INFO', stream)}.{durable}"
        return _parse_consumer(await self._ask(subject, None, timeout=timeout), stream)

    async def find_consumer(
        self, stream: str, durable: str, *, timeout: float = REQUEST_TIMEOUT
    ) -> ObservedConsumer | None:
        """The same; None if it is missing."""
        try:
            return await self.consumer(stream, durable, timeout=timeout)
        except ServerError as error:
            if error.err_code != error_codes.CONSUMER_NOT_FOUND:
                raise
            return None

    async def consumers(self, stream: str) -> tuple[dict[str, ObservedConsumer], tuple[str, ...]]:
        """
        All durable consumers of *stream* by name, and the names that no server answered for.

        For a stream that does not exist, servers return an empty list and no error.
        """
        subject = naming.api_subject("CONSUMER.LIST", stream)
        consumers: dict[str, ObservedConsumer] = {}
        unanswered: list[str] = []
        async for info in self._iterate(subject, "consumers", unanswered):
            config = require_config(info.get("config"), subject)
            if _is_placeholder(info):
                unanswered.append(str(config.get("durable_name") or config.get("name")))
            elif config.get("durable_name"):
                consumer = _parse_consumer(info, stream)
                consumers[consumer.config.durable] = consumer
        return consumers, tuple(sorted(set(unanswered) - consumers.keys()))

    async def consumers_of(
        self, streams: Iterable[str]
    ) -> tuple[dict[str, Mapping[str, ObservedConsumer]], tuple[str, ...]]:
        """All durable consumers of *streams*, by stream and name, and those that no server answered for: `foo > worker`."""
        slots, names = asyncio.Semaphore(_MAX_PARALLEL_STREAMS), sorted(streams)

        async def list_consumers(name: str) -> tuple[dict[str, ObservedConsumer], tuple[str, ...]]:
            async with slots:
                return await self.consumers(name)

        answers = dict(zip(names, await asyncio.gather(*map(list_consumers, names)), strict=True))
        silent = [f"{name} > {durable}" for name, (_, missing) in answers.items() for durable in missing]
        return {name: consumers for name, (consumers, _) in answers.items()}, tuple(silent)

    async def _iterate(
        self, subject: str, key: str, unanswered: list[str] | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Everything that *subject* lists, page by page; the names that no server answered for are added to *unanswered*."""
        offset = 0
        while True:
            answer = await self._list(subject, offset)
            entries = parse_list(answer, key, subject)
            offset += len(entries)
            for entry in entries:
                if not isinstance(entry, dict):
                    raise MalformedAnswerError(subject, f"`{key}` contains something that is not an object")
                yield entry
            if unanswered is not None:
                unanswered.extend(map(str, parse_list(answer, "missing", subject)))
            if not entries or offset >= parse_total(answer, subject):
                return

    async def info(self, name: str, *, timeout: float = REQUEST_TIMEOUT) -> dict[str, Any]:
        """STREAM.INFO of stream *name* from its leader, with the API's field names."""
        asked = f"STREAM.INFO {name}"
        info = require_source_infos(await self._ask_api("STREAM.INFO", name, None, timeout=timeout), asked)
        config, state = require_config(info.get("config"), asked), require_state(info.get("state"), asked)
        return {**info, "config": config, "state": state}

    async def info_from_list(self, name: str) -> dict[str, Any]:
        """Like `info`, for a client account's stream whose name is mapped to another: only lists show it."""
        subject = _spell_list_subject(None)
        async for info in self._iterate(subject, "streams"):
            if require_config(info.get("config"), subject).get("name") == name:
                return info
        raise NotReachableError(f"no server answers for `{name}`")

    async def step_down(self, name: str, successor: str | None = None) -> None:
        """Ask the leader of stream *name* to hand over, to a server from 2.11 on. One with one replica agrees and does nothing."""
        await self._ask_api("STREAM.LEADER.STEPDOWN", name, _make_step_down_body(successor))

    async def step_down_meta(self, successor: str | None = None) -> None:
        """Ask the meta leader to hand over, from 2.11 on to a server. Needs a connection in the system account."""
        await self._ask(f"{naming.API}.META.LEADER.STEPDOWN", _make_step_down_body(successor))

    async def remove_peer(self, server: str) -> None:
        """
        Return once the meta group has forgotten *server* for good. Needs a connection in the system account.

        Its leader may change meanwhile, and does one removal at a time: it is asked again for a minute. What it refuses
        otherwise is raised at once.
        """
        until = time.monotonic() + _REMOVAL_TIMEOUT
        while True:
            try:
                await self._ask(f"{naming.API}.SERVER.REMOVE", {"peer": server, "peer_id": peer_id(server)})
            except (MalformedAnswerError, NotPermittedError):
                raise
            except ServerError as refusal:
                if refusal.err_code == error_codes.CLUSTER_MEMBER_NOT_FOUND:
                    return
                if refusal.err_code not in _REMOVAL_LATER or time.monotonic() > until:
                    raise
            except (NotReachableError, NoRespondersError):
                if time.monotonic() > until:
                    raise
            else:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _ask_api(
        self, verb: str, stream: str, body: dict[str, Any] | None, *, timeout: float = REQUEST_TIMEOUT
    ) -> dict[str, Any]:
        return await self._ask(naming.api_subject(verb, stream), body, timeout=timeout)

    async def _ask(
        self, full: str, body: dict[str, Any] | None, *, timeout: float = REQUEST_TIMEOUT, **options: Any
    ) -> dict[str, Any]:
        return await ask_api(self._connection, full, body, timeout=timeout, **options)


def _make_step_down_body(successor: str | None) -> dict[str, Any] | None:
    return None if successor is None else {"placement": {"preferred": successor}}


def peer_id(server: str) -> str:
    """The meta group's id of *server*: members that have started since it died know no name (server/events.go)."""
    return short_hash(server)


async def ask_until_available(request: Callable[[], Awaitable[_Answer]]) -> _Answer:
    """
    The result of *request*, which must be safe to repeat.

    Right after the meta leader is lost, servers refuse or ignore requests until a new one is elected. They are repeated
    for `2 * REQUEST_TIMEOUT` seconds; after that, the last error is raised.
    """
    until = time.monotonic() + 2 * REQUEST_TIMEOUT
    while True:
        try:
            return await request()
        except ServerError as failure:
            if failure.err_code not in error_codes.TEMPORARILY_UNAVAILABLE or time.monotonic() > until:
                raise
        except (MalformedAnswerError, NotPermittedError):
            raise
        except NotReachableError:
            if time.monotonic() > until:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


def _spell_list_subject(account: str | None) -> str:
    return f"{naming.api_prefix(account)}.STREAM.LIST"


def _read_stream(info: dict[str, Any], account: str | None, origin: str) -> ObservedStream:
    """Raises one of UNREADABLE for what cannot be read."""
    config = require_config(info.get("config"), origin)
    name = naming.qualified_name(account, config["name"])
    cluster, state = info.get("cluster") or {}, info.get("state") or {}
    replicas = len(cluster.get("replicas") or ()) + 1 if cluster else None
    return ObservedStream(
        config=StreamConfig(name=name, fields=config),
        created=str(info.get("created", "")),
        cluster=str(cluster["name"]) if cluster.get("name") else None,
        messages=int(state.get("messages", 0)),
        consumers=int(state.get("consumer_count", 0)),
        bytes=int(state.get("bytes", 0)),
        first_at=_parse_time(state.get("first_ts")),
        subject_count=int(state["num_subjects"]) if "num_subjects" in state else None,
        last_seq=int(state.get("last_seq", 0)),
        replicas=replicas,
        at=_parse_time(info.get("ts")),
        leader_since=_parse_time(cluster.get("leader_since")),
        silence_by_source={} if replicas == 1 else dict(_list_silences(info, name)),
    )


def _list_silences(info: dict[str, Any], reader: str) -> Iterator[tuple[str, timedelta]]:
    """Each stream that *reader* has heard of at least once, and how long ago."""
    for source in info.get("sources") or filter(None, [info.get("mirror")]):
        if (nanoseconds := int(source.get("active", -1))) >= 0:
            yield source_name(source, reader), timedelta(microseconds=nanoseconds / 1000)


def _parse_time(text: object) -> datetime | None:
    """The moment that *text* says (RFC 3339), None if it says none."""
    try:
        moment = datetime.fromisoformat(str(text))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


def _is_placeholder(info: Mapping[str, Any]) -> bool:
    """
    Whether a server lists for another one that it ended: the configuration, no leader, and zeros for what is stored.

    What is listed otherwise is told by its leader (server/jetstream_cluster.go, jsClusteredStreamListRequest).
    """
    cluster = info.get("cluster")
    return isinstance(cluster, dict) and bool(cluster) and not cluster.get("leader")


def _parse_consumer(info: dict[str, Any], stream: str) -> ObservedConsumer:
    origin = naming.api_subject("CONSUMER.INFO", stream)
    with convert_malformed_errors(origin):
        config = require_config(info.get("config"), origin)
        cluster = info.get("cluster") or {}
        return ObservedConsumer(
            config=ConsumerConfig(stream=stream, durable=str(info.get("name", "")), fields=config),
            created=str(info.get("created", "")),
            leader=str(cluster["leader"]) if cluster.get("leader") else None,
            delivered=int((info.get("delivered") or {}).get("stream_seq", 0)),
            ack_floor=int((info.get("ack_floor") or {}).get("stream_seq", 0)),
            unacknowledged=int(info.get("num_ack_pending", 0)),
            redelivered=int(info.get("num_redelivered", 0)),
            waiting=int(info.get("num_waiting", 0)),
            pending=int(info.get("num_pending", 0)),
            is_paused=bool(info.get("paused")),
        )
