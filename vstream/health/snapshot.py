"""What servers said at one moment, as values: servers, streams, sources. It judges nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from vstream.jetstream.answers import require_config, require_text
from vstream.syntax.document import Json
from vstream.timing import ALIVE_SECONDS, SECOND_NS
from vstream.topology.consumer_config import ObservedConsumer
from vstream.topology.stream_config import source_name
from vstream.value_class import value_class

_MUCH_SHARE = 0.8
_MAX_ON_ITS_WAY = 1_000  # entries of a replica's log
UNCLUSTERED = "?"
"""The leader of a stream on a server that is not clustered."""


@value_class
class ServerSnapshot:
    """
    One server, as its monitoring port describes it.

    Everything but *name* and *region* is None where it did not answer, and *problem* says why.
    """

    name: str
    region: str
    """The region it is in. Members of the stretch cluster are in regions, too."""
    url: str | None = None
    problem: str | None = None
    hangs: bool = False
    """Whether it takes connections there all the same."""
    cluster: str | None = None
    version: str | None = None
    gateways: Mapping[str, int] | None = None
    """The clusters that it has a connection to, and how many bytes of messages it has sent over it."""
    has_jetstream: bool = False
    meta_leader: str | None = None
    meta_size: int = 0
    rules: Mapping[str, tuple[str, ...]] | None = None
    """The mapping rules and entries of accounts that it has loaded, None where they could not be read."""
    rules_problem: str | None = None
    """Why they could not be read, of a server that answers."""
    config_digest: str | None = None
    """Of the configuration that it has loaded; None before 2.12."""
    config_loaded: str | None = None
    """When it loaded that. A refused reload does not count."""
    flags: Mapping[str, bool] = field(default_factory=dict)
    """Its feature flags, and whether each is on; none before 2.14."""
    storage: int = 0
    """Bytes of its JetStream file storage that are used."""
    storage_limit: int = 0
    """The limit in bytes; 0 if not known."""

    @property
    def is_reached(self) -> bool:
        """Whether it answered."""
        return self.version is not None

    @property
    def is_nearly_full(self) -> bool:
        """Whether more than four fifths of its storage limit are used."""
        return bool(self.storage_limit) and self.storage >= _MUCH_SHARE * self.storage_limit

    @property
    def may_serve(self) -> bool:
        """Whether clients may be connected to it: it answers, or nobody could ask it."""
        return self.is_reached or self.url is None


@value_class
class SourceSnapshot:
    """What a stream reports about one of its sources or its mirror."""

    stream: str
    seq: int | None
    """The last sequence that it took, None where its server does not say (before 2.15)."""
    lag: int
    """What servers call the lag. It is 0, too, where nothing arrives at all."""
    heard: float | None
    """Seconds since it was last heard, messages or not; None for never."""
    error: str | None


@value_class
class StreamSnapshot:
    """A physical stream, as its leader describes it, or while there is none, one of its replicas."""

    name: str
    leader: str | None
    cluster: str | None
    created: str
    messages: int
    bytes: int
    first_seq: int
    last_seq: int
    last_at: float | None
    """When the last message was stored, in seconds since 1970; None if there never was one."""
    first_at: float | None = None
    """When the oldest message that it still has was stored."""
    consumers: int = 0
    replicas: int
    current: int
    """How many of them have everything, the leader included."""
    following: int = 0
    """How many others answer, and are so little behind that it may be on its way."""
    sources: Sequence[SourceSnapshot] = ()
    config: Mapping[str, Json] | None = None
    unsubscribed: tuple[str, ...] = ()
    """Subjects that its leader has to be subscribed to for it, and is not, as far as that server tells."""

    def find_source(self, origin: str) -> SourceSnapshot | None:
        """What it says of its source *origin*; None if that is none of its sources."""
        return next((source for source in self.sources if source.stream == origin), None)


@value_class
class Lag:
    """Replication lag: what a reader has not sourced from an origin yet."""

    last: int
    """The origin's last sequence, asked for after the reader's position was known."""
    first: int
    cursor: int | None
    """The reader's position, None where it cannot be found out."""
    is_exact: bool = True
    """Whether the reader is known to be at exactly that position."""
    oldest_at: float | None = None
    """When the oldest message that is still to come was stored, in seconds since 1970; None if there is none."""
    oldest_seq: int | None = None
    max_age: float = 0.0
    """Seconds that the origin keeps messages; 0 for ever."""
    begins: int = 1
    """The sequence that the origin was made to begin at: before that, there never was a message."""


@value_class
class Gap:
    """Sequences of *origin*, from *first* to *last*, that *reader* has passed and the origin still holds messages of."""

    reader: str
    origin: str
    first: int
    last: int


@value_class
class Repeat:
    """A message of *origin* that *reader* took although it had taken *later*: it has begun again, and doubles."""

    reader: str
    origin: str
    seq: int
    later: int


@value_class
class WriteError:
    """What *server* says of a stream, a consumer or a Raft group that it cannot write to."""

    server: str
    about: str
    error: str


@value_class
class BeaconSighting:
    """The newest beacon of region *origin* in region *reader*, or why there is none."""

    stream: str
    origin: str
    reader: str
    sent: float | None = None
    """When it was published, in seconds since 1970, by the publisher's clock."""
    age: float | None = None
    """Seconds since then."""
    problem: str | None = None
    is_absent: bool = False
    """Whether it is known to be missing."""

    def as_dict(self) -> dict[str, Json]:
        """As JSON would have it."""
        return {
            "stream": self.stream,
            "origin": self.origin,
            "reader": self.reader,
            "age_s": None if self.age is None else round(self.age, 3),
            "problem": self.problem,
        }


@value_class
class AccountUsage:
    """What all streams of an account store in `file` or `memory`, in bytes, and what they may store."""

    storage: str
    used: int
    limit: int

    @property
    def is_nearly_full(self) -> bool:
        """Whether more than four fifths of the limit are used."""
        return self.used >= _MUCH_SHARE * self.limit


@value_class
class RegionSnapshot:
    """A region, as a client in it sees it. *problem* says why there is no connection to it, or is None."""

    name: str
    problem: str | None = None
    control: str | None = None
    """Why the JetStream API does not answer what needs the meta leader, None if it does."""
    account_usage: tuple[AccountUsage, ...] = ()
    """What the account of `connect` stores, for each limit that it has."""
    origins: Mapping[str, str | None] = field(default_factory=dict)
    """Origins that this region writes to, elsewhere: why they cannot be reached from here, or None."""


@value_class
class Snapshot:
    """Everything. *at* is the servers' clock where one was read, else this machine's, in seconds since 1970."""

    at: float
    took: float
    account: str
    regions: tuple[RegionSnapshot, ...]
    servers: tuple[ServerSnapshot, ...]
    streams: Mapping[str, StreamSnapshot]
    absent: frozenset[str] = frozenset()
    """Streams that do not exist: servers that would know were asked."""
    lags: Mapping[tuple[str, str], Lag] = field(default_factory=dict)
    """By origin and reader, for those pairs that were looked at more closely."""
    gaps: tuple[Gap, ...] = ()
    """What was skipped; looked for only where everything is asked, as are repeats."""
    repeats: tuple[Repeat, ...] = ()
    write_errors: tuple[WriteError, ...] = ()
    beacons: tuple[BeaconSighting, ...] = ()
    """Of some streams, where there are many."""
    consumers: Mapping[tuple[str, str], ObservedConsumer | None] = field(default_factory=dict)
    """The topology's durables by stream and name; None for one that does not exist. Of others nobody answered."""

    @property
    def was_connected(self) -> bool:
        """Whether JetStream could be asked in some region: else a stream of which nothing is known was not asked for."""
        return any(region.problem is None for region in self.regions)

    @property
    def reached_servers(self) -> tuple[ServerSnapshot, ...]:
        """Those whose monitoring port answered."""
        return tuple(server for server in self.servers if server.is_reached)

    @property
    def silent_servers(self) -> tuple[ServerSnapshot, ...]:
        """Those whose monitoring address is known, and that did not answer."""
        return tuple(server for server in self.servers if server.url is not None and not server.is_reached)


def parse_stream(detail: Mapping[str, Any], name: str | None = None) -> StreamSnapshot:
    """The stream *name*, by default as it calls itself, from what STREAM.INFO answers or what `/jsz` lists. Raises what `answers.convert_malformed_errors` expects if it is neither."""
    state, cluster = detail["state"], detail.get("cluster") or {}
    replicas = cluster.get("replicas") or ()
    unlisted = 0 if cluster and not cluster.get("leader") else 1  # the leader; who knows none lists itself, too
    name = name or str(detail.get("name") or detail["config"]["name"])
    config = detail.get("config")
    if config is not None:  # which is not asked of replicas
        require_config(config, name)
    sources = detail.get("sources") or ([detail["mirror"]] if detail.get("mirror") else ())
    is_mirror = bool(detail.get("mirror"))
    last = int(state["last_seq"])
    return StreamSnapshot(
        name=name,
        # A server that is no part of a cluster says nothing of leaders.
        leader=(require_text(cluster.get("leader") or "") or None) if cluster else UNCLUSTERED,
        cluster=cluster.get("name"),
        created=str(detail.get("created", "")),
        messages=int(state["messages"]),
        bytes=int(state.get("bytes", 0)),
        consumers=int(state.get("consumer_count", 0)),
        first_seq=int(state["first_seq"]),
        last_seq=last,
        last_at=to_unix_seconds(state["last_ts"]) if last and state.get("last_ts") else None,
        first_at=to_unix_seconds(state["first_ts"]) if int(state["messages"]) and state.get("first_ts") else None,
        replicas=len(replicas) + unlisted,
        current=unlisted + sum(bool(replica.get("current")) and not replica.get("offline") for replica in replicas),
        following=sum(map(_is_following, replicas)),
        # A mirror has its origin's sequences.
        sources=tuple(_parse_source(info, name, last if is_mirror else None) for info in sources),
        config=config,
    )


def _is_following(replica: Mapping[str, Any]) -> bool:
    is_heard = not replica.get("offline") and int(replica.get("active", 0)) < ALIVE_SECONDS * SECOND_NS
    return is_heard and not replica.get("current") and 0 < int(replica.get("lag", 0)) <= _MAX_ON_ITS_WAY


def _parse_source(info: Mapping[str, Any], reader: str, mirrored: int | None) -> SourceSnapshot:
    active, error = int(info.get("active", -1)), info.get("error")
    seq = info.get("seq")
    if mirrored is not None:
        seq = max(mirrored, int(seq or 0))
    return SourceSnapshot(
        stream=source_name(info, reader) if "name" in info else "?",
        seq=None if seq is None else int(seq),
        lag=int(info.get("lag", 0)),
        heard=None if active < 0 else active / SECOND_NS,
        error=str(error.get("description", error)) if isinstance(error, dict) else None,
    )


def to_unix_seconds(text: str) -> float:
    """An RFC 3339 time of a server, which may have nanoseconds. Raises ValueError."""
    head, dot, rest = text.partition(".")
    if not dot:
        return datetime.fromisoformat(text).timestamp()
    digits = rest[: next((place for place, char in enumerate(rest) if not char.isdigit()), len(rest))]
    return datetime.fromisoformat(head + rest[len(digits) :]).timestamp() + float(f"0.{digits or 0}")
