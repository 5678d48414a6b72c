"""A plan as text or Markdown."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import assert_never

from rich.text import Text

from vstream.cli.views.cleaning import clean, markdown_code, markdown_text
from vstream.findings import mask_value
from vstream.formatting import format_count
from vstream.plan.model import (
    RULE,
    USERS,
    Change,
    Create,
    CreateConsumer,
    Delete,
    DeleteConsumer,
    FieldChange,
    Plan,
    RuleChange,
    Update,
    UpdateConsumer,
    risk_of,
)
from vstream.plan.risk import Risk
from vstream.plan.stages import Stage, list_stages, stage_of
from vstream.syntax.document import Json
from vstream.topology.bundle import Bundle
from vstream.topology.model import Topology
from vstream.topology.naming import PHYSICAL_PREFIX
from vstream.topology.profiles import profile_of
from vstream.topology.units import spell_nanoseconds, spell_size

_RISK_STYLE = {Risk.SAFE: "green", Risk.DISRUPTIVE: "yellow", Risk.RESOURCING: "bold red", Risk.DATA_LOSS: "bold red"}
_DURATIONS = frozenset({"ack_wait", "max_age", "duplicate_window", "subject_delete_marker_ttl"})
_SIZES = frozenset({"max_bytes", "max_msg_size"})
_SHOWN_OF_CREATE = ("subjects", "num_replicas", "storage", "max_age", "max_bytes", "max_msgs_per_subject")
_SHOWN_OF_CONSUMER = ("filter_subjects", "deliver_policy", "ack_policy", "ack_wait", "max_deliver")
_MANY_RULES_COUNT = 50
_NOTHING = "No changes: the servers are as the topology says."
"""Each costs every message of every client of the account some tens of nanoseconds, and far more the API's own."""
_SIGNS = {"create": "+", "update": "~", "delete": "-"}
_MAX_LINES = 20
"""How many lines are shown before the rest is counted."""


_COUNTED_CHANGES: tuple[tuple[type[Change], str, str, str], ...] = (
    (Create, "streams", "+", "green"),
    (Update, "streams", "~", "yellow"),
    (CreateConsumer, "consumers", "+", "green"),
    (UpdateConsumer, "consumers", "~", "yellow"),
)
_MAX_SERVERS = 3
_OF_STREAM = re.compile(
    rf"(?:^|[. ]){re.escape(PHYSICAL_PREFIX)}\.([^.]+)\.|(?:^|\.)([^. ]+?)-(?:read|write|order)(?:-|\.|$)"
)
"""The virtual stream in the destination of a rule: `_vs.foo.west.foo.>`, `$JS.API.STREAM.INFO.foo-read-west`."""
_COLORS = {"+": "green", "-": "red", "~": "yellow"}


def format_value(field: str, raw: Json) -> str:
    """A value as people write it: durations and sizes with their unit."""
    if raw is None:
        return "none"
    if isinstance(raw, int) and not isinstance(raw, bool):
        if field in _DURATIONS:
            return spell_nanoseconds(raw) if raw or field == "max_age" else "0s"
        if field in _SIZES:
            return spell_size(raw)
        if field.startswith("max_") and raw <= 0:
            return "unlimited"
    return mask_value(field, json.dumps(raw, ensure_ascii=False))


def summarize(plan: Plan) -> str:
    """One sentence: what would be done."""
    if not plan.has_work:
        if plan.are_rules_unknown:
            return (
                "No changes to streams and consumers. Unknown: whether every server has loaded "
                f"the {format_count(plan.desired_rule_count, 'rule')} of the topology."
            )
        if plan.unreachable:
            return "No changes: what answered is as the topology says."
        return _NOTHING
    if plan.is_empty and not plan.readers_to_resync:
        return f"{_NOTHING} `apply` waits until servers have recorded what has just moved, and compares what was scaled up."
    counts = Counter(change.verb for change in plan.changes)
    parts = [f"{counts[verb]} to {verb}" for verb in _SIGNS]
    if plan.blocked:
        parts.append(f"{len(plan.blocked)} blocked")
    text = f"Plan: {', '.join(parts)}"
    if plan.rule_changes:
        servers = {server for rule in plan.rule_changes for server in rule.servers}
        text += f"; {_count_rules(plan)} to load on {format_count(len(servers), 'server')}"
    if plan.interrupted_gates and plan.readers_to_resync:
        text += f"; {format_count(len(plan.readers_to_resync), 'reader')} to resync"
    if plan.leaving_servers:
        text += f"; {format_count(len(plan.leaving_servers), 'server')} to stop"
    return text + "."


def list_demands(plan: Plan) -> list[str]:
    """What `apply` must be given to carry out *plan*, one sentence for each option."""
    return [f"apply needs `{demand.option}`: {demand.reason}." for demand in plan.demands]


def list_unknowns(plan: Plan) -> list[str]:
    """Which regions and servers could not be asked, a sentence each."""
    answered = f"region `{plan.answering_region}` answered for its streams, its servers were not checked"
    sentences = [f"{region.reason}; {answered}" for region in plan.unreachable]
    if plan.unread_servers:
        text = (
            f"could not read the loaded mappings of {', '.join(plan.unread_servers)}: "
            "does `monitor` under `connect` list every server, and do all of them run?"
        )
        waiting = sum(stage_of(change) > Stage.LOAD_MAPPINGS for change in plan.changes)
        sentences.append(f"{text} Until then {format_count(waiting, 'removal')} must wait." if waiting else text)
    return sentences


def describe_routing(topology: Topology, bundle: Bundle) -> str:
    """How clients reach streams, and what every message that they send is compared with (docs/routing.md)."""
    rules = len(bundle.mappings)
    text = (
        f"routing: {topology.routing.value}, {format_count(rules, 'mapping rule')}; "
        f"a publish and its acknowledgement cost a server about {profile_of(topology).acknowledged_publish_us(rules):,.0f} µs"
    )
    if not profile_of(topology).has_roots and rules > _MANY_RULES_COUNT:
        text += ": `routing: accounts` needs 3 and one for each root (docs/routing.md)"
    if named := [f"`{stream.name}`" for stream in topology.streams if stream.is_virtual_name_of_order]:
        text += (
            f"; consumers on {', '.join(named)} live in the stretch cluster: their messages and acknowledgements cross regions, "
            "and a region that is cut off has none (docs/consistency.md)"
        )
    return text


def routing_as_dict(topology: Topology, bundle: Bundle) -> dict[str, Json]:
    """What `routing` says, as plain JSON data."""
    rules = len(bundle.mappings)
    return {
        "profile": topology.routing.value,
        "rules": rules,
        "acknowledged_us": round(profile_of(topology).acknowledged_publish_us(rules), 1),
    }


def render_plan(plan: Plan, *, is_verbose: bool = False, names_options: bool = True) -> Iterator[Text]:
    """
    The whole plan for a terminal: streams in the order of their change, field by field, then mappings.

    More than a few changes of one kind are counted, except those that lose or duplicate messages. Mapping rules are
    folded by stream unless *is_verbose*. What loses messages needs options of `apply`: *names_options*.
    """
    yield from _render_changes(plan)
    for blocked in plan.blocked:
        yield Text.assemble(("  ! ", "bold red"), (blocked.name, "bold"), f" is blocked: {blocked.reason}")
        yield Text.assemble(("      hint: ", "cyan"), blocked.hint)
    yield from _list_rules(plan, is_verbose=is_verbose)
    yield from (Text.assemble(("  ✗ ", "bold red"), str(loss)) for loss in plan.losses)
    for note in plan.notes[:_MAX_LINES]:
        yield Text.assemble(("  · ", "blue"), (note.name, "bold"), f" {note.text}")
    for sentence in list_unknowns(plan):
        yield Text.assemble(("  ? ", "yellow"), sentence)
    for server in plan.leaving_servers:
        yield Text.assemble(("  - ", "bold red"), "server ", (server, "bold"), "  stops and leaves the meta group")
    yield from _render_stage_lines(plan)
    if plan.has_work:
        yield Text("")
    yield Text(summarize(plan), style="bold")
    for sentence in list_demands(plan) if names_options else [f"{demand.reason}." for demand in plan.demands]:
        yield Text(sentence, style="bold red")


def _render_changes(plan: Plan) -> Iterator[Text]:
    counted: set[type[Change]] = set()
    for kind, noun, sign, style in _COUNTED_CHANGES:
        alike = [change for change in plan.changes if isinstance(change, kind) and not risk_of(change).is_destructive]
        if len(alike) > _MAX_LINES:
            counted.add(kind)
            shown = ", ".join(change.config.name for change in alike[:3])
            yield Text.assemble(
                (f"  {sign} ", style),
                f"{len(alike):,} {noun} to {alike[0].verb}: {shown}, … (`--format json` lists all)",
            )
            yield from _render_common_lines(alike, noun.removesuffix("s"))
    for change in plan.changes:
        if type(change) not in counted or risk_of(change).is_destructive:
            yield from _change_lines(change)


def _render_stage_lines(plan: Plan) -> Iterator[Text]:
    """The stages, where there is more than one: what is done in which order, and what must hold before."""
    plan_stages = list(list_stages(plan))
    if len(plan_stages) <= 1 and not any(stage.waits for stage in plan_stages):
        return
    yield Text("")
    yield Text("  in stages:")
    for number, stage in enumerate(plan_stages, 1):
        for clause in stage.waits:
            yield Text.assemble("      until ", clause, style="dim")
        yield Text.assemble(f"   {number:2} ", (stage.title, "bold"), f"  {stage.counts}" if stage.counts else "")


def _render_common_lines(changes: Sequence[Change], noun: str) -> Iterator[Text]:
    """What many updates do: each field once, with the number of streams or consumers that it changes."""
    counts: dict[tuple[str, Risk, str], Counter[tuple[str, str]]] = {}
    for change in changes:
        for field in change.fields if isinstance(change, Update | UpdateConsumer) else ():
            values = format_value(field.path, field.before), format_value(field.path, field.after)
            counts.setdefault((field.path, field.risk, field.why), Counter())[values] += 1
    for (name, risk, why), by_values in counts.items():
        if len(by_values) == 1:
            ((before, after),) = by_values
            values_text = f"{before} → {after}"
        else:
            values_text = f"{len(by_values):,} different values"
        yield Text.assemble(
            f"      {name}: {values_text}  ",
            (f"{risk.value}: {why}", _RISK_STYLE[risk]),
            f"  ({format_count(by_values.total(), noun)})",
        )


def _change_lines(change: Change) -> Iterator[Text]:
    name = (change.config.name, "bold")
    if isinstance(change, CreateConsumer | UpdateConsumer | DeleteConsumer):
        where = f"  consumer in {change.region or '?'}"
    else:
        where = f"  {change.role.value if change.role else 'unknown'} stream in {change.region or '?'}"
    match change:
        case Create() | CreateConsumer():
            yield Text.assemble(("  + ", "green"), name, where)
            yield Text(f"      {' · '.join(_create_details(change))}", style="dim")
        case Update() | UpdateConsumer():
            yield Text.assemble(("  ~ ", "yellow"), name, where, " (adopted)" if change.adopts else "")
            for field in change.fields:
                yield _render_field_line(field)
        case Delete() | DeleteConsumer():
            held = _describe_held(change) if isinstance(change, Delete) else "its position"
            yield Text.assemble(("  - ", "bold red"), name, where, (f"  data loss: {held}", "bold red"))
        case _:
            assert_never(change)


def _describe_held(change: Delete) -> str:
    held = "all its messages" if change.is_dead else format_count(change.messages, "message")
    if change.is_replaced:
        held = f"none of its {held}, which `{change.config.virtual}` has by then"
    elif change.config.mirror_name is not None:  # whether that has lost some to its limits is not known
        held = f"of its {held}, those that `{change.config.mirror_name}` no longer has"
    return held + (f", positions of {format_count(change.consumers, 'consumer')}" if change.consumers else "")


def _create_details(change: Create | CreateConsumer) -> Iterator[str]:
    if isinstance(change, Create) and change.config.mirror_name:
        yield f"mirrors {change.config.mirror_name}"
    if isinstance(change, Create) and change.config.source_names:
        yield f"sources {', '.join(change.config.source_names)}"
    fields = change.config.fields
    for field in _SHOWN_OF_CREATE if isinstance(change, Create) else _SHOWN_OF_CONSUMER:
        if fields.get(field) not in (None, -1, []):
            yield f"{field} {format_value(field, fields[field])}"
    if isinstance(change, Create) and change.readers:
        yield f"starts after the last message that {', '.join(change.readers)} sourced from its predecessor"


def _render_field_line(change: FieldChange) -> Text:
    before, after = format_value(change.path, change.before), format_value(change.path, change.after)
    removal = f"  ({change.removal})" if change.removal is not None else ""
    return Text.assemble(
        f"      {change.path}: {before} → {after}  ",
        (f"{change.risk.value}: {change.why}", _RISK_STYLE[change.risk]),
        removal,
    )


def render_markdown(plan: Plan, routing: str) -> str:
    """The plan as Markdown, for a comment on a pull request, with what *routing* says."""
    lines = [f"### vstream plan: {plan.topology}", "", summarize(plan), ""]
    for sentence in list_demands(plan):
        lines += [f"**{sentence}**", ""]
    lines += [routing, ""]
    if plan.changes or plan.blocked:
        lines += ["| | stream | region | change | risk |", "|---|---|---|---|---|"]
    lines += [_change_row(change) for change in plan.changes]
    for blocked in plan.blocked:
        name, reason = markdown_code(blocked.name), markdown_text(blocked.reason)
        lines.append(f"| ! | {name} | {blocked.region or '?'} | blocked: {reason} | |")
    if plan.rule_changes:
        lines += ["", "| | loaded | servers |", "|---|---|---|"]
    lines += [_format_rule_row(rule) for rule in plan.rule_changes]
    plan_stages = list(list_stages(plan))
    if len(plan_stages) > 1:
        lines += ["", "| stage | changes | begins when |", "|---|---|---|"]
        for number, stage in enumerate(plan_stages, 1):
            lines.append(f"| {number} | {stage.title}: {stage.counts} | {markdown_text('; '.join(stage.waits))} |")
    lines += [f"- **data loss**: {markdown_text(str(loss))}" for loss in plan.losses]
    lines += [f"- {markdown_code(note.name)} {markdown_text(note.text)}" for note in plan.notes]
    for sentence in list_unknowns(plan):
        lines += ["", markdown_text(sentence)]
    return "\n".join(map(clean, lines)) + "\n"


def _change_row(change: Change) -> str:
    details = change.verb
    if isinstance(change, Update | UpdateConsumer):
        details = "<br>".join(_format_field_cell(field) for field in change.fields)
    return f"| {_SIGNS[change.verb]} | {markdown_code(change.config.name)} | {change.region or '?'} | {details} | {risk_of(change).value} |"


def _format_field_cell(change: FieldChange) -> str:
    before, after = format_value(change.path, change.before), format_value(change.path, change.after)
    why = change.why if change.removal is None else f"{change.why}; {change.removal}"
    return f"{markdown_code(change.path)}: {markdown_code(before)} → {markdown_code(after)} ({markdown_text(why)})"


def _format_rule_row(rule: RuleChange) -> str:
    kind, (about, _) = _name_rule(rule)
    kind = "" if rule.kind == RULE else kind
    return f"| {_sign_of(rule)} | {kind}{markdown_code(about)} | {', '.join(rule.servers)} |"


def _count_rules(plan: Plan) -> str:
    """How much there is to load: `1 mapping rule and 18 entries of accounts`."""
    sources = {rule.source: rule.kind == RULE for rule in plan.rule_changes}
    rules = sum(sources.values())
    entries = len(sources) - rules
    parts = []
    if rules:
        parts.append(format_count(rules, "mapping rule"))
    if entries:
        parts.append(format_count(entries, "entry of accounts", "entries of accounts"))
    return " and ".join(parts)


def _list_rules(plan: Plan, *, is_verbose: bool = False) -> Iterator[Text]:
    """What servers load: folded by stream and account, or each rule and entry with what changes there."""
    if is_verbose:
        for rule in plan.rule_changes:
            yield from _render_rule_lines(rule)
        return
    groups: dict[tuple[str, str, tuple[str, ...]], list[RuleChange]] = {}
    for rule in plan.rule_changes:
        groups.setdefault((_sign_of(rule), _subject_of(rule), rule.servers), []).append(rule)
    for number, ((sign, about, servers), rules) in enumerate(groups.items()):
        if number == _MAX_LINES:
            more = len(groups) - _MAX_LINES
            yield Text(f"    … and {more:,} more groups of rules (`--verbose` shows all)", style="dim")
            return
        if len(rules) == 1:
            yield from _render_rule_lines(rules[0])
            continue
        noun = "rules" if rules[0].kind == RULE else "entries"
        yield Text.assemble(
            (f"  {sign} ", _COLORS[sign]), (about, "bold"), f": {len(rules):,} {noun} on {_format_servers(servers)}"
        )


def _subject_of(rule: RuleChange) -> str:
    """What a rule is grouped by: the virtual stream that it leads to, or its account."""
    if rule.kind != RULE:
        return "accounts" if rule.kind == USERS else f"account {rule.source.split(' ')[1]}"
    for destination in (*(rule.after or ()), *(rule.before or ())):
        if match := _OF_STREAM.search(destination):
            return f"mappings of {match[1] or match[2]}"
    return "mappings"


def _render_rule_lines(rule: RuleChange) -> Iterator[Text]:
    sign = _sign_of(rule)
    yield Text.assemble((f"  {sign} ", _COLORS[sign]), *_name_rule(rule), f"  on {_format_servers(rule.servers)}")
    if rule.kind == USERS:
        return  # two digests, which mean nothing to a reader
    for before in rule.before or ():
        if rule.after is not None and before not in rule.after:
            yield Text(f"      - {before}", style="dim")
    for after in rule.after or ():
        if rule.before is not None and after not in rule.before:
            yield Text(f"      + {after}", style="dim")


def _sign_of(rule: RuleChange) -> str:
    """`+`, `-` or `~`: whether it comes, goes or changes."""
    if rule.before is None:
        return "+"
    return "-" if rule.after is None else "~"


def _name_rule(rule: RuleChange) -> tuple[str, tuple[str, str]]:
    """What is loaded: `mapping foo.>`, `import APP prices.>`, `users, and how long answers may take`."""
    if rule.kind == RULE:
        return "mapping ", (rule.source, "bold")
    if rule.kind == USERS:
        return "", ("users, and how long answers may take", "bold")
    kind, _, about = rule.source.partition(" ")
    return f"{kind} ", (about, "bold")


def _format_servers(names: tuple[str, ...]) -> str:
    return ", ".join(names) if len(names) < _MAX_SERVERS else f"{len(names):,} servers"
