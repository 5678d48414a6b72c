"""Format numbers for people, and name measures."""

from __future__ import annotations

from math import inf

from vstream.capture.verdict.model import Unit
from vstream.scenario.model import Expectation, Measure

UNITS = {
    Measure.PUBLISHED: Unit.SHARE,
    Measure.READ: Unit.SHARE,
    Measure.CONTROL_PLANE: Unit.SHARE,
    Measure.CONVERGED: Unit.NANOSECONDS,
    Measure.READ_TIME: Unit.NANOSECONDS,
    Measure.PUBLISH_TIME: Unit.NANOSECONDS,
    Measure.PUBLISH_GAP: Unit.NANOSECONDS,
    Measure.PROPAGATION: Unit.NANOSECONDS,
    Measure.SAME_ORDER: Unit.TRUTH,
    Measure.WORKS: Unit.TRUTH,
}
"""The other measures are counts."""

_SCALES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
_MINUTES_FROM_SECONDS = 120
_SECONDS_PER_MINUTE = 60
_MIN_WITHOUT_DECIMALS = 10


def unit_of(measure: Measure) -> Unit:
    """The unit of *measure*."""
    return UNITS.get(measure, Unit.COUNT)


def format_nanoseconds(nanoseconds: float) -> str:
    """For example `1.25 s`, `35 ms` or `2 min 5 s`."""
    if nanoseconds == inf:
        return "never"
    seconds = nanoseconds / 1_000_000_000
    if abs(seconds) >= _MINUTES_FROM_SECONDS:
        minutes, rest = divmod(round(seconds), _SECONDS_PER_MINUTE)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    for scale, name in _SCALES:
        if abs(nanoseconds) >= scale:
            value = nanoseconds / scale
            return f"{_shorten(value)} {name}"
    return f"{nanoseconds:.0f} ns"


def _shorten(value: float) -> str:
    digits = sum(abs(value) < limit for limit in (_MIN_WITHOUT_DECIMALS, _MIN_WITHOUT_DECIMALS**2))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_share(value: float) -> str:
    """For example `99.95 %`. A share below one is never shown as `100 %`, nor one above zero as `0 %`."""
    percent = value * 100
    for digits in range(2, 7):
        text = f"{percent:.{digits}f}".rstrip("0").rstrip(".")
        if (text == "100") == (value == 1) and (text == "0") == (value == 0):
            break
    return f"{text} %"


def format_number(value: float, of: Unit) -> str:
    """*value* in the unit *of*."""
    if of is Unit.SHARE:
        return format_share(value)
    if of is Unit.NANOSECONDS:
        return format_nanoseconds(value)
    if of is Unit.TRUTH:
        return "yes" if value else "no"
    return f"{value:,.0f}" if value == round(value) else f"{value:,}"


def describe_expectation(expectation: Expectation, stream: str | None, region: str | None) -> str:
    """One expectation of a *stream* and *region* in a few words: `foo: published in west during one-down >= 99.9 %`."""
    parts = [expectation.measure.value]
    if expectation.operation is not None:
        parts.append(expectation.operation)
    if expectation.origin is not None:
        parts.append(f"from {expectation.origin}")
    if region is not None:
        parts.append(f"in {region}")
    if expectation.window is not None:
        parts.append(f"during {expectation.window}")
    parts += [expectation.compare.value, format_number(expectation.value, unit_of(expectation.measure))]
    return (f"{stream}: " if stream is not None else "") + " ".join(parts)
