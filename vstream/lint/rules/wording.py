"""Phrases that several rules use."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

from vstream.lint.registry import Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vstream.diagnostics import Span


def closest(word: str, known: list[str], label: str) -> str:
    """A hint about a name that does not exist: the likely one, or all existing ones."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"{label}: {join_names(known) if known else 'none'}"


def join_names(names: Iterable[str]) -> str:
    """Names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def count(number: int, noun: str) -> str:
    """`1 server`, `2 servers`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_version(version: tuple[int, int]) -> str:
    """`2.12`."""
    return f"{version[0]}.{version[1]}"


def refuse_start(at: Span, message: str, hint: str) -> Violation:
    """With what is at *at*, a server does not start."""
    return Violation(at=at, message=f"{message}: the server does not start", hint=hint)
