"""docs/rules.md, generated from the docstrings of the rules."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from vstream.lint.manual import markdown

FILE = Path(__file__).resolve().parent.parent / "docs" / "rules.md"


def main() -> int:
    text = markdown()
    if sys.argv[1:] == ["--check"]:
        is_current = FILE.is_file() and FILE.read_text(encoding="utf-8") == text
        print(f"{FILE.name} is up to date" if is_current else f"{FILE.name} is out of date: run scripts/docs")
        return 0 if is_current else 1
    FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}: {len(text.splitlines())} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
