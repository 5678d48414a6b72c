"""Read in a thread of this process while Spark starts."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Event

from vstream.audit.extract.extraction import ArrowTables
from vstream.audit.spark.daemon_threads import DaemonExecutor
from vstream.value_class import value_class

_STOP_TIMEOUT = 1.0
"""Seconds: a server that does not answer is not waited for any longer."""


@value_class
class BackgroundRead:
    """A read that has begun."""

    tables: Future[ArrowTables]
    is_stopped: Event

    def stop(self) -> None:
        """Give up. Returns when the thread has ended, or after `_STOP_TIMEOUT`."""
        self.is_stopped.set()
        wait([self.tables], timeout=_STOP_TIMEOUT)


def begin_background_read(read: Callable[[Event], ArrowTables]) -> BackgroundRead:
    """Let a thread run *read*, which ends early once its event is set."""
    is_stopped, thread = Event(), DaemonExecutor(1)
    tables = thread.submit(read, is_stopped)
    thread.shutdown(wait=False)
    return BackgroundRead(tables=tables, is_stopped=is_stopped)
