"""When a server's view of its meta group is whole."""

from __future__ import annotations

import pytest

from vstream.jetstream.monitoring import Meta
from vstream.lab.readiness import is_complete


@pytest.mark.parametrize(
    ("size", "followers", "peers", "is_leader", "expected"),
    [
        (3, 2, 3, True, True),
        (3, 0, 3, False, True),
        (2, 2, 3, True, True),  # one less than it has, and the same majority
        (2, 1, 3, True, False),  # one has not joined yet
        (2, 0, 3, False, True),
        (3, 3, 4, True, False),  # two of four would be a majority
        (8, 8, 9, True, True),
        (7, 8, 9, True, False),
        (4, 3, 3, True, False),  # a member that should not be there
    ],
)
def test_a_meta_group_is_whole_with_all_members_and_their_majority(
    size: int, followers: int, peers: int, is_leader: bool, expected: bool
) -> None:
    group = Meta(leader="west-1", cluster_size=size, followers=followers)
    assert is_complete(group, peers, is_leader=is_leader) is expected
