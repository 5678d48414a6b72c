"""What a routing profile decides: the base class of all profiles."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

from vstream.subjects import algebra
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.syntax.document import Json
from vstream.topology import naming
from vstream.topology.accounts import Account
from vstream.topology.bundle import PASSWORDS_PATH
from vstream.topology.model import Consistency, Naming, Role, Routing, Topology, VirtualStream
from vstream.value_class import value_class

_OWN_API_RULE = MappingRule(source=naming.OWN_API, destinations=(Destination(subject=f"{naming.API}.>"),))
"""The prefix of the clients' account's own API while a topology moves."""


@value_class
class ProfileManual:
    """A profile's column in the table of docs/routing.md: Markdown, one field a row."""

    accounts: str
    streams: str
    mapping_rules: str
    creating_consumers: str
    mirrored_consumers: str
    changing_streams: str
    core_subscribers: str
    users: str
    files: str
    servers: str
    runbooks: str


class Profile(ABC):
    """
    How clients reach the physical streams with one `routing`, and what follows from that.

    A new profile is a member of `Routing`, and a subclass in the module that is called as it.
    """

    routing: ClassVar[Routing]

    def __init_subclass__(cls) -> None:
        """Raises TypeError if a profile does not say what has no default: its first reader is far from here."""
        lacks = [name for name in Profile.__annotations__ if not hasattr(cls, name)]
        if "routing" in vars(cls) and lacks:
            raise TypeError(f"{cls.__name__} lacks {', '.join(lacks)}: say it in the class of the profile")

    has_physical_names: ClassVar[bool] = False
    """Whether all streams share the account of clients, under names of their own, and mapping rules lead to them."""
    has_hidden_accounts: ClassVar[bool] = False
    """Whether streams are in accounts that nobody logs in to, and that of clients has no JetStream."""
    has_domains: ClassVar[bool] = False
    """Whether each region is a JetStream domain, with a hub that joins it to the others."""
    has_region_accounts: ClassVar[bool] = False
    """Whether the clients of each region have an account, and users, of their own."""
    has_write_beside_read: ClassVar[bool] = False
    """Whether a region's write stream shares an account with its read stream: rules lead publishes away from the latter."""

    has_roots: ClassVar[bool]
    """Whether one rule for a root leads all publishes below it; else each subject has rules, and roots have no effect."""
    has_every_operation: ClassVar[bool] = False
    """
    Whether regions can be drained and given up, and repair can change what streams hold.

    Everything else works with every profile. What was never tried on servers is refused.
    """
    may_name_account: ClassVar[bool] = False
    """Whether a topology may choose what the account of clients is called."""

    rules_lead_to: ClassVar[str]
    """What the destinations of its mapping rules begin with."""
    since: ClassVar[tuple[int, int] | None]
    """
    The oldest server version that takes its accounts, None for every supported one.

    2.10 refuses two imports of one subject from different accounts, which flow control needs.
    """
    operator_since: ClassVar[tuple[int, int] | None]
    """The same in operator mode."""
    summary: ClassVar[str]
    """What it is: in the JSON Schema, below `routing`."""
    manual: ClassVar[ProfileManual]
    starter: ClassVar[str]
    """What a starter topology says of it."""
    starter_root: ClassVar[str] = "v."
    """What the subjects of a starter topology begin with."""

    @property
    def tells_who_asks(self) -> bool:
        """Whether a user hears of what clients ask, in an account where they can ask for another region's streams."""
        return self.has_physical_names or self.has_region_accounts

    publish_us: ClassVar[float]
    """Microseconds of server CPU for a publish and its acknowledgement, measured on 2.15.1; and for each rule besides."""
    rule_us: ClassVar[float] = 0.0

    def acknowledged_publish_us(self, rules: int) -> float:
        """The same with so many *rules*."""
        return self.publish_us + rules * self.rule_us

    # Names

    @abstractmethod
    def account_of(self, stream: VirtualStream, role: Role, place: str) -> str | None:
        """The account, or the domain, that a physical stream lives in; None where all share one account of clients."""

    def local_name(self, stream: VirtualStream, role: Role, place: str) -> str:
        """What servers call a physical stream in its account."""
        return stream.name

    @abstractmethod
    def stream_accounts(self, topology: Topology) -> tuple[str | None, ...]:
        """The accounts that hold the physical streams; None stands for that of clients."""

    def client_account(self, topology: Topology, region: str | None) -> str:
        """The account that clients of *region*, or of any where that makes no difference, are in."""
        return topology.account or naming.CLIENT_ACCOUNT

    @abstractmethod
    def account_of_reads(self, region: str) -> str | None:
        """The account, or the domain, of the streams that are read in *region*; None for the account of clients."""

    def user_name(self, user: str, region: str) -> str:
        """What the *user* of *region* logs in as."""
        return user

    # Subjects of streams that take publishes in each region

    @abstractmethod
    def write_subjects(self, topology: Topology, stream: VirtualStream, region: str) -> tuple[str, ...]:
        """What the write stream of *region* listens on."""

    @abstractmethod
    def stored_subject(self, kind: Naming, stream: VirtualStream, region: str, subject: str) -> str:
        """The subject under which a message published on *subject* in *region* is first stored."""

    @abstractmethod
    def published_subject(self, kind: Naming, subject: str) -> str:
        """The inverse of `stored_subject`, for the literal subject of a stored message."""

    @abstractmethod
    def source_transforms(self, topology: Topology, stream: VirtualStream, origin: str) -> tuple[tuple[str, str], ...]:
        """How a stream that sources turns the physical subjects of *origin* back: (source, destination) pairs."""

    def read_stream_declares_subjects(self, stream: VirtualStream) -> bool:
        """Whether read streams list the subjects of *stream*, so that clients find them by subject."""
        return True

    def republish(self, role: Role) -> Json:
        """What the stream of *role* publishes again for core subscribers, None for nothing."""
        return None

    # Accounts and rules

    def accounts(self, topology: Topology) -> tuple[Account, ...]:
        """All accounts but the system account, where vstream writes them."""
        return ()

    denied: ClassVar[tuple[str, ...]] = (f"{naming.ACCOUNT_API_PREFIX}.>",)
    """What other users in the account of clients may not publish."""
    passwords_path: ClassVar[str] = PASSWORDS_PATH
    """The file with passwords that stands around all accounts."""

    def inner_passwords(self, topology: Topology) -> dict[str, str]:
        """The files with passwords that accounts include themselves, by account."""
        return {}

    @abstractmethod
    def mapping_rules(self, topology: Topology) -> tuple[MappingRule, ...]:
        """The mapping rules of the account of clients, in the order of the topology."""

    def list_all_mapping_rules(self, topology: Topology) -> tuple[MappingRule, ...]:
        """`mapping_rules`, with additional rules while a topology moves from one profile to another."""
        moves = topology.moves_to or topology.moves_from
        return (*self.mapping_rules(topology), *((_OWN_API_RULE,) if moves else ()))

    def maps(self, topology: Topology, region: str, subject: str) -> bool:
        """Whether the servers of *region* are to give *subject* another name, before they look at what its sender may do."""
        cluster = topology.region(region).cluster
        for rule in self.list_all_mapping_rules(topology):
            if algebra.matches(subject, rule.source):
                by_cluster = {destination.cluster: destination.subject for destination in rule.destinations}
                same = naming.with_placeholders(rule.source)
                return by_cluster.get(cluster, by_cluster.get(None, same)) != same
        return False


def stretch_account_of(stream: VirtualStream, role: Role, place: str) -> str | None:
    """The hidden account of a stream in the stretch cluster; None for a stream in a region."""
    is_wide = role is Role.ORDER or (role is Role.ORIGIN and stream.consistency is Consistency.STRETCH)
    return naming.stretch_account(place) if is_wide else None


def stretch_accounts(topology: Topology) -> tuple[str, ...]:
    """The hidden account of the stretch cluster, if there is one."""
    return (naming.stretch_account(topology.stretch.cluster),) if topology.stretch else ()


def second_layout(topology: Topology) -> Topology | None:
    """
    *topology* in its second layout, which clients do not use: the next or the former one. None if it does not move.

    A topology that moves has both layouts of its streams side by side. First clients use the old one (`moves_to`), then the
    new one (`moves_from`). Each read stream of the new one also sources the old read stream of its region.
    """
    if topology.moves_to is not None:
        streams = tuple(replace(stream, routing=topology.moves_to, follows_former=True) for stream in topology.streams)
        return replace(topology, routing=topology.moves_to, streams=streams)
    if topology.moves_from is not None:
        routing = topology.moves_from
        streams = tuple(
            replace(stream, routing=routing, is_former=True, follows_former=False) for stream in topology.streams
        )
        return replace(topology, routing=routing, streams=streams)
    return None


def layouts(topology: Topology) -> tuple[Topology, ...]:
    """*topology*, and its second layout if it moves."""
    second = second_layout(topology)
    return (topology,) if second is None else (topology, second)
