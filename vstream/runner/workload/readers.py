"""Readers, open loop like publishers: Direct Get by the virtual name, and pull consumers on the read stream."""

from __future__ import annotations

import asyncio
import json
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from vstream.capture.records import Delivery, OperationKind, OperationOutcome, OperationRecord, message_identity
from vstream.errors import NoRespondersError, NotConnectedError, NotReachableError, ServerError, VstreamError
from vstream.jetstream.answers import api_error
from vstream.jetstream.connection import Reply
from vstream.jetstream.direct import get_newest, get_next
from vstream.jetstream.message_reader import AckSubject
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.runner.workload.recorder import Recorder
from vstream.runner.workload.spec import ConsumerSpec, ReaderSpec
from vstream.scenario.model import fill_subject
from vstream.timing import SECOND_NS
from vstream.topology import naming

ACK = b"+ACK"
BATCH_MESSAGES = 1000
API = "$JS.API"
_NO_MESSAGES_STATUSES = {404, 408}
_STATUS_NO_RESPONDERS = 503
_TICK_SECONDS = 0.001
_CREATE_TIMEOUT = 5.0
_PAUSE_SECONDS = 0.2
_ACK_WAIT_SECONDS = 5.0
"""Seconds until a server redelivers an unacknowledged message. These clients acknowledge at once."""
_LEFTOVERS_TIMEOUT = 10.0
"""Seconds at the end for remaining messages, besides redeliveries."""


def describe_refusal(reply: Reply) -> str:
    """What the status that ended a fetch means."""
    # Where nobody listens, the headers say on which subject instead of why.
    description = reply.headers.get("Description") if reply.status != _STATUS_NO_RESPONDERS else None
    return f"{description or 'no responders'} ({reply.status})"


def classify_failure(error: VstreamError) -> tuple[OperationOutcome, str]:
    """How the operation that *error* ended is recorded, and why in short."""
    match error:
        case NotConnectedError():
            return OperationOutcome.REJECTED, "not connected"
        case NoRespondersError():
            return OperationOutcome.REJECTED, "no responders"
        case NotReachableError():
            return OperationOutcome.INDETERMINATE, "no answer in time"
        case ServerError():
            return OperationOutcome.REJECTED, f"{error.description} ({error.code}/{error.err_code})"
        case _:
            return OperationOutcome.REJECTED, error.message


class _PacedReader(ABC):
    """Begins an operation at each moment that is due, until it is stopped."""

    def __init__(self, spec: ReaderSpec | ConsumerSpec, kind: OperationKind, recorder: Recorder) -> None:
        self._client, self._stream, self._rate = spec.client, spec.stream, spec.rate
        self._kind = kind
        self.recorder = recorder
        self._running: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    @property
    def is_drained(self) -> bool:
        """Whether nothing waits for an answer."""
        return not self._running

    def stop(self) -> None:
        """No new operations."""
        self._is_stopped = True

    async def run(self, begin: int) -> None:
        """Run operations from *begin* on, in nanoseconds since the capture's start."""
        number, period = 0, SECOND_NS / self._rate
        while not self._is_stopped:
            due = begin + round(number * period)
            ahead = (due - self.recorder.now()) / SECOND_NS
            if ahead > 0:
                await asyncio.sleep(max(_TICK_SECONDS, min(ahead, 0.05)))
                continue
            self.begin(due, number)
            number += 1
        while self._running:
            await asyncio.sleep(_TICK_SECONDS * 20)

    def begin(self, due: int, number: int) -> None:
        """Begin operation *number*."""
        task = asyncio.create_task(self.operate(due, number))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def make_record(self, due: int, sent: int, outcome: OperationOutcome, error: str | None) -> OperationRecord:
        """What every operation is recorded with, now that it has ended."""
        return OperationRecord(
            client=self._client,
            region=self.recorder.region,
            kind=self._kind,
            stream=self._stream,
            due=due,
            sent=sent,
            done=None if outcome is OperationOutcome.INDETERMINATE else self.recorder.now(),
            outcome=outcome,
            error=error,
        )

    @abstractmethod
    async def operate(self, due: int, number: int) -> None:
        """One operation."""


class DirectReader(_PacedReader):
    """Reads as *spec* says."""

    def __init__(self, spec: ReaderSpec, connection: ReconnectingConnection, recorder: Recorder, seed: int) -> None:
        super().__init__(spec, OperationKind.READ, recorder)
        self._spec = spec
        self._connection = connection
        self._random = random.Random(f"{seed}/{spec.client}")  # noqa: S311 - the seed is what it is for
        self._next = 1
        self._begun = recorder.now()

    async def operate(self, due: int, number: int) -> None:  # noqa: ARG002 - as every operation
        """One Direct Get. "No such message" is an answer too."""
        sent, timeout = self.recorder.now(), self._spec.timeout / SECOND_NS
        subject = None if self._spec.is_sequential else self._any_subject()
        message, error, outcome = None, None, OperationOutcome.OK
        try:
            if subject is None:
                message = await get_next(self._connection, self._spec.stream, ">", self._next, timeout=timeout)
            else:
                message = await get_newest(self._connection, self._spec.stream, subject, timeout=timeout)
        except VstreamError as problem:
            outcome, error = classify_failure(problem)
        record = replace(self.make_record(due, sent, outcome, error), subject=subject)
        if message is not None:
            self._next = max(self._next, message.seq + 1)
            record = replace(
                record,
                id=message_identity(message.data),
                subject=message.subject,
                acked_by=naming.qualify_answer(message.stream, self._spec.read_stream),
                seq=message.seq,
            )
        self.recorder.record_operation(record)

    def _any_subject(self) -> str:
        subject, keys, rate = self._random.choice(self._spec.subjects)
        published = max(1, round((self.recorder.now() - self._begun) / SECOND_NS * rate))
        return fill_subject(subject, {"key": self._random.randrange(keys), "n": self._random.randrange(published)})


class ConsumerReader(_PacedReader):
    """Fetches as *spec* says and acknowledges every message. A fetch takes up to `BATCH_MESSAGES`."""

    def __init__(self, spec: ConsumerSpec, connection: ReconnectingConnection, recorder: Recorder) -> None:
        super().__init__(spec, OperationKind.FETCH, recorder)
        self._spec = spec
        self._connection = connection
        self._inbox = connection.inbox()
        self._fetches: dict[int, _Fetch] = {}

    async def create(self, *, within: float) -> None:
        """Create the consumer by its physical name. Raises VstreamError if that fails for *within* seconds."""
        await self._connection.subscribe(f"{self._inbox}.*", self._handle_message)
        config = {
            "durable_name": self._spec.name,
            "name": self._spec.name,
            "ack_policy": "explicit",
            "ack_wait": round(_ACK_WAIT_SECONDS * SECOND_NS),
            "deliver_policy": "all",
            "max_ack_pending": 100 * BATCH_MESSAGES,
        }
        subject = f"{API}.CONSUMER.DURABLE.CREATE.{self._spec.physical}.{self._spec.name}"
        await request_consumer(
            self._connection, subject, {"stream_name": self._spec.physical, "config": config}, within=within
        )

    async def finish(self) -> None:
        """
        Take the remaining messages and redeliveries.

        If a killed server had a delivery or an acknowledgement, the message is redelivered after `ack_wait`; until
        then, fetches are empty.
        """
        deadline = self.recorder.now() + round((_ACK_WAIT_SECONDS + _LEFTOVERS_TIMEOUT) * SECOND_NS)
        while (now := self.recorder.now()) < deadline:
            outcome, count = await self._fetch(now, -now)
            if count == 0:
                if outcome is OperationOutcome.OK and not await self._has_unacknowledged():
                    return
                await asyncio.sleep(_PAUSE_SECONDS)  # where no server runs, a fetch ends at once

    async def _has_unacknowledged(self) -> bool:
        """Whether the server has something for it that is not acknowledged; also where it does not say."""
        subject = f"{API}.CONSUMER.INFO.{self._spec.physical}.{self._spec.name}"
        with suppress(VstreamError):
            info = await self._connection.request_json(subject, timeout=_CREATE_TIMEOUT)
            if api_error(info, subject) is None:
                return bool(info["num_pending"] or info["num_ack_pending"])
        return True

    async def operate(self, due: int, number: int) -> None:
        """One fetch."""
        await self._fetch(due, number)

    async def _fetch(self, due: int, number: int) -> tuple[OperationOutcome, int]:
        sent = self.recorder.now()
        fetch = self._fetches[number] = _Fetch()
        error, outcome = None, OperationOutcome.OK
        try:
            await self._connection.publish(
                f"{API}.CONSUMER.MSG.NEXT.{self._spec.physical}.{self._spec.name}",
                json.dumps({"batch": BATCH_MESSAGES, "no_wait": True}).encode(),
                reply=f"{self._inbox}.{number}",
            )
            async with asyncio.timeout(self._spec.timeout / SECOND_NS):
                error = await fetch.ended
            outcome = OperationOutcome.OK if error is None else OperationOutcome.REJECTED
        except NotConnectedError:
            outcome, error = OperationOutcome.REJECTED, "not connected"
        except TimeoutError:
            outcome, error = OperationOutcome.INDETERMINATE, "no answer in time"
        del self._fetches[number]
        answered_by = self._spec.physical if outcome is OperationOutcome.OK else None
        record = replace(self.make_record(due, sent, outcome, error), acked_by=answered_by, count=fetch.count)
        self.recorder.record_operation(record)
        return outcome, fetch.count

    async def _handle_message(self, reply: Reply, subject: str) -> None:
        if reply.reply.startswith("$JS.ACK."):
            await self._record_delivery(reply)
            return
        fetch = self._fetches.get(int(subject.rpartition(".")[2]))
        if fetch is None or fetch.ended.done():
            return
        if reply.status in _NO_MESSAGES_STATUSES:
            fetch.ended.set_result(None)
        elif reply.status is not None:
            fetch.ended.set_result(describe_refusal(reply))

    async def _record_delivery(self, reply: Reply) -> None:
        # It comes under its stored subject: which fetch it is for stands nowhere. Servers serve the oldest first.
        fetch = next((pending for pending in self._fetches.values() if not pending.ended.done()), None)
        if fetch is not None:
            fetch.count += 1
            if fetch.count == BATCH_MESSAGES:
                fetch.ended.set_result(None)
        acknowledgement = AckSubject.parse(reply.reply)
        self.recorder.record_delivery(
            Delivery(
                client=self._spec.client,
                region=self.recorder.region,
                stream=self._spec.stream,
                id=message_identity(reply.data) or "",
                seq=acknowledgement.seq,
                at=self.recorder.now(),
                deliveries=acknowledgement.deliveries,
            )
        )
        with suppress(NotConnectedError):  # it will be delivered again
            await self._connection.publish(reply.reply, ACK)


async def request_consumer(
    connection: ReconnectingConnection, subject: str, request: Mapping[str, Any], *, within: float
) -> None:
    """
    Repeat the request on *subject* until the consumer exists, which needs a meta leader and a leader of the stream.

    Raises ServerError or NotReachableError if there is none after *within* seconds.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            answer = await connection.request_json(subject, request, timeout=_CREATE_TIMEOUT)
            if (error := api_error(answer, subject)) is None:
                return
            raise error
        except (ServerError, NotReachableError, NotConnectedError):
            if time.monotonic() > deadline:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)


class _Fetch:
    """One pull request under way."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self.count = 0
