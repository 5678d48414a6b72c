"""A plan as text or Markdown."""

from __future__ import annotations

import json
from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, assert_never

from rich.text import Text

from vstream.cli.views import loaded
from vstream.cli.views.cleaning import clean, markdown_code, markdown_text
from vstream.health.sizing import publish_cost_s
from vstream.plan.plan import (
    RULE,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    Phase,
    Plan,
    Update,
    UpdateConsumer,
    phase_of,
    risk_of,
)
from vstream.plan.risk import Risk
from vstream.plan.stages import stages
from vstream.topology.profiles import profile_of
from vstream.topology.units import format_duration, format_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from vstream.plan.plan import Change, FieldChange
    from vstream.syntax.json_types import Json
    from vstream.topology.bundle import Bundle
    from vstream.topology.model import Topology

_RISK_STYLE = {Risk.SAFE: "green", Risk.DISRUPTIVE: "yellow", Risk.RESOURCING: "bold red", Risk.DATA_LOSS: "bold red"}
_DURATIONS = frozenset({"ack_wait", "max_age", "duplicate_window", "subject_delete_marker_ttl"})
_SIZES = frozenset({"max_bytes", "max_msg_size"})
_SHOWN_OF_CREATE = ("subjects", "num_replicas", "storage", "max_age", "max_bytes", "max_msgs_per_subject")
_MANY_RULES = 50
"""Each costs every message of every client of the account some tens of nanoseconds, and far more the API's own."""
_FEW = 20
"""How many equal lines are shown before the rest is counted."""


_COUNTED: tuple[tuple[type[Change], str, str, str], ...] = (
    (Create, "streams", "+", "green"),
    (Update, "streams", "~", "yellow"),
    (CreateConsumer, "consumers", "+", "green"),
    (UpdateConsumer, "consumers", "~", "yellow"),
)


class _FieldLine(NamedTuple):
    """One field change as it is shown."""

    field: str
    before: str
    after: str
    risk: Risk
    why: str


class PlanFormat(StrEnum):
    """How a plan is written."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


def value(field: str, raw: Json) -> str:
    """A value as people write it: durations and sizes with their unit."""
    if raw is None:
        return "none"
    if isinstance(raw, int) and not isinstance(raw, bool):
        if field in _DURATIONS:
            return format_duration(raw) if raw or field == "max_age" else "0s"
        if field in _SIZES:
            return format_size(raw)
        if field.startswith("max_") and raw <= 0:
            return "unlimited"
    return json.dumps(raw, ensure_ascii=False)


def summary(plan: Plan) -> str:
    """One sentence: what would be done."""
    if plan.is_empty:
        return "No changes: the servers are as the topology says."
    counts = {"create": 0, "update": 0, "delete": 0}
    for change in plan.changes:
        counts[_verb(change)] += 1
    parts = [f"{counts['create']} to create", f"{counts['update']} to update", f"{counts['delete']} to delete"]
    if plan.blocked:
        parts.append(f"{len(plan.blocked)} blocked")
    text = f"Plan: {', '.join(parts)}"
    if plan.rules:
        servers = {server for rule in plan.rules for server in rule.servers}
        text += f"; {loaded.count_rules(plan)} to load on {_count(len(servers), 'server')}"
    if plan.leaving:
        text += f"; {_count(len(plan.leaving), 'server')} to stop"
    return text + "."


def routing(topology: Topology, bundle: Bundle) -> str:
    """How clients reach streams, and what every message that they send is compared with (docs/routing.md)."""
    rules = len(bundle.mappings)
    said = (
        f"routing: {topology.routing.value}, {_count(rules, 'mapping rule')} for every publish, "
        f"about {publish_cost_s(topology, rules) * 1e6:,.0f} µs of a server for an acknowledged one"
    )
    if profile_of(topology).has_physical_names and rules > _MANY_RULES:
        said += ": `routing: accounts` needs 3 and one for each root (docs/routing.md)"
    if named := [f"`{stream.name}`" for stream in topology.streams if stream.is_order_named]:
        said += (
            f"; consumers on {', '.join(named)} live in the stretch cluster: their messages and acknowledgements cross regions, "
            "and a region that is cut off has none (docs/consistency.md)"
        )
    return said


def routing_as_dict(topology: Topology, bundle: Bundle) -> dict[str, Json]:
    """What `routing` says, as plain JSON data."""
    rules = len(bundle.mappings)
    return {
        "profile": topology.routing.value,
        "rules": rules,
        "acknowledged_us": round(publish_cost_s(topology, rules) * 1e6, 1),
    }


def text(plan: Plan, *, is_verbose: bool = False) -> Iterator[Text]:
    """
    The whole plan for a terminal: streams in the order of their change, field by field, then mappings.

    More than a few changes of one kind are counted, except those that lose or double messages.
    """
    counted: set[type[Change]] = set()
    for kind, noun, sign, style in _COUNTED:
        alike = [change for change in plan.changes if isinstance(change, kind) and not risk_of(change).is_destructive]
        if len(alike) > _FEW:
            counted.add(kind)
            shown = ", ".join(change.config.name for change in alike[:3])
            yield Text.assemble(
                (f"  {sign} ", style),
                f"{len(alike):,} {noun} to {_verb(alike[0])}: {shown}, … (`--format json` lists all)",
            )
            yield from _common_lines(alike, noun.removesuffix("s"))
    for change in plan.changes:
        if type(change) not in counted or risk_of(change).is_destructive:
            yield from _change_lines(change)
    for blocked in plan.blocked:
        yield Text.assemble(("  ! ", "bold red"), (blocked.name, "bold"), f" is blocked: {blocked.reason}")
        yield Text.assemble(("      hint: ", "cyan"), blocked.hint)
    yield from loaded.lines(plan, is_verbose=is_verbose)
    yield from (Text.assemble(("  ✗ ", "bold red"), loss) for loss in plan.losses)
    for note in plan.notes[:_FEW]:
        yield Text.assemble(("  · ", "blue"), (note.name, "bold"), f" {note.text}")
    if plan.unread_servers:
        yield Text.assemble(("  ? ", "yellow"), _unread(plan))
    for server in plan.leaving:
        yield Text.assemble(("  - ", "bold red"), "server ", (server, "bold"), "  stops, and leaves the meta group")
    yield from _stage_lines(plan)
    if not plan.is_empty:
        yield Text("")
    yield Text(summary(plan), style="bold")


def _stage_lines(plan: Plan) -> Iterator[Text]:
    """The stages, where there is more than one: what is done in which order, and what must hold before."""
    found = list(stages(plan))
    if len(found) < 2 and not any(stage.waits for stage in found):  # noqa: PLR2004
        return
    yield Text("")
    yield Text("  in stages:")
    for number, stage in enumerate(found, 1):
        for clause in stage.waits:
            yield Text.assemble("      until ", clause, style="dim")
        yield Text.assemble(f"   {number:2} ", (stage.title, "bold"), f"  {stage.counts}" if stage.counts else "")


def _common_lines(changes: Sequence[Change], noun: str) -> Iterator[Text]:
    """What many updates do: each field once, with the number of those that it changes of."""
    fields = Counter(
        _FieldLine(
            field.field, value(field.field, field.before), value(field.field, field.after), field.risk, field.why
        )
        for change in changes
        if isinstance(change, Update | UpdateConsumer)
        for field in change.fields
    )
    by_field: dict[tuple[str, Risk, str], list[tuple[_FieldLine, int]]] = {}
    for line, number in fields.items():
        by_field.setdefault((line.field, line.risk, line.why), []).append((line, number))
    for (name, risk, why), lines in by_field.items():
        total = sum(number for _, number in lines)
        what = f"{lines[0][0].before} → {lines[0][0].after}" if len(lines) == 1 else f"{len(lines):,} different values"
        yield Text.assemble(
            f"      {name}: {what}  ", (f"{risk.value}: {why}", _RISK_STYLE[risk]), f"  ({_count(total, noun)})"
        )


def _change_lines(change: Change) -> Iterator[Text]:
    if isinstance(change, CreateConsumer | UpdateConsumer | DeleteConsumer):
        yield from _consumer_lines(change)
        return
    name = (change.config.name, "bold")
    where = f"  {change.role.value if change.role else 'unknown'} stream in {change.region or '?'}"
    match change:
        case Create():
            shown = [
                f"{field} {value(field, change.config.fields[field])}"
                for field in _SHOWN_OF_CREATE
                if field in change.config.fields and change.config.fields[field] not in (-1, [])
            ]
            sources = change.config.source_names
            if sources:
                shown.insert(0, f"sources {', '.join(sources)}")
            if change.config.mirror_name:
                shown.insert(0, f"mirrors {change.config.mirror_name}")
            if change.readers:
                shown.append(f"begins after what {', '.join(change.readers)} took of one before")
            yield Text.assemble(("  + ", "green"), name, where)
            yield Text(f"      {' · '.join(shown)}", style="dim")
        case Update():
            yield Text.assemble(("  ~ ", "yellow"), name, where, " (adopted)" if change.adopts else "")
            for field in change.fields:
                yield _field_line(field)
        case Delete():
            held = "whatever it held" if change.is_dead else _count(change.messages, "message")
            yield Text.assemble(("  - ", "bold red"), name, where, (f"  data loss: {held}", "bold red"))
        case _:
            assert_never(change)


def _consumer_lines(change: CreateConsumer | UpdateConsumer | DeleteConsumer) -> Iterator[Text]:
    name, where = (change.config.name, "bold"), f"  consumer in {change.region or '?'}"
    match change:
        case CreateConsumer():
            shown = [
                f"{field} {value(field, change.config.fields[field])}"
                for field in ("filter_subjects", "deliver_policy", "ack_policy", "ack_wait", "max_deliver")
                if change.config.fields.get(field) not in (None, -1)
            ]
            yield Text.assemble(("  + ", "green"), name, where)
            yield Text(f"      {' · '.join(shown)}", style="dim")
        case UpdateConsumer():
            yield Text.assemble(("  ~ ", "yellow"), name, where, " (adopted)" if change.adopts else "")
            for field in change.fields:
                yield _field_line(field)
        case DeleteConsumer():
            yield Text.assemble(("  - ", "bold red"), name, where, ("  data loss: how far it is", "bold red"))


def _field_line(change: FieldChange) -> Text:
    return Text.assemble(
        f"      {change.field}: {value(change.field, change.before)} → {value(change.field, change.after)}  ",
        (f"{change.risk.value}: {change.why}", _RISK_STYLE[change.risk]),
    )


def _unread(plan: Plan) -> str:
    said = (
        f"what is loaded could not be read on {', '.join(plan.unread_servers)}: "
        "does `monitor` under `connect` list every server, and do all of them run?"
    )
    waiting = sum(phase_of(change) > Phase.MAPPINGS for change in plan.changes)
    return f"{said} Until then {_count(waiting, 'removal')} must wait." if waiting else said


def markdown(plan: Plan, routing: str) -> str:
    """The plan as Markdown, for a comment on a pull request, with what *routing* says."""
    lines = [f"### vstream plan: {plan.topology}", "", summary(plan), "", routing, ""]
    if plan.changes or plan.blocked:
        lines += ["| | stream | region | change | risk |", "|---|---|---|---|---|"]
    for change in plan.changes:
        if isinstance(change, Update | UpdateConsumer):
            details = "<br>".join(
                f"{markdown_code(one.field)}: {markdown_code(value(one.field, one.before))} → "
                f"{markdown_code(value(one.field, one.after))} ({markdown_text(one.why)})"
                for one in change.fields
            )
        else:
            details = _verb(change)
        lines.append(
            f"| {_sign(change)} | {markdown_code(change.config.name)} | {change.region or '?'} | {details} | {risk_of(change).value} |"
        )
    lines += [
        f"| ! | {markdown_code(one.name)} | {one.region or '?'} | blocked: {markdown_text(one.reason)} | |"
        for one in plan.blocked
    ]
    if plan.rules:
        lines += ["", "| | loaded | servers |", "|---|---|---|"]
        for rule in plan.rules:
            sign = "+" if rule.before is None else "-" if rule.after is None else "~"
            kind, (about, _) = loaded.name_rule(rule)
            lines.append(
                f"| {sign} | {kind if rule.kind != RULE else ''}{markdown_code(about)} | {', '.join(rule.servers)} |"
            )
    found = list(stages(plan))
    if len(found) > 1:
        lines += ["", "| stage | what | begins once |", "|---|---|---|"]
        lines += [
            f"| {number} | {stage.title}: {stage.counts} | {markdown_text('; '.join(stage.waits))} |"
            for number, stage in enumerate(found, 1)
        ]
    lines += [f"- **data loss**: {markdown_text(loss)}" for loss in plan.losses]
    lines += [f"- {markdown_code(note.name)} {markdown_text(note.text)}" for note in plan.notes]
    if plan.unread_servers:
        lines += ["", f"{_unread(plan)}"]
    return "\n".join(map(clean, lines)) + "\n"


def _verb(change: Change) -> str:
    match change:
        case Create() | CreateConsumer():
            return "create"
        case Update() | UpdateConsumer():
            return "update"
        case Delete() | DeleteConsumer():
            return "delete"
        case _:
            assert_never(change)


def _sign(change: Change) -> str:
    return {"create": "+", "update": "~", "delete": "-"}[_verb(change)]


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
