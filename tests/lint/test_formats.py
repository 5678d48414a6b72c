"""Findings as text and for other programs."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest

from tests.support.paths import TESTS
from vstream.cli.views import finding_formats, finding_text
from vstream.findings import Edit, Finding, Related, Severity, Span
from vstream.lint.manual import PAGES

SUBSET = json.loads((TESTS / "fixtures/sarif-2.1.0-subset.schema.json").read_text())

SPAN = Span("nats/a b%.cfg", 2, 3, 2, 9)
FULL = Finding(
    code="VS330",
    severity=Severity.ERROR,
    message="100 % wrong: `a,b`\nand \x1b[31mred",
    where=SPAN,
    hint="do, or do not",
    related=(Related(span=Span("other", 1, 1, 1, 2), message="here"),),
    fix=(Edit(span=SPAN, text="x"), Edit(span=Span("other", 1, 1, 1, 2), text="y")),
)
BARE = Finding(code="VS999", severity=Severity.WARNING, message="no place")
NOTE = Finding(code="VS007", severity=Severity.NOTE, message="nothing", where=Span("n", 1, 1, 3, 2))
ALL = (FULL, BARE, NOTE)


def test_sarif_validates() -> None:
    jsonschema.validate(json.loads(finding_formats.to_sarif(ALL, PAGES)), SUBSET)
    jsonschema.validate(json.loads(finding_formats.to_sarif((), PAGES)), SUBSET)


def test_sarif_says_what_the_finding_says() -> None:
    (run,) = json.loads(finding_formats.to_sarif(ALL, PAGES))["runs"]
    rules: list[dict[str, Any]] = run["tool"]["driver"]["rules"]
    first, bare, note = run["results"]
    assert [rules[result["ruleIndex"]]["id"] for result in (first, bare, note)] == ["VS330", "VS999", "VS007"]
    assert [result["level"] for result in (first, bare, note)] == ["error", "warning", "note"]
    place = first["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "nats/a%20b%25.cfg"
    assert place["region"] == {"startLine": 2, "startColumn": 3, "endLine": 2, "endColumn": 9}
    assert first["relatedLocations"][0]["message"]["text"] == "here"
    assert [artifactChange["artifactLocation"]["uri"] for artifactChange in first["fixes"][0]["artifactChanges"]] == [
        "nats/a%20b%25.cfg",
        "other",
    ]
    assert "locations" not in bare


def test_absolute_files_are_uris_in_sarif() -> None:
    finding = Finding(code="VS004", severity=Severity.ERROR, message="", where=Span("/a b", 1, 1, 1, 2))
    (run,) = json.loads(finding_formats.to_sarif([finding], PAGES))["runs"]
    assert run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "file:///a%20b"


def test_annotations_are_one_line_each_and_escaped() -> None:
    first, bare, note = finding_formats.to_github(ALL)
    assert first == (
        "::error title=VS330,file=nats/a b%25.cfg,line=2,endLine=2,col=3,endColumn=9::"
        "nats/a b%25.cfg:2:3: 100 %25 wrong: `a,b`%0Aand \\x1b[31mred%0Ahint: do, or do not"
    )
    assert bare == "::warning title=VS999::no place"
    assert note == "::notice title=VS007,file=n,line=1,endLine=3::n:1:1: nothing"


@pytest.mark.parametrize(("file", "expected"), [("a:b,c", "a%3Ab%2Cc"), ("a\nb", "a\\nb")])
def test_names_of_files_cannot_end_a_property(file: str, expected: str) -> None:
    finding = Finding(code="VS004", severity=Severity.ERROR, message="", where=Span(file, 1, 1, 1, 2))
    (line,) = finding_formats.to_github([finding])
    assert f"file={expected}," in line


def test_junit_counts_errors_and_warnings_as_failures() -> None:
    root = ET.fromstring(finding_formats.to_junit(ALL, ["n", "clean.cfg"]))
    suites = {suite.get("name"): suite for suite in root}
    assert (root.get("tests"), root.get("failures")) == ("4", "2")
    assert [case.get("name") for case in suites["nats/a b%.cfg"]] == ["VS330:2:3"]
    assert suites["nats/a b%.cfg"].find("testcase/failure") is not None
    assert suites["clean.cfg"].find("testcase/failure") is None
    assert suites["n"].findtext("testcase/system-out") == "nothing"


def test_the_text_shows_lines_with_carets_related_places_and_the_hint() -> None:
    lines = [
        line.plain for line in finding_text.render_full([FULL], {SPAN.file: "one\n  \tabc\x1bd\n", "other": "two"})
    ]
    assert lines == [
        "nats/a b%.cfg:2:3: error VS330: 100 % wrong: `a,b`\\nand \\x1b[31mred",
        "  |",
        "2 |    abc�d",
        "  |   ^^^^^^",
        "  = other:1:1: here",
        "  |",
        "1 | two",
        "  | ^",
        "hint: do, or do not",
        "",
    ]


def test_of_a_line_that_is_too_long_the_part_that_matters_is_shown() -> None:
    finding = Finding(code="VS001", severity=Severity.ERROR, message="", where=Span("f", 1, 1000, 1, 1003))
    _, _, line, carets, _ = (
        text.plain for text in finding_text.render_full([finding], {"f": "x" * 999 + "abc" + "y" * 5000})
    )
    assert len(line) < 180
    assert line[carets.index("^") : carets.rindex("^") + 1] == "abc"


def test_a_place_that_does_not_exist_is_named_without_its_line() -> None:
    assert [line.plain for line in finding_text.render_full([NOTE], {})] == ["n:1:1: note VS007: nothing", ""]
