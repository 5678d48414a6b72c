"""Mappings blocks, of configuration files (server/opts.go, parseAccountMappings) and of account claims (jwt/v2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from vstream.findings import Span
from vstream.lint.reading.nodes import is_text, name_go_type, scalar, value_of
from vstream.lint.workspace import ConfValue, MappingDestination, MappingEntry, MappingFault, MappingForm, MappingsBlock
from vstream.subjects.compile_mapping import go_quote
from vstream.subjects.mapping_rule import Destination, MappingRule
from vstream.subjects.resolve import compile_mappings
from vstream.syntax.natsconf.nodes import ConfArray, ConfEntry, ConfMap, ConfNode, ConfScalar

_ATOI: Final = re.compile(r"[+-]?0*([0-9]+)")
_FIELDS: Final = {"dest": "subject", "destination": "subject", "weight": "weight", "cluster": "cluster"}
_NOT_AN_ENTRY: Final = "Expected an entry for the mapping destination"
_EXAMPLE: Final = "write `{destination: some.subject, weight: 100%}`"


class BlockCache:
    """Blocks of files that several servers include: the same text at the same place is compiled once."""

    def __init__(self) -> None:
        self._blocks: dict[tuple[Span, str | None], MappingsBlock] = {}

    def block(self, entry: ConfEntry, account: str | None) -> MappingsBlock:
        """As `read_conf_block`. Only for entries whose value cannot depend on the including file."""
        key = (entry.key_span, account)
        if key not in self._blocks:
            self._blocks[key] = read_conf_block(entry, account)
        return self._blocks[key]


def read_conf_block(entry: ConfEntry, account: str | None) -> MappingsBlock:
    """The block that is the value of *entry*."""
    node = entry.value
    fault = None
    if not isinstance(node, ConfMap):
        wording = f"interface conversion: interface {{}} is {name_go_type(node)}, not map[string]interface {{}}"
        hint = "write `mappings { source: destination }`"
        fault = MappingFault(message="mappings must be a map", server_message=wording, span=node.span, hint=hint)
    entries = [_read_conf_entry(inner) for inner in node.entries] if isinstance(node, ConfMap) else []
    return make_block(
        entries, form=MappingForm.CONF, account=account, span=node.span, key_span=entry.key_span, fault=fault
    )


def make_block(
    entries: Sequence[MappingEntry],
    *,
    form: MappingForm,
    account: str | None,
    span: Span,
    key_span: Span,
    fault: MappingFault | None = None,
) -> MappingsBlock:
    """A block of *entries*, compiled as an account does it."""
    return MappingsBlock(
        file=span.file,
        form=form,
        account=account,
        span=span,
        key_span=key_span,
        entries=tuple(entries),
        table=compile_mappings(entry.model for entry in entries),
        fault=fault,
    )


def make_entry(
    source: str,
    key_span: Span,
    value_span: Span,
    destinations: Iterable[MappingDestination],
    *,
    is_list: bool,
    faults: Iterable[MappingFault] = (),
) -> MappingEntry:
    """An entry as written, and the mapping that servers read in it."""
    all_destinations = tuple(destinations)
    return MappingEntry(
        source=source,
        key_span=key_span,
        value_span=value_span,
        destinations=all_destinations,
        is_list=is_list,
        model=MappingRule(
            source=source, destinations=tuple([destination.model for destination in all_destinations]), span=key_span
        ),
        clusters=frozenset(
            [destination.model.cluster for destination in all_destinations if destination.model.cluster]
        ),
        faults=tuple(faults),
    )


def make_destination(
    span: Span,
    *,
    subject: ConfValue | None,
    weight: ConfValue | None,
    cluster: ConfValue | None,
    percent: int,
    faults: Sequence[MappingFault] = (),
) -> MappingDestination:
    """A destination as written, and what servers read in it."""
    model = Destination(
        subject=(subject.text or "") if subject else "",
        weight=percent,
        cluster=(cluster.text or None) if cluster else None,
        span=span,
    )
    return MappingDestination(
        subject=subject, weight=weight, cluster=cluster, span=span, model=model, faults=tuple(faults)
    )


def _read_conf_entry(entry: ConfEntry) -> MappingEntry:
    node = entry.value
    destinations: list[MappingDestination] = []
    faults: list[MappingFault] = []
    for item in node.items if isinstance(node, ConfArray) else (node,):
        if isinstance(item, ConfMap):
            destinations.append(_read_conf_destination(item))
        elif item is node and is_text(item):
            subject = value_of(item)
            destinations.append(make_destination(item.span, subject=subject, weight=None, cluster=None, percent=100))
        else:
            message = f"a destination must be a map{'' if isinstance(node, ConfArray) else ' or a subject'}"
            faults.append(MappingFault(message=message, server_message=_NOT_AN_ENTRY, span=item.span, hint=_EXAMPLE))
    return make_entry(
        entry.key, entry.key_span, node.span, destinations, is_list=isinstance(node, ConfArray), faults=faults
    )


def _read_conf_destination(node: ConfMap) -> MappingDestination:
    written: dict[str, ConfValue] = {}
    faults: list[MappingFault] = []
    percent: int | None = None
    for entry in node.entries if len(node.entries) <= 1 else node.effective_entries():
        name = _FIELDS.get(entry.key) or _FIELDS.get(entry.key.lower())
        value = entry.value
        if name is None:
            wording = f"Unknown field {go_quote(entry.key)} for mapping destination"
            message = f"a destination has no field `{entry.key}`"
            hint = "its fields are `destination`, `weight` and `cluster`"
            faults.append(MappingFault(message=message, server_message=wording, span=entry.key_span, hint=hint))
            continue
        written[name] = value_of(value, entry.key_span)
        if name == "weight":
            percent, fault = _read_weight(entry)
            faults += [fault] if fault else []
        elif not is_text(value):
            faults.append(_make_text_fault(entry))
    if "weight" not in written:
        subject = written["subject"].text if "subject" in written else None
        wording = f"Missing weight for mapping destination {go_quote(subject or '')}"
        hint = "add `weight: 100%`, or write the destination without braces"
        faults.append(MappingFault(message="the weight is missing", server_message=wording, span=node.span, hint=hint))
    return make_destination(
        node.span,
        subject=written.get("subject"),
        weight=written.get("weight"),
        cluster=written.get("cluster"),
        percent=100 if percent is None else percent,
        faults=faults,
    )


def _make_text_fault(entry: ConfEntry) -> MappingFault:
    wording = f"interface conversion: interface {{}} is {name_go_type(entry.value)}, not string"
    message = f"`{entry.key}` must be text, not {_describe_node(entry.value)}"
    return MappingFault(
        message=message, server_message=wording, span=entry.value.span, hint="put the value in double quotes"
    )


def _read_weight(entry: ConfEntry) -> tuple[int | None, MappingFault | None]:
    """The percentage that *entry* stands for. One outside 0 to 100 is not a fault here: compiling the rule finds it."""
    node = entry.value
    value = scalar(node)
    if isinstance(value, int) and not isinstance(value, bool):
        return value, None
    hint = "write a percentage from 0% to 100%"
    if not isinstance(value, str) or not is_text(node):
        shown = node.raw if isinstance(node, ConfScalar) else "%v"
        wording = f"Unknown entry type for weight of {shown}"
        message = f"a weight must be a percentage, not {_describe_node(node)}"
        return None, MappingFault(message=message, server_message=wording, span=node.span, hint=hint)
    number = value.removesuffix("%")
    match = _ATOI.fullmatch(number)
    if not match or len(match[1]) > 18:  # noqa: PLR2004 - beyond what strconv.Atoi takes, or far out of range
        wording = f"Invalid weight {go_quote(number)} for mapping destination"
        message = f"`{value}` is not a percentage"
        return None, MappingFault(message=message, server_message=wording, span=node.span, hint=hint)
    return int(number), None


def _describe_node(node: ConfNode) -> str:
    if isinstance(node, ConfScalar):
        return {"boolean": "a boolean", "integer": "a number", "float": "a number", "datetime": "a date"}.get(
            node.kind.value, "text"
        )
    return "a map" if isinstance(node, ConfMap) else "an array"
