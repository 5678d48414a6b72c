"""
A scenario, decoded: what runs, what is broken when, and what is expected of it.

Durations are integer nanoseconds. `span` fields say where something was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from typing import Final

from vstream.findings import Span
from vstream.scenario.fault_types import FaultSpec
from vstream.subjects.algebra import FULL_WILDCARD, PARTIAL_WILDCARD
from vstream.topology.model import Topology
from vstream.value_class import value_class


@value_class
class Wait:
    """Let the load run for *nanoseconds*."""

    nanoseconds: int


@value_class
class Inject:
    """
    Inject *fault* and go on.

    With *lasting* it is healed after so long, while later steps wait. A fault that
    ends by itself (a step-down, a rolling restart, an upgrade) is waited for.
    """

    fault: FaultSpec
    id: str
    """Its id in `Heal`: the step's name, or a generated one."""
    lasting: int | None = None


@value_class
class Heal:
    """Undo the open faults *ids*, or all of them (None), and wait until the servers are healthy."""

    ids: tuple[str, ...] | None = None


@value_class
class Resync:
    """Do what `vstream repair sources` does."""


@value_class
class Converge:
    """Wait until every read stream holds all that the write streams hold, at most *within* nanoseconds."""

    within: int


class RegionCommand(Enum):
    """The commands that change a whole region."""

    DRAIN = "drain"
    UNDO_DRAIN = "drain --undo"
    FAILOVER = "failover"
    FAILBACK = "failback"


@value_class
class ChangeRegion:
    """Do what `vstream` *command* does with *region*."""

    command: RegionCommand
    region: str
    also: tuple[str, ...] = ()
    """Further regions that are dead."""


class ClientOperation(Enum):
    """The client operations that a `try` step tries, once each, in this order."""

    PUBLISH = "publish"
    """A message by its virtual subject, until it is acknowledged."""
    DIRECT_GET = "direct-get"
    """Direct Get of the last message of a subject, by the virtual name."""
    DIRECT_GET_SEQUENCE = "direct-get-sequence"
    """Direct Get by sequence, by the virtual name."""
    MESSAGE_GET = "message-get"
    """`STREAM.MSG.GET` by the virtual name, which the stream's leader answers."""
    STREAM_INFO = "stream-info"
    """`STREAM.INFO` by the virtual name."""
    LIST_STREAMS = "list-streams"
    """`STREAM.NAMES`, which the meta leader answers."""
    FETCH = "fetch"
    """A message from a consumer on the read stream that was there before."""
    ACKNOWLEDGE = "acknowledge"
    """The acknowledgement of what was fetched, itself confirmed."""
    CONSUMER_INFO = "consumer-info"
    """`CONSUMER.INFO` of that consumer."""
    CREATE_CONSUMER = "create-consumer"
    """A new consumer on the read stream, and a message from it."""
    CREATE_STREAM = "create-stream"
    """A new stream in the region."""


@value_class
class Try:
    """Try every client operation once in each of *regions* and record which work: the isolated-region matrix."""

    regions: tuple[str, ...]


@value_class
class RepairMeta:
    """Do what `vstream repair meta` does: the servers that are left go on without those that are dead."""


Action = Wait | Inject | Heal | Resync | Converge | Try | ChangeRegion | RepairMeta


@value_class
class Step:
    """
    One step. Steps run one after the other; one with *at* starts so long after the load, not before the step in front has ended.

    A step with a *name* is a window: expectations and reports speak of it.
    """

    action: Action
    span: Span
    name: str | None = None
    at: int | None = None


class Retry(Enum):
    """What a publisher does with a message that was not acknowledged in time."""

    NONE = "none"
    SAME_ID = "same-id"
    """It sends the message again, with the same `Nats-Msg-Id`, until it is acknowledged or given up."""


@value_class
class Publishers:
    """One open-loop publisher in each of *regions*: a slow answer does not slow it down."""

    stream: str
    """The virtual stream."""
    subject: str
    """May hold `{region}`, `{n}` (number of the message) and `{key}`."""
    regions: tuple[str, ...]
    rate: float
    """Messages per second in each region."""
    size: tuple[int, int]
    """Bytes of payload, from and to: drawn from the seed."""
    keys: int
    """How many different values `{key}` takes."""
    retry: Retry
    timeout: int
    """Without an answer after so many nanoseconds the operation is indeterminate, or is tried again."""
    give_up: int
    """Nanoseconds after which `SAME_ID` gives up: the operation is indeterminate then."""
    span: Span


class ReaderKind(Enum):
    """How a reader reads."""

    CONSUMER = "consumer"
    """A pull consumer on the region's read stream, made before the first fault; fetches and acknowledges."""
    DIRECT = "direct"
    """Direct Get of the last message of a random key, by the virtual name."""
    SEQUENCE = "sequence"
    """Direct Get by sequence, by the virtual name."""


@value_class
class Readers:
    """One reader in each of *regions*."""

    stream: str
    kind: ReaderKind
    regions: tuple[str, ...]
    rate: float
    """Operations per second; for a consumer, fetches."""
    timeout: int
    span: Span


@value_class
class Workload:
    """What clients do while faults happen."""

    publishers: tuple[Publishers, ...]
    readers: tuple[Readers, ...] = ()


class Measure(Enum):
    """What an expectation is about."""

    PUBLISHED = "published"
    """Share of publishes attempted in the window that were acknowledged, 0 to 1, per region."""
    READ = "read"
    """Share of reads attempted in the window that were answered, 0 to 1, per region."""
    DELIVERED = "delivered"
    """Messages that consumers received in the window, per region."""
    CONTROL_PLANE = "control-plane"
    """Share of samples in the window in which the JetStream API with a meta leader answered, 0 to 1, per region."""
    LOST = "lost"
    """Acknowledged messages that some read stream does not hold in the end, over the whole run."""
    DUPLICATED = "duplicated"
    """Copies beyond the first, in write and read streams, over the whole run."""
    UNEXPECTED = "unexpected"
    """Stored messages that nobody published, over the whole run."""
    DIVERGED = "diverged"
    """
    Messages that one stream holds and another that should does not, over the whole run.

    Those that are not lost: they were not acknowledged, or only a write stream has
    lost them. Where a scenario allows losses, it allows these too.
    """
    REORDERED = "reordered"
    """Messages of one origin in a different order in a read stream, over the whole run."""
    CONVERGED = "converged"
    """Nanoseconds that the named `converge` step took; not converged is infinite."""
    SAME_ORDER = "same-order"
    """1 if all read streams hold the same sequence of messages (stretch and ordered streams promise it), else 0."""
    VISIBLE = "visible"
    """Messages acknowledged in region *origin* in the window that region *region* had stored before the window ended."""
    WORKS = "works"
    """1 if *operation* worked in the named `try` step, else 0."""
    READ_TIME = "read-time"
    """Median nanoseconds of answered reads in the window, per region."""
    PUBLISH_TIME = "publish-time"
    """Median nanoseconds of acknowledged publishes in the window, per region."""
    PUBLISH_GAP = "publish-gap"
    """The longest time in the window, in nanoseconds and per region, in which no publish was acknowledged and some failed."""
    PROPAGATION = "propagation"
    """Median nanoseconds from sending in region *origin*, in the window, until a consumer in region *region* has the message."""


SAFETY = (Measure.LOST, Measure.DUPLICATED, Measure.UNEXPECTED, Measure.DIVERGED, Measure.REORDERED)
"""What a verdict expects to be 0 for every stream, unless the scenario says something else of it."""


class Compare(Enum):
    """How a measured value must relate to the stated one."""

    EQUAL = "=="
    AT_LEAST = ">="
    AT_MOST = "<="


@value_class
class Expectation:
    """One thing that must hold. What could not be measured is UNKNOWN, and never a pass."""

    measure: Measure
    compare: Compare
    value: float
    span: Span
    window: str | None = None
    """A step's name; None is the whole run."""
    region: str | None = None
    """None: each region by itself."""
    stream: str | None = None
    """None: each virtual stream by itself."""
    origin: str | None = None
    operation: str | None = None
    """The client operation that a step tried, where the measure is of one."""


@value_class
class LabSpec:
    """What the servers of a scenario are."""

    versions: Mapping[str, str]
    """nats-server version by region or server; `*` for the others."""
    links: str
    """The backend of links between regions: `proxy` or `none`."""
    templates: str | None = None
    """A directory of templates that win over the built-in ones, as `vstream render --templates`: another layout of streams."""


@value_class
class Scenario:
    """The whole scenario."""

    name: str
    description: str
    seed: int
    topology_file: str
    """Its file name in errors: a path, or that of the scenario if it is written inside."""
    topology_text: str
    """As it is written; a change of a region is one of this text."""
    topology: Topology
    lab: LabSpec
    workload: Workload
    steps: tuple[Step, ...]
    expectations: tuple[Expectation, ...]
    text: str
    """The scenario's own file, kept in the capture."""


PLACEHOLDERS: Final = ("region", "key", "n")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")


def default_subject(pattern: str) -> str:
    """A subject of the stream's own *pattern* with a key in it, which nobody else uses."""
    tokens = pattern.split(".")
    if tokens[-1] == FULL_WILDCARD:
        tokens[-1] = "load.{region}.{key}"
    elif PARTIAL_WILDCARD in tokens:
        last = len(tokens) - 1 - tokens[::-1].index(PARTIAL_WILDCARD)
        tokens[last] = "load-{region}-{key}"
    return ".".join("load" if token == PARTIAL_WILDCARD else token for token in tokens)


def placeholders(template: str) -> list[str]:
    """The names of the placeholders in *template*, in their order."""
    return _PLACEHOLDER.findall(template)


def fill_subject(template: str, values: Mapping[str, str | int]) -> str:
    """*template* with its placeholders replaced; those without a value stay."""
    return _PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), template)
