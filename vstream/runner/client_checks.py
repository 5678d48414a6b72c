"""Try every client operation once: which ones work in a region now, and how the others fail."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from vstream.capture.digest import digest
from vstream.capture.records import OperationKind, OperationOutcome, OperationRecord, message_identity
from vstream.errors import NotReachableError, VstreamError
from vstream.jetstream import error_codes
from vstream.jetstream.answers import api_error
from vstream.jetstream.connection import Reply, ask_api
from vstream.jetstream.direct import get_newest, get_next
from vstream.jetstream.message_reader import AckSubject
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.runner.workload.publisher import parse_acknowledgement
from vstream.runner.workload.readers import ACK, classify_failure, describe_refusal, request_consumer
from vstream.scenario.model import ClientOperation
from vstream.timing import SECOND_NS
from vstream.topology import naming
from vstream.value_class import value_class

CONSUMER = "vstream-try"
"""The durable consumer that exists beforehand."""
TIMEOUT = 3.0
"""Seconds for each operation."""
_PREPARE_TIMEOUT = 30.0
_API = "$JS.API"
_NO_MESSAGES = {404, 408}


@value_class
class TriedStream:
    """What is tried, and where. *number* distinguishes `try` steps."""

    region: str
    cluster: str
    stream: str
    read_stream: str
    """The region's read stream."""
    consumer_stream: str
    """The name by which clients use a consumer on it: the virtual one, if that is mapped to it."""
    write_stream: str
    """The physical stream that stores what is published there."""
    subject: str
    """A subject that clients publish on."""
    number: int


@dataclass(slots=True)
class _Answer:
    """What an answer said."""

    stream: str | None = None
    seq: int | None = None
    id: str | None = None
    digest: str | None = None
    count: int = 0


class OperationChecks:
    """Tries all operations on the stream *tried*. *now* is the time in nanoseconds since the capture's start."""

    def __init__(self, tried: TriedStream, connection: ReconnectingConnection, now: Callable[[], int]) -> None:
        self._tried = tried
        self._connection = connection
        self._now = now
        self._fetched: str | None = None

    async def create_fetch_consumer(self) -> None:
        """Create the consumer to fetch from. Raises VstreamError."""
        read = self._local_read_stream
        config = {"durable_name": CONSUMER, "name": CONSUMER, "ack_policy": "explicit", "deliver_policy": "all"}
        subject = f"{_API}.CONSUMER.DURABLE.CREATE.{read}.{CONSUMER}"
        request = {"stream_name": read, "config": config}
        await request_consumer(self._connection, subject, request, within=_PREPARE_TIMEOUT)

    async def run(self) -> list[OperationRecord]:
        """Try one operation of each kind, in order."""
        tried = self._tried
        works: dict[ClientOperation, Callable[[], Awaitable[_Answer]]] = {
            ClientOperation.PUBLISH: self._publish,
            ClientOperation.DIRECT_GET: self._direct_get,
            ClientOperation.DIRECT_GET_SEQUENCE: self._direct_get_sequence,
            ClientOperation.MESSAGE_GET: self._message_get,
            ClientOperation.STREAM_INFO: lambda: self._ask_plain(f"STREAM.INFO.{tried.stream}"),
            ClientOperation.LIST_STREAMS: lambda: self._ask_plain("STREAM.NAMES", {"subject": tried.subject}),
            ClientOperation.FETCH: self._fetch,
            ClientOperation.CONSUMER_INFO: lambda: self._ask_plain(f"CONSUMER.INFO.{tried.consumer_stream}.{CONSUMER}"),
            ClientOperation.CREATE_CONSUMER: self._create_consumer,
            ClientOperation.CREATE_STREAM: self._create_stream,
        }
        done = dict(
            zip(works, await asyncio.gather(*(self._run_and_record(*item) for item in works.items())), strict=True)
        )
        done[ClientOperation.ACKNOWLEDGE] = await self._run_and_record(ClientOperation.ACKNOWLEDGE, self._acknowledge)
        return [done[trial] for trial in ClientOperation]

    async def _run_and_record(self, trial: ClientOperation, work: Callable[[], Awaitable[_Answer]]) -> OperationRecord:
        sent, result, error, outcome = self._now(), _Answer(), None, OperationOutcome.OK
        try:
            result = await work()
        except VstreamError as problem:
            outcome, error = classify_failure(problem)
        return OperationRecord(
            client=f"{self._tried.region}/try-{self._tried.stream}",
            region=self._tried.region,
            kind=OperationKind.TRY,
            stream=self._tried.stream,
            due=sent,
            sent=sent,
            done=None if outcome is OperationOutcome.INDETERMINATE else self._now(),
            outcome=outcome,
            # A publish without an answer may be stored all the same.
            id=self._identity() if trial is ClientOperation.PUBLISH else result.id,
            subject=trial.value,
            digest=digest(self._payload()) if trial is ClientOperation.PUBLISH else None,
            acked_by=result.stream,
            seq=result.seq,
            count=result.count,
            error=error,
        )

    @property
    def _local_read_stream(self) -> str:
        """How clients make consumers: by the name of the read stream, which in accounts of their own is the virtual one."""
        return naming.local_name(self._tried.read_stream)

    def _identity(self) -> str:
        return f"{self._tried.region}/{self._tried.stream}/try{self._tried.number}"

    def _payload(self) -> bytes:
        return f"{self._identity()} tried".encode()

    async def _publish(self) -> _Answer:
        reply = await self._connection.request(self._tried.subject, self._payload(), timeout=TIMEOUT)
        ack = parse_acknowledgement(reply, self._tried.write_stream)
        if ack.error is not None:
            raise VstreamError(ack.error)
        return _Answer(stream=ack.stream, seq=ack.seq)

    async def _direct_get(self) -> _Answer:
        return self._answer_with(
            await get_newest(self._connection, self._tried.stream, self._tried.subject, timeout=TIMEOUT)
        )

    async def _direct_get_sequence(self) -> _Answer:
        return self._answer_with(await get_next(self._connection, self._tried.stream, ">", 1, timeout=TIMEOUT))

    def _answer_with(self, message: Any) -> _Answer:
        if message is None:
            return _Answer()
        stream = naming.qualify_answer(message.stream, self._tried.read_stream)
        return _Answer(stream=stream, seq=message.seq, id=message_identity(message.data))

    async def _message_get(self) -> _Answer:
        subject = f"{_API}.STREAM.MSG.GET.{self._tried.stream}"
        answer = await self._connection.request_json(subject, {"last_by_subj": self._tried.subject}, timeout=TIMEOUT)
        error = api_error(answer, subject)
        if error is not None and error.err_code != error_codes.MESSAGE_NOT_FOUND:
            raise error
        return _Answer()

    async def _ask_plain(self, subject: str, body: dict[str, Any] | None = None) -> _Answer:
        await self._ask_api(subject, body)
        return _Answer()

    async def _fetch(self) -> _Answer:
        reply = await self._pull_next(self._tried.consumer_stream, CONSUMER)
        if reply is None:
            return _Answer()
        self._fetched = reply.reply
        return self._delivery_result(reply)

    @staticmethod
    def _delivery_result(reply: Reply, stream: str | None = None) -> _Answer:
        return _Answer(stream=stream, id=message_identity(reply.data), seq=AckSubject.parse(reply.reply).seq, count=1)

    async def _pull_next(self, stream: str, consumer: str) -> Reply | None:
        """The next message of *consumer* on *stream*; None: it has none. Raises VstreamError."""
        body = json.dumps({"batch": 1, "expires": round((TIMEOUT - 0.5) * SECOND_NS)}).encode()
        subject = f"{_API}.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        # A message comes under its stored subject: a request would not know it for its answer.
        inbox, came = self._connection.inbox(), asyncio.get_running_loop().create_future()

        async def take(reply: Reply, _: str) -> None:
            if not came.done():
                came.set_result(reply)

        await self._connection.subscribe(inbox, take)
        await self._connection.publish(subject, body, reply=inbox)
        try:
            async with asyncio.timeout(TIMEOUT):
                reply: Reply = await came
        except TimeoutError:
            raise NotReachableError(f"no answer on `{subject}` within {TIMEOUT:g} s") from None
        if reply.status in _NO_MESSAGES:
            return None
        if reply.status is not None:
            raise VstreamError(describe_refusal(reply))
        return reply

    async def _acknowledge(self) -> _Answer:
        if self._fetched is None:
            raise VstreamError("nothing was fetched")
        await self._connection.request(self._fetched, ACK, timeout=TIMEOUT)
        return _Answer()

    async def _create_consumer(self) -> _Answer:
        tried = self._tried
        config = {"ack_policy": "explicit", "inactive_threshold": 10 * SECOND_NS}
        made = await self._ask_api(
            f"CONSUMER.CREATE.{self._local_read_stream}", {"stream_name": self._local_read_stream, "config": config}
        )
        reply = await self._pull_next(self._local_read_stream, made["name"])
        return _Answer(stream=tried.read_stream) if reply is None else self._delivery_result(reply, tried.read_stream)

    async def _create_stream(self) -> _Answer:
        tried = self._tried
        name = f"vstream-try-{tried.region}-{tried.stream}-{tried.number}"
        config = {
            "name": name,
            "subjects": [f"_vstream_try.{tried.region}.{tried.stream}.{tried.number}"],
            "retention": "limits",
            "storage": "memory",
            "num_replicas": 1,
            "placement": {"cluster": tried.cluster},
        }
        await self._ask_api(f"STREAM.CREATE.{name}", config)
        return _Answer(stream=name)

    async def _ask_api(self, subject: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        full = f"{_API}.{subject}"
        return await ask_api(self._connection, full, body, timeout=TIMEOUT)
