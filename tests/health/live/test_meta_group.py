"""Whether a meta group can be rescued, by what its servers say of it."""

from __future__ import annotations

import pytest

from vstream.health.live.rescue import MetaGroup, find_listed

SERVERS = ("a", "b", "c", "d", "e")


@pytest.mark.parametrize(
    ("alive", "version", "leader", "refusal"),
    [
        ("ab", "2.15.1", None, None),
        ("ab", "2.15.1", "e", "run this again in some seconds"),  # they have not noticed yet that it is dead
        ("ab", "2.15.1", "a", "run this again in some seconds"),  # it has not noticed yet that it leads no majority
        ("ab", "2.12.8", None, "restart a, b with nats-server 2.15"),
        ("ab", "2.12.8", "e", "restart a, b with nats-server 2.15"),  # 2.12.8 names a dead leader for minutes
        ("abc", "2.15.1", "a", "its quorum is there"),
        ("abc", "2.12.8", "a", "its quorum is there"),
        ("abc", "2.12.8", None, "a majority: they will elect a leader"),
    ],
)
def test_a_meta_group_is_rescued_where_nobody_leads_it_or_will(
    alive: str, version: str, leader: str | None, refusal: str | None
) -> None:
    group = MetaGroup(
        name="meta",
        members=SERVERS,
        alive=dict.fromkeys(alive, version),
        unknown=(),
        leader=leader,
        listed=frozenset(SERVERS) if leader in {*alive} else frozenset(),
        begun=frozenset(),
        system=("west",),
    )
    assert (group.refusal is None) is (refusal is None)
    assert (refusal or "") in (group.refusal or "")


def test_members_are_known_by_their_ids_where_nobody_knows_their_names() -> None:
    """What a server says that was restarted after `west-1` died (2.15.1)."""
    peers = {"east-1", "qEhu2Hj6", "Server name unknown at this time (peerID: gHnVuU16)", "gHnVuU16"}
    assert find_listed(("west-1", "central-3", "east-1"), peers) == {"central-3", "east-1"}
