"""
Where servers take one publish, as they say it themselves, beside what the mapping model expects. Nothing is stored.

`Nats-Trace-Dest` (ADR-41, nats-server 2.11) makes each server that sees the message publish what it did with it, and
`Nats-Trace-Only` makes none of them deliver or store it. A server before 2.11 knows neither and would store the message;
later ones do not pass it on to such a server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from vstream.errors import MalformedAnswerError, NotPermittedError, NotReachableError, VstreamError
from vstream.jetstream.answers import convert_malformed_errors, decode_object, parse_list
from vstream.jetstream.connection import Reply, connect, without_secrets
from vstream.jetstream.endpoints import resolve_context
from vstream.lint.simulate import Simulation
from vstream.subjects.algebra import matches
from vstream.subjects.resolve import OutcomeKind
from vstream.topology.model import Endpoint, Topology
from vstream.topology.naming import local_name
from vstream.topology.physical import write_stream_in
from vstream.topology.units import format_version, parse_version
from vstream.value_class import value_class

SINCE = (2, 11, 0)
_DEST, _ONLY, _HOP = "Nats-Trace-Dest", "Nats-Trace-Only", "Nats-Trace-Hop"
_MAX_HOPS = 10_000
"""Largest believable number of servers that one server sends a message to."""
_CONNECTION_KINDS = {0: "client", 1: "route", 2: "gateway", 3: "system", 4: "leaf node", 5: "JetStream", 6: "account"}
"""What `kind` stands for (ADR-41)."""


class StepKind(StrEnum):
    """What a server did with the message."""

    RECEIVED = "received"
    MAPPED = "mapped"
    IMPORTED = "imported"
    """By a service import, into *account*."""
    EXPORTED = "exported"
    """By a stream import, into *account*."""
    STREAM = "stream"
    """A stream would store it."""
    SENT = "sent"
    """To a server, or a subscriber."""


_STEP_KINDS = {
    "in": StepKind.RECEIVED,
    "sm": StepKind.MAPPED,
    "si": StepKind.IMPORTED,
    "se": StepKind.EXPORTED,
    "js": StepKind.STREAM,
    "eg": StepKind.SENT,
}


@value_class
class TraceStep:
    """One event: what *server* did. *by* is the kind of connection, *peer* who is at its other end."""

    server: str
    kind: StepKind
    subject: str | None = None
    account: str | None = None
    stream: str | None = None
    by: str | None = None
    peer: str | None = None
    error: str | None = None


@value_class
class PublishExpectation:
    """
    What *region* should do with the publish.

    *subjects* it may have after mapping, () where the server draws them; *arrivals* in other accounts, as (account, subject);
    the local name of the *stream* that stores it, None if no virtual stream of the region has the subject.
    """

    region: str
    subjects: tuple[str, ...]
    arrivals: frozenset[tuple[str, str]]
    stream: str | None


@value_class
class PublishTrace:
    """One publish through one server: what happened, where that *differs* from what is expected, what is *unknown*."""

    region: str
    server: str
    version: str | None
    steps: tuple[TraceStep, ...] = ()
    differs: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def is_expected(self) -> bool | None:
        """Whether all went as expected; None where that is not known."""
        if self.differs:
            return False
        return None if self.unknown else True


@dataclass(slots=True)
class _Trace:
    """What has come of one publish so far, by hop: "" is where it was published."""

    events: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, reply: Reply) -> bool:
        """Take an answer, and say whether all that it promises are there."""
        event = decode_object(reply.data, _DEST)
        with convert_malformed_errors(_DEST):
            hop = (event["request"].get("header") or {}).get(_HOP)
            self.events[str(hop[0]) if hop else ""] = event
            return not self.find_missing()

    def find_missing(self) -> set[str]:
        """The hops that some server has sent the message to, and that have not answered."""
        if "" not in self.events:
            return {""}
        hops = set()
        for hop, event in self.events.items():
            count = int(event.get("hops") or 0)
            if count > _MAX_HOPS:
                raise MalformedAnswerError(_DEST, f"it announces {count:,} hops")
            hops |= {f"{hop}.{number}".lstrip(".") for number in range(1, count + 1)}
        return hops - self.events.keys()

    def steps(self) -> tuple[TraceStep, ...]:
        """Everything that happened, in the order of the hops. Raises MalformedAnswerError."""
        steps = []
        with convert_malformed_errors(_DEST):
            for _, event in sorted(
                self.events.items(), key=lambda item: [int(part) for part in item[0].split(".") if part]
            ):
                server = str(event["server"]["name"])
                steps += [_parse_step(server, entry) for entry in parse_list(event, "events", _DEST)]
        return tuple(steps)


def _parse_step(server: str, entry: Mapping[str, Any]) -> TraceStep:
    kind = _STEP_KINDS[entry["type"]]
    is_connection = kind in {StepKind.RECEIVED, StepKind.SENT}
    texts = {
        "subject": entry.get("subj") or entry.get("to") or entry.get("subject") or entry.get("sub"),
        "account": entry.get("acc"),
        "stream": entry.get("stream"),
        "by": _CONNECTION_KINDS.get(entry.get("kind", -1), "connection") if is_connection else None,
        "peer": entry.get("name"),
        "error": entry.get("error") or ("nobody is interested" if entry.get("nointerest") else None),
    }
    return TraceStep(server=server, kind=kind, **{name: str(text) for name, text in texts.items() if text})


def expect_publish(topology: Topology, region: str, subject: str, answer: Simulation) -> PublishExpectation:
    """What should become of a publish to the literal *subject* in *region*: *answer* is the model's, at its cluster."""
    if answer.at_cluster is None:
        raise ValueError("the model was asked for no cluster")
    outcomes = [outcome for candidate in answer.at_cluster.candidates for outcome in candidate.outcomes]
    is_drawn = any(outcome.expansion.draws or outcome.kind is OutcomeKind.DROPPED for outcome in outcomes)
    streams = [stream for stream in topology.streams if region in stream.regions]
    stream = next((stream for stream in streams if any(matches(subject, pattern) for pattern in stream.subjects)), None)
    arrivals = () if answer.is_undecided(answer.at_cluster) else answer.arrivals(answer.at_cluster)
    return PublishExpectation(
        region=region,
        subjects=() if is_drawn else tuple(dict.fromkeys(outcome.subject or subject for outcome in outcomes)),
        arrivals=frozenset((arrival.account, arrival.subject) for arrival in arrivals),
        stream=local_name(write_stream_in(stream, region)) if stream is not None else None,
    )


async def trace_publish(
    subject: str, expected: Sequence[PublishExpectation], endpoints: Mapping[str, Endpoint], *, timeout: float
) -> tuple[PublishTrace, ...]:
    """
    Trace one publish through every address of each region in *expected*.

    Raises VstreamError, before anything is published, where a server is too old to trace.
    """
    addresses: list[tuple[PublishExpectation, Endpoint | None]] = []
    for expectation in expected:
        if expectation.region not in endpoints:
            addresses.append((expectation, None))
            continue
        endpoint = endpoints[expectation.region]
        endpoint = resolve_context(endpoint) if endpoint.context else endpoint
        addresses += [(expectation, replace(endpoint, urls=(url,))) for url in endpoint.urls]
    return tuple(await asyncio.gather(*(_trace_at(subject, *address, timeout) for address in addresses)))


async def _trace_at(
    subject: str, expected: PublishExpectation, endpoint: Endpoint | None, timeout: float
) -> PublishTrace:
    region = expected.region
    if endpoint is None:
        return PublishTrace(region=region, server="?", version=None, unknown=("no address of it is known",))
    trace, server, version = _Trace(), ", ".join(map(without_secrets, endpoint.urls)), None
    try:
        async with connect(endpoint, region) as connection:
            server, version = connection.server_name, connection.server_version
            if (parse_version(version) or SINCE) < SINCE:
                raise VstreamError(
                    f"server `{server}` runs {version}: servers trace since {format_version(SINCE[:2])}, and this one "
                    "would store the message",
                    hint="`vstream probe` shows where publishes go without storing any, from 2.10 on",
                )
            try:
                await connection.request_many(
                    subject, is_last=trace.add, timeout=timeout, headers={_ONLY: "true"}, inbox_header=_DEST
                )
            except (NotPermittedError, MalformedAnswerError):
                raise
            except NotReachableError:
                pass  # what is missing is said below
    except NotPermittedError as error:
        reason = f"{error.message}, or to its inbox, where traces go: it needs permission for both; `vstream probe` publishes with rights of its own"
        return PublishTrace(region=region, server=server, version=version, unknown=(reason,))
    except NotReachableError as error:
        return PublishTrace(region=region, server=server, version=version, unknown=(error.message,))
    steps = trace.steps()
    differs, unknown = _compare(subject, expected, steps, trace.find_missing())
    return PublishTrace(
        region=region, server=server, version=version, steps=steps, differs=tuple(differs), unknown=tuple(unknown)
    )


def _compare(
    subject: str, expected: PublishExpectation, steps: Sequence[TraceStep], missing: set[str]
) -> tuple[list[str], list[str]]:
    """Where *steps* differ from what is *expected*, and what they leave open."""
    if not steps:
        return [], ["the server has sent no trace in time"]
    unknown = [*_list_ends(steps), *(f"hop {hop} has not answered in time" for hop in sorted(missing))]
    for step in steps:
        if step.kind is StepKind.SENT and step.error and "does not support" in step.error:
            unknown.append(f"what becomes of it on `{step.peer}` is not known: {step.error}")
    differs = [*_compare_mapping(subject, expected, steps), *_compare_streams(expected, steps, is_whole=not unknown)]
    return differs, unknown


def _compare_mapping(subject: str, expected: PublishExpectation, steps: Sequence[TraceStep]) -> Iterator[str]:
    for step in steps:
        if step.kind is StepKind.RECEIVED and step.error:
            yield f"server `{step.server}` refuses it: {step.error}"
    first = steps[0].server
    mapped = next((step.subject for step in steps if step.server == first and step.kind is StepKind.MAPPED), subject)
    if expected.subjects and mapped not in expected.subjects:
        did = f"maps it to `{mapped}`" if mapped != subject else "does not map it"
        subjects = " or ".join(f"`{name}`" for name in expected.subjects)
        yield f"server `{first}` {did}: `vstream map` expects {subjects}"


def _compare_streams(expected: PublishExpectation, steps: Sequence[TraceStep], *, is_whole: bool) -> Iterator[str]:
    """What comes to other accounts and streams; what does not come is known only if the trace *is_whole*."""
    arrivals = {(step.account, step.subject) for step in steps if step.kind in {StepKind.IMPORTED, StepKind.EXPORTED}}
    for account, arrival in sorted(expected.arrivals - arrivals) if is_whole else ():
        yield f"it does not come to account `{account}` as `{arrival}`"
    stored = [step for step in steps if step.kind is StepKind.STREAM]
    yield from (f"stream `{step.stream}` would not store it: {step.error}" for step in stored if step.error)
    if expected.stream is None:
        return
    streams = {step.stream or "?" for step in stored}
    for name in sorted(streams - {expected.stream}):
        is_too = expected.stream in streams
        yield f"stream `{name}` would store it, too" if is_too else f"it goes to stream `{name}` instead"
    if expected.stream not in streams and is_whole:
        yield f"it does not come to stream `{expected.stream}`"


def _list_ends(steps: Sequence[TraceStep]) -> list[str]:
    """Where servers have stopped tracing at the border of an account: nothing of it is seen behind the import."""
    ends = []
    for number, step in enumerate(steps):
        is_service = step.kind is StepKind.IMPORTED
        following = steps[number + 1] if number + 1 < len(steps) else None
        goes_on = following is not None and following.kind is not StepKind.RECEIVED
        if is_service and not goes_on:
            ends.append(
                f"the trace ends at account `{step.account}`: its export of `{step.subject}` lacks `allow_trace: true`, "
                "or nobody listens there"
            )
    return ends
