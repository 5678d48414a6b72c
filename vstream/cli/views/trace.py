"""Where servers take a publish, beside what is expected, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from vstream.probe.trace import PublishExpectation, PublishTrace, StepKind, TraceStep

_VERDICTS = {True: "expected", False: "different", None: "unknown"}
_MARKS = {True: ("✓", "green"), False: ("✗", "bold red"), None: ("?", "bold yellow")}


def render(subject: str, expected: Sequence[PublishExpectation], traces: Sequence[PublishTrace]) -> Iterator[Text]:
    """Each region's expectation, then each server: what it did, and what is not as expected."""
    for expectation in expected:
        yield Text(f"a publish to `{subject}` in `{expectation.region}`", style="bold")
        yield Text(f"  expected: {_describe_expectation(subject, expectation)}")
        for trace in traces:
            if trace.region == expectation.region:
                yield from _describe_trace(trace)
    if not any(trace.differs or trace.unknown for trace in traces):
        yield Text("Every server does what is expected.", style="bold green")


def _describe_expectation(subject: str, expected: PublishExpectation) -> str:
    becomes = " or ".join(f"`{name}`" for name in expected.subjects if name != subject)
    stream = f"stored in `{expected.stream}`" if expected.stream else "no virtual stream here has this subject"
    return f"mapped to {becomes}, {stream}" if becomes else stream


def _describe_trace(trace: PublishTrace) -> Iterator[Text]:
    version = f" ({trace.version})" if trace.version else ""
    yield Text.assemble("  ", _MARKS[trace.is_expected], f" by {trace.server}{version}")
    for step in trace.steps:
        yield Text(f"      {step.server}: {_describe_step(step)}" + (f": {step.error}" if step.error else ""))
    yield from (Text(f"    {sentence}", style="bold red") for sentence in trace.differs)
    yield from (Text(f"    not known: {sentence}", style="bold yellow") for sentence in trace.unknown)


def _describe_step(step: TraceStep) -> str:
    match step.kind:
        case StepKind.RECEIVED:
            return f"has it from {step.by} {step.peer or ''} in account `{step.account}`, as `{step.subject}`"
        case StepKind.MAPPED:
            return f"maps it to `{step.subject}`"
        case StepKind.IMPORTED:
            return f"hands it to account `{step.account}`, as `{step.subject}`"
        case StepKind.EXPORTED:
            return f"shows it to account `{step.account}`, as `{step.subject}`"
        case StepKind.STREAM:
            return f"stream `{step.stream}` " + ("refuses it" if step.error else f"would store it, as `{step.subject}`")
        case StepKind.SENT:
            listens = f", which listens on `{step.subject}`" if step.subject else ""
            return f"{'would pass' if step.by == 'client' else 'passes'} it to {step.by} {step.peer or ''}{listens}"


def as_dict(
    topology: str, subject: str, expected: Sequence[PublishExpectation], traces: Sequence[PublishTrace]
) -> dict[str, Any]:
    """Everything that is known, for other programs."""
    return {
        "topology": topology,
        "subject": subject,
        "expected": [
            {"region": place.region, "subjects": list(place.subjects), "stream": place.stream} for place in expected
        ],
        "traces": [_trace_as_dict(trace) for trace in traces],
    }


def _trace_as_dict(trace: PublishTrace) -> dict[str, Any]:
    return {
        "region": trace.region,
        "server": trace.server,
        "version": trace.version,
        "verdict": _VERDICTS[trace.is_expected],
        "differs": list(trace.differs),
        "unknown": list(trace.unknown),
        "steps": [{**asdict(step), "kind": step.kind.value} for step in trace.steps],
    }
