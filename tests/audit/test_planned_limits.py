"""Limits that somebody gave a read stream by hand explain nothing that is missing there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from vstream.audit.extract import stream_row, with_planned_limits
from vstream.audit.schema import STREAMS
from vstream.audit.source.values import StreamCut, StreamRef


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
    cut = StreamCut(stream_ref=stream, cut_at_ns=0, limits=observed)
    assert with_planned_limits(cut, planned).limits == judged


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
    cut = StreamCut(stream_ref=stream, cut_at_ns=0, messages=9, bytes=size, last_seq=last, limits=limits)
    assert stream_row(cut)[STREAMS.names.index("limits")] == judged
