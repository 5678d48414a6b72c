"""The versions that servers say they run, as numbers that can be compared."""

from __future__ import annotations

import re

Version = tuple[int, int, int]
"""Major, minor and patch."""

_NUMBERS = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")


def parse_version(text: str) -> Version | None:
    """`2.15.1`, `2.15.1-dev` or `2.15` as numbers; None where *text* does not begin with a version."""
    match = _NUMBERS.match(text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def format_version(version: tuple[int, ...]) -> str:
    """*version* as people write it: `2.15.1`."""
    return ".".join(map(str, version))
