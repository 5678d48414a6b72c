"""Findings for other programs: SARIF 2.1.0, GitHub Actions annotations, GitLab Code Quality, JUnit XML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from vstream import __version__
from vstream.cli.views.cleaning import clean
from vstream.cli.views.finding_text import place
from vstream.cli.views.json_output import dump_json
from vstream.codes import Page
from vstream.findings import Edit, Finding, Related, Severity, Span
from vstream.junit import Result, TestCase, to_xml
from vstream.lint.baseline import fingerprints
from vstream.lint.selection import AS_NAMED, Anchor

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_COMMANDS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}
_GITLAB_SEVERITIES = {Severity.ERROR: "major", Severity.WARNING: "minor", Severity.NOTE: "info"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def find_documentation() -> str | None:
    """Where the manual is, as the metadata of the package says: `Documentation` of its URLs."""
    try:
        urls = metadata("vstream").get_all("Project-URL") or []
    except PackageNotFoundError:
        return None
    labelled = (entry.partition(", ") for entry in urls)
    return next((url for label, _, url in labelled if label == "Documentation"), None)


def page_url(page: Page | None, docs_url: str | None) -> str | None:
    """Where the manual page of a rule is: *docs_url* with `{code}` in it, or else a page that has them all."""
    if page is None or docs_url is None:
        return None
    if "{code}" in docs_url:
        return docs_url.replace("{code}", page.code)
    return f"{docs_url}#{page.code.lower()}-{page.name}"


def to_sarif(
    findings: Sequence[Finding], pages: Mapping[str, Page], *, anchor: Anchor = AS_NAMED, docs_url: str | None = None
) -> str:
    """
    One SARIF 2.1.0 log with one run; *pages* describe the rules.

    Fingerprints are of files relative to *anchor*. *docs_url* is where the pages can be read.
    """
    codes = sorted({finding.code for finding in findings})
    driver: dict[str, Any] = {"name": "vstream", "version": __version__}
    if docs_url is not None:
        driver["informationUri"] = docs_url.partition("{code}")[0]
    driver["rules"] = [_make_sarif_rule(code, pages.get(code), docs_url) for code in codes]
    results = [_make_sarif_result(finding, codes.index(finding.code)) for finding in findings]
    for result, fingerprint in zip(results, fingerprints(findings, anchor), strict=True):
        result["partialFingerprints"] = {"vstream/v1": fingerprint}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return dump_json({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]})


def _make_sarif_rule(code: str, page: Page | None, docs_url: str | None) -> dict[str, Any]:
    if page is None:
        return {"id": code}
    url = page_url(page, docs_url)
    return {
        "id": code,
        "name": page.name,
        "shortDescription": {"text": page.summary},
        **({"helpUri": url} if url else {}),
        "help": {"text": page.text, "markdown": page.text},
        "defaultConfiguration": {"level": _LEVELS[page.severity]},
    }


def _make_sarif_result(finding: Finding, rule: int) -> dict[str, Any]:
    text = finding.message + (f"\n{finding.hint}" if finding.hint else "")
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": text},
    }
    if finding.span:
        result["locations"] = [{"physicalLocation": _physical(finding.span)}]
    if finding.related:
        result["relatedLocations"] = [
            _make_related_location(number, related) for number, related in enumerate(finding.related, start=1)
        ]
    if finding.fix:
        result["fixes"] = [
            {"description": {"text": finding.hint or finding.message}, "artifactChanges": list(_changes(finding.fix))}
        ]
    return result


def _make_related_location(number: int, related: Related) -> dict[str, Any]:
    return {"id": number, "physicalLocation": _physical(related.span), "message": {"text": related.message}}


def _changes(edits: Iterable[Edit]) -> Iterator[dict[str, Any]]:
    by_file: dict[str, list[Edit]] = {}
    for edit in edits:
        by_file.setdefault(edit.span.file, []).append(edit)
    for file, inside in by_file.items():
        replacements = [
            {"deletedRegion": _make_region(edit.span), "insertedContent": {"text": edit.text}} for edit in inside
        ]
        yield {"artifactLocation": {"uri": _format_uri(file)}, "replacements": replacements}


def _physical(span: Span) -> dict[str, Any]:
    return {"artifactLocation": {"uri": _format_uri(span.file)}, "region": _make_region(span)}


def _make_region(span: Span) -> dict[str, int]:
    return {"startLine": span.line, "startColumn": span.column, "endLine": span.end_line, "endColumn": span.end_column}


def _format_uri(file: str) -> str:
    path = PurePath(file)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix(), errors="surrogateescape")


def to_gitlab(findings: Sequence[Finding], anchor: Anchor = AS_NAMED) -> str:
    """A Code Quality report of GitLab, with files relative to *anchor*, the top of the repository."""
    pairs = zip(findings, fingerprints(findings, anchor), strict=True)
    return dump_json([_make_gitlab_issue(finding, fingerprint, anchor) for finding, fingerprint in pairs])


def _make_gitlab_issue(finding: Finding, fingerprint: str, anchor: Anchor) -> dict[str, Any]:
    return {
        "description": clean(finding.message + (f" ({finding.hint})" if finding.hint else "")),
        "check_name": finding.code,
        "fingerprint": fingerprint,
        "severity": _GITLAB_SEVERITIES[finding.severity],
        "location": {
            "path": anchor.relative(finding.span.file) if finding.span else "",
            "lines": {"begin": finding.span.line if finding.span else 1},
        },
    }


def to_github(
    findings: Iterable[Finding], pages: Mapping[str, Page] | None = None, docs_url: str | None = None
) -> Iterator[str]:
    """Workflow commands, which GitHub Actions shows at the lines of a pull request."""
    for finding in findings:
        properties = {"title": finding.code}
        if span := finding.span:
            properties |= {"file": clean(span.file), "line": str(span.line), "endLine": str(span.end_line)}
            if span.line == span.end_line:
                # Columns of several lines make GitHub drop the annotation.
                properties |= {"col": str(span.column), "endColumn": str(span.end_column)}
        # The log shows the message only, so the place is in it too.
        parts = [f"{place(finding.span)}: {finding.message}" if finding.span else finding.message]
        parts += [f"hint: {finding.hint}"] if finding.hint else []
        url = page_url((pages or {}).get(finding.code), docs_url)
        parts += [f"see {url}"] if url else []
        listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
        yield f"::{_COMMANDS[finding.severity]} {listed}::{_escape_data(chr(10).join(parts))}"


def _escape_data(text: str) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return "".join(char if char.isprintable() else clean(char) for char in escaped)


def _escape_property(text: str) -> str:
    return _escape_data(text).replace(":", "%3A").replace(",", "%2C")


def to_junit(findings: Sequence[Finding], files: Iterable[str], started_at: datetime | None = None) -> str:
    """
    One XML document: a test suite for each file, a failed test case for each finding.

    Files without findings, among *files*, have one test case that passed. Notes are in the output of it.
    """
    by_file: dict[str, list[Finding]] = {clean(file): [] for file in files}
    for finding in findings:
        by_file.setdefault(clean(finding.span.file) if finding.span else "", []).append(finding)
    suites = {file: _list_cases(file, listed) for file, listed in sorted(by_file.items())}
    return to_xml("vstream lint", suites, started_at=started_at)


def _list_cases(file: str, findings: Sequence[Finding]) -> list[TestCase]:
    failures = [finding for finding in findings if finding.severity is not Severity.NOTE]
    if not failures:
        notes = "\n".join(clean(finding.message) for finding in findings)
        return [TestCase(classname=file, name="lint", output=notes if findings else None)]
    cases = []
    seen: Counter[str] = Counter()
    for finding in failures:
        span, message = finding.span, clean(finding.message)
        name = f"{finding.code}:{span.line}:{span.column}" if span else finding.code
        seen[name] += 1
        lines = [f"{place(span)}: {message}" if span else message, *([clean(finding.hint)] if finding.hint else [])]
        cases.append(
            TestCase(
                classname=file,
                name=f"{name} ({seen[name]})" if seen[name] > 1 else name,
                result=Result.FAILURE,
                type=finding.severity.value,
                message=message,
                text="\n".join(lines),
            )
        )
    return cases
