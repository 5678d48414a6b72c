"""Times and sizes as people read them: two or three digits."""

from __future__ import annotations

_TIMES = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP = 1024
_FEW = 10
_NEARLY = 0.995


def format_duration(seconds: float) -> str:
    """`3 ms`, `12 s`, `4.5 min`, `2 d`."""
    if seconds < _NEARLY:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    # What is a day but for seconds is called a day, not 24 hours.
    length, unit = next((length, unit) for length, unit in _TIMES if seconds >= length * _NEARLY)
    return f"{_short(seconds / length)} {unit}"


def format_size(number: float) -> str:
    """`512 B`, `1.5 GiB`."""
    unit = 0
    while number >= _STEP and unit < len(_SIZES) - 1:
        number /= _STEP
        unit += 1
    return f"{_short(number)} {_SIZES[unit]}"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0") if number < _FEW else f"{number:,.0f}"


def list_names(names: list[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = len(names) - most
    return ", ".join(f"`{name}`" for name in names[:most]) + (f" and {more:,} more" if more > 0 else "")
