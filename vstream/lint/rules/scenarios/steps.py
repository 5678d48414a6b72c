"""Single steps: their actions, options, names and times."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.diagnostics import Severity
from vstream.formatting import join_names
from vstream.lint.registry import Violation, rule
from vstream.lint.rules.scenarios.context import ScenarioSubject
from vstream.scenario.actions import ACTIONS, OPTIONS, actions_of
from vstream.scenario.document import yaml_key
from vstream.topology.units import format_duration

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
        fields = actions_of(step)
        if not fields:
            yield Violation(at=("steps", index), message="this step does nothing", hint=f"give it an action, {_USUAL}")
        elif len(fields) > 1:
            names = [yaml_key(field) for field in fields]
            yield Violation(
                at=("steps", index, names[1]),
                message=f"this step has {len(fields)} actions: {join_names(names)}",
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
                    hint=_who_has(option, action.options),
                    on_key=True,
                )
        if field == "upgrade" and step.to is None:
            yield Violation(
                at=("steps", index),
                message="`upgrade` needs a target version",
                hint="add it, such as `to: 2.15.1`",
            )
        if field == "link" and not step.model_fields_set & set(_LINK):
            yield Violation(
                at=("steps", index),
                message="`link` changes nothing about the link",
                hint=f"add one of {join_names(_LINK)}; `partition` cuts links",
            )


def _who_has(option: str, options: tuple[str, ...]) -> str:
    if option == "for_" and not options:
        return "the next step begins when this one is done; use `wait` to let time pass"
    owners = [yaml_key(name) for name, action in ACTIONS.items() if option in action.options]
    return f"remove it: only {join_names(owners)} has this option"


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
                    f"this step cannot begin before {format_duration(earliest)}: the steps before it take that long"
                ),
                hint="a fault without `for` stays open while other steps run, until `heal`",
            )
        earliest = max(earliest, step.at or 0) + (step.wait or 0) + (step.for_ or 0)
