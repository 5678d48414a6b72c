"""
An open-loop publisher: it sends each message when it is due, whatever happened to earlier ones.

Answers arrive on one inbox. Every message gets exactly one record: acknowledged, rejected (an error came back, or it
was never sent), or indeterminate (no answer in time). Later answers change nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from vstream.capture.digest import digest
from vstream.capture.records import OperationKind, OperationOutcome, OperationRecord
from vstream.errors import MalformedAnswerError, NotConnectedError
from vstream.jetstream.answers import convert_malformed_errors, decode_object, describe_error
from vstream.jetstream.connection import Reply
from vstream.jetstream.reconnecting import ReconnectingConnection
from vstream.jetstream.source_header import MSG_ID
from vstream.runner.workload.recorder import Recorder
from vstream.runner.workload.spec import PublisherSpec
from vstream.scenario.model import fill_subject
from vstream.timing import SECOND_NS
from vstream.topology import naming

_TICK_SECONDS = 0.001
"""Maximum seconds between two checks for due messages."""
_IDLE_SECONDS = 0.02
_RESEND_NS = 100_000_000
"""Nanoseconds before a refused message is sent again."""


@dataclass(slots=True)
class _OpenMessage:
    """A message without an outcome. *unanswered* of its attempts may still have an effect."""

    number: int
    subject: str
    payload: bytes
    due: int
    sent: int
    attempts: int = 0
    unanswered: int = 0
    error: str | None = None


class Acknowledgement(NamedTuple):
    """The answer to a publish: an *error*, or where the message is stored."""

    error: str | None = None
    stream: str | None = None
    seq: int | None = None
    is_duplicate: bool = False


class Publisher:
    """Publishes as *spec* says until `stop`; done when every message has an outcome."""

    def __init__(self, spec: PublisherSpec, connection: ReconnectingConnection, recorder: Recorder, seed: int) -> None:
        self._spec = spec
        self._connection = connection
        self._recorder = recorder
        self._random = random.Random(f"{seed}/{spec.client}")  # noqa: S311 - the seed is what it is for
        self._padding = self._random.randbytes(spec.size[1] // 2 + 1).hex().encode()
        self._inbox = connection.inbox()
        self._open: dict[int, _OpenMessage] = {}
        self._expiring: deque[tuple[int, int, int]] = deque()
        """When, which message, after which attempt."""
        self._again: deque[tuple[int, int]] = deque()
        self._is_stopped = False

    @property
    def is_drained(self) -> bool:
        """Whether no answer is outstanding."""
        return not self._open

    def stop(self) -> None:
        """Send no new messages."""
        self._is_stopped = True

    def abandon(self) -> None:
        """Give every message an outcome now."""
        for message in list(self._open.values()):
            message.error = message.error or "the run ended before an answer"
            self._record_outcome(message, Acknowledgement())

    async def listen(self) -> None:
        """Start to receive answers."""
        await self._connection.subscribe(f"{self._inbox}.*", self._handle_answer)

    async def run(self, begin: int) -> None:
        """Publish from *begin* on, in nanoseconds since the capture's start."""
        number, period = 0, SECOND_NS / self._spec.rate
        while not (self._is_stopped and self.is_drained):
            now = self._recorder.now()
            while not self._is_stopped and begin + round(number * period) <= now:
                await self._publish_first(number, begin + round(number * period))
                number += 1
                now = self._recorder.now()
            await self._retry_or_expire(now)
            ahead = (begin + number * period - self._recorder.now()) / SECOND_NS
            await asyncio.sleep(_IDLE_SECONDS if self._is_stopped else max(_TICK_SECONDS, min(_IDLE_SECONDS, ahead)))

    async def _publish_first(self, number: int, due: int) -> None:
        identity, key = f"{self._spec.prefix}{number}", self._random.randrange(self._spec.keys)
        head = f"{identity} ".encode()
        size = self._random.randint(*self._spec.size)
        message = _OpenMessage(
            number=number,
            subject=fill_subject(self._spec.subject, {"n": number, "key": key}),
            payload=head + self._padding[: max(0, size - len(head))],
            due=due,
            sent=self._recorder.now(),
        )
        self._recorder.record_due(message.sent - due)
        self._open[number] = message
        await self._send(message)

    async def _send(self, message: _OpenMessage) -> None:
        identity = f"{self._spec.prefix}{message.number}"
        message.attempts += 1
        try:
            await self._connection.publish(
                message.subject,
                message.payload,
                reply=f"{self._inbox}.{message.number}",
                headers={MSG_ID: identity} if self._spec.is_retrying else None,
            )
        except NotConnectedError as error:
            self._handle_refusal(message, error.message)
            return
        message.unanswered += 1
        self._expiring.append((self._recorder.now() + self._spec.timeout, message.number, message.attempts))

    async def _retry_or_expire(self, now: int) -> None:
        """What has waited long enough for an answer, or for another attempt."""
        while self._expiring and self._expiring[0][0] <= now:
            _, number, attempt = self._expiring.popleft()
            message = self._open.get(number)
            if message is None or message.attempts != attempt:
                continue
            message.error = "no answer in time"
            if self._may_retry(message, now):
                await self._send(message)
            else:
                self._record_outcome(message, Acknowledgement())
        while self._again and self._again[0][0] <= now:
            _, number = self._again.popleft()
            if number in self._open:
                await self._send(self._open[number])

    async def _handle_answer(self, reply: Reply, subject: str) -> None:
        message = self._open.get(int(subject.rpartition(".")[2]))
        if message is None:
            return
        ack = parse_acknowledgement(reply, self._spec.write_stream)
        if ack.error is None:
            self._record_outcome(message, ack, done=self._recorder.now())
        else:
            message.unanswered -= 1
            self._handle_refusal(message, ack.error)

    def _handle_refusal(self, message: _OpenMessage, error: str) -> None:
        """One attempt came to nothing for certain."""
        message.error = error
        now = self._recorder.now()
        if not self._may_retry(message, now + _RESEND_NS):
            self._record_outcome(message, Acknowledgement(), done=now)
        else:
            self._again.append((now + _RESEND_NS, message.number))

    def _may_retry(self, message: _OpenMessage, at: int) -> bool:
        return self._spec.is_retrying and at < message.due + self._spec.give_up

    def _record_outcome(self, message: _OpenMessage, ack: Acknowledgement, *, done: int | None = None) -> None:
        del self._open[message.number]
        if ack.stream is not None:
            outcome = OperationOutcome.OK
        else:
            outcome = OperationOutcome.INDETERMINATE if message.unanswered else OperationOutcome.REJECTED
        self._recorder.record_operation(
            OperationRecord(
                client=self._spec.client,
                region=self._recorder.region,
                kind=OperationKind.PUBLISH,
                stream=self._spec.stream,
                due=message.due,
                sent=message.sent,
                done=None if outcome is OperationOutcome.INDETERMINATE else done,
                outcome=outcome,
                id=f"{self._spec.prefix}{message.number}",
                subject=message.subject,
                digest=digest(message.payload),
                acked_by=ack.stream,
                seq=ack.seq,
                is_duplicate=ack.is_duplicate,
                attempts=message.attempts,
                error=None if outcome is OperationOutcome.OK else message.error,
            )
        )


def parse_acknowledgement(reply: Reply, write_stream: str) -> Acknowledgement:
    """What *reply* says; *write_stream* should answer."""
    if reply.status is not None:
        no_responders = reply.status == HTTPStatus.SERVICE_UNAVAILABLE
        return Acknowledgement("no responders" if no_responders else f"status {reply.status}")
    try:
        answer = decode_object(reply.data, "the acknowledgement")
        with convert_malformed_errors("the acknowledgement"):
            if "error" in answer:
                return Acknowledgement(describe_error(answer["error"]))
            return Acknowledgement(
                stream=naming.qualify_answer(str(answer["stream"]), write_stream),
                seq=int(answer["seq"]),
                is_duplicate=bool(answer.get("duplicate", False)),
            )
    except MalformedAnswerError:
        return Acknowledgement(f"an answer that is no acknowledgement: {reply.data[:80]!r}")
