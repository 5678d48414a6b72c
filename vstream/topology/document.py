"""
The topology language as it is written: pydantic models, and from them the JSON Schema.

Shape only. What spans several places of a document (unknown regions, names that
collide, features that the stated server version lacks) is checked by the rules in
`vstream.lint.rules.topology`.
"""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from vstream.topology import fields
from vstream.topology.model import Routing
from vstream.topology.profiles import PROFILES

if TYPE_CHECKING:
    _RoutingWord = str
else:
    _RoutingWord = Literal[tuple(routing.value for routing in Routing)]

_Abilities = list[Literal["writes", "reads", "own_reads", "consumers", "order"]]


class _Closed(BaseModel):
    # Each model is built when it is first used: most commands need one of them.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, defer_build=True)


class TlsDocument(_Closed):
    """Files for TLS, as paths."""

    ca: fields.Text | None = None
    """The authority that signed the servers' certificates."""
    cert: fields.Text | None = None
    """The client certificate."""
    key: fields.Text | None = None
    """The client certificate's key."""


class SystemLoginDocument(_Closed):
    """A user of the system account at the same addresses, with which `apply` tells servers to reload."""

    context: fields.Text | None = None
    """A nats CLI context, where the region has one too."""
    creds: fields.Text | None = None
    """A credentials file."""
    nkey: fields.Text | None = None
    """A file with an nkey seed."""
    user: fields.Text | None = None
    """A user name; its password is read from `password_env`."""
    password_env: fields.Variable | None = None
    """The environment variable that holds the password."""


class ConnectDocument(_Closed):
    """How vstream reaches a region. Secrets stay in files and environment variables, never in the topology."""

    context: fields.Text | None = None
    """A nats CLI context (`nats context ls`)."""
    urls: fields.Names = ()
    """Server addresses: `nats://host:4222`, `tls://…`."""
    creds: fields.Text | None = None
    """A credentials file (operator mode)."""
    nkey: fields.Text | None = None
    """A file with an nkey seed."""
    user: fields.Text | None = None
    """A user name; its password is read from `password_env`."""
    password_env: fields.Variable | None = None
    """The environment variable that holds the password."""
    token_env: fields.Variable | None = None
    """The environment variable that holds a token."""
    tls: TlsDocument | None = None
    inbox: fields.Inbox | None = None
    """The prefix of subjects for answers, where the user may not subscribe to the default: `_INBOX.vstream`."""
    monitor: fields.Names = ()
    """
    HTTP monitoring addresses (`http://host:8222`) of every server, where loaded mappings are read back. With `https://`,
    `tls.ca` says whose certificates count.
    """
    system: SystemLoginDocument | None = None
    """A user of the system account: with it, `apply` has servers reload the mapping rules that were shipped to them."""


class PortsDocument(_Closed):
    """TCP ports, the same on every server of a region that has host names."""

    client: fields.Port = 4222
    monitor: fields.Port = 8222
    cluster: fields.Port = 6222
    gateway: fields.Port = fields.DEFAULT_GATEWAY_PORT


class HubPortsDocument(_Closed):
    """TCP ports of the hubs that have host names, which may be those of a region's servers."""

    client: fields.Port = 4223
    monitor: fields.Port = 8223
    cluster: fields.Port = 7422
    """Where the servers of its region join."""
    gateway: fields.Port = 7222


class JetStreamDocument(_Closed):
    """What each server may store."""

    max_file: fields.Size = 10 * 2**30
    """Bytes on disk, per server."""
    max_memory: fields.Size = 2**30
    """Bytes in memory, per server."""
    store_dir: fields.Text | None = None
    """The directory that streams are stored in; each server uses a folder of its own in it."""
    sync_interval: fields.SyncInterval | None = None
    """How often a server flushes to disk: `always` survives power loss of a region, the server's default is 2 minutes."""


class ServerOptionsDocument(_Closed):
    """Options of every server that vstream renders."""

    unique_tag: fields.Text | None = None
    """Such as `az:`: replicas of a stream are on servers whose tags that begin so differ. Every server needs one."""
    connect_backoff: bool = False
    """Servers wait longer and longer, up to 30 s, before they dial an unreachable server or region again (2.12)."""
    metadata: dict[fields.Label, str] = {}
    """Metadata that every server adds to its monitoring answers (2.12)."""


class ChecksDocument(_Closed):
    """Metadata of streams by which `nats server check stream` judges them (`io.nats.monitor.*`)."""

    lag: fields.Count = 10_000
    """How many messages a stream may lag behind a source."""
    silence: fields.Age = 60 * 10**9
    """How long it may hear nothing from a source."""


class RegionDocument(_Closed):
    """One cluster of the super-cluster."""

    servers: fields.Servers
    """Host names, or how many servers there are (the lab gives them addresses)."""
    cluster: fields.Name | None = None
    """The NATS cluster name, if it is not the region's."""
    tags: fields.Tags = ()
    """Server tags, one entry per server in order."""
    names: fields.ServerNames = ()
    """The names of the servers, in order, if not `west-1`, `west-2` and so on: Kubernetes names its pods itself."""
    gateway: fields.GatewayAddress | None = None
    """Where other regions reach the gateways of all its servers: `HOST` or `HOST:PORT` of a load balancer. Not used in labs."""
    ports: PortsDocument = PortsDocument()
    jetstream: JetStreamDocument | None = None
    """Overrides the topology's `jetstream` for this region, as a whole."""
    lost: dict[fields.StreamName, fields.Name] | None = None
    """
    The region is dead for good, and has no streams: `{}`, or the new home of each `homed` stream whose home it was.
    `vstream region failover` writes it, and `vstream region failback` takes it out.
    """
    drained: fields.Name | None = None
    """
    The region that takes what clients publish in this one, and is the home of its `homed` streams meanwhile: its
    servers can be stopped. `vstream region drain` writes it, and takes it out with `--undo`.
    """


class StretchDocument(_Closed):
    """A cluster with one server in each of several regions: streams in it survive the loss of a region."""

    members: fields.Members = "all"
    """The regions that have a server in it: `all`, a list, or a map of regions to host names."""
    cluster: fields.Name = "stretch"
    """The NATS cluster name."""
    leader: fields.Name | None = None
    """The region whose member leads the streams in it, and the meta group, while `repair sources --watch` runs."""
    ports: PortsDocument = PortsDocument()
    """Ports of members that have host names."""
    jetstream: JetStreamDocument | None = None
    """Overrides the topology's `jetstream` for this cluster, as a whole."""


class HubsDocument(_Closed):
    """With `routing: domains`, a server without JetStream in each region, which joins it to the others."""

    hosts: dict[fields.Name, fields.Text] = {}
    """Host names, by region. Default: that of the region's first server."""
    ports: HubPortsDocument = HubPortsDocument()


class LinkDocument(_Closed):
    """The network between two regions of a lab. Missing values come from `default`; without any, the link is ideal."""

    rtt: fields.LinkTime | None = None
    """Round-trip time."""
    jitter: fields.LinkTime | None = None
    """Maximum jitter, added to the round trip."""
    rate: fields.Rate | None = None
    """What one direction carries per second: `200mbit`."""
    loss: fields.Share | None = None
    """Packet loss in each direction: `1%`."""


class TransportDocument(_Closed):
    """
    TLS on every port of the servers that vstream renders: clients, routes, gateways, leaf nodes and monitoring.

    The three files are on each server, in PEM. Servers show their certificates to each other and check them against
    `ca_file`, so nothing joins without a certificate of that authority.
    """

    cert_file: Annotated[str, Field(min_length=1)] | None = None
    """The server's certificate, with its host name; for servers and clients (`serverAuth` and `clientAuth`)."""
    key_file: Annotated[str, Field(min_length=1)] | None = None
    """Its private key."""
    ca_file: Annotated[str, Field(min_length=1)] | None = None
    """
    The authority that signed the certificates of all servers. Without `peer_name`, whoever has a certificate of it can join
    as a server.
    """
    peer_name: Annotated[str, Field(min_length=1)] | None = None
    """
    A name that every server's certificate has beside its host name, and no other certificate: an email address, DNS name or
    URI. Routes and gateways refuse certificates without it.
    """
    client_ca_file: Annotated[str, Field(min_length=1)] | None = None
    """With `mode: certificates`: the authority that signed the certificates of users, not that of `ca_file`."""
    reject_unknown_cluster: bool = False
    """
    Whether gateways refuse clusters that are not in their configuration, even with a certificate of `ca_file`. Only a
    restart changes the list of gateways, so with this option a new region means a restart of all others.
    """
    none: Annotated[str, Field(min_length=1)] | None = None
    """Instead of files: why these servers need no TLS, for example `"the hosts are joined by WireGuard"`."""


class LimitsDocument(_Closed):
    """How much applications may create, where vstream renders accounts: servers refuse more. Default: no limits."""

    consumers: Annotated[int, Field(ge=1)] | None = None
    """Consumers of each stream, in each region. Those by which streams source each other do not count."""
    connections: Annotated[int, Field(ge=1)] | None = None
    """Connections of each account with clients, in all regions together; vstream's own count too."""
    subscriptions: Annotated[int, Field(ge=1)] | None = None
    """Subscriptions of each connection."""


class SecurityDocument(_Closed):
    """Where accounts and users are written down."""

    mode: Literal["passwords", "nkeys", "certificates", "operator"] = "passwords"
    """
    passwords: in a file that every server includes. nkeys: there too, but servers know public keys alone, and
    `vstream keys` keeps the seeds. certificates: users are who their TLS certificate says. operator: in tokens that an
    operator signs (JWTs), pushed to servers while they run; for `routing: accounts`.
    """
    certificates: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    """
    By user, a name in its certificate: an email address, DNS name or URI, or the whole subject, `CN=app,O=Acme`. Default: the
    user's own name.
    """
    transport: TransportDocument | None = None
    """TLS between servers and to clients. Labs make certificates of their own: `vstream lab up --tls`."""
    limits: LimitsDocument | None = None
    """How much applications may create."""
    users: Annotated[str, Field(min_length=1)] | None = None
    """
    With `routing: mapped` and no `account`, where vstream renders no users: where yours are, for example
    `"accounts.conf, kept by operations"`.
    """


class SurviveDocument(_Closed):
    """What clients must still be able to do, by what fails. `vstream survive` shows what a topology has."""

    server: _Abilities = []
    """Any one server."""
    zone: _Abilities = []
    """All servers of a region with the same `unique_tag`."""
    region: _Abilities = []
    """Any region: what clients of the others can do."""
    two_regions: _Abilities = []
    """Any two regions at once."""
    partition: _Abilities = []
    """A region is cut off from all others: what clients of the others can do."""
    cut_off: _Abilities = []
    """The same for the clients in that region."""
    power: _Abilities = []
    """All servers of a region lose power and come back: nothing that was acknowledged is lost."""
    __hash__ = object.__hash__  # what has none, pydantic copies for each stream


class SettingsDocument(_Closed):
    """Settings of physical streams. What is not set here has vstream's default."""

    replicas: Annotated[int, Field(ge=1, le=5)] | None = None
    """Copies in the region, 1 to 5. Default: 3 where every region has three servers, else 1; in the stretch cluster 3 or 5."""
    storage: Literal["file", "memory"] | None = None
    max_age: fields.Age | None = None
    """How long messages are kept. On the write stream: the longest outage that loses nothing."""
    max_bytes: fields.Limit | None = None
    max_msgs: fields.Count | None = None
    max_msgs_per_subject: fields.Count | None = None
    max_msg_size: fields.MessageSize | None = None
    max_consumers: fields.Count | None = None
    discard: Literal["old", "new"] | None = None
    compression: Literal["none", "s2"] | None = None
    duplicate_window: fields.Window | None = None
    """How long a `Nats-Msg-Id` must be unique. Default: 2m on the write stream, practically off on the read stream."""
    allow_rollup: bool | None = None
    allow_msg_ttl: bool | None = None
    """Per-message TTL (2.11)."""
    deny_delete: bool | None = None
    deny_purge: bool | None = None
    placement_tags: fields.Names | None = None
    """Servers must have all these tags to hold a replica."""
    description: str | None = None
    metadata: dict[fields.Label, str] | None = None
    config: dict[str, Any] | None = None
    """Any other field of the JetStream stream configuration, in the server's spelling and units (nanoseconds, bytes)."""


class LevelDocument(SettingsDocument):
    """Settings for all physical streams, and for each kind."""

    write: SettingsDocument = SettingsDocument()
    """Settings of the streams that take publishes only: the write streams, or the origin (`stretch`, `homed`)."""
    read: SettingsDocument = SettingsDocument()
    """Settings of the read streams only."""
    order: SettingsDocument = SettingsDocument()
    """Settings of the ordering stream only (`ordered`)."""


class ConsumerDocument(_Closed):
    """A durable pull consumer, in every region on the stream that is read there."""

    regions: fields.RegionNames = "all"
    """The regions in which it exists. Default: all of its stream."""
    filter_subjects: fields.Names = ()
    """The stream's subjects that it delivers. Default: everything."""
    deliver_policy: Literal["all", "new", "last", "last_per_subject"] = "all"
    """The message with which a new consumer begins."""
    ack_policy: Literal["explicit", "all", "none"] = "explicit"
    ack_wait: fields.Wait | None = None
    """The time after which an unacknowledged message is delivered again. Default: 30s."""
    max_deliver: fields.Count = -1
    """How often a message is delivered at most."""
    backoff: fields.Waits = ()
    """The wait of each delivery for its acknowledgement, instead of `ack_wait`."""
    max_ack_pending: fields.Count | None = None
    """How many messages may be unacknowledged. Default: 1000."""
    max_waiting: Annotated[int, Field(ge=1, le=65535)] = 512
    """How many pull requests may wait."""
    replicas: Annotated[int, Field(ge=1, le=5)] | None = None
    """Copies of its state, 1 to 5. Default: as many as its stream has."""
    memory: bool = False
    """Whether its state is kept in memory, and lost when its servers stop."""
    headers_only: bool = False
    description: str | None = None
    metadata: dict[fields.Label, str] = {}
    config: dict[str, Any] = {}
    """Any other field of the JetStream consumer configuration, in the server's spelling and units."""


class StreamDocument(LevelDocument):
    """One virtual stream."""

    subjects: fields.Names
    """What clients publish on: literals and wildcards."""
    consistency: Literal["virtual", "ordered", "stretch", "homed"] = "virtual"
    """
    virtual: local writes and reads, eventual consistency between regions. ordered: the same with one order everywhere.
    stretch: one stream across regions. homed: one stream in one region. The last two have mirrors for local reads.
    """
    home: fields.Name | None = None
    """The region of a `homed` stream."""
    virtual_name: Literal["read", "order"] = "read"
    """
    The stream that clients of an `ordered` stream get by its name, with `routing: mapped`. read: their region's copy,
    by mapping rules. order: the ordering stream, which has that name; clients can create consumers, which live in the
    stretch cluster.
    """
    regions: fields.RegionNames = "all"
    """Where the stream exists."""
    canary: fields.Text | None = None
    """The subject that `vstream probe` may publish on; `*` stands for the region of origin."""
    extends: fields.Names = ()
    """Presets to start from; later ones win."""
    overrides: dict[fields.Name, LevelDocument] = {}
    """Settings that differ in one region."""
    takes_over: fields.StreamName | None = None
    """A plain stream that clients use until now: its messages are taken over while they publish."""
    counters: bool = False
    """Whether messages are increments. Streams store sums, which become the same in every region (2.12)."""
    core_subscribers: bool = False
    """With `routing: accounts`, whether clients may subscribe to the subjects without JetStream, in every region."""
    consumers: dict[fields.Name, ConsumerDocument] = {}
    """Durables that exist in every region, so that nobody has to create one while a region is cut off."""
    survive: SurviveDocument = SurviveDocument()
    """What it must survive. A failure named here replaces the topology's demand for that failure."""


class BucketDocument(_Closed):
    """What key-value buckets and object stores have in common."""

    consistency: Literal["virtual", "ordered", "stretch", "homed"] = "virtual"
    """As for streams. With `stretch` and `homed`, `create` and `update` are exact."""
    home: fields.Name | None = None
    """The region of a `homed` bucket."""
    virtual_name: Literal["read", "order"] = "read"
    """As for streams: with `order`, every client operation can read an `ordered` bucket with `routing: mapped`, too."""
    regions: fields.RegionNames = "all"
    """Where it exists."""
    writers: Literal["one-per-key"] | None = None
    """For a `virtual` or `ordered` bucket: each key, or object, is written in one region only."""
    ttl: fields.Age = 0
    """How long values are kept. Default: for ever."""
    max_bytes: fields.Limit = -1
    """Maximum size; further writes are refused."""
    storage: Literal["file", "memory"] | None = None
    replicas: Annotated[int, Field(ge=1, le=5)] | None = None
    compression: Literal["none", "s2"] | None = None
    placement_tags: fields.Names | None = None
    description: str | None = None
    metadata: dict[fields.Label, str] | None = None


class KeyValueDocument(BucketDocument):
    """A key-value bucket: what clients call `users` is the stream `KV_users`."""

    history: Annotated[int, Field(ge=1, le=64)] = 1
    """How many values of each key are kept."""
    max_value_size: fields.MessageSize = -1
    allow_msg_ttl: bool | None = None
    """Whether a value may have a time to live of its own (2.11)."""
    marker_ttl: fields.MarkerTime | None = None
    """How long a marker replaces an expired value, so that watchers notice (2.11)."""


class ObjectStoreDocument(BucketDocument):
    """An object store: what clients call `files` is the stream `OBJ_files`."""


class TopologyDocument(_Closed):
    """Regions, and the virtual streams that span them."""

    version: Literal[1]
    """The version of this language."""
    name: fields.Name
    """The owner of the streams, written into their metadata."""
    server_version: fields.Version
    """The oldest nats-server that must be able to run this, such as `"2.12"`."""
    naming: Literal["isolated", "blog"] = "isolated"
    """isolated: physical subjects `_vs.<stream>.<region>.…`; blog: `foo.<region>.…`, for those who already run it."""
    routing: _RoutingWord | None = None
    """
    How clients reach streams. Default: mapped, or accounts if the topology uses what only accounts can do: roots,
    object stores, core subscribers, users with more than passwords.
    """
    account: fields.Name | None = None
    """
    The name of the account of clients. accounts: by default `APP`. mapped: with a name, vstream writes the whole
    account, instead of mappings for an account that you write. Other routings do not have it.
    """
    moves_to: Literal["accounts"] | None = None
    """With `routing: mapped`: this layout is created beside the current one, and fed, before clients move there."""
    moves_from: Literal["mapped"] | None = None
    """With `routing: accounts`: clients have moved, and the layout that they left still passes on its messages."""
    security: SecurityDocument = SecurityDocument()
    roots: fields.Names = ()
    """Subjects such as `v.>`, for virtual streams alone: one mapping rule for each. Not with `routing: mapped`."""
    hubs: HubsDocument = HubsDocument()
    """With `routing: domains`, the servers without JetStream that join the regions."""
    regions: Annotated[dict[fields.Name, RegionDocument], Field(min_length=1)]
    stretch: StretchDocument | None = None
    """A cluster with a server in each of several regions, for streams that outlive the loss of one."""
    links: dict[fields.Text, LinkDocument] = {}
    """The network between regions, for labs: `west-east: {rtt: 140ms}`, or `default` for all others."""
    jetstream: JetStreamDocument = JetStreamDocument()
    server_options: ServerOptionsDocument = ServerOptionsDocument()
    survive: SurviveDocument = SurviveDocument()
    """What every stream must survive, such as `region: [writes, reads]`: an error where it does not."""
    nats_checks: ChecksDocument | None = None
    """Writes into the metadata of streams what `nats server check stream` expects of them."""
    connect: dict[fields.Name, ConnectDocument] = {}
    """How plan, apply and probe reach each region. Not needed for a lab."""
    defaults: LevelDocument = LevelDocument()
    """Settings for every stream that does not override them."""
    presets: dict[fields.Name, LevelDocument] = {}
    """Named settings that streams can extend."""
    streams: dict[fields.StreamName, StreamDocument] = {}
    kv: dict[fields.BucketName, KeyValueDocument] = {}
    """Key-value buckets, in every region."""
    objects: dict[fields.BucketName, ObjectStoreDocument] = {}
    """Object stores, in every region."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a topology file, for editors."""
    schema = TopologyDocument.model_json_schema()
    describe_fields(schema, TopologyDocument, globals())
    profiles = [f"{profile.routing.value}: {profile.summary}." for profile in PROFILES.values()]
    routing = schema["properties"]["routing"]
    routing["description"] = " ".join((routing["description"], *profiles))
    return finish_schema(schema, "vstream topology")


def finish_schema(schema: dict[str, Any], title: str) -> dict[str, Any]:
    """*schema* of files as a document of its own, in which no other keys are allowed."""
    _close_schema(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **{key: value for key, value in schema.items() if key != "title"},
    }


def _close_schema(schema: Any) -> None:
    """Allow no other keys where a pattern says which there may be: pydantic's schema of a dict leaves them open."""
    if isinstance(schema, dict):
        if "patternProperties" in schema:
            schema["additionalProperties"] = False
        schema = list(schema.values())
    for inner in schema if isinstance(schema, list) else ():
        _close_schema(inner)


def describe_fields(schema: dict[str, Any], root: type[BaseModel], models: dict[str, Any]) -> None:
    """Write the text below each field of the models into their JSON Schema, as its description."""
    # Pydantic's `use_attribute_docstrings` would read the source of every model whenever it is imported.
    for name, part in {**schema.get("$defs", {}), root.__name__: schema}.items():
        model = models[name]
        for field, text in _field_texts(model).items():
            properties, key = part["properties"], model.model_fields[field].alias or field
            properties[key] = dict(sorted({"description": text, **properties[key]}.items()))


def _field_texts(model: type[BaseModel]) -> dict[str, str]:
    """The text below each field of *model*, by the field's name; a field that it inherits has its parent's."""
    texts: dict[str, str] = {}
    for kind in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        texts |= _own_texts(kind)
    return texts


@cache  # To find a class in its file, Python parses all of it.
def _own_texts(kind: type) -> dict[str, str]:
    texts = {}
    with suppress(OSError):  # a model made by `create_model` has no source, and says by itself what its fields are
        for statement, following in pairwise(ast.walk(ast.parse(dedent(inspect.getsource(kind))))):
            match statement, following:
                case ast.AnnAssign(target=ast.Name(id=field)), ast.Expr(value=ast.Constant(value=str(text))):
                    texts[field] = inspect.cleandoc(text)
    return texts
