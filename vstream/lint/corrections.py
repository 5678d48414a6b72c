"""Findings and texts → corrected texts, and their differences as lines."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import unified_diff

from vstream.findings import Edit, Finding


def apply_fixes(findings: Iterable[Finding], texts: Mapping[str, str], writable: Collection[str]) -> dict[str, str]:
    """
    The texts that change, with every fix in them that touches only *writable* files.

    Of fixes that overlap, the first is made; the next run, of what this one leaves, makes the others.
    """
    lines = _LineStarts(texts)
    accepted: dict[str, list[tuple[int, int, str]]] = {}
    for finding in findings:
        edits = [(edit.span.file, *lines.offsets(edit), edit.text) for edit in dict.fromkeys(finding.fix)]
        if edits and all(
            file in writable and not _overlaps(accepted.get(file, ()), start, end) for file, start, end, _ in edits
        ):
            for file, start, end, text in edits:
                accepted.setdefault(file, []).append((start, end, text))
    changed = {file: _apply_edits(texts[file], edits) for file, edits in accepted.items()}
    return {file: text for file, text in changed.items() if text != texts[file]}


def diff_texts(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """The lines of a unified diff of every file in *after*."""
    for file in sorted(after):
        old, new = before[file].splitlines(keepends=True), after[file].splitlines(keepends=True)
        for line in unified_diff(old, new, file, file):
            yield line.rstrip("\r\n")
            if not line.endswith("\n"):
                yield "\\ No newline at end of file"


class _LineStarts:
    """Where the lines of the texts begin."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self._starts: dict[str, list[int]] = {}

    def offsets(self, edit: Edit) -> tuple[int, int]:
        """The stretch of text that *edit* replaces."""
        file = edit.span.file
        if file not in self._starts:
            text = self._texts.get(file, "")
            self._starts[file] = [0, *(index + 1 for index, character in enumerate(text) if character == "\n")]
        starts = self._starts[file]
        return (
            starts[edit.span.line - 1] + edit.span.column - 1,
            starts[edit.span.end_line - 1] + edit.span.end_column - 1,
        )


def _overlaps(accepted: Iterable[tuple[int, int, str]], start: int, end: int) -> bool:
    # Two insertions at one place have no order that is right.
    return any(
        (start < other_end and other_start < end) or start == other_start for other_start, other_end, _ in accepted
    )


def _apply_edits(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    for start, end, replacement in sorted(edits, reverse=True):
        text = text[:start] + replacement + text[end:]
    return text
