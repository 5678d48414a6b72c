"""What mkdocs does beside its pages: each of them as plain Markdown, too, for whoever reads with a program."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any


def on_post_build(config: Any) -> None:
    """Copy each page's Markdown to where its links lead: NAME.md beside NAME/."""
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in docs.rglob("*.md"):
        target = site / page.relative_to(docs)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, target)
