"""
What worker and sampler share: they end with the runner, whatever happens to it.

Their standard input is a pipe from the runner. Words arrive on it, and it closes when the runner ends, even by SIGKILL.
A process that cannot end then, because servers do not answer, is ended by a thread that watches the runner. Ctrl-C does
not reach them: the runner tells them when to stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from threading import Thread
from typing import TypeVar

from pydantic import TypeAdapter

_Spec = TypeVar("_Spec")
_MAX_SPEC_BYTES = 1 << 24
_LOOK_SECONDS = 0.1
_LAST_SECONDS = 1.0
"""Seconds to write everything once the runner is gone. Clients without a runner must not continue."""
ABANDONED = 4
"""Exit code of a process that had to be ended after its runner had gone."""


def main(adapter: TypeAdapter[_Spec], work: Callable[[_Spec, Words], Coroutine[None, None, None]]) -> None:
    """
    Read a spec and do *work*; end at once if standard input closes first.

    The only argument of the program is the process id of its runner.
    """
    Thread(target=_end_after, args=(int(sys.argv[1]),), daemon=True).start()
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    asyncio.run(_main(adapter, work))


class Words:
    """The words from the runner."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader

    async def next(self) -> list[str]:
        """The next line, split; empty once the runner is gone."""
        return (await self._reader.readline()).decode().split()


async def _main(adapter: TypeAdapter[_Spec], work: Callable[[_Spec, Words], Coroutine[None, None, None]]) -> None:
    reader = asyncio.StreamReader(limit=_MAX_SPEC_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    os.set_blocking(sys.stdout.fileno(), False)
    line = await reader.readline()
    if line:
        await work(adapter.validate_json(line), Words(reader))


def _end_after(runner: int) -> None:
    """End this process shortly after *runner*, whatever it does meanwhile."""
    while os.getppid() == runner:
        time.sleep(_LOOK_SECONDS)
    time.sleep(_LAST_SECONDS)
    os._exit(ABANDONED)


def try_send_line(line: bytes) -> None:
    """Send a line to the runner. If it does not listen, the line is dropped: nothing may slow the clients down."""
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(sys.stdout.fileno(), line + b"\n")
