"""What is proven is said, what is not known is never a pass, and every measure is what its name says."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import MILLISECOND, REGIONS, SECOND, History, Shape, clean, fault
from vstream.capture.records import (
    CapturedStream,
    FaultOutcome,
    Manifest,
    OperationKind,
    OperationOutcome,
    OperationRecord,
    Window,
)
from vstream.capture.store import Capture
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import Case, CaseKind, CaseStatus, Verdict
from vstream.errors import VstreamError
from vstream.findings import Span
from vstream.scenario.model import Compare, Expectation, Measure


def expect(
    measure: Measure,
    value: float = 0,
    compare: Compare = Compare.EQUAL,
    *,
    window: str | None = None,
    region: str | None = None,
    origin: str | None = None,
    operation: str | None = None,
) -> Expectation:
    return Expectation(
        measure=measure,
        compare=compare,
        value=value,
        span=Span.point("s.yaml", 3, 5),
        window=window,
        region=region,
        origin=origin,
        operation=operation,
    )


def case(judged: Verdict, name: str) -> Case:
    return next(case for case in judged.cases if case.name == name)


@pytest.fixture
def history() -> History:
    """Three seconds; in the second one, all publishes in west fail: half of them are rejected."""
    history = clean(Shape(messages=30))
    history.faults.append(fault())
    history.windows += [
        Window(name="before", start=0, end=SECOND, action="wait 1s"),
        Window(name="down", start=SECOND, end=2 * SECOND, action="wait 1s"),
        Window(name="after", start=2 * SECOND, end=3 * SECOND, action="converge"),
        Window(name="nothing", start=9 * SECOND, end=10 * SECOND, action="wait 1s"),
    ]
    gone = set()
    for place, operation in enumerate(history.operations):
        if (
            operation.kind is OperationKind.PUBLISH
            and operation.region == "west"
            and SECOND <= operation.due < 2 * SECOND
        ):
            is_odd = (operation.due - SECOND) // (SECOND // 10) % 2
            outcome = OperationOutcome.REJECTED if is_odd else OperationOutcome.INDETERMINATE
            history.operations[place] = replace(operation, outcome=outcome, done=None, acked_by=None, seq=None)
            gone.add(operation.id)
    for name, rows in history.streams.items():
        history.streams[name] = [row for row in rows if row.id not in gone]
    history.deliveries = [delivery for delivery in history.deliveries if delivery.id not in gone]
    return history


def judge_cases(history: History, path: Path, expectation: Expectation) -> dict[str | None, Case]:
    """The cases that one expectation became, by region."""
    judged = judge_capture(history.write(path), [expectation])
    return {case.region: case for case in judged.cases if case.expectation is expectation}


def test_publishes_are_those_due_in_the_window(history: History, tmp_path: Path) -> None:
    cases = judge_cases(history, tmp_path, expect(Measure.PUBLISHED, 1, window="down"))
    assert {region: (case.measured, case.status) for region, case in cases.items()} == {
        "west": (0, CaseStatus.FAIL),
        "central": (1, CaseStatus.PASS),
        "east": (1, CaseStatus.PASS),
    }
    assert cases["west"].detail == "0 of 10 acknowledged, 5 rejected, 5 without an answer, none for 1 s at the longest"
    assert cases["west"].name == "foo: published in west during down == 100 %"


@pytest.mark.parametrize(
    "measure", [Measure.PUBLISHED, Measure.READ, Measure.PUBLISH_TIME, Measure.PUBLISH_GAP, Measure.CONTROL_PLANE]
)
def test_a_window_without_anything_is_unknown(history: History, tmp_path: Path, measure: Measure) -> None:
    (case,) = judge_cases(history, tmp_path, expect(measure, 0, window="nothing", region="west")).values()
    assert case.status is CaseStatus.UNKNOWN
    assert case.measured is None


@pytest.mark.parametrize("measure", [measure for measure in Measure if measure.value != "same-order"])
def test_a_region_that_is_not_there_is_unknown(history: History, tmp_path: Path, measure: Measure) -> None:
    compare = Compare.AT_LEAST
    for region in ("nowhere", None):
        window = "before" if region else "nowhere"
        if region is None and measure.value in {"lost", "duplicated", "unexpected", "diverged", "reordered"}:
            continue
        cases = judge_cases(history, tmp_path / str(region), expect(measure, 0, compare, region=region, window=window))
        converged_anyway = measure is Measure.CONVERGED and region
        assert converged_anyway or {case.status for case in cases.values()} == {CaseStatus.UNKNOWN}


def test_an_outage_is_timed_from_the_fault_on(history: History, tmp_path: Path) -> None:
    judged = judge_capture(history.write(tmp_path))
    (outage,) = judged.faults[0].outages
    assert (outage.stream, outage.region, outage.failed) == ("foo", "west", 10)
    assert (outage.first_failure, outage.recovered) == (0, SECOND)
    down = next(window for window in judged.windows if window.window.name == "down")
    assert [publish.longest_gap for publish in down.publishes] == [SECOND, 0, 0]


def test_an_outage_that_does_not_end_before_the_next_fault_says_so(history: History, tmp_path: Path) -> None:
    history.faults.append(fault("kill-region east", injected=SECOND + SECOND // 2, healed=2 * SECOND))
    judged = judge_capture(history.write(tmp_path))
    assert [outage.recovered for outage in judged.faults[0].outages] == [None]
    assert [outage.recovered for outage in judged.faults[1].outages] == [SECOND // 2]


def test_convergence_is_the_last_arrival_of_what_was_written_before_the_healing(
    history: History, tmp_path: Path
) -> None:
    rows = history.streams["foo-read-east"]
    wall = history.manifest.wall
    written = {row.id: row.time for row in history.streams["foo-write-west"]}
    late = max(place for place, row in enumerate(rows) if written.get(row.id, wall + 9 * SECOND) <= wall + SECOND)
    history.streams["foo-read-east"] = [
        replace(row, time=row.time + (5 * SECOND if place >= late else 0)) for place, row in enumerate(rows)
    ]
    judged = judge_capture(history.write(tmp_path))
    took = {convergence.region: convergence.took for convergence in judged.faults[0].convergences}
    assert took["east"] is not None
    assert took["east"] > 3 * SECOND
    assert took["west"] is not None
    assert took["west"] < SECOND
    history.streams["foo-read-west"].pop(3)
    judged = judge_capture(history.write(tmp_path / "again"))
    assert {convergence.region: convergence.took for convergence in judged.faults[0].convergences}["west"] is None


def test_visible_counts_what_was_there_in_time(history: History, tmp_path: Path) -> None:
    window = history.windows[0]
    wall = history.manifest.wall
    acked = {
        operation.id
        for operation in history.of(OperationOutcome.OK)
        if operation.region == "west" and operation.done and operation.done < window.end
    }
    stored = sum(row.id in acked and row.time - wall < window.end for row in history.streams["foo-read-east"])
    assert stored > 0
    cases = judge_cases(
        history, tmp_path, expect(Measure.VISIBLE, stored, origin="west", region="east", window="before")
    )
    assert {case.measured for case in cases.values()} == {stored}
    every = judge_cases(history, tmp_path / "2", expect(Measure.VISIBLE, 0, origin="west", window="before"))
    assert set(every) == {"central", "east"}


@pytest.mark.parametrize("model", ["homed", "stretch", "ordered"])
def test_a_mirror_has_what_was_seen_there_as_it_keeps_the_times_of_others(model: str, tmp_path: Path) -> None:
    """East stands still from 1 s on, and has everything again at 5 s, half a second's look more or less."""
    history = clean(Shape(model=model, messages=30))
    history.faults.append(fault("isolate east", injected=SECOND, healed=2 * SECOND))
    history.windows.append(Window(name="cut", start=SECOND, end=2 * SECOND, action="wait 1s"))
    stood = next(sample.last_seq for sample in history.samples if sample.region == "east" and sample.at == SECOND)[
        "foo-read-east"
    ]
    for moment in range(3 * SECOND, 8 * SECOND, SECOND // 2):
        history.samples += [
            replace(sample, at=moment, last_seq={name: len(history.streams[name]) for name in sample.last_seq})
            for sample in history.samples[-3:]
            if not any(candidate.at == moment and candidate.region == sample.region for candidate in history.samples)
        ]
    for place, sample in enumerate(history.samples):
        if sample.region == "east" and SECOND < sample.at < 5 * SECOND:
            history.samples[place] = replace(sample, last_seq={**sample.last_seq, "foo-read-east": stood})
    visible = expect(Measure.VISIBLE, 0, origin="west", window="cut")
    cases = judge_cases(history, tmp_path, visible)
    assert cases["east"].measured == 0
    assert cases["central"].measured
    judged = judge_capture(Capture(tmp_path))
    took = {convergence.region: convergence.took for convergence in judged.faults[0].convergences}
    assert took["east"] == 3 * SECOND
    assert took["central"] is not None
    assert took["central"] <= SECOND // 2
    assert not [arrival for arrival in judged.streams[0].arrivals if arrival.region == "east"]
    lag = judged.timeline.lag["west"]
    assert max(lag["east"]) > max(lag["central"])

    history.samples.clear()
    assert {case.status for case in judge_cases(history, tmp_path / "unseen", visible).values()} == {CaseStatus.UNKNOWN}
    assert {
        convergence.region for convergence in judge_capture(Capture(tmp_path / "unseen")).faults[0].convergences
    }.isdisjoint(took)


def test_deliveries_and_propagation_are_measured_in_their_window(history: History, tmp_path: Path) -> None:
    cases = judge_cases(history, tmp_path, expect(Measure.DELIVERED, 0, window="down"))
    for region, case in cases.items():
        inside = [item for item in history.deliveries if item.region == region and SECOND <= item.at < 2 * SECOND]
        assert case.measured == len(inside)
    sent = {
        operation.id: operation.sent
        for operation in history.operations
        if operation.region == "west" and operation.due < SECOND
    }
    took = sorted(
        delivery.at - sent[delivery.id]
        for delivery in history.deliveries
        if delivery.region == "east" and delivery.id in sent
    )
    propagation = judge_cases(
        history, tmp_path / "2", expect(Measure.PROPAGATION, 0, origin="west", region="east", window="before")
    )
    assert propagation["east"].measured == took[(len(took) + 1) // 2 - 1]


def test_times_are_medians_of_what_succeeded(history: History, tmp_path: Path) -> None:
    took = sorted(
        operation.done - operation.sent
        for operation in history.of(OperationOutcome.OK)
        if operation.region == "west" and operation.done is not None
    )
    cases = judge_cases(history, tmp_path, expect(Measure.PUBLISH_TIME, SECOND, Compare.AT_MOST))
    assert cases["west"].measured == took[(len(took) + 1) // 2 - 1]


def test_a_publish_gap_is_from_the_first_that_failed_to_the_next_that_did_not(history: History, tmp_path: Path) -> None:
    cases = judge_cases(history, tmp_path, expect(Measure.PUBLISH_GAP, SECOND // 2, Compare.AT_MOST))
    assert {region: case.status for region, case in cases.items()} == {
        "west": CaseStatus.FAIL,
        "central": CaseStatus.PASS,
        "east": CaseStatus.PASS,
    }
    assert (cases["west"].measured, cases["central"].measured) == (SECOND, 0)


def operate(kind: OperationKind, at: int, outcome: OperationOutcome, **answer: Any) -> OperationRecord:
    """An operation of a client in the west."""
    facts = {"client": f"west/{kind.value}-foo", "region": "west", "stream": "foo", "due": at, "sent": at, "done": None}
    return OperationRecord(kind=kind, outcome=outcome, **{**facts, **answer})


def test_reads_and_the_control_plane(history: History, tmp_path: Path) -> None:
    read = operate(OperationKind.READ, SECOND, OperationOutcome.OK, done=SECOND + 7, id="east-1")
    history.operations += [read, replace(read, outcome=OperationOutcome.INDETERMINATE, done=None, id=None)]
    for place, sample in enumerate(history.samples):
        if sample.region == "west" and SECOND <= sample.at < 2 * SECOND:
            history.samples[place] = replace(sample, control_plane=None, error="timeout")
    capture = history.write(tmp_path)
    judged = judge_capture(
        capture,
        [
            expect(Measure.READ, 0.5, window="down"),
            expect(Measure.READ_TIME, 7, window="down"),
            expect(Measure.CONTROL_PLANE, 0, window="down", region="west"),
            expect(Measure.CONTROL_PLANE, 1, window="down", region="east"),
        ],
    )
    assert [case.status for case in judged.cases if case.expectation] == [CaseStatus.PASS] * 4
    assert judged.timeline.control_plane["west"][:5] == (
        3 * MILLISECOND,
        -1,
        3 * MILLISECOND,
        3 * MILLISECOND,
        3 * MILLISECOND,
    )


def test_a_read_of_what_nobody_published_fails(history: History, tmp_path: Path) -> None:
    answered = {"done": 2, "id": "ghost", "acked_by": "foo-read-west", "seq": 4}
    history.operations.append(operate(OperationKind.READ, 1, OperationOutcome.OK, **answered))
    judged = judge_capture(history.write(tmp_path))
    assert case(judged, "foo: unexpected == 0").status is CaseStatus.FAIL
    assert judged.streams[0].unexpected_reads["west"].examples[0].id == "ghost"


@pytest.mark.parametrize(
    ("is_ok", "measured", "status"), [(True, SECOND, CaseStatus.PASS), (False, inf, CaseStatus.FAIL)]
)
def test_converged_is_how_long_the_step_took(
    history: History, tmp_path: Path, is_ok: bool, measured: float, status: CaseStatus
) -> None:
    history.windows[2] = replace(history.windows[2], is_ok=is_ok)
    (case,) = judge_cases(
        history, tmp_path, expect(Measure.CONVERGED, 2 * SECOND, Compare.AT_MOST, window="after")
    ).values()
    assert (case.measured, case.status) == (measured, status)


@pytest.mark.parametrize(
    ("window", "status"), [("after", CaseStatus.FAIL), ("down", CaseStatus.UNKNOWN)], ids=["converge", "another"]
)
def test_a_step_that_failed_is_said(history: History, tmp_path: Path, window: str, status: CaseStatus) -> None:
    history.windows = [
        replace(run_window, is_ok=run_window.name != window, detail="why") for run_window in history.windows
    ]
    judged = judge_capture(history.write(tmp_path))
    (step_case,) = [case for case in judged.cases if case.kind is CaseKind.STEP]
    assert (step_case.status, step_case.detail) == (status, "why")
    assert judged.status is status


def test_operations_that_were_tried_work_or_do_not(history: History, tmp_path: Path) -> None:
    refused = {"subject": "stream-info", "error": "10008"}
    tried = operate(OperationKind.TRY, SECOND + 1, OperationOutcome.INDETERMINATE, **refused)
    history.operations += [tried, replace(tried, region="east", outcome=OperationOutcome.OK)]
    cases = judge_cases(history, tmp_path, expect(Measure.WORKS, 1, window="down", operation="stream-info"))
    assert {region: (case.status, case.detail) for region, case in cases.items()} == {
        "west": (CaseStatus.FAIL, "10008"),
        "east": (CaseStatus.PASS, "it worked"),
    }
    cases = judge_cases(history, tmp_path / "2", expect(Measure.WORKS, 1, window="before", operation="stream-info"))
    assert {case.status for case in cases.values()} == {CaseStatus.UNKNOWN}


def test_the_same_order_everywhere_is_recognised(tmp_path: Path) -> None:
    for model, expected in [("virtual", 0), ("ordered", 1), ("stretch", 1), ("homed", 1)]:
        (case,) = judge_cases(
            clean(Shape(model=model)), tmp_path / model, expect(Measure.SAME_ORDER, expected)
        ).values()
        assert case.status is CaseStatus.PASS, model


@pytest.mark.parametrize("model", ["homed", "stretch"])
def test_a_stream_that_is_there_to_be_found_is_no_place_for_messages(tmp_path: Path, model: str) -> None:
    history = clean(Shape(model=model))
    for region in REGIONS:
        name = f"W_{region}/foo"
        history.roles[name] = CapturedStream(name=name, virtual="foo", region=region, role="catalog", messages=0)
        history.streams[name] = []
    judged = judge_capture(history.write(tmp_path))
    assert {case.status for case in judged.cases} == {CaseStatus.PASS}, judged.cases


# What is not known.


def empty_history(history: History) -> None:
    history.operations = []
    history.deliveries = []
    history.streams = {name: [] for name in history.streams}


def leave_unacknowledged(history: History) -> None:
    history.operations = [
        replace(operation, outcome=OperationOutcome.INDETERMINATE, done=None, acked_by=None)
        for operation in history.operations
    ]
    history.streams = {name: [] for name in history.streams}


def stop_run(history: History) -> None:
    history.manifest = replace(history.manifest, is_complete=False, stopped_by="Ctrl-C")


def unread(history: History) -> None:
    history.roles["foo-read-west"] = replace(history.roles["foo-read-west"], messages=None, error="no leader")


def without_a_stream(history: History) -> None:
    del history.roles["foo-read-west"]


def mark_unsupported(history: History) -> None:
    history.faults[0] = fault(outcome=FaultOutcome.UNSUPPORTED, error="no prlimit")


def mark_unconfirmed(history: History) -> None:
    history.faults[0] = fault(outcome=FaultOutcome.FAILED)


def repeat_operation(history: History) -> None:
    history.operations.append(replace(history.operations[0], client="other"))


DOUBTS: list[Callable[[History], None]] = [
    empty_history,
    leave_unacknowledged,
    stop_run,
    unread,
    without_a_stream,
    mark_unsupported,
    mark_unconfirmed,
    repeat_operation,
]


@pytest.mark.parametrize("change", DOUBTS)
def test_what_is_not_known_is_no_pass(history: History, tmp_path: Path, change: Callable[[History], None]) -> None:
    change(history)
    assert judge_capture(history.write(tmp_path)).status is CaseStatus.UNKNOWN


@pytest.mark.parametrize("change", [stop_run, unread, mark_unsupported, mark_unconfirmed])
def test_what_is_proven_fails_in_spite_of_what_is_not_known(
    history: History, tmp_path: Path, change: Callable[[History], None]
) -> None:
    change(history)
    rows = history.streams["foo-read-east"]
    rows.append(replace(rows[0], seq=rows[-1].seq + 1))
    judged = judge_capture(history.write(tmp_path))
    assert judged.status is CaseStatus.FAIL
    assert [case.name for case in judged.cases if case.status is CaseStatus.FAIL] == ["foo: duplicated == 0"]


def test_what_a_stopped_run_has_not_stored_yet_is_not_proven_to_be_lost(history: History, tmp_path: Path) -> None:
    stop_run(history)
    history.streams["foo-read-east"].pop()
    assert judge_capture(history.write(tmp_path)).status is CaseStatus.UNKNOWN


def test_an_empty_history_beside_stored_messages_fails(history: History, tmp_path: Path) -> None:
    history.operations = []
    assert judge_capture(history.write(tmp_path)).status is CaseStatus.FAIL


def test_an_unsupported_fault_takes_its_windows_with_it(history: History, tmp_path: Path) -> None:
    mark_unsupported(history)
    before = judge_cases(history, tmp_path, expect(Measure.PUBLISHED, 1, window="before", region="west"))
    assert before["west"].status is CaseStatus.PASS
    for compare in Compare:
        down = judge_cases(history, tmp_path / compare.name, expect(Measure.PUBLISHED, 0, compare, window="down"))
        assert {case.status for case in down.values()} == {CaseStatus.UNKNOWN}
        assert all("unsupported" in case.detail for case in down.values())


def test_a_file_with_fewer_rows_than_were_read_is_damaged(history: History, tmp_path: Path) -> None:
    capture = history.write(tmp_path)
    file = capture.stream_file("foo-read-west")
    file.write_bytes(b"\n".join(file.read_bytes().splitlines()[:-1]) + b"\n")
    judged = judge_capture(capture)
    assert judged.status is CaseStatus.UNKNOWN
    assert "holds 79 of its 80" in case(judged, "the capture is complete").detail


def test_a_stream_file_with_a_broken_line_is_damaged(history: History, tmp_path: Path) -> None:
    capture = history.write(tmp_path)
    with capture.stream_file("foo-write-east").open("ab") as file:
        file.write(b"{}\n")
    judged = judge_capture(capture)
    assert judged.status is CaseStatus.UNKNOWN
    assert "foo-write-east.jsonl:31" in case(judged, "the capture is complete").detail


@pytest.mark.parametrize(
    "name", ["faults.jsonl", "windows.jsonl", "samples.jsonl", "operations/west.jsonl", "deliveries/east.jsonl"]
)
def test_a_file_that_lost_a_line_or_is_gone_is_damaged(history: History, tmp_path: Path, name: str) -> None:
    capture = history.write(tmp_path)
    file = tmp_path / name
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-1]))
    judged = judge_capture(capture)
    assert judged.status is not CaseStatus.PASS
    assert f"{name} holds {len(lines) - 1} of its {len(lines)} lines" in case(judged, "the capture is complete").detail
    file.unlink()
    judged = judge_capture(capture)
    assert judged.status is not CaseStatus.PASS
    assert f"{name} is gone" in case(judged, "the capture is complete").detail


@pytest.mark.parametrize("seq", [-4, 0, 3])
def test_a_stream_file_whose_sequences_do_not_ascend_is_damaged(history: History, tmp_path: Path, seq: int) -> None:
    capture = history.write(tmp_path)
    file = capture.stream_file("foo-read-west")
    file.write_bytes(file.read_bytes().replace(b'"seq":4,', b'"seq":%d,' % seq))
    judged = judge_capture(capture)
    assert judged.status is CaseStatus.UNKNOWN
    assert f"its sequence {seq} comes after 3" in case(judged, "the capture is complete").detail


@pytest.mark.parametrize("text", ["", "zz", "ff0123456789abcdef", "0123456789ABCDE_"])
def test_what_is_no_digest_is_an_error_of_its_line(history: History, tmp_path: Path, text: str) -> None:
    capture = history.write(tmp_path)
    stored, operations = partial(capture.read_stored, "foo-read-west"), capture.operations
    for file, read in ((capture.stream_file("foo-read-west"), stored), (capture.operations_file("east"), operations)):
        first, second, *rest = file.read_text().splitlines(keepends=True)
        file.write_text("".join([first, re.sub('"digest":"[^"]*"', f'"digest":"{text}"', second), *rest]))
        with pytest.raises(VstreamError, match=rf"{file.name}:2: digest"):
            list(read())


def test_a_history_with_a_broken_line_cannot_be_judged(history: History, tmp_path: Path) -> None:
    capture = history.write(tmp_path)
    with capture.operations_file("east").open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(VstreamError, match=r"east\.jsonl"):
        judge_capture(capture)


@pytest.mark.parametrize(
    ("line", "status"), [("panic: runtime error", CaseStatus.FAIL), ("[FTL] address already in use", CaseStatus.PASS)]
)
def test_a_server_that_panicked_fails_the_run(history: History, tmp_path: Path, line: str, status: CaseStatus) -> None:
    first, *rest = history.manifest.servers
    history.manifest = replace(history.manifest, servers=(replace(first, panics=(line,)), *rest))
    judged = judge_capture(history.write(tmp_path))
    assert judged.status is status
    assert (line in " ".join(judged.warnings)) is (status is CaseStatus.PASS)


def test_losses_that_are_allowed_are_found_and_counted(tmp_path: Path) -> None:
    """As after a power loss: a write stream that was set back gives its sequences to other messages."""
    history = clean()
    rows = history.streams["foo-write-west"]
    back = rows[5:10]
    history.streams["foo-write-west"] = [*rows[:5], *(replace(row, seq=row.seq - 5) for row in rows[10:])]
    for place, operation in enumerate(history.operations):
        if operation.acked_by == "foo-write-west" and operation.seq is not None and operation.seq > 10:
            history.operations[place] = replace(operation, seq=operation.seq - 5)
    west = history.streams["foo-read-west"]
    history.streams["foo-read-west"] = [row for row in west if row.id not in {message.id for message in back}]
    judged = judge_capture(history.write(tmp_path), [expect(Measure.LOST, 5, Compare.AT_MOST)])
    assert judged.status is CaseStatus.PASS, [case for case in judged.cases if case.status is not CaseStatus.PASS]
    lost = judged.streams[0].served[0].lost
    assert lost.count == 5
    assert "foo-write-west was set back, and has given its sequence" in lost.examples[0].detail
    assert lost.examples[0].acked_seq == back[0].seq
    assert judge_capture(history.write(tmp_path / "2")).status is CaseStatus.FAIL
    anything = judge_capture(history.write(tmp_path / "3"), [expect(Measure.LOST, 0, Compare.AT_LEAST)])
    assert anything.status is CaseStatus.PASS, "`any` expects nothing"


@pytest.mark.parametrize(("stream", "is_safe"), [("foo", False), ("bar", True)])
def test_what_is_said_of_the_safety_of_one_stream_leaves_the_others_safe(
    history: History, tmp_path: Path, stream: str, is_safe: bool
) -> None:
    judged = judge_capture(history.write(tmp_path), [replace(expect(Measure.LOST, 5), stream=stream)])
    safety = {(case.stream, case.measure) for case in judged.cases if case.kind is CaseKind.SAFETY}
    assert ("foo", Measure.REORDERED) in safety
    assert (("foo", Measure.LOST) in safety) is is_safe


def test_examples_say_what_was_broken(history: History, tmp_path: Path) -> None:
    row = next(row for row in history.streams["foo-read-west"] if row.time - history.manifest.wall > 1.2 * SECOND)
    history.streams["foo-read-west"].remove(row)
    judged = judge_capture(history.write(tmp_path))
    (example,) = judged.streams[0].served[0].lost.examples
    operation = next(operation for operation in history.operations if operation.id == row.id)
    assert (example.id, example.origin, example.acked) == (row.id, operation.region, operation.done)
    assert (example.acked_by, example.acked_seq) == (operation.acked_by, operation.seq)
    assert example.faults == ("kill-region west",)


def test_consumers_are_reported_and_not_judged(history: History, tmp_path: Path) -> None:
    west = [delivery for delivery in history.deliveries if delivery.region == "west"]
    skipped, behind = west[4], west[-1]
    history.deliveries.remove(skipped)
    history.deliveries.remove(behind)
    history.deliveries += [west[0], replace(west[1], deliveries=2), replace(west[2], id="ghost")]
    judged = judge_capture(history.write(tmp_path))
    assert judged.status is CaseStatus.PASS
    (west_consumer,) = [consumer for consumer in judged.streams[0].consumers if consumer.region == "west"]
    assert (
        west_consumer.skipped,
        west_consumer.behind,
        west_consumer.repeated,
        west_consumer.redelivered,
        west_consumer.unknown,
    ) == (1, 1, 1, 1, 1)
    assert west_consumer.delivered == len(west) - 2


def test_a_late_recorder_is_warned_of(history: History, tmp_path: Path) -> None:
    assert not judge_capture(history.write(tmp_path)).warnings
    history.operations = [replace(operation, due=operation.due - 60 * MILLISECOND) for operation in history.operations]
    judged = judge_capture(history.write(tmp_path / "2"))
    assert judged.lateness is not None
    assert judged.lateness.p99 >= 60 * MILLISECOND
    assert "recorder was late" in judged.warnings[0]


def test_a_cursor_beyond_its_write_stream_is_warned_of(history: History, tmp_path: Path) -> None:
    last = history.samples[-1]
    history.samples.append(
        replace(
            last, at=last.at + 1, last_seq={"foo-write-east": 30}, sourced={"foo-read-east": {"foo-write-east": 31}}
        )
    )
    assert "was set back" in judge_capture(history.write(tmp_path)).warnings[0]


def test_the_timeline_has_every_publish_and_all_lag(history: History, tmp_path: Path) -> None:
    timeline = judge_capture(history.write(tmp_path)).timeline
    for region in REGIONS:
        seconds = timeline.publishes[region]
        assert len(seconds) == timeline.intervals
        assert sum(second.ok + second.rejected + second.indeterminate for second in seconds) == 30
        assert all(lag[-1] == 0 for lag in timeline.lag[region].values())
    assert timeline.publishes["west"][1].rejected == 5
    assert timeline.publishes["west"][1].p50 is None
    assert (timeline.start, timeline.interval) == (0, SECOND)


def test_a_long_run_has_longer_intervals(tmp_path: Path) -> None:
    history = clean(Shape(messages=2, rate=1))
    history.windows.append(Window(name="long", start=0, end=7200 * SECOND, action="wait 2h"))
    timeline = judge_capture(history.write(tmp_path)).timeline
    assert (timeline.interval, timeline.intervals) == (4 * SECOND, 1800)


def test_a_directory_without_a_capture_cannot_be_judged(tmp_path: Path) -> None:
    with pytest.raises(VstreamError):
        judge_capture(Capture(tmp_path))


def test_a_capture_without_operations_is_unknown(tmp_path: Path) -> None:
    manifest: Manifest = clean(Shape(messages=1)).manifest
    Capture(tmp_path).write_manifest(replace(manifest, models={}, streams=(), servers=(), load=None))
    judged = judge_capture(Capture(tmp_path))
    assert judged.status is CaseStatus.UNKNOWN
