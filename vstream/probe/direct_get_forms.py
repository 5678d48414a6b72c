"""
Every form of a Direct Get request (ADR-31), tried by the virtual name on a known message.

Forms are data: what is sent, what must come back, and since which server version. Expectations hold while others
publish: they are about the known message, never about counts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from vstream.errors import NoRespondersError, VstreamError
from vstream.jetstream import direct
from vstream.jetstream.connection import Reply
from vstream.jetstream.direct import DirectMessage
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.retry import Budget, describe_answer, parse_stored_sequence
from vstream.probe.stream_info import StreamInfo
from vstream.probe.target import ProbeTarget
from vstream.syntax.document import Json
from vstream.topology import naming
from vstream.topology.replication import holds_all_messages
from vstream.topology.units import parse_version
from vstream.value_class import value_class

_PENDING_HEADER = "Nats-Num-Pending"
_MAX_SUBJECTS = 1024
"""Maximum number of subjects that a multi-subject request may match (server/stream.go, getDirectMulti)."""
_BATCH_MESSAGES = 4
_RECENT = (2, 11, 0)
NOWHERE = "_vstream_probe_none"
_MAX_SEQ = 2**53
_END, _NOT_FOUND, _INVALID, _TOO_MANY = 204, 404, 408, 413


@value_class
class RequestForm:
    """One form. *body* and *suffix* are made from the known message; None is an empty request."""

    name: str
    body: Callable[[DirectMessage], Mapping[str, Json] | None]
    judge: Callable[[DirectMessage, Sequence[Reply]], str | None] = lambda _message, _answers: None
    """What is wrong with the answers; None if nothing."""
    status: int | None = None
    """The status that is the right answer; None if messages are."""
    suffix: Callable[[DirectMessage], str] = lambda _: ""
    """What is appended to the stream's name in the request's subject."""
    is_recent: bool = False
    """Whether servers before 2.11 do not know it."""
    is_many: bool = False
    """Whether several messages answer it, followed by a last one."""

    def find_problem(self, message: DirectMessage, answers: Sequence[Reply]) -> str | None:
        """What is wrong with *answers* to it, of which *message* is known."""
        if self.status not in {None, answers[0].status}:
            return f"answered with {describe_answer(answers[0])}, not {self.status}"
        return self.judge(message, answers)


def _check_known_message(message: DirectMessage, answers: Sequence[Reply]) -> str | None:
    got = parse_stored_sequence(answers[0])
    return None if got == message.seq else f"answered with {describe_answer(answers[0])}, not sequence {message.seq}"


def _check_age(message: DirectMessage, answers: Sequence[Reply]) -> str | None:
    """The last of its subject: somebody may have published there since."""
    subject, seq = answers[0].headers.get("Nats-Subject"), parse_stored_sequence(answers[0])
    if subject == message.subject and seq is not None and seq >= message.seq:
        return None
    return f"answered with {describe_answer(answers[0])}, not `{message.subject}` from sequence {message.seq} on"


def _check_batch(message: DirectMessage, answers: Sequence[Reply]) -> str | None:
    if answers[-1].status != _END or _PENDING_HEADER not in answers[-1].headers:
        return f"the batch ended with {describe_answer(answers[-1])}, not with 204 and `{_PENDING_HEADER}`"
    if not 1 <= len(answers) - 1 <= _BATCH_MESSAGES:
        return f"a batch of {_BATCH_MESSAGES} had {len(answers) - 1} messages"
    return _check_known_message(message, answers)


def _check_single(message: DirectMessage, answers: Sequence[Reply]) -> str | None:
    """Of a batch that may not grow beyond one byte: servers stop after the message that exceeds it."""
    return _check_batch(message, answers) or (None if len(answers) == 2 else f"max_bytes let {len(answers) - 1} pass")  # noqa: PLR2004 - a message and the end


def _check_multi(message: DirectMessage, answers: Sequence[Reply]) -> str | None:
    if answers[-1].status != _END or "Nats-UpTo-Sequence" not in answers[-1].headers:
        return f"the answer ended with {describe_answer(answers[-1])}, not with 204 and `Nats-UpTo-Sequence`"
    return _check_age(message, answers[-2:])


def _check_multi_with_end(message: DirectMessage, answers: Sequence[Reply]) -> str | None:
    """As it was when the known message came: nothing newer may be in it."""
    return _check_multi(message, answers) or _check_known_message(message, answers[-2:])


def _add_nanosecond(stored_at: str) -> str:
    """The RFC 3339 time one nanosecond after *stored_at*."""
    whole, _, fraction = stored_at.removesuffix("Z").partition(".")
    nanoseconds = int((fraction or "0").ljust(9, "0")) + 1
    # The last nanosecond of a second stays: the answer then is as of just before the message, and is asked for again.
    return f"{whole}.{min(nanoseconds, 999_999_999):09}Z"


FORMS = (
    RequestForm(name="by sequence", body=lambda m: {"seq": m.seq}, judge=_check_known_message),
    RequestForm(name="last by subject", body=lambda m: {"last_by_subj": m.subject}, judge=_check_age),
    RequestForm(
        name="next by subject, from a sequence",
        body=lambda m: {"seq": m.seq, "next_by_subj": m.subject},
        judge=_check_known_message,
    ),
    RequestForm(name="subject appended", body=lambda _: None, suffix=lambda m: f".{m.subject}", judge=_check_age),
    RequestForm(
        name="start time", body=lambda m: {"start_time": m.stored_at}, judge=_check_known_message, is_recent=True
    ),
    RequestForm(
        name="start time, next by subject",
        body=lambda m: {"start_time": m.stored_at, "next_by_subj": m.subject},
        judge=_check_known_message,
        is_recent=True,
    ),
    RequestForm(
        name="batch",
        body=lambda m: {"seq": m.seq, "batch": _BATCH_MESSAGES, "next_by_subj": m.subject},
        judge=_check_batch,
        is_recent=True,
        is_many=True,
    ),
    RequestForm(
        name="batch with max_bytes",
        body=lambda m: {"seq": m.seq, "batch": _BATCH_MESSAGES, "max_bytes": 1, "next_by_subj": direct.ANY_SUBJECT},
        judge=_check_single,
        is_recent=True,
        is_many=True,
    ),
    RequestForm(
        name="multi_last", body=lambda m: {"multi_last": [m.subject]}, judge=_check_multi, is_recent=True, is_many=True
    ),
    RequestForm(
        name="multi_last, up_to_seq",
        body=lambda m: {"multi_last": [m.subject], "up_to_seq": m.seq},
        judge=_check_multi_with_end,
        is_recent=True,
        is_many=True,
    ),
    RequestForm(
        name="multi_last, up_to_time",
        body=lambda m: {"multi_last": [m.subject], "up_to_time": _add_nanosecond(m.stored_at)},
        judge=_check_multi_with_end,
        is_recent=True,
        is_many=True,
    ),
    RequestForm(
        name="multi_last, batch",
        body=lambda m: {"multi_last": [m.subject, NOWHERE], "batch": 1},
        judge=_check_multi,
        is_recent=True,
        is_many=True,
    ),
    RequestForm(name="no such sequence", body=lambda _: {"seq": _MAX_SEQ}, status=_NOT_FOUND),
    RequestForm(name="no such subject", body=lambda m: {"last_by_subj": f"{m.subject}.{NOWHERE}"}, status=_NOT_FOUND),
    RequestForm(
        name="no such subject, appended",
        body=lambda _: None,
        suffix=lambda m: f".{m.subject}.{NOWHERE}",
        status=_NOT_FOUND,
    ),
    RequestForm(name="empty request", body=lambda _: None, status=_INVALID),
    RequestForm(name="two forms at once", body=lambda m: {"seq": m.seq, "last_by_subj": m.subject}, status=_INVALID),
    RequestForm(
        name="subject appended, and a request",
        body=lambda m: {"seq": m.seq},
        suffix=lambda m: f".{m.subject}",
        status=_INVALID,
    ),
)
"""In the order of the table."""

TOO_MANY = RequestForm(
    name="more than 1024 subjects",
    body=lambda _: {"multi_last": [direct.ANY_SUBJECT]},
    status=_TOO_MANY,
    is_recent=True,
)
NO_STREAM = "no such stream"
"""The form with a stream name that does not exist, which nobody must answer."""
NUMBER = len(FORMS) + 2
"""Number of checks that `probe_direct_get_forms` returns."""


async def probe_direct_get_forms(
    target: ProbeTarget, facts: StreamInfo | None, subject: str | None, budget: Budget
) -> list[Check]:
    """
    One check for each form, in the order of the table.

    They ask for the newest message on *subject*, or for the oldest one. *facts*
    are of this region's copy, None where it does not answer.
    """
    names = [form.name for form in (*FORMS, TOO_MANY)]
    try:
        message = await _find_message(target, subject)
    except NoRespondersError:
        reason = "no stream answers Direct Get: see the direct_get check of this region"
        return [_skip(target, name, reason) for name in (*names, NO_STREAM)]
    except VstreamError as error:
        return [target.make_failed_check(CheckKind.FORM, error, form=name) for name in (*names, NO_STREAM)]
    if message is None:
        return [_skip(target, name, "the stream has no message to ask for") for name in (*names, NO_STREAM)]
    checks = [await _try_form(target, form, message, budget) for form in FORMS]
    count = 0 if facts is None else facts.subject_count
    if count > _MAX_SUBJECTS:
        checks.append(await _try_form(target, TOO_MANY, message, budget))
    else:
        checks.append(_skip(target, TOO_MANY.name, "413 needs a stream with more than 1,024 subjects"))
    return [*checks, await _try_unknown_stream(target)]


async def _find_message(target: ProbeTarget, subject: str | None) -> DirectMessage | None:
    async def ask(timeout: float) -> DirectMessage | None:
        name = target.stream.name
        if subject is not None:
            return await direct.get_newest(target.connection, name, subject, timeout=timeout)
        return await direct.get_next(target.connection, name, direct.ANY_SUBJECT, 1, timeout=timeout)

    message, _ = await target.measure(ask)
    return message


async def _try_form(target: ProbeTarget, form: RequestForm, stored: DirectMessage, budget: Budget) -> Check:
    asked = f"{naming.API}.DIRECT.GET.{target.stream.name}{form.suffix(stored)}"
    body = form.body(stored)
    payload = b"" if body is None else json.dumps(body).encode()

    async def ask(timeout: float) -> tuple[Reply, ...]:
        return await target.connection.request_many(
            asked, payload, is_last=lambda reply: not form.is_many or _is_end(reply), timeout=timeout
        )

    def judge(answers: Sequence[Reply]) -> str | None:
        return form.find_problem(stored, answers) or _find_answerer(target, answers)

    try:
        outcome = await budget.settle(target, ask, judge)
    except VstreamError as error:
        return target.make_failed_check(CheckKind.FORM, error, form=form.name)
    answered_by = _stream_named_in(target, outcome.answers[0])
    if outcome.problem is None:
        detail = f"answered by `{answered_by}`" if form.status is None else str(form.status)
        return target.make_check(
            CheckKind.FORM,
            CheckStatus.OK,
            detail,
            form=form.name,
            answered_by=answered_by,
            elapsed_ms=outcome.elapsed_ms,
        )
    version = target.connection.server_version
    if form.is_recent and (parse_version(version) or _RECENT) < _RECENT:
        server = f"{target.connection.server_name} runs {version}"
        return _skip(target, form.name, f"not on this server: {server}, and this came with 2.11")
    hint = None
    if form.is_many and not _is_end(outcome.answers[-1]):
        hint = "servers before 2.11 answer this way: which version does the server that holds the stream run?"
    return target.make_check(
        CheckKind.FORM, CheckStatus.FAILED, outcome.problem, form=form.name, answered_by=answered_by, hint=hint
    )


async def _try_unknown_stream(target: ProbeTarget) -> Check:
    asked = f"{naming.API}.DIRECT.GET.{target.stream.name}{NOWHERE}"

    async def ask(timeout: float) -> Reply:
        return await target.connection.request(asked, b'{"seq": 1}', timeout=timeout)

    try:
        answer, _ = await target.measure(ask)
    except NoRespondersError:
        return target.make_check(CheckKind.FORM, CheckStatus.OK, "no responders", form=NO_STREAM)
    except VstreamError as error:
        return target.make_failed_check(CheckKind.FORM, error, form=NO_STREAM)
    detail = f"there is no such stream, and the answer is {describe_answer(answer)}"
    return target.make_check(
        CheckKind.FORM, CheckStatus.FAILED, detail, form=NO_STREAM, answered_by=_stream_named_in(target, answer)
    )


def _is_end(answer: Reply) -> bool:
    """Whether nothing follows: a status does not, nor does what a server answers that knows no batches (ADR-31)."""
    return answer.status is not None or _PENDING_HEADER not in answer.headers


def _stream_named_in(target: ProbeTarget, answer: Reply) -> str | None:
    """The physical stream that *answer* says it is from."""
    name = answer.headers.get("Nats-Stream")
    return None if name is None else naming.qualify_answer(name, target.read)


def _find_answerer(target: ProbeTarget, answers: Sequence[Reply]) -> str | None:
    """What is wrong with who answered: it has to be this region's copy; of a stream with a namesake, any."""
    name = _stream_named_in(target, answers[0])
    if name is None or name == target.read:
        return None
    if target.stream.has_namesake and holds_all_messages(target.stream, name):
        return None
    return f"answered by {target.whose(name)}, not by `{target.read}`"


def _skip(target: ProbeTarget, name: str, reason: str) -> Check:
    return target.make_check(CheckKind.FORM, CheckStatus.SKIPPED, reason, form=name)
