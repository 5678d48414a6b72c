"""
`scripts/soak` in its short form: a lab up and down, and a kill of `lab down`, leave nothing.

What else it kills has tests of its own: `lab up` in lab/test_crashes.py, `chaos` in chaos/test_live.py, a scenario in
runner/test_live.py. The night kills all of them at random moments.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.paths import ROOT

pytestmark = pytest.mark.lab


def test_a_cycle_and_a_kill_leave_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "soak.py", "--cycles", "1", "--kills", "1", "--servers", "1"],
        env=environment({"TMPDIR": str(tmp_path)}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for line in ("lab up is ", "lab down: median ", "kill 1: lab down, ", "nothing left"):
        assert line in done.stdout
    assert list(tmp_path.iterdir()) == []
