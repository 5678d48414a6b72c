"""Phrases that several rules use. Names and counts are in `vstream.formatting`."""

from __future__ import annotations

from difflib import get_close_matches

from vstream.diagnostics import Span
from vstream.formatting import join_names
from vstream.lint.registry import Violation


def closest(word: str, known: list[str], label: str) -> str:
    """A hint about a name that does not exist: the likely one, or all existing ones."""
    close = get_close_matches(word, known, n=1)
    return f"did you mean `{close[0]}`?" if close else f"{label}: {join_names(known) if known else 'none'}"


def refuse_start(at: Span, message: str, hint: str) -> Violation:
    """With what is at *at*, a server does not start."""
    return Violation(at=at, message=f"{message}: the server does not start", hint=hint)
