"""How long a command takes: said beforehand, from what it took last time."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vstream.cli.exit_codes import INTERRUPTED
from vstream.cli.views.console import print_note
from vstream.errors import VstreamError
from vstream.files import save_output, state_directory

_LONG_SECONDS = 10.0
"""Seconds from which on a command says beforehand how long it takes."""
_MAX_REMEMBERED = 200
_MINUTE_SECONDS = 60
QUESTIONS: list[float] = []
"""The seconds that each question of this command has waited for its answer."""


def describe_duration(seconds: float) -> str:
    """`about 40 s`, `about 3 min`."""
    if seconds < 2 * _MINUTE_SECONDS:
        return f"about {max(5, round(seconds / 5) * 5)} s"
    return f"about {round(seconds / _MINUTE_SECONDS)} min"


@contextmanager
def tell_duration() -> Iterator[None]:
    """
    Say how long this command took the last time that it was typed here, if that was long; and remember this time.

    Of a command that was never run to its end nobody knows, but that an audit has to start Spark. A command that was
    interrupted, or that failed, is not remembered. Questions do not count.
    """
    file = state_directory() / "durations.json"
    key = hashlib.sha256(json.dumps([str(Path.cwd()), *sys.argv[1:]]).encode()).hexdigest()[:16]
    durations = _read_durations(file)
    last = durations.get(key, 0.0)
    if last >= _LONG_SECONDS:
        print_note(f"{describe_duration(last)}, as last time")
    elif sys.argv[1:2] == ["audit"] and "--follow" not in sys.argv and key not in durations:
        print_note("about 40 s if messages are few: Spark has to start")
    started = time.monotonic()
    try:
        yield
    except Exception as ended:
        if getattr(ended, "exit_code", INTERRUPTED) >= INTERRUPTED:
            raise
        _remember(file, key, time.monotonic() - started)
        raise
    _remember(file, key, time.monotonic() - started)


def _remember(file: Path, key: str, seconds: float) -> None:
    durations = _read_durations(file)  # again: another command may have ended meanwhile
    is_new = durations.pop(key, None) is None
    seconds -= sum(QUESTIONS)
    if seconds >= _LONG_SECONDS:
        durations[key] = round(seconds, 1)
    elif is_new:
        return
    try:
        save_output(file, json.dumps(dict(list(durations.items())[-_MAX_REMEMBERED:])), is_private=True)
    except VstreamError:
        return  # the command has done its work


def _read_durations(file: Path) -> dict[str, float]:
    """What is remembered; nothing where the file cannot be read."""
    try:
        durations = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(durations, dict):
        return {}
    return {key: value for key, value in durations.items() if isinstance(value, int | float)}
