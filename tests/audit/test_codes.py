"""What a finding of an audit needs: see "Add a finding to the audit" in CONTRIBUTING.md."""

from __future__ import annotations

import re
from string import Formatter

import pytest

from scripts.docs import findings_markdown
from tests.support.audit_findings import PROVOKED_IN
from tests.support.paths import ROOT
from vstream.audit import codes
from vstream.audit.finding_kinds import FindingKind
from vstream.findings import Severity


def test_every_kind_has_a_code_in_the_order_of_reports() -> None:
    assert [code.kind for code in codes.ALL] == list(FindingKind), "enter it in ALL in vstream/audit/codes.py"


def test_codes_are_ascending_and_names_are_unique() -> None:
    numbers = [code.code for code in codes.ALL]
    assert numbers == sorted(set(numbers))
    assert all(re.fullmatch(r"VA\d{3}", number) for number in numbers)
    assert len({code.name for code in codes.ALL}) == len(codes.ALL)


@pytest.mark.parametrize("code", codes.ALL, ids=lambda code: code.code)
def test_a_finding_says_what_it_is_and_what_it_means(code: codes.FindingCode) -> None:
    placeholders = {name for _, name, _, _ in Formatter().parse(code.says) if name is not None}
    assert placeholders <= {"n", "stream", "origin"}
    assert code.says.format(n=codes.Count(2), stream="foo-read-east", origin="foo-write-west")
    assert code.page.summary.endswith(".")
    assert "## What it means" in code.page.text
    # Else JUnit would not show it.
    assert not code.leaves_open or code.severity is Severity.ERROR


@pytest.mark.parametrize("kind", FindingKind)
def test_every_finding_is_provoked_by_a_test(kind: FindingKind) -> None:
    """Of those without an entry in PROVOKED_IN, `test_judging` plants each, and asks the reference what it finds."""
    text = (ROOT / PROVOKED_IN.get(kind, "tests/support/audit_reference.py")).read_text(encoding="utf-8")
    code = codes.BY_KIND[kind]
    names = {f'"{kind.value}"', f'"{code.name}"', f'"{code.code}"', f"FindingKind.{kind.name}"}
    assert any(name in text for name in names), f"provoke `{kind.value}`, and say in PROVOKED_IN which test does"


def test_the_manual_of_findings_is_up_to_date() -> None:
    file = ROOT / "docs" / "findings.md"
    assert file.read_text(encoding="utf-8") == findings_markdown(), "run scripts/docs"
