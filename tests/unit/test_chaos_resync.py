"""Who leads a stream after its leader was made to hand over."""

from __future__ import annotations

import pytest

from vstream.chaos.resync import is_still
from vstream.chaos.roles import StreamRole

BEFORE = StreamRole(stream="foo-read-west", leader="west-1", replicas=3, followers=("west-2",), since="19:02")
OLD_SERVER = StreamRole(stream="foo-read-west", leader="west-1", replicas=3, followers=("west-2",))


@pytest.mark.parametrize(
    ("before", "cluster", "expected"),
    [
        (BEFORE, {"leader": "west-1", "leader_since": "19:02"}, True),
        (BEFORE, {"leader": "west-1", "leader_since": "19:03"}, False),
        (BEFORE, {"leader": "west-2", "leader_since": "19:03"}, False),
        (OLD_SERVER, {"leader": "west-1"}, True),
        (OLD_SERVER, {"leader": "west-2"}, False),
    ],
)
def test_a_leader_that_was_elected_again_is_a_new_one(
    before: StreamRole, cluster: dict[str, str], expected: bool
) -> None:
    assert is_still(before, cluster) is expected
