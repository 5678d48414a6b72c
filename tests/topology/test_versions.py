"""What servers say they run, as numbers."""

from __future__ import annotations

import pytest

from vstream.topology.units import format_version, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.15.1", (2, 15, 1)),
        ("v2.12.8", (2, 12, 8)),
        ("2.16.0-dev", (2, 16, 0)),
        ("2.11.0-RC.3", (2, 11, 0)),
        ("2.10", (2, 10, 0)),
        ("2.14.6+build.1", (2, 14, 6)),
        ("", None),
        ("dev", None),
        ("2", None),
        ("2.x", None),
        ("2.15.1.4", None),
    ],
)
def test_versions_are_parsed(text: str, version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == version


def test_versions_are_formatted() -> None:
    assert format_version((2, 15, 1)) == "2.15.1"
