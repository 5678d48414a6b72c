"""Suppressions: what they silence, and what is wrong with them."""

from __future__ import annotations

import json

import pytest

from tests.support.lint_inputs import TOPOLOGY, make_context
from vstream.lint.engine import lint
from vstream.lint.parse_files import Source

DEAD = '"$JS.ACK.foo.>": "$JS.ACK.bar.>"'


def codes(text: str, name: str = "m.cfg", *, wanted: tuple[str, ...] = ("VS335", "VS009")) -> list[tuple[str, int]]:
    report = lint([Source(name=name, content=text.encode())], make_context({}))
    return [(finding.code, finding.span.line) for finding in report.findings if finding.span and finding.code in wanted]


def test_without_a_suppression_the_finding_is_reported() -> None:
    assert codes(f"mappings {{\n  {DEAD}\n}}\n") == [("VS335", 2)]


@pytest.mark.parametrize(
    "text",
    [
        f"mappings {{\n  {DEAD} # vstream: ignore[VS335] kept for an old client\n}}\n",
        f"mappings {{\n  {DEAD} // vstream:ignore [VS335] kept for an old client\n}}\n",
        f"mappings {{\n  # vstream: ignore[VS335] kept for an old client\n  {DEAD}\n}}\n",
        f"mappings {{\n  # vstream: ignore[VS335] kept for an old client\n  # of ours\n\n  {DEAD}\n}}\n",
        f"mappings {{\r\n  # vstream: ignore[VS335] kept for an old client\r\n  {DEAD}\r\n}}\r\n",
    ],
)
def test_a_comment_on_the_line_or_above_it_silences_a_finding(text: str) -> None:
    assert codes(text) == []


def test_a_comment_behind_something_else_is_not_about_the_next_line() -> None:
    text = f"mappings {{ # vstream: ignore[VS335] too early\n  {DEAD}\n}}\n"
    assert codes(text) == [("VS009", 1), ("VS335", 2)]


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("vstream: ignore[VS335]", "the reason to ignore VS335 is missing"),
        ("vstream: ignore", "this suppression has no code"),
        ("vstream: ignore[] reason", "this suppression has no code"),
        ("vstream: ignore[VS999] reason", "unknown rule VS999"),
        ("vstream: ignore[dead] reason", "unknown rule dead"),
        ("vstream: ignore[VS010] reason", "VS010 cannot be ignored"),
        ("vstream: ignore[VS360] reason", "VS360 is not reported here"),
    ],
)
def test_what_is_wrong_with_a_suppression_is_a_finding(comment: str, message: str) -> None:
    report = lint([Source(name="m.cfg", content=f"mappings {{}}\n# {comment}\n".encode())], make_context({}))
    findings = [
        (finding.span.line, finding.message) for finding in report.findings if finding.span and finding.code == "VS009"
    ]
    assert (2, message) in findings


def test_several_codes_can_be_named_and_each_has_to_be_of_use() -> None:
    text = f"mappings {{\n  {DEAD} # vstream: ignore[VS335, VS350] reason\n}}\n"
    assert codes(text) == [("VS009", 2)]


def test_an_unreadable_file_has_no_unused_suppressions() -> None:
    assert codes(f"mappings {{\n  {DEAD} # vstream: ignore[VS350] reason\n  x: ]\n}}\n", wanted=("VS009",)) == []


def test_topologies_have_suppressions_too() -> None:
    bare = TOPOLOGY.replace("   # vstream: ignore[VS107] because", "")
    assert codes(bare, "t.yaml", wanted=("VS107",)) == []
    assert codes(TOPOLOGY, "t.yaml") == [("VS009", 7)]


def test_text_that_looks_like_a_comment_is_not_one() -> None:
    text = TOPOLOGY.replace("name: acme", 'name: acme\ndescription: "x # vstream: ignore[VS107] y"')
    assert ("VS009", 3) not in codes(text, "t.yaml")


def test_metadata_of_a_stream_silences_findings_about_it() -> None:
    stream = {"name": "foo-read-west", "sources": [{"name": "foo-write-west"}], "num_replicas": 2, "storage": "file"}
    bare = codes(json.dumps(stream), "s.json", wanted=("VS225", "VS224", "VS009"))
    reasons = "; ".join(f"{code} is meant" for code, _ in bare)
    quiet = {**stream, "metadata": {"vstream.ignore": reasons}}
    assert bare
    assert codes(json.dumps(quiet), "s.json", wanted=tuple(code for code, _ in bare)) == []
    unused = {**stream, "metadata": {"vstream.ignore": "VS335 reason"}}
    assert codes(json.dumps(unused), "s.json") == [("VS009", 1)]


def test_the_hint_for_a_missing_reason_is_about_the_codes_that_were_written() -> None:
    text = "# vstream: ignore-file[VS421, VS431]\nlisten: 127.0.0.1:4222\nx: 1\n"
    findings = lint([Source(name="a.conf", content=text.encode())], make_context({})).findings
    hints = [finding.hint for finding in findings if "reason" in finding.message]
    assert hints == ["write it after the bracket: `[VS421, VS431] because …`"]
