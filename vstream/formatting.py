"""How values are shown to people: names, counts, and times and sizes in two or three digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_TIME_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SIZE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNIT_FACTOR = 1024
_MIN_WITHOUT_DECIMALS = 10
_NEARLY_SHARE = 0.995
_MAX_LENGTH = 60
_YAML = {None: "null", True: "true", False: "false"}
"""As they are written, not as Python calls them."""


def suggest_name(word: str, names: Iterable[str]) -> str | None:
    """`did you mean ...?` with the one of *names* that is close to *word*; None if none is."""
    close = get_close_matches(word, list(names), n=1)
    return f"did you mean `{close[0]}`?" if close else None


def format_duration(seconds: float) -> str:
    """`3 ms`, `12 s`, `4.5 min`, `2 d`."""
    if seconds < _NEARLY_SHARE:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    # What is a day but for seconds is called a day, not 24 hours.
    length, unit = next((length, unit) for length, unit in _TIME_UNITS if seconds >= length * _NEARLY_SHARE)
    return f"{_shorten(seconds / length)} {unit}"


def format_size(number: float) -> str:
    """`512 B`, `1.5 GiB`."""
    unit = 0
    while number >= _UNIT_FACTOR and unit < len(_SIZE_UNITS) - 1:
        number /= _UNIT_FACTOR
        unit += 1
    return f"{_shorten(number)} {_SIZE_UNITS[unit]}"


def _shorten(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < _MIN_WITHOUT_DECIMALS else f"{number:,.0f}"


def format_count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 server`, `2 servers`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def quote_names(names: Iterable[str]) -> str:
    """Names in backticks, separated by commas."""
    return ", ".join(f"`{name}`" for name in names)


def summarize_names(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return quote_names(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def quote_value(value: object) -> str:
    """*value* as one short line in backticks: what cannot be printed is escaped, what is long is cut."""
    text = _YAML.get(value, str(value)) if value is None or isinstance(value, bool) else str(value)
    if len(text) > _MAX_LENGTH:
        text = text[: _MAX_LENGTH - 1] + "…"
    return "`" + "".join(char if char.isprintable() else repr(char)[1:-1] for char in text) + "`"
