"""Limits that somebody gave a read stream by hand explain nothing that is missing there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from vstream.audit.connector.values import ReadSnapshot, StreamRef
from vstream.audit.extract.extract_plan import with_planned_limits
from vstream.audit.extract.stream_rows import make_stream_row
from vstream.audit.tables.schema import STREAMS


@pytest.mark.parametrize(
    ("role", "observed", "planned", "judged"),
    [
        ("read", {"max_msgs": 3}, {}, {}),
        ("read", {"max_age": 10}, {"max_age": 60}, {"max_age": 60}),
        ("read", {"max_age": 60}, {"max_age": 10}, {"max_age": 60}),
        ("read", {"max_msgs_per_subject": 1, "retention": 1}, {"max_msgs_per_subject": 5}, {"max_msgs_per_subject": 5}),
        ("read", {"allow_msg_ttl": 1, "duplicate_window": 5}, {}, {"allow_msg_ttl": 1, "duplicate_window": 5}),
        ("write", {"max_msgs": 3}, {}, {"max_msgs": 3}),
    ],
)
def test_a_reader_is_judged_by_the_limits_of_the_topology(
    role: str, observed: Mapping[str, int], planned: Mapping[str, int], judged: Mapping[str, int]
) -> None:
    stream = StreamRef(stream=f"foo-{role}-west", region="west", virtual="foo", role=role)
    snapshot = ReadSnapshot(stream_ref=stream, snapshot_ns=0, limits=observed)
    assert with_planned_limits(snapshot, planned).limits == judged


GIB = 1024**3


@pytest.mark.parametrize(
    ("limits", "size", "last", "judged"),
    [
        ({"max_bytes": GIB}, 9_000, 60, {}),
        ({"max_bytes": GIB}, 0, 60, {}),
        ({"max_bytes": GIB, "max_age": 10}, 9_000, 60, {"max_age": 10}),
        ({"max_bytes": GIB}, GIB // 2, 60, {"max_bytes": GIB}),
        ({"max_bytes": 9_000}, 900, 60, {"max_bytes": 9_000}),
        ({"max_msgs": 60}, 9_000, 60, {}),
        ({"max_msgs": 60}, 9_000, 61, {"max_msgs": 60}),
        ({"max_bytes": GIB, "allow_rollup_hdrs": 1}, 9_000, 60, {"max_bytes": GIB, "allow_rollup_hdrs": 1}),
    ],
)
def test_a_limit_that_is_out_of_reach_has_removed_nothing(
    limits: Mapping[str, int], size: int, last: int, judged: Mapping[str, int]
) -> None:
    """Else whoever deletes the first messages of a large stream by hand is not found."""
    stream = StreamRef(stream="foo-read-west", region="west", virtual="foo", role="read")
    snapshot = ReadSnapshot(stream_ref=stream, snapshot_ns=0, messages=9, bytes=size, last_seq=last, limits=limits)
    assert make_stream_row(snapshot)[STREAMS.names.index("limits")] == judged


@pytest.mark.parametrize(
    ("limits", "first", "mirror", "judged"),
    [
        ({"max_msgs": 60}, 2, None, {"max_msgs": 60}),
        ({"max_msgs": 60}, 1, None, {}),
        ({"max_msgs": 60, "first_seq": 2}, 2, None, {"first_seq": 2}),
        ({"max_msgs": 60, "first_seq": 2}, 3, None, {"max_msgs": 60, "first_seq": 2}),
        ({"max_msgs": 60, "max_bytes": GIB}, 2, None, {}),
        # It begins where its stream began when it was made.
        ({"max_msgs": 60}, 2, "foo-write-west", {}),
    ],
)
def test_a_limit_that_is_out_of_reach_now_may_have_been_smaller(
    limits: Mapping[str, int], first: int, mirror: str | None, judged: Mapping[str, int]
) -> None:
    stream = StreamRef(stream="foo-read-west", region="west", virtual="foo", role="read")
    snapshot = ReadSnapshot(
        stream_ref=stream, snapshot_ns=0, messages=9, first_seq=first, last_seq=60, limits=limits, mirror=mirror
    )
    assert make_stream_row(snapshot)[STREAMS.names.index("limits")] == judged


@pytest.mark.parametrize(
    ("first", "later_first", "later_last", "has_lost"),
    [
        (41, 41, 80, False),
        (61, 61, 80, False),
        # What came since has removed the first ones, also where only what is there by now was read.
        (41, 46, 85, True),
        (46, 46, 85, True),
        # It has come too late for that.
        (47, 47, 85, False),
    ],
)
def test_a_limit_that_was_reached_after_the_snapshot_has_removed_more(
    first: int, later_first: int, later_last: int, has_lost: bool
) -> None:
    stream = StreamRef(stream="foo-read-west", region="west", virtual="foo", role="read")
    snapshot = ReadSnapshot(
        stream_ref=stream, snapshot_ns=0, messages=81 - first, first_seq=first, last_seq=80, limits={"max_msgs": 40}
    )
    later = replace(snapshot, first_seq=later_first, last_seq=later_last, messages=later_last - later_first + 1)
    assert ("lost_oldest" in make_stream_row(snapshot, later=later)[STREAMS.names.index("limits")]) == has_lost
