"""References to names in the topology or in the scenario itself."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import quote_value
from vstream.lint.rule import Violation, rule, suggest_closest
from vstream.lint.rules.scenarios.context import ScenarioSubject
from vstream.scenario.actions import ACTIONS, list_action_fields
from vstream.scenario.decode import resolve_link
from vstream.scenario.document import StepDocument, yaml_key
from vstream.scenario.fault_types import Target
from vstream.scenario.fields import split_pair
from vstream.scenario.model import ClientOperation
from vstream.syntax.yaml import Path
from vstream.topology import naming
from vstream.topology.replication import physical_streams

_Named = tuple["Path", str, bool]
"""The path of a name, the name, and whether it is a key."""


@rule("VS503", "unknown-name", Severity.ERROR)
def unknown_name(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A scenario names a region, a server or a stream that the topology does not have.

    ## Why is this bad?
    It cannot be broken, published to or measured.
    """
    if subject.topology is None:
        return
    regions, servers = subject.regions, subject.servers
    names_of = {
        "region": regions,
        "server": servers,
        "region or server": [*regions, *servers],
        "virtual stream": list(subject.streams),
        "stream": [*subject.streams, *_list_physical(subject)],
    }
    for kind, (at, name, on_key) in _list_names(subject):
        if name not in names_of[kind]:
            yield Violation(
                at=at,
                message=f"the topology has no {kind} {quote_value(name)}",
                hint=suggest_closest(name, names_of[kind], f"there are {'these' if names_of[kind] else 'none'}"),
                on_key=on_key,
            )


def _list_physical(subject: ScenarioSubject) -> list[str]:
    names = []
    for stream in subject.streams.values():
        for part in physical_streams(stream):
            names.append(part.name)
    return names


def _list_names(subject: ScenarioSubject) -> Iterator[tuple[str, _Named]]:
    document = subject.document
    for name in document.lab.versions:
        if name != "*":
            yield "region or server", (("lab", "versions", name), name, True)
    for kind in ("publishers", "readers"):
        for index, client in enumerate(getattr(document.workload, kind) or ()):
            place: Path = ("workload", kind, index)
            if client.stream is not None:
                yield "virtual stream", ((*place, "stream"), client.stream, False)
            for number, region in enumerate(client.regions if client.regions != "all" else ()):
                yield "region", ((*place, "regions", number), region, False)
    for index, step in enumerate(document.steps):
        for field in list_action_fields(step):
            yield from _list_targets(subject, index, step, field)
        if step.region is not None:
            yield "region", (("steps", index, "region"), step.region, False)
    yield from _name_kinds(subject)


_NOUN = {Target.REGIONS: "region", Target.SERVERS: "server", Target.MACHINES: "region or server", Target.LINK: "region"}


def _list_targets(subject: ScenarioSubject, index: int, step: StepDocument, field: str) -> Iterator[tuple[str, _Named]]:
    target, value, place = ACTIONS[field].target, getattr(step, field), ("steps", index, yaml_key(field))
    if target is Target.STREAM:
        yield "stream", (place, value, False)
    elif target is Target.SIDES:
        for number, side in enumerate(value):
            for inner, name in enumerate(side):
                yield "region", ((*place, number, inner), name, False)
    elif target is Target.COMMAND:
        for name in value[1:]:
            yield "region", (place, name, False)
    elif target in _NOUN:
        names = _ends(subject, value) if target is Target.LINK else value or ()
        for number, name in enumerate(names):
            yield _NOUN[target], ((*place, number), name, False)


def _ends(subject: ScenarioSubject, value: tuple[str, ...]) -> tuple[str, ...]:
    """The regions of a link; none if the name is ambiguous, which VS507 reports."""
    names = resolve_link(value, subject.topology) if subject.topology is not None else value
    if len(names) != 1:
        return names
    separator = next(sign for sign in naming.LINK_SEPARATORS if sign in names[0])
    return () if naming.link_ends(names[0], subject.regions) else tuple(names[0].split(separator, 1))


def _name_kinds(subject: ScenarioSubject) -> Iterator[tuple[str, _Named]]:
    for index, group in enumerate(subject.document.expect):
        place: Path = ("expect", index)
        if group.stream is not None:
            yield "virtual stream", ((*place, "stream"), group.stream, False)
        for word in ("published", "read", "delivered", "control_plane", "publish_time", "read_time", "publish_gap"):
            for region, _ in getattr(group, word):
                if region is not None:
                    yield "region", ((*place, yaml_key(word), region), region, True)
        for word in ("propagation", "visible"):
            for name, _ in getattr(group, word):
                for region in split_pair(name):
                    yield "region", ((*place, word, name), region, True)
        for region in dict.fromkeys(region for region, *_ in group.works if region is not None):
            yield "region", ((*place, "works", region), region, True)


@rule("VS504", "unknown-window", Severity.ERROR)
def unknown_window(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    An expectation names a window that no step opens.

    ## Why is this bad?
    A window is a step with a name (`as`). Without one, nothing is measured.
    """
    windows = list(subject.windows)
    for index, group in enumerate(subject.document.expect):
        if group.in_ is not None and group.in_ not in windows:
            hint = suggest_closest(group.in_, windows, "named steps") if windows else f"name a step: `as: {group.in_}`"
            yield Violation(
                at=("expect", index, "in"), message=f"no step is called {quote_value(group.in_)}", hint=hint
            )


@rule("VS506", "nothing-to-heal", Severity.ERROR)
def nothing_to_heal(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A step heals a fault that is not open.

    ## Why is this bad?
    The fault has another name, comes later, was healed before, or ended by itself: the scenario does not do what it
    seems to do.
    """
    for moment in subject.moments():
        if moment.field != "heal":
            continue
        place: Path = ("steps", moment.index, "heal")
        names = [open_fault.name for open_fault in moment.open if open_fault.name]
        if not moment.step.heal and not moment.open:
            yield Violation(
                at=place, message="no fault is open here", hint="a fault with `for` heals itself", on_key=True
            )
        for number, name in enumerate(moment.step.heal or ()):
            if name not in names:
                yield Violation(
                    at=(*place, number),
                    message=f"no fault called {quote_value(name)} is open here{_why(subject, name, moment.index)}",
                    hint=suggest_closest(name, names, "open here")
                    if names
                    else "no fault that has a name is open here",
                )


def _why(subject: ScenarioSubject, name: str, before: int) -> str:
    for index, step, field, action in subject.actions():
        if step.as_ == name and index < before:
            if action.fault is None:
                return f": `{yaml_key(field)}` is not a fault"
            if not action.stays_open:
                return f": `{yaml_key(field)}` ends by itself"
            return f": it ends after its `{yaml_key('for_')}`" if step.for_ is not None else ": it was healed before"
    return ""


@rule("VS511", "unknown-operation", Severity.ERROR)
def unknown_operation(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    `works` names an operation that a `try` step does not try.

    ## Why is this bad?
    The result would always be unknown.
    """
    operations = [trial.value for trial in ClientOperation]
    for index, group in enumerate(subject.document.expect):
        for region, operation, _ in group.works:
            if operation not in operations:
                inside = () if region is None else (region,)
                yield Violation(
                    at=("expect", index, "works", *inside, operation),
                    message=f"no operation is called {quote_value(operation)}",
                    hint=suggest_closest(operation, operations, "there are"),
                    on_key=True,
                )
