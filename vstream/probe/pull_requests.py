"""
Pull requests (ADR-13) by the virtual name, and every status that they can end with.

They need a consumer: one of the probe's own, in memory, which sees canaries alone and is deleted in the end; the
server forgets it by itself where that fails. It is made by the virtual name where servers allow that, else by
the physical one: what a mapping renames, a request's body does not, and the server refuses the pair (10056).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from vstream.errors import NoRespondersError, ServerError, VstreamError
from vstream.jetstream import error_codes
from vstream.jetstream.connection import Reply, ask_api
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.retry import Budget, describe_answer
from vstream.probe.target import ProbeTarget
from vstream.syntax.document import Json
from vstream.timing import SECOND_NS
from vstream.topology import naming
from vstream.topology.profiles import profile_of

_MS_NS = 1_000_000
_FORGOTTEN_AFTER_SECONDS = 30
"""Seconds without a pull until servers delete the consumer."""
_MAX_PULL_MESSAGES = 8
_MAX_PULL_SECONDS = 5
"""Limits of a pull of this consumer: messages, and seconds."""
_WAIT_TIMEOUT = 2.0
_PAUSE_SECONDS = 0.01
"""Seconds until a sent pull is sure to wait, and between two checks whether it does."""
_HEARTBEAT, _BAD, _NONE, _TIMEOUT, _CONFLICT = 100, 400, 404, 408, 409

CREATE, ONE, ACK, BATCH, GONE, NO_CONSUMER = (
    "create by the virtual name",
    "empty request: one message",
    "acknowledge",
    "batch, no_wait",
    "consumer deleted meanwhile",
    "no such consumer",
)


class _Status(NamedTuple):
    """A pull of an empty consumer, and the status that ends it."""

    name: str
    body: Mapping[str, Json]
    ends_with: int
    beats: bool = False


_STATUSES = (
    _Status("no_wait, nothing there", {"batch": 1, "no_wait": True}, _NONE),
    _Status("expires", {"batch": 1, "expires": 100 * _MS_NS}, _TIMEOUT),
    _Status("heartbeats", {"batch": 1, "expires": 700 * _MS_NS, "idle_heartbeat": 200 * _MS_NS}, _TIMEOUT, beats=True),
    _Status("heartbeat too long", {"batch": 1, "expires": 500 * _MS_NS, "idle_heartbeat": 400 * _MS_NS}, _BAD),
    _Status("batch too large", {"batch": _MAX_PULL_MESSAGES + 1, "no_wait": True}, _CONFLICT),
    _Status("expires too late", {"batch": 1, "expires": (_MAX_PULL_SECONDS + 5) * SECOND_NS}, _CONFLICT),
)
NAMES = (CREATE, ONE, ACK, BATCH, *(status.name for status in _STATUSES), GONE, NO_CONSUMER)
"""In the order of the table."""


async def probe_pull_requests(
    target: ProbeTarget, canaries: str, from_seq: int, arrived: int, run_id: str, budget: Budget
) -> list[Check]:
    """
    One check for each of NAMES.

    The consumer sees what is on the subject *canaries* from *from_seq* on, of which *arrived* messages are known.
    """
    pulling = _Pulling(target, f"vstream-probe-{run_id}-{target.region}", budget)
    config: dict[str, Json] = {
        "name": pulling.name,
        "ack_policy": "explicit",
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": from_seq,
        "filter_subject": canaries,
        "mem_storage": True,
        "num_replicas": 1,
        "inactive_threshold": _FORGOTTEN_AFTER_SECONDS * SECOND_NS,
        "max_batch": _MAX_PULL_MESSAGES,
        "max_expires": _MAX_PULL_SECONDS * SECOND_NS,
    }
    try:
        created = await pulling.create(config)
    except VstreamError as error:
        reason = "there is no consumer to pull from"
        return [
            target.make_failed_check(CheckKind.PULL, error, form=CREATE),
            *(target.make_check(CheckKind.PULL, CheckStatus.SKIPPED, reason, form=name) for name in NAMES[1:]),
        ]
    checks = [created, *(await pulling.messages(arrived))]
    checks += [await pulling.status(status) for status in _STATUSES]
    return [*checks, await pulling.delete_while_waiting(), await pulling.no_consumer()]


class _Pulling:
    """The requests to one consumer, by the virtual name of its stream."""

    def __init__(self, target: ProbeTarget, name: str, budget: Budget) -> None:
        self._target = target
        self._budget = budget
        self.name = name
        self._next = f"{naming.API}.CONSUMER.MSG.NEXT.{target.stream.name}"

    async def create(self, config: Mapping[str, Json]) -> Check:
        target, virtual = self._target, self._target.stream.name
        try:
            elapsed_ms = await self._create(virtual, config)
        except ServerError as error:
            if error.err_code != error_codes.STREAM_MISMATCH or not profile_of(target.stream).has_physical_names:
                raise
            elapsed_ms = await self._create(target.namesake, config)
            detail = f"{error_codes.STREAM_MISMATCH}: by the physical name"
            return target.make_check(CheckKind.PULL, CheckStatus.OK, detail, form=CREATE, elapsed_ms=elapsed_ms)
        return target.make_check(
            CheckKind.PULL, CheckStatus.OK, "created", form=CREATE, answered_by=target.namesake, elapsed_ms=elapsed_ms
        )

    async def _create(self, stream: str, config: Mapping[str, Json]) -> float:
        subject = f"{naming.api_subject('CONSUMER.CREATE', stream)}.{self.name}.{config['filter_subject']}"
        body = {"stream_name": naming.local_name(stream), "config": config, "action": "create"}
        connection = self._target.connection
        _, elapsed_ms = await self._target.measure(lambda timeout: ask_api(connection, subject, body, timeout=timeout))
        return elapsed_ms

    async def messages(self, arrived: int) -> list[Check]:
        """One message, its acknowledgement, and then the rest."""
        target = self._target
        if not arrived:
            reason = "there is no canary to pull"
            return [
                target.make_check(CheckKind.PULL, CheckStatus.SKIPPED, reason, form=name) for name in (ONE, ACK, BATCH)
            ]
        first_check, answers = await self._pull(ONE, None, _check_message)
        ack_reply = answers[-1].reply if answers else ""
        rest, _ = await self._pull(
            BATCH, {"batch": _MAX_PULL_MESSAGES, "no_wait": True}, lambda got: _check_batch(got, arrived - 1)
        )
        return [first_check, await self._acknowledge(ack_reply), rest]

    async def _acknowledge(self, reply: str) -> Check:
        target = self._target
        if not reply:
            return target.make_check(CheckKind.PULL, CheckStatus.SKIPPED, "there is nothing to acknowledge", form=ACK)
        try:
            _, elapsed_ms = await target.measure(
                lambda timeout: target.connection.request(reply, b"+ACK", timeout=timeout)
            )
        except VstreamError as error:
            return target.make_failed_check(CheckKind.PULL, error, form=ACK)
        return target.make_check(
            CheckKind.PULL,
            CheckStatus.OK,
            "acknowledged, and confirmed",
            form=ACK,
            answered_by=_name_stream(target, reply),
            elapsed_ms=elapsed_ms,
        )

    async def status(self, expected: _Status) -> Check:
        def judge(answers: Sequence[Reply]) -> str | None:
            beats = sum(answer.status == _HEARTBEAT for answer in answers)
            if answers[-1].status != expected.ends_with:
                return f"ended with {describe_answer(answers[-1])}, not {expected.ends_with}"
            return "no heartbeat came" if expected.beats and not beats else None

        check, _ = await self._pull(expected.name, expected.body, judge)
        return check

    async def delete_while_waiting(self) -> Check:
        """Delete the consumer while a pull waits; it is not used after that."""
        target = self._target
        pulling = asyncio.create_task(
            self._pull(GONE, {"batch": 1, "expires": _MAX_PULL_SECONDS * SECOND_NS}, _check_gone)
        )
        try:
            await self._delete()
        except VstreamError as error:
            await pulling
            return target.make_failed_check(CheckKind.PULL, error, form=GONE)
        check, answers = await pulling
        if answers and answers[-1].status is None:
            return target.make_check(
                CheckKind.PULL, CheckStatus.SKIPPED, "another probe's canary arrived first", form=GONE
            )
        return check

    async def _delete(self) -> None:
        target, stream = self._target, self._target.stream.name
        waits_until = time.monotonic() + _WAIT_TIMEOUT
        while time.monotonic() < waits_until:
            asked = f"{naming.API}.CONSUMER.INFO.{stream}.{self.name}"
            info, _ = await target.measure(lambda timeout: target.connection.request_json(asked, timeout=timeout))  # noqa: B023 - awaited here
            if info.get("num_waiting"):
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        subject = f"{naming.API}.CONSUMER.DELETE.{stream}.{self.name}"
        await target.measure(lambda timeout: ask_api(target.connection, subject, timeout=timeout))

    async def no_consumer(self) -> Check:
        """A pull from a consumer that does not exist."""
        target = self._target
        try:
            answer, _ = await target.measure(
                lambda timeout: target.connection.request(f"{self._next}.{self.name}_none", b"", timeout=timeout)
            )
        except NoRespondersError:
            return target.make_check(CheckKind.PULL, CheckStatus.OK, "no responders", form=NO_CONSUMER)
        except VstreamError as error:
            return target.make_failed_check(CheckKind.PULL, error, form=NO_CONSUMER)
        return target.make_check(
            CheckKind.PULL, CheckStatus.FAILED, f"answered with {describe_answer(answer)}", form=NO_CONSUMER
        )

    async def _pull(
        self, name: str, body: Mapping[str, Json] | None, judge: Callable[[Sequence[Reply]], str | None]
    ) -> tuple[Check, tuple[Reply, ...]]:
        """One pull request and its check, and the answers; none where there was an error."""
        target, payload = self._target, b"" if body is None else json.dumps(body).encode()
        expected = 1 if body is None else int(str(body["batch"]))

        async def ask(timeout: float) -> tuple[Reply, ...]:
            left = expected

            def is_last(answer: Reply) -> bool:
                nonlocal left
                left -= answer.status is None
                return left == 0 or answer.status not in {None, _HEARTBEAT}

            return await target.connection.request_many(
                f"{self._next}.{self.name}", payload, is_last=is_last, timeout=timeout + _MAX_PULL_SECONDS
            )

        try:
            outcome = await self._budget.settle(target, ask, judge)
        except VstreamError as error:
            return target.make_failed_check(CheckKind.PULL, error, form=name), ()
        last = outcome.answers[-1]
        status = CheckStatus.OK if outcome.problem is None else CheckStatus.FAILED
        return (
            target.make_check(
                CheckKind.PULL,
                status,
                outcome.problem or ("a message" if last.status is None else str(last.status)),
                form=name,
                answered_by=next((_name_stream(target, item.reply) for item in outcome.answers if item.reply), None),
                elapsed_ms=outcome.elapsed_ms,
            ),
            outcome.answers,
        )


def _check_message(answers: Sequence[Reply]) -> str | None:
    return None if answers[-1].status is None else f"ended with {describe_answer(answers[-1])}, not with a message"


def _check_batch(answers: Sequence[Reply], count: int) -> str | None:
    messages = sum(answer.status is None for answer in answers)
    if messages < count:
        return f"{messages} messages came, and {count} are there"
    # Servers before 2.11 end it as if it had expired.
    if messages < _MAX_PULL_MESSAGES and answers[-1].status not in {_NONE, _TIMEOUT}:
        return f"ended with {describe_answer(answers[-1])}, not {_NONE}"
    return None


def _check_gone(answers: Sequence[Reply]) -> str | None:
    return None if answers[-1].status == _CONFLICT else f"ended with {describe_answer(answers[-1])}, not {_CONFLICT}"


def _name_stream(target: ProbeTarget, reply: str) -> str:
    """The stream that delivered a message which is acknowledged on *reply*: `$JS.ACK.<stream>.<consumer>.…`."""
    return naming.qualify_answer(reply.split(".")[2], target.namesake)
