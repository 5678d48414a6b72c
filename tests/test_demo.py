"""`scripts/demo`, one of the README's two commands: it shows the main job, and leaves nothing running."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command import environment
from tests.support.labs import processes_in
from tests.support.night import with_night
from tests.support.paths import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("demo")]


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def demo(temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [ROOT / "scripts" / "demo"],
        env=environment({"TMPDIR": str(temporary)}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def test_a_checkout_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    for name in ("pyproject.toml", "scripts/bootstrap", "scripts/constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv").touch()  # in the way of a directory, for every user
    ran = subprocess.run([tmp_path / "scripts" / "bootstrap"], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert f"error: {tmp_path}/.venv cannot be made: copy the checkout" in ran.stderr


def test_the_demo_shows_nine_servers_six_streams_and_a_green_matrix(temporary: Path) -> None:
    process = demo(temporary)
    shown, _ = process.communicate(timeout=500)
    assert process.returncode == 0, shown
    assert shown.count(" running ") == 9
    assert "Plan: 6 to create, 0 to update, 0 to delete." in shown
    assert "Applied: 6 streams." in shown
    assert "No changes: the servers are as the topology says." in shown
    assert len(re.findall(r"^ +(?:west|central|east)(?: +✓ +[\d.]+ ms){3}\s*$", shown, re.MULTILINE)) == 3
    assert "PASS" in shown


@pytest.mark.parametrize(
    ("seen", "number"),
    with_night(
        [("1/5", signal.SIGINT)],
        [
            ("1/5", signal.SIGTERM),
            *((seen, number) for seen in ("2/5", "5/5") for number in (signal.SIGINT, signal.SIGTERM)),
        ],
    ),
)
def test_an_interrupted_demo_leaves_nothing(temporary: Path, seen: str, number: signal.Signals) -> None:
    process = demo(temporary)
    assert process.stdout is not None
    for line in process.stdout:
        if seen in line:
            break
    if seen == "1/5":
        deadline = time.monotonic() + 60
        while not processes_in(temporary) and time.monotonic() < deadline and process.poll() is None:
            time.sleep(0.02)  # until the first server has started: an interruption in the middle of `lab up`
    os.killpg(process.pid, number)  # as a terminal does: everybody in the foreground gets it
    process.communicate(timeout=120)
    assert process.returncode in {130, 143}
