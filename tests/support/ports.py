"""Ports for servers that a test starts by itself, outside of a lab."""

from __future__ import annotations

import os
from random import SystemRandom

from vstream.lab import ports

_FIRST, _END = 22_000, 32_000
"""Above those that labs begin with, and below the range that systems hand out by themselves."""
_DRAWN: set[int] = set()
"""In this process. Nobody may listen on them yet."""


def free_port() -> int:
    """
    A port that nobody listens on, and that no other test was given: each of pytest's workers has a range of its own.

    Drawn by the system: `random` begins with the same seed in each test, so that tests side by side would draw the same.
    """
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    size = (_END - _FIRST) // count
    first = _FIRST + worker * size
    if len(_DRAWN) > size // 2:
        _DRAWN.clear()
    while True:
        port = SystemRandom().randrange(first, first + size)
        if port not in _DRAWN and ports.is_free(port):
            _DRAWN.add(port)
            return port
