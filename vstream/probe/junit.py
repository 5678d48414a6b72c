"""A probe's report as JUnit XML, for CI systems."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vstream.junit import Result, TestCase, to_xml
from vstream.probe.report import CheckStatus, Hop

if TYPE_CHECKING:
    from vstream.probe.report import Check, ProbeReport

_RESULTS = {CheckStatus.FAILED: Result.FAILURE, CheckStatus.UNKNOWN: Result.ERROR, CheckStatus.SKIPPED: Result.SKIPPED}


def to_junit(report: ProbeReport) -> str:
    """
    The report as one XML document: a test suite for each stream, a test case for each check.

    Failed checks are failures, unknown ones errors. A report without checks is one
    suite with an error: CI systems would take an empty document for a success.
    """
    suites = {stream: [_case(check) for check in report.checks if check.stream == stream] for stream in report.streams}
    nothing = TestCase(classname="probe", name="checks", result=Result.ERROR, message="nothing was probed")
    return to_xml(f"vstream probe {report.topology}", suites or {"probe": [nothing]})


def _case(check: Check) -> TestCase:
    return TestCase(
        classname=f"{check.stream}.{check.hop.value}",
        name=_name(check),
        result=_RESULTS.get(check.status),
        message=check.detail,
        text=check.hint,
        seconds=None if check.elapsed_ms is None else check.elapsed_ms / 1000,
    )


def _name(check: Check) -> str:
    parts = [check.hop.value, *([check.form] if check.form else [])]
    if check.subject is not None and check.origin is None:
        parts.append(check.subject)
    if check.origin is not None:
        parts.append(f"from {check.origin}")
    if check.region is not None:
        parts.append(f"in {check.region}")
    if check.hop is Hop.CLEANUP and check.answered_by is not None:
        parts.append(f"of {check.answered_by}")
    return " ".join(parts)
