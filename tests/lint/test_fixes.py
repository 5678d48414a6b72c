"""Edits that findings bring along."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from vstream.findings import Edit, Finding, Severity, Span
from vstream.lint.corrections import apply_fixes, diff_texts

TEXT = "one two\nthree\n"


def finding(*edits: Edit) -> Finding:
    return Finding(code="VS399", severity=Severity.WARNING, message="", where=edits[0].span, fix=edits)


def edit(line: int, start: int, end: int, text: str, file: str = "f") -> Edit:
    return Edit(span=Span(file, line, start, line, end), text=text)


def test_edits_of_several_findings_are_made_together() -> None:
    findings = [finding(edit(1, 1, 4, "ONE")), finding(edit(2, 1, 6, "THREE"), edit(1, 5, 8, "TWO"))]
    assert apply_fixes(findings, {"f": TEXT}, {"f"}) == {"f": "ONE TWO\nTHREE\n"}


def test_of_fixes_that_overlap_the_first_is_made_and_the_other_not_at_all() -> None:
    findings = [finding(edit(1, 1, 8, "ONE")), finding(edit(1, 5, 8, "TWO"), edit(2, 1, 6, "THREE"))]
    assert apply_fixes(findings, {"f": TEXT}, {"f"}) == {"f": "ONE\nthree\n"}


def test_a_fix_that_reaches_into_a_file_that_may_not_be_written_is_not_made() -> None:
    findings = [finding(edit(1, 1, 4, "ONE"), edit(1, 1, 4, "ONE", "other"))]
    assert apply_fixes(findings, {"f": TEXT, "other": TEXT}, {"f"}) == {}


def test_two_findings_with_the_same_fix_make_it_once() -> None:
    assert apply_fixes([finding(edit(1, 1, 1, "+")), finding(edit(1, 1, 1, "+"))], {"f": TEXT}, {"f"}) == {
        "f": f"+{TEXT}"
    }


def test_a_stretch_over_lines_can_be_removed() -> None:
    whole = Edit(span=Span("f", 1, 4, 2, 6), text="")
    assert apply_fixes([finding(whole)], {"f": TEXT}, {"f"}) == {"f": "one\n"}


@given(st.text("ab\n", max_size=30), st.integers(0, 30), st.integers(0, 30))
def test_offsets_are_those_of_the_text(text: str, start: int, length: int) -> None:
    start = min(start, len(text))
    end = min(start + length, len(text))
    first, last = (text.count("\n", 0, at) + 1 for at in (start, end))
    columns = (start - text.rfind("\n", 0, start), end - text.rfind("\n", 0, end))
    mistake = finding(Edit(span=Span("f", first, columns[0], last, columns[1]), text="X"))
    assert apply_fixes([mistake], {"f": text}, {"f"}) == {"f": text[:start] + "X" + text[end:]}


def test_the_diff_is_a_unified_one() -> None:
    assert list(diff_texts({"f": "a\nb"}, {"f": "a\nc"})) == [
        "--- f",
        "+++ f",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "\\ No newline at end of file",
        "+c",
        "\\ No newline at end of file",
    ]
