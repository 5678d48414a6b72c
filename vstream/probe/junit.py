"""A probe's report as JUnit XML, for CI systems."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # written, never parsed
from typing import TYPE_CHECKING

from vstream.probe.report import Hop, Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.probe.report import Check, ProbeReport

_ELEMENTS = {Status.FAILED: "failure", Status.UNKNOWN: "error", Status.SKIPPED: "skipped"}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: ProbeReport) -> str:
    """
    The report as one XML document: a test suite for each stream, a test case for each check.

    Failed checks are failures, unknown ones errors. A report without checks is one
    suite with an error: CI systems would take an empty document for a success.
    """
    root = ET.Element("testsuites", name=f"vstream probe {_text(report.topology)}")
    for stream in report.streams:
        _suite(root, stream, [check for check in report.checks if check.stream == stream])
    if not report.checks:
        suite = ET.SubElement(root, "testsuite", name="probe", tests="1", failures="0", errors="1", skipped="0")
        case = ET.SubElement(suite, "testcase", classname="probe", name="checks")
        ET.SubElement(case, "error", message="nothing was probed")
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, stream: str, checks: Sequence[Check]) -> None:
    def count(status: Status) -> str:
        return str(sum(check.status is status for check in checks))

    suite = ET.SubElement(
        root,
        "testsuite",
        name=_text(stream),
        tests=str(len(checks)),
        failures=count(Status.FAILED),
        errors=count(Status.UNKNOWN),
        skipped=count(Status.SKIPPED),
    )
    for check in checks:
        case = ET.SubElement(suite, "testcase", classname=_text(f"{check.stream}.{check.hop.value}"), name=_name(check))
        if check.elapsed_ms is not None:
            case.set("time", f"{check.elapsed_ms / 1000:.6f}")
        if check.status in _ELEMENTS:
            outcome = ET.SubElement(case, _ELEMENTS[check.status], message=_text(check.detail))
            outcome.text = _text(check.hint) if check.hint else None


def _name(check: Check) -> str:
    parts = [check.hop.value]
    if check.subject is not None and check.origin is None:
        parts.append(check.subject)
    if check.origin is not None:
        parts.append(f"from {check.origin}")
    if check.region is not None:
        parts.append(f"in {check.region}")
    if check.hop is Hop.CLEANUP and check.answered_by is not None:
        parts.append(f"of {check.answered_by}")
    return _text(" ".join(parts))


def _text(value: str) -> str:
    """*value* without the characters that XML cannot hold; a server's answer may have them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value)
