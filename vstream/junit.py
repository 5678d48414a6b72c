"""JUnit XML, as CI systems read it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET  # written, never parsed
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum

from vstream.findings import mask_secrets
from vstream.value_class import value_class

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_NOT_FOR_LOGS = re.compile(
    "(?<!\\S):(?=:)|#(?=#\\[|#vso\\[)|[\xad\x7f-\x9f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]"
)
"""What a terminal, or a CI system that reads logs, would obey: written as a reference, which means the same in XML."""


class Result(Enum):
    """How a test case ended, if it did not pass: the name of an XML element."""

    FAILURE = "failure"
    ERROR = "error"
    """It is unknown whether it would have passed."""
    SKIPPED = "skipped"


@value_class
class TestCase:
    """One test case; *result* None means that it passed."""

    __test__ = False
    classname: str
    name: str
    result: Result | None = None
    message: str = ""
    type: str | None = None
    text: str | None = None
    """The text below the message."""
    output: str | None = None
    """The output of a test case that passed."""
    seconds: float | None = None


def to_xml(name: str, suites: Mapping[str, Sequence[TestCase]], *, started_at: datetime | None = None) -> str:
    """
    One XML document: a test suite for each of *suites*, with totals.

    Strict readers want a host name and times everywhere: what took no time that was measured took 0 seconds.
    """
    root = ET.Element("testsuites", name=_clean(name))
    for suite, cases in suites.items():
        counts = {result: sum(case.result is result for case in cases) for result in Result}
        element = ET.SubElement(
            root,
            "testsuite",
            name=_clean(suite),
            tests=str(len(cases)),
            failures=str(counts[Result.FAILURE]),
            errors=str(counts[Result.ERROR]),
            skipped=str(counts[Result.SKIPPED]),
            time=f"{sum(case.seconds or 0 for case in cases):.6f}",
            hostname="localhost",
        )
        if started_at is not None:
            element.set("timestamp", started_at.replace(tzinfo=None).isoformat(timespec="seconds"))
        for case in cases:
            _add_case(element, case)
    for total in ("tests", "failures", "errors", "skipped"):
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in root)))
    root.set("time", f"{sum(case.seconds or 0 for cases in suites.values() for case in cases):.6f}")
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode", xml_declaration=True)
    return _NOT_FOR_LOGS.sub(lambda match: f"&#{ord(match[0])};", text)


def _add_case(suite: ET.Element, case: TestCase) -> None:
    element = ET.SubElement(suite, "testcase", classname=_clean(case.classname), name=_clean(case.name))
    element.set("time", f"{case.seconds or 0:.6f}")
    if case.result is not None:
        attributes = {"type": case.type} if case.type is not None else {}
        result = ET.SubElement(element, case.result.value, attributes, message=_clean(case.message))
        result.text = _clean(case.text) if case.text else None
    if case.output is not None:
        ET.SubElement(element, "system-out").text = _clean(case.output)


def _clean(value: str) -> str:
    """*value* without secrets, and without characters that XML cannot hold: a server's answer may have them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", mask_secrets(value))
