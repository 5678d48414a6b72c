"""An audit as JUnit XML, for CI systems."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # written, never parsed
from typing import TYPE_CHECKING

from vstream.audit.codes import ALL
from vstream.diagnostics import Severity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.audit.report import MessageFinding, Report

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> str:
    """
    The report as one XML document: a test suite for each virtual stream, a test case for each code.

    Errors are failures; what could not be seen is an error of the case that it belongs
    to. A report without streams is one suite with an error.
    """
    root = ET.Element("testsuites", name=_text(f"vstream audit {report.subject}"))
    for virtual in report.virtuals:
        _suite(root, virtual, report.of(virtual))
    if not report.virtuals:
        suite = ET.SubElement(root, "testsuite", name="audit", tests="1", failures="0", errors="1")
        case = ET.SubElement(suite, "testcase", classname="audit", name="streams")
        ET.SubElement(case, "error", message="there was nothing to audit")
    for total in ("tests", "failures", "errors"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, virtual: str, found: Sequence[MessageFinding]) -> None:
    suite = ET.SubElement(root, "testsuite", name=_text(virtual))
    tests = failures = errors = 0
    for code in ALL:
        if code.severity is not Severity.ERROR and not any(
            one.code == code.code and one.severity is Severity.ERROR for one in found
        ):
            continue
        tests += 1
        case = ET.SubElement(suite, "testcase", classname=_text(f"{virtual}.{code.code}"), name=code.name)
        mine = [one for one in found if one.code == code.code and one.severity is Severity.ERROR]
        if not mine:
            continue
        outcome = ET.SubElement(case, "error" if code.leaves_open else "failure", message=_text(mine[0].message))
        outcome.text = _text("\n".join(_line(one) for one in mine))
        errors, failures = errors + code.leaves_open, failures + (not code.leaves_open)
    for name, number in (("tests", tests), ("failures", failures), ("errors", errors)):
        suite.set(name, str(number))


def _line(one: MessageFinding) -> str:
    ranges = ", ".join(part.text for part in one.ranges)
    return ": ".join(part for part in (one.message, ranges, *one.examples) if part)


def _text(value: str) -> str:
    """*value* without the characters that XML cannot hold; a subject may have them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", value)
