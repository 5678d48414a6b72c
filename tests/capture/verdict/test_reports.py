"""A verdict's reports say what it says: nothing is lost on the way, and nothing passes that has not."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.captures import SECOND, History, Shape, clean, fault
from vstream.capture.records import FaultOutcome, Window
from vstream.capture.verdict.judge_capture import judge_capture
from vstream.capture.verdict.model import CaseStatus, Verdict, as_dict, to_junit
from vstream.capture.verdict.units import format_nanoseconds, format_share
from vstream.cli.views import verdict as view
from vstream.findings import Span
from vstream.scenario.model import Compare, Expectation, Measure


def eventful() -> History:
    """Something of everything: losses, a copy, an unsupported fault, a window."""
    history = clean(Shape(messages=60, indeterminate=0.1, rejected=0.1))
    history.faults += [fault(), fault("disk-full east", outcome=FaultOutcome.UNSUPPORTED, injected=5 * SECOND)]
    history.windows.append(Window(name="down", start=SECOND, end=2 * SECOND, action="wait 1s"))
    history.streams["foo-read-west"].pop(8)
    history.streams["foo-read-east"].append(history.streams["foo-read-east"][0])
    return history


@pytest.fixture
def verdict(tmp_path: Path) -> Verdict:
    never = Expectation(
        measure=Measure.CONVERGED,
        compare=Compare.AT_MOST,
        value=SECOND,
        span=Span.point("s.yaml", 7, 3),
        window="back",
    )
    history = eventful()
    history.windows.append(Window(name="back", start=2 * SECOND, end=3 * SECOND, action="converge", is_ok=False))
    return judge_capture(history.write(tmp_path), [never])


def text(verdict: Verdict, width: int = 200) -> str:
    console = Console(width=width, record=True, soft_wrap=True, file=StringIO())
    for part in view.render_report(verdict, 200):
        console.print(part)
    return console.export_text()


def test_text_begins_with_the_verdict_and_why(verdict: Verdict) -> None:
    lines = text(verdict).splitlines()
    counts = verdict.counts
    assert lines[0] == (
        f"✗ FAIL synthetic, seed 1: {counts[CaseStatus.FAIL]} failed, {counts[CaseStatus.UNKNOWN]} unknown, "
        f"{counts[CaseStatus.PASS]} passed"
    )
    for case in verdict.cases:
        shown = any(case.name in line and case.detail in line for line in lines)
        assert shown is (case.status is not CaseStatus.PASS)
    assert any("s.yaml:7:3" in line for line in lines)
    assert any("1 lost in west" in line for line in lines)
    assert any("unsupported" in line for line in lines)


def test_json_is_json_and_holds_everything(verdict: Verdict) -> None:
    document = json.loads(json.dumps(as_dict(verdict), allow_nan=False))
    assert document["status"] == "fail"
    assert [case["status"] for case in document["cases"]] == [case.status.value for case in verdict.cases]
    assert document["cases"][0]["measured"] is None  # it never converged
    assert document["cases"][0]["expectation"]["span"] == "s.yaml:7:3"
    (stream,) = document["streams"]
    assert stream["served"][0]["lost"]["count"] == 1
    assert stream["served"][0]["lost"]["examples"][0]["id"] == verdict.streams[0].served[0].lost.examples[0].id
    assert stream["origins"]["west"]["attempted"] == 60
    run = document["windows"][0]
    assert run["publishes"][0]["share"] == run["publishes"][0]["ok"] / 60
    assert len(document["timeline"]["publishes"]["west"]) == document["timeline"]["intervals"]


def test_junit_counts_what_is_not_known_as_an_error(verdict: Verdict) -> None:
    root = ET.fromstring(to_junit(verdict))
    counts = verdict.counts
    assert root.get("tests") == str(len(verdict.cases))
    assert root.get("failures") == str(counts[CaseStatus.FAIL])
    assert root.get("errors") == str(counts[CaseStatus.UNKNOWN])
    names = {case.get("name"): case for case in root.iter("testcase")}
    assert len(names) == len(verdict.cases)
    assert names["fault disk-full east"].find("error") is not None
    assert names["foo: lost == 0"].find("failure") is not None


@pytest.mark.parametrize("status", list(CaseStatus))
def test_nothing_judged_is_no_success(verdict: Verdict, status: CaseStatus) -> None:
    nothing = replace(verdict, cases=())
    assert nothing.status is CaseStatus.UNKNOWN
    assert ET.fromstring(to_junit(nothing)).get("errors") == "1"
    assert "UNKNOWN" in text(nothing).splitlines()[0]
    only = replace(verdict, cases=tuple(case for case in verdict.cases if case.status is status))
    assert only.status is status


def test_texts_from_servers_break_no_report(tmp_path: Path) -> None:
    history = eventful()
    evil = "\x00\x1b[31m[bold]<script>alert(1)</script>&"
    history.faults[0] = replace(history.faults[0], command=evil, evidence=evil)
    history.manifest = replace(history.manifest, scenario=evil)
    judged = judge_capture(history.write(tmp_path))
    assert "[bold]<script>" in text(judged)
    assert "\x1b" not in text(judged)
    assert ET.fromstring(to_junit(judged)).get("name")
    assert json.loads(json.dumps(as_dict(judged)))["scenario"] == evil


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1, "100 %"), (0, "0 %"), (0.5, "50 %"), (0.99999, "99.999 %"), (1e-5, "0.001 %"), (2399 / 2400, "99.96 %")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(value: float, shown: str) -> None:
    assert format_share(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 ns"), (999, "999 ns"), (1_500, "1.5 µs"), (35_000_000, "35 ms"), (9_994_000_000, "9.99 s"),
     (59_960_000_000, "60 s"), (125_000_000_000, "2 min 5 s"), (float("inf"), "never")],
)  # fmt: skip
def test_durations_are_written_with_a_unit(value: float, shown: str) -> None:
    assert format_nanoseconds(value) == shown
