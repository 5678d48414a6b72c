"""The runner's side of its workers: started, told, listened to, and ended."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from vstream.errors import VstreamError
from vstream.runner.workload.spec import FINISH, GO, PROGRESS, STOP, WorkloadProgress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_POLL = 0.02
_MAX_LINE = 1 << 22
_ENDING = 5.0
"""Seconds that a process has to end once its input has."""


class WorkerProcess:
    """One process that works for a run. *errors* is where its standard error goes."""

    def __init__(self, name: str, module: str, spec: bytes, errors: Path) -> None:
        self.name = name
        self.latest = WorkloadProgress(at=0)
        self._module = module
        self._spec = spec
        self._errors = errors
        self._process: asyncio.subprocess.Process | None = None
        self._listening: asyncio.Task[None] | None = None

    async def start(self, on_line: Callable[[WorkerProcess, bytes], None]) -> None:
        """Spawn it and hand it its spec. *on_line* gets what it says."""
        self._errors.parent.mkdir(parents=True, exist_ok=True)
        with self._errors.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                self._module,
                str(os.getpid()),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=_MAX_LINE,
                start_new_session=True,  # Ctrl-C is for the runner, which says when to stop
            )
        self._process = process
        self._listening = asyncio.create_task(self._listen(process, on_line))
        await self._write(self._spec)

    async def _listen(
        self, process: asyncio.subprocess.Process, on_line: Callable[[WorkerProcess, bytes], None]
    ) -> None:
        assert process.stdout is not None
        while line := await process.stdout.readline():
            on_line(self, line)

    async def say(self, *words: str) -> None:
        """Tell it something. Nothing happens if it has ended."""
        await self._write(" ".join(words).encode())

    async def _write(self, line: bytes) -> None:
        process = self._process
        if process is None or process.stdin is None:
            return
        with suppress(ConnectionError):
            process.stdin.write(line + b"\n")
            await process.stdin.drain()

    @property
    def is_running(self) -> bool:
        """Whether its process has not ended."""
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """None while it has not ended."""
        return None if self._process is None else self._process.returncode

    def check(self) -> None:
        """Raises VstreamError, with its last words, if it has ended by itself."""
        if not self.is_running:
            raise VstreamError(
                f"the {self.name} ended by itself, with exit code {self.exit_code}: {self._last_words()}",
                hint=f"`{self._errors}` says more",
            )

    def _last_words(self) -> str:
        try:
            lines = self._errors.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else "it said nothing"

    async def wait(self, timeout: float) -> None:
        """Return once it has ended; it is killed after *timeout* seconds."""
        if self._process is None:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            await self._listening

    async def end(self) -> None:
        """End it now: it writes down what it has."""
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        await self.wait(_ENDING)


class Workers:
    """All workers of a run."""

    def __init__(
        self, helpers: tuple[WorkerProcess, ...], on_progress: Callable[[str, WorkloadProgress], None]
    ) -> None:
        self._helpers = helpers
        self._on_progress = on_progress

    async def start(self, *, within: float) -> None:
        """Return once every client is connected and every consumer made. Raises VstreamError if that fails."""
        await asyncio.gather(*(helper.start(self._take_progress) for helper in self._helpers))
        await self.until(lambda progress: progress.is_ready, within=within, what="connected")

    def _take_progress(self, helper: WorkerProcess, line: bytes) -> None:
        with suppress(ValidationError):  # a line may be cut where nobody has listened for long
            helper.latest = PROGRESS.validate_json(line)
            self._on_progress(helper.name, helper.latest)

    async def go(self, begin: int) -> None:
        """Publish and read from *begin* on, in nanoseconds since the capture's start."""
        await self._say(GO, str(begin))

    async def stop(self, now: Callable[[], int], *, within: float) -> None:
        """No new operations; return once each has an outcome, or after *within* seconds."""
        await self._say(STOP)
        stopped_at = now()
        with suppress(VstreamError):
            await self.until(
                lambda progress: progress.is_drained and progress.at > stopped_at, within=within, what="done"
            )

    async def finish(self, *, within: float) -> None:
        """Consumers take what is left, and all end. Raises VstreamError if one has not ended well."""
        await self._say(FINISH)
        await asyncio.gather(*(helper.wait(within) for helper in self._helpers))
        for helper in self._helpers:
            if helper.exit_code != 0:
                helper.check()

    async def end(self) -> None:
        """End all of them now. Safe to call at any time, and more than once."""
        await asyncio.gather(*(helper.end() for helper in self._helpers))

    def check(self) -> None:
        """Raises VstreamError if one has ended by itself."""
        for helper in self._helpers:
            helper.check()

    async def until(self, holds: Callable[[WorkloadProgress], bool], *, within: float, what: str) -> None:
        """Return once *holds* of each. Raises VstreamError after *within* seconds, or if one has ended."""
        deadline = asyncio.get_running_loop().time() + within
        while missing := [helper.name for helper in self._helpers if not holds(helper.latest)]:
            self.check()
            if asyncio.get_running_loop().time() > deadline:
                raise VstreamError(f"the {', '.join(missing)} are not {what} after {within:g} s")
            await asyncio.sleep(_POLL)

    async def _say(self, *words: str) -> None:
        await asyncio.gather(*(helper.say(*words) for helper in self._helpers))
