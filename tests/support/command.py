"""The `vstream` command as a user runs it."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import typer.main

from tests.support.paths import ROOT
from vstream.cli.app import app
from vstream.cli.lazy_group import LazyCommand
from vstream.cli.schema import make_output_schema

_FORK_SERVER = "VSTREAM_TESTS_FORK_SERVER"
"""Names the socket of the fork server to a process started by one that has started it."""
OUTPUTS_SEEN: set[str] = set()
"""The JSON outputs that tests of this process have held against their schemas."""


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str
    memory: int = 0
    """The most that it had in memory, in kilobytes."""

    def json(self) -> Any:
        """What was printed as JSON. Where that is none, the failure shows all that was said instead."""
        try:
            return json.loads(self.out)
        except ValueError:
            pytest.fail(f"no JSON, and exit code {self.code}:\n{self.out}\n{self.err}")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    inherited = {
        key: value
        for key, value in os.environ.items()
        if key not in {"COLUMNS", "GITHUB_ACTIONS", "FORCE_COLOR", _FORK_SERVER}
    }
    return {**inherited, "NO_COLOR": "1", "COLUMNS": "100", **(extra or {})}


def vstream(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: str = "",
    timeout: float = 300,
    variables: Mapping[str, str] | None = None,
    stdout: Path | None = None,
) -> Ran:
    """
    Run `vstream` in a process of its own, forked from one that has imported it, and look at what it says.

    It has the environment's *variables* besides those of the tests; what it prints can go to *stdout* instead.
    """
    ran = run_unchecked(*arguments, cwd=cwd, stdin=stdin, timeout=timeout, variables=variables, stdout=stdout)
    assert "Traceback" not in ran.err, ran.err
    if ran.out.startswith("{"):
        for document in read_json_documents(ran.out):
            check_output(document)
    return ran


def require_success(ran: Ran) -> Ran:
    assert ran.code == 0, ran.out + ran.err
    return ran


def start_vstream(
    *arguments: str | Path,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stdin: int | None = None,
    stderr: int = subprocess.PIPE,
) -> subprocess.Popen[str]:
    """Start `vstream` in a process group of its own. Who has started it reads what it says, and ends it."""
    return subprocess.Popen(
        [sys.executable, "-m", "vstream", *arguments],
        cwd=cwd,
        env=environment(variables),
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def run_unchecked(
    *arguments: str | Path,
    cwd: Path | None = None,
    stdin: str = "",
    timeout: float = 300,
    variables: Mapping[str, str] | None = None,
    stdout: Path | None = None,
    is_merged: bool = False,
) -> Ran:
    """
    As `vstream`, whatever it says. Raises TimeoutError after *timeout* seconds, when it is killed.

    What *is_merged* is in *stdout* in the order in which it was written, as a terminal has it.
    """
    with tempfile.TemporaryDirectory(prefix="vstream-test-") as name:
        streams = Path(name)
        for number, text in enumerate((stdin, "", "")):
            (streams / str(number)).write_text(text, encoding="utf-8")
        request: dict[str, Any] = {
            "arguments": [str(argument) for argument in arguments],
            "directory": str(cwd or Path.cwd()),
            "environment": environment(variables),
            "umask": _umask(),
            "streams": [str(streams / "0"), str(stdout or streams / "1"), str(streams / "2")],
        }
        if is_merged:
            request["streams"][2] = request["streams"][1]
        code, memory = _run(request, timeout)
        encoding = request["environment"].get("PYTHONIOENCODING", "utf-8")
        printed, errors = ((streams / number).read_text(encoding=encoding) for number in ("1", "2"))
        return Ran(code, printed, errors, memory)


def read_json_documents(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects that a command printed one after another."""
    decoder = json.JSONDecoder()
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:]


def check_output(document: Mapping[str, Any]) -> None:
    """A JSON output is as its schema says, and the schema names each of its keys."""
    if "$schema" in document or "schema" not in document:
        return  # a JSON Schema, SARIF, or a file's content
    name = str(document["schema"]).removeprefix("vstream.").partition("/")[0]
    properties, validator = _output_validator(name)
    validator.validate(document)
    OUTPUTS_SEEN.add(name)
    undocumented = document.keys() - properties
    assert not undocumented, f"add to the type of `{name}` in vstream/outputs.py: {sorted(undocumented)}"


@cache
def _output_validator(name: str) -> tuple[frozenset[str], jsonschema.Draft202012Validator]:
    """
    The keys of the output *name*, and what checks it.

    Made once: to derive a schema takes longer than most commands do. That it is one is a test by itself.
    """
    schema = make_output_schema(name)
    return frozenset(schema["properties"]), jsonschema.Draft202012Validator(schema)


def _umask() -> int:
    """That of this process, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _run(request: Mapping[str, object], timeout: float) -> tuple[int, int]:
    """The command's exit code, negative if a signal has ended it, as `subprocess` has it, and its memory."""
    with connect_when_ready(fork_server()) as client:
        client.sendall(json.dumps(request).encode() + b"\n")
        with client.makefile("rb") as answers:
            process = int(answers.readline())
            client.settimeout(timeout)
            try:
                code, memory = map(int, answers.readline().split())
            except BaseException:  # a test's own deadline, too
                os.kill(process, signal.SIGKILL)
                raise
            return code, memory


def connect_when_ready(path: Path) -> socket.socket:
    """A connection to the fork server at *path*, which may still be importing."""
    deadline = time.monotonic() + 300
    while True:
        client = socket.socket(socket.AF_UNIX)
        try:
            client.connect(str(path))
        except OSError:
            client.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return client


@cache
def fork_server() -> Path:
    """
    The socket of the fork server for this process and those that it starts, which ends with it.

    The workers of a test run share the one of the process that started them.
    """
    if shared := os.environ.get(_FORK_SERVER):
        return Path(shared)
    directory = tempfile.TemporaryDirectory(prefix="vstream-forks-")
    path = Path(directory.name) / "socket"
    command = [sys.executable, "-m", "tests.support.fork_server", str(path)]
    server = subprocess.Popen(command, cwd=ROOT, env=environment(), stdin=subprocess.PIPE)
    os.environ[_FORK_SERVER] = str(path)

    def end() -> None:
        server.kill()
        server.communicate()
        directory.cleanup()

    atexit.register(end)
    return path


def walk_commands(*, with_groups: bool = False) -> Iterator[tuple[str, Any]]:
    """Every command by its path, such as `lab up`; the path of vstream itself, a group, is empty."""

    def walk(path: str, command: Any) -> Iterator[tuple[str, Any]]:
        loaded = command.load() if isinstance(command, LazyCommand) else command
        parts = getattr(loaded, "commands", {})
        if with_groups or not parts:
            yield path, loaded
        for name, part in parts.items():
            yield from walk(f"{path} {name}".strip(), part)

    yield from walk("", typer.main.get_command(app))
