"""The `vstream` command as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in {"COLUMNS", "GITHUB_ACTIONS", "FORCE_COLOR"}}
    return {**kept, "NO_COLOR": "1", "COLUMNS": "100", **(extra or {})}


def vstream(*arguments: str | Path, cwd: Path | None = None, stdin: str = "", timeout: float = 120) -> Ran:
    """Run `vstream` in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "vstream", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)
