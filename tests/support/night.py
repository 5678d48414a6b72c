"""What is repeated often at night, and a few times with every run of the suite."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

IS_NIGHT = os.environ.get("VSTREAM_NIGHT") == "1"
"""Set by `scripts/night`."""


def repetitions(smoke: int, *, night: int) -> int:
    """How often to repeat something: *smoke* times in the suite."""
    return night if IS_NIGHT else smoke


def with_night(values: Iterable[Any], night: Iterable[Any]) -> list[Any]:
    """Parameters of a test: *values* in the suite, and those of *night* at night only."""
    return [*values, *(pytest.param(*as_arguments(value), marks=pytest.mark.night) for value in night)]


def as_arguments(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
