"""Stream configurations as the JetStream API speaks them: an open mapping of fields with typed views."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.syntax.document import Json


TOPOLOGY_KEY = "vstream.topology"
STREAM_KEY = "vstream.stream"
REGION_KEY = "vstream.region"
ROLE_KEY = "vstream.role"
OWNERSHIP_KEYS = (TOPOLOGY_KEY, STREAM_KEY, REGION_KEY, ROLE_KEY)
"""The metadata by which vstream knows that a stream is its own."""
ROUTING_KEY = "vstream.routing"
FROM_KEY = "vstream.from."
"""
Metadata of a copy that has stopped, followed by a source's name: the sequence there that it goes on with.

Followed by its own name: from which sequence on it may hold later messages of a source.
"""
UNTIL_KEY = "vstream.until."
"""Metadata of a reader, followed by the name of a dead stream that it sources no more: the last sequence that it took there."""
TAKEN_KEY = "vstream.taken."
"""Metadata of the same reader, until that is measured: the last sequence of the dead stream that it had taken when vstream planned."""
AFTER_KEY = "vstream.after."
"""Metadata of the same reader: its own last sequence when vstream planned. What it took since has later sequences."""
MOVED_KEY = "vstream.moved"
"""Metadata of a stream that was told to move, until its servers are known to have recorded it: when, in seconds since 1970."""
HELD_KEY = f"{MOVED_KEY}.held"
"""Beside it: some messages that it held then, as `sequence@time`, separated by spaces."""
SCALED_KEY = "vstream.scaled"
"""Metadata of a stream that was told to have more than its one replica, until these are known to hold what it held: when."""
RESTORE_KEY = "vstream.restore"
"""Metadata of a stream that is being restored: the id of its backup."""

REGION_ACCOUNT_PREFIX = "APP_"
"""Prefix of accounts that hold the clients and the streams of one region."""
ACCOUNT_SEPARATOR = "/"
"""
Between the account, or the domain, and the name of a stream: `R_west/foo`, `west/foo`.

Servers refuse it in names of streams, so it means one thing.
"""
FORMER_PREFIX = "M_"
"""Name of the account of clients where a topology moves away from its streams of `routing: mapped`."""
SOURCE_API_PREFIX = "_vs.from"
"""In an account with streams, the API prefix of an account that it sources from: `_vs.from.<account>`."""
HIDDEN_PREFIXES = ("W_", "R_", "S_", FORMER_PREFIX, REGION_ACCOUNT_PREFIX)
"""Prefixes of accounts that hold streams and that others reach through imports. No domain has such a name."""
REPLAY_SUFFIX = ":Rpl[0-9A-Za-z]{5}$"
"""
Suffix of the streams from which a repair puts back missing messages: `foo-write-west:RplXXXXX`.

As servers write a stream of another account: an audit takes one for `foo-write-west` itself, and a server that looks
for where to go on with that does not.
"""
_ACCOUNT = re.compile(rf"(?:{re.escape(SOURCE_API_PREFIX)}\.([^.]+)|\$JS\.([^.]+)\.API)")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@value_class
class StreamSource:
    """One source, or the mirror, of the stream *reader*: an open mapping of fields with typed views."""

    reader: str
    fields: Mapping[str, Json]
    """As the API spells them, the name included."""

    @property
    def stream(self) -> str:
        """The stream that is read, with its account where that is another: `W_west/foo`."""
        return source_name(self.fields, self.reader)

    @property
    def start_seq(self) -> int | None:
        """The sequence to begin with (`opt_start_seq`), None if the source has none."""
        return parse_int(self.fields.get("opt_start_seq"))

    @property
    def filter(self) -> str | None:
        """The subjects that are read, as the stream that is read stores them; None for all, or where `transforms` say it."""
        return str(self.fields["filter_subject"]) if self.fields.get("filter_subject") else None

    @property
    def transforms(self) -> tuple[tuple[str, str], ...]:
        """The subjects that are read and what they become: (source, destination) pairs."""
        return tuple(_transform(transform) for transform in _objects(self.fields.get("subject_transforms")))

    def with_start_seq(self, start_seq: int | None) -> StreamSource:
        """The same source, beginning with *start_seq*. None changes nothing."""
        if start_seq is None:
            return self
        return replace(self, fields={**self.fields, "opt_start_seq": start_seq})


@value_class
class StreamConfig:
    """
    A stream configuration. *name* says the account too where streams have accounts of their own.

    The API is an open world, new fields arrive with each server release: a closed
    class would drop what it does not know. Durations are integer nanoseconds.
    """

    name: str
    fields: Mapping[str, Json]
    """Every field as sent or received, the name included."""

    @property
    def metadata(self) -> Mapping[str, str]:
        """The metadata, empty if there is none."""
        return parse_metadata(self.fields)

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects that the stream listens on."""
        subjects = self.fields.get("subjects")
        return tuple(map(str, subjects)) if isinstance(subjects, (list, tuple)) else ()

    @property
    def subject_transform(self) -> tuple[str, str] | None:
        """The stream's own subject transform: source and destination. None without one."""
        transform = _object(self.fields.get("subject_transform"))
        return _transform(transform) if transform else None

    @property
    def sources(self) -> tuple[StreamSource, ...]:
        """What it sources, in the order written. What has no name is left out: servers refuse it."""
        objects = _objects(self.fields.get("sources"))
        return tuple(StreamSource(reader=self.name, fields=source) for source in objects if "name" in source)

    @property
    def source_names(self) -> tuple[str, ...]:
        """The names of the streams that this one sources, as written."""
        objects = _objects(self.fields.get("sources"))
        return tuple(source_name(source, self.name) for source in objects if "name" in source)

    def start_seq_of(self, origin: str) -> int:
        """The sequence of *origin* that it began with: it has had everything before. 0 if it does not say."""
        return next((source.start_seq or 0 for source in self.sources if source.stream == origin), 0)

    @property
    def mirror(self) -> StreamSource | None:
        """What it mirrors, None if it is no mirror."""
        return parse_source(self.fields.get("mirror"), self.name)

    @property
    def mirror_name(self) -> str | None:
        """The name of the stream that this one mirrors, None if it is no mirror."""
        return None if self.mirror is None else self.mirror.stream

    @property
    def placement_cluster(self) -> str | None:
        """The cluster in which it should be placed, None if it does not say."""
        cluster = _object(self.fields.get("placement")).get("cluster")
        return cluster if cluster and isinstance(cluster, str) else None

    @property
    def first_seq(self) -> int | None:
        """The sequence of the first message that it will store, None for the default."""
        return parse_int(self.fields.get("first_seq")) or None

    @property
    def owner(self) -> str | None:
        """The topology that created this stream, None if vstream did not."""
        return self.metadata_value(TOPOLOGY_KEY)

    @property
    def virtual(self) -> str | None:
        """The virtual stream that it is part of, None if vstream did not create it."""
        return self.metadata_value(STREAM_KEY)

    @property
    def region(self) -> str | None:
        """Where it lives, a region or the stretch cluster, None if vstream did not create it."""
        return self.metadata_value(REGION_KEY)

    def metadata_value(self, key: str) -> str | None:
        """One value of the metadata. Asked many times of each stream, and `metadata` is a copy of all of it."""
        metadata = self.fields.get("metadata")
        value = metadata.get(key) if isinstance(metadata, dict) else None
        return None if value is None else str(value)

    def with_fields(self, **fields: Json) -> StreamConfig:
        """The same stream with other values for *fields*."""
        return replace(self, fields={**self.fields, **fields})

    def with_sources(self, sources: Iterable[StreamSource]) -> StreamConfig:
        """The same stream with other *sources*."""
        return self.with_fields(sources=[dict(source.fields) for source in sources])

    def with_first_seq(self, first_seq: int | None) -> StreamConfig:
        """The same stream, whose first message gets *first_seq*. None changes nothing."""
        return self if first_seq is None else self.with_fields(first_seq=first_seq)


def parse_metadata(fields: Mapping[str, Json]) -> Mapping[str, str]:
    """The metadata among the *fields* of a stream or a consumer, empty if there is none."""
    return {str(key): str(value) for key, value in _object(fields.get("metadata")).items()}


def parse_source(value: Json, reader: str) -> StreamSource | None:
    """A source or the mirror of the stream *reader*. None if *value* is no object with a name."""
    return StreamSource(reader=reader, fields=value) if isinstance(value, dict) and "name" in value else None


def parse_int(value: Json) -> int | None:
    """*value* if it is a whole number, None if it is anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _object(value: Json) -> Mapping[str, Json]:
    # As `object_or_empty`, which executors of Spark do not have.
    return value if isinstance(value, dict) else {}


def _objects(value: Json) -> tuple[dict[str, Json], ...]:
    return tuple(item for item in value if isinstance(item, dict)) if isinstance(value, (list, tuple)) else ()


def _transform(transform: Mapping[str, Json]) -> tuple[str, str]:
    return str(transform.get("src", "")), str(transform.get("dest", ""))


def account_in_name(name: str) -> str | None:
    """The account, or the domain, in the *name* of a stream: `R_west` of `R_west/foo`."""
    return name.rpartition(ACCOUNT_SEPARATOR)[0] or None


def is_in_domain(name: str) -> bool:
    """Whether the stream called *name* is in a JetStream domain."""
    account = account_in_name(name)
    return account is not None and not account.startswith(HIDDEN_PREFIXES)


def shares_account_with_write(name: str) -> bool:
    """Whether the stream *name* shares its domain, or its region's account, with write and read streams."""
    return is_in_domain(name) or (account_in_name(name) or "").startswith(REGION_ACCOUNT_PREFIX)


def source_api(account: str) -> str:
    """The API prefix at which others source from *account*; a domain has that of servers."""
    return f"{SOURCE_API_PREFIX}.{account}" if account.startswith(HIDDEN_PREFIXES) else f"$JS.{account}.API"


def source_name(source: Mapping[str, Json], reader: str) -> str:
    """
    The stream that a source or a mirror, as the API spells it, takes from: `foo`, or `W_west/foo`.

    *reader* is the stream that it belongs to: without `external` it takes from a stream beside it.
    """
    name, api = str(source["name"]), str(_object(source.get("external")).get("api") or "")
    account = account_in_name(reader) if not api else _account_of_api(api)
    return name if account in {None, api} else f"{account}{ACCOUNT_SEPARATOR}{name}"


@lru_cache(maxsize=1000)
def _account_of_api(api: str) -> str:
    """The account or domain behind an API prefix, which thousands of sources share."""
    return _ACCOUNT.sub(r"\1\2", api)


def header_name(stream: str, reader: str | None = None) -> str:
    """
    The name of *stream* in `Nats-Stream-Source`. For a stream of another account, a hash of its API prefix follows.

    *reader* is the stream that took it (server/stream.go, composeIName).
    """
    account, name = account_in_name(stream), stream.rpartition(ACCOUNT_SEPARATOR)[2]
    if account is None or (reader is not None and account == account_in_name(reader)):
        return name
    return f"{name}:{short_hash(source_api(account))}"


def short_hash(text: str) -> str:
    """What servers make of a long name: the first eight bytes of SHA-256, each as a digit of base 62 (server/raft.go, getHash)."""
    digest = hashlib.sha256(text.encode()).digest()
    return "".join(_DIGITS[byte % len(_DIGITS)] for byte in digest[:8])


@value_class
class ObservedStream:
    """A stream as the servers report it."""

    config: StreamConfig
    created: str
    """RFC 3339, as the server wrote it. Changes only when a stream is created again."""
    cluster: str | None
    """Where it lives; None on a server that is not clustered."""
    messages: int = 0
    consumers: int = 0
    """How many consumers clients have made on it."""
    bytes: int = 0
    first_at: datetime | None = None
    """When the oldest message was stored. None if unknown."""
    subject_count: int | None = None
    """Number of subjects of its messages. None if unknown."""
    last_seq: int = 0
    replicas: int | None = None
    """Servers that have it now: more than it is to have while it moves. None if nobody says so."""
    at: datetime | None = None
    """When its leader said so."""
    leader_since: datetime | None = None
    """None before 2.12, and with one replica."""
    silence_by_source: Mapping[str, timedelta] = field(default_factory=dict)
    """For how long it has not heard of each stream that it takes from; with one replica nobody asks."""


def parse_positions(metadata: Mapping[str, str], prefix: str = FROM_KEY) -> Mapping[str, int]:
    """Source → the sequence that it continues with, as the *metadata* of a stopped copy says below *prefix*."""
    recorded = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}
    return {name: int(value) for name, value in recorded.items() if value.isdecimal()}


def with_recorded_positions(config: StreamConfig, starts: Mapping[str, int], prefix: str = FROM_KEY) -> StreamConfig:
    """*config* of a copy that stops, with the sequences *starts* that its sources continue with in its metadata."""
    recorded = {f"{prefix}{name}": str(seq) for name, seq in sorted(starts.items())}
    return config.with_fields(metadata={**config.metadata, **recorded})


def list_unmeasured_dead_sources(config: StreamConfig) -> dict[str, tuple[int, int]]:
    """Dead streams of which *config* says that nobody has measured yet how far it is in them: see `Update.dead_sources`."""
    starts, ends = parse_positions(config.metadata, TAKEN_KEY), parse_positions(config.metadata, AFTER_KEY)
    return {name: (starts[name], ends[name]) for name in starts.keys() & ends.keys()}


def with_noted_move(config: StreamConfig, at: int, held: Mapping[int, str]) -> StreamConfig:
    """*config* of a stream that is told to move at *at*, and holds the messages *held*: times by sequence."""
    noted = {HELD_KEY: " ".join(f"{seq}@{stored_at}" for seq, stored_at in held.items())} if held else {}
    return config.with_fields(metadata={**config.metadata, MOVED_KEY: str(at), **noted})


def without_noted_move(config: StreamConfig) -> StreamConfig:
    """*config*, whose move its servers have recorded. What it held stays noted, for copies that are deleted later."""
    return config.with_fields(metadata={key: value for key, value in config.metadata.items() if key != MOVED_KEY})


def with_noted_scaling(config: StreamConfig, at: str | None) -> StreamConfig:
    """*config* of a stream that is told at *at* to have more replicas; without that note, if None."""
    metadata = {key: value for key, value in config.metadata.items() if key != SCALED_KEY}
    return config.with_fields(metadata=metadata if at is None else {**metadata, SCALED_KEY: at})


def parse_noted_messages(config: StreamConfig) -> dict[int, str]:
    """What `with_noted_move` has noted: times of messages by their sequences."""
    pairs = (entry.partition("@") for entry in (config.metadata_value(HELD_KEY) or "").split())
    return {int(seq): stored_at for seq, _, stored_at in pairs if seq.isdecimal()}


def with_unmeasured_dead_sources(config: StreamConfig, ends: Mapping[str, tuple[int, int]]) -> StreamConfig:
    """*config* that says so of the dead streams *ends*, for `list_unmeasured_dead_sources`."""
    config = with_recorded_positions(config, {name: seq for name, (seq, _) in ends.items()}, TAKEN_KEY)
    return with_recorded_positions(config, {name: last for name, (_, last) in ends.items()}, AFTER_KEY)


def with_start_sequences(config: StreamConfig, starts: Mapping[str, int]) -> StreamConfig:
    """*config* with each source that *starts* names beginning there, unless that is its first message."""
    later = {source: start for source, start in starts.items() if start > 1}
    return config.with_sources(source.with_start_seq(later.get(source.stream)) for source in config.sources)
