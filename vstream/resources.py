"""The locations of files that ship with vstream."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def scenarios() -> Path:
    """The directory of the shipped scenarios: packaged in a wheel, at the top of a checkout."""
    packaged = _PACKAGE / "_scenarios"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "scenarios"


def templates() -> Path:
    """The directory of the built-in templates: packaged in a wheel, at the top of a checkout."""
    packaged = _PACKAGE / "_templates"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "templates"


def rule_examples() -> Path:
    """The directory of the bad and good example of each lint rule: packaged in a wheel, in `examples` of a checkout."""
    packaged = _PACKAGE / "_rules"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "examples" / "rules"
