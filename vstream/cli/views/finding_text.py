"""Findings as text with snippets, as one line each, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from vstream.cli.views.cleaning import clean
from vstream.findings import Finding, Severity, Span, mask_line

STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold blue"}
_MAX_LINE_LENGTH = 160
"""Characters of a line that are shown: JSON may have everything on one."""
_LENGTH_BEFORE = 60
_MAX_RELATED = 5


def render_headline(finding: Finding) -> Text:
    """`file:line:column: error VS101: message`; a name, where it is about no file."""
    return Text.assemble(
        (f"{clean(finding.about)}: " if finding.about else "", "bold"),
        (f"{finding.severity.value} {finding.code}", STYLES[finding.severity]),
        f": {clean(finding.message)}",
    )


def render_full(findings: Sequence[Finding], sources: Mapping[str, str]) -> Iterator[Text]:
    """Each finding with the line that caused it and a caret; one that several files have once. *sources* are their texts."""
    snippets = _Snippets(sources)
    for finding, elsewhere in _group_alike(findings):
        yield from render_finding(finding, snippets)
        if elsewhere:
            places = ", ".join(clean(copy.about) for copy in elsewhere[:_MAX_RELATED])
            more = f" and {len(elsewhere) - _MAX_RELATED:,} more" if len(elsewhere) > _MAX_RELATED else ""
            yield Text.assemble(("  = ", "bold cyan"), f"the same at {places}{more}")
        yield Text("")


def _group_alike(findings: Sequence[Finding]) -> Iterator[tuple[Finding, list[Finding]]]:
    """Each finding, with those of other files that say the same: a mistake that was copied is shown once."""
    seen_findings: dict[tuple[str, str, str | None], Finding] = {}
    groups: dict[int, tuple[Finding, list[Finding]]] = {}
    for finding in findings:
        same = seen_findings.setdefault((finding.code, finding.message, finding.hint), finding)
        if same.span and finding.span and same.span.file != finding.span.file:
            groups[id(same)][1].append(finding)
        else:
            groups[id(finding)] = (finding, [])
    yield from groups.values()


def render_finding(finding: Finding, snippets: _Snippets | None = None) -> Iterator[Text]:
    """One finding: what is wrong and where, the text or the evidence that shows it, and what to do."""
    yield render_headline(finding)
    if snippets and finding.span:
        yield from snippets.show_line(finding.span, STYLES[finding.severity])
    if finding.evidence:
        yield Text(f"  {clean(finding.evidence)}")
    for related in finding.related[:_MAX_RELATED]:
        yield Text.assemble(("  = ", "bold cyan"), f"{place(related.span)}: {clean(related.message)}")
        if snippets:
            yield from snippets.show_line(related.span, "bold cyan")
    if len(finding.related) > _MAX_RELATED:
        yield Text.assemble(("  = ", "bold cyan"), f"and {len(finding.related) - _MAX_RELATED:,} more places")
    if finding.hint:
        yield Text.assemble(("hint: ", "bold cyan"), clean(finding.hint))


def place(span: Span) -> str:
    """`file:line:column`."""
    return f"{clean(span.file)}:{span.line}:{span.column}"


class _Snippets:
    """Lines of the files, each file cut into lines when the first one is asked for."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = sources
        self._lines: dict[str, list[str]] = {}

    def show_line(self, span: Span, style: str) -> Iterator[Text]:
        """The line where *span* begins, with carets under it; nothing if there is no such line."""
        if span.file not in self._lines:
            self._lines[span.file] = self._sources.get(span.file, "").split("\n")
        lines = self._lines[span.file]
        if span.file not in self._sources or not 0 < span.line <= len(lines):
            return
        line = mask_line(lines[span.line - 1].rstrip("\r"))
        start = span.column - 1
        end = span.end_column - 1 if span.end_line == span.line else len(line)
        width = max(1, min(end, len(line)) - start)
        dropped = max(0, start - _LENGTH_BEFORE) if len(line) > _MAX_LINE_LENGTH else 0
        shown = line[dropped : dropped + _MAX_LINE_LENGTH]
        before, after = ("…" if dropped else ""), ("…" if dropped + _MAX_LINE_LENGTH < len(line) else "")
        column = start - dropped + len(before)
        # One column for each character, so that the carets stand where they should.
        shown = "".join(char if char.isprintable() else "�" for char in shown.replace("\t", " "))
        gutter = " " * len(str(span.line))
        yield Text(f"{gutter} |")
        yield Text(f"{span.line} | {before}{shown}{after}")
        yield Text.assemble(f"{gutter} | {' ' * column}", ("^" * min(width, _MAX_LINE_LENGTH - column + 1), style))


def render_concise(findings: Sequence[Finding]) -> Iterator[Text]:
    """One line each."""
    for finding in findings:
        hint = f" ({clean(finding.hint)})" if finding.hint else ""
        yield Text.assemble(render_headline(finding), hint)


def as_dicts(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as plain JSON data."""
    return [_as_dict(finding) for finding in findings]


def _as_dict(finding: Finding) -> dict[str, Any]:
    return {
        "code": finding.code,
        "severity": finding.severity.value,
        "message": finding.message,
        "hint": finding.hint,
        **_describe_span(finding.span),
        "related": [{"message": related.message, **_describe_span(related.span)} for related in finding.related],
        "fixable": bool(finding.fix),
    }


def _describe_span(span: Span | None) -> dict[str, Any]:
    fields = ("file", "line", "column", "end_line", "end_column")
    return {field: getattr(span, field, None) for field in fields}
