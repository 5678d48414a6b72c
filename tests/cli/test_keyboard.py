"""Keys of `vstream status --watch` on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import sys
import time
from collections.abc import Awaitable
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from tests.support.command import environment
from tests.support.ports import free_port
from tests.support.topologies import one_region
from vstream.cli.keyboard import Keyboard, fit

END_OF_SCREEN = "\x1b[?1049l"


def read_until(terminal: int, text: str, seconds: float) -> str:
    """What the terminal shows until *text* is in it, or until *seconds* are over."""
    shown = ""
    deadline = time.monotonic() + seconds
    while text not in shown and (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            shown += os.read(terminal, 65536).decode(errors="replace")
    return shown


def test_q_ends_a_watched_status_and_gives_the_terminal_back(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(one_region(f"nats://127.0.0.1:{free_port()}"))
    command = [sys.executable, "-m", "vstream", "status", str(file), "--watch", "--every", "0.2", "--timeout", "0.5"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, environment({"TERM": "xterm"}))
    try:
        os.write(terminal, b"q")  # before it reads keys
        assert "q quits" in read_until(terminal, "q quits", 60)
        read_until(terminal, END_OF_SCREEN, 60)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)


async def test_while_it_is_stopped_it_waits_for_a_key() -> None:
    keys, shown = Keyboard(), [0]

    def show() -> None:
        shown[0] += 1

    async def wait(awaited: Awaitable[None]) -> bool:
        return await keys.wait(asyncio.ensure_future(awaited), show)

    assert await wait(asyncio.sleep(0))
    keys.press(b" ")
    waiting = asyncio.ensure_future(wait(asyncio.sleep(0)))
    assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
    keys.press(b" ")
    assert await waiting
    assert shown[0] > 0
    look = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(keys.wait(look, show))
    await asyncio.sleep(0)
    keys.press(b"q")
    assert not await waiting
    assert look.cancelled(), "who wants to leave does not wait for servers that do not answer"


@pytest.mark.parametrize(("width", "height"), [(100, 45), (80, 24), (60, 12), (40, 8)])
def test_what_is_wrong_and_the_keys_are_always_on_the_screen(width: int, height: int) -> None:
    out, keys = Console(width=width, height=height, soft_wrap=True, color_system=None), Keyboard()
    tables = [Text(f"line {number}") for number in range(1, 31)]
    problems = [Text("✗ west is down: " + "it does not answer, " * 6), Text("DEGRADED: 1 problem")]

    def show() -> list[str]:
        with out.capture() as capture:
            out.print(fit(out, tables, problems, keys))
        return capture.get().splitlines()

    top = show()
    assert len(top) <= height
    assert max(len(line) for line in top) <= width, "a long line is cut at the edge"
    assert top[0] == "line 1"
    assert any(line.startswith("✗ west is down") for line in top)
    assert "DEGRADED: 1 problem" in top
    assert top[-1].startswith("q quits, space stops")
    keys.press(b"j\x1b[B ")
    if height == 45:
        assert keys.top == 2
        assert "it is stopped" in show()[-1]
        assert keys.top == 0, "there is nothing to move to"
    else:
        assert show()[0] == "line 3"
        keys.press(b"j" * 60)
        bottom = show()
        assert bottom.index("line 30") < bottom.index("DEGRADED: 1 problem")
        keys.press(b"k" * 60)
        assert show()[0] == "line 1"
