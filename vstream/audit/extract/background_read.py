"""Read in a thread of this process while Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from threading import Event

from vstream.audit.extract.extraction import ArrowTables
from vstream.audit.spark.daemon_threads import DaemonExecutor

_STOP_TIMEOUT = 1.0
"""Seconds: a server that does not answer is not waited for any longer."""


class BackgroundRead:
    """The tables that *read* returns; it runs from now on, and ends early once its event is set."""

    def __init__(self, read: Callable[[Event], ArrowTables]) -> None:
        self._is_stopped, thread = Event(), DaemonExecutor(1)
        self._tables = thread.submit(read, self._is_stopped)
        thread.shutdown(wait=False)

    def result(self) -> ArrowTables:
        """Wait for the tables. Raises what *read* raises."""
        return self._tables.result()

    def stop(self) -> None:
        """Give up. Returns when *read* has ended, or after `_STOP_TIMEOUT`."""
        self._is_stopped.set()
        wait([self._tables], timeout=_STOP_TIMEOUT)
