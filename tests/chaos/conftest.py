"""Fixtures of tests of faults on labs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.chaos_lab import left_whole


@pytest.fixture
def healed_file(small_lab: Path) -> Iterator[Path]:
    """The topology of `small_lab`, which is left whole whatever the test did."""
    with left_whole():
        yield small_lab
