"""Run a command's asynchronous part so that it can be interrupted."""

from __future__ import annotations

import _thread
import asyncio
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import typer

from vstream.cli.exit_codes import INTERRUPTED, TERMINATED
from vstream.cli.views.console import print_note

_SIGNALS = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
_REMINDER_SECONDS, _END_TIMEOUT = 0.05, 2.0
"""Seconds."""
_MAX_CANCEL_ROUNDS = 3

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T], *, interrupted: str | None = "interrupted") -> T:
    """
    Run *work* to its end. Ctrl-C, SIGHUP and SIGTERM cancel it, and it may clean up; then the exit code is 130, or 143.

    Terminals, services and CI systems stop programs by all three. *interrupted* is printed then, unless it is None.
    """
    received: list[int] = []

    async def main() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()

        def stop(number: int) -> None:
            received.append(number)
            task.cancel()

        for number in _SIGNALS:
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        finally:
            await _end_tasks()

    try:
        return asyncio.run(main())
    except (asyncio.CancelledError, KeyboardInterrupt):
        if interrupted is not None:
            print_note(interrupted)
        raise typer.Exit(_exit_code(received)) from None


def _exit_code(received: Sequence[int]) -> int:
    return TERMINATED if signal.SIGTERM in received else INTERRUPTED


async def _end_tasks() -> None:
    """Cancel what still runs, and what that begins while it ends: `asyncio.run` knows only of the former, and Python complains."""
    for _ in range(_MAX_CANCEL_ROUNDS):
        if not (tasks := asyncio.all_tasks() - {asyncio.current_task()}):
            return
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=_END_TIMEOUT)


@contextmanager
def exit_on_signals() -> Iterator[Callable[[], bool]]:
    """
    Let the block clean up after Ctrl-C, SIGHUP and SIGTERM, as `run` does; then the exit code is 130, or 143.

    Whatever the block fails with after such a signal, it was interrupted. It is given what says
    whether there was one: for whoever goes on after errors.
    """
    received: list[int] = []
    unheard: list[bool] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if all(caller.f_code is not insist.__code__ for caller, _ in traceback.walk_stack(frame)):
            unheard.clear()
            raise KeyboardInterrupt

    report = sys.unraisablehook

    def insist(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            # It came while Python cleaned up an object, and would be lost, as it would be in here: it comes again.
            unheard.append(True)
            threading.Thread(target=remind, daemon=True).start()
        else:
            report(unraisable)

    def remind() -> None:
        time.sleep(_REMINDER_SECONDS)
        while unheard:
            _thread.interrupt_main()
            time.sleep(_REMINDER_SECONDS)

    before = {number: signal.signal(number, stop) for number in _SIGNALS}
    sys.unraisablehook = insist
    try:
        yield lambda: bool(received)
    except (KeyboardInterrupt, Exception) as error:
        if not received and not isinstance(error, KeyboardInterrupt):
            raise
        typer.echo("interrupted", err=True)
        raise typer.Exit(_exit_code(received)) from None
    finally:
        unheard.clear()
        sys.unraisablehook = report
        for number, handler in before.items():
            signal.signal(number, handler)
