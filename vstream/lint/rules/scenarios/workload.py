"""What clients do, and what the scenario measures."""

from __future__ import annotations

from collections.abc import Iterator

from vstream.findings import Severity
from vstream.formatting import quote_names, quote_value
from vstream.lint.rule import Violation, rule, suggest_closest
from vstream.lint.rules.scenarios.context import ScenarioSubject
from vstream.scenario.document import ExpectDocument, yaml_key
from vstream.scenario.model import PLACEHOLDERS, SAFETY, fill_subject, placeholders
from vstream.subjects.algebra import is_literal, matches
from vstream.syntax.yaml import Path

_WHOLE = (*(measure.value for measure in SAFETY), "same_order")
_NEEDS_LOAD = ("published", "delivered", "publish_time", "publish_gap", "propagation", "visible", *_WHOLE, "converged")


@rule("VS509", "bad-publish-subject", Severity.ERROR)
def bad_publish_subject(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    Publishers use a subject that is invalid or does not belong to the stream.

    ## Why is this bad?
    No stream would store the messages.
    """
    for index, publisher in enumerate(subject.document.workload.publishers or ()):
        if publisher.subject is None:
            continue
        at: Path = ("workload", "publishers", index, "subject")
        unknown = [name for name in placeholders(publisher.subject) if name not in PLACEHOLDERS]
        example = fill_subject(publisher.subject, dict.fromkeys(PLACEHOLDERS, "1"))
        streams = [publisher.stream] if publisher.stream is not None else list(subject.streams)
        if unknown:
            hint = suggest_closest(unknown[0], list(PLACEHOLDERS), "there are")
            yield Violation(at=at, message=f"unknown placeholder `{{{unknown[0]}}}`", hint=hint)
        elif brace := next((sign for sign in "{}" if sign in example), None):
            yield Violation(
                at=at,
                message=f"the `{brace}` in {quote_value(publisher.subject)} has no matching brace: it would be published literally",
                hint="placeholders are `{region}`, `{key}` and `{n}`",
            )
        elif not is_literal(example):
            hint = "tokens without spaces, separated by dots, such as `foo.{region}.{key}`"
            yield Violation(
                at=at,
                message=f"{quote_value(publisher.subject)} is not a subject that clients can publish on",
                hint=hint,
            )
        else:
            for name in streams:
                stream = subject.streams.get(name)
                if stream is not None and not any(matches(example, pattern) for pattern in stream.subjects):
                    yield Violation(
                        at=at,
                        message=f"stream `{name}` does not store {quote_value(publisher.subject)}",
                        hint=f"its subjects are {quote_names(stream.subjects)}",
                    )


@rule("VS510", "not-measured", Severity.ERROR)
def not_measured(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    An expectation needs a measurement that the scenario does not make in that window.

    ## Why is this bad?
    It would be reported as unknown, which is never a pass. `converged` needs a `converge` step, `works` a `try` step.
    Lost, duplicated and reordered messages are only known at the end of the whole run. Reads need readers, and
    everything except `control-plane` and `works` needs publishers.
    """
    for index, group in enumerate(subject.document.expect):
        place: Path = ("expect", index)
        if not group.model_fields_set - {"in_", "stream"}:
            yield Violation(at=place, message="this expectation is empty", hint='such as `published: ">= 99.9%"`')
        for word in [name for name in type(group).model_fields if name in group.model_fields_set - {"in_", "stream"}]:
            complaint = _find_window(subject, group, word) or _find_clients(subject, word)
            if complaint:
                yield Violation(at=(*place, yaml_key(word)), message=complaint[0], hint=complaint[1], on_key=True)
        yield from _check_regions_that_try(subject, group, place)


def _find_window(subject: ScenarioSubject, group: ExpectDocument, word: str) -> tuple[str, str] | None:
    """Why *word* cannot be measured in the group's window, and what to do."""
    windows = subject.windows
    if group.in_ is not None and group.in_ not in windows:
        return None
    field = windows.get(group.in_ or "")
    if word in _WHOLE and group.in_ is not None:
        return f"`{yaml_key(word)}` is only known at the end of the whole run", "write it without `in`"
    needed = {"converged": "converge", "works": "try_"}.get(word)
    if needed is not None and field != needed:
        candidates = [name for name, window in windows.items() if window == needed]
        hint = (
            f"write `in: {candidates[0]}`"
            if candidates
            else "give such a step a name (`as`) and write that name after `in`"
        )
        return f"`{word}` needs the name of a `{yaml_key(needed)}` step", hint
    return None


def _find_clients(subject: ScenarioSubject, word: str) -> tuple[str, str] | None:
    workload = subject.document.workload
    if workload.publishers == [] and word in _NEEDS_LOAD:
        return "this scenario has no publishers", "remove `publishers: []`: the default is one in every region"
    readers = [reader.by for reader in workload.readers] if workload.readers is not None else ["consumer", "direct"]
    if word in {"read", "read_time"} and not {"direct", "sequence"} & set(readers):
        return "this scenario has no readers", "add a reader: `{by: direct}`"
    if word in {"delivered", "propagation"} and "consumer" not in readers:
        return "this scenario has no consumer", "add one to the readers: `{by: consumer}`"
    return None


def _check_regions_that_try(subject: ScenarioSubject, group: ExpectDocument, place: Path) -> Iterator[Violation]:
    step = next(
        (candidate for candidate in subject.document.steps if candidate.as_ == group.in_ and candidate.try_), None
    )
    if step is None or group.in_ is None:
        return
    for region in dict.fromkeys(region for region, *_ in group.works if region in subject.regions):
        if region not in (step.try_ or ()):
            yield Violation(
                at=(*place, "works", region),
                message=f"step `{group.in_}` tries nothing in `{region}`",
                hint=f"it tries in {quote_names(step.try_ or ())}",
                on_key=True,
            )


@rule("VS513", "nothing-published", Severity.ERROR)
def nothing_published(subject: ScenarioSubject) -> Iterator[Violation]:
    """
    A scenario has neither publishers nor `try` steps.

    ## Why is this bad?
    Without acknowledged messages, no loss can be found: the verdict would be unknown, never a pass.
    """
    if any(field == "try_" for _, _, field, _ in subject.actions()):
        return
    if subject.document.workload.publishers == []:
        yield Violation(
            at=("workload", "publishers"),
            message="this scenario has no publishers",
            hint="remove it: the default is a publisher in every region",
            on_key=True,
        )
    elif subject.topology is not None and not subject.topology.streams:
        yield Violation(
            at=("topology",),
            message="the topology has no streams",
            hint="add one to it, such as `foo: {subjects: [foo.>]}`",
        )
