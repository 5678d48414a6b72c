"""What a worker process is told: one JSON object on its standard input, and a word on each line after that."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from vstream.topology.model import VSTREAM_INBOX, Endpoint

GO = "go"
"""`go NANOSECONDS`: publishers and readers begin, so long after the capture's start."""
STOP = "stop"
"""Publishers and Direct Get readers end; what has no answer yet is waited for. Consumers go on."""
FINISH = "finish"
"""Consumers take what is left, and the worker ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLogin:
    """A user of the lab, if it has users."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    creds: str | None = None
    """A file, in operator mode."""
    nkey: str | None = None
    """A file, as those of certificates are."""
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    inbox: str = VSTREAM_INBOX


def endpoint_of(urls: tuple[str, ...], login: WorkerLogin | None) -> Endpoint:
    """How a process reaches the servers that it is told of."""
    if login is None:
        return Endpoint(urls=urls)
    return Endpoint(urls=urls, **asdict(login))


@dataclass(frozen=True, slots=True, kw_only=True)
class PublisherSpec:
    """One publisher. Durations are nanoseconds."""

    client: str
    prefix: str
    """Of message identities: a number follows."""
    stream: str
    written: str
    """The physical stream that takes what is published here. With hidden accounts, servers say only its name there."""
    subject: str
    rate: float
    size: tuple[int, int]
    keys: int
    is_retrying: bool
    timeout: int
    give_up: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderSpec:
    """A Direct Get reader: of the last message of a subject, or with *is_sequential* of message after message."""

    client: str
    stream: str
    read: str
    """The physical stream that answers here."""
    rate: float
    timeout: int
    is_sequential: bool
    subjects: tuple[tuple[str, int, float], ...] = ()
    """What publishers write: subject with `{key}` and `{n}` open, number of keys, rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """A pull consumer on *physical*, called *name* there."""

    client: str
    stream: str
    physical: str
    name: str
    rate: float
    timeout: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """Everything that one worker does. It connects to *urls* alone, and there to servers that log into *logs*."""

    region: str
    urls: tuple[str, ...]
    logs: Path
    login: WorkerLogin | None
    start: int
    """The capture's start on the monotonic clock, which all processes of a machine share."""
    seed: int
    capture: Path
    publishers: tuple[PublisherSpec, ...]
    readers: tuple[ReaderSpec, ...]
    consumers: tuple[ConsumerSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerSpec:
    """What the sampler asks, by region; only servers that log into *logs*."""

    start: int
    logs: Path
    capture: Path
    regions: tuple[SampledRegion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledRegion:
    """One region: how to reach it, and its physical streams."""

    name: str
    urls: tuple[str, ...]
    login: WorkerLogin | None
    monitor: tuple[str, ...]
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProgress:
    """What a worker has done so far: a line of its standard output. Numbers only grow."""

    at: int
    due: int = 0
    acked: int = 0
    rejected: int = 0
    indeterminate: int = 0
    reads: int = 0
    answered: int = 0
    delivered: int = 0
    late: int = 0
    """Of the last half second: 99 % were sent no more than so many nanoseconds after they were due."""
    is_ready: bool = False
    is_drained: bool = False
    """Nothing waits for an answer any more."""


WORKER = TypeAdapter(WorkerSpec)
SAMPLER = TypeAdapter(SamplerSpec)
PROGRESS = TypeAdapter(WorkloadProgress)
