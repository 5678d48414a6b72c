"""Plans as JSON: what `--format json` prints, and `vstream plan --output` writes for `vstream apply` to compare."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from vstream.errors import PlanError, StalePlanError
from vstream.plan.model import (
    Blocked,
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    FieldChange,
    GateKind,
    Plan,
    Update,
    UpdateConsumer,
    risk_of,
)
from vstream.plan.stages import gate_as_dict, list_stages, stage_as_dict
from vstream.value_class import value_class

FORMAT = 3
_FOLLOWING = frozenset({"demands", "stages"})
"""Parts of a plan that follow from the others."""
_MEASURED = frozenset({"unreachable", "answering_region", "messages", "consumers", "dead_sources", "removes_now"})
"""What is measured each time that a plan is made: regions come back, and clients keep publishing."""


@value_class
class SavedPlan:
    """A plan, and the topology that it was made from, so that the file says everything."""

    plan: Mapping[str, Any]
    """As plain JSON data: what is carried out is a plan that is made again, and must be the same."""
    topology_file: str
    topology_text: str
    lab: str | None
    """The lab that it was made against, None for the topology's own servers."""
    adopt: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """Regions that are given up."""


def to_dict(plan: Plan) -> dict[str, Any]:
    """A plan as plain JSON data."""
    return {
        "topology": plan.topology,
        "observed_digest": str(plan.observed_digest),
        "changes": [_change_as_dict(change) for change in plan.changes],
        "blocked": [_blocked_as_dict(blocked) for blocked in plan.blocked],
        "mappings": [{"kind": rule.kind, **asdict(rule)} for rule in plan.rule_changes],
        "demands": [{"option": demand.option, "reason": demand.reason} for demand in plan.demands],
        "unreachable": [{"region": region.region, "reason": region.reason} for region in plan.unreachable],
        "answering_region": plan.answering_region,
        "unread_servers": plan.unread_servers,
        "leaving_servers": plan.leaving_servers,
        "gates": [gate_as_dict(gate) for gate in plan.gates],
        "stages": [stage_as_dict(stage) for stage in list_stages(plan)],
        "notes": [{"name": item.name, "text": item.text} for item in plan.notes],
        "losses": [str(loss) for loss in plan.losses],
        "owned_stream_count": plan.owned_stream_count,
    }


def _blocked_as_dict(blocked: Blocked) -> dict[str, Any]:
    return {"name": blocked.name, "region": blocked.region, "reason": blocked.reason, "hint": blocked.hint}


def _change_as_dict(change: Change) -> dict[str, Any]:
    if isinstance(change, CreateConsumer | UpdateConsumer | DeleteConsumer):
        return _consumer_as_dict(change)
    common = {
        "action": change.verb,
        "name": change.config.name,
        "region": change.region,
        "role": change.role.value if change.role else None,
        "risk": risk_of(change).value,
        "config": change.config.fields,
    }
    match change:
        case Create():
            return {**common, **({"readers": change.readers} if change.readers else {})}
        case Delete():
            flags = {name: True for name in ("is_dead", "is_replaced") if getattr(change, name)}
            return {**common, "messages": change.messages, "consumers": change.consumers, **flags}
        case Update():
            step = {"step": change.step.value} if change.step else {}
            fields = [_field_as_dict(field) for field in change.fields]
            dead_sources = {"dead_sources": change.dead_sources} if change.dead_sources else {}
            return {**common, "adopts": change.adopts, **step, **dead_sources, "fields": fields}


def _field_as_dict(change: FieldChange) -> dict[str, Any]:
    data: dict[str, Any] = {
        "field": change.path,
        "before": change.before,
        "after": change.after,
        "risk": change.risk.value,
        "why": change.why,
    }
    if change.removal is not None:
        data["removes_now"] = {"at_most": change.removal.at_most, "of": change.removal.held}
    return data


def _consumer_as_dict(change: CreateConsumer | UpdateConsumer | DeleteConsumer) -> dict[str, Any]:
    common = {
        "action": f"{change.verb} consumer",
        "name": change.config.name,
        "stream": change.config.stream,
        "consumer": change.config.durable,
        "region": change.region,
        "risk": risk_of(change).value,
        "config": change.config.fields,
    }
    match change:
        case CreateConsumer():
            continues = {"continues": change.continues} if change.continues else {}
            return {**common, **continues}
        case DeleteConsumer():
            return common
        case UpdateConsumer():
            fields = [_field_as_dict(field) for field in change.fields]
            return {**common, "adopts": change.adopts, "fields": fields}


def dump(saved: SavedPlan) -> str:
    """The text of a plan file."""
    body = {
        "lab": saved.lab,
        "adopt": saved.adopt,
        "lost": saved.lost,
        "topology_file": saved.topology_file,
        "topology_text": saved.topology_text,
        "plan": saved.plan,
    }
    # The digest guards against a file that was edited or cut: apply carries out exactly what was reviewed.
    return json.dumps({"format": FORMAT, "digest": _compute_digest(body), **body}, indent=2, ensure_ascii=False) + "\n"


def parse(text: str, file: str) -> SavedPlan:
    """Read a plan file. Raises PlanError if it is none, was edited, or comes from another version of the format."""
    try:
        data = json.loads(text)
        body = {key: data[key] for key in ("lab", "adopt", "lost", "topology_file", "topology_text", "plan")}
        version, digest = data["format"], data["digest"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise PlanError(f"{file} is not a plan file", hint="`vstream plan --output plan.json` writes one") from None
    if version != FORMAT:
        raise PlanError(f"{file} has format {version}, this vstream reads {FORMAT}", hint="run `vstream plan` again")
    if digest != _compute_digest(body):
        raise PlanError(f"{file} was changed after it was written", hint="run `vstream plan` again")
    return SavedPlan(
        plan=body["plan"],
        topology_file=body["topology_file"],
        topology_text=body["topology_text"],
        lab=body["lab"],
        adopt=tuple(body["adopt"]),
        lost=tuple(body["lost"]),
    )


def _compute_digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def require_same(fresh: Plan, reviewed: Mapping[str, Any]) -> None:
    """Require that *fresh* does what was *reviewed*, a plan as plain JSON data. Raises StalePlanError."""
    if _select_compared(to_dict(fresh)) == _select_compared(reviewed):
        return
    if str(fresh.observed_digest) != reviewed["observed_digest"]:
        raise StalePlanError(
            "the servers have changed since the plan was made",
            hint="run `vstream plan` again and review what is different",
        )
    raise StalePlanError(
        "this vstream plans other changes than the one that wrote the file",
        hint="run `vstream plan` again and review what is different; `--templates` must be the same for both",
    )


def _select_compared(plan: Mapping[str, Any]) -> dict[str, Any]:
    """What plans that do the same have in common. Those of earlier versions lack some empty lists."""

    def select(part: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if key not in _MEASURED}

    plan = json.loads(json.dumps(plan))  # as a file has it
    changes = [select(change) for change in plan["changes"]]
    for change in changes:
        change["fields"] = [select(field) for field in change.get("fields", ())]
    # A move that an earlier run began has ended since: there is less to wait for.
    gates = [gate for gate in plan["gates"] if gate["gate"] != GateKind.MOVE_IS_OVER.value]
    compared = {key: value for key, value in select(plan).items() if key not in _FOLLOWING and value}
    return {**compared, "changes": changes, "gates": gates}
