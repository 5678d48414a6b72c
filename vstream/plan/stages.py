"""The stages of a plan and their order: what is done together, and the gates that must hold on the servers before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, Self

from vstream.plan.plan import (
    RULE,
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    Gate,
    GateKind,
    Handover,
    Plan,
    RuleChange,
    StreamChange,
    Update,
    UpdateConsumer,
)
from vstream.syntax.document import Json
from vstream.topology.model import Role
from vstream.topology.naming import api_prefix
from vstream.topology.profiles import profile_named
from vstream.topology.stream_config import (
    FORMER_PREFIX,
    ROUTING_KEY,
    StreamConfig,
    account_in,
    shares_account_with_write,
)
from vstream.value_class import value_class


class Stage(IntEnum):
    """When a change is made, and what that is called. What others need comes first; what others still need is removed last."""

    title: str

    def __new__(cls, order: int, title: str) -> Self:
        """Stages compare by their *order*."""
        stage = int.__new__(cls, order)
        stage._value_ = order
        stage.title = title
        return stage

    ACCOUNTS = 0, "accounts"
    """What servers load, if it only adds to their accounts: a stream may need it to reach others."""
    FORGOTTEN_ORIGINS = 1, "forget dead origins"
    """Origins of homes that are dead for good: created again next, under the same names."""
    DETACHED_COPIES = 2, "detach copies"
    """The copies that they are made from stop mirroring those names."""
    PAUSED_STREAMS = 3, "pause streams"
    """What may lose messages while it moves or is scaled up takes no publishes."""
    WRITE_STREAMS = 4, "write streams"
    """Everything that takes publishes, origins included."""
    RESUMED_STREAMS = 5, "resume streams"
    """It takes publishes again, also if anything failed meanwhile."""
    ORDER_STREAMS = 6, "order streams"
    RESYNCED_READERS = 7, "resync readers"
    """Readers of a stream that moved or was scaled are resynced; by themselves they take from it only after 10 s or more."""
    READ_STREAMS = 8, "read streams"
    RECORDED_MOVES = 9, "record moves"
    """What has moved is recorded by its servers, and all there."""
    STOPPED_COPIES = 10, "stop readers"
    """A read stream that was seeded from another stops mirroring it; a source that changes is removed."""
    SOURCED_COPIES = 11, "resume readers"
    """It sources from where that stopped."""
    CONSUMERS = 12, "consumers"
    """Before the mappings: clients that are sent to a stream find its consumers there."""
    REPLACED_COPIES = 13, "delete replaced copies"
    """Copies that an origin replaces."""
    OPENED_ORIGINS = 14, "open origins"
    """That origin takes publishes."""
    MAPPINGS = 15, "mappings"
    NAMED_STREAMS = 16, "name streams"
    """Read and order streams that list the subjects of clients beside write streams: without the mappings, publishes end in them."""
    NAMED_CONSUMERS = 17, "consumers"
    """Consumers of those."""
    DELETED_CONSUMERS = 18, "delete consumers"
    CLOSED_WRITE_STREAMS = 19, "close write streams"
    """Write streams to be deleted stop taking publishes, where no mapping leads clients away from them."""
    FORMER_STREAMS = 20, "drain former streams"
    """Write streams of a layout that the topology has left, once its read streams have everything of them."""
    DROPPED_SOURCES = 21, "remove sources"
    """After the mappings: until then clients may still publish into what is dropped."""
    COMPARED_REPLICAS = 22, "compare replicas"
    """What was scaled up from one replica is all there in each of them."""
    DELETED_READ_STREAMS = 23, "delete read streams"
    DELETED_ORDER_STREAMS = 24, "delete order streams"
    DELETED_WRITE_STREAMS = 25, "delete write streams"
    FORMER_ACCOUNTS = 26, "delete former accounts"
    """What servers unload of a layout that the topology has moved away from: until then its streams hand on what they have."""
    RETIRED_SERVERS = 27, "remove servers"


_BEFORE: Mapping[GateKind, Stage] = {
    GateKind.LANDED: Stage.PAUSED_STREAMS,
    GateKind.PAUSED: Stage.WRITE_STREAMS,
    GateKind.HELD: Stage.RESUMED_STREAMS,
    GateKind.SETTLED: Stage.RESYNCED_READERS,
    GateKind.ARRIVED: Stage.DELETED_READ_STREAMS,
    GateKind.RECORDED: Stage.RECORDED_MOVES,
    GateKind.SCALED: Stage.COMPARED_REPLICAS,
    GateKind.COPIED: Stage.STOPPED_COPIES,
    GateKind.AT_REST: Stage.SOURCED_COPIES,
    GateKind.FED: Stage.MAPPINGS,
    GateKind.PASSED_ON: Stage.FORMER_STREAMS,
    GateKind.DRAINED: Stage.DROPPED_SOURCES,
    GateKind.UNCHANGED: Stage.DELETED_READ_STREAMS,
}
_STEPS: Mapping[Handover, Stage] = {
    Handover.STOP: Stage.STOPPED_COPIES,
    Handover.SOURCE: Stage.SOURCED_COPIES,
    Handover.CLOSE: Stage.CLOSED_WRITE_STREAMS,
    Handover.DETACH: Stage.DETACHED_COPIES,
    Handover.OPEN: Stage.OPENED_ORIGINS,
    Handover.PAUSE: Stage.PAUSED_STREAMS,
    Handover.RESUME: Stage.RESUMED_STREAMS,
}
_STAGES: Mapping[Role, tuple[Stage, Stage]] = {
    Role.WRITE: (Stage.WRITE_STREAMS, Stage.DELETED_WRITE_STREAMS),
    Role.ORIGIN: (Stage.WRITE_STREAMS, Stage.DELETED_WRITE_STREAMS),
    Role.ORDER: (Stage.ORDER_STREAMS, Stage.DELETED_ORDER_STREAMS),
    Role.READ: (Stage.READ_STREAMS, Stage.DELETED_READ_STREAMS),
    Role.CATALOG: (Stage.READ_STREAMS, Stage.DELETED_READ_STREAMS),
}
"""By role: when a stream is created or changed, and when it is deleted."""


def stage_after(gate: Gate) -> Stage:
    """The stage that waits for *gate*."""
    return _BEFORE[gate.kind]


def stage_of(change: Change) -> Stage:
    """When a change is carried out."""
    if isinstance(change, CreateConsumer | UpdateConsumer | DeleteConsumer):
        if isinstance(change, DeleteConsumer):
            return Stage.DELETED_CONSUMERS
        return Stage.NAMED_CONSUMERS if shares_account_with_write(change.config.stream) else Stage.CONSUMERS
    return _stage_of_stream(change)


def _stage_of_stream(change: StreamChange) -> Stage:
    created, deleted = _STAGES[change.role] if change.role else (Stage.READ_STREAMS, Stage.DELETED_READ_STREAMS)
    match change:
        case Delete(is_replaced=True):
            return Stage.REPLACED_COPIES
        case Delete():
            return Stage.FORGOTTEN_ORIGINS if change.is_dead and change.role is Role.ORIGIN else deleted
        case Update(handover=Handover() as step):
            return _STEPS[step]
        case Update() if any(field.field.startswith("sources.") and field.after is None for field in change.fields):
            return Stage.DROPPED_SOURCES
        case _ if _is_named(change):
            return Stage.NAMED_STREAMS
        case _:
            return created


def _is_named(change: Create | Update) -> bool:
    if not names_clients_subjects(change.config, change.role):
        return False
    if isinstance(change, Create):
        return True
    return any(field.field == "subjects" and lists_more(field.before, field.after) for field in change.fields)


def names_clients_subjects(config: StreamConfig, role: Role | None) -> bool:
    """Whether a stream of *role* lists subjects of clients, so that mappings must lead publishes away from it."""
    if role is Role.ORDER:
        return bool(config.subjects)
    if role is not Role.READ or "sources" not in config.fields:
        return False  # a mirror lists none
    profile = profile_named(config.metadata_value(ROUTING_KEY))
    return profile is not None and profile.has_write_beside_read


def lists_more(before: Json, after: Json) -> bool:
    """Whether the list *after* has items that *before* lacks."""
    former = before if isinstance(before, list) else []
    return any(item not in former for item in (after if isinstance(after, list) else []))


@value_class
class PlanStage:
    """A stage of one plan: what is done in it. It begins once its *gates* hold."""

    stage: Stage
    gates: tuple[Gate, ...]
    changes: tuple[Change, ...] = ()
    rules: tuple[RuleChange, ...] = ()
    servers: tuple[str, ...] = ()
    """Servers that stop, and leave the meta group."""
    readers: tuple[str, ...] = ()
    """Readers that are resynced."""
    gates_meanwhile: tuple[Gate, ...] = ()
    """Gates of a later stage. Servers record what moves to them already now: while others hold it, too, nothing can be lost."""
    waits_for_mappings: bool = False
    """Whether every server must have loaded the mappings first."""

    @property
    def title(self) -> str:
        """What it is about."""
        return self.stage.title

    @property
    def waits(self) -> tuple[str, ...]:
        """What must hold before it, each as a clause that follows `until`."""
        loaded = ("every server has loaded the mappings",) if self.waits_for_mappings else ()
        return (*loaded, *map(str, self.gates))

    @property
    def counts(self) -> str:
        """How much is done: `2 to create, 1 to update`."""
        changed = Counter(change.verb for change in self.changes)
        parts = [f"{changed[verb]:,} to {verb}" for verb in ("create", "update", "delete") if changed[verb]]
        if self.rules:
            parts.append(f"{len({rule.source for rule in self.rules}):,} to load")
        if self.readers:
            parts.append(f"{len(self.readers):,} to resync")
        if self.servers:
            parts.append(f"{', '.join(self.servers)}: stop, and leave the meta group")
        return ", ".join(parts)


def list_stages(plan: Plan) -> Iterator[PlanStage]:
    """The stages of *plan* in their order. One without anything to do is left out, unless something must hold then."""
    loading = loading_stage_of(plan)
    must_load = loading <= Stage.MAPPINGS or bool(plan.unread_servers)
    changes: defaultdict[Stage, list[Change]] = defaultdict(list)
    for change in plan.changes:
        changes[stage_of(change)].append(change)
    gates: defaultdict[Stage, list[Gate]] = defaultdict(list)
    for gate in (*plan.gates, *plan.resumed):
        gates[stage_after(gate)].append(gate)
    for stage in Stage:
        is_resyncing = stage is Stage.RESYNCED_READERS
        plan_stage = PlanStage(
            stage=stage,
            gates=tuple(gates[stage]),
            changes=tuple(changes[stage]),
            rules=plan.rules if stage is loading else (),
            readers=plan.readers_to_resync if is_resyncing else (),
            gates_meanwhile=tuple(gates[Stage.RECORDED_MOVES]) if is_resyncing else (),
            servers=plan.leaving if stage is Stage.RETIRED_SERVERS else (),
            waits_for_mappings=must_load and stage > Stage.MAPPINGS and stage is not Stage.COMPARED_REPLICAS,
        )
        if plan_stage.changes or plan_stage.rules or plan_stage.gates or plan_stage.servers:
            # Once the first stage that waits for them has begun, they are loaded.
            must_load = must_load and not plan_stage.waits_for_mappings
            yield plan_stage


def loading_stage_of(plan: Plan) -> Stage:
    """
    When servers load what they lack: first where that takes nothing from accounts, else once streams are there.

    And last where it takes away what streams of a former layout need to hand on what they have.
    """
    if _leaves_former(plan) and all(rule.only_removes for rule in plan.rules):
        return Stage.FORMER_ACCOUNTS
    is_first = any(rule.kind != RULE for rule in plan.rules) and all(rule.only_adds for rule in plan.rules)
    return Stage.ACCOUNTS if is_first else Stage.MAPPINGS


def _leaves_former(plan: Plan) -> bool:
    """Whether streams of a layout are deleted that the topology has left, or will not move to."""
    unreached = {rule.source.rpartition(" ")[2] for rule in plan.rules if rule.after is None}
    deleted = [change.config.name for change in plan.changes if isinstance(change, Delete)]
    return any(name.startswith(FORMER_PREFIX) or f"{api_prefix(account_in(name))}.>" in unreached for name in deleted)


def stage_as_dict(stage: PlanStage) -> dict[str, Any]:
    """*stage* as plain JSON data."""
    return {
        "stage": stage.stage.name.lower(),
        "title": stage.title,
        "gates": [
            *([{"gate": "loaded"}] if stage.waits_for_mappings else []),
            *({"gate": gate.kind.value, "stream": gate.stream, "others": gate.counterparts} for gate in stage.gates),
        ],
        "changes": [change.config.name for change in stage.changes],
        "servers": stage.servers,
        "readers": stage.readers,
        "mappings": sorted({rule.source for rule in stage.rules}),
    }
