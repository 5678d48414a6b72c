"""The cases of a verdict: expectations, safety rules, faults, steps and servers, compared with what was measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from vstream.capture.records import FaultOutcome
from vstream.capture.verdict import units
from vstream.capture.verdict.measures import OVER_THE_RUN, Measurement, Measurements, Question, meets
from vstream.capture.verdict.model import Case, CaseKind, CaseStatus
from vstream.findings import Span
from vstream.scenario.model import SAFETY, Compare, Expectation, Measure
from vstream.topology.model import Consistency

_NOWHERE = Span.point("", 1, 1)
_ONE_ORDER = frozenset(model.value for model in Consistency if model.has_one_order)
_ALONE = frozenset({Measure.CONVERGED, Measure.CONTROL_PLANE, Measure.WORKS})
"""Measures that belong to no particular stream."""
_OF_NO_REGION = OVER_THE_RUN | {Measure.CONVERGED}
"""Measures that, without a region, cover all regions together."""
_DEADLY = ("panic", "fatal error", "sigsegv", "segmentation")


def list_cases(facts: Measurements, expectations: Sequence[Expectation]) -> Iterator[Case]:
    """All cases of a verdict: the expectations, the safety rules, and what a verdict needs."""
    asked = list(_list_questions(facts, expectations))
    for question in asked:
        yield _make_case(facts, question, CaseKind.EXPECTATION)
    for question in _list_implied_questions(facts, asked):
        yield _make_case(facts, question, CaseKind.SAFETY)
    yield from _list_fault_cases(facts)
    yield from _judge_steps(facts, expectations)
    yield from _list_capture_cases(facts)
    yield from _list_server_cases(facts)


def _list_questions(facts: Measurements, expectations: Iterable[Expectation]) -> Iterator[Question]:
    """Each expectation for each stream and region that it is about: one question at least."""
    for expectation in expectations:
        streams: Sequence[str | None] = [expectation.stream]
        if expectation.stream is None and expectation.measure not in _ALONE:
            streams = list_active_streams(facts) or [None]
        for stream in streams:
            regions: Sequence[str | None] = [expectation.region]
            if expectation.region is None and expectation.measure not in _OF_NO_REGION:
                regions = _list_regions(facts, expectation, stream) or [None]
            for region in regions:
                yield Question(expectation=expectation, stream=stream, region=region)


def list_active_streams(facts: Measurements) -> list[str]:
    """The streams that were published to or hold messages."""
    active = []
    for name, stream in facts.streams.items():
        if any(tally.attempted for tally in stream.origins.values()) or any(item.stored for item in stream.physical):
            active.append(name)
    return active


def _list_regions(facts: Measurements, expectation: Expectation, stream: str | None) -> list[str]:
    """Where *expectation* can be measured."""
    measure, history = expectation.measure, facts.history
    of_calls = {
        Measure.PUBLISHED: history.publishes,
        Measure.PUBLISH_TIME: history.publishes,
        Measure.PUBLISH_GAP: history.publishes,
        Measure.READ: history.reads,
        Measure.READ_TIME: history.reads,
        Measure.DELIVERED: history.fetches,
        Measure.PROPAGATION: history.fetches,
    }
    verdict = facts.streams.get(stream or "")
    if measure in of_calls:
        findings = [region for name, region in of_calls[measure] if name == stream]
    elif measure is Measure.CONTROL_PLANE:
        findings = [*dict.fromkeys(item.region for item in facts.whole_run.control_plane)]
    elif measure is Measure.WORKS:
        findings = [*dict.fromkeys(trial.region for trial in history.trials if trial.subject == expectation.operation)]
    else:
        findings = [] if verdict is None else [item.region for item in verdict.served]
    between = {Measure.PROPAGATION, Measure.VISIBLE}
    return [region for region in findings if measure not in between or region != expectation.origin]


def _list_implied_questions(facts: Measurements, asked: Iterable[Question]) -> Iterator[Question]:
    """What must hold for every stream, where no expectation has said something else."""
    answered = {(item.expectation.measure, item.stream) for item in asked if item.region is None}
    allowed = set()
    for item in asked:
        if item.expectation.measure is Measure.LOST and (
            item.expectation.compare is Compare.AT_LEAST or item.expectation.value > 0
        ):
            allowed.add(item.stream)
    for name in list_active_streams(facts) or [*facts.streams]:
        bounds = [(measure, 0) for measure in SAFETY if measure is not Measure.DIVERGED or name not in allowed]
        if facts.streams[name].model in _ONE_ORDER:
            bounds.append((Measure.SAME_ORDER, 1))
        for measure, value in bounds:
            if (measure, name) not in answered:
                expectation = Expectation(measure=measure, compare=Compare.EQUAL, value=value, span=_NOWHERE)
                yield Question(expectation=expectation, stream=name, region=None)


def _make_case(facts: Measurements, question: Question, kind: CaseKind) -> Case:
    expectation = question.expectation
    measured = facts.measure(question)
    status = _choose_status(expectation, measured)
    return Case(
        kind=kind,
        name=units.describe_expectation(expectation, question.stream, question.region),
        status=status,
        detail=_describe_detail(measured) if status is CaseStatus.UNKNOWN else measured.detail,
        measure=expectation.measure,
        unit=units.unit_of(expectation.measure),
        measured=measured.value,
        region=question.region,
        stream=question.stream,
        expectation=expectation if kind is CaseKind.EXPECTATION else None,
    )


def _describe_detail(measured: Measurement) -> str:
    """What was seen, after the first of the doubts."""
    doubts = list(dict.fromkeys(measured.doubts))
    more = f" (and {len(doubts) - 1} more)" if len(doubts) > 1 else ""
    return "; ".join([*(f"{doubt}{more}" for doubt in doubts[:1]), measured.detail])


def _choose_status(expectation: Expectation, measured: Measurement) -> CaseStatus:
    is_any = (expectation.region, expectation.compare, expectation.value) == (None, Compare.AT_LEAST, 0)
    if is_any and expectation.measure in OVER_THE_RUN:
        return CaseStatus.PASS  # `any`: whatever it is, and also if it is not known
    if measured.value is None:
        return CaseStatus.UNKNOWN
    if not measured.doubts:
        return CaseStatus.PASS if meets(expectation, measured.value) else CaseStatus.FAIL
    too_many = measured.floor is not None and measured.floor > expectation.value
    too_few = measured.ceiling is not None and measured.ceiling < expectation.value
    if (too_many and expectation.compare is not Compare.AT_LEAST) or (
        too_few and expectation.compare is not Compare.AT_MOST
    ):
        return CaseStatus.FAIL
    return CaseStatus.UNKNOWN


def _list_fault_cases(facts: Measurements) -> Iterator[Case]:
    numbers = Counter[str]()
    for fault in facts.context.faults:
        numbers[fault.command] += 1
        repeated = f" ({numbers[fault.command]})" if numbers[fault.command] > 1 else ""
        name = f"fault {fault.command}{repeated}"
        if fault.outcome is FaultOutcome.CONFIRMED:
            status, detail = CaseStatus.PASS, fault.evidence or "it was seen to happen"
        elif fault.outcome is FaultOutcome.UNSUPPORTED:
            status, detail = CaseStatus.UNKNOWN, f"unsupported: {fault.error or 'this machine or backend cannot do it'}"
        else:
            status, detail = CaseStatus.UNKNOWN, fault.error or "it was not seen to happen"
        yield Case(kind=CaseKind.FAULT, name=name, status=status, detail=detail)


def _judge_steps(facts: Measurements, expectations: Iterable[Expectation]) -> Iterator[Case]:
    """Steps that failed, but for what is a case of its own: convergence that is expected by name, and faults."""
    judged = {expectation.window for expectation in expectations if expectation.measure is Measure.CONVERGED}
    faults = [fault for fault in facts.context.faults if fault.outcome is not FaultOutcome.CONFIRMED]
    for window in facts.context.windows:
        if window.is_ok or window.name in judged:
            continue
        if any(window.action.startswith(fault.command) and window.end >= fault.injected for fault in faults):
            continue
        is_converge = window.action.startswith("converge")
        yield Case(
            kind=CaseKind.STEP,
            name=f"{window.name if window.is_unnamed else f'step {window.name}'}: {window.action}",
            status=CaseStatus.FAIL if is_converge else CaseStatus.UNKNOWN,
            detail=window.detail or ("it did not converge in time" if is_converge else "it failed"),
        )


def _list_capture_cases(facts: Measurements) -> Iterator[Case]:
    manifest = facts.context.manifest
    problems = [] if manifest.is_complete else [f"the run did not reach its end: {manifest.stopped_by or 'stopped'}"]
    for file, written in sorted(manifest.lines.items()):
        if (held := facts.lines.get(file)) != written:
            problems.append(f"{file} is gone" if held is None else f"{file} holds {held:,} of its {written:,} lines")
    for name, attempts in facts.history.attempts.items():
        if attempts.repeated:
            shown = ", ".join(attempts.repeated[:3])
            problems.append(f"{len(attempts.repeated):,} ids of {name} have more than one publish, such as {shown}")
    if not any(len(attempts) for attempts in facts.history.attempts.values()):
        problems.append("nothing was published")
    for stream in facts.streams.values():
        problems += [
            f"{item.name} could not be read: {item.error}" for item in stream.physical if item.error is not None
        ]
        problems += [
            f"{stream.name} has no stream that is read in {item.region}" for item in stream.served if not item.stream
        ]
    yield Case(
        kind=CaseKind.CAPTURE,
        name="the capture is complete",
        status=CaseStatus.UNKNOWN if problems else CaseStatus.PASS,
        detail="; ".join(problems) or "all steps were taken and all streams were read",
    )


def _list_server_cases(facts: Measurements) -> Iterator[Case]:
    servers = facts.context.manifest.servers
    lines = [f"{server.name}: {line}" for server in servers for line in server.panics if is_deadly(line)]
    if servers:
        yield Case(
            kind=CaseKind.SERVERS,
            name="no server panicked",
            status=CaseStatus.FAIL if lines else CaseStatus.PASS,
            detail="; ".join(lines[:3]) if lines else f"none in {len(servers):,} logs",
        )


def is_deadly(line: str) -> bool:
    """Whether a log line reports that a server crashed by itself."""
    return any(word in line.lower() for word in _DEADLY)
