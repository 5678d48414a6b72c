"""Cancellations that Python 3.11 loses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def insist_on_cancellation() -> Iterator[None]:
    """
    A block that ends with CancelledError if its task was cancelled meanwhile.

    Python 3.11 loses a cancellation that comes together with what `asyncio.wait_for` waits for, or as a socket connects.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    yield
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError
