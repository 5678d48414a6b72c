"""The instructions of a worker process: a JSON object on its standard input, then one word per line."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter

from vstream.topology.model import Endpoint
from vstream.value_class import value_class

GO = "go"
"""`go NANOSECONDS`: publishers and readers begin at this time since the capture's start."""
STOP = "stop"
"""Publishers and Direct Get readers stop and wait for outstanding answers. Consumers continue."""
FINISH = "finish"
"""Consumers take what is left, and the worker exits."""
FIRST_CONNECT_TIMEOUT = 20.0
"""Seconds for the first connection, and for creating a consumer."""


@value_class
class PublisherSpec:
    """One publisher. Durations are nanoseconds."""

    client: str
    prefix: str
    """Prefix of message identities; a number follows."""
    stream: str
    write_stream: str
    """The physical stream that stores these publishes, by the name in acknowledgements."""
    subject: str
    rate: float
    size: tuple[int, int]
    keys: int
    is_retrying: bool
    timeout: int
    give_up: int


@value_class
class ReaderSpec:
    """A Direct Get reader: of a subject's last message, or with *is_sequential* of message after message."""

    client: str
    stream: str
    read_stream: str
    """The physical stream that answers here."""
    rate: float
    timeout: int
    is_sequential: bool
    subjects: tuple[tuple[str, int, float], ...] = ()
    """What publishers write: subject with `{key}` and `{n}` open, number of keys, rate."""


@value_class
class ConsumerSpec:
    """A pull consumer *name* on *physical*."""

    client: str
    stream: str
    physical: str
    name: str
    rate: float
    timeout: int


@value_class
class WorkerSpec:
    """The work of one worker. It connects to *endpoint* alone, and only to servers that log into *logs*."""

    region: str
    endpoint: Endpoint
    logs: Path
    start: int
    """The capture's start on the monotonic clock, which all processes of a machine share."""
    seed: int
    capture: Path
    publishers: tuple[PublisherSpec, ...]
    readers: tuple[ReaderSpec, ...]
    consumers: tuple[ConsumerSpec, ...]


@value_class
class SamplerSpec:
    """What to sample, by region, on servers that log into *logs*."""

    start: int
    logs: Path
    capture: Path
    regions: tuple[SampledRegion, ...]


@value_class
class SampledRegion:
    """A region: its endpoint and its physical streams."""

    name: str
    endpoint: Endpoint
    streams: tuple[str, ...]


@value_class
class WorkloadProgress:
    """Progress of a worker: a line of its standard output. Numbers only grow."""

    at: int
    due: int = 0
    acked: int = 0
    rejected: int = 0
    indeterminate: int = 0
    reads: int = 0
    answered: int = 0
    delivered: int = 0
    late: int = 0
    """p99 lateness in nanoseconds over the last half second."""
    is_ready: bool = False
    is_drained: bool = False
    """Whether no answer is outstanding."""


WORKER = TypeAdapter(WorkerSpec)
SAMPLER = TypeAdapter(SamplerSpec)
PROGRESS = TypeAdapter(WorkloadProgress)
