"""Keys that are pressed while a command shows something again and again."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_MANY = 64
"""Bytes: more keys than anybody presses at once."""


class Keys:
    """`q` ends, and the space bar stops for as long as the reader wants to look."""

    def __init__(self) -> None:
        self._has_changed = asyncio.Event()
        self._is_over = False
        self._is_stopped = False

    def press(self, keys: bytes) -> None:
        """Take *keys* as they were typed."""
        for key in keys.decode(errors="replace"):
            self._is_over |= key in {"q", "Q"}
            if key == " ":
                self._is_stopped = not self._is_stopped
        self._has_changed.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for *seconds*, and while it is stopped. False once `q` was pressed."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not self._is_over:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 and not self._is_stopped:
                return True
            self._has_changed.clear()
            try:
                await asyncio.wait_for(self._has_changed.wait(), None if self._is_stopped else left)
            except TimeoutError:
                return True
        return False


@contextmanager
def read_keys() -> Iterator[Keys]:
    """Keys as they are pressed, without Enter. Where standard input is no terminal, or is not ours, none ever are."""
    keys = Keys()
    terminal = _find_terminal()
    if terminal is None:
        yield keys
        return
    before = termios.tcgetattr(terminal)
    loop = asyncio.get_running_loop()
    loop.add_reader(terminal, lambda: keys.press(os.read(terminal, _MANY)))
    tty.setcbreak(terminal)
    try:
        yield keys
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _find_terminal() -> int | None:
    """The terminal that the keys come from. A command in the background of a shell must not touch it: it would be stopped."""
    try:
        terminal = sys.stdin.fileno()
        return terminal if os.tcgetpgrp(terminal) == os.getpgrp() else None
    except (AttributeError, OSError, ValueError):
        return None  # it is closed, a file, or another session's
