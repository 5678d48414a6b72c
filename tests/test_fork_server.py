"""What a run of tests has started is taken down by commands, also after Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.support.command import environment
from tests.support.paths import ROOT

TESTS = """\
import signal
from pathlib import Path

import pytest

from tests.support.command import vstream

@pytest.fixture
def lab():
    vstream("--version")
    yield
    Path("{directory}", "taken_down").write_text(vstream("--version").out)

def test_long(lab):
    Path("{directory}", "begun").touch()
    signal.pause()
"""


def test_commands_run_after_ctrl_c(tmp_path: Path) -> None:
    """A terminal sends it to the whole group: to pytest, and to what forks the commands."""
    file = tmp_path / "test_it.py"
    file.write_text(TESTS.format(directory=tmp_path))
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", str(file)]
    with subprocess.Popen(command, cwd=ROOT, env=environment(), start_new_session=True) as running:
        deadline = time.monotonic() + 120
        while not (tmp_path / "begun").exists():
            assert running.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        os.killpg(running.pid, signal.SIGINT)
        try:
            assert running.wait(timeout=120) == 2
        finally:
            running.kill()
    assert (tmp_path / "taken_down").read_text().startswith("vstream ")
