"""Faults and steps that cannot be carried out, or not at that time."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import quote_names
from vstream.lint.rule import Violation, rule
from vstream.lint.rules.scenarios.context import ScenarioSubject
from vstream.scenario.actions import ACTIONS, OPTIONS, list_action_fields
from vstream.scenario.decode import resolve_link
from vstream.scenario.document import StepDocument, yaml_key
from vstream.scenario.fault_types import Effect, Target
from vstream.scenario.timeline import OpenFaultStep, StepContext, index_servers, list_servers_named
from vstream.syntax.yaml import Path
from vstream.topology import naming
from vstream.topology.model import Topology
from vstream.topology.units import spell_nanoseconds


@rule("VS507", "impossible-fault", Severity.ERROR)
def impossible_fault(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A fault cannot be injected into these servers.

    ## Why is this bad?
    It would be reported as unsupported, and the run as unknown, never as a pass. Links exist only between two regions,
    and `lab.links` must provide them. A virtual stream has one leader in each region.
    """
    for index, step, field, action in subject.actions():
        place: Path = ("steps", index, yaml_key(field))
        if action.fault is None:
            continue
        if action.fault.effect in {Effect.LINKS, Effect.LINK_QUALITY}:
            yield from _check_no_links(subject, place)
        if action.target is Target.SIDES:
            yield from _check_sides(step, place)
        if action.target is Target.LINK and subject.topology is not None:
            yield from _check_link(resolve_link(step.link or (), subject.topology), subject.regions, place)
        hubs = subject.topology.hubs if subject.topology is not None else None
        if action.fault.effect is Effect.META_LEADER and hubs is not None:
            yield Violation(
                at=place,
                message="with `routing: domains`, each region has its own JetStream meta leader",
                hint="`kill-server` names one",
                on_key=True,
            )
        if action.target is Target.STREAM:
            yield from _check_leader(subject, step, field, place)


def _check_no_links(subject: ScenarioSubject, place: Path) -> Iterator[Violation]:
    if subject.document.lab.links == "none":
        yield Violation(
            at=place,
            message="with `links: none`, links between regions cannot be changed",
            hint="remove `links: none` under `lab`",
            on_key=True,
        )
    elif subject.topology is not None and len(subject.topology.regions) == 1:
        yield Violation(
            at=place,
            message="a topology of one region has no links",
            hint="`pause` and the kill faults also work in one region",
            on_key=True,
        )


def _check_link(names: tuple[str, ...], regions: list[str], place: Path) -> Iterator[Violation]:
    meant = naming.link_ends(names[0], regions) if len(names) == 1 else ()
    if len(names) > 1 and names[0] == names[1]:
        yield Violation(at=place, message=f"`{names[0]}` has no link to itself", hint="name two regions")
    elif len(meant) > 1:
        links = " or ".join(f"`{near}` and `{far}`" for near, far in meant)
        hint = f"write it as a list: `[{', '.join(meant[0])}]`"
        yield Violation(at=place, message=f"`{names[0]}` is ambiguous: it can be the link of {links}", hint=hint)


def _check_sides(step: StepDocument, place: Path) -> Iterator[Violation]:
    seen: set[str] = set()
    for number, side in enumerate(step.partition or ()):
        for inner, name in enumerate(side):
            if name in seen:
                yield Violation(
                    at=(*place, number, inner),
                    message=f"`{name}` is listed twice",
                    hint="a region can be on one side only",
                )
            seen.add(name)


def _check_leader(subject: ScenarioSubject, step: StepDocument, field: str, place: Path) -> Iterator[Violation]:
    name = getattr(step, field)
    stream = subject.streams.get(name)
    if stream is None or stream.consistency.has_origin:
        # The origin is called like the virtual stream: there is one leader.
        if step.region is not None and subject.topology is not None:
            yield Violation(
                at=(*place[:-1], "region"),
                message=f"`region` chooses a write stream, but the physical stream `{name}` has only one leader",
                hint="remove it",
                on_key=True,
            )
    elif step.region is None:
        yield Violation(
            at=place,
            message=f"the virtual stream `{name}` has a leader in each region",
            hint=f"add `region: {stream.regions[0]}`, or name a physical stream, such as `{name}-read-{stream.regions[0]}`",
        )
    elif step.region in subject.regions and step.region not in stream.regions:
        yield Violation(
            at=(*place[:-1], "region"),
            message=f"stream `{name}` does not exist in region `{step.region}`",
            hint=f"it exists in {quote_names(stream.regions)}",
        )


@rule("VS508", "already-down", Severity.ERROR)
def already_down(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A fault stops servers that an open fault has already stopped.

    ## Why is this bad?
    Its effect cannot be measured, and healing one fault could undo the other.
    """
    if subject.topology is None:
        return
    for moment in subject.moments():
        if moment.action.fault is None or moment.action.fault.effect is not Effect.SERVERS:
            continue
        targets = list_servers_named(subject.topology, getattr(moment.step, moment.field))
        for open_fault in moment.open:
            both = sorted(targets & open_fault.down)
            if both:
                are = f"server `{both[0]}` is" if len(both) == 1 else f"servers {quote_names(both[:3])} are"
                yield Violation(
                    at=("steps", moment.index, yaml_key(moment.field)),
                    message=f"{are} away already, by `{open_fault.type.name}` in step {open_fault.index + 1}",
                    hint="heal that fault first",
                )
                break


@rule("VS512", "converge-while-cut-off", Severity.WARNING)
def converge_while_cut_off(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A scenario waits for regions to converge while a fault cuts one of them off.

    ## Why is this bad?
    They cannot converge until it is healed: the step waits until it times out.
    """
    for moment in subject.moments():
        if moment.field != "converge" or subject.topology is None:
            continue
        blocking = _find_blocking(moment, subject.topology)
        if blocking is not None:
            yield Violation(
                at=("steps", moment.index, "converge"),
                message=(
                    f"regions cannot converge here: `{blocking.type.name}` of step {blocking.index + 1} is still open"
                ),
                hint="`heal` first",
                on_key=True,
            )


def _find_blocking(moment: StepContext, topology: Topology) -> OpenFaultStep | None:
    regions = index_servers(topology).values()
    for open_fault in moment.open:
        if open_fault.type.effect is Effect.LINKS or any(open_fault.down.issuperset(members) for members in regions):
            return open_fault
    return None


QUIESCE = "quiesce"
"""The window after the last step, in which a run waits until regions converge."""
_LINK = ("rtt", "jitter", "loss", "rate")
_USUAL = "such as `wait: 20s` or `kill-region: west`"


@rule("VS501", "not-one-action", Severity.ERROR)
def not_one_action(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A step has no action, or more than one.

    ## Why is this bad?
    It is not clear what should happen, or in which order.
    """
    for index, step in enumerate(subject.document.steps):
        fields = list_action_fields(step)
        if not fields:
            yield Violation(at=("steps", index), message="this step does nothing", hint=f"give it an action, {_USUAL}")
        elif len(fields) > 1:
            names = [yaml_key(field) for field in fields]
            yield Violation(
                at=("steps", index, names[1]),
                message=f"this step has {len(fields)} actions: {quote_names(names)}",
                hint="make each of them a step of its own: steps run one after the other",
                on_key=True,
            )


@rule("VS502", "wrong-option", Severity.ERROR)
def wrong_option(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    An action has an option that it does not support, or lacks one that it needs.

    ## Why is this bad?
    The option would have no effect, although it looks as if it had.
    """
    for index, step, field, action in subject.actions():
        for option in OPTIONS:
            if option in step.model_fields_set and option not in action.options:
                yield Violation(
                    at=("steps", index, yaml_key(option)),
                    message=f"`{yaml_key(option)}` has no effect on a `{yaml_key(field)}` step",
                    hint=_name_actions_with(option, action.options),
                    on_key=True,
                )
        if field == "upgrade" and step.to is None:
            yield Violation(
                at=("steps", index), message="`upgrade` needs a target version", hint="add it, such as `to: 2.15.1`"
            )
        if field == "link" and not step.model_fields_set & set(_LINK):
            yield Violation(
                at=("steps", index),
                message="`link` changes nothing about the link",
                hint=f"add one of {quote_names(_LINK)}; `partition` cuts links",
            )


def _name_actions_with(option: str, options: tuple[str, ...]) -> str:
    if option == "for_" and not options:
        return "the next step begins when this one is done; use `wait` to let time pass"
    owners = [yaml_key(name) for name, action in ACTIONS.items() if option in action.options]
    return f"remove it: only {quote_names(owners)} has this option"


@rule("VS505", "name-taken", Severity.ERROR)
def name_taken(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    Two steps have the same name, or a step has a reserved name.

    ## Why is this bad?
    `heal` and expectations with this name would be ambiguous.
    """
    names: set[str] = set()
    for index, step in enumerate(subject.document.steps):
        if step.as_ is None:
            continue
        if step.as_ in names or step.as_ == QUIESCE:
            whose = "the time after the last step" if step.as_ == QUIESCE else "another step"
            yield Violation(
                at=("steps", index, "as"),
                message=f"{whose} already has the name `{step.as_}`",
                hint="choose another name",
            )
        names.add(step.as_)


@rule("VS514", "begins-late", Severity.WARNING)
def begins_late(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A step has a start time at which the steps before it are still running.

    ## Why is this bad?
    Steps run one after the other: it begins later than it says.
    """
    earliest = 0
    for index, step, *_ in subject.actions():
        if step.at is not None and step.at < earliest:
            yield Violation(
                at=("steps", index, "at"),
                message=(
                    f"this step cannot begin before {spell_nanoseconds(earliest)}: the steps before it take that long"
                ),
                hint="a fault without `for` stays open while other steps run, until `heal`",
            )
        earliest = max(earliest, step.at or 0) + (step.wait or 0) + (step.for_ or 0)
