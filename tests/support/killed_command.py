"""
`vstream` that ends as by kill -9 after a stage: after the first one that its record does not have yet.

Called again and again it dies after each stage once, and then runs to its end. Its arguments: the file of the record, the
only stage after which it dies, nothing for each, and those of `vstream`.
"""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from tests.support.command import environment
from tests.support.paths import ROOT
from vstream.__main__ import main
from vstream.apply import execute, resync_moved, shipping
from vstream.plan.stages import stage_of

MOST = 40
"""More than there are stages."""


class Record:
    """The stages after which runs of one change were killed, in a file. With *only*, no other stage is one."""

    def __init__(self, file: Path, only: str = "") -> None:
        self.file = file
        self.only = only

    @property
    def stages(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def die_after(self, stage: str) -> None:
        if self.only in {"", stage} and stage not in self.stages:
            with self.file.open("a") as file:
                file.write(f"{stage}\n")
            os.kill(os.getpid(), signal.SIGKILL)


def run_and_kill(record: Path, *arguments: str | Path, only: str = "") -> list[str]:
    """Run `vstream` with *arguments* until it comes to its end. The stages after which it was killed before, or *only* that."""
    command = [sys.executable, "-m", "tests.support.killed_command", record, only, *arguments]
    for _ in range(MOST):
        ran = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
        if ran.returncode != -signal.SIGKILL:
            assert ran.returncode == 0, ran.stdout + ran.stderr
            return Record(record).stages
    raise AssertionError(f"not done after {MOST} runs: {Record(record).stages}")


def arm(record: Record) -> None:
    """Let everything that a stage consists of look at *record* when it is done."""

    def after(owner: Any, name: str, describe: Callable[..., str | None]) -> None:
        original = getattr(owner, name)

        def die(*arguments: Any) -> None:
            if stage := describe(*arguments):
                record.die_after(stage)

        @wraps(original)
        async def later(*arguments: Any, **options: Any) -> Any:
            result = await original(*arguments, **options)
            die(*arguments)
            return result

        @wraps(original)
        def now(*arguments: Any) -> None:
            original(*arguments)
            die(*arguments)

        setattr(owner, name, later if inspect.iscoroutinefunction(original) else now)

    after(shipping, "_run", lambda *_: "a server has its file")
    after(shipping, "connect_to_system", lambda *_: "all have their files")
    after(shipping, "reload_server", lambda *_: "a server has reloaded")
    after(shipping, "wait_loaded", lambda _request, server, _within: server and "the canary has what is planned")
    after(shipping.RemoteReload, "run", lambda *_: "all have reloaded")
    after(execute, "_load_mappings", lambda *_: "all have what is planned")
    after(execute._PlanRun, "_make_changes", lambda _run, changes: stage_of(changes[0]).name if changes else None)
    after(resync_moved.MovedReaderResync, "_resync_readers_of", lambda *_: "readers are resynced")


if __name__ == "__main__":
    _, file, only, *arguments = sys.argv
    arm(Record(Path(file), only))
    sys.argv[1:] = arguments
    main()
