"""
What rules look at: everything that was given to one run, as values that know where they were written.

A rule takes the whole `Workspace`. `vstream.lint.parse_files` makes one of files; tests make one of texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from vstream.findings import Span
from vstream.subjects.compile_mapping import MappingError
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.resolve import MappingTable
from vstream.syntax.document import Json
from vstream.syntax.natsconf.nodes import ConfDocument, ConfMap
from vstream.topology.stream_config import StreamConfig
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.syntax.yaml import Path, SourceMap
    from vstream.topology.model import ServerVersion, Topology

_DEFAULT_SERVER_VERSION: ServerVersion = (2, 10)
"""The oldest server that is assumed to read the files, where nothing says otherwise."""


class ConfValue(NamedTuple):
    """A value of a file: plain data, the place of the value, and that of its key if it has one."""

    value: Json
    span: Span
    key_span: Span | None = None

    @property
    def text(self) -> str | None:
        """The value if it is a string, else None."""
        return self.value if isinstance(self.value, str) else None


@value_class
class MappingFault:
    """
    A part of a mapping that the server cannot read.

    *message* and *hint* are ours, *server_message* is the reason that `nats-server -t` prints.
    """

    message: str
    server_message: str
    span: Span
    hint: str | None = None


class MappingForm(Enum):
    """Where a mappings block comes from, which decides what its fields are called."""

    CONF = "conf"
    """A configuration file: `destination`, `weight`, `cluster`."""
    CLAIMS = "claims"
    """The claims of an account: `subject`, `weight`, `cluster`, always in an array."""


@dataclass(slots=True, kw_only=True, eq=False)
class MappingDestination:
    """
    One destination as written; a field that was not written is None.

    In the short form `source: destination`, *subject* is the value and there are no keys. *model* is the
    destination as far as it can be made sense of: without a subject its subject is empty.
    """

    subject: ConfValue | None
    weight: ConfValue | None
    cluster: ConfValue | None
    span: Span
    model: Destination
    faults: tuple[MappingFault, ...] = ()

    def locate(self) -> Span:
        """Where the subject is written, or the whole destination if it has none."""
        return self.subject.span if self.subject else self.span


@dataclass(slots=True, kw_only=True, eq=False)
class MappingEntry:
    """
    One source and its destinations, in the order written.

    *is_list* is False for `source: destination` and `source: {…}`. *faults* are those of the entry as a
    whole; each destination has its own.
    """

    source: str
    key_span: Span
    value_span: Span
    destinations: tuple[MappingDestination, ...]
    is_list: bool
    model: MappingRule
    clusters: frozenset[str]
    """The clusters that its destinations name."""
    faults: tuple[MappingFault, ...] = ()

    @property
    def span(self) -> Span:
        """From the first character of the source to the last one of the value."""
        key, value = self.key_span, self.value_span
        return Span(key.file, key.line, key.column, value.end_line, value.end_column)

    def list_faults(self) -> tuple[MappingFault, ...]:
        """What the server cannot read: of the entry as a whole, then of its destinations, in the order written."""
        faults = self.faults
        for destination in self.destinations:
            if destination.faults:
                faults += destination.faults
        return faults


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MappingsBlock:
    """
    The subject mappings of one account.

    *entries* are all that was written, in order, with sources that occur twice (the last one wins).
    *table* is what the server makes of them. *account* is None for the block at the top of a file, which
    is that of the global account unless the file is included inside of another one. *fault* is set where
    the value is no map at all.
    """

    file: str
    form: MappingForm
    account: str | None
    span: Span
    key_span: Span
    entries: tuple[MappingEntry, ...]
    table: MappingTable
    fault: MappingFault | None = None
    _places: dict[int, MappingEntry] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Remember where each rule was written."""
        # By identity: two rules that say the same are equal, and stand at two places.
        self._places.update((id(entry.model), entry) for entry in self.entries)

    def entry(self, mapping: MappingRule) -> MappingEntry:
        """The entry that *mapping*, one of *table*, was made of."""
        return self._places[id(mapping)]

    def find_destination(self, error: MappingError) -> MappingDestination | None:
        """The destination that *error*, one of *table*, is about, None if it is about a whole rule."""
        return _index_destinations(self).get(id(error.destination))

    def locate_error(self, error: MappingError) -> Span:
        """Where *error*, one of *table*, was written: a destination's subject, else the source."""
        destination = self.find_destination(error)
        return destination.locate() if destination else self.entry(error.mapping).key_span


@lru_cache(maxsize=256)
def _index_destinations(block: MappingsBlock) -> Mapping[int, MappingDestination]:
    """The destinations of *block* by the identity of their models."""
    return {id(destination.model): destination for entry in block.entries for destination in entry.destinations}


@value_class
class ClaimedImport:
    """An import in the claims of an account: what the exporter calls *exported* is called *to* here."""

    kind: str
    exporter_key: str
    exported: str
    to: str | None
    prefix: str | None
    span: Span


@value_class
class ClaimedExport:
    """An export in the claims of an account."""

    kind: str
    subject: str
    span: Span


@value_class
class ClaimsAccount:
    """An account as its claims describe it; *key* is its public key, by which others import from it."""

    key: str
    name: str
    file: str
    span: Span
    block: MappingsBlock | None
    imports: tuple[ClaimedImport, ...]
    exports: tuple[ClaimedExport, ...]


@value_class
class Permission:
    """What one user may publish or subscribe to; *allow* is None where everything is allowed but *deny*."""

    allow: tuple[ConfValue, ...] | None = None
    deny: tuple[ConfValue, ...] = ()


@value_class
class UserConf:
    """A user of an account or of the `authorization` block. *name* is the user name or the public nkey."""

    name: str
    account: str | None
    span: Span
    password: ConfValue | None = None
    publish: Permission | None = None
    subscribe: Permission | None = None


@value_class
class AccountConf:
    """One account of an `accounts` block."""

    name: str
    span: Span
    key_span: Span
    conf: ConfMap
    users: tuple[UserConf, ...]
    mappings: tuple[MappingsBlock, ...]
    """More than one only where the server adds them up: `mappings` beside `maps`."""


@value_class
class GatewayRemote:
    """One entry of the list of gateways."""

    name: ConfValue | None
    urls: tuple[ConfValue, ...]
    span: Span


@value_class
class GatewayConf:
    """The `gateway` block."""

    name: ConfValue | None
    remotes: tuple[GatewayRemote, ...]
    span: Span
    key_span: Span
    conf: ConfMap


@value_class
class JetStreamConf:
    """
    The `jetstream` option in any of its forms: a map, or a word that switches it on or off.

    Sizes are in bytes where they could be read as such, and otherwise as written.
    """

    is_enabled: bool
    store_dir: ConfValue | None
    max_file: ConfValue | None
    max_memory: ConfValue | None
    domain: ConfValue | None
    span: Span
    key_span: Span
    conf: ConfMap | None


@value_class
class Listener:
    """
    A port that is opened, by a block such as `cluster`, `gateway`, `leafnodes`, `websocket`, `mqtt`, `client` or `http`.

    *block* is `leafnodes` and `websocket`, whichever of their names is written.
    An empty *host* or `0.0.0.0` or `::` is every interface.
    """

    block: str
    host: str
    port: int | None
    span: Span

    @property
    def is_everywhere(self) -> bool:
        """Whether it listens on all interfaces."""
        return self.host in {"", "0.0.0.0", "::", "[::]"}  # noqa: S104 - found in files, not bound here


@value_class
class LeafRemote:
    """A server that this one connects to as a leaf node; *account* is the local account that it binds to."""

    urls: tuple[ConfValue, ...]
    account: ConfValue | None
    span: Span
    conf: ConfMap


@value_class
class ServerConf:
    """
    One configuration file that was given, with what it includes.

    *is_fragment* says that it configures nothing but mappings, permissions or accounts, as a file does
    that others include. *root* has everything, for what has no view here; options are found with
    `root.get_folded`. *included* are the files it includes.
    """

    file: str
    document: ConfDocument
    is_fragment: bool
    included: tuple[str, ...]
    server_name: ConfValue | None
    cluster_name: ConfValue | None
    cluster: ConfMap | None
    gateway: GatewayConf | None
    leafnodes: ConfMap | None
    websocket: ConfMap | None
    mqtt: ConfMap | None
    jetstream: JetStreamConf | None
    listeners: tuple[Listener, ...]
    accounts: tuple[AccountConf, ...]
    users: tuple[UserConf, ...]
    """Every user: those of accounts, and those of `authorization`."""
    system_account: ConfValue | None
    authorization: ConfMap | None
    leaf_remotes: tuple[LeafRemote, ...]
    mappings: tuple[MappingsBlock, ...]
    """Every block of the file and of what it includes that counts, in the order written."""

    @property
    def root(self) -> ConfMap:
        """The options as written."""
        return self.document.root

    @property
    def gateway_conf(self) -> ConfMap | None:
        """The options of the gateway."""
        return self.gateway.conf if self.gateway else None

    @property
    def jetstream_conf(self) -> ConfMap | None:
        """The options of JetStream."""
        return self.jetstream.conf if self.jetstream else None

    @property
    def has_callout(self) -> bool:
        """Whether a service says who may log in."""
        written = self.authorization.entries if self.authorization else ()
        return any(entry.key.lower() in {"auth_callout", "auth_hook"} for entry in written)


class StreamRole(Enum):
    """What a stream seems to be for, by its metadata, or else by its sources and subjects."""

    WRITE = "write"
    ORIGIN = "origin"
    ORDER = "order"
    READ = "read"
    CATALOG = "catalog"
    AGGREGATE = "aggregate"
    """It only sources, and nothing says that it is a part of a virtual stream."""
    PLAIN = "plain"

    @property
    def is_of_virtual(self) -> bool:
        """Whether it is a part of a virtual stream."""
        return self is not StreamRole.PLAIN and self is not StreamRole.AGGREGATE

    @property
    def may_source(self) -> bool:
        """Whether it is there to take what other streams hold."""
        return self is StreamRole.READ or self is StreamRole.ORDER or self is StreamRole.AGGREGATE


@value_class
class _JsonConfig:
    """A configuration in a JSON file."""

    file: str
    source: SourceMap
    prefix: Path = ()
    """Where it begins in the file: `("config",)` in what `nats stream info --json` prints."""

    def locate(self, *path: str | int) -> Span:
        """Where the value of a field was written: the nearest one above it, if it was not."""
        return self.source.value_span((*self.prefix, *path))

    def key_at(self, *path: str | int) -> Span:
        """Where the name of a field was written."""
        return self.source.key_span((*self.prefix, *path))


@value_class
class StreamFile(_JsonConfig):
    """
    One stream configuration of a JSON file.

    *virtual* and *region* are from vstream's metadata, or guessed from a name such as `foo-read-west`.
    """

    config: StreamConfig
    role: StreamRole
    virtual: str | None
    region: str | None
    is_named: bool = True
    """Whether the file says the name; else it is that of the file."""


@value_class
class ConsumerFile(_JsonConfig):
    """One consumer configuration of a JSON file; *stream* is the name of its stream, if the file says it."""

    fields: Mapping[str, Json]
    stream: ConfValue | None = None


@value_class
class Workspace:
    """Everything that was given to one run."""

    servers: tuple[ServerConf, ...] = ()
    blocks: tuple[MappingsBlock, ...] = ()
    """Each mappings block once, whatever number of servers includes it; those of account claims too."""
    claims: tuple[ClaimsAccount, ...] = ()
    """The accounts whose claims are among the files."""
    streams: tuple[StreamFile, ...] = ()
    consumers: tuple[ConsumerFile, ...] = ()
    topology: Topology | None = None
    stated_version: ServerVersion | None = None
    """The oldest server that has to understand the files, as somebody or the topology says; None if nobody does."""
    is_rendered: bool = False
    """Whether the files are what the topology renders to: of many servers, those of some."""
    running: tuple[ServerConf, ...] = ()
    """What the servers run with now, if that was given to compare with."""

    @property
    def server_version(self) -> ServerVersion:
        """The oldest server that has to understand the files: the oldest that is assumed, if nobody says."""
        return self.stated_version or _DEFAULT_SERVER_VERSION

    @property
    def cluster_names(self) -> tuple[str, ...]:
        """The clusters that are known to exist: those of the topology, else of the servers. Empty if none are known."""
        if self.topology is not None:
            return self.topology.clusters
        names: dict[str, None] = {}
        for server in self.servers:
            gateway = server.gateway
            named = (gateway.name, *(remote.name for remote in gateway.remotes)) if gateway else ()
            for name in (server.cluster_name, *named):
                if name is not None and name.text:
                    names[name.text] = None
        return tuple(names)
