"""
A verdict as JSON and as JUnit XML.

The JSON has the fields of `vstream.capture.verdict.verdict`. Its own version number is `format`. See docs/captures.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from math import isinf
from typing import Any

from vstream.capture.verdict.verdict import About, Availability, Case, CaseStatus, ControlPlane, Verdict
from vstream.diagnostics import Span
from vstream.junit import Result, TestCase, to_xml
from vstream.syntax.json_types import Json

FORMAT = 1
_RESULTS = {CaseStatus.FAIL: Result.FAILURE, CaseStatus.UNKNOWN: Result.ERROR}
_SUITES = {
    About.EXPECTATION: "expectations",
    About.SAFETY: "safety",
    About.FAULT: "faults",
    About.STEP: "steps",
    About.CAPTURE: "capture",
    About.SERVERS: "servers",
}


def as_dict(verdict: Verdict) -> dict[str, Json]:
    """The verdict as JSON data. null stands for what never happened and for what is unknown."""
    manifest = verdict.manifest
    return {
        "format": FORMAT,
        "status": verdict.status.value,
        "counts": {status.value: count for status, count in verdict.counts.items()},
        "scenario": manifest.scenario,
        "seed": manifest.seed,
        "started": manifest.started,
        "load": list(manifest.load) if manifest.load is not None else None,
        "vstream": manifest.vstream,
        "backend": manifest.backend,
        "regions": list(manifest.regions),
        "machine": dict(manifest.machine),
        "servers": [
            {"name": server.name, "region": server.region, "version": server.version} for server in manifest.servers
        ],
        "warnings": list(verdict.warnings),
        **{name: _plain(getattr(verdict, name)) for name in ("cases", "streams", "windows", "faults", "lateness")},
        "timeline": _plain(verdict.timeline),
    }


def _plain(value: Any) -> Json:
    if isinstance(value, Span):
        return f"{value.file}:{value.line}:{value.column}"
    if is_dataclass(value):
        # Field names keep their order; a share is worked out once more, where it can be read beside its parts.
        result = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {**result, "share": value.share} if isinstance(value, (Availability, ControlPlane)) else result
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    single = value.value if isinstance(value, Enum) else value
    return None if isinstance(single, float) and isinf(single) else single  # a text, a number, true, false or null


def to_junit(verdict: Verdict) -> str:
    """
    A JUnit XML document: one test case per case of the verdict.

    A failed case is a failure, an unknown one an error: neither counts as a success.
    """
    suites = {}
    for about, name in _SUITES.items():
        if cases := [_case(case, name) for case in verdict.cases if case.about is about]:
            suites[name] = cases
    nothing = TestCase(classname="capture", name="cases", result=Result.ERROR, message="nothing to judge")
    return to_xml(f"vstream scenario {verdict.manifest.scenario}", suites or {"capture": [nothing]})


def _case(case: Case, suite: str) -> TestCase:
    place = _plain(case.expectation.span) if case.expectation is not None else None
    return TestCase(
        classname=f"{suite}.{case.measure.value}" if case.measure is not None else suite,
        name=case.name,
        result=_RESULTS.get(case.status),
        message=case.detail,
        text=f"expected at {place}" if place is not None and case.status is not CaseStatus.PASS else None,
        output=case.detail if case.status is CaseStatus.PASS else None,
    )
