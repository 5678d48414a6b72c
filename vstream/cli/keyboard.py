"""The keys of `status --watch` on a terminal, and what of its tables they show."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.segment import Segment, SegmentLines
from rich.text import Text

_MAX_READ_BYTES = 64
"""Bytes: more keys than anybody presses at once."""


class Keyboard:
    """`q` ends, the space bar stops for as long as the reader wants to look, `j` and `k` or the arrows move down and up."""

    def __init__(self) -> None:
        self.is_stopped = False
        self.top = 0
        """How many lines the reader has moved down; whoever shows them ends it where nothing is left to see."""
        self._has_changed = asyncio.Event()
        self._is_over = False

    def press(self, keys: bytes) -> None:
        """Take *keys* as they were typed. None at all: the terminal has another size."""
        for key in keys.decode(errors="replace").replace("\x1b[A", "k").replace("\x1b[B", "j"):
            self._is_over |= key in {"q", "Q"}
            self.is_stopped ^= key == " "
            self.top += (key == "j") - (key == "k")
        self._has_changed.set()

    async def wait(self, awaited: asyncio.Future[Any], show: Callable[[], None]) -> bool:
        """Wait until *awaited* is done, and while it is stopped; *show* after each key. False once `q` was pressed."""
        awaited.add_done_callback(lambda _: self._has_changed.set())
        try:
            while not self._is_over and (self.is_stopped or not awaited.done()):
                self._has_changed.clear()
                await self._has_changed.wait()
                show()
            return not self._is_over
        finally:
            awaited.cancel()


@contextmanager
def read_keyboard() -> Iterator[Keyboard]:
    """Keys as they are pressed, without Enter. Where standard input is no terminal, or is not ours, none ever are."""
    keys = Keyboard()
    terminal = _find_terminal()
    if terminal is None:
        yield keys
        return
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, lambda: keys.press(os.read(terminal, _MAX_READ_BYTES)))
    loop.add_signal_handler(signal.SIGWINCH, keys.press, b"")
    tty.setcbreak(terminal, termios.TCSADRAIN)  # which keeps what was typed before
    try:
        yield keys
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _find_terminal() -> int | None:
    """The terminal that the keys come from. A command in the background of a shell must not touch it: it would be stopped."""
    try:
        terminal = sys.stdin.fileno()
        return terminal if os.tcgetpgrp(terminal) == os.getpgrp() else None
    except (AttributeError, OSError, ValueError):
        return None  # it is closed, a file, or another session's


def fit(out: Console, tables: Sequence[RenderableType], problems: Sequence[Text], keys: Keyboard) -> RenderableType:
    """What the terminal *out* has room for: *problems*, the last of which is the verdict, below the *tables* as far as *keys* moved."""
    upper, lower, verdict = (_wrap(out, parts) for parts in (tables, problems[:-1], problems[-1:]))
    most = max(out.height // 2, out.height - len(upper)) - len(verdict) - 1
    if len(lower) > most:
        lower = [*lower[: most - 1], *_wrap(out, [Text("… and more", style="dim")])]
    room = max(0, out.height - len(lower) - len(verdict) - 1)
    keys.top = max(0, min(keys.top, len(upper) - room))
    end = min(len(upper), keys.top + room)
    words = "q quits, " + ("space goes on: it is stopped" if keys.is_stopped else "space stops")
    if room < len(upper):
        words += f", j and k move: {keys.top + 1} to {end} of {len(upper)}"
    foot = _wrap(out, [Text(words, style="dim")])[:1]
    return SegmentLines([*upper[keys.top : end], *lower, *verdict, *foot], new_lines=True)


def _wrap(out: Console, parts: Sequence[RenderableType]) -> list[list[Segment]]:
    return out.render_lines(Group(*parts), out.options.update(no_wrap=False, overflow="fold"), pad=False)
