"""What a report says of itself: pass or not, the matrix, JSON and JUnit."""

from __future__ import annotations

import io
import json
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from rich.console import Console

from vstream.cli.views import probe as view
from vstream.cli.views.probe import to_junit
from vstream.probe.report import Check, CheckKind, CheckStatus, ProbeReport, join_reports, name_servers


def check(status: CheckStatus, kind: CheckKind = CheckKind.MAPPING, stream: str = "foo", **fields: object) -> Check:
    values: dict[str, object] = {"region": "west", "detail": "seen", **fields}
    return Check(stream=stream, kind=kind, status=status, **values)  # type: ignore[arg-type]


def arrival(origin: str, reader: str, ms: float | None, stream: str = "foo") -> Check:
    status = CheckStatus.FAILED if ms is None else CheckStatus.OK
    return check(status, CheckKind.CANARY, stream, region=reader, origin=origin, elapsed_ms=ms)


def report(*checks: Check) -> ProbeReport:
    return ProbeReport(topology="acme", regions=("west", "east"), checks=checks)


@pytest.mark.parametrize(
    ("statuses", "verdict"),
    [
        ([], "UNKNOWN"),
        ([CheckStatus.SKIPPED], "UNKNOWN"),
        ([CheckStatus.UNKNOWN], "UNKNOWN"),
        ([CheckStatus.OK], "PASS"),
        ([CheckStatus.OK, CheckStatus.SKIPPED], "PASS"),
        ([CheckStatus.OK, CheckStatus.UNKNOWN], "UNKNOWN"),
        ([CheckStatus.OK, CheckStatus.FAILED], "FAIL"),
        ([CheckStatus.UNKNOWN, CheckStatus.FAILED], "FAIL"),
    ],
)
def test_nothing_seen_is_never_a_pass(statuses: list[CheckStatus], verdict: str) -> None:
    probed = report(*(check(status) for status in statuses))
    assert (probed.is_pass, probed.is_fail) == (verdict == "PASS", verdict == "FAIL")
    assert probed.as_dict()["passed"] is {"PASS": True, "FAIL": False}.get(verdict)
    *_, last = view.render_report(probed)
    assert str(last).startswith(f"{verdict}: ")


def test_regions_of_which_none_is_reached_are_unknown_and_one_of_several_is_a_failure() -> None:
    unreached = check(CheckStatus.FAILED, CheckKind.CONNECTION)
    assert not report(unreached, check(CheckStatus.SKIPPED)).is_fail
    assert report(unreached, check(CheckStatus.OK)).is_fail


def test_counts_name_every_status() -> None:
    counts = report(check(CheckStatus.OK), check(CheckStatus.OK), check(CheckStatus.SKIPPED)).counts
    assert counts == {CheckStatus.OK: 2, CheckStatus.FAILED: 0, CheckStatus.SKIPPED: 1, CheckStatus.UNKNOWN: 0}


def test_on_a_narrow_screen_no_name_is_broken() -> None:
    probed = report(
        check(CheckStatus.OK, region="eu-central", answered_by="orders-write-eu-central"),
        check(CheckStatus.FAILED, CheckKind.DIRECT_GET, region="eu-central"),
        check(
            CheckStatus.OK,
            CheckKind.OWN_READ,
            region="eu-central",
            form="DIRECT.GET",
            elapsed_ms=1.0,
            answered_by="orders-read",
        ),
    )
    probed = replace(probed, regions=("eu-central",))
    for width, is_named in ((60, False), (100, True)):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(*list(view.render_report(probed, width=width))[:2])
        shown = console.export_text()
        assert ("✓ orders-write-eu-central" in shown, "1.0 ms orders-read" in shown) == (is_named, is_named)
        assert next(line.split() for line in shown.splitlines() if "✗" in line)[-2:] == ["✗", "failed"]
        assert "publish" in shown


def test_the_matrix_shows_the_slowest_stream_and_hides_no_failure() -> None:
    probe_report = report(
        arrival("west", "west", 0.0),
        arrival("west", "east", 12.0),
        arrival("east", "west", None),
        arrival("west", "east", 7.0, stream="bar"),
        arrival("east", "west", 3.0, stream="bar"),
        check(CheckStatus.OK, elapsed_ms=99.0),
    )
    assert probe_report.matrix() == {"west": {"west": 0.0, "east": 12.0}, "east": {"west": None}}
    assert probe_report.matrix("bar") == {"west": {"east": 7.0}, "east": {"west": 3.0}}
    assert probe_report.matrix("nope") == {}


def test_a_pair_that_was_not_tried_is_not_called_missing() -> None:
    skipped = check(CheckStatus.SKIPPED, CheckKind.CANARY, region="east", origin="west")
    table = view.render_matrix(report(arrival("west", "west", 1.0), arrival("east", "west", None), skipped))
    assert table is not None
    shown = [[str(cell) for cell in column.cells] for column in table.columns]
    assert shown == [["west", "east"], ["✓ 1.0 ms", "✗ missing"], ["– not tried", "-"]]


def test_a_failure_stays_in_the_matrix_whatever_comes_later() -> None:
    assert report(arrival("west", "east", None), arrival("west", "east", 5.0, "bar")).matrix() == {
        "west": {"east": None}
    }


def test_the_plain_form_is_json() -> None:
    plain = report(
        arrival("west", "east", 1.23456), check(CheckStatus.SKIPPED, CheckKind.CANARY, "bar", region=None)
    ).as_dict()
    assert json.loads(json.dumps(plain)) == {
        "topology": "acme",
        "passed": True,
        "regions": ["west", "east"],
        "counts": {"ok": 1, "failed": 0, "skipped": 1, "unknown": 0},
        "matrix": {"west": {"east": 1.235}},
        "checks": [
            {
                "stream": "foo",
                "region": "east",
                "hop": "canary",
                "origin": "west",
                "subject": None,
                "form": None,
                "status": "ok",
                "detail": "seen",
                "hint": None,
                "answered_by": None,
                "server": None,
                "elapsed_ms": 1.235,
            },
            {
                "stream": "bar",
                "region": None,
                "hop": "canary",
                "origin": None,
                "subject": None,
                "form": None,
                "status": "skipped",
                "detail": "seen",
                "hint": None,
                "answered_by": None,
                "server": None,
                "elapsed_ms": None,
            },
        ],
    }


def test_junit_has_a_suite_for_each_stream_and_a_case_for_each_check() -> None:
    text = to_junit(
        report(
            check(CheckStatus.OK, subject="foo._vstream_probe", elapsed_ms=1500.0),
            check(CheckStatus.FAILED, CheckKind.STREAM_INFO, detail="no <stream> & \x00 nothing", hint="look there"),
            check(CheckStatus.UNKNOWN, CheckKind.DIRECT_GET),
            arrival("east", "west", 2.0),
            check(CheckStatus.SKIPPED, CheckKind.CANARY, "bar", region=None),
        )
    )
    root = ET.fromstring(text)
    assert text.startswith("<?xml")
    assert (root.tag, root.get("tests"), root.get("failures")) == ("testsuites", "5", "1")
    assert (root.get("errors"), root.get("skipped")) == ("1", "1")
    foo, bar = root
    assert (foo.get("name"), foo.get("tests"), bar.get("name"), bar.get("tests")) == ("foo", "4", "bar", "1")
    cases = {case.get("name"): case for case in foo}
    assert list(cases) == [
        "mapping foo._vstream_probe in west",
        "stream_info in west",
        "direct_get in west",
        "canary from east in west",
    ]
    assert cases["mapping foo._vstream_probe in west"].get("time") == "1.500000"
    failure = cases["stream_info in west"].find("failure")
    assert failure is not None
    assert failure.get("message") == "no <stream> & \N{REPLACEMENT CHARACTER} nothing"
    assert failure.text == "look there"
    assert cases["direct_get in west"].find("error") is not None
    assert bar[0].find("skipped") is not None


def test_junit_case_names_are_unique_where_one_region_is_cleaned_twice() -> None:
    text = to_junit(
        report(
            check(CheckStatus.OK, CheckKind.CLEANUP, answered_by="foo-write-west"),
            check(CheckStatus.OK, CheckKind.CLEANUP, answered_by="foo-read-west"),
        )
    )
    names = [case.get("name") for case in ET.fromstring(text).iter("testcase")]
    assert names == ["cleanup in west of foo-write-west", "cleanup in west of foo-read-west"]


def test_junit_of_nothing_is_an_error() -> None:
    root = ET.fromstring(to_junit(report()))
    assert root.get("errors") == "1"
    assert next(root.iter("error")).get("message") == "nothing was probed"


def test_the_server_that_was_asked_is_named() -> None:
    asked = {"west": "west-2", "east": "east-1"}
    by_west = report(check(CheckStatus.FAILED, detail="no stream listens"), arrival("east", "west", 2.0))
    joined = join_reports(
        [name_servers(by_west, asked), name_servers(report(check(CheckStatus.OK)), {"west": "west-1"})]
    )
    assert [check.server for check in joined.checks] == ["west-2", "east-1", "west-1"]
    assert "west by west-2 mapping: no stream listens" in "".join(line.plain for line in view.render_problems(joined))
    assert 'name="mapping in west by west-1"' in to_junit(joined)
