"""Ctrl-C and SIGTERM end a command, wherever they come."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

WORK = """
import _thread, os, signal, sys, threading, time
import typer
from vstream.cli.asyncio_runner import exit_on_signals
from vstream.errors import VstreamError

number, where = int(sys.argv[1]), sys.argv[2]

class Careless:
    def __del__(self):
        os.kill(os.getpid(), number)

def start_slowly(thread, start=threading.Thread.start):
    start(thread)
    came.wait()

def interrupt_main(interrupt=_thread.interrupt_main):
    interrupt()
    came.set()

if where == "in a finalizer on a busy machine":  # before Python is done with the error, its end is asked for again
    came = threading.Event()
    threading.Thread.start, _thread.interrupt_main = start_slowly, interrupt_main

def work():
    with exit_on_signals() as is_interrupted:
        if "finalizer" in where:
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
@pytest.mark.parametrize("where", ["in a finalizer", "in a finalizer on a busy machine", "under an error"])
def test_a_signal_ends_the_command_with_one_line(number: signal.Signals, code: int, where: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORK, str(int(number)), where], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "interrupted\n")


EARLY = """
import os, signal, sys

class InterruptedImport:
    def find_spec(self, name, *_):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, InterruptedImport())
from vstream.__main__ import main
main()
"""


def test_ctrl_c_while_modules_are_loaded_is_no_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
