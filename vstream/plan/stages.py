"""The stages of a plan and their order: what is done together, and the gates that must hold on the servers before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from enum import IntEnum, auto
from typing import Any

from vstream.plan.model import (
    RULE,
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    Gate,
    GateKind,
    Plan,
    RuleChange,
    StreamChange,
    TransitionStep,
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
    account_in_name,
    shares_account_with_write,
)
from vstream.value_class import value_class


class Stage(IntEnum):
    """What is done together, in this order. What others need comes first; what others still need is removed last."""

    LOAD_ACCOUNTS = auto()
    """What servers load, if it only adds to their accounts: a stream may need it to reach others."""
    FORGET_DEAD_ORIGINS = auto()
    """Origins of homes that are dead for good: created again next, under the same names."""
    DETACH_COPIES = auto()
    """The copies that they are made from stop mirroring those names."""
    PAUSE_STREAMS = auto()
    """What may lose messages while it moves or is scaled up takes no publishes."""
    CHANGE_WRITE_STREAMS = auto()
    """Everything that takes publishes, origins included, is created or updated."""
    RESUME_STREAMS = auto()
    """What was paused takes publishes again, also if anything failed meanwhile."""
    CHANGE_ORDERING_STREAMS = auto()
    RESYNC_READERS = auto()
    """Readers of a stream that moved or was scaled ask it at once; by themselves they do so after 10 s or more."""
    CHANGE_READ_STREAMS = auto()
    RECORD_MOVES = auto()
    """What has moved is recorded by its servers, and all there."""
    STOP_SOURCING = auto()
    """A read stream that was seeded from another stops mirroring it; a source that changes is removed."""
    CONTINUE_SOURCING = auto()
    """It sources from where that stopped."""
    CHANGE_CONSUMERS = auto()
    """Before the mappings: clients that are sent to a stream find its consumers there."""
    DELETE_REPLACED_COPIES = auto()
    """Copies that an origin replaces."""
    OPEN_ORIGINS = auto()
    """That origin takes publishes."""
    LOAD_MAPPINGS = auto()
    ADD_CLIENT_SUBJECTS = auto()
    """Read and ordering streams beside write streams list these, or are created so: without the mappings, publishes end in them."""
    CHANGE_CONSUMERS_AFTER_MAPPINGS = auto()
    """Consumers of those."""
    DELETE_CONSUMERS = auto()
    CLOSE_WRITE_STREAMS = auto()
    """Write streams to be deleted stop taking publishes, where no mapping leads clients away from them."""
    DRAIN_FORMER_STREAMS = auto()
    """Write streams of a layout that the topology has left, once its read streams have everything of them."""
    REMOVE_SOURCES = auto()
    """After the mappings: until then clients may still publish into what is dropped."""
    COMPARE_REPLICAS = auto()
    """What was scaled up from one replica is all there in each of them."""
    DELETE_READ_STREAMS = auto()
    DELETE_ORDERING_STREAMS = auto()
    DELETE_WRITE_STREAMS = auto()
    UNLOAD_FORMER_ACCOUNTS = auto()
    """What servers unload of a layout that the topology has moved away from: until then its streams hand on what they have."""
    REMOVE_SERVERS = auto()
    """Servers stop, and leave the meta group."""

    @property
    def title(self) -> str:
        """Its name, as views show it."""
        return self.name.lower().replace("_", " ")

    @property
    def is_removal(self) -> bool:
        """Whether something goes in it that may hold what other streams lack, or comes after such a stage."""
        return self is Stage.DELETE_REPLACED_COPIES or self >= Stage.DELETE_CONSUMERS


_STAGE_AFTER_GATE: Mapping[GateKind, Stage] = {
    GateKind.MOVE_IS_OVER: Stage.PAUSE_STREAMS,
    GateKind.PUBLISHES_ARE_STORED: Stage.CHANGE_WRITE_STREAMS,
    GateKind.QUORUM_IS_CURRENT: Stage.RESUME_STREAMS,
    GateKind.REPLICAS_ARE_CURRENT: Stage.RESYNC_READERS,
    GateKind.COPIES_HOLD_NO_MORE: Stage.DELETE_READ_STREAMS,
    GateKind.MOVE_IS_RECORDED: Stage.RECORD_MOVES,
    GateKind.REPLICAS_ARE_COMPLETE: Stage.COMPARE_REPLICAS,
    GateKind.COPY_IS_COMPLETE: Stage.STOP_SOURCING,
    GateKind.SOURCED_MESSAGES_ARE_STORED: Stage.CONTINUE_SOURCING,
    GateKind.HAS_ALL_OF_SOURCES: Stage.LOAD_MAPPINGS,
    GateKind.HAS_ALL_OF_FORMER: Stage.LOAD_MAPPINGS,
    GateKind.FORMER_READERS_HAVE_ALL: Stage.DRAIN_FORMER_STREAMS,
    GateKind.READERS_HAVE_ALL: Stage.REMOVE_SOURCES,
    GateKind.NOTHING_HAS_ARRIVED_SINCE: Stage.DELETE_READ_STREAMS,
}
_STAGE_OF_STEP: Mapping[TransitionStep, Stage] = {
    TransitionStep.STOP_SOURCING: Stage.STOP_SOURCING,
    TransitionStep.CONTINUE_SOURCING: Stage.CONTINUE_SOURCING,
    TransitionStep.CLOSE: Stage.CLOSE_WRITE_STREAMS,
    TransitionStep.DETACH: Stage.DETACH_COPIES,
    TransitionStep.OPEN: Stage.OPEN_ORIGINS,
    TransitionStep.PAUSE: Stage.PAUSE_STREAMS,
    TransitionStep.RESUME: Stage.RESUME_STREAMS,
}
_STAGES_BY_ROLE: Mapping[Role, tuple[Stage, Stage]] = {
    Role.WRITE: (Stage.CHANGE_WRITE_STREAMS, Stage.DELETE_WRITE_STREAMS),
    Role.ORIGIN: (Stage.CHANGE_WRITE_STREAMS, Stage.DELETE_WRITE_STREAMS),
    Role.ORDER: (Stage.CHANGE_ORDERING_STREAMS, Stage.DELETE_ORDERING_STREAMS),
    Role.READ: (Stage.CHANGE_READ_STREAMS, Stage.DELETE_READ_STREAMS),
    Role.CATALOG: (Stage.CHANGE_READ_STREAMS, Stage.DELETE_READ_STREAMS),
}
"""By role: when a stream is created or changed, and when it is deleted."""


def stage_after(gate: Gate) -> Stage:
    """The stage that waits for *gate*."""
    return _STAGE_AFTER_GATE[gate.kind]


def stage_of(change: Change) -> Stage:
    """When a change is carried out."""
    if isinstance(change, CreateConsumer | UpdateConsumer | DeleteConsumer):
        if isinstance(change, DeleteConsumer):
            return Stage.DELETE_CONSUMERS
        return (
            Stage.CHANGE_CONSUMERS_AFTER_MAPPINGS
            if shares_account_with_write(change.config.stream)
            else Stage.CHANGE_CONSUMERS
        )
    return _stage_of_stream(change)


def _stage_of_stream(change: StreamChange) -> Stage:
    created, deleted = (
        _STAGES_BY_ROLE[change.role] if change.role else (Stage.CHANGE_READ_STREAMS, Stage.DELETE_READ_STREAMS)
    )
    match change:
        case Delete(is_replaced=True):
            return Stage.DELETE_REPLACED_COPIES
        case Delete():
            return Stage.FORGET_DEAD_ORIGINS if change.is_dead and change.role is Role.ORIGIN else deleted
        case Update(step=TransitionStep() as step):
            return _STAGE_OF_STEP[step]
        case Update() if any(field.path.startswith("sources.") and field.after is None for field in change.fields):
            return Stage.REMOVE_SOURCES
        case _ if _adds_client_subjects(change):
            return Stage.ADD_CLIENT_SUBJECTS
        case _:
            return created


def _adds_client_subjects(change: Create | Update) -> bool:
    if not lists_client_subjects(change.config, change.role):
        return False
    if isinstance(change, Create):
        return True
    return any(field.path == "subjects" and lists_more_subjects(field.before, field.after) for field in change.fields)


def lists_client_subjects(config: StreamConfig, role: Role | None) -> bool:
    """Whether a stream of *role* lists subjects of clients, so that mappings must lead publishes away from it."""
    if role is Role.ORDER:
        return bool(config.subjects)
    if role is not Role.READ or "sources" not in config.fields:
        return False  # a mirror lists none
    profile = profile_named(config.metadata_value(ROUTING_KEY))
    return profile is not None and profile.has_write_beside_read


def lists_more_subjects(before: Json, after: Json) -> bool:
    """Whether the list *after* has items that *before* lacks."""
    former = before if isinstance(before, list) else []
    return any(item not in former for item in (after if isinstance(after, list) else []))


@value_class
class PlanStage:
    """A stage of one plan: what is done in it. It begins once its *gates* hold."""

    stage: Stage
    gates: tuple[Gate, ...]
    changes: tuple[Change, ...] = ()
    rule_changes: tuple[RuleChange, ...] = ()
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
        if self.rule_changes:
            parts.append(f"{len({rule.source for rule in self.rule_changes}):,} to load")
        if self.readers:
            parts.append(f"{len(self.readers):,} to resync")
        if self.servers:
            parts.append(f"{', '.join(self.servers)}: stop, and leave the meta group")
        return ", ".join(parts)


def list_stages(plan: Plan) -> Iterator[PlanStage]:
    """The stages of *plan* in their order. One without anything to do is left out, unless something must hold then."""
    loading = loading_stage_of(plan)
    must_load = loading <= Stage.LOAD_MAPPINGS or bool(plan.unread_servers)
    changes: defaultdict[Stage, list[Change]] = defaultdict(list)
    for change in plan.changes:
        changes[stage_of(change)].append(change)
    gates: defaultdict[Stage, list[Gate]] = defaultdict(list)
    for gate in (*plan.gates, *plan.interrupted_gates):
        gates[stage_after(gate)].append(gate)
    for stage in Stage:
        is_resyncing = stage is Stage.RESYNC_READERS
        plan_stage = PlanStage(
            stage=stage,
            gates=tuple(gates[stage]),
            changes=tuple(changes[stage]),
            rule_changes=plan.rule_changes if stage is loading else (),
            readers=plan.readers_to_resync if is_resyncing else (),
            gates_meanwhile=tuple(gates[Stage.RECORD_MOVES]) if is_resyncing else (),
            servers=plan.leaving_servers if stage is Stage.REMOVE_SERVERS else (),
            waits_for_mappings=must_load and stage > Stage.LOAD_MAPPINGS and stage is not Stage.COMPARE_REPLICAS,
        )
        if plan_stage.changes or plan_stage.rule_changes or plan_stage.gates or plan_stage.servers:
            # Once the first stage that waits for them has begun, they are loaded.
            must_load = must_load and not plan_stage.waits_for_mappings
            yield plan_stage


def loading_stage_of(plan: Plan) -> Stage:
    """
    When servers load what they lack: first where that takes nothing from accounts, else once streams are there.

    And last where it takes away what streams of a former layout need to hand on what they have.
    """
    rules = plan.rule_changes
    if _leaves_former(plan) and all(rule.only_removes for rule in rules):
        return Stage.UNLOAD_FORMER_ACCOUNTS
    is_first = any(rule.kind != RULE for rule in rules) and all(rule.only_adds for rule in rules)
    return Stage.LOAD_ACCOUNTS if is_first else Stage.LOAD_MAPPINGS


def _leaves_former(plan: Plan) -> bool:
    """Whether streams of a layout are deleted that the topology has left, or will not move to."""
    unreached = {rule.source.rpartition(" ")[2] for rule in plan.rule_changes if rule.after is None}
    deleted = [change.config.name for change in plan.changes if isinstance(change, Delete)]
    return any(
        name.startswith(FORMER_PREFIX) or f"{api_prefix(account_in_name(name))}.>" in unreached for name in deleted
    )


def gate_as_dict(gate: Gate) -> dict[str, Any]:
    """*gate* as plain JSON data."""
    return {"gate": gate.kind.value, "stream": gate.stream, "counterparts": gate.counterparts}


def stage_as_dict(stage: PlanStage) -> dict[str, Any]:
    """*stage* as plain JSON data."""
    return {
        "stage": stage.stage.name.lower(),
        "title": stage.title,
        "gates": [
            *([{"gate": "mappings_are_loaded"}] if stage.waits_for_mappings else []),
            *map(gate_as_dict, stage.gates),
        ],
        "changes": [change.config.name for change in stage.changes],
        "servers": stage.servers,
        "readers": stage.readers,
        "mappings": sorted({rule.source for rule in stage.rule_changes}),
    }
