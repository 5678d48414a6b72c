"""A plan: an ordered list of changes against one observed state."""

from __future__ import annotations

from collections import UserString
from collections.abc import Callable, Collection, Mapping
from dataclasses import field as dataclass_field
from dataclasses import replace
from enum import Enum, StrEnum
from functools import cached_property
from typing import ClassVar, TypeAlias

from vstream.formatting import quote_names
from vstream.plan.risk import Removal, Risk
from vstream.syntax.document import Json
from vstream.topology.bundle import RenderedConsumer, RenderedStream
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Role
from vstream.topology.stream_config import (
    StreamConfig,
    parse_source,
)
from vstream.value_class import value_class

RULE = "mapping"
"""The kind of a key without a space."""
ACCOUNT = "account"
USERS = "users"
_MANY_SHARE = 0.3
"""The share of existing streams above which a plan touches many of them."""
_ALWAYS_FEW_COUNT = 10
"""Where no more streams exist, it never does."""


def kind_of(key: str) -> str:
    """What the loaded rule or account entry at *key* is: `mapping`, `import`, `export`, `account` or `users`."""
    first, space, _ = key.partition(" ")
    return first if space or key == USERS else RULE


class TransitionStep(Enum):
    """What one update of a stream does that takes several, so that nothing is lost or duplicated."""

    STOP_SOURCING = "stop_sourcing"
    """Its sources are removed. Recorded in its metadata: where each source continues."""
    CONTINUE_SOURCING = "continue_sourcing"
    """It gets its sources, each from there."""
    CLOSE = "close"
    """It takes no more publishes, so that others can source all of it before it is deleted."""
    DETACH = "detach"
    """A copy stops mirroring a dead origin."""
    OPEN = "open"
    """An origin that was made from a copy takes publishes."""
    PAUSE = "pause"
    """It takes no publishes while it moves or is scaled up, so that its new servers get all that it holds."""
    RESUME = "resume"
    """It takes publishes again."""


class GateKind(Enum):
    """The condition that a gate waits for."""

    MOVE_IS_OVER = "move_is_over"
    """*stream* does not move any more: another update meanwhile, even the same one, leaves it without a leader (before 2.15)."""
    PUBLISHES_ARE_STORED = "publishes_are_stored"
    """*stream*, which takes no publishes, has stored all messages in transit."""
    QUORUM_IS_CURRENT = "quorum_is_current"
    """*stream*, which takes no publishes, has moved or been scaled up, and most of its servers hold what it held."""
    REPLICAS_ARE_CURRENT = "replicas_are_current"
    """*stream* has moved, with all of its replicas. If its leader changed, *counterparts*, its readers, are resynced."""
    COPIES_HOLD_NO_MORE = "copies_hold_no_more"
    """The same, where servers that may still hold it go afterwards, or *counterparts*, its copies, which hold no more than it."""
    MOVE_IS_RECORDED = "move_is_recorded"
    """*stream* has moved, its servers have recorded that they hold it, and it holds what it held when apply began."""
    REPLICAS_ARE_COMPLETE = "replicas_are_complete"
    """*stream* has all of its replicas, and no replica whose server can be asked begins after its leader."""
    COPY_IS_COMPLETE = "copy_is_complete"
    """*stream* holds all that the one of *counterparts*, which it mirrors, holds, and it is known where each source goes on."""
    SOURCED_MESSAGES_ARE_STORED = "sourced_messages_are_stored"
    """*stream*, which sources nothing now, has stored all messages in transit."""
    HAS_ALL_OF_SOURCES = "has_all_of_sources"
    """*stream* has everything of *counterparts*."""
    HAS_ALL_OF_FORMER = "has_all_of_former"
    """The same of the former read stream that is its only counterpart, which lacks nothing that its own sources held a moment ago."""
    FORMER_READERS_HAVE_ALL = "former_readers_have_all"
    """Each of *counterparts*, which go like *stream* and are to hand on what it has, has taken everything of it, and nothing more comes."""
    READERS_HAVE_ALL = "readers_have_all"
    """Each of *counterparts* has everything of *stream*, and nothing more arrives there."""
    NOTHING_HAS_ARRIVED_SINCE = "nothing_has_arrived_since"
    """Nothing has arrived in *stream* since *counterparts* had everything of it."""


_PLACED = "{stream} is where it is placed"
_COMPLETE = f"{_PLACED}, with all of its replicas"
_HAVE_ALL = "{counterparts} {have} everything of {stream}, and nothing more comes into it"
_CONDITIONS: Mapping[GateKind, str] = {
    GateKind.MOVE_IS_OVER: _COMPLETE,
    GateKind.PUBLISHES_ARE_STORED: "{stream} has stored what was on its way",
    GateKind.QUORUM_IS_CURRENT: f"{_PLACED}, and most of its servers hold what it held",
    GateKind.REPLICAS_ARE_CURRENT: _COMPLETE,
    GateKind.COPIES_HOLD_NO_MORE: f"{_COMPLETE}, and holds what {{counterparts}} holds",
    GateKind.MOVE_IS_RECORDED: f"{_COMPLETE}, its servers have recorded it, and it holds what it held",
    GateKind.REPLICAS_ARE_COMPLETE: f"{_COMPLETE}, and none whose server can be asked begins after its leader",
    GateKind.COPY_IS_COMPLETE: "{stream} holds all that {counterparts} holds",
    GateKind.SOURCED_MESSAGES_ARE_STORED: "{stream} has stored what was on its way",
    GateKind.HAS_ALL_OF_SOURCES: "{stream} has everything of {counterparts}",
    GateKind.HAS_ALL_OF_FORMER: "{counterparts} has everything of its sources, and {stream} of it",
    GateKind.FORMER_READERS_HAVE_ALL: _HAVE_ALL,
    GateKind.READERS_HAVE_ALL: _HAVE_ALL,
    GateKind.NOTHING_HAS_ARRIVED_SINCE: "nothing has come into {stream} since {counterparts} had everything of it",
}


@value_class
class Gate:
    """One condition on one physical stream. *counterparts* are physical streams too."""

    kind: GateKind
    stream: str
    counterparts: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What must hold, as a clause that follows `until`."""
        has_copies = self.kind is not GateKind.COPIES_HOLD_NO_MORE or self.counterparts
        return (_CONDITIONS[self.kind] if has_copies else _COMPLETE).format(
            stream=f"`{self.stream}`",
            counterparts=quote_names(self.counterparts),
            have="has" if len(self.counterparts) == 1 else "have",
        )


@value_class
class FieldChange:
    """One field of an update. *path* is dotted for parts of a field: `metadata.owner`, `sources.foo-write-west`."""

    path: str
    before: Json
    after: Json
    risk: Risk
    why: str
    removal: Removal | None = None
    """What a tighter limit removes now."""

    @property
    def is_source(self) -> bool:
        """Whether it is one source of a stream."""
        return self.path.startswith("sources.")


@value_class
class Create:
    """A stream that does not exist yet."""

    verb: ClassVar = "create"
    config: StreamConfig
    region: str
    role: Role
    readers: tuple[str, ...] = ()
    """Readers of an earlier stream of that name: `apply` makes the new stream begin after what they took."""


@value_class
class Update:
    """A stream that differs. *config* is the whole new configuration, with fields that vstream does not know kept."""

    verb: ClassVar = "update"
    config: StreamConfig
    region: str
    role: Role
    fields: tuple[FieldChange, ...]
    adopts: bool = False
    """Whether the stream becomes vstream's with this change."""
    step: TransitionStep | None = None
    """If it is STOP_SOURCING or CONTINUE_SOURCING, carrying the change out adds to *config* where each source goes on."""
    dead_sources: Mapping[str, tuple[int, int]] = dataclass_field(default_factory=dict)
    """
    Dead streams that it sources no more: how far it was in each, and its own last sequence before that was measured.

    Carrying it out notes how far it was at the end.
    """
    needs_only_note: bool = False
    """Whether an earlier run has changed the sources already, and only that note is left."""

    @property
    def dropped_sources(self) -> tuple[str, ...]:
        """The streams that it sources no more."""
        dropped = (change.before for change in self.fields if change.is_source and change.after is None)
        sources = (parse_source(value, self.config.name) for value in dropped)
        return tuple(source.stream for source in sources if source is not None)


@value_class
class Delete:
    """A stream of this topology that the topology no longer has."""

    verb: ClassVar = "delete"
    config: StreamConfig
    region: str | None
    role: Role | None
    messages: int
    consumers: int = 0
    """How many of both there were when the plan was made: clients may still publish, and make others."""
    is_dead: bool = False
    """Whether no server answers for it any more: `apply` then waits until the meta group has forgotten it."""
    is_replaced: bool = False
    """Whether an origin, made out of copies in the same region, takes its place."""


@value_class
class CreateConsumer:
    """A durable that does not exist yet."""

    verb: ClassVar = "create"
    config: ConsumerConfig
    region: str
    continues: str | None = None
    """The stream, with the same sequences, that this region's durable of that name was on: carrying it out adds where that is."""


@value_class
class UpdateConsumer:
    """A durable that differs. *config* is the whole new configuration, with fields that vstream does not know kept."""

    verb: ClassVar = "update"
    config: ConsumerConfig
    region: str
    fields: tuple[FieldChange, ...]
    adopts: bool = False
    """Whether it becomes vstream's with this change."""


@value_class
class DeleteConsumer:
    """A durable of this topology that the topology no longer has, on a stream that stays."""

    verb: ClassVar = "delete"
    config: ConsumerConfig
    region: str | None


@value_class
class Blocked:
    """A stream that cannot be made as the topology says, why, and what to do."""

    name: str
    region: str | None
    reason: str
    hint: str
    is_unanswered: bool = False
    """Whether no server answered for it, so that it is not known whether it differs."""

    @classmethod
    def of(cls, item: Change | RenderedStream | RenderedConsumer, reason: str, hint: str) -> Blocked:
        """What *item* is, or is changed, is blocked."""
        return cls(name=item.config.name, region=item.region, reason=reason, hint=hint)

    @classmethod
    def because_unanswered(cls, item: RenderedStream | RenderedConsumer) -> Blocked:
        """Nobody says whether *item* is as it should be."""
        hint = f"is `{item.region}` down? plan again when it is back"
        return replace(cls.of(item, "it exists, but no server answered for it", hint), is_unanswered=True)


@value_class
class Note:
    """Something noticed that stays as it is."""

    name: str
    text: str


@value_class
class RegionLoss:
    """A write stream that is given up, and how far each stream that sources it has come in it; None where that is not known."""

    stream: str
    region: str
    readers: Mapping[str, int | None]
    last_seqs: Mapping[str, int] = dataclass_field(default_factory=dict)
    """The last sequence of each of them, before that was measured."""
    waiting_count: int = 0
    """How many more messages a reader knew of when it last heard of it."""
    is_origin: bool = False
    """Whether it is an origin: in the end, all have what the furthest of its copies has."""

    def __str__(self) -> str:
        """What is lost, as a sentence."""
        positions = {name: seq for name, seq in self.readers.items() if seq is not None}
        most = max(positions.values(), default=0)
        held = ", ".join(f"`{name}` has {_describe_share(seq, most)}" for name, seq in sorted(self.readers.items()))
        text = f"what was acknowledged in `{self.region}` after sequence {most:,} of `{self.stream}`"
        if self.waiting_count:
            text += f", {self.waiting_count:,} messages at least,"
        text += f" is lost; up to there {held}"
        if not self.is_origin and (behind := [name for name, seq in positions.items() if seq < most]):
            text += f": {', '.join(f'`{name}`' for name in sorted(behind))} will not get the rest by itself"
        return text


def _describe_share(seq: int | None, most: int) -> str:
    if seq is None:
        return "an unknown part of it"
    return "it" if seq == most else f"it up to {seq:,} only"


@value_class
class UnreachableRegion:
    """A region that could not be connected to, and why."""

    region: str
    reason: str


@value_class
class RuleChange:
    """
    What some servers have not loaded as the topology says. None means that the rule or entry is absent.

    *source* is that of a mapping rule, or the key of an entry of accounts (`vstream.plan.rules`).
    """

    source: str
    servers: tuple[str, ...]
    before: tuple[str, ...] | None
    after: tuple[str, ...] | None

    @property
    def kind(self) -> str:
        """`mapping`, `import`, `export`, `account` or `users`."""
        return kind_of(self.source)

    @property
    def only_adds(self) -> bool:
        """Whether everything loaded stays. Users may lose permissions: they are replaced together."""
        return self.after is not None and (self.kind == USERS or {*(self.before or ())} <= {*self.after})

    @property
    def only_removes(self) -> bool:
        """Whether nothing is added. Users are replaced together, and may lose permissions."""
        return self.kind == USERS or {*(self.after or ())} <= {*(self.before or ())}


class AllowOption(StrEnum):
    """An option of `apply` that allows what a plan would do."""

    DESTRUCTIVE = "--allow-destructive"
    MANY = "--allow-many"


@value_class
class Demand:
    """An option without which `apply` does not carry out a plan, and why it is needed."""

    option: AllowOption
    reason: str

    def __str__(self) -> str:
        """Both, as a clause that follows `needs`."""
        return f"{self.option} ({self.reason})"


StreamChange: TypeAlias = Create | Update | Delete
ConsumerChange: TypeAlias = CreateConsumer | UpdateConsumer | DeleteConsumer
Change: TypeAlias = StreamChange | ConsumerChange


class Fingerprint(UserString):
    """A digest that is worked out when somebody compares or writes it: most plans are only shown."""

    def __init__(self, digest: Callable[[], str]) -> None:
        self._digest = digest

    @cached_property
    def data(self) -> str:  # type: ignore[override]
        """The digest itself."""
        return self._digest()


@value_class
class Plan:
    """Everything that `apply` would do, in order, and everything that it would not."""

    topology: str
    observed_digest: str | Fingerprint
    """Of the state of the servers that the plan was made against."""
    changes: tuple[Change, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    rule_changes: tuple[RuleChange, ...] = ()
    unread_servers: tuple[str, ...] = ()
    """Servers whose loaded rules could not be read."""
    unreachable: tuple[UnreachableRegion, ...] = ()
    """Regions that could not be asked themselves: another region answered for them."""
    answering_region: str | None = None
    """The region that answered."""
    leaving_servers: tuple[str, ...] = ()
    """Servers that run, or vote in the meta group, but are not in the topology."""
    gates: tuple[Gate, ...] = ()
    """What must hold on the servers before certain stages may begin."""
    left_paused: tuple[str, ...] = ()
    """Streams that an earlier run has paused, where the plan is blocked as a whole, so that it resumes none."""
    interrupted_gates: tuple[Gate, ...] = ()
    """Of what an earlier run has moved or scaled: by and by, its servers record it, and its readers hear of it."""
    notes: tuple[Note, ...] = ()
    losses: tuple[RegionLoss, ...] = ()
    """What is lost for good with the regions that are given up."""
    owned_stream_count: int = 0
    """How many streams of this topology exist."""
    desired_rule_count: int = 0
    """How many mapping rules and account entries every server is to have loaded."""

    @property
    def readers_to_resync(self) -> tuple[str, ...]:
        """The streams that are made to take at once from what moved or was scaled."""
        gates = [gate for gate in self.gates if gate.kind is GateKind.REPLICAS_ARE_CURRENT]
        gates.extend(self.interrupted_gates)
        return tuple(dict.fromkeys(reader for gate in gates for reader in gate.counterparts))

    @property
    def moving_streams(self) -> tuple[str, ...]:
        """The streams that get other servers."""
        return tuple(change.config.name for change in self.changes if is_move(change))

    @property
    def unanswered_items(self) -> tuple[Blocked, ...]:
        """What is blocked because nobody answered for it: whether it differs is not known."""
        return tuple(blocked for blocked in self.blocked if blocked.is_unanswered)

    @property
    def refusals(self) -> tuple[Blocked, ...]:
        """What is blocked for another reason: it differs, and cannot be made as the topology says."""
        return tuple(blocked for blocked in self.blocked if not blocked.is_unanswered)

    @property
    def differs(self) -> bool:
        """Whether anything on the servers is known not to be as the topology says."""
        return bool(self.changes or self.rule_changes or self.leaving_servers or self.refusals)

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs and nothing is unanswered. Servers whose rules were not read do not count."""
        return not (self.differs or self.unanswered_items)

    @property
    def has_work(self) -> bool:
        """Whether anything is left to do, or to be resolved: it is not empty, or an earlier run has not ended."""
        return bool(self.interrupted_gates) or not self.is_empty

    @property
    def are_rules_unknown(self) -> bool:
        """Whether clients need rules, and it is not known whether *unread_servers* have loaded them."""
        return bool(self.unread_servers and self.desired_rule_count)

    @property
    def is_destructive(self) -> bool:
        """Whether any change can lose or double messages. Servers that leave take along what others store there."""
        has_destructive_change = any(risk_of(change).is_destructive for change in self.changes)
        return bool(has_destructive_change or self.leaving_servers or self.losses)

    def list_paused(self) -> tuple[str, ...]:
        """The streams that an earlier run has paused: they take no publishes."""
        open_streams = {change.config.name for change in self.changes if is_pause(change)}
        resumed = [change.config.name for change in self.changes if is_resumption(change)]
        return (*self.left_paused, *(name for name in resumed if name not in open_streams))

    @property
    def touches_many(self) -> bool:
        """Whether it changes or deletes more than 30 % of the streams that exist, if those are more than ten."""
        touched = {change.config.name for change in self.changes if isinstance(change, Update | Delete)}
        return self.owned_stream_count > _ALWAYS_FEW_COUNT and len(touched) > self.owned_stream_count * _MANY_SHARE

    @property
    def demands(self) -> tuple[Demand, ...]:
        """The options that `apply` must be given to carry it out."""
        demands = []
        if self.is_destructive:
            number = sum(risk_of(change).is_destructive for change in self.changes)
            reason = f"{number:,} {'change' if number == 1 else 'changes'} can lose or duplicate messages"
            if self.leaving_servers:
                reason = "servers leave, and take along what is stored only there"
            demands.append(Demand(option=AllowOption.DESTRUCTIVE, reason=reason))
        if self.touches_many:
            reason = f"more than {_MANY_SHARE:.0%} of the streams that exist would change"
            demands.append(Demand(option=AllowOption.MANY, reason=reason))
        return tuple(demands)

    def unmet_demands(self, allowed: Collection[AllowOption]) -> tuple[Demand, ...]:
        """Those of its demands whose option is not among *allowed*."""
        return tuple(demand for demand in self.demands if demand.option not in allowed)


def is_move(change: Change) -> bool:
    """Whether a stream gets other servers."""
    return isinstance(change, Update) and any(field.path == "placement" for field in change.fields)


def is_scaled_up(change: Change) -> bool:
    """Whether a stream gets more replicas than its only one."""
    if not isinstance(change, Update):
        return False
    return any(field.path == "num_replicas" and field.before in {1, None} for field in change.fields)


def is_pause(change: Change) -> bool:
    """Whether a stream takes no publishes from then on, until it is resumed."""
    return isinstance(change, Update) and change.step is TransitionStep.PAUSE


def is_resumption(change: Change) -> bool:
    """Whether a stream that was paused takes publishes again from then on."""
    return isinstance(change, Update) and change.step is TransitionStep.RESUME


def risk_of(change: Change) -> Risk:
    """The worst risk of a change."""
    match change:
        case Create() | CreateConsumer():
            return Risk.SAFE
        case Update() | UpdateConsumer():
            order = list(Risk)
            return max((field.risk for field in change.fields), key=order.index, default=Risk.SAFE)
        case Delete() | DeleteConsumer():
            return Risk.DATA_LOSS
