"""Keys of `vstream status --watch` on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import sys
import time
from pathlib import Path

from tests.support.command import environment
from tests.support.ports import free_port
from vstream.cli.keyboard import Keys

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
    file.write_text(
        'version: 1\nname: acme\nserver_version: "2.12"\nregions: {west: {servers: 1}}\n'
        f'connect: {{west: {{urls: ["nats://127.0.0.1:{free_port()}"]}}}}\n'
        "streams: {foo: {subjects: [foo.>], write: {max_age: 1h}}}\n"
    )
    command = [sys.executable, "-m", "vstream", "status", str(file), "--watch", "--every", "0.2", "--timeout", "0.5"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, environment({"TERM": "xterm"}))
    try:
        assert "q quits" in read_until(terminal, "q quits", 60)
        os.write(terminal, b"q")
        read_until(terminal, END_OF_SCREEN, 60)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        os.close(terminal)


async def test_while_it_is_stopped_it_waits_for_a_key() -> None:
    keys = Keys()
    assert await keys.wait(0)
    keys.press(b" ")
    waiting = asyncio.ensure_future(keys.wait(0))
    assert not (await asyncio.wait({waiting}, timeout=0.05))[0]
    keys.press(b" ")
    assert await waiting
    keys.press(b"q")
    assert not await keys.wait(60)
