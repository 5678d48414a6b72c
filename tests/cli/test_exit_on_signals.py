"""Ctrl-C and SIGTERM end a command, wherever they come."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WORK = """
import os, signal, sys, time
import typer
from vstream.cli.asyncio_runner import exit_on_signals
from vstream.errors import VstreamError

number, where = int(sys.argv[1]), sys.argv[2]

class Careless:
    def __del__(self):
        os.kill(os.getpid(), number)

def work():
    with exit_on_signals() as is_interrupted:
        if where == "in a finalizer":
            Careless()
        else:
            try:
                os.kill(os.getpid(), number)
            except KeyboardInterrupt:
                assert is_interrupted()
                raise VstreamError("the connection to Java broke")
        while True:
            time.sleep(0.01)

try:
    work()
except typer.Exit as end:
    sys.exit(end.exit_code)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGHUP, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("where", ["in a finalizer", "under an error"])
def test_a_signal_ends_the_command_with_one_line(number: signal.Signals, code: int, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(int(number)), where], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "interrupted\n")
