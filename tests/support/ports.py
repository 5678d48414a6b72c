"""Ports for servers that a test starts by itself, outside of a lab."""

from __future__ import annotations

from random import SystemRandom

from vstream.lab import ports


def free_port() -> int:
    """
    A port that nobody listens on, above those that labs begin with and below the range that systems hand out by themselves.

    Drawn by the system: `random` begins with the same seed in each test, so that tests side by side would draw the same.
    """
    return next(port for port in iter(lambda: SystemRandom().randrange(22_000, 32_000), None) if ports.is_free(port))
