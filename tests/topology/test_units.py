"""Durations, sizes and versions: what people write is what servers count."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vstream.topology.units import (
    MAX_INT64,
    format_version,
    parse_duration,
    parse_rate,
    parse_share,
    parse_size,
    parse_version,
    spell_nanoseconds,
    spell_rate,
    spell_size,
)

counts = st.one_of(st.integers(0, MAX_INT64), st.integers(0, 10**6), st.integers(0, 60).map(lambda bits: 2**bits))


@given(counts)
def test_a_formatted_duration_is_read_back(nanoseconds: int) -> None:
    assert parse_duration(spell_nanoseconds(nanoseconds)) == nanoseconds


@given(st.one_of(counts, st.just(-1)))
def test_a_formatted_size_is_read_back(size: int) -> None:
    assert parse_size(spell_size(size)) == size


@given(counts)
def test_a_formatted_rate_is_read_back(rate: int) -> None:
    assert parse_rate(spell_rate(rate)) == rate


@given(st.text(max_size=80))
def test_any_text_is_a_value_or_a_reason_that_can_be_printed(text: str) -> None:
    for parse in (parse_duration, parse_size, parse_rate, parse_share):
        outcome: float | str
        try:
            outcome = parse(text)
        except ValueError as error:
            outcome = str(error)
        assert outcome.isprintable() if isinstance(outcome, str) else -1 <= outcome <= MAX_INT64


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("1ns", 1), ("1us", 10**3), ("1ms", 10**6), ("90s", 90 * 10**9), ("1h30m", 5400 * 10**9), ("1.5h", 5400 * 10**9),
        ("30d", 30 * 86400 * 10**9), ("2w", 14 * 86400 * 10**9), ("unlimited", 0), ("0s", 0),
    ],
)  # fmt: skip
def test_durations_are_parsed(text: str, nanoseconds: int) -> None:
    assert parse_duration(text) == nanoseconds


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "unlimited"),
        (5400 * 10**9, "1h30m"),
        (30 * 86400 * 10**9, "30d"),
        (100 * 10**6, "100ms"),
        (10**9 + 1, "1s1ns"),
    ],
)
def test_durations_are_formatted(nanoseconds: int, text: str) -> None:
    assert spell_nanoseconds(nanoseconds) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0), ("1024", 1024), ("5B", 5), ("512MiB", 512 * 2**20), ("10GB", 10**10), ("1.5 GiB", 3 * 2**29), ("1TiB", 2**40),
        ("unlimited", -1),
    ],
)  # fmt: skip
def test_sizes_are_parsed(text: str, size: int) -> None:
    assert parse_size(text) == size


NO_DURATION = "is not a valid duration: write it like `90s`, `1h30m`, `30d` or `unlimited`"
NO_SIZE = "is not a valid size: write it like `512MiB`, `10GB` or `unlimited`"


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (parse_duration, "90", NO_DURATION),
        (parse_duration, "1 h", NO_DURATION),
        (parse_duration, "-1s", NO_DURATION),
        (parse_duration, "300000d", "is longer than the 292 years that a server can count"),
        (parse_duration, "0.5ns", "is not a whole number of nanoseconds"),
        (parse_size, "1G", "can mean two sizes: write `1GiB` (powers of 1024) or `1GB` (of 1000)"),
        (parse_size, "2 k", "can mean two sizes: write `2KiB` (powers of 1024) or `2KB` (of 1000)"),
        (parse_size, "1gb", "has its unit in the wrong case: write `1GB`"),
        (parse_size, "1Gb", "has its unit in the wrong case: write `1GB`"),
        (parse_size, "1mib", "has its unit in the wrong case: write `1MiB`"),
        (parse_size, "1PB", "has an unknown unit `PB`: use B, KB, MB, GB, TB or KiB, MiB, GiB, TiB"),
        (parse_size, "-1", NO_SIZE),
        (parse_size, "1,5GB", NO_SIZE),
        (parse_size, "9999999999GB", "is more than a server can count"),
        (parse_size, "0.5B", "is not a whole number of bytes"),
    ],
)
def test_what_is_no_duration_or_size_says_why(parse: Callable[[str], int], text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'`{text}` {reason}')}$"):
        parse(text)


@pytest.mark.parametrize(("text", "quoted"), [("1s\n", "1s\\n"), ("9" * 80 + "s", f"{'9' * 59}…")])
def test_what_is_refused_is_quoted_on_one_line_and_not_at_length(text: str, quoted: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'`{quoted}` {NO_DURATION}')}$"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [("200mbit", 200_000_000), ("1.5gbit", 1_500_000_000), ("64kbit", 64_000), ("1bit", 1), ("unlimited", 0)],
)
def test_rates_are_parsed(text: str, rate: int) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["200", "200Mbit", "200mb", "200 mbit", "-1mbit", "0mbit", "0.1bit", "1mbit\n", "9" * 30 + "gbit"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a valid rate|is too slow"):
        parse_rate(text)


@pytest.mark.parametrize(("text", "share"), [("1%", 0.01), ("0.5%", 0.005), ("0%", 0), ("99.9%", 0.999)])
def test_shares_are_parsed(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["1", "100%", "-1%", "1 %", "%", "1%\n"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a percentage"):
        parse_share(text)


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
