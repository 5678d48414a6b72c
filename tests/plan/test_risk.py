"""What a changed limit may remove, and how much of it now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from vstream.plan.risk import Risk, classify, estimate_removal
from vstream.topology.model import Role
from vstream.topology.stream_config import ObservedStream, StreamConfig

HOUR = 3600 * 10**9
"""Nanoseconds."""
NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


@pytest.mark.parametrize("role", [Role.WRITE, Role.READ])
@pytest.mark.parametrize(
    ("field", "none"), [("max_age", 0), ("max_bytes", -1), ("max_msgs", -1), ("max_msgs_per_subject", -1)]
)
def test_a_limit_where_there_was_none_may_lose_data_and_none_where_there_was_one_does_not(
    field: str, none: int, role: Role
) -> None:
    assert classify(field, none, HOUR, role).risk is Risk.DATA_LOSS
    assert classify(field, 2 * HOUR, HOUR, role).risk is Risk.DATA_LOSS
    assert classify(field, HOUR, none, role).risk is Risk.SAFE
    assert classify(field, HOUR, 2 * HOUR, role).risk is Risk.SAFE


@pytest.mark.parametrize(
    ("field", "limit", "at_most"),
    [
        ("max_msgs", 60, 40),
        ("max_msgs", 100, 0),
        ("max_bytes", 999, 100),
        ("max_bytes", 1000, 0),
        ("max_msgs_per_subject", 1, 93),
        ("max_age", HOUR, 100),
        ("max_age", 3 * HOUR, 0),
    ],
)
def test_what_a_limit_removes_now_is_said_from_what_servers_hold(field: str, limit: int, at_most: int) -> None:
    config = StreamConfig(name="foo", fields={})
    held = ObservedStream(
        config=config,
        created="",
        cluster=None,
        messages=100,
        bytes=1000,
        first_at=NOW - timedelta(hours=2),
        subject_count=7,
    )
    removal = estimate_removal(field, limit, held, NOW)
    assert removal is not None
    assert (removal.at_most, removal.held) == (at_most, 100)
    assert estimate_removal(field, 0, held, NOW) is None


def test_without_the_age_of_the_first_message_nothing_is_said() -> None:
    held = ObservedStream(config=StreamConfig(name="foo", fields={}), created="", cluster=None, messages=100)
    assert estimate_removal("max_age", HOUR, held, NOW) is None
