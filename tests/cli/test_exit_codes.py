"""What becomes of failures on the command line."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from tests.support.command import walk_commands
from vstream.cli.app import run
from vstream.cli.failures import report_failure


@pytest.mark.parametrize("command", ["audit", "lint"])
def test_a_directory_that_is_closed_to_this_user_is_said(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As root, who runs tests in containers, nothing is closed."""

    stat = Path.stat

    def refuse_stat(path: Path, **options: bool) -> os.stat_result:
        if path.name == "acme.yaml":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr("sys.argv", ["vstream", command, "closed/acme.yaml"])
    monkeypatch.setattr(Path, "stat", refuse_stat)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 3
    assert capsys.readouterr().err.startswith("error: closed/acme.yaml cannot be reached: Permission denied")


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EPERM, "Operation not permitted"),
        TypeError("no\x1b[31m\n::error::x"),
        RecursionError("deep"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_nobody_foresaw_is_one_line_and_never_a_no(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("VSTREAM_DEBUG", raising=False)
    assert raised_code(error) == 3
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"error: unexpected {type(error).__name__} in test_exit_codes.py, line ")
    assert lines[0].isprintable()
    assert "VSTREAM_DEBUG=1" in lines[1]
    monkeypatch.setenv("VSTREAM_DEBUG", "1")
    assert raised_code(error) == 3
    assert "Traceback" in capsys.readouterr().err


def raised_code(error: Exception) -> int:
    with pytest.raises(type(error)) as caught:
        raise error
    return report_failure(caught.value)


def test_an_answer_that_nobody_reads_to_its_end_is_not_no() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-m", "vstream", "lint", "--explain", "VS101"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (3, b"")


def test_a_failure_that_nobody_reads_is_not_no_either(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{}")
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "vstream", "apply", str(tmp_path / "plan.json")]
    # Without buffers, nothing is left to be written at the end.
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run(command, stdout=writing, stderr=writing, env=buffered, check=False)
    os.close(writing)
    assert ran.returncode == 3


COMMANDS = dict(walk_commands())


@pytest.mark.parametrize("path", COMMANDS)
def test_every_command_ends_with_3_where_something_unexpected_happens(
    path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By one handler, that of `run`: a traceback would end with 1, which means "no"."""
    _, kind, _ = typer.Context.__mro__  # typer brings its own click
    invoke = kind.invoke  # type: ignore[attr-defined]

    def fail(context: typer.Context, /, *arguments: Any, **options: Any) -> Any:
        if hasattr(context.command, "commands"):
            return invoke(context, *arguments, **options)
        raise LookupError("nobody thought of it")

    monkeypatch.delenv("VSTREAM_DEBUG", raising=False)
    monkeypatch.setattr("sys.argv", ["vstream", *path.split(), *required_arguments(COMMANDS[path])])
    monkeypatch.setattr(kind, "invoke", fail)
    with pytest.raises(SystemExit) as ended:
        run()
    printed = capsys.readouterr()
    assert (ended.value.code, printed.out) == (3, ""), printed.err
    assert printed.err.startswith("error: unexpected LookupError in test_exit_codes.py, line ")
    assert printed.err.count("\n") == 2  # the line, and its hint


def required_arguments(command: Any) -> list[str]:
    """A value for everything that *command* requires."""
    required = [parameter for parameter in command.params if parameter.required]
    return [text for parameter in required for text in (*option_name(parameter), "1")]


def option_name(parameter: Any) -> list[str]:
    return [] if parameter.param_type_name == "argument" else [parameter.opts[0]]


def test_ctrl_c_ends_with_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sys.argv", ["vstream", "schema"])
    monkeypatch.setattr("vstream.cli.schema.json.dumps", interrupt)
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 130
