"""How long a command takes: said beforehand, from what it took last time."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.command import environment
from vstream.cli.views import durations
from vstream.cli.views.durations import describe_duration, tell_duration

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command that takes so many seconds, and returns what it says beforehand."""
    monkeypatch.setenv("VSTREAM_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    # Other tests in this process may have asked something.
    monkeypatch.setattr(durations, "QUESTIONS", [])
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])

    def take(seconds: float, *arguments: str, ending: type[Exception] | None = None, **how: Any) -> str:
        monkeypatch.setattr(sys, "argv", ["vstream", *arguments])
        try:
            with tell_duration():
                now[0] += seconds
                if ending is not None:
                    raise ending(*how.values())
        except (typer.Exit, KeyboardInterrupt, RuntimeError):
            pass
        return capsys.readouterr().err

    return take


def test_a_command_that_took_long_says_so_the_next_time(run: Run) -> None:
    assert run(41.0, "audit") == "about 40 s if messages are few: Spark has to start\n"
    assert run(12.0, "apply", "--since", "2h") == run(5.0, "audit", "--follow") == ""
    assert run(38.0, "audit") == "about 40 s, as last time\n"
    assert run(200.0, "apply", "--since", "2h") == "about 10 s, as last time\n"
    assert run(1.0, "apply", "--since", "2h") == "about 3 min, as last time\n"
    assert run(1.0, "apply", "--since", "2h") == ""


def test_every_command_says_it_at_a_terminal_and_nowhere_else(run: Run, tmp_path: Path) -> None:
    run(41.0, "lint", "--explain", "VS101")
    arguments = [sys.executable, "-m", "vstream", "lint", "--explain", "VS101"]
    state = {"VSTREAM_STATE_DIR": str(tmp_path / "state")}
    piped = subprocess.run(arguments, env=environment(state), cwd=tmp_path, capture_output=True, check=True)
    assert piped.stderr == b""
    controller, terminal = pty.openpty()
    subprocess.run(
        arguments, env=environment(state), cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=terminal, check=True
    )
    os.close(terminal)
    assert os.read(controller, 100) == b"about 40 s, as last time\r\n"
    os.close(controller)


def test_a_command_is_another_one_elsewhere(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(41.0, "lab", "up")
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert run(41.0, "lab", "up") == ""


@pytest.mark.parametrize(("ending", "code", "is_remembered"), [
    (typer.Exit, 1, True), (typer.Exit, 130, False), (RuntimeError, 0, False),
])  # fmt: skip
def test_only_what_ran_to_its_end_is_remembered(
    run: Run, ending: type[Exception], code: int, *, is_remembered: bool
) -> None:
    run(41.0, "probe", ending=ending, code=code)
    assert bool(run(1.0, "probe")) == is_remembered


def test_a_question_does_not_count(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "QUESTIONS", [35.0])
    run(41.0, "apply")
    assert run(41.0, "apply") == ""


def test_what_cannot_be_read_is_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "durations.json").write_text("[1, 2")
    assert run(41.0, "apply") == ""
    assert run(41.0, "apply") == "about 40 s, as last time\n"


@pytest.mark.parametrize(("seconds", "text"), [(11, "about 10 s"), (43, "about 45 s"), (118, "about 120 s"), (170, "about 3 min")])  # fmt: skip
def test_durations_are_rounded(seconds: float, text: str) -> None:
    assert describe_duration(seconds) == text
