"""The manual pages of codes (rules, audit findings, doctor checks), in chapters and as one document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.diagnostics import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What one code means, why it matters, and what to do, as Markdown without a title."""

    code: str
    name: str
    severity: Severity
    text: str

    @property
    def summary(self) -> str:
        """The first paragraph, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Codes that belong together."""

    title: str
    pages: tuple[Page, ...]


def render_manual(title: str, about: str, chapters: Sequence[Chapter]) -> str:
    """*chapters* as one Markdown document."""
    parts = [
        f"# {title}\n",
        f"{about} `vstream explain CODE` prints a page.\n",
        f"Generated from the {title.lower()} by `scripts/docs`.\n",
    ]
    for chapter in chapters:
        parts.append(f"## {chapter.title}\n")
        parts.append("| Code | Name | Severity | |\n|---|---|---|---|")
        entries = []
        for page in chapter.pages:
            entries.append(
                f"| [{page.code}](#{page.code.lower()}-{page.name}) | {page.name} | {page.severity.value} | "
                f"{page.summary.replace('|', chr(92) + '|')} |"
            )
        parts += entries
        parts.append("")
        for page in chapter.pages:
            parts.append(f"### {page.code} {page.name}\n")
            parts.append(_demote_headings(page.text) + "\n")
    return "\n".join(parts)


def _demote_headings(text: str) -> str:
    """*text* with its headings two levels down, but for what is an example."""
    lines, is_code = [], False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        lines.append(f"##{line}" if line.startswith("## ") and not is_code else line)
    return "\n".join(lines)
