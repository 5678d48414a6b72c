"""Durations, sizes and versions as people write them."""

from __future__ import annotations

import re
from decimal import Decimal

from vstream.formatting import quote_value

Version = tuple[int, int, int]
"""Major, minor and patch."""
UNLIMITED = "unlimited"
_VERSION = re.compile(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?![\d.])")

_NS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 24 * 3600 * 10**9,
    "w": 7 * 24 * 3600 * 10**9,
}
_BYTES = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_BITS = {"bit": 1, "kbit": 10**3, "mbit": 10**6, "gbit": 10**9}
MAX_INT64 = 2**63 - 1
_MAX_LINK_NS = 60 * 10**9
"""Nanoseconds: servers give up long before."""
_MAX_LENGTH = 64
"""Characters: beyond any value that a server can count, and far below what is slow to compute."""

TIME_PATTERN = r"([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h|d|w))+"
DURATION_PATTERN = rf"^(unlimited|{TIME_PATTERN})$"
SIZE_PATTERN = r"^(unlimited|[0-9]+(\.[0-9]+)? ?(B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)?)$"

RATE_PATTERN = r"^(unlimited|[0-9]+(\.[0-9]+)?(bit|kbit|mbit|gbit))$"
SHARE_PATTERN = r"^[0-9]{1,2}(\.[0-9]+)?%$"

_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|ms|s|m|h|d|w)")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(bit|kbit|mbit|gbit)")


def parse_duration(text: str) -> int:
    """Nanoseconds of a duration such as `90s`, `1h30m` or `30d`; `unlimited` is 0. Raises ValueError with a hint."""
    if text == UNLIMITED:
        return 0
    if len(text) > _MAX_LENGTH or not re.fullmatch(TIME_PATTERN, text):
        raise ValueError(
            f"{quote_value(text)} is not a valid duration: write it like `90s`, `1h30m`, `30d` or `{UNLIMITED}`"
        )
    total = sum(Decimal(number) * _NS[unit] for number, unit in _DURATION_PART.findall(text))
    if total > MAX_INT64:
        raise ValueError(f"{quote_value(text)} is longer than the 292 years that a server can count")
    if total != int(total):
        raise ValueError(f"{quote_value(text)} is not a whole number of nanoseconds")
    return int(total)


def parse_size(text: str) -> int:
    """Bytes of a size such as `512MiB` or `10GB` (powers of ten); `unlimited` is -1. Raises ValueError."""
    if text == UNLIMITED:
        return -1
    match = _SIZE.fullmatch(text)
    if match is None or len(text) > _MAX_LENGTH:
        raise ValueError(f"{quote_value(text)} is not a valid size: write it like `512MiB`, `10GB` or `{UNLIMITED}`")
    number, unit = match.groups()
    if unit not in _BYTES:
        raise ValueError(_unit_error(text, number, unit))
    total = Decimal(number) * _BYTES[unit]
    if total > MAX_INT64:
        raise ValueError(f"{quote_value(text)} is more than a server can count")
    if total != int(total):
        raise ValueError(f"{quote_value(text)} is not a whole number of bytes")
    return int(total)


def _unit_error(text: str, number: str, unit: str) -> str:
    big = unit.upper()
    if big in {"K", "M", "G", "T"}:
        return f"{quote_value(text)} can mean two sizes: write `{number}{big}iB` (powers of 1024) or `{number}{big}B` (of 1000)"
    right = next((candidate for candidate in _BYTES if candidate.upper() == big), None)
    if right:
        return f"{quote_value(text)} has its unit in the wrong case: write `{number}{right}`"
    return f"{quote_value(text)} has an unknown unit `{unit}`: use B, KB, MB, GB, TB or KiB, MiB, GiB, TiB"


def parse_link_time(text: str) -> int:
    """Nanoseconds of a time that a link takes, such as `140ms`: a duration of one minute at most. Raises ValueError."""
    if text == UNLIMITED:
        raise ValueError("an unlimited time would cut the link: write a time such as `140ms`")
    time = parse_duration(text)
    if time > _MAX_LINK_NS:
        raise ValueError("no link is longer than 1m: to cut one, use `vstream chaos`")
    return time


def parse_rate(text: str) -> int:
    """Bits per second of a rate such as `200mbit`, in powers of ten; `unlimited` is 0. Raises ValueError."""
    if text == UNLIMITED:
        return 0
    match = _RATE.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError(
            f"{quote_value(text)} is not a valid rate: write it like `200mbit`, `1.5gbit`, `64kbit` or `{UNLIMITED}`"
        )
    total = Decimal(match[1]) * _BITS[match[2]]
    if not 1 <= total <= MAX_INT64:
        raise ValueError(f"{quote_value(text)} is too slow to send anything")
    return int(total)


def parse_share(text: str) -> float:
    """The share that a percentage such as `0.5%` is, from 0 to 1 exclusive. Raises ValueError."""
    if len(text) > _MAX_LENGTH or text.endswith("\n") or not re.fullmatch(SHARE_PATTERN, text):
        raise ValueError(f"{quote_value(text)} is not a percentage below 100: write it like `1%` or `0.5%`")
    return float(text[:-1]) / 100


def spell_rate(rate: int) -> str:
    """A text that `parse_rate` reads back as *rate*, in the largest unit that gives a whole number."""
    if not rate:
        return UNLIMITED
    unit = next(unit for unit in ("gbit", "mbit", "kbit", "bit") if rate % _BITS[unit] == 0 or unit == "bit")
    return f"{rate // _BITS[unit]}{unit}"


def spell_nanoseconds(nanoseconds: int) -> str:
    """A text that `parse_duration` reads back as *nanoseconds*: days and smaller units, each at most once."""
    if nanoseconds == 0:
        return UNLIMITED
    parts = []
    for unit in ("d", "h", "m", "s", "ms", "us", "ns"):
        count, nanoseconds = divmod(nanoseconds, _NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts)


def spell_size(size: int) -> str:
    """A text that `parse_size` reads back as *size*: the largest unit that divides it."""
    if size < 0:
        return UNLIMITED
    for unit in ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "KB"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}B"


def parse_version(text: str) -> Version | None:
    """`2.15.1`, `2.15.1-dev` or `2.15` as numbers; None where *text* does not begin with a version."""
    match = _VERSION.match(text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def format_version(version: tuple[int, ...]) -> str:
    """*version* as people write it: `2.15.1`."""
    return ".".join(map(str, version))
