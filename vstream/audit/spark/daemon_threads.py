"""Threads that do not delay the exit of the process: a silent server can block one for minutes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


class DaemonExecutor(Executor):
    """Like `ThreadPoolExecutor`, but its threads are daemons: Python does not wait for them at exit."""

    def __init__(self, number: int) -> None:
        self._waiting: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._threads = [Thread(target=self._run, daemon=True) for _ in range(number)]
        for thread in self._threads:
            thread.start()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run a call as soon as a thread is free, and return its future."""
        future: Future[T] = Future()
        self._waiting.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT002 - as it is
        """Accept no more calls. Queued ones still run unless *cancel_futures*; *wait* returns when they are done."""
        while cancel_futures:
            try:
                left = self._waiting.get_nowait()
            except Empty:
                break
            if left is not None:
                left[0].cancel()
        for _ in self._threads:
            self._waiting.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            future, work = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001 - whoever asks for the result is told
                future.set_exception(error)
            else:
                future.set_result(result)


@contextmanager
def run_beside(work: Callable[[Event], None]) -> Iterator[None]:
    """Run *work* in a thread while the block runs. At the end of the block its argument is set, and it should end."""
    is_over = Event()
    thread = Thread(target=work, args=[is_over], daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
