"""
The proxy process of a lab: how it is started, found, asked and stopped.

It is recorded like a server: before it is spawned, and found by its arguments if the record is missing. It reads orders
from a file when a signal arrives, and answers in another file. So there is no port that others could talk to, and no
path that is too long for a socket.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from vstream.errors import LabError, UnsupportedError
from vstream.files import write_private
from vstream.lab import processes
from vstream.lab.links import proxy, state
from vstream.lab.links.state import Answer, Links
from vstream.lab.state import LabDirectory

_PROGRAM = Path(proxy.__file__).with_name("__main__.py")
_PLACE = ("vstream", "lab", "links", "proxy", "__main__.py")
"""The end of the program's path: another installation of vstream may have started it."""
_GRACE_SECONDS = 2.0
_START_TIMEOUT = 20.0
_ANSWER_TIMEOUT = 10.0
_POLL_SECONDS = 0.002


class PortTakenError(LabError):
    """Another process listens on the port of a front."""


@dataclass(frozen=True, slots=True)
class ProxyProcess:
    """The proxy of one lab's links, running or not."""

    directory: LabDirectory

    @property
    def log_file(self) -> Path:
        """Its output. Empty if all goes well."""
        return self.directory.links / "proxy.err"

    def processes(self) -> tuple[psutil.Process, ...]:
        """Its process, from the process table alone; several if something went wrong."""
        return tuple(process for process in psutil.process_iter() if self._is_proxy(process))

    def process(self) -> psutil.Process | None:
        """Its process, by its record, otherwise by its arguments; None if it does not run."""
        return self._find_recorded_process() or next(iter(self.processes()), None)

    @property
    def is_wanted(self) -> bool:
        """Whether it was started and not stopped."""
        return self._record_file.exists()

    def start(self) -> None:
        """Spawn it. Raises LabError if it cannot be run."""
        # On Linux it needs nothing but the standard library, and starts quicker without the rest.
        quick = ("-S",) if sys.platform == "linux" else ()
        argv = (sys.executable, "-I", *quick, str(_PROGRAM), str(self.directory.path))
        self._answer_file.unlink(missing_ok=True)
        write_private(self._record_file, json.dumps({"argv": argv, "pid": None}) + "\n")
        self.log_file.unlink(missing_ok=True)
        try:
            pid = processes.start_process(argv, log=self.log_file, cwd=self.directory.path)
        except OSError as error:
            self._record_file.unlink()
            raise LabError(f"the link proxy of lab `{self.directory.name}` cannot be started: {error}") from error
        write_private(self._record_file, json.dumps({"argv": argv, "pid": pid}) + "\n")

    async def wait_until_ready(self) -> None:
        """Wait until it listens on every front. Raises LabError, or PortTakenError if a port is in use."""
        deadline = time.monotonic() + _START_TIMEOUT
        while (answer := self.read_answer()) is None:
            if self.process() is None:
                raise self.explain_death()
            if time.monotonic() > deadline:
                raise LabError(f"the link proxy of lab `{self.directory.name}` was not ready in {_START_TIMEOUT:g} s")
            await asyncio.sleep(_POLL_SECONDS)
        if answer.failure is not None:
            raise UnsupportedError(
                f"the links of lab `{self.directory.name}` cannot be applied: {answer.failure}",
                hint="`vstream lab doctor` says what this machine can do",
            )

    def explain_death(self) -> LabError:
        """Why it exited, in its own words."""
        output = self.read_last_output()
        kind = PortTakenError if "address already in use" in output.lower() else LabError
        return kind(f"the link proxy of lab `{self.directory.name}` died: {output or 'it said nothing'}")

    def read_last_output(self) -> str:
        """The end of its log."""
        try:
            return self.log_file.read_text(encoding="utf-8", errors="replace").strip()[-400:]
        except FileNotFoundError:
            return ""

    def read_answer(self) -> Answer | None:
        """Its last answer; None if it was never ready or does not run any more."""
        try:
            answer = state.decode_answer(self._answer_file.read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        process = self._find_recorded_process()
        return answer if process is not None and process.pid == answer.pid else None

    async def make_reread(self, *, generation: int = 0) -> Answer | None:
        """
        Make it read its orders again, and give what it says then; None if it does not run.

        Returns when orders of at least *generation* are in effect, or have failed.

        Raises LabError if it does not answer.
        """
        before = self.read_answer()
        process = self._find_recorded_process()
        if before is None or process is None:
            return None
        processes.send_signal(process, signal.SIGUSR1)
        deadline = time.monotonic() + _ANSWER_TIMEOUT
        while (answer := self.read_answer()) is not None:
            # It may have been answering somebody else when the orders were written.
            if answer.answered > before.answered and (answer.generation >= generation or answer.failure):
                return answer
            if time.monotonic() > deadline:
                raise LabError(
                    f"the link proxy of lab `{self.directory.name}` (process {answer.pid}) does not answer",
                    hint=f"`vstream lab down {self.directory.name}` ends it",
                )
            await asyncio.sleep(_POLL_SECONDS)
        return None

    async def stop(self) -> None:
        """Stop it. It is fine if it does not run. Raises LabError if it survives."""
        if immortal := await processes.terminate(self.processes(), grace=_GRACE_SECONDS):
            raise LabError(f"the link proxy of lab `{self.directory.name}` cannot be killed: process {immortal[0].pid}")
        for path in (self._record_file, self._answer_file):
            path.unlink(missing_ok=True)

    def read_orders(self) -> Links | None:
        """Its orders; None if the lab has none. Raises LabError if they cannot be parsed."""
        path = self._orders_file
        try:
            return state.decode(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            name = self.directory.name
            raise LabError(
                f"the links of lab `{name}` at `{path}` cannot be read: {error}",
                hint=f"`vstream lab down {name}` and `vstream lab up` create them again",
            ) from error

    def write_orders(self, links: Links) -> None:
        """Replace its orders. It reads them when it is asked to."""
        write_private(self._orders_file, state.encode(links))

    @property
    def _orders_file(self) -> Path:
        return self.directory.links / "links.json"

    @property
    def _answer_file(self) -> Path:
        return self.directory.links / "answer.json"

    @property
    def _record_file(self) -> Path:
        return self.directory.links / "proxy.json"

    def _find_recorded_process(self) -> psutil.Process | None:
        try:
            pid = json.loads(self._record_file.read_text(encoding="utf-8"))["pid"]
            process = psutil.Process(pid)
        except (OSError, ValueError, KeyError, TypeError, psutil.Error):
            return None
        if not processes.is_alive(process):
            processes.reap(process)
            return None
        return process if self._is_proxy(process) else None

    def _is_proxy(self, process: psutil.Process) -> bool:
        match processes.read_arguments(process):
            case [*_, program, place]:
                return place == str(self.directory.path) and Path(program).parts[-len(_PLACE) :] == _PLACE
        return False
