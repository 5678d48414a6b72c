"""When a server's view of its meta group is whole."""

from __future__ import annotations

import asyncio

import pytest

from vstream.errors import NotReachableError
from vstream.jetstream import monitoring
from vstream.jetstream.monitoring import Meta
from vstream.lab.readiness import Member, find_unheard_members, is_meta_group_complete


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
    names = frozenset(f"server-{number}" for number in range(followers))
    group = Meta(leader="west-1", cluster_size=size, followers=names)
    assert is_meta_group_complete(group, peers, is_leader=is_leader) is expected


def test_followers_that_their_leader_does_not_list_are_unheard(monkeypatch: pytest.MonkeyPatch) -> None:
    """As nats-server 2.10 sometimes starts: what no real server does on demand."""
    groups = {
        "west-1": Meta(leader="west-1", cluster_size=2, followers=frozenset({"east-1"})),
        "central-1": Meta(leader="west-1", cluster_size=2),
        "east-1": Meta(leader="west-1", cluster_size=2),
        "north-1": Meta(leader=None, cluster_size=2),
        "south-1": Meta(leader="south-2", cluster_size=2),  # whose leader does not answer
    }

    async def ask(url: str) -> Meta:
        if url not in groups:
            raise NotReachableError(url)
        return groups[url]

    monkeypatch.setattr(monitoring, "read_meta", ask)
    members = []
    for name in (*groups, "south-2"):
        members.append(
            Member(name=name, host="", client=0, monitor=name, siblings=frozenset(), clusters=frozenset(), peers=5)
        )
    assert asyncio.run(find_unheard_members(members)) == {"central-1"}

    groups["west-1"] = groups["central-1"] = groups["north-1"]  # no server has a leader
    assert asyncio.run(find_unheard_members(members[:2])) == {"west-1", "central-1"}
    del groups["west-1"]  # which may have one
    assert not asyncio.run(find_unheard_members(members[:2]))
