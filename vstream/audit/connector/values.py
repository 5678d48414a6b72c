"""Values that the driver sends to executors: where streams are, how far to read them, and in which pieces."""

from __future__ import annotations

from dataclasses import field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from vstream.topology import naming
from vstream.topology.stream_config import ACCOUNT_SEPARATOR
from vstream.value_class import value_class

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.topology.bundle import RenderedStream

CONSUMER = "consumer"
"""A pull consumer: the fastest path. Needs the meta leader, and must not be used if reading removes messages."""
DIRECT = "direct"
"""Batched Direct Get: needs no leader, but `allow_direct` and servers from 2.11 on."""
PATHS = (CONSUMER, DIRECT)
_SMALL_SEQUENCES = 256
"""Up to so many sequences, and `_SMALL_BYTES` bytes, all messages of a stream are asked for at once."""
_SMALL_BYTES = 256 << 10
_TASK_STREAMS = 1_000
"""Number of small streams in one task."""
MAX_FURTHER_SEQUENCES = 1_000_000
ABSENT = "the server has no such stream"
"""The error of a stream that does not exist; a stream that cannot be reached has another."""


@value_class
class Access:
    """
    How to reach a region's servers. Contains no secrets, only names of files and environment variables.

    Files are looked up on the machine that reads, including those that Spark distributed
    (`--files`, `addFile`).
    """

    servers: tuple[str, ...] = ()
    context: str | None = None
    """A nats CLI context: a name or a path."""
    creds: str | None = None
    nkey: str | None = None
    user: str | None = None
    password_env: str | None = None
    password_file: str | None = None
    token_env: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    inbox: str | None = None
    """The prefix of subjects for answers; None for that of the context, or of the user."""
    allow_plaintext: bool = False
    """Whether credentials may be sent without TLS; see `vstream.credentials`."""
    api_prefix: str = "$JS.API"
    timeout: float = 10.0
    """Timeout in seconds: for a connection, for an answer, and between bytes while reading."""

    def with_prefix_of(self, stream: str) -> Access:
        """The same access with the API prefix for *stream*, which depends on its account if that is hidden."""
        account, is_hidden, _ = stream.rpartition(ACCOUNT_SEPARATOR)
        return replace(self, api_prefix=naming.api_prefix(account)) if is_hidden else self


@value_class
class StreamRef:
    """A physical stream to read, and its names in the tables."""

    stream: str
    region: str
    virtual: str
    role: str

    @property
    def name(self) -> str:
        """The name of the stream in its account."""
        return naming.local_name(self.stream)

    @classmethod
    def of(cls, stream: RenderedStream) -> StreamRef:
        """The reference for the physical *stream* of a topology."""
        return cls(stream=stream.config.name, region=stream.region, virtual=stream.virtual, role=stream.role.value)


@value_class
class SourceCursor:
    """How far a stream has sourced another. *last_seq* is None if the server does not report it."""

    origin: str
    last_seq: int | None


@value_class
class ReadSnapshot:
    """The contents of one stream at one moment. With *error*, it could not be asked; ignore the other fields."""

    stream_ref: StreamRef
    snapshot_ns: int
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    num_deleted: int = 0
    bytes: int = 0
    server_version: str | None = None
    path: str | None = None
    sources: tuple[SourceCursor, ...] = ()
    limits: Mapping[str, int] | None = None
    """The limits that may remove messages, and `first_seq`, with the API's names and units. None: unknown."""
    created: str | None = None
    """When the stream was created, as the server reports it."""
    last_ts: str | None = None
    """When its last message was stored, as the server reports it."""
    is_restored: bool = False
    """Whether it has messages older than the stream itself: it was restored from a backup."""
    mirror: str | None = None
    transform: tuple[str, str] | None = None
    is_led: bool = True
    """Whether its leader answered, and can be the only one: else it may have more than that."""
    subjects: tuple[str, ...] = ()
    """Only messages on these subjects are read; all if empty."""
    has_batches: bool = False
    """Whether batched Direct Get may be used, too, where *path* is another."""
    error: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether there is anything to read, and a path to read it."""
        return self.error is None and self.messages > 0 and self.last_seq >= self.first_seq

    def clip(self, *, first: int | None = None, last: int | None = None) -> ReadSnapshot:
        """The part of it from the sequence *first* to *last*; it has nothing to read if nothing is left."""
        first = self.first_seq if first is None else max(self.first_seq, first)
        last = self.last_seq if last is None else min(self.last_seq, last)
        span, whole = last - first + 1, self.last_seq - self.first_seq + 1
        if span <= 0 or not self.is_readable:
            return replace(self, messages=0)
        # A guess: it decides on the number of tasks and nothing else.
        part = min(self.messages, span) if span < whole else self.messages
        size = max(1, self.bytes * part // self.messages)
        return replace(self, first_seq=first, last_seq=last, messages=part, bytes=size)


@value_class
class ReadTask:
    """The input of one task: sequences *first* to *last* of one stream, inclusive."""

    stream_ref: StreamRef
    access: Access = field(repr=False)
    path: str
    first: int
    last: int
    mean_size: int
    """Average size of a stored message in bytes, which limits how many are in flight."""
    subjects: tuple[str, ...] = ()
    """Only messages on these subjects; all if empty."""
    has_batches: bool = False
    """Whether batched Direct Get may be used, too, where *path* is another."""
    goes_on: bool = False
    """Whether to read on behind *last* until no message is left, at most `MAX_FURTHER_SEQUENCES` sequences."""

    @property
    def span(self) -> int:
        """Number of sequences."""
        return self.last - self.first + 1

    @property
    def is_small(self) -> bool:
        """Whether all can be asked for at once, with many others."""
        is_little = self.span <= _SMALL_SEQUENCES and self.span * self.mean_size <= _SMALL_BYTES
        return is_little and self.has_batches and not self.subjects


def split_tasks(
    snapshots: Sequence[ReadSnapshot], access: Mapping[str, Access], *, rows: int, subjects: tuple[str, ...] = ()
) -> list[ReadTask]:
    """
    Split *snapshots* into tasks of about *rows* messages, in the same order; empty snapshots have no tasks.

    All tasks of a stream have the same number of sequences: if many messages were removed from
    one part of it, the tasks there are smaller.
    """
    result: list[ReadTask] = []
    for snapshot in snapshots:
        if not snapshot.is_readable:
            continue
        pieces = max(1, -(-snapshot.messages // rows))
        span = snapshot.last_seq - snapshot.first_seq + 1
        bounds = [snapshot.first_seq + span * piece // pieces for piece in range(pieces + 1)]
        for first, after in pairwise(bounds):
            if after > first:
                result.append(
                    ReadTask(
                        stream_ref=snapshot.stream_ref,
                        access=access[snapshot.stream_ref.region].with_prefix_of(snapshot.stream_ref.stream),
                        path=snapshot.path or CONSUMER,
                        first=first,
                        last=after - 1,
                        mean_size=max(1, snapshot.bytes // snapshot.messages),
                        subjects=snapshot.subjects or subjects,
                        has_batches=snapshot.has_batches,
                    )
                )
    return result


def group_tasks(tasks: Sequence[ReadTask], *, rows: int) -> list[tuple[ReadTask, ...]]:
    """Put small *tasks* of a region together, up to *rows* messages and `_TASK_STREAMS` streams; others stay alone."""
    groups = [[task] for task in tasks if not task.is_small]
    latest: dict[str, tuple[list[ReadTask], int]] = {}
    for task in tasks:
        if task.is_small:
            group, count = latest.get(task.stream_ref.region, ([], rows))
            count += task.span
            if count > rows or len(group) == _TASK_STREAMS:
                group, count = [], task.span
                groups.append(group)
            group.append(task)
            latest[task.stream_ref.region] = group, count
    return [tuple(group) for group in groups]


ACCESS_FIELDS = frozenset(option.name for option in fields(Access))
