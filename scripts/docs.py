"""docs/rules.md, docs/findings.md, docs/doctor.md and the table in docs/chaos.md, generated from what vstream declares."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vstream.audit.codes import CHAPTER as AUDIT
from vstream.health.doctor.examine import CHAPTER as DOCTOR
from vstream.lint.manual import CHAPTERS as RULES
from vstream.scenario import faults

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vstream.codes import Chapter

DOCS = Path(__file__).resolve().parent.parent / "docs"


def render_manual(title: str, about: str, chapters: Sequence[Chapter]) -> str:
    """*chapters* as one Markdown document."""
    parts = [
        f"# {title}\n",
        f"{about} `vstream lint --explain CODE` prints a page.\n",
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


def faults_markdown() -> str:
    """The table of all faults in docs/chaos.md."""
    lines = ["| command | what happens | what to expect |", "|---|---|---|"]
    for declared in faults.FAULTS.values():
        cells = (f"`{declared.usage}`", declared.happens + _option_names(declared), declared.expect)
        lines.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(lines) + "\n"


def _option_names(declared: faults.FaultType) -> str:
    names = [f"`--{option.name.replace('_', '-')}`" for option in declared.options if not option.is_required]
    return f"; {', '.join(names)}" if names else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _demote_headings(text: str) -> str:
    """*text* with its headings two levels down, but for what is an example."""
    lines, is_code = [], False
    for line in text.splitlines():
        is_code ^= line.startswith("```")
        lines.append(f"##{line}" if line.startswith("## ") and not is_code else line)
    return "\n".join(lines)


def rules_markdown() -> str:
    """The whole manual of rules, as docs/rules.md has it."""
    return render_manual(
        "Rules",
        "For whoever sees a code `VS…` of `vstream validate` or `vstream lint`: what it means, and what to do.",
        RULES,
    )


def findings_markdown() -> str:
    """The manual of an audit, as docs/findings.md has it."""
    return render_manual(
        "Findings", "For whoever sees a code `VA…` of `vstream audit`: what it means, and what to do.", [AUDIT]
    )


def doctor_markdown() -> str:
    """The manual of `vstream doctor`, as docs/doctor.md has it."""
    return render_manual(
        "Doctor", "For whoever sees a code `VD…` of `vstream doctor`: what it means, and what to do.", [DOCTOR]
    )


def chaos_markdown() -> str:
    """docs/chaos.md with the table of the declared faults."""
    text = (DOCS / "chaos.md").read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- faults: ")
    comment, _, _ = rest.partition("\n")
    _, _, tail = rest.partition("<!-- end of faults -->")
    return f"{head}<!-- faults: {comment}\n{faults_markdown()}<!-- end of faults -->{tail}"


TEXTS = {
    "rules.md": rules_markdown,
    "findings.md": findings_markdown,
    "doctor.md": doctor_markdown,
    "chaos.md": chaos_markdown,
}


def main() -> int:
    code = 0
    for name, text_of in TEXTS.items():
        file, text = DOCS / name, text_of()
        if sys.argv[1:] == ["--check"]:
            is_current = file.is_file() and file.read_text(encoding="utf-8") == text
            print(f"{name} is up to date" if is_current else f"{name} is out of date: run scripts/docs")
            code |= not is_current
        else:
            file.write_text(text, encoding="utf-8")
            print(f"{name}: {len(text.splitlines())} lines")
    return code


if __name__ == "__main__":
    sys.exit(main())
