"""What the driver sends to executors: where the streams are, how far to read them, and in which pieces."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from vstream.topology import naming
from vstream.topology.stream_config import ACCOUNT_SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vstream.topology.bundle import RenderedStream

CONSUMER = "consumer"
"""A pull consumer: the fastest, needs the meta leader, and must not be used where reading removes messages."""
DIRECT = "direct"
"""Direct Get in batches: needs no leader of any kind, a server from 2.11 on, and `allow_direct`."""
PATHS = (CONSUMER, DIRECT)
ABSENT = "the server has no such stream"
"""The error of a stream that does not exist: nobody answers for one that only cannot be reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """
    How a region's servers are reached. Holds no secret: only names of files and of environment variables.

    Files are looked for on the machine that reads, and there also among those that
    Spark has distributed (`--files`, `addFile`).
    """

    servers: tuple[str, ...] = ()
    context: str | None = None
    """A nats CLI context: a name, or a file."""
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
    allow_plaintext: bool = False
    """Whether credentials may cross the network in clear; see `vstream.permissions`."""
    api_prefix: str = "$JS.API"
    timeout: float = 10.0
    """Seconds: for a connection, for an answer, and without a byte while reading."""

    def of(self, stream: str) -> Access:
        """As this one, with the API that knows *stream*: that of its account, for one of a hidden account."""
        account, is_hidden, _ = stream.rpartition(ACCOUNT_SEPARATOR)
        return replace(self, api_prefix=naming.api_prefix(account)) if is_hidden else self


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRef:
    """A physical stream to read, and what it is called in the tables."""

    stream: str
    region: str
    virtual: str
    role: str

    @property
    def name(self) -> str:
        """What servers call it in its account."""
        return naming.local_name(self.stream)

    @classmethod
    def of(cls, stream: RenderedStream) -> StreamRef:
        """The physical *stream* of a topology."""
        return cls(stream=stream.config.name, region=stream.region, virtual=stream.virtual, role=stream.role.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceCursor:
    """How far a stream has sourced another. *last_seq* is None where the server does not say."""

    origin: str
    last_seq: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCut:
    """What one stream held at one moment. With *error*, it could not be asked, and the rest means nothing."""

    stream_ref: StreamRef
    cut_at_ns: int
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    num_deleted: int = 0
    bytes: int = 0
    server_version: str | None = None
    path: str | None = None
    sources: tuple[SourceCursor, ...] = ()
    limits: Mapping[str, int] | None = None
    """What may remove messages: limits that are set, in the API's names and units. None: it is not known."""
    created: str | None = None
    """When the stream was created, as the server says it."""
    last_ts: str | None = None
    """When its last message was stored, as the server says it."""
    is_restored: bool = False
    """Whether it holds messages that are older than itself: it is from a backup."""
    mirror: str | None = None
    transform: tuple[str, str] | None = None
    subjects: tuple[str, ...] = ()
    """Only messages that match one of these are read; all if empty."""
    error: str | None = None

    @property
    def is_readable(self) -> bool:
        """Whether there is anything to read, and a way to."""
        return self.error is None and self.messages > 0 and self.last_seq >= self.first_seq


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """What one DataFrame reads: the cut, and how each region is reached."""

    access: Mapping[str, Access]
    """By region."""
    cuts: tuple[StreamCut, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTask:
    """What one task reads: sequences *first* to *last* of one stream, both included."""

    stream_ref: StreamRef
    access: Access = field(repr=False)
    path: str
    first: int
    last: int
    mean_size: int
    """Bytes of a stored message on average: how many can be in flight."""
    subjects: tuple[str, ...] = ()
    """Only messages that match one of these; all if empty."""


def encode_plan(plan: ReadPlan) -> str:
    """*plan* as an option's text."""
    document = {
        "access": {name: asdict(item) for name, item in plan.access.items()},
        "cuts": [asdict(c) for c in plan.cuts],
    }
    return base64.b64encode(zlib.compress(json.dumps(document).encode())).decode()


def decode_plan(text: str) -> ReadPlan:
    """The plan that `encode_plan` wrote into *text*."""
    document: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(text)))
    cuts = []
    for cut in document["cuts"]:
        cuts.append(
            StreamCut(
                **{
                    **cut,
                    "stream_ref": StreamRef(**cut["stream_ref"]),
                    "sources": tuple(SourceCursor(**item) for item in cut["sources"]),
                    "transform": tuple(cut["transform"]) if cut["transform"] else None,
                    "subjects": tuple(cut["subjects"]),
                }
            )
        )
    return ReadPlan(
        access={
            name: Access(**{**item, "servers": tuple(item["servers"])}) for name, item in document["access"].items()
        },
        cuts=tuple(cuts),
    )


def split_tasks(
    cuts: Sequence[StreamCut], access: Mapping[str, Access], *, rows: int, subjects: tuple[str, ...] = ()
) -> list[ReadTask]:
    """
    *cuts* in pieces of about *rows* messages each, in their order; those that hold nothing have none.

    Pieces have the same number of sequences: where many messages were removed from
    one part of a stream, its pieces are smaller.
    """
    result: list[ReadTask] = []
    for cut in cuts:
        if not cut.is_readable:
            continue
        pieces = max(1, -(-cut.messages // rows))
        span = cut.last_seq - cut.first_seq + 1
        bounds = [cut.first_seq + span * piece // pieces for piece in range(pieces + 1)]
        splits = []
        for first, after in pairwise(bounds):
            if after > first:
                splits.append(
                    ReadTask(
                        stream_ref=cut.stream_ref,
                        access=access[cut.stream_ref.region].of(cut.stream_ref.stream),
                        path=cut.path or CONSUMER,
                        first=first,
                        last=after - 1,
                        mean_size=max(1, cut.bytes // cut.messages),
                        subjects=cut.subjects or subjects,
                    )
                )
        result += splits
    return result


ACCESS_FIELDS = frozenset(option.name for option in fields(Access))
