"""What `lint` and `validate` print: findings in one of the formats, statistics, and a last line with the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rich.text import Text

from vstream.cli.lazy_group import load_late
from vstream.cli.views import finding_text
from vstream.cli.views.cleaning import clean
from vstream.cli.views.json_output import format_json
from vstream.formatting import format_count
from vstream.lint.baseline import FindingKey, fingerprints
from vstream.lint.engine import LintReport
from vstream.lint.linter import CheckResult
from vstream.lint.selection import AS_NAMED, Anchor
from vstream.value_class import value_class

if TYPE_CHECKING:
    from vstream.codes import Page

_COUNTED_SEVERITIES = ("error", "warning", "note")
_MAX_STALE = 20


class LintFormat(StrEnum):
    """How findings are written."""

    FULL = "full"
    CONCISE = "concise"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    GITLAB = "gitlab"
    JUNIT = "junit"

    @property
    def is_for_people(self) -> bool:
        """Whether it is text, which may be mixed with other text."""
        return self in {LintFormat.FULL, LintFormat.CONCISE}


@value_class
class Manual:
    """The pages of the rules, and where they can be read."""

    docs_url: str | None = None

    @property
    def pages(self) -> Mapping[str, Page]:
        """The pages by code. They are made when they are asked for, which most formats do not."""
        pages: Mapping[str, Page] = load_late("vstream.lint.manual").PAGES
        return pages

    @property
    def url(self) -> str | None:
        """Where they are, as the settings say, or the metadata of the package: `Documentation` of its URLs."""
        return self.docs_url or _load_formats().find_documentation()


def _load_formats() -> Any:
    """What writes for other programs. Lines for people do without it, and without what it imports."""
    return load_late("vstream.cli.views.finding_formats")


def report_lines(
    report: LintReport, output: LintFormat, *, anchor: Anchor | None = None, docs_url: str | None = None
) -> Iterator[Text | str]:
    """What was found, as *output* has it. Paths for other programs are relative to *anchor*."""
    top, manual = anchor or AS_NAMED, Manual(docs_url=docs_url)
    match output:
        case LintFormat.JSON:
            yield format_json("findings", {"findings": _as_dicts(report, top, manual)})
        case LintFormat.SARIF:
            yield _load_formats().to_sarif(report.findings, manual.pages, anchor=top, docs_url=manual.url)
        case LintFormat.JUNIT:
            yield _load_formats().to_junit(report.findings, report.files, datetime.now(UTC))
        case LintFormat.GITLAB:
            yield _load_formats().to_gitlab(report.findings, top)
        case LintFormat.GITHUB:
            yield from _load_formats().to_github(report.findings, manual.pages, manual.url)
        case LintFormat.FULL:
            yield from finding_text.render_full(report.findings, report.texts)
        case LintFormat.CONCISE:
            yield from finding_text.render_concise(report.findings)


def _as_dicts(report: LintReport, anchor: Anchor, manual: Manual) -> list[dict[str, Any]]:
    url = manual.url
    pages = manual.pages if url and report.findings else {}
    entries = finding_text.as_dicts(report.findings)
    for entry, fingerprint in zip(entries, fingerprints(report.findings, anchor), strict=True):
        entry["fingerprint"] = fingerprint
        entry["url"] = _load_formats().page_url(pages.get(entry["code"]), url)
    return entries


def statistics_lines(report: LintReport, output: LintFormat) -> Iterator[str]:
    """How often each rule was broken, most often first; `[*]` where `--fix` can correct all or some of it."""
    pages = Manual().pages
    counts = Counter(finding.code for finding in report.findings)
    fixable = {finding.code for finding in report.findings if finding.fix}
    rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    if output is LintFormat.JSON:
        entries = [
            {"code": code, "name": pages[code].name, "count": count, "fixable": code in fixable} for code, count in rows
        ]
        yield format_json("lint-statistics", {"statistics": entries})
        return
    width = max((len(f"{count:,}") for count in counts.values()), default=0)
    for code, count in rows:
        mark = " [*]" if code in fixable else "    "
        yield f"{count:>{width},}  {code}{mark if fixable else ''}  {pages[code].name}"


def summary_lines(report: LintReport, *, is_fixing: bool) -> Iterator[str]:
    """How much was found, and what can be corrected."""
    counts = Counter(finding.severity.value for finding in report.findings)
    numbers = [format_count(counts[name], name) for name in _COUNTED_SEVERITIES if counts[name]]
    # None where nothing could be read.
    files = f" in {format_count(len(report.files), 'file')}" if report.files else ""
    yield f"{', '.join(numbers) or 'nothing found'}{files}"
    fixable = sum(bool(finding.fix) for finding in report.findings)
    if fixable and is_fixing:
        yield f"{fixable:,} of them not corrected: `--fix` changes neither standard input nor included files"
    elif fixable:
        yield f"{fixable:,} of them can be corrected with `--fix`"


def closing_lines(result: CheckResult, *, is_fixing: bool) -> Iterator[str]:
    """What is said below the findings."""
    yield from _list_stale(result.stale)
    yield from summary_lines(result.report, is_fixing=is_fixing)
    hidden = len(result.before_baseline.findings) - len(result.report.findings)
    if hidden:
        yield f"{hidden:,} more {'is' if hidden == 1 else 'are'} in the baseline"


def _list_stale(stale: Mapping[FindingKey, int]) -> Iterator[str]:
    """The entries of a baseline that nothing has any more."""
    if not stale:
        return
    total = sum(stale.values())
    yield f"{total:,} of the baseline {'is' if total == 1 else 'are'} no longer found: `--write-baseline` removes them"
    for key in sorted(stale)[:_MAX_STALE]:
        yield f"  {clean(key.file)}: {key.code}: {clean(key.message)}"
    if len(stale) > _MAX_STALE:
        yield f"  and {len(stale) - _MAX_STALE:,} more"
