"""
The hops of one stream in one region that can be tested without writing.

After a failed check, a second request uses the physical name and so avoids the mapping. Its answer distinguishes a
missing mapping from a missing stream.
"""

from __future__ import annotations

from typing import Any

from vstream.errors import MalformedAnswerError, NoRespondersError, NotReachableError, ServerError, VstreamError
from vstream.jetstream import direct, error_codes
from vstream.jetstream.answers import decode_object, describe_error
from vstream.jetstream.connection import Reply
from vstream.jetstream.source_header import EXPECTED_STREAM
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.stream_info import StreamInfo, read_stream_info
from vstream.probe.target import ProbeTarget
from vstream.subjects import algebra
from vstream.topology import naming, physical
from vstream.topology.replication import holds_all_messages
from vstream.value_class import value_class

NO_STREAM = "__probe__"
"""A name that no stream has: a stream that gets a message for it refuses, and names itself."""

_MAX_LOOKS = 3
_PERMISSIONS = "may this user publish there? servers do not answer a publish that they refuse"
_CREATE = "`vstream plan` shows what is missing, `vstream apply` creates it"
_CORRECT = "`vstream plan` shows what is different, `vstream apply` corrects it"
_LEADER = "does the stream have a leader, and its region a majority of its servers?"
_MAPPINGS = "compare the mappings that this server has loaded with mappings.cfg, and reload it"


@value_class
class _PhysicalAnswer:
    """A stream that was asked for by its physical name: facts, or the reason why there are none."""

    facts: StreamInfo | None = None
    problem: str = ""
    hint: str = _LEADER


async def probe_mapping(target: ProbeTarget, pattern: str) -> Check:
    """Whether a publish under *pattern* gets to this region's write stream. Nothing is stored."""
    subject = naming.probe_subject(pattern)

    async def ask(timeout: float) -> Reply:
        return await target.connection.request(subject, headers={EXPECTED_STREAM: NO_STREAM}, timeout=timeout)

    try:
        reply, elapsed_ms = await target.measure(ask)
    except NoRespondersError:
        return await _check_no_listener(target, subject, pattern)
    except VstreamError as error:
        return target.make_failed_check(CheckKind.MAPPING, error, subject=subject, hint=_PERMISSIONS)
    return _judge_ack(target, subject, pattern, parse_ack(reply), elapsed_ms)


def parse_ack(reply: Reply) -> dict[str, Any]:
    """The PubAck in *reply*; empty if there is none."""
    try:
        return decode_object(reply.data, "the acknowledgement")
    except MalformedAnswerError:
        return {}


def _judge_ack(target: ProbeTarget, subject: str, pattern: str, ack: dict[str, Any], elapsed_ms: float) -> Check:
    error, name = ack.get("error"), ack.get("stream")
    stream = naming.qualify_answer(name, target.write) if isinstance(name, str) and name else None

    def check(status: CheckStatus, detail: str, hint: str | None = None) -> Check:
        return target.make_check(
            CheckKind.MAPPING, status, detail, subject=subject, hint=hint, answered_by=stream, elapsed_ms=elapsed_ms
        )

    if isinstance(error, dict):
        if error.get("err_code") != error_codes.WRONG_LAST_STREAM:
            who = f"`{stream}`" if stream else "the stream"
            return check(
                CheckStatus.FAILED,
                f"{who} answers: {describe_error(error)}",
                "the message arrived, and this stream would refuse it",
            )
        if stream is None:
            return check(CheckStatus.UNKNOWN, "a stream answered without its name")
        if stream == target.write:
            return check(CheckStatus.OK, f"leads to `{stream}`")
        return check(
            CheckStatus.FAILED,
            f"leads to {target.whose(stream)}, not to `{target.write}`",
            f"the mapping of `{pattern}` for cluster `{_find_cluster(target)}` on server {target.connection.server_name}",
        )
    if stream is not None:
        return check(
            CheckStatus.FAILED,
            f"MESSAGE STORED: {target.whose(stream)} ignored the expectation and stored the probe as sequence "
            f"{ack.get('seq')}",
            f"delete it with `nats stream rmm {stream} {ack.get('seq')}`; no stream of vstream's behaves like this",
        )
    return check(
        CheckStatus.FAILED,
        "the answer is not from a stream",
        f"which service listens on `{subject}`, or where it is mapped to?",
    )


async def _check_no_listener(target: ProbeTarget, subject: str, pattern: str) -> Check:
    expected = await _find_physical(target, target.write)
    stored_as = physical.stored_subject(target.topology.naming, target.stream, target.region, subject)
    hint = expected.hint
    if expected.facts is None:
        detail = f"no stream listens: {expected.problem}"
    elif not any(algebra.matches(stored_as, listened) for listened in expected.facts.subjects):
        detail, hint = f"no stream listens: `{target.write}` exists, but does not listen on `{stored_as}`", _CORRECT
    elif target.stream.consistency.has_origin:
        detail = f"no stream listens, although `{target.write}` exists: this region does not reach it"
        hint = "are the gateways to its cluster up, and does no mapping rule match the subject?"
    else:
        detail = (
            f"no stream listens, although `{target.write}` exists: the mapping of `{pattern}` is missing on server "
            f"{target.connection.server_name}, or leads nowhere"
        )
        hint = _MAPPINGS
    return target.make_check(CheckKind.MAPPING, CheckStatus.FAILED, detail, subject=subject, hint=hint)


async def probe_stream_info(target: ProbeTarget) -> tuple[Check, StreamInfo | None]:
    """Whether STREAM.INFO by the virtual name reaches the right stream, and its answer."""
    subject = f"$JS.API.STREAM.INFO.{target.stream.name}"
    try:
        facts, elapsed_ms = await target.measure(
            lambda timeout: read_stream_info(target.connection, target.stream.name, timeout)
        )
    except ServerError as error:
        if error.err_code != error_codes.STREAM_NOT_FOUND:
            return target.make_failed_check(CheckKind.STREAM_INFO, error, hint=_LEADER), None
        namesake = await _find_physical(target, target.namesake)
        if namesake.facts is None:
            detail = f"no stream: {namesake.problem}"
            return target.make_check(CheckKind.STREAM_INFO, CheckStatus.FAILED, detail, hint=namesake.hint), None
        detail = (
            f"no stream, although `{target.namesake}` exists: the mapping of `{subject}` is missing on server "
            f"{target.connection.server_name}"
        )
        return target.make_check(CheckKind.STREAM_INFO, CheckStatus.FAILED, detail, hint=_MAPPINGS), None
    except VstreamError as error:
        return target.make_failed_check(CheckKind.STREAM_INFO, error, hint=_LEADER), None
    if facts.name != target.namesake:
        check = target.make_check(
            CheckKind.STREAM_INFO,
            CheckStatus.FAILED,
            f"answered by {target.whose(facts.name)}, not by `{target.namesake}`",
            hint=f"the mapping of `{subject}` for cluster `{_find_cluster(target)}` on server {target.connection.server_name}",
            answered_by=facts.name,
            elapsed_ms=elapsed_ms,
        )
        return check, None
    detail = f"answered by `{facts.name}`, {facts.messages} messages"
    return (
        target.make_check(CheckKind.STREAM_INFO, CheckStatus.OK, detail, answered_by=facts.name, elapsed_ms=elapsed_ms),
        facts,
    )


async def probe_direct_get(target: ProbeTarget, facts: StreamInfo | None) -> Check:
    """
    Whether Direct Get by the virtual name is answered by this region's copy. *facts* are of what answers STREAM.INFO.

    What is called so and all of its mirrors may answer: one that is not here is correct, and only slower.
    """
    subject = f"$JS.API.DIRECT.GET.{target.stream.name}"
    try:
        for _ in range(_MAX_LOOKS):
            message, elapsed_ms = await target.measure(
                lambda timeout: direct.get_next(
                    target.connection, target.stream.name, direct.ANY_SUBJECT, 1, timeout=timeout
                )
            )
            if message is not None:
                break
            if facts is not None and facts.messages:
                # Emptied since, or a copy that lags behind its leader: look at both again.
                _, facts = await probe_stream_info(target)
    except NoRespondersError:
        return await _check_no_getter(target, subject)
    except VstreamError as error:
        return target.make_failed_check(CheckKind.DIRECT_GET, error, hint=_LEADER)
    if message is None:
        if facts is not None and facts.messages:
            return target.make_check(
                CheckKind.DIRECT_GET,
                CheckStatus.FAILED,
                f"answered that there are no messages, and `{target.namesake}` holds {facts.messages}: somebody else answers",
                hint=f"where does server {target.connection.server_name} map `{subject}` to?",
                elapsed_ms=elapsed_ms,
            )
        detail = "empty stream: the answer names nobody"
        return target.make_check(CheckKind.DIRECT_GET, CheckStatus.OK, detail, elapsed_ms=elapsed_ms)
    answered_by = naming.qualify_answer(message.stream, target.read)
    if answered_by == target.read:
        status, detail, hint = CheckStatus.OK, f"answered by `{answered_by}`", None
    elif target.stream.has_namesake and holds_all_messages(target.stream, message.stream):
        # A mirror's leader joins in with the first message that it takes (server/stream.go, processInboundMirrorMsg).
        detail = f"answered by {target.whose(message.stream)}: `{target.read}` takes part once it takes a message"
        status, hint = CheckStatus.OK, None
    else:
        status, detail = CheckStatus.FAILED, f"answered by {target.whose(message.stream)}, not by `{target.read}`"
        hint = f"the mapping of `{subject}` for cluster `{_find_cluster(target)}` on server {target.connection.server_name}"
    return target.make_check(
        CheckKind.DIRECT_GET, status, detail, hint=hint, answered_by=answered_by, elapsed_ms=elapsed_ms
    )


async def _check_no_getter(target: ProbeTarget, subject: str) -> Check:
    namesake = await _find_physical(target, target.namesake)
    if namesake.facts is None:
        detail, hint = f"nobody answers: {namesake.problem}", namesake.hint
    elif not namesake.facts.is_direct:
        detail, hint = f"no answer: `allow_direct` of `{target.namesake}` is off", _CORRECT
    elif target.stream.has_namesake:
        detail = f"nobody answers, although `{target.namesake}` exists and allows it: this region does not reach it"
        hint = "are the gateways to its cluster up? its mirrors here join in when they take a message"
    else:
        detail = (
            f"nobody answers, although `{target.read}` exists and allows it: the mapping of `{subject}` is missing on "
            f"server {target.connection.server_name}, or leads nowhere"
        )
        hint = _MAPPINGS
    return target.make_check(CheckKind.DIRECT_GET, CheckStatus.FAILED, detail, hint=hint)


async def probe_copy(target: ProbeTarget) -> tuple[Check, StreamInfo | None]:
    """Like `probe_stream_info`, for this region's copy: by its own name if the virtual one means the origin."""
    if target.read_by == target.stream.name:
        return await probe_stream_info(target)
    copy = await _find_physical(target, target.read)
    status = CheckStatus.OK if copy.facts else CheckStatus.FAILED
    return target.make_check(CheckKind.STREAM_INFO, status, copy.problem, hint=copy.hint), copy.facts


async def _find_physical(target: ProbeTarget, name: str) -> _PhysicalAnswer:
    """What STREAM.INFO says of the physical stream *name*."""
    try:
        facts, _ = await target.measure(lambda timeout: read_stream_info(target.connection, name, timeout))
    except ServerError as error:
        if error.err_code == error_codes.STREAM_NOT_FOUND:
            return _PhysicalAnswer(problem=f"`{name}` does not exist", hint=_CREATE)
        return _PhysicalAnswer(problem=f"`{name}` answers: {error.description}")
    except (NoRespondersError, NotReachableError):
        return _PhysicalAnswer(problem=f"`{name}` does not answer STREAM.INFO either")
    except VstreamError as error:
        return _PhysicalAnswer(problem=error.message)
    return _PhysicalAnswer(facts=facts)


def _find_cluster(target: ProbeTarget) -> str:
    return target.topology.region(target.region).cluster
