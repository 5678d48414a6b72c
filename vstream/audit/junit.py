"""An audit as JUnit XML, for CI systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.audit.codes import ALL
from vstream.diagnostics import Severity
from vstream.junit import Result, TestCase, to_xml

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.audit.report import MessageFinding, Report


def to_junit(report: Report, *, only_findings: bool = False) -> str:
    """
    The report as one XML document: a test suite for each virtual stream, a test case for each code.

    Errors become failures, and what could not be checked becomes an error of its test case. A report without streams is
    one suite with an error. With *only_findings*, there are only test cases with errors, or a single one that passes.
    """
    suites = {virtual: _cases(virtual, report.of(virtual)) for virtual in report.virtuals}
    if only_findings:
        passed = {"audit": [TestCase(classname="audit", name="findings")]} if suites else {}
        suites = {virtual: wrong for virtual, cases in suites.items() if (wrong := _only_wrong(cases))} or passed
    nothing = TestCase(classname="audit", name="streams", result=Result.ERROR, message="nothing to audit")
    return to_xml(f"vstream audit {report.subject}", suites or {"audit": [nothing]}) + "\n"


def _cases(virtual: str, findings: Sequence[MessageFinding]) -> list[TestCase]:
    cases = []
    for code in ALL:
        errors = [finding for finding in findings if (finding.code, finding.severity) == (code.code, Severity.ERROR)]
        classname = f"{virtual}.{code.code}"
        if errors:
            result = Result.ERROR if code.leaves_open else Result.FAILURE
            text = "\n".join(map(_describe, errors))
            case = TestCase(classname=classname, name=code.name, result=result, message=errors[0].message, text=text)
            cases.append(case)
        elif code.severity is Severity.ERROR:
            cases.append(TestCase(classname=classname, name=code.name))
    return cases


def _only_wrong(cases: Sequence[TestCase]) -> list[TestCase]:
    return [case for case in cases if case.result in {Result.ERROR, Result.FAILURE}]


def _describe(finding: MessageFinding) -> str:
    ranges = ", ".join(sequences.text for sequences in finding.ranges)
    return ": ".join(part for part in (finding.message, ranges, *finding.examples) if part)
