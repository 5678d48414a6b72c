"""The stages of a plan: what is done together, and what must hold before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vstream.plan.plan import Create, CreateConsumer, Delete, DeleteConsumer, Phase, Update, UpdateConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vstream.plan.gates import Gate
    from vstream.plan.plan import Change, Plan, RuleChange

_TITLES = {
    Phase.ACCOUNTS: "accounts",
    Phase.WRITE_STREAMS: "write streams",
    Phase.ORDER_STREAMS: "order streams",
    Phase.READ_STREAMS: "read streams",
    Phase.STOPPED_COPIES: "readers stop",
    Phase.SOURCED_COPIES: "readers source on",
    Phase.CONSUMERS: "consumers",
    Phase.MAPPINGS: "mappings",
    Phase.NAMED_STREAMS: "streams are named",
    Phase.NAMED_CONSUMERS: "consumers",
    Phase.DELETED_CONSUMERS: "consumers go",
    Phase.CLOSED_WRITE_STREAMS: "write streams close",
    Phase.FORMER_STREAMS: "former streams end",
    Phase.DROPPED_SOURCES: "sources go",
    Phase.DELETED_READ_STREAMS: "read streams go",
    Phase.DELETED_ORDER_STREAMS: "order streams go",
    Phase.DELETED_WRITE_STREAMS: "write streams go",
    Phase.FORMER_ACCOUNTS: "former accounts go",
    Phase.RETIRED_SERVERS: "servers go",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStage:
    """One step of a plan. It begins once its *gates* hold."""

    phase: Phase
    gates: tuple[Gate, ...]
    changes: tuple[Change, ...] = ()
    rules: tuple[RuleChange, ...] = ()
    servers: tuple[str, ...] = ()
    """Those that stop, and leave the meta group."""
    waits_for_mappings: bool = False
    """Whether every server must have loaded the mappings first."""

    @property
    def title(self) -> str:
        """What it is about."""
        return _TITLES[self.phase]

    @property
    def waits(self) -> tuple[str, ...]:
        """What must hold before, each as a clause that follows `until`."""
        loaded = ("every server has loaded the mappings",) if self.waits_for_mappings else ()
        return (*loaded, *map(str, self.gates))

    @property
    def counts(self) -> str:
        """How much is done: `2 to create, 1 to update`."""
        kinds = (
            (Create | CreateConsumer, "create"),
            (Update | UpdateConsumer, "update"),
            (Delete | DeleteConsumer, "delete"),
        )
        parts = [
            f"{number:,} to {verb}"
            for kind, verb in kinds
            if (number := sum(isinstance(change, kind) for change in self.changes))
        ]
        if self.rules:
            parts.append(f"{len({rule.source for rule in self.rules}):,} to load")
        if self.servers:
            parts.append(f"{', '.join(self.servers)}: stop, and leave the meta group")
        return ", ".join(parts)


def stages(plan: Plan) -> Iterator[PlanStage]:
    """The stages of *plan* in their order. One without anything to do is left out, unless something must hold then."""
    waits = False
    for phase in Phase:
        stage = PlanStage(
            phase=phase,
            gates=tuple(gate for gate in plan.gates if gate.before is phase),
            changes=plan.in_phase(phase),
            rules=plan.rules if phase is plan.loaded_in else (),
            servers=plan.leaving if phase is Phase.RETIRED_SERVERS else (),
            # Once the first stage after the mappings has begun, they are loaded.
            waits_for_mappings=phase > Phase.MAPPINGS >= plan.loaded_in and not waits,
        )
        if stage.changes or stage.rules or stage.gates or stage.servers:
            waits = waits or stage.waits_for_mappings
            yield stage


def as_dict(stage: PlanStage) -> dict[str, Any]:
    """*stage* as plain JSON data."""
    return {
        "stage": stage.phase.name.lower(),
        "title": stage.title,
        "gates": [
            *([{"gate": "loaded"}] if stage.waits_for_mappings else []),
            *({"gate": gate.kind.value, "stream": gate.stream, "others": gate.others} for gate in stage.gates),
        ],
        "changes": [change.config.name for change in stage.changes],
        "servers": stage.servers,
        "mappings": sorted({rule.source for rule in stage.rules}),
    }
