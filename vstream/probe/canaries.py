"""
Canaries: marked messages that each region publishes and every region's read stream must receive.

A canary names its write stream. A wrong mapping cannot store it elsewhere: it is refused there. `vstream.probe.cleanup`
removes what was published.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

from vstream.errors import NoRespondersError, NotReachableError, VstreamError
from vstream.jetstream import direct, error_codes
from vstream.jetstream.answers import describe_error
from vstream.jetstream.connection import Reply
from vstream.jetstream.direct import DirectMessage
from vstream.jetstream.source_header import EXPECTED_STREAM, MSG_ID
from vstream.probe.hops import parse_ack, probe_copy
from vstream.probe.read_your_writes import METHODS, OwnRead
from vstream.probe.report import Check, CheckKind, CheckStatus
from vstream.probe.retry import repeat_looks
from vstream.probe.stream_info import StreamInfo
from vstream.probe.target import FAIR_TIMEOUT, OutOfTimeError, ProbeTarget
from vstream.topology import naming, physical
from vstream.value_class import value_class

CANARY_HEADER = "Vstream-Canary"
"""`<run id>.<region of origin>`: identifies a canary."""

FIRST_PAUSE_SECONDS = 0.005
_LAST_PAUSE_SECONDS = 0.05
_SLOW_PAUSE_SECONDS = 0.25
_OWN_TIMEOUT = 5.0
"""Seconds in which a region may serve what was published there: one without a leader must not hold up the probe."""
_PROMPT_SECONDS = 1.0
"""Seconds in which canaries arrive where all is well. Then the probe looks less often, and other streams may begin."""


class Fate(Enum):
    """What is known about a publish."""

    NOT_STORED = "not stored"
    UNKNOWN = "unknown"
    STORED = "stored"


@dataclass(slots=True, kw_only=True)
class Canary:
    """One canary, and what is known about it so far."""

    origin: str
    subject: str
    token: str
    fate: Fate = Fate.NOT_STORED
    stream: str = ""
    seq: int = 0
    """The sequence at which it was stored, if it was."""
    acked_at: float = 0.0
    """On the monotonic clock."""
    publish: Check | None = None
    """None until the publish has ended."""
    own_reads: tuple[OwnRead, ...] = ()
    """Once it is stored: when it is served in the region that published it."""

    def make_check(
        self, target: ProbeTarget, kind: CheckKind, status: CheckStatus, detail: str, **details: Any
    ) -> Check:
        """A check of what *target* has to do with this canary; *details* are the other `CheckDetails`."""
        return target.make_check(kind, status, detail, origin=self.origin, subject=self.subject, **details)


@value_class
class Arrival:
    """A canary that was read: the physical stream, its sequence there, and the time on the monotonic clock."""

    stream: str
    seq: int
    at: float


@dataclass(slots=True, kw_only=True)
class Reader:
    """One region's read stream, while canaries are looked for in it."""

    target: ProbeTarget
    facts: StreamInfo | None = None
    """As before the publishes. None: it does not answer to the virtual name, and *problem* says why."""
    problem: Check | None = None
    next_seq: dict[str, int] = field(default_factory=dict)
    """By origin: where the next look starts."""
    seen: dict[str, Arrival] = field(default_factory=dict)
    """By origin."""
    crowded: set[str] = field(default_factory=set)
    """Origins on whose subject another probe's canary was seen."""
    trouble: str = ""
    """Why the last look failed, if it did."""


class CanaryFlight:
    """The canaries of one virtual stream: published in each region of *targets*, and looked for in each of them."""

    def __init__(self, targets: Mapping[str, ProbeTarget], run_id: str) -> None:
        self.readers = {region: Reader(target=target) for region, target in targets.items()}
        self.canaries: dict[str, Canary] = {}
        for region, target in targets.items():
            subject = naming.canary_subject(target.stream, region)
            if subject is not None:
                self.canaries[region] = Canary(origin=region, subject=subject, token=f"{run_id}.{region}")

    async def publish_and_follow(self, slots: asyncio.Semaphore) -> None:
        """
        Publish everywhere at once, then look until all has arrived or the deadline has passed.

        Publishes nothing if nobody could read it. Holds one of *slots* for about a
        second at most: what is late by then is waited for outside.
        """
        async with slots:
            async with asyncio.TaskGroup() as tasks:
                for reader in self.readers.values():
                    tasks.create_task(self._begin(reader))
            if all(reader.facts is None for reader in self.readers.values()):
                return
            async with asyncio.TaskGroup() as tasks:
                until = time.monotonic() + _PROMPT_SECONDS
                for canary in self.canaries.values():
                    tasks.create_task(self._publish(canary, until))
                for reader in self.readers.values():
                    tasks.create_task(self._watch(reader, until, _LAST_PAUSE_SECONDS))
        async with asyncio.TaskGroup() as tasks:
            for reader in self.readers.values():
                tasks.create_task(self._watch(reader, reader.target.deadline, _SLOW_PAUSE_SECONDS))
            for canary in self.canaries.values():
                until = min(self.readers[canary.origin].target.deadline, canary.acked_at + _OWN_TIMEOUT)
                for own_read in canary.own_reads:
                    tasks.create_task(own_read.watch(until, _SLOW_PAUSE_SECONDS))

    def checks(self) -> list[Check]:
        """The results: for each origin its publish, and its arrival in each region."""
        checks: list[Check] = []
        for canary in self.canaries.values():
            target = self.readers[canary.origin].target
            skip = partial(target.make_check, status=CheckStatus.SKIPPED, origin=canary.origin)
            not_published = "not published: no read stream answers"
            publish = canary.publish or skip(CheckKind.CANARY_PUBLISH, detail=not_published, subject=canary.subject)
            checks.append(publish)
            checks += [_check_arrival(canary, reader) for reader in self.readers.values()]
            if canary.own_reads:
                checks += [own_read.make_check() for own_read in canary.own_reads]
            else:
                checks += [skip(CheckKind.OWN_READ, detail="no canary to read", form=method) for method in METHODS]
        return checks

    async def _begin(self, reader: Reader) -> None:
        now = time.monotonic()
        # All publish at the same time: a region that hangs may not use up the time of the others.
        patience = max(FAIR_TIMEOUT, (reader.target.deadline - now) / 4)
        hurried = replace(reader.target, deadline=min(reader.target.deadline, now + patience))
        check, reader.facts = await probe_copy(hurried)
        if reader.facts is None:
            reader.problem = check
        else:
            reader.next_seq = dict.fromkeys(self.canaries, reader.facts.last_seq + 1)

    async def _publish(self, canary: Canary, until: float) -> None:
        """Publish *canary*, and look where it is served at once, until *until*."""
        reader = self.readers[canary.origin]
        target = reader.target

        async def ask(timeout: float) -> Reply:
            canary.fate = Fate.UNKNOWN  # from here on it may be stored, whatever happens to this task
            headers = {
                EXPECTED_STREAM: naming.local_name(target.write),
                CANARY_HEADER: canary.token,
                MSG_ID: f"vstream-canary-{canary.token}",
            }
            return await target.connection.request(canary.subject, headers=headers, timeout=timeout)

        status, hint, elapsed_ms = CheckStatus.FAILED, None, None
        try:
            reply, elapsed_ms = await target.measure(ask)
        except NoRespondersError:
            canary.fate = Fate.NOT_STORED
            detail, hint = "nobody listens", "the mapping check of this region says why"
        except (NotReachableError, OutOfTimeError) as error:
            status, detail, hint = CheckStatus.UNKNOWN, f"may or may not be stored: {error.message}", error.hint
            if canary.fate is Fate.NOT_STORED:
                status = target.make_failed_check(CheckKind.CANARY_PUBLISH, error).status
                detail = f"not published: {error.message}"
        else:
            canary.acked_at = time.monotonic()
            status, detail, hint = _note_answer(canary, target, parse_ack(reply))
        answered_by = canary.stream or None
        canary.publish = canary.make_check(
            target, CheckKind.CANARY_PUBLISH, status, detail, hint=hint, answered_by=answered_by, elapsed_ms=elapsed_ms
        )
        if canary.fate is Fate.STORED and reader.facts is not None:
            own_read = partial(
                OwnRead,
                target=target,
                subject=canary.subject,
                token=canary.token,
                header=CANARY_HEADER,
                next_seq=reader.facts.last_seq + 1,
                acked_at=canary.acked_at,
            )
            canary.own_reads = tuple(own_read(method=method) for method in METHODS)
            async with asyncio.TaskGroup() as tasks:
                for started_read in canary.own_reads:
                    tasks.create_task(started_read.watch(until, _LAST_PAUSE_SECONDS))

    async def _watch(self, reader: Reader, until: float, longest_pause: float) -> None:
        """Look for what has not arrived yet, until *until*, at intervals that grow to *longest_pause* seconds."""
        if reader.facts is None:
            return
        async for _ in repeat_looks(until, FIRST_PAUSE_SECONDS, longest_pause):
            missing = [canary for canary in self.canaries.values() if _is_awaited(canary, reader)]
            if not missing:
                return
            await asyncio.gather(*(_look_for(reader, canary) for canary in missing))


def _note_answer(canary: Canary, target: ProbeTarget, ack: dict[str, Any]) -> tuple[CheckStatus, str, str | None]:
    """Note what *ack* says of the fate of *canary*. Returns the status of its publish, the detail, and a hint."""
    error, name = ack.get("error"), ack.get("stream")
    stream = naming.qualify_answer(name, target.write) if isinstance(name, str) else None
    if isinstance(error, dict):
        canary.fate = Fate.NOT_STORED
        if error.get("err_code") == error_codes.WRONG_LAST_STREAM:
            who = target.whose(str(stream)) if stream else "another stream"
            return (
                CheckStatus.FAILED,
                f"refused by {who}: nothing was stored",
                "the mapping check of this region says more",
            )
        return (CheckStatus.FAILED, f"refused: {describe_error(error)}", None)
    if not stream or not isinstance(ack.get("seq"), int):
        return CheckStatus.FAILED, "the answer is not from a stream", "the mapping check of this region says more"
    canary.fate, canary.stream, canary.seq = Fate.STORED, str(stream), ack["seq"]
    stored = f"stored as sequence {canary.seq} of `{canary.stream}`"
    if canary.stream != target.write:
        return CheckStatus.FAILED, f"{stored}, which ignored that it was meant for `{target.write}`", None
    return CheckStatus.OK, stored, None


def _is_awaited(canary: Canary, reader: Reader) -> bool:
    may_come = canary.publish is None or canary.fate is not Fate.NOT_STORED
    return may_come and canary.origin not in reader.seen


async def _look_for(reader: Reader, canary: Canary) -> None:
    """See whether *canary* has come. Canaries of others on its subject are passed over."""
    target = reader.target
    try:
        while True:
            from_seq = reader.next_seq[canary.origin]
            message, _ = await target.measure(partial(_read_next, target, canary.subject, from_seq))
            reader.trouble = ""
            if message is None:
                return
            token = message.headers.get(CANARY_HEADER)
            if token == canary.token:
                reader.seen[canary.origin] = Arrival(
                    stream=naming.qualify_answer(message.stream, reader.target.read),
                    seq=message.seq,
                    at=time.monotonic(),
                )
                return
            reader.next_seq[canary.origin] = message.seq + 1
            if token is not None and token.rpartition(".")[0] != canary.token.rpartition(".")[0]:
                reader.crowded.add(canary.origin)
    except OutOfTimeError:
        return
    except VstreamError as error:
        reader.trouble = error.message


async def _read_next(target: ProbeTarget, subject: str, from_seq: int, timeout: float) -> DirectMessage | None:
    return await direct.get_next(target.connection, target.read_by, subject, from_seq, timeout=timeout)


def _check_arrival(canary: Canary, reader: Reader) -> Check:
    target, sighting = reader.target, reader.seen.get(canary.origin)
    status, hint, elapsed_ms = CheckStatus.FAILED, None, None
    if reader.problem is not None:
        status, hint = reader.problem.status, reader.problem.hint
        detail = f"`{target.read}` cannot be read: {reader.problem.detail}"
    elif canary.fate is Fate.NOT_STORED:
        status, detail = CheckStatus.SKIPPED, f"there is no canary of `{canary.origin}`"
    elif sighting is None:
        status, detail, hint = _explain_absence(canary, reader)
    elif sighting.stream != target.read:
        detail = f"answered by {target.whose(sighting.stream)}, not by `{target.read}`"
        hint = "see the direct_get check of this region"
    elif canary.fate is Fate.UNKNOWN:
        status, detail = CheckStatus.UNKNOWN, "arrived, but without the publish's ack there is no time to measure from"
    else:
        # Where the read stream is nearer than the ack, it may be seen first.
        elapsed_ms = max(0.0, sighting.at - canary.acked_at) * 1000
        status, detail = CheckStatus.OK, f"arrived as sequence {sighting.seq}"
    answered_by = sighting.stream if sighting else None
    return canary.make_check(
        target, CheckKind.CANARY, status, detail, hint=hint, answered_by=answered_by, elapsed_ms=elapsed_ms
    )


def _explain_absence(canary: Canary, reader: Reader) -> tuple[CheckStatus, str, str | None]:
    """Why *canary* has not been seen, as far as it is known."""
    target = reader.target
    if canary.fate is Fate.UNKNOWN:
        return CheckStatus.UNKNOWN, "not seen; whether it was stored is unknown", None
    facts = reader.facts
    missing = f"sequence {canary.seq} of `{canary.stream}` did not arrive in `{target.read}`"
    needed = physical.mirrored_stream(target.stream) or canary.stream
    if facts is not None and facts.name != canary.stream and needed not in facts.sources:
        verb = "mirror" if target.stream.consistency.has_mirrors else "source"
        detail = f"{missing}, which does not {verb} `{needed}`"
        return CheckStatus.FAILED, detail, "`vstream plan` shows the missing source, `vstream apply` adds it"
    if reader.trouble:
        return (
            CheckStatus.FAILED,
            f"{missing} as far as is known: {reader.trouble}",
            "see the direct_get check of this region",
        )
    if facts is not None and facts.keeps_per_subject > 0 and canary.origin in reader.crowded:
        return (
            CheckStatus.UNKNOWN,
            f"{missing}; another probe's canary may have pushed it out",
            "probe again while no other probe runs",
        )
    waited = target.deadline - canary.acked_at
    return (
        CheckStatus.FAILED,
        f"{missing} within {waited:.1f} s",
        f"`nats stream info {target.read}`: is its source `{needed}` active, and are the gateways between up?",
    )
