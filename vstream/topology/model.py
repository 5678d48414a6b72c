"""A topology, decoded: every default filled in, every preset resolved, every value in JetStream's own units."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlsplit

from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.syntax.document import Json


ServerVersion = tuple[int, int]
"""Major and minor, such as (2, 12): features arrive with minor versions."""
COUNTERS_SINCE: ServerVersion = (2, 12)
"""The first nats-server whose streams can count."""
DEDUPE_OFF_SINCE: ServerVersion = (2, 14)
"""Since this version, a `duplicate_window` of 0 turns deduplication of sourced messages off. It meant 2 minutes."""
POSITIONS_STORED_SINCE: ServerVersion = (2, 15)
"""Since this version, servers store how far a stream is in each source. Before, they look for it in its messages."""
CLIENT_INBOX = "_INBOX"
"""Where applications receive answers: the default of client libraries."""
VSTREAM_INBOX = f"{CLIENT_INBOX}.vstream"
"""Where vstream does. Applications may not listen there; users of earlier versions may."""


class _QuickEnum(Enum):
    # That of others is a function in Python, and a plan of a thousand streams asks for 200,000.
    __hash__ = object.__hash__


class Role(_QuickEnum):
    """What a physical stream does for its virtual stream."""

    WRITE = "write"
    """Takes what is published in one region."""
    ORIGIN = "origin"
    """Takes what is published everywhere, and carries the virtual name."""
    ORDER = "order"
    """Sources all write streams, and so decides on one order."""
    READ = "read"
    """Answers reads in one region: it sources all write streams, or mirrors the one stream that decides."""
    CATALOG = "catalog"
    """With `routing: accounts`, stands beside write streams for a stream with an origin, so that it is found by subject."""


class Consistency(_QuickEnum):
    """What a virtual stream promises, and with it, which physical streams it has."""

    VIRTUAL = "virtual"
    """Local writes and reads; regions agree eventually, each in an order of its own."""
    ORDERED = "ordered"
    """Local writes and reads; one order everywhere, decided in the stretch cluster."""
    STRETCH = "stretch"
    """One stream across regions in the stretch cluster; local, possibly stale, reads from mirrors."""
    HOMED = "homed"
    """One stream in one region; local, possibly stale, reads from mirrors."""

    @property
    def has_origin(self) -> bool:
        """Whether one physical stream takes all publishes under the virtual name, so that nothing is mapped."""
        return self in {Consistency.STRETCH, Consistency.HOMED}

    @property
    def needs_stretch(self) -> bool:
        """Whether a physical stream lives in the stretch cluster."""
        return self in {Consistency.STRETCH, Consistency.ORDERED}

    @property
    def has_mirrors(self) -> bool:
        """Whether the read streams are mirrors."""
        return self is not Consistency.VIRTUAL

    @property
    def has_one_order(self) -> bool:
        """Whether all regions read the same messages in the same order."""
        return self is not Consistency.VIRTUAL


class Routing(_QuickEnum):
    """How clients reach the physical streams, and with it, which accounts there are."""

    MAPPED = "mapped"
    """One account; mapping rules for each stream send requests to streams with names of their own."""
    ACCOUNTS = "accounts"
    """One account for clients, and hidden ones for each region, in which streams carry the virtual name."""
    DOMAINS = "domains"
    """A JetStream domain for each region, in which read streams carry the virtual name; hubs join the regions."""
    REGIONAL = "regional"
    """An account for each region, with users of its own, in which read streams carry the virtual name."""


class Security(Enum):
    """Where accounts and users are written down."""

    PASSWORDS = "passwords"
    """In configuration files, which every server includes; users log in with a password."""
    NKEYS = "nkeys"
    """In the same files; users log in with a key, of which servers know the public half."""
    CERTIFICATES = "certificates"
    """In the same files; users are who their TLS certificate says."""
    OPERATOR = "operator"
    """In tokens that an operator signs (JWTs), which are pushed to servers while they run."""

    @property
    def has_keys(self) -> bool:
        """Whether vstream keeps keys for it, in a directory that nobody else can read."""
        return self in {Security.NKEYS, Security.OPERATOR}


@value_class
class Transport:
    """TLS on every port of rendered servers: paths on the servers, in PEM."""

    cert_file: str
    key_file: str
    ca_file: str
    """The authority that servers trust each other by."""
    peer_name: str | None = None
    """A name that certificates of routes and gateways must have."""
    client_ca_file: str | None = None
    """The authority of users' certificates, where users log in with them."""
    rejects_unknown_clusters: bool = False
    """Whether gateways refuse clusters that are not in their configuration."""


@value_class
class AccountLimits:
    """What servers refuse clients to have more of; None for no limit."""

    consumers: int | None = None
    """Of each stream."""
    connections: int | None = None
    """Of each account that clients are in."""
    subscriptions: int | None = None
    """Of each connection."""


class Naming(Enum):
    """Where physical subjects live."""

    ISOLATED = "isolated"
    """`_vs.<stream>.<region>.<subject>`: outside the virtual space, so that nothing is mapped twice."""
    BLOG = "blog"
    """`<first token>.<region>.<rest>`: for those who already run the published recipe."""

    @property
    def is_isolated(self) -> bool:
        """Whether nothing that a client publishes is a physical subject."""
        return self is Naming.ISOLATED


@value_class
class Endpoint:
    """How a client reaches a region: a nats CLI context, or addresses with credentials. Holds no secret itself."""

    context: str | None = None
    urls: tuple[str, ...] = ()
    creds: str | None = None
    nkey: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_env: str | None = None
    token: str | None = field(default=None, repr=False)
    token_env: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    monitor: tuple[str, ...] = ()
    """HTTP monitoring addresses of every server of the region: where loaded mappings are read back."""
    system: Endpoint | None = None
    """The same addresses as a user of the system account, if there is one for vstream."""
    inbox: str = VSTREAM_INBOX
    """The prefix of subjects for answers."""

    @property
    def has_login(self) -> bool:
        """Whether clients log in."""
        logins = (self.creds, self.nkey, self.user, self.token, self.token_env)
        return any(logins) or any("@" in url for url in self.urls)

    @property
    def requires_tls(self) -> bool:
        """Whether nothing may be sent in clear: one of the addresses asks for TLS, or a file for it is given."""
        is_secure = any(url.lower().startswith(("tls://", "wss://")) for url in self.urls)
        return is_secure or bool(self.tls_ca or self.tls_cert)

    @property
    def plaintext_hosts(self) -> tuple[str, ...]:
        """The hosts that a login would be sent to in clear, other than this machine."""
        if self.requires_tls or not self.has_login:
            return ()
        return tuple(host for url in self.urls if not is_loopback(host := find_host(url)))


def find_host(url: str) -> str:
    """The host in *url*, which may lack a scheme; the whole of it if it has none."""
    try:
        return urlsplit(url if "://" in url else f"nats://{url}").hostname or url
    except ValueError:
        return url


def is_context_name(name: str) -> bool:
    """Whether *name* can be that of a nats CLI context: anything else would leave the directory of contexts."""
    return not ("/" in name or "\\" in name or name.startswith("."))


def is_loopback(host: str) -> bool:
    """Whether *host*, a name or an address, is this machine itself."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@value_class
class Ports:
    """TCP ports of one server."""

    client: int
    monitor: int
    cluster: int
    gateway: int


@value_class
class JetStreamLimits:
    """What one server may store, in bytes, and where."""

    max_file: int
    max_memory: int
    store_dir: str | None
    sync_interval: str | None


@value_class
class Server:
    """One nats-server. *host* is None where the topology gives only a number of servers."""

    name: str
    host: str | None
    tags: tuple[str, ...] = ()


@value_class
class ServerOptions:
    """Options of every server that vstream renders, as far as its version has them."""

    unique_tag: str | None = None
    """Prefix of a tag in which the servers of a stream's replicas differ."""
    connect_backoff: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)


@value_class
class NatsChecks:
    """The limits by which `nats server check stream` judges a stream with sources."""

    lag: int
    """Messages."""
    silence: int
    """Nanoseconds."""


@value_class
class Region:
    """One cluster of the super-cluster."""

    name: str
    cluster: str
    servers: tuple[Server, ...]
    ports: Ports
    jetstream: JetStreamLimits
    endpoint: Endpoint | None = None
    gateway: str | None = None
    """`HOST:PORT` at which other regions reach the gateways of all its servers, if not at each server's own. Not in labs."""


@value_class
class LostRegion:
    """A region that was given up, as it was."""

    region: Region
    homes: Mapping[str, str]
    """By homed stream whose home it was: the new home."""
    servers: tuple[str, ...]
    """The names of all its servers, that of the stretch cluster's member there among them."""

    @property
    def name(self) -> str:
        """The region's name."""
        return self.region.name


@value_class
class Link:
    """The network between two regions of a lab. None: ideal."""

    between: tuple[str, str]
    """Two regions, in the order of the topology."""
    rtt: int | None = None
    """Round-trip time in nanoseconds."""
    jitter: int | None = None
    """Maximum jitter in nanoseconds, there and back."""
    rate: int | None = None
    """Bits per second in each direction; 0 for no limit."""
    loss: float | None = None
    """The share of packets that is lost in each direction."""


@value_class
class Stretch:
    """The cluster that has one server in each of several regions."""

    cluster: str
    members: Mapping[str, Server]
    """By region, in the order of the topology's regions."""
    ports: Ports
    jetstream: JetStreamLimits
    leader: str | None = None
    """The region whose member is to lead, None if any may."""

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Its servers."""
        seats = []
        for region, server in self.members.items():
            seat = Seat(
                server=server,
                region=region,
                cluster=self.cluster,
                ports=self.ports,
                jetstream=self.jetstream,
                is_stretch=True,
            )
            seats.append(seat)
        return tuple(seats)


@value_class
class Seat:
    """A server, its region, and its cluster."""

    server: Server
    region: str
    cluster: str
    ports: Ports
    jetstream: JetStreamLimits
    is_stretch: bool = False
    """Whether the cluster is the stretch cluster: such a server shares its region's fate, but is not in the region's cluster."""
    is_hub: bool = False
    """Whether it stores nothing, and joins its region to the others: it is not in its region's cluster either."""


StreamSettings: TypeAlias = "Mapping[str, Json]"
"""The topology's settings for one physical stream: fields of the JetStream API, in its spelling and units."""


@value_class
class Consumer:
    """A durable that a virtual stream has in each of *regions*, on the stream that is read there."""

    name: str
    regions: tuple[str, ...]
    fields: Mapping[str, Json]
    """Fields of the JetStream API, in its spelling and units, without its names."""


@dataclass(frozen=True, kw_only=True)
class VirtualStream:
    """A stream that clients know by *name* in every region of *regions*."""

    name: str
    subjects: tuple[str, ...]
    regions: tuple[str, ...]
    write_settings: Mapping[str, StreamSettings]
    """By region; empty where there is an origin."""
    read_settings: Mapping[str, StreamSettings]
    """By region; the home of a homed stream has none."""
    origin_settings: Mapping[str, StreamSettings] = field(default_factory=dict)
    """By place, one at most: its home region, or the stretch cluster."""
    order_settings: Mapping[str, StreamSettings] = field(default_factory=dict)
    """By place, one at most: the stretch cluster."""
    consistency: Consistency = Consistency.VIRTUAL
    is_virtual_name_of_order: bool = False
    """Whether the ordering stream carries the virtual name, instead of nobody: with `routing: mapped` alone."""
    routing: Routing = Routing.MAPPED
    """That of the whole topology: names of physical streams depend on it."""
    is_former: bool = False
    """Whether it is in the layout that the topology moves away from, which clients no longer reach."""
    follows_former: bool = False
    """Whether its read streams also source those of the layout that the topology moves away from."""
    canary: str | None = None
    """The subject that probes may publish on; a `*` in it stands for the region of origin."""
    consumers: tuple[Consumer, ...] = ()
    takeover_regions: Mapping[str, str] = field(default_factory=dict)
    """By region that is drained: the region whose write stream takes its publishes."""
    takes_over: str | None = None
    """A plain stream that the read streams also source."""
    core_subscribers: bool = False
    """Whether core subscribers receive publishes, too."""
    is_bucket: bool = False
    """Whether it is a key-value bucket or an object store, from which clients purge what was deleted."""

    @property
    def has_namesake(self) -> bool:
        """Whether one physical stream is what all regions mean by the virtual name, and mirrors answer Direct Get for it."""
        return self.consistency.has_origin or self.is_virtual_name_of_order

    @property
    def settings_by_role(self) -> Mapping[Role, Mapping[str, StreamSettings]]:
        """The settings of its physical streams, by role and place (`vstream.topology.replication.physical_streams`)."""
        return {
            Role.WRITE: self.write_settings,
            Role.ORIGIN: self.origin_settings,
            Role.ORDER: self.order_settings,
            Role.READ: self.read_settings,
        }


@value_class
class Hubs:
    """With `routing: domains`, one server without JetStream in each region, which the region's servers join as leafs."""

    members: Mapping[str, Server]
    """By region, in the order of the topology's regions."""
    ports: Ports
    """At `cluster` it listens for the servers of its region."""


@value_class
class Topology:
    """A whole topology."""

    name: str
    server_version: ServerVersion
    naming: Naming
    regions: tuple[Region, ...]
    streams: tuple[VirtualStream, ...]
    stretch: Stretch | None = None
    hubs: Hubs | None = None
    routing: Routing = Routing.MAPPED
    account: str | None = None
    """The account of clients if vstream writes it: with `mapped` only where it was named."""
    moves_to: Routing | None = None
    """A new layout beside this one, which clients still use."""
    moves_from: Routing | None = None
    """A layout that clients have left, and that still passes on its messages."""
    security: Security = Security.PASSWORDS
    certificates: Mapping[str, str] = field(default_factory=dict)
    """By user, the name in its certificate, where that is not the user's name."""
    transport: Transport | None = None
    """TLS between servers and to clients, in what is rendered for real hosts; None where the ports are in clear."""
    limits: AccountLimits = AccountLimits()
    """What applications may create, where vstream writes accounts."""
    is_plaintext_meant: bool = False
    """Whether the topology says why its servers need no TLS."""
    roots: tuple[str, ...] = ()
    """Subjects below which everything belongs to streams that take publishes in each region: one rule for each."""
    links: tuple[Link, ...] = ()
    """The links that are not ideal."""
    server_options: ServerOptions = field(default_factory=ServerOptions)
    nats_checks: NatsChecks | None = None
    lost: tuple[LostRegion, ...] = ()
    """Regions that were given up: neither *regions* nor streams have them any more."""

    @property
    def has_accounts(self) -> bool:
        """Whether vstream writes accounts as a whole, and not only mappings for somebody else's."""
        is_named = self.account is not None or self.security is Security.OPERATOR
        return self.routing is not Routing.MAPPED or is_named

    @property
    def clusters(self) -> tuple[str, ...]:
        """The names of all clusters: those of the regions, then the stretch cluster."""
        return (*(region.cluster for region in self.regions), *((self.stretch.cluster,) if self.stretch else ()))

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Every server that stores: those of the regions' own clusters, then the members of the stretch cluster."""
        regional = []
        for region in self.regions:
            for server in region.servers:
                regional.append(
                    Seat(
                        server=server,
                        region=region.name,
                        cluster=region.cluster,
                        ports=region.ports,
                        jetstream=region.jetstream,
                    )
                )
        return (*regional, *(self.stretch.seats if self.stretch else ()))

    @property
    def all_seats(self) -> tuple[Seat, ...]:
        """Every server that has to run: those that store, then the hubs between regions."""
        hubs = self.hubs
        if hubs is None:
            return self.seats
        nothing = JetStreamLimits(max_file=0, max_memory=0, store_dir=None, sync_interval=None)
        hub_seats = []
        for region, server in hubs.members.items():
            hub_seats.append(
                Seat(
                    server=server, region=region, cluster=server.name, ports=hubs.ports, jetstream=nothing, is_hub=True
                )
            )
        return (*self.seats, *hub_seats)

    def server_names_in(self, region: str) -> tuple[str, ...]:
        """The names of all servers that store in *region*, which may be lost."""
        lost_servers = [name for lost in self.lost if lost.name == region for name in lost.servers]
        return (*lost_servers, *(seat.server.name for seat in self.seats if seat.region == region))

    def servers_at(self, place: str) -> tuple[Server, ...]:
        """The servers that a stream at *place*, a region or the stretch cluster, can live on. Raises KeyError."""
        if self.stretch is not None and place == self.stretch.cluster:
            return tuple(self.stretch.members.values())
        return self.region(place).servers

    def cluster_at(self, place: str) -> str:
        """The cluster of *place*, a region or the stretch cluster. Raises KeyError."""
        if self.stretch is not None and place == self.stretch.cluster:
            return place
        return self.region(place).cluster

    def clusters_in(self, region: str) -> frozenset[str]:
        """The cluster of *region*, and that of the stretch cluster if a member of it stands there. Raises KeyError."""
        stretch = {self.stretch.cluster} if self.stretch is not None and region in self.stretch.members else ()
        return frozenset({self.region(region).cluster, *stretch})

    def stream(self, name: str) -> VirtualStream:
        """The virtual stream called *name*, which must be one of these."""
        return next(stream for stream in self.streams if stream.name == name)

    def region(self, name: str) -> Region:
        """The region called *name*. Raises KeyError if there is none."""
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)
