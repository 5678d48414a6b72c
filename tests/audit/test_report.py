"""What an audit has found: verdicts, and the ways in which they are shown. No Spark."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from subprocess import run

import pytest
from rich.console import Console

from tests.support.command import check_output
from vstream.audit import codes
from vstream.audit.finding_kinds import FindingKind
from vstream.audit.report import (
    AuditVerdict,
    Delay,
    MessageFinding,
    OrderDifference,
    ReaderRoute,
    Recovery,
    Report,
    SequenceRange,
    StreamState,
)
from vstream.audit.spark.spark_errors import find_cause_line
from vstream.cli.views import audit as view
from vstream.cli.views.audit import RoundPrinter
from vstream.cli.views.audit_page import render_page
from vstream.cli.views.json_output import format_json


def stream(name: str, region: str, *, is_origin: bool = False) -> StreamState:
    return StreamState(
        virtual="foo", stream=name, region=region, role="write" if is_origin else "read", is_origin=is_origin, messages=10,
        first_seq=1, last_seq=10, rows=10, server_version="2.15.1", path="consumer", error=None,
    )  # fmt: skip


def finding(kind: str, **more: object) -> MessageFinding:
    code = codes.BY_KIND[FindingKind(kind)]
    fields = {"virtual": "foo", "message": "something", "count": 3} | more
    return MessageFinding(
        code=code.code, name=code.name, severity=code.severity, leaves_open=code.leaves_open, **fields  # type: ignore[arg-type]
    )  # fmt: skip


LOST = finding(
    "lost-middle", stream="foo-read-east", region="east", origin="foo-write-west", origin_region="west", count=151,
    ranges=tuple(SequenceRange(first=10 * n, last=10 * n + 1, number=2, key="foo.<b>x</b>") for n in range(7)), more=80,
)  # fmt: skip
CLEAN = Report(
    subject="acme on lab acme",
    regions=("west", "east"),
    streams=(stream("foo-write-west", "west", is_origin=True), stream("foo-read-west", "west"), stream("foo-read-east", "east")),
    findings=(),
    routes=tuple(
        ReaderRoute(
            virtual="foo", origin="foo-write-west", origin_region="west", stream=f"foo-read-{region}", region=region,
            arrived=10, least=1, greatest=10,
        )
        for region in ("west", "east")
    ),
    delays=tuple(
        Delay(
            minutes=None,
            virtual="foo", origin_region="west", region=region, minute=minute, messages=10, p50_ns=2e6, p90_ns=4e6,
            p99_ns=5e6, max_ns=7_000_000,
        )
        for region in ("west", "east")
        for minute in (None, 28_000_000, 28_000_001, 28_000_500)
    ),
    recoveries=tuple(
        Recovery(
            window="kill-region west", begun_ns=number, virtual="foo", origin_region="west", region="east", messages=5,
            missing=missing, recovery_ns=0,
        )
        for number, missing in ((1, 0), (2, 3))
    ),
    order_differences=(OrderDifference(virtual="foo", region="east", compared_with="west", neighbours=100_000, inverted=1),),
)  # fmt: skip
BROKEN = replace(CLEAN, findings=(LOST, finding("conflicts", examples=("`k`: one, then other",))))


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ((), AuditVerdict.PASS),
        (("pending", "removed", "conflicts", "diverged-keys"), AuditVerdict.PASS),
        (("unreadable",), AuditVerdict.UNKNOWN),
        (("nothing",), AuditVerdict.UNKNOWN),
        (("removed-early",), AuditVerdict.UNKNOWN),
        (("incomplete",), AuditVerdict.UNKNOWN),
        (("unreadable", "late"), AuditVerdict.FAIL),
        (("duplicated",), AuditVerdict.FAIL),
    ],
)
def test_the_verdict_is_that_of_the_worst_finding(kinds: tuple[str, ...], expected: AuditVerdict) -> None:
    report = replace(CLEAN, findings=tuple(finding(kind) for kind in kinds))
    assert report.verdict() is expected
    assert report.verdict("bar") is AuditVerdict.PASS


def test_nothing_audited_is_not_a_pass() -> None:
    assert replace(CLEAN, streams=()).verdict() is AuditVerdict.UNKNOWN


def text(report: Report) -> str:
    console = Console(width=160, file=None, record=True, force_terminal=False)
    with console.capture() as captured:
        for part in view.render_report(report):
            console.print(part)
    return captured.get()


def test_the_screen_says_the_verdict_first_then_why() -> None:
    lines = text(BROKEN).splitlines()
    assert lines[0].startswith(
        "✗ FAIL acme on lab acme: 151 messages missing (east) · 1 error · 1 note · 30 stored messages in 3 streams of 2 regions"
    )
    assert lines[1] == "✗ VA102 foo east: something"
    assert lines[2].strip() == (
        "sequences of foo-write-west: 0–1 (2), 10–11 (2), 20–21 (2), 30–31 (2), 40–41 (2), and 82 more ranges"
    )


def test_the_manual_is_pointed_to() -> None:
    assert "`vstream lint --explain VA102`: what it means" in text(BROKEN)
    assert "vstream lint --explain" not in text(CLEAN)


def test_a_pass_says_what_it_is_about() -> None:
    assert text(CLEAN).startswith("✓ PASS acme on lab acme: every region holds every message, once, in order · ")


def test_what_is_unknown_is_not_said_to_be_well() -> None:
    unseen = replace(CLEAN, findings=(finding("unreadable", stream="foo-read-west", region="west"),))
    for report in (unseen, Report(subject="nothing", regions=(), streams=(), findings=())):
        assert "no problem was found, but not everything could be checked" in text(report)
        assert "every region holds" not in text(report)


def test_a_fault_whose_messages_never_came_has_not_settled() -> None:
    rows = [line.split() for line in text(CLEAN).splitlines() if "kill-region west" in line]
    assert [row[-3:] for row in rows] == [["west", "at", "once"], ["never:", "3", "missing"]]


def test_one_and_several_are_said_as_such_and_what_is_late_is_not_called_missing() -> None:
    findings = (
        finding("lost-tail", region="east", count=1),
        finding("late", region="west", count=2),
        finding("unreadable", region="north", count=0),
    )
    report = replace(CLEAN, regions=("east",), streams=(replace(CLEAN.streams[0], rows=1),), findings=findings)
    assert view.summarize(report) == (
        "1 message missing (east); 2 messages late (west); not everything could be checked (north) · 2 errors · "
        "1 stored message in 1 stream of 1 region"
    )
    lost = codes.BY_KIND[FindingKind.LOST_MIDDLE].says
    assert [lost.format(n=codes.Count(n), stream="r", origin="w") for n in (1, 2000)] == [
        "`r` lacks 1 message of `w` between others",
        "`r` lacks 2,000 messages of `w` between others",
    ]


def test_rounds_say_what_begins_and_what_is_over() -> None:
    rounds = RoundPrinter()
    assert [str(line).split()[:2] for line in rounds.lines(CLEAN)] == [["✓", "PASS"]]
    assert "VA102 foo east: something" in str(list(rounds.lines(BROKEN))[1])
    assert len(list(rounds.lines(BROKEN))) == 1
    assert "over: VA102" in str(list(rounds.lines(CLEAN))[1])
    # What has grown too old to be looked at has not been mended.
    assert len(list(rounds.lines(BROKEN))) == 2
    later = replace(CLEAN, streams=tuple(replace(stream, first_seq=1000) for stream in CLEAN.streams))
    few = replace(BROKEN, findings=(replace(LOST, more=0),))
    assert len(list(rounds.lines(few))) == 1
    assert "not repaired: VA102" in str(list(rounds.lines(later))[1])
    unseen = replace(CLEAN, findings=(finding("unreadable", region="east", examples=("connection refused",)),))
    assert str(list(rounds.lines(unseen))[1]).endswith("foo east: something: connection refused")


def test_what_spark_says_is_one_line() -> None:
    ours = "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted\n\tat a.b(C.java)\n"
    worker = (
        ours
        + '  File "x.py", line 1\nvstream.errors.NotReachableError: nats://127.0.0.1:1: connection refused\n\n\tat d'
    )
    assert find_cause_line(worker) == "nats://127.0.0.1:1: connection refused"
    assert find_cause_line(ours + "Caused by: java.io.IOException: No space left\n\tat e") == "No space left"
    for missing in ("delta.DefaultSource", "Class delta.DefaultSource not found"):
        assert "has no `delta.DefaultSource`" in find_cause_line(
            f"{ours}Caused by: java.lang.ClassNotFoundException: {missing}\n\tat e"
        )
    assert find_cause_line(
        "An error occurred while calling o5.sql.\n: java.lang.IncompatibleClassChangeError: not an interface\n\tat f(G.java)"
    ) == ("not an interface")
    file = "file:///t/copies/part-00000-a.c000.snappy.parquet"
    mismatch = f"{ours}[FAILED_READ_FILE.X] Encountered error while reading file {file}. Data type mismatches. SQLSTATE: KD001\n"
    assert (
        find_cause_line(f"{mismatch}Caused by: a.b.NotSupportedException: column: [seq]\n") == f"{file}: column: [seq]"
    )
    assert (
        find_cause_line(f"{mismatch}Caused by: a.b.RuntimeException: file:/t/{file[12:]} is no\n")
        == f"file:/t/{file[12:]} is no"
    )
    assert find_cause_line("[USER_RAISED_EXCEPTION] a row is wrong SQLSTATE: P0001\n more") == "a row is wrong"
    assert find_cause_line("") == "it does not say why"


def test_percentages_do_not_hide_what_is_little() -> None:
    assert [view.format_share(part, 100_000) for part in (0, 1, 10, 50_000)] == ["0 %", "< 0.01 %", "0.01 %", "50.00 %"]


def test_the_json_of_a_report_has_everything() -> None:
    document = json.loads(format_json("audit", BROKEN.as_dict()))
    check_output(document)
    assert document["verdict"] == "fail"
    assert document["findings"][0]["count"] == 151
    assert len(document["findings"][0]["ranges"]) == 7
    assert document["delays"][0]["p50_ns"] == 2e6


def test_of_many_streams_those_that_pass_are_counted_and_not_named() -> None:
    many = tuple(replace(state, virtual=f"v{number}") for number in range(1000) for state in CLEAN.streams)
    report = replace(BROKEN, streams=(*BROKEN.streams, *many), shown=frozenset({"foo"}))
    document = json.loads(format_json("audit", report.as_dict()))
    check_output(document)
    assert document["verdict_counts"] == {"pass": 1000, "fail": 1, "unknown": 0}
    assert document["verdicts"] == {"foo": "fail"}
    assert {row["virtual"] for row in document["streams"]} == {"foo"}
    assert document["delays"] == BROKEN.as_dict()["delays"]
    nothing = replace(report, findings=(), shown=frozenset(), routes=(), delays=(), order_differences=(), recoveries=())
    assert len(json.dumps(nothing.as_dict())) < 600
    assert "--all-figures" in "".join(str(line) for line in view.render_report(nothing))
    assert "1,001" in render_page(nothing)


def test_only_findings_leave_out_figures_and_what_is_well() -> None:
    whole, short = BROKEN.as_dict(), BROKEN.as_dict(only_findings=True)
    assert short.keys() == whole.keys()
    assert (short["verdict"], short["findings"]) == ("fail", whole["findings"])
    assert [short[name] for name in ("streams", "routes", "delays", "order_differences", "recoveries")] == [[]] * 5
    assert CLEAN.as_dict(only_findings=True)["verdicts"] == {}
    assert view.to_junit(CLEAN, only_findings=True).count("<testcase") == 1
    assert view.to_junit(BROKEN, only_findings=True).count("<testcase") == 1
    assert "lost-middle" in view.to_junit(BROKEN, only_findings=True)
    assert len(list(view.render_report(CLEAN, only_findings=True))) == 1


def test_junit_counts_errors_as_failures_and_what_was_not_seen_as_errors() -> None:
    root = ET.fromstring(
        view.to_junit(replace(BROKEN, findings=(LOST, finding("unreadable", examples=("no \x00 answer",)))))
    )
    assert (root.get("failures"), root.get("errors")) == ("1", "1")
    names = {case.get("name"): [child.tag for child in case] for case in root.iter("testcase")}
    assert names["lost-middle"] == ["failure"]
    assert names["unreadable"] == ["error"]
    assert names["duplicated"] == []
    assert ET.fromstring(view.to_junit(replace(CLEAN, streams=()))).get("errors") == "1"


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in {"src", "href"}]
        if tag not in {"meta", "br", "path", "rect"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in {"path", "rect"}:
            assert self.open.pop() == tag


@pytest.mark.parametrize("report", [CLEAN, BROKEN, replace(CLEAN, streams=(), routes=(), delays=())])
def test_the_page_is_whole_needs_nothing_else_and_escapes_what_it_is_told(report: Report) -> None:
    shown = render_page(report)
    parser = Elements()
    parser.feed(shown)
    assert parser.open == []
    assert [address for address in parser.addresses if not address.startswith("#")] == []
    assert "<b>x</b>" not in shown
    assert "https://" not in shown
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', shown, re.DOTALL)
    assert data
    assert all(
        len(series["values"]) == json.loads(data[1])["intervals"]
        for chart in json.loads(data[1])["charts"]
        for series in chart["series"]
    )


def test_each_finding_leads_to_its_manual_page_below() -> None:
    """The page is read where there is no vstream, and no network."""
    shown = render_page(BROKEN)
    codes_shown = [finding.code for finding in BROKEN.findings]
    assert re.findall(r'<a href="#(VA\d+)">', shown) == codes_shown
    assert sorted(re.findall(r'<h3 id="(VA\d+)">', shown)) == sorted(set(codes_shown))
    assert "<h4>What to do</h4>" in shown
    assert "What the findings mean" not in render_page(CLEAN)


def test_what_stands_between_backticks_is_code_and_never_markup() -> None:
    shown = render_page(replace(CLEAN, findings=(replace(LOST, examples=("`<b>`, and `one",)),)))
    assert "<code>&lt;b&gt;</code>, and `one" in shown


def test_two_minutes_are_a_table_and_no_chart() -> None:
    short = replace(CLEAN, delays=tuple(delay for delay in CLEAN.delays if (delay.minute or 0) < 28_000_500))
    assert ("Delay over time" in render_page(CLEAN), "Delay over time" in render_page(short)) == (True, False)


def bars(shown: str) -> dict[str, str]:
    """What each bar of the plot along the sequences says of itself, by its stream."""
    return dict(re.findall(r'aria-label="(foo-[a-z-]+): ([^"]+)"', shown))


def test_a_stream_that_was_not_read_is_not_drawn_as_one_where_nothing_is_wrong() -> None:
    unread = replace(CLEAN.streams[2], error="connection refused", messages=None, rows=0)
    shown = render_page(
        replace(
            CLEAN,
            streams=(*CLEAN.streams[:2], unread),
            routes=(CLEAN.routes[0], replace(CLEAN.routes[1], arrived=None, least=None, greatest=None)),
            findings=(finding("unreadable", stream="foo-read-east", region="east"),),
        )
    )
    assert bars(shown) == {
        "foo-write-west": "0 ranges are marked",
        "foo-read-west": "0 ranges are marked",
        "foo-read-east": "not read",
    }
    assert "What could not be checked" in shown
    assert "What is wrong" not in shown


def test_what_is_wrong_is_marked_on_the_bar_of_its_stream_and_clean_bars_are_folded() -> None:
    shown = render_page(BROKEN)
    assert bars(shown)["foo-read-east"] == "7 ranges are marked"
    page = render_page(replace(CLEAN, findings=(replace(LOST, ranges=LOST.ranges[:1]),)))
    assert bars(page)["foo-read-east"] == "1 range is marked"
    assert (shown.count("What is wrong"), shown.count("What could not be checked")) == (1, 0)
    assert "with nothing to mark" not in shown
    assert "<summary>1 write stream with nothing to mark</summary>" in render_page(CLEAN)


def test_explaining_a_finding_needs_no_spark() -> None:
    script = "import sys; sys.modules['pyspark'] = None; sys.argv = ['vstream', 'lint', '--explain', 'VA203']\n"
    script += "from vstream.__main__ import main; main()"
    done = run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "rolled-back" in done.stdout


def test_the_audit_says_kindly_what_is_not_installed() -> None:
    script = "import sys; sys.modules['pyspark'] = None; sys.argv = ['vstream', 'audit', 'nothing.yaml']\n"
    script += "from vstream.__main__ import main; main()"
    done = run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'vstream[audit]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_expired_may_have_been_there_before() -> None:
    """A reader that was purged itself lacks the same messages, and its servers say nothing else."""
    expired = codes.BY_KIND[FindingKind.EXPIRED]
    assert "`nats stream purge`" in expired.page.text
    assert "its read stream was purged" in expired.page.text
    assert "before they were sourced" not in expired.says


def test_the_stretch_cluster_is_no_region() -> None:
    ordering = stream("foo-order-stretch", "stretch")
    route = replace(CLEAN.routes[0], stream=ordering.stream, region="stretch")
    report = replace(CLEAN, streams=(*CLEAN.streams, ordering), routes=(*CLEAN.routes, route), stretch="stretch")
    assert view.summarize(report).endswith("in 4 streams of 2 regions and the stretch cluster")
    assert "stretch cluster" in text(report)
    assert "stretch cluster" in render_page(report)
    assert (report.as_dict()["regions"], report.as_dict()["stretch"]) == (["west", "east"], "stretch")
    assert "stretch cluster" not in text(CLEAN) + render_page(CLEAN)
