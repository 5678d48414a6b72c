"""
The records of a capture.

All times are integer nanoseconds since the capture's start on one monotonic clock
(the machine's, shared by all processes), except `Stored.time`, which is the
server's wall clock since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Annotated

from pydantic import Field

Int64 = Annotated[int, Field(ge=-(2**63), lt=2**63)]
"""What a server, and an array of numbers, can hold: anything else in a file is an error there, and not where it is used."""
Digest = Annotated[str, Field(pattern="^[0-9a-f]{16}$")]
"""Of a payload, see `vstream.capture.digest`."""


def message_identity(payload: bytes) -> str | None:
    """The identity that a payload begins with, of three parts; None for one that no workload has published."""
    head, separator, _ = payload.partition(b" ")
    return head.decode("ascii", "replace") if separator and head.count(b"/") == 2 else None  # noqa: PLR2004


class OperationOutcome(Enum):
    """What the client learned of an operation (Jepsen's ok, fail and info)."""

    OK = "ok"
    """Acknowledged by a stream, or answered."""
    REJECTED = "rejected"
    """An error came back, or it was never sent: it has not happened."""
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
    """One operation of a `try` step: *subject* names it."""


_MOMENT = 1_000_000_000
"""Nanoseconds. What is shorter holds too few operations to make a share of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRecord:
    """
    One operation of a client: a line of `operations/REGION.jsonl`, in the order of completion.

    Open loop: *due* is when it should have been sent, *sent* when it was; the
    difference is the recorder's own lateness. *done* is None without an answer.
    """

    client: str
    """Such as `west/publish-foo`. Unique in a capture."""
    region: str
    kind: OperationKind
    stream: str
    """The virtual stream."""
    due: Int64
    sent: Int64
    done: Int64 | None
    outcome: OperationOutcome
    id: str | None = None
    """Of a publish: the message's identity, unique in a capture. Payloads begin with it and a space. Of a read: that of what was read."""
    subject: str | None = None
    digest: Digest | None = None
    """Of a publish: of the payload as it was sent, as in `Stored`. None: what is stored is compared with itself only."""
    acked_by: str | None = None
    """The physical stream in the acknowledgement; of a read, the one that answered."""
    seq: Int64 | None = None
    """Sequence in that stream."""
    is_duplicate: bool = False
    """The acknowledgement said that the message id was known already."""
    attempts: Int64 = 1
    count: Int64 = 0
    """Of a fetch: messages received."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """How many times the consumer has sent it, this one included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One message of one physical stream, read when all was over: a line of `streams/STREAM.jsonl`, by sequence."""

    seq: Int64
    time: Int64
    subject: str
    id: str | None
    """The payload up to the first space; None if it was no message of the workload."""
    msg_id: str | None
    """Its `Nats-Msg-Id`."""
    source: str | None
    """Its `Nats-Stream-Source` as it stands there."""
    origin: str | None
    """The stream named in that header."""
    origin_seq: Int64 | None
    size: Int64
    digest: Digest
    ttl: str | None = None
    """Its `Nats-TTL`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one region said of itself at one moment: a line of `samples.jsonl`. None: it did not say."""

    at: Int64
    region: str
    control_plane: Int64 | None
    """Nanoseconds that an API request which needs the meta leader took."""
    error: str | None
    """Why *control_plane* is None."""
    last_seq: Mapping[str, Int64] = field(default_factory=dict)
    """By physical stream of this region: its last sequence."""
    sourced: Mapping[str, Mapping[str, Int64]] = field(default_factory=dict)
    """By read stream of this region, by stream that it sources: the last sequence taken, where servers say it (2.15.1 does, 2.12.8 does not)."""
    links: Mapping[str, Int64] = field(default_factory=dict)
    """By other cluster: outbound gateway connections of this region's servers."""


class FaultOutcome(Enum):
    """How a fault went."""

    CONFIRMED = "confirmed"
    """It was seen to bite."""
    UNSUPPORTED = "unsupported"
    """This machine or backend cannot do it."""
    FAILED = "failed"
    """It should have, and was not seen to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultRecord:
    """One fault: a line of `faults.jsonl`, written when it is over."""

    id: str
    asked: str
    """As a command: `kill-region west`."""
    kind: str
    targets: tuple[str, ...]
    regions: tuple[str, ...]
    """Those that it touches directly."""
    outcome: FaultOutcome
    injected: Int64
    """Its first signal."""
    confirmed: Int64 | None
    evidence: str | None
    healing: Int64 | None
    """When its undoing began; None if it ended by itself, or was never undone."""
    healed: Int64 | None
    """When all servers were healthy again."""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A named step: a line of `windows.jsonl`."""

    name: str
    start: Int64
    end: Int64
    action: str
    """Such as `wait 5s` or `converge`."""
    is_ok: bool = True
    """False for a `converge` that gave up, or a step that failed."""
    detail: str | None = None

    @property
    def is_unnamed(self) -> bool:
        """Whether the step has no name in the scenario: it is called by its number."""
        return re.fullmatch(r"step [0-9]+", self.name) is not None

    @property
    def is_telling(self) -> bool:
        """Whether what was available meanwhile says something: a moment that nobody has named does not."""
        return not self.is_unnamed or self.end - self.start >= _MOMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStream:
    """A physical stream whose contents are in the capture."""

    name: str
    virtual: str
    region: str
    role: str
    """`write`, `read`, ..., as in the topology's model."""
    messages: Int64 | None
    """None: it could not be read, and *error* says why."""
    error: str | None = None
    limits: Mapping[str, Int64] = field(default_factory=dict)
    """
    What may remove messages by itself, in the spelling and units of the stream's configuration.

    `max_msgs_per_subject`, `max_msgs`, `max_bytes` and `max_age`, those that are set. Under such
    a limit, a message that is absent beside later ones of its subject is not lost. As 1 `allow_msg_ttl`,
    under which messages with a `Nats-TTL` go, `allow_rollup_hdrs`, and `allow_msg_counter`, which removes nothing: payloads are sums, and no two streams have the same.
    """
    mirror: str | None = None
    """The stream that it mirrors. A capture in which nothing mirrors may be one of before this was written down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedServer:
    """A server that took part."""

    name: str
    region: str
    cluster: str
    version: str
    panics: tuple[str, ...] = ()
    """Lines of its log that tell of a panic or a fatal error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What the capture is of: `manifest.json`, written first and again when the run is over."""

    format: Int64
    vstream: str
    """Version of the tool."""
    scenario: str
    seed: Int64
    started: str
    """Wall clock, ISO 8601 in UTC."""
    wall: Int64
    """Nanoseconds since 1970 at the capture's start: turns the other times into wall time."""
    backend: str
    """Of links: `proxy` or `none`."""
    regions: tuple[str, ...]
    models: Mapping[str, str]
    """By virtual stream: its consistency model."""
    machine: Mapping[str, str | Int64 | float]
    """CPUs, load average, platform, Python."""
    load: tuple[Int64, Int64] | None = None
    """From when to when publishers ran."""
    servers: tuple[CapturedServer, ...] = ()
    streams: tuple[CapturedStream, ...] = ()
    lines: Mapping[str, Int64] = field(default_factory=dict)
    """By file, such as `operations/west.jsonl`: how many lines were written. Streams have their `messages`; empty where no run has counted."""
    is_complete: bool = False
    """Whether the run came to its end: all steps were taken and all streams were read."""
    stopped_by: str | None = None
    """Why it did not."""
