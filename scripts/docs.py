"""docs/rules.md, docs/findings.md, docs/doctor.md and the table in docs/chaos.md, generated from what vstream declares."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vstream.audit import codes
from vstream.health.doctor import examine as doctor
from vstream.lint.manual import rules_markdown
from vstream.scenario import faults

DOCS = Path(__file__).resolve().parent.parent / "docs"


def chaos_markdown() -> str:
    """docs/chaos.md with the table of the declared faults."""
    text = (DOCS / "chaos.md").read_text(encoding="utf-8")
    head, _, rest = text.partition("<!-- faults: ")
    comment, _, _ = rest.partition("\n")
    _, _, tail = rest.partition("<!-- end of faults -->")
    return f"{head}<!-- faults: {comment}\n{faults.table_markdown()}<!-- end of faults -->{tail}"


TEXTS = {
    "rules.md": rules_markdown,
    "findings.md": codes.findings_markdown,
    "doctor.md": doctor.doctor_markdown,
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
