"""
How long tests take: with several workers, those that take longest begin first, so that none is left alone in the end.

`scripts/test --update-durations` writes `tests/durations.txt` anew. A test that is not in it counts as one of its kind.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

FILE = Path(__file__).parents[1] / "durations.txt"
_USUAL = {"lab": 15.0, "spark": 8.0, "server": 2.0}
"""Seconds of a test with a mark."""
UNITS = "units-"
"""How the groups of tests without servers begin, which are others whenever a test is added."""
_LEAST = 5.0
"""Seconds from which on a group of tests, or a test by itself, is in the file."""


@cache
def _read_measured() -> dict[str, float]:
    lines = FILE.read_text(encoding="utf-8").splitlines()
    return {key: float(seconds) for seconds, key in (line.split(" ", 1) for line in lines)}


def estimate(key: str, items: list[pytest.Item]) -> float:
    """Seconds that *items* take one after the other, which are known as *key*."""
    usual = sum(
        max((_USUAL[mark.name] for mark in item.iter_markers() if mark.name in _USUAL), default=0) for item in items
    )
    return _read_measured().get(key, min(usual, _LEAST) if len(items) == 1 else usual / 2)


class DurationRecorder:
    """Adds up what workers report, and writes it."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a phase of a test, under its group if it has one, which xdist appends to the test's name."""
        test, _, group = report.nodeid.rpartition("@")
        self.seconds[report.nodeid if not test or "]" in group else group] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write those that take long, the longest first."""
        lasting = {key: seconds for key, seconds in self.seconds.items() if seconds >= _LEAST}
        slow = sorted((seconds, key) for key, seconds in lasting.items() if not key.startswith(UNITS))
        lines = [f"{seconds:.0f} {key}" for seconds, key in reversed(slow)]
        FILE.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
