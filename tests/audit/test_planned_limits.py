"""Limits that somebody gave a read stream by hand explain nothing that is missing there."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from vstream.audit.extract import with_planned_limits
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
