"""Processes that outlive the command that started them: spawn, recognise and stop them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

_POLL_SECONDS = 0.01
_KILL_TIMEOUT = 10.0


def start_process(argv: Sequence[str], *, log: Path, cwd: Path) -> int:
    """
    Start a process in a new session, with its output appended to the file *log*; returns its id.

    It outlives this process and its terminal, and can be recognised by its arguments. Raises OSError if it cannot be run.
    """
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=cwd, start_new_session=True
        )
    # Popen must neither wait for it nor complain. `reap` collects it if it ends before us.
    child.returncode = 0
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(child.pid)
        # On a busy machine, Popen returns before the kernel shows the arguments of the new program.
        while not read_arguments(process) and is_alive(process):
            time.sleep(0)
    return child.pid


def read_arguments(process: psutil.Process) -> list[str]:
    """The arguments of *process*; empty for zombies and for processes that we may not see."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def is_alive(process: psutil.Process) -> bool:
    """Whether *process* still runs. A zombie does not, although it has a process id."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def reap(process: psutil.Process) -> None:
    """Collect *process* if it is a dead child of this process. Other parents collect their own."""
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)


def send_signal(process: psutil.Process, number: signal.Signals) -> None:
    """Send signal *number*, unless the process has ended."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)  # psutil checks that the process id was not given to another


async def terminate(processes: Iterable[psutil.Process], *, grace: float) -> list[psutil.Process]:
    """Stop *processes*; after *grace* seconds with SIGKILL. Returns those that survive."""
    asked = list(processes)
    for process in asked:
        send_signal(process, signal.SIGTERM)
        send_signal(process, signal.SIGCONT)  # a paused process would keep SIGTERM pending for ever
    survivors = await _wait_until_gone(asked, grace)
    for process in survivors:
        send_signal(process, signal.SIGKILL)
    return await _wait_until_gone(survivors, _KILL_TIMEOUT)


async def _wait_until_gone(processes: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Those of *processes* that are still alive after *timeout* seconds."""
    deadline = time.monotonic() + timeout
    remaining = list(processes)
    while True:
        for process in remaining:
            reap(process)
        remaining = [process for process in remaining if is_alive(process)]
        if not remaining or time.monotonic() > deadline:
            return remaining
        await asyncio.sleep(_POLL_SECONDS)
