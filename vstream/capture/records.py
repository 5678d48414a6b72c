"""
The records of a capture.

All times are integer nanoseconds since the capture's start on one monotonic clock
(the machine's, shared by all processes), except `Stored.time`, which is the
server's wall clock since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Annotated

from pydantic import Field

from vstream.value_class import value_class

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""A number that a server and a numeric array can hold. Anything else in a file is reported as an error there."""
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""Digest of a payload, see `vstream.capture.digest`."""
_MIN_WINDOW_NS = 1_000_000_000
"""Nanoseconds. A shorter window holds too few operations for a share."""


def message_identity(payload: bytes) -> str | None:
    """The three-part identity at the start of a payload; None for a message that no workload published."""
    head, separator, _ = payload.partition(b" ")
    has_three_parts = re.fullmatch(rb"[^/]*/[^/]*/[^/]*", head)
    return head.decode("ascii", "replace") if separator and has_three_parts else None


class OperationOutcome(Enum):
    """What the client learned of an operation (Jepsen's ok, fail and info)."""

    OK = "ok"
    """Acknowledged by a stream, or answered."""
    REJECTED = "rejected"
    """An error came back, or it was never sent: it did not happen."""
    INDETERMINATE = "indeterminate"
    """No answer in time: it may have happened, and may still happen."""


class OperationKind(Enum):
    """What a client did."""

    PUBLISH = "publish"
    READ = "read"
    """One Direct Get."""
    FETCH = "fetch"
    """One pull request of a consumer."""
    TRY = "try"
    """One operation of a `try` step, named by *subject*."""


@value_class
class OperationRecord:
    """
    One operation of a client: a line of `operations/REGION.jsonl`, in order of completion.

    Open loop: *due* is when it should have been sent, *sent* when it was. The difference is the recorder's own
    lateness. *done* is None without an answer.
    """

    client: str
    """For example `west/publish-foo`. Unique in a capture."""
    region: str
    kind: OperationKind
    stream: str
    """The virtual stream."""
    due: Int64
    sent: Int64
    done: Int64 | None
    outcome: OperationOutcome
    id: str | None = None
    """
    For a publish: the message's identity, unique in a capture. Payloads begin with it and a space.
    For a read: the identity of the message that was read.
    """
    subject: str | None = None
    digest: Digest | None = None
    """
    For a publish: the digest of the payload that was sent, as in `StoredRecord`.
    None: stored messages are compared with each other only.
    """
    acked_by: str | None = None
    """The physical stream in the acknowledgement; for a read, the one that answered."""
    seq: Int64 | None = None
    """Sequence in that stream."""
    is_duplicate: bool = False
    """Whether the acknowledgement said that the message id was already known."""
    attempts: Int64 = 1
    count: Int64 = 0
    """For a fetch: number of messages received."""
    error: str | None = None


@value_class
class Delivery:
    """One message that a consumer received: a line of `deliveries/REGION.jsonl`."""

    client: str
    region: str
    stream: str
    id: str
    seq: Int64
    """In the read stream."""
    at: Int64
    deliveries: Int64
    """How often the consumer has sent it, including this time."""


@value_class
class StoredRecord:
    """One message of one physical stream, read at the end of the run: a line of `streams/STREAM.jsonl`, by sequence."""

    seq: Int64
    time: Int64
    subject: str
    id: str | None
    """The payload up to the first space; None if it is not a workload message."""
    msg_id: str | None
    """Its `Nats-Msg-Id`."""
    source: str | None
    """Its `Nats-Stream-Source`, unchanged."""
    origin: str | None
    """The stream named in that header."""
    origin_seq: Int64 | None
    size: Int64
    digest: Digest
    ttl: str | None = None
    """Its `Nats-TTL`."""


@value_class
class Sample:
    """The state that one region reported at one moment: a line of `samples.jsonl`. None: not reported."""

    at: Int64
    region: str
    control_plane: Int64 | None
    """Nanoseconds of an API request that needs the meta leader."""
    error: str | None
    """Why *control_plane* is None."""
    last_seq: Mapping[str, Int64] = field(default_factory=dict)
    """Last sequence, by physical stream of this region."""
    sourced: Mapping[str, Mapping[str, Int64]] = field(default_factory=dict)
    """
    The last sequence sourced, by read stream of this region and by the stream it sources.
    Only where servers report it: 2.15.1 does, 2.12.8 does not.
    """
    links: Mapping[str, Int64] = field(default_factory=dict)
    """Number of outbound gateway connections of this region's servers, by other cluster."""


class FaultOutcome(Enum):
    """How injecting a fault ended."""

    CONFIRMED = "confirmed"
    """Its effect was observed."""
    UNSUPPORTED = "unsupported"
    """This machine or link backend cannot inject it."""
    FAILED = "failed"
    """Its effect was expected and not observed."""


@value_class
class FaultRecord:
    """One fault: a line of `faults.jsonl`, written when it has ended."""

    id: str
    command: str
    """The fault as a command: `kill-region west`."""
    kind: str
    targets: tuple[str, ...]
    regions: tuple[str, ...]
    """The regions that it affects directly."""
    outcome: FaultOutcome
    injected: Int64
    """Time of its first signal."""
    confirmed: Int64 | None
    evidence: str | None
    healing: Int64 | None
    """When healing began; None if it ended by itself or was never healed."""
    healed: Int64 | None
    """When all servers were healthy again."""
    error: str | None = None


@value_class
class Window:
    """A named step: a line of `windows.jsonl`."""

    name: str
    start: Int64
    end: Int64
    action: str
    """For example `wait 5s` or `converge`."""
    is_ok: bool = True
    """False for a `converge` that gave up, or a step that failed."""
    detail: str | None = None

    @property
    def is_unnamed(self) -> bool:
        """Whether the scenario gives the step no name; it is then called by its number."""
        return re.fullmatch(r"step [0-9]+", self.name) is not None

    @property
    def is_worth_reporting(self) -> bool:
        """Whether availability in this window is worth reporting; an unnamed moment is not."""
        return not self.is_unnamed or self.end - self.start >= _MIN_WINDOW_NS


@value_class
class CapturedStream:
    """A physical stream whose contents are in the capture."""

    name: str
    virtual: str
    region: str
    role: str
    """`write`, `read`, …, as in the topology's model."""
    messages: Int64 | None
    """Number of messages. None: it could not be read, and *error* says why."""
    error: str | None = None
    limits: Mapping[str, Int64] = field(default_factory=dict)
    """
    What may remove messages, with the names and units of the stream's configuration.

    `max_msgs_per_subject`, `max_msgs`, `max_bytes` and `max_age`, if set. Under such a limit, a message that is absent
    while later ones of its subject are present is not lost. With value 1: `allow_msg_ttl` (messages with a `Nats-TTL`
    expire), `allow_rollup_hdrs`, `retention` if it is not `limits`, and `allow_msg_counter`, which removes nothing: payloads are sums that differ between
    streams.
    """
    mirror: str | None = None
    """The stream that it mirrors. A capture without mirrors may be older than this field."""


@value_class
class CapturedServer:
    """A server that took part in the run."""

    name: str
    region: str
    cluster: str
    version: str
    panics: tuple[str, ...] = ()
    """Log lines that report a panic or a fatal error."""


@value_class
class GivenUpStream:
    """A stream that was given up with its region, and what was said of it then."""

    stream: str
    at: Int64
    """When, since the capture's start."""
    readers: Mapping[str, Int64]
    """Up to which of its sequences each stream has it: what it acknowledged before, beyond that, was said to be lost."""

    def is_lost(self, seq: int, reader: str) -> bool:
        """Whether it was said that *reader* will lack its message *seq*. Made anew, it has none of its former messages."""
        if reader == self.stream and reader not in self.readers:
            return True
        return seq > self.readers.get(reader, max(self.readers.values(), default=0))


@value_class
class Manifest:
    """What was run: `manifest.json`, written first and again at the end of the run."""

    format: Int64
    vstream: str
    """Version of vstream."""
    scenario: str
    seed: Int64
    started: str
    """Wall clock, ISO 8601 in UTC."""
    wall: Int64
    """Nanoseconds since 1970 at the capture's start; converts the other times to wall-clock time."""
    backend: str
    """Link backend: `proxy` or `none`."""
    regions: tuple[str, ...]
    models: Mapping[str, str]
    """Consistency model, by virtual stream."""
    machine: Mapping[str, str | Int64 | float]
    """CPUs, load average, platform, Python."""
    load: tuple[Int64, Int64] | None = None
    """Start and end of publishing."""
    servers: tuple[CapturedServer, ...] = ()
    streams: tuple[CapturedStream, ...] = ()
    lines: Mapping[str, Int64] = field(default_factory=dict)
    """
    Number of lines written, by file, such as `operations/west.jsonl`. Streams have their `messages` instead.
    Empty if the run has not counted.
    """
    absent: tuple[str, ...] = ()
    """Regions that were given up, and have not come back."""
    given_up: tuple[GivenUpStream, ...] = ()
    is_complete: bool = False
    """Whether the run finished: all steps were taken and all streams were read."""
    stopped_by: str | None = None
    """Why it did not finish."""
