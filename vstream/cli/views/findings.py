"""Findings for other programs: SARIF 2.1.0, GitHub Actions annotations, JUnit XML."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from vstream import __version__
from vstream.cli.views.cleaning import clean
from vstream.cli.views.diagnostics import place
from vstream.diagnostics import Severity
from vstream.junit import Result, TestCase, to_xml

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from vstream.codes import Page
    from vstream.diagnostics import Edit, Finding, Span

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(diagnostics: Sequence[Finding], pages: Mapping[str, Page]) -> str:
    """One SARIF 2.1.0 log with one run; *pages* describe the rules."""
    codes = sorted({one.code for one in diagnostics})
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "vstream",
                        "version": __version__,
                        "rules": [_sarif_rule(code, pages.get(code)) for code in codes],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": [_sarif_result(one, codes.index(one.code)) for one in diagnostics],
            }
        ],
    }
    return json.dumps(log, indent=2)


def _sarif_rule(code: str, page: Page | None) -> dict[str, Any]:
    if page is None:
        return {"id": code}
    return {
        "id": code,
        "name": page.name,
        "shortDescription": {"text": page.summary},
        "help": {"text": page.text, "markdown": page.text},
        "defaultConfiguration": {"level": _LEVELS[page.severity]},
    }


def _sarif_result(diagnostic: Finding, rule: int) -> dict[str, Any]:
    text = diagnostic.message + (f"\n{diagnostic.hint}" if diagnostic.hint else "")
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": _LEVELS[diagnostic.severity],
        "message": {"text": text},
    }
    if diagnostic.span:
        result["locations"] = [{"physicalLocation": _physical(diagnostic.span)}]
    if diagnostic.related:
        result["relatedLocations"] = [
            {"id": number, "physicalLocation": _physical(one.span), "message": {"text": one.message}}
            for number, one in enumerate(diagnostic.related, start=1)
        ]
    if diagnostic.fix:
        result["fixes"] = [
            {
                "description": {"text": diagnostic.hint or diagnostic.message},
                "artifactChanges": list(_changes(diagnostic.fix)),
            }
        ]
    return result


def _changes(edits: Iterable[Edit]) -> Iterator[dict[str, Any]]:
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.span.file, []).append(edit)
    for file, some in by_file.items():
        replacements = [{"deletedRegion": _region(one.span), "insertedContent": {"text": one.text}} for one in some]
        yield {"artifactLocation": {"uri": _uri(file)}, "replacements": replacements}


def _physical(span: Span) -> dict[str, Any]:
    return {"artifactLocation": {"uri": _uri(span.file)}, "region": _region(span)}


def _region(span: Span) -> dict[str, int]:
    return {
        "startLine": span.line,
        "startColumn": span.column,
        "endLine": span.end_line,
        "endColumn": span.end_column,
    }


def _uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")


def github(diagnostics: Iterable[Finding]) -> Iterator[str]:
    """Workflow commands, which GitHub Actions shows at the lines of a pull request."""
    for diagnostic in diagnostics:
        properties = {"title": diagnostic.code}
        if span := diagnostic.span:
            properties |= {"file": clean(span.file), "line": str(span.line), "endLine": str(span.end_line)}
            if span.line == span.end_line:
                # Columns of several lines make GitHub drop the annotation.
                properties |= {"col": str(span.column), "endColumn": str(span.end_column)}
        # The log shows the message only, so the place is in it too.
        parts = [f"{place(diagnostic.span)}: {diagnostic.message}" if diagnostic.span else diagnostic.message]
        parts += [f"hint: {diagnostic.hint}"] if diagnostic.hint else []
        listed = ",".join(f"{key}={_property(value)}" for key, value in properties.items())
        yield f"::{_COMMANDS[diagnostic.severity]} {listed}::{_data(chr(10).join(parts))}"


def _data(text: str) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(char if char.isprintable() else clean(char) for char in escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def junit(diagnostics: Sequence[Finding], files: Iterable[str]) -> str:
    """
    One XML document: a test suite for each file, a failed test case for each finding.

    Files without findings, among *files*, have one test case that passed. Notes are in the output of it.
    """
    by_file: dict[str, list[Finding]] = {file: [] for file in files}
    for one in diagnostics:
        by_file.setdefault(one.span.file if one.span else "", []).append(one)
    return to_xml("vstream lint", {file: _cases(file, found) for file, found in sorted(by_file.items())})


def _cases(file: str, found: Sequence[Finding]) -> list[TestCase]:
    failures = [one for one in found if one.severity is not Severity.NOTE]
    if not failures:
        notes = "\n".join(clean(one.message) for one in found)
        return [TestCase(classname=file, name="lint", output=notes if found else None)]
    cases = []
    seen: Counter[str] = Counter()
    for one in failures:
        name = f"{one.code}:{one.span.line}:{one.span.column}" if one.span else one.code
        seen[name] += 1
        where = place(one.span) if one.span else ""
        cases.append(
            TestCase(
                classname=file,
                name=f"{name} ({seen[name]})" if seen[name] > 1 else name,
                result=Result.FAILURE,
                type=one.severity.value,
                message=one.message,
                text="\n".join(filter(None, (f"{where}: {clean(one.message)}", clean(one.hint or "")))),
            )
        )
    return cases
