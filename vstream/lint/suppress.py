"""
Suppressions: `# vstream: ignore[VS303] reason`, on the line of a finding or alone on the line above it.

`# vstream: ignore-file[VS303] reason` counts for the whole file, wherever it is.

JSON has no comments. A stream configuration has metadata instead: `"vstream.ignore": "VS210 reason"`, several
of them separated by `;`, for findings anywhere in that configuration. Claims and tokens cannot be annotated.

What makes a file unreadable (VS001 to VS012) cannot be suppressed. VS009 reports a suppression without a reason,
without a code that exists, or that suppresses nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from vstream.codes import RETIRED
from vstream.findings import Finding, Severity, Span
from vstream.lint.selection import known_codes
from vstream.lint.workspace import StreamFile
from vstream.syntax.document import Document
from vstream.syntax.natsconf.nodes import Comment
from vstream.value_class import value_class

KEY: Final = "vstream.ignore"
CODE: Final = "VS009"

_MARK: Final = re.compile(r"vstream\s*:\s*ignore\b")
_DIRECTIVE: Final = re.compile(r"\s*vstream\s*:\s*ignore(-file)?\s*\[([^\]]*)\]\s*(.*)", re.DOTALL)
_MAX_LINE: Final = 1 << 40
_IN_METADATA: Final = re.compile(r"\s*((?:VS\w{3}[\s,]*)+)(.*)", re.DOTALL)
_CODE: Final = re.compile(r"VS[1-9]\d\d")
_SYNTAX: Final = "VS0"
_EXAMPLE: Final = "write `# vstream: ignore[VS303] because …`"


@value_class
class _Suppression:
    """One code that is not to be reported at some lines of a file."""

    code: str
    file: str
    first_line: int
    last_line: int
    span: Span


def remove_suppressed(
    findings: Iterable[Finding], comments: Iterable[Comment], texts: Mapping[str, str], streams: Iterable[StreamFile]
) -> tuple[Finding, ...]:
    """*findings* without those that *comments* or the metadata of *streams* suppress, and what is wrong with these."""
    all_codes = known_codes()
    read = [*_read_comments(comments, texts, all_codes), *_read_metadata(streams, all_codes)]
    suppressions = [entry for entry in read if isinstance(entry, _Suppression)]
    problems = [entry for entry in read if isinstance(entry, Finding)]
    return (*_apply(findings, suppressions), *problems)


def _read_comments(
    comments: Iterable[Comment], texts: Mapping[str, str], all_codes: Collection[str]
) -> Iterator[_Suppression | Finding]:
    """What *comments* suppress, and what is wrong with them."""
    lines: dict[str, list[str]] = {}
    for comment in dict.fromkeys(comments):
        if not _MARK.match(comment.text.lstrip()):
            continue
        file = comment.span.file
        if file not in lines:
            lines[file] = texts.get(file, "").split("\n")
        line = _find_suppressed_line(comment.span, lines[file])
        match = _DIRECTIVE.fullmatch(comment.text)
        if match is None:
            yield _warn("this suppression has no code", comment.span, _EXAMPLE)
            continue
        codes = match[2].replace(",", " ").split()
        lines_meant = (0, _MAX_LINE) if match[1] else (line, line)
        yield from _read_codes(codes, match[3], comment.span, lines_meant, all_codes)


def _read_metadata(streams: Iterable[StreamFile], all_codes: Collection[str]) -> Iterator[_Suppression | Finding]:
    """What the metadata of *streams* suppresses, and what is wrong with it."""
    for stream in streams:
        text = stream.config.metadata.get(KEY, "")
        for part in filter(str.strip, text.split(";")):
            whole, span = stream.locate(), stream.locate("metadata", KEY)
            match = _IN_METADATA.fullmatch(part)
            codes = match[1].replace(",", " ").split() if match else [part]
            area = (whole.line, whole.end_line)
            yield from _read_codes(codes, match[2] if match else "", span, area, all_codes)


def _apply(findings: Iterable[Finding], suppressions: Sequence[_Suppression]) -> Iterator[Finding]:
    """*findings* without those that are suppressed, with VS009 for each suppression of nothing."""
    remaining: list[Finding] = []
    used: set[_Suppression] = set()
    by_place: dict[tuple[str, str], list[_Suppression]] = {}
    for suppression in suppressions:
        by_place.setdefault((suppression.file, suppression.code), []).append(suppression)
    for finding in findings:
        span = finding.span
        matching = []
        for suppression in by_place.get((span.file, finding.code), ()) if span else ():
            if span and suppression.first_line <= span.line <= suppression.last_line:
                matching.append(suppression)
        used.update(matching)
        if not matching:
            remaining.append(finding)
    yield from remaining
    # Where a file could not be read to its end, the rules did not see all of it.
    broken = [finding for finding in remaining if finding.is_error and finding.code.startswith(_SYNTAX)]
    unread = {finding.span.file for finding in broken if finding.span}
    for suppression in suppressions:
        if suppression not in used and suppression.file not in unread:
            yield _warn(f"{suppression.code} is not reported here", suppression.span, "remove the suppression")


def find_yaml_comments(document: Document) -> Iterator[Comment]:
    """The comments of a YAML file that may be suppressions."""
    text, file = document.text, document.source.file
    if not _MARK.search(text):
        return
    spans = {*document.source.values.values(), *document.source.keys.values()}
    values = [span for span in spans if span != document.source.value_span(()) and span.line == span.end_line]
    for number, line in enumerate(text.split("\n"), start=1):
        for match in re.finditer(r"(?:^|(?<=\s))#(?=\s*vstream\s*:)", line):
            column = match.start() + 1
            inside = any(
                (span.line, span.column) <= (number, column) < (span.end_line, span.end_column) for span in values
            )
            if not inside:
                end = len(line.rstrip("\r")) + 1
                yield Comment(line[column:].rstrip("\r"), Span(file, number, column, number, end))
                break


def _find_suppressed_line(span: Span, lines: list[str]) -> int:
    """The line that a comment is about: its own, or the next one with anything on it if it stands alone."""
    if span.line > len(lines) or lines[span.line - 1][: span.column - 1].strip():
        return span.line
    for number in range(span.line + 1, len(lines) + 1):
        written = lines[number - 1].strip()
        if written and not written.startswith(("#", "//")):
            return number
    return span.line


def _read_codes(
    codes: list[str], reason: str, span: Span, area: tuple[int, int], all_codes: Collection[str]
) -> Iterator[_Suppression | Finding]:
    """What one comment, at *span*, suppresses in *area*, and what is wrong with it."""
    if not codes:
        yield _warn("this suppression has no code", span, _EXAMPLE)
    elif not reason.strip():
        listed = ", ".join(codes)
        yield _warn(
            f"the reason to ignore {listed} is missing", span, f"write it after the bracket: `[{listed}] because …`"
        )
    for code in dict.fromkeys(codes):
        if code.startswith(_SYNTAX):
            yield _warn(f"{code} cannot be ignored", span, "correct the reported problem")
        elif code in RETIRED:
            yield _warn(f"{code} is retired: {RETIRED[code]}", span, "remove it, or write the code that replaced it")
        elif not _CODE.fullmatch(code) or code not in all_codes:
            yield _warn(f"unknown rule {code[:20]}", span, "`vstream lint --explain list` lists all rules")
        else:
            yield _Suppression(code=code, file=span.file, first_line=area[0], last_line=area[1], span=span)


def _warn(message: str, span: Span, hint: str) -> Finding:
    return Finding(code=CODE, severity=Severity.WARNING, message=message, where=span, hint=hint)
