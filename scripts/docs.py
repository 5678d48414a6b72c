"""
What vstream declares, as documentation: docs/rules.md, docs/findings.md, docs/doctor.md, and tables in other pages.

A table stands between `<!-- NAME: written by scripts/docs -->` and `<!-- end of NAME -->`. Its words count as generated.
"""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import typer.main

from vstream.audit.codes import CHAPTER as AUDIT
from vstream.cli.app import app
from vstream.health.doctor.examine import CHAPTER as DOCTOR
from vstream.lint.manual import CHAPTERS as RULES
from vstream.scenario import fault_types
from vstream.scenario.document import yaml_key
from vstream.topology.profiles import PROFILES
from vstream.topology.profiles.profile import ProfileManual

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from vstream.codes import Chapter

DOCS = Path(__file__).resolve().parent.parent / "docs"
TABLE = re.compile(r"(<!-- ([a-z-]+): written by scripts/docs -->\n)(.*?)(<!-- end of \2 -->)", re.DOTALL)
STEP_VALUES = {
    fault_types.Target.NOTHING: (),
    fault_types.Target.REGIONS: ("west",),
    fault_types.Target.SERVERS: ("west-1",),
    fault_types.Target.MACHINES: ("west", "west-1"),
    fault_types.Target.STREAM: ("foo-write-west",),
    fault_types.Target.SIDES: ("west | central,east",),
    fault_types.Target.LINK: ("west-east",),
}
"""By what a fault is for: examples of what steps of scenarios name."""
ROUTING_ROWS = {
    "accounts": "accounts",
    "streams": "streams",
    "mapping_rules": "mapping rules",
    "creating_consumers": "creating consumers by the virtual name; key-value `keys`, `watch`, `history`",
    "mirrored_consumers": "where consumers of `stretch` and `homed` streams live",
    "changing_streams": "clients that create, delete or purge streams",
    "core_subscribers": "[subscribers without JetStream](buckets.md#core-subscribers)",
    "users": "[users](#users-and-passwords)",
    "files": "what you ship",
    "servers": "servers",
    "runbooks": "[runbook](runbooks.md) commands: `region`, `backup`, `map --trace`",
}
"""By field of a `ProfileManual`: the title of its row."""


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


def fault_commands() -> str:
    """The faults as commands, for docs/chaos.md."""
    rows = []
    for declared in fault_types.FAULTS.values():
        options = [_code(f"--{yaml_key(option.name)}") for option in declared.options if not option.is_required]
        happens = "; ".join([declared.what_happens, *([", ".join(options)] if options else [])])
        rows.append((_code(declared.usage), happens, declared.what_to_expect))
    return _render_table(("command", "what happens", "what to expect"), rows)


def fault_steps() -> str:
    """The faults as steps of scenarios, for docs/scenarios.md."""
    rows = []
    for declared in fault_types.FAULTS.values():
        steps = [_code(declared.name)] if declared.may_lack_target else []
        steps += [_code(f"{declared.name}: {value}") for value in STEP_VALUES[declared.target]]
        options = [yaml_key(option.name) for option in declared.options] + (["for"] if declared.stays_open else [])
        rows.append((", ".join(steps), ", ".join(map(_code, options)), declared.help))
    return _render_table(("Fault", "Options", "Meaning"), rows)


def fault_options() -> str:
    """The options of faults, for docs/scenarios.md."""
    rows = [(_code(yaml_key(option.name)), option.help) for option in fault_types.FAULT_OPTIONS.values()]
    return _render_table(("Option", "Meaning"), rows)


def lint_options() -> str:
    """What `vstream lint --help` says of its options, for docs/lint.md."""
    rows = []
    for parameter in typer.main.get_command(app).commands["lint"].load().params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "option":
            values = [getattr(choice, "value", choice) for choice in parameter.type_descriptor.choices or ()]
            choices = ", ".join(map(_code, values))
            help_text = f"{parameter.help} One of {choices}." if choices else parameter.help
            rows.append((", ".join(map(_code, parameter.opts)), help_text))
    return _render_table(("Option", "What it does"), rows)


def routing_profiles() -> str:
    """The routing profiles side by side, for docs/routing.md."""
    profiles = PROFILES.values()
    rows = []
    for field in fields(ProfileManual):
        rows.append((ROUTING_ROWS[field.name], *(getattr(profile.manual, field.name) for profile in profiles)))
    return _render_table(("", *(_code(profile.routing.value) for profile in profiles)), rows)


def _code(text: str) -> str:
    return f"`{text}`"


def _render_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = []
    for row in (titles, ("---",) * len(titles), *rows):
        cells = "|".join(f" {cell.replace('|', chr(92) + '|')} " if cell else " " for cell in row)
        lines.append(f"|{cells}|")
    return "\n".join(lines) + "\n"


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


TABLES: Mapping[str, Callable[[], str]] = {
    "fault-commands": fault_commands,
    "fault-steps": fault_steps,
    "fault-options": fault_options,
    "lint-options": lint_options,
    "routing-profiles": routing_profiles,
}
MANUALS: Mapping[str, Callable[[], str]] = {
    "rules.md": rules_markdown,
    "findings.md": findings_markdown,
    "doctor.md": doctor_markdown,
}


def with_tables(text: str) -> str:
    """*text*, a page in docs/, with its tables as they are declared."""
    return TABLE.sub(lambda match: f"{match[1]}{TABLES[match[2]]()}{match[4]}", text)


def without_tables(text: str) -> str:
    """*text*, a page in docs/, without what `scripts/docs` writes into it."""
    return TABLE.sub("", text)


def list_pages() -> dict[str, str]:
    """Every page that `scripts/docs` writes, or writes a table of: what is declared, by its path in docs/."""
    pages = {name: write() for name, write in MANUALS.items()}
    for file in sorted(DOCS.rglob("*.md")):
        text = file.read_text(encoding="utf-8")
        if TABLE.search(text):
            pages[str(file.relative_to(DOCS))] = with_tables(text)
    return pages


def main() -> int:
    code = 0
    for name, text in list_pages().items():
        file = DOCS / name
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
