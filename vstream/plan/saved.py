"""Plans as JSON: what `vstream plan --output` writes, `vstream apply` reads back, and `--format json` prints."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import Any

from vstream.errors import PlanError
from vstream.plan.plan import (
    Blocked,
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    FieldChange,
    Gate,
    GateKind,
    Handover,
    Note,
    Plan,
    RegionLoss,
    RuleChange,
    Update,
    UpdateConsumer,
    risk_of,
)
from vstream.plan.risk import Risk
from vstream.plan.stages import list_stages, stage_as_dict
from vstream.topology.consumer_config import ConsumerConfig
from vstream.topology.model import Role
from vstream.topology.stream_config import StreamConfig
from vstream.value_class import value_class

FORMAT = 2


@value_class
class SavedPlan:
    """A plan, and the topology that it was made from, so that the file says everything."""

    plan: Plan
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
        "observed": str(plan.observed),
        "changes": [_change(change) for change in plan.changes],
        "blocked": [asdict(blocked) for blocked in plan.blocked],
        "mappings": [{"kind": rule.kind, **asdict(rule)} for rule in plan.rules],
        "demands": [{"option": demand.option, "reason": demand.reason} for demand in plan.demands],
        "unreachable": [{"region": region.region, "reason": region.reason} for region in plan.unreachable],
        "asked": plan.asked,
        "unread_servers": plan.unread_servers,
        "leaving": plan.leaving,
        "gates": [{"gate": item.kind.value, "stream": item.stream, "others": item.counterparts} for item in plan.gates],
        "stages": [stage_as_dict(stage) for stage in list_stages(plan)],
        "notes": [{"name": item.name, "text": item.text} for item in plan.notes],
        "losses": [str(loss) for loss in plan.losses],
        "owned": plan.owned,
    }


def _change(change: Change) -> dict[str, Any]:
    if isinstance(change, CreateConsumer | UpdateConsumer | DeleteConsumer):
        return _consumer_as_dict(change)
    common = {
        "name": change.config.name,
        "region": change.region,
        "role": change.role.value if change.role else None,
        "risk": risk_of(change).value,
        "config": change.config.fields,
    }
    match change:
        case Create():
            return {"action": "create", **common, **({"readers": change.readers} if change.readers else {})}
        case Delete():
            flags = {name: True for name in ("is_dead", "is_replaced") if getattr(change, name)}
            return {"action": "delete", **common, "messages": change.messages, "consumers": change.consumers, **flags}
        case Update():
            handover = {"handover": change.handover.value} if change.handover else {}
            fields = [_field_as_dict(field) for field in change.fields]
            dead_sources = {"given_up": change.dead_sources} if change.dead_sources else {}
            return {"action": "update", **common, "adopts": change.adopts, **handover, **dead_sources, "fields": fields}


def _field_as_dict(change: FieldChange) -> dict[str, Any]:
    data: dict[str, Any] = {
        "field": change.field,
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
            return {"action": "create consumer", **common, **continues}
        case DeleteConsumer():
            return {"action": "delete consumer", **common}
        case UpdateConsumer():
            fields = [_field_as_dict(field) for field in change.fields]
            return {"action": "update consumer", **common, "adopts": change.adopts, "fields": fields}


def dump(saved: SavedPlan) -> str:
    """The text of a plan file."""
    body = {
        "lab": saved.lab,
        "adopt": saved.adopt,
        "lost": saved.lost,
        "topology_file": saved.topology_file,
        "topology_text": saved.topology_text,
        "plan": {**to_dict(saved.plan), "region_losses": [asdict(loss) for loss in saved.plan.losses]},
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
        plan=_plan(body["plan"]),
        topology_file=body["topology_file"],
        topology_text=body["topology_text"],
        lab=body["lab"],
        adopt=tuple(body["adopt"]),
        lost=tuple(body["lost"]),
    )


def _compute_digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _plan(data: dict[str, Any]) -> Plan:
    return Plan(
        topology=data["topology"],
        observed=data["observed"],
        changes=tuple(_parse_change(item) for item in data["changes"]),
        blocked=tuple(Blocked(**item) for item in data["blocked"]),
        rules=tuple(map(_parse_rule, data["mappings"])),
        unread_servers=tuple(data["unread_servers"]),
        leaving=tuple(data.get("leaving", ())),
        gates=tuple(map(_parse_gate, data.get("gates", ()))),  # plans of earlier versions have none
        notes=tuple(Note(**item) for item in data["notes"]),
        losses=tuple(RegionLoss(**item) for item in data.get("region_losses", ())),
        owned=data["owned"],
    )


def _parse_rule(data: dict[str, Any]) -> RuleChange:
    return RuleChange(
        source=data["source"],
        servers=tuple(data["servers"]),
        before=None if data["before"] is None else tuple(data["before"]),
        after=None if data["after"] is None else tuple(data["after"]),
    )


def _parse_gate(data: dict[str, Any]) -> Gate:
    return Gate(kind=GateKind(data["gate"]), stream=data["stream"], counterparts=tuple(data["others"]))


def _parse_change(data: dict[str, Any]) -> Change:
    if "consumer" in data:
        return _parse_consumer_change(data)
    config = StreamConfig(name=data["name"], fields=data["config"])
    role = Role(data["role"]) if data["role"] else None
    if data["action"] == "delete":
        return Delete(
            config=config,
            region=data["region"],
            role=role,
            messages=data["messages"],
            consumers=data.get("consumers", 0),
            is_dead=data.get("is_dead", False),
            is_replaced=data.get("is_replaced", False),
        )
    assert role is not None
    if data["action"] == "create":
        return Create(config=config, region=data["region"], role=role, readers=tuple(data.get("readers", ())))
    return Update(
        config=config,
        region=data["region"],
        role=role,
        adopts=data["adopts"],
        handover=Handover(data["handover"]) if "handover" in data else None,
        dead_sources={name: (seq, last_seq) for name, (seq, last_seq) in data.get("given_up", {}).items()},
        fields=tuple(map(_parse_field, data["fields"])),
    )


def _parse_field(data: dict[str, Any]) -> FieldChange:
    return FieldChange(
        field=data["field"], before=data["before"], after=data["after"], risk=Risk(data["risk"]), why=data["why"]
    )


def _parse_consumer_change(data: dict[str, Any]) -> Change:
    config = ConsumerConfig(stream=data["stream"], durable=data["consumer"], fields=data["config"])
    if data["action"] == "create consumer":
        return CreateConsumer(config=config, region=data["region"], continues=data.get("continues"))
    if data["action"] == "delete consumer":
        return DeleteConsumer(config=config, region=data["region"])
    fields = tuple(map(_parse_field, data["fields"]))
    return UpdateConsumer(config=config, region=data["region"], adopts=data["adopts"], fields=fields)
